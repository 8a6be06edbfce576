//! Copies and sets: direction, kind of memory, size, time in the call; and Nsight Systems' rules for the costly ones.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use super::texts::Texts;
use super::waiting::{Pending, Transfer};
use crate::trace::{Rows, Want};

/// A smaller transfer is a small one (metrics.md: 64 KiB).
pub(crate) const SMALL_BYTES: i64 = 64 * 1024;
/// A synchronous copy to the device up to this size does not block for long: `cuda_memcpy_sync` leaves it out.
const FREE_HTOD_BYTES: i64 = 64_000;

/// Stands for bytes that the trace does not tell.
const UNKNOWN: i64 = -1;
/// A larger part of the calls without a size leaves the bytes of all of them unknown.
const UNSIZED: f64 = 0.01;

/// Whether a synchronous copy of this size returns when its bytes are in a buffer of the driver's.
pub(crate) fn is_staged(set: bool, direction: &str, bytes: i64) -> bool {
    !set && direction == "HtoD" && bytes <= FREE_HTOD_BYTES
}

/// Which transfers are counted together. Texts are numbers of [`Texts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// A set, not a copy.
    pub(crate) set: bool,
    /// Direction.
    pub(crate) direction: u16,
    /// Memory of the source.
    pub(crate) src: u16,
    /// Memory of the destination.
    pub(crate) dst: u16,
    /// Queued in stream order.
    pub(crate) queued: bool,
    /// Function.
    pub(crate) api_id: i64,
}

/// Transfers of one key.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// Time in the calls.
    pub(crate) api: Stats,
    /// Bytes, as far as they are known.
    pub(crate) bytes: i64,
    /// Calls whose bytes are not known.
    pub(crate) unsized_calls: u64,
    /// Waiting for earlier work in the calls that did ([`super::waiting`]).
    pub(crate) waited: Stats,
    /// Calls that waited in steady steps.
    pub(crate) waited_steady: u64,
    /// In steady steps of usual duration: calls that waited, and their waiting.
    pub(crate) waited_middle: (u64, i64),
    /// Bytes of the calls that did not wait, and their time.
    pub(crate) unwaited: (i64, i64),
    /// Calls of fewer than [`SMALL_BYTES`] bytes, and not of none.
    pub(crate) small: u64,
    /// Small calls that no rule names, and their time, without waiting.
    pub(crate) unruled_small: (u64, i64),
    /// The same in steady steps of usual duration.
    pub(crate) unruled_small_middle: (u64, i64),
    /// Which of Nsight Systems' rules count these calls, and how many of them: a copy's size decides too.
    pub(crate) rule: RuleSum,
}

/// Calls that a rule of Nsight Systems names.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RuleSum {
    /// Calls.
    pub(crate) count: u64,
    /// Time in them.
    pub(crate) ns: i64,
    /// Bytes.
    pub(crate) bytes: i64,
    /// Calls that did more than wait, and their time without waiting.
    pub(crate) own: (u64, i64),
    /// The same in steady steps of usual duration.
    pub(crate) middle: (u64, i64),
}

/// Nsight Systems' rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// An asynchronous copy that touches pageable memory: the driver copies through a buffer of its own and may wait.
    MemcpyAsync,
    /// A synchronous copy, but for small ones to the device and copies within one device.
    MemcpySync,
    /// A synchronous set on pinned or managed memory.
    MemsetSync,
}

impl Rule {
    /// Nsight Systems' name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rule::MemcpyAsync => "cuda_memcpy_async",
            Rule::MemcpySync => "cuda_memcpy_sync",
            Rule::MemsetSync => "cuda_memset_sync",
        }
    }
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Transfers {
    /// By key.
    pub(crate) sums: Groups<Key, Sum>,
    texts: Texts,
    cursor: Cursor,
}

impl Default for Transfers {
    fn default() -> Self {
        let other = Key { process_id: OTHER, api_id: OTHER, ..Key::default() };
        Transfers { sums: Groups::new(10_000, other), texts: Texts::default(), cursor: Cursor::default() }
    }
}

impl Transfers {
    /// Whether the bytes of nearly all calls are known, of one process or of all.
    pub(crate) fn is_sized(&self, process_id: Option<i64>) -> bool {
        let own = self.sums.iter().filter(|(key, _)| process_id.is_none_or(|id| key.process_id == id));
        let (calls, unsized_calls) =
            own.fold((0, 0), |all, (_, sum)| (all.0 + sum.api.count, all.1 + sum.unsized_calls));
        unsized_calls as f64 <= UNSIZED * calls as f64
    }

    /// The text of a direction or kind of memory.
    pub(crate) fn text(&self, number: u16) -> &str {
        self.texts.text(number)
    }

    /// The rule that names a group of calls, if one does.
    pub(crate) fn rule(&self, key: &Key) -> Option<Rule> {
        let memory = [self.text(key.src), self.text(key.dst)];
        match (key.set, key.queued) {
            (false, true) => memory.contains(&"pageable").then_some(Rule::MemcpyAsync),
            (false, false) => (self.text(key.direction) != "DtoD").then_some(Rule::MemcpySync),
            (true, false) => matches!(memory[1], "pinned" | "managed").then_some(Rule::MemsetSync),
            (true, true) => None,
        }
    }
}

impl Pass for Transfers {
    fn wants(&self) -> &'static [Want] {
        const COLUMNS: &[&str] =
            &["api_ns", "api_id", "kind", "direction", "src_kind", "dst_kind", "bytes", "async", "pending_streams"];
        &[Want { table: TableId::Transfers, columns: COLUMNS }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (api, bytes, queued) = (rows.i64("api_id"), rows.i64_or("bytes", UNKNOWN), rows.flags("async"));
        let (kind, direction) = (rows.texts("kind"), rows.texts("direction"));
        let (src, dst) = (rows.texts("src_kind"), rows.texts("dst_kind"));
        let pending = rows.i32_or("pending_streams", Pending::MISSING);
        for row in 0..rows.len {
            let is_sized = bytes[row] != UNKNOWN;
            let (process_id, ns, bytes) = (process[row], length[row].max(0), bytes[row].max(0));
            let key = Key {
                process_id,
                set: kind.get(row) == "set",
                direction: self.texts.number(direction.get(row)),
                src: self.texts.number(src.get(row)),
                dst: self.texts.number(dst.get(row)),
                queued: queued.get(row),
                api_id: api[row],
            };
            let staged = is_staged(key.set, self.text(key.direction), bytes);
            let rule = self.rule(&key).filter(|rule| !(*rule == Rule::MemcpySync && staged));
            let place = steps.place(&mut self.cursor, process_id, start[row]);
            let middle = place.is_middle();
            let small = bytes > 0 && bytes < SMALL_BYTES;
            let memory = [src.get(row), dst.get(row)];
            let (Key { set, queued, .. }, direction) = (key, direction.get(row));
            let transfer = Transfer { set, queued, memory, direction, pending: Pending::of(pending[row]) };
            let waited = transfer.waited_ns(bytes, ns);
            let own = ns - waited;
            let sum = self.sums.at(key);
            sum.api.add(ns);
            sum.bytes += bytes;
            sum.unsized_calls += u64::from(!is_sized);
            sum.small += u64::from(small);
            if waited > 0 {
                sum.waited.add(waited);
                sum.waited_steady += u64::from(place.is_steady());
                if middle {
                    sum.waited_middle = (sum.waited_middle.0 + 1, sum.waited_middle.1 + waited);
                }
            } else if is_sized {
                sum.unwaited = (sum.unwaited.0 + bytes, sum.unwaited.1 + ns);
            }
            let add = |to: &mut (u64, i64)| *to = (to.0 + 1, to.1 + own);
            // Of a small copy that waited nothing is left that copying otherwise would save.
            let only_waited = waited > 0 && small;
            if rule.is_some() {
                sum.rule.count += 1;
                sum.rule.ns += ns;
                sum.rule.bytes += bytes;
                if !only_waited {
                    add(&mut sum.rule.own);
                    if middle {
                        add(&mut sum.rule.middle);
                    }
                }
            } else if small && !only_waited {
                add(&mut sum.unruled_small);
                if middle {
                    add(&mut sum.unruled_small_middle);
                }
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.sums.iter().map(|(key, _)| key.api_id));
    }
}
