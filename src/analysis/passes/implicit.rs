//! Calls that wait, or hold the host up, without saying so: copies and sets, frees, allocations, loading and compiling
//! of code; and what the legacy stream makes wait.
//!
//! How much of a call was waiting is said by [`super::waiting`]. Loading and compiling is not waiting for the GPU, but
//! the host stands still all the same; what of it was waiting (loading may wait for the whole context) is not known. A
//! launch loads its kernel's module where loading is lazy ([`super::first_launches`]).

use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::sites::Sites;
use super::stats::Stats;
use super::steps::{Cursor, Place, Steps};
use super::transfers::{Rule, is_staged};
use super::waiting::{Idle, Memory, Pending, Transfer};
use crate::trace::{Rows, Want};

/// Why a call holds the host up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A synchronous copy.
    Copy,
    /// An asynchronous copy of pageable memory.
    PageableCopy,
    /// A synchronous set of memory that the host sees.
    Set,
    /// A free.
    Free,
    /// An allocation.
    Alloc,
    /// A module, library, kernel or function is loaded or looked up.
    Module,
    /// Code is compiled or linked by the driver.
    Jit,
    /// The first launch of a function, whose module is loaded then.
    LazyLaunch,
}

impl Kind {
    /// As reports say it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Kind::Copy => "copy",
            Kind::PageableCopy => "pageable copy",
            Kind::Set => "set",
            Kind::Free => "free",
            Kind::Alloc => "allocation",
            Kind::Module => "module loading",
            Kind::Jit => "JIT",
            Kind::LazyLaunch => "lazy loading",
        }
    }

    /// Nsight Systems' rule for such calls.
    pub(crate) fn rule(self) -> Option<&'static str> {
        let rule = match self {
            Kind::Copy => Rule::MemcpySync,
            Kind::PageableCopy => Rule::MemcpyAsync,
            Kind::Set => Rule::MemsetSync,
            _ => return None,
        };
        Some(rule.name())
    }

    /// Whether it waits for work that was queued before it, as far as can be told.
    pub(crate) fn waits(self) -> bool {
        !matches!(self, Kind::Module | Kind::Jit | Kind::LazyLaunch)
    }
}

/// Which calls are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// Why they wait.
    pub(crate) kind: Kind,
    /// Function.
    pub(crate) api_id: i64,
}

/// Calls of one key.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Their durations; of launches that loaded their module, beyond a usual launch.
    pub(crate) api: Stats,
    /// Calls that found work pending.
    pub(crate) pending: u64,
    /// Calls that Nsight Systems' rule for them names: it leaves small synchronous copies to the device out.
    pub(crate) ruled: u64,
    /// What was waiting, of the calls that waited.
    pub(crate) waited: Stats,
    /// Calls that waited in steady steps.
    pub(crate) waited_steady: u64,
    /// In steady steps of usual duration: calls that waited, and their waiting.
    pub(crate) waited_middle: (u64, i64),
}

/// What the legacy stream and others make wait for each other, by function.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    /// Work that was queued behind another stream's.
    pub(crate) queued: u64,
    /// Of it in steady steps of usual duration.
    pub(crate) queued_middle: u64,
    /// Waits of the host that were for other streams too.
    pub(crate) waits: Stats,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Implicit {
    /// By process, kind and function.
    pub(crate) calls: Groups<Key, Calls>,
    /// By process and function.
    pub(crate) legacy: Groups<(i64, i64), Legacy>,
    idle: Arc<Idle>,
    cursor: Cursor,
}

impl Implicit {
    /// Judges frees and allocations by what they take when nothing is pending.
    pub(crate) fn new(idle: Arc<Idle>) -> Implicit {
        let other = Key { process_id: OTHER, kind: Kind::Module, api_id: OTHER };
        Implicit {
            calls: Groups::new(10_000, other),
            legacy: Groups::new(10_000, (OTHER, OTHER)),
            idle,
            cursor: Cursor::default(),
        }
    }

    /// Adds the first launches that loaded their kernel's module: another pass looks for them, in every launch.
    pub(crate) fn lazy(&mut self, sites: &Sites) {
        for load in &sites.lazy {
            let key = Key { process_id: load.process_id, kind: Kind::LazyLaunch, api_id: load.api_id };
            self.calls.at(key).api.add(load.ns);
        }
    }

    /// What waits for work that was queued before it, of one process or of all.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (&Key, &Calls)> {
        self.calls.iter().filter(|(key, calls)| key.kind.waits() && calls.waited.count > 0)
    }

    /// What loads or compiles code, and holds the host up in the whole call: calls and their time.
    pub(crate) fn loads(&self) -> impl Iterator<Item = (&Key, u64, i64)> {
        let loads = self.calls.iter().filter(|(key, _)| !key.kind.waits());
        loads.map(|(key, calls)| (key, calls.api.count, calls.api.sum))
    }

    fn add(&mut self, key: Key, ns: i64, pending: Pending, waited: i64, place: impl FnOnce(&mut Cursor) -> Place) {
        let calls = self.calls.at(key);
        calls.api.add(ns);
        calls.pending += u64::from(pending == Pending::Some);
        if waited > 0 {
            let place = place(&mut self.cursor);
            calls.waited.add(waited);
            calls.waited_steady += u64::from(place.is_steady());
            if place.is_middle() {
                calls.waited_middle = (calls.waited_middle.0 + 1, calls.waited_middle.1 + waited);
            }
        }
    }

    fn transfers(&mut self, rows: &Rows, steps: &Steps) {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (api, bytes, queued) = (rows.i64("api_id"), rows.i64("bytes"), rows.flags("async"));
        let (kind, src, dst) = (rows.texts("kind"), rows.texts("src_kind"), rows.texts("dst_kind"));
        let (pending, direction) = (rows.i32_or("pending_streams", Pending::MISSING), rows.texts("direction"));
        for row in 0..rows.len {
            let transfer = Transfer {
                set: kind.get(row) == "set",
                queued: queued.get(row),
                memory: [src.get(row), dst.get(row)],
                direction: direction.get(row),
                pending: Pending::of(pending[row]),
            };
            if !transfer.blocks() {
                continue;
            }
            let kind = match (transfer.set, transfer.queued) {
                (true, _) => Kind::Set,
                (false, false) => Kind::Copy,
                (false, true) => Kind::PageableCopy,
            };
            let (key, ns) = (Key { process_id: process[row], kind, api_id: api[row] }, length[row].max(0));
            let place = |cursor: &mut Cursor| steps.place(cursor, process[row], start[row]);
            self.add(key, ns, transfer.pending, transfer.waited_ns(bytes[row], ns), place);
            let staged = kind == Kind::Copy && is_staged(false, direction.get(row), bytes[row]);
            self.calls.at(key).ruled += u64::from(!staged);
        }
    }

    fn memory(&mut self, rows: &Rows, steps: &Steps) {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (api, bytes) = (rows.i64("api_id"), rows.i64("bytes"));
        let (action, kind) = (rows.texts("action"), rows.texts("kind"));
        let pending = rows.i32_or("pending_streams", Pending::MISSING);
        for row in (0..rows.len).filter(|row| kind.get(*row) != "async") {
            let (process_id, api_id, ns) = (process[row], api[row], length[row].max(0));
            let pending = Pending::of(pending[row]);
            let memory = Memory { process_id, api_id, kind: kind.get(row), bytes: bytes[row], pending };
            let kind = if action.get(row) == "free" { Kind::Free } else { Kind::Alloc };
            let waited = memory.waited_ns(&self.idle, ns);
            let place = |cursor: &mut Cursor| steps.place(cursor, process_id, start[row]);
            self.add(Key { process_id, kind, api_id }, ns, pending, waited, place);
        }
    }

    fn modules(&mut self, rows: &Rows) {
        let (process, api, length) = (rows.i64("process_id"), rows.i64("api_id"), rows.i64("api_ns"));
        let (class, jit) = (rows.texts("class"), rows.flags("jit"));
        let pending = rows.i32_or("pending_streams", Pending::MISSING);
        for row in (0..rows.len).filter(|row| class.get(*row) == "module") {
            let kind = if jit.get(row) { Kind::Jit } else { Kind::Module };
            let calls = self.calls.at(Key { process_id: process[row], kind, api_id: api[row] });
            calls.api.add(length[row]);
            calls.pending += u64::from(pending[row] > 0);
        }
    }

    fn legacy(&mut self, rows: &Rows, steps: &Steps) {
        let (process, api, length) = (rows.i64("process_id"), rows.i64("api_id"), rows.i64("api_ns"));
        let start = rows.i64("start_ns");
        let (legacy, kind) = (rows.flags("legacy"), rows.texts("kind"));
        let (src, dst, queued) = (rows.texts("src_kind"), rows.texts("dst_kind"), rows.flags("async"));
        let direction = rows.texts("direction");
        for row in (0..rows.len).filter(|row| legacy.get(*row)) {
            let waits = match rows.table {
                TableId::Syncs => true,
                TableId::Transfers => {
                    let (set, memory) = (kind.get(row) == "set", [src.get(row), dst.get(row)]);
                    let (queued, direction) = (queued.get(row), direction.get(row));
                    Transfer { set, queued, memory, direction, pending: Pending::Some }.blocks()
                }
                _ => false,
            };
            let sum = self.legacy.at((process[row], api[row]));
            if waits {
                sum.waits.add(length[row]);
            } else {
                sum.queued += 1;
                let place = steps.place(&mut self.cursor, process[row], start[row]);
                sum.queued_middle += u64::from(place.is_middle());
            }
        }
    }
}

impl Pass for Implicit {
    fn wants(&self) -> &'static [Want] {
        const LAUNCHES: &[&str] = &["api_ns", "api_id", "legacy"];
        const TRANSFERS: &[&str] = &[
            "api_ns",
            "api_id",
            "kind",
            "direction",
            "src_kind",
            "dst_kind",
            "bytes",
            "async",
            "pending_streams",
            "legacy",
        ];
        &[
            Want { table: TableId::Launches, columns: LAUNCHES },
            Want { table: TableId::Syncs, columns: &["api_ns", "api_id", "kind", "legacy"] },
            Want { table: TableId::Transfers, columns: TRANSFERS },
            Want {
                table: TableId::DeviceMemory,
                columns: &["api_ns", "api_id", "action", "kind", "bytes", "pending_streams", "legacy"],
            },
            Want { table: TableId::Api, columns: &["api_ns", "api_id", "class", "jit", "pending_streams"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        match rows.table {
            TableId::Transfers => self.transfers(rows, steps),
            TableId::DeviceMemory => self.memory(rows, steps),
            TableId::Api => self.modules(rows),
            _ => {}
        }
        self.legacy(rows, steps);
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.calls.iter().map(|(key, _)| key.api_id));
        ids.extend(self.legacy.iter().map(|((_, api), _)| *api));
    }
}
