//! What the host did with its time: in launch calls, copies, waits and other driver calls, and outside the driver.
//!
//! Calls of one thread do not overlap, so for a process in which one thread calls the driver the parts are plain sums.
//! Where several threads do, each nanosecond counts once, for the first of launch, copy, memory, other and wait that
//! any thread was in; so the parts and the time outside the driver always sum to the whole.
//!
//! A launch that was drawn by chance, because others were left out to keep to a budget, counts as those that it stands for, in calls and
//! in time; where several threads call the driver its time is its own, for nobody knows when the others were.
//!
//! A copy, set, free or allocation that waited for earlier work is a wait first and then what it is ([`super::waiting`]).
//!
//! Of the time outside the driver, what the thread that makes the steps waited for the operating system is told apart;
//! waits of other threads need not hold it up, and where another thread launches meanwhile it waits for that one's work.
//! The rest has no evidence of its cause.

use std::sync::Arc;

use gputrace_collectors::results::has_failed;
use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::drawn::{self, time_of};
use super::groups::Groups;
use super::steps::{Cursor, Place, Steps, blocks};
use super::union::Union;
use super::waiting::{Idle, Memory, Pending, Transfer};
use crate::trace::{Rows, Want};

/// What a driver call was for, in the order in which overlapping ones count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Part {
    /// Launches, and dispatches into what is launched.
    Launch,
    /// Copies and sets.
    Copy,
    /// Allocation and release of driver memory.
    Memory,
    /// All else: modules, streams, events, contexts, queries, waits of streams.
    Other,
    /// The host waits.
    Wait,
}

/// Number of parts.
pub(crate) const PARTS: usize = 5;

/// Calls and their time, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Parts {
    /// Calls.
    pub(crate) calls: [u64; PARTS],
    /// Time in them, summed over threads, ns.
    pub(crate) sum_ns: [i64; PARTS],
    /// Copies, frees and allocations that waited for earlier work; their waiting is time of [`Part::Wait`].
    pub(crate) implicit_waits: u64,
}

impl Parts {
    #[inline]
    fn add(&mut self, part: Part, calls: u64, ns: i64, waited_ns: i64) {
        self.calls[part as usize] += calls;
        self.sum_ns[part as usize] += ns - waited_ns;
        if waited_ns > 0 {
            self.sum_ns[Part::Wait as usize] += waited_ns;
            self.implicit_waits += 1;
        }
    }

    /// Time in a part.
    pub(crate) fn ns(&self, part: Part) -> i64 {
        self.sum_ns[part as usize]
    }
}

/// The host's time in one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessTime {
    /// Begin of the first driver call and end of the last; both 0 without calls.
    pub(crate) span_ns: (i64, i64),
    /// The whole run.
    pub(crate) all: Parts,
    /// Steady steps.
    pub(crate) steady: Parts,
    /// Steady steps of usual duration.
    pub(crate) middle: Parts,
    /// Calls that failed (result not 0), but for queries that answered "not ready".
    pub(crate) failed: u64,
    /// Waits for the operating system that were recorded, of all threads.
    pub(crate) system_waits: u64,
    /// Time in those of the thread that makes the steps, in the middle steps.
    system_ns: i64,
    /// Unions of the parts up to each one and, last, of all and the waits for the operating system, over the middle
    /// steps, else over the run.
    covered: Option<Box<[Union; PARTS + 1]>>,
    steps: bool,
}

impl ProcessTime {
    /// Whether any driver call was recorded.
    pub(crate) fn any(&self) -> bool {
        self.all.calls.iter().any(|c| *c > 0)
    }

    /// The usual step (or the run, when there are no steps) by what the host did: time per part, each ns once.
    pub(crate) fn shares_ns(&self) -> [i64; PARTS] {
        match &self.covered {
            Some(unions) => {
                let mut before = 0;
                std::array::from_fn(|i| {
                    let up_to = unions[i].total_ns();
                    let own = up_to - before;
                    before = up_to;
                    own
                })
            }
            None if self.steps => self.middle.sum_ns,
            None => self.all.sum_ns,
        }
    }

    /// Time outside the driver in which the thread that makes the steps waited for the operating system, in the steps of
    /// [`shares_ns`](Self::shares_ns). None without steps.
    pub(crate) fn system_ns(&self) -> Option<i64> {
        let own = self.covered.as_ref().map(|unions| unions[PARTS].total_ns() - unions[PARTS - 1].total_ns());
        self.steps.then(|| own.unwrap_or(self.system_ns))
    }
}

/// The pass.
#[derive(Debug, Default)]
pub(crate) struct HostTime {
    /// By process.
    pub(crate) processes: Groups<i64, ProcessTime>,
    /// Devices on which work was launched.
    pub(crate) devices: FxHashSet<i32>,
    idle: Arc<Idle>,
    cursor: Cursor,
}

impl HostTime {
    /// Judges frees and allocations by what they take when nothing is pending.
    pub(crate) fn new(idle: Arc<Idle>) -> HostTime {
        HostTime { idle, ..HostTime::default() }
    }
}

impl Pass for HostTime {
    fn wants(&self) -> &'static [Want] {
        &[
            Want { table: TableId::Launches, columns: &["api_ns", "device", "result", "stands_for"] },
            Want { table: TableId::Syncs, columns: &["api_ns", "kind", "result"] },
            Want {
                table: TableId::Transfers,
                columns: &[
                    "api_ns",
                    "result",
                    "kind",
                    "async",
                    "bytes",
                    "src_kind",
                    "dst_kind",
                    "direction",
                    "pending_streams",
                ],
            },
            Want {
                table: TableId::DeviceMemory,
                columns: &["api_ns", "api_id", "result", "kind", "bytes", "pending_streams"],
            },
            Want { table: TableId::Api, columns: &["api_ns", "result"] },
            Want { table: TableId::Dispatches, columns: &["api_ns"] },
            Want { table: TableId::OsWaits, columns: &["tid", "wait_ns"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        if rows.table == TableId::OsWaits {
            return self.system_waits(rows, steps);
        }
        let process = rows.i64("process_id");
        let (start, length) = (rows.i64("start_ns"), rows.i64("api_ns"));
        let (kind, result) = (rows.texts("kind"), rows.i32_or("result", 0));
        let stands_for = rows.i32_or("stands_for", 1);
        let (bytes, queued) = (rows.i64_or("bytes", 0), rows.flags("async"));
        let (src, dst, direction) = (rows.texts("src_kind"), rows.texts("dst_kind"), rows.texts("direction"));
        let (api, pending) = (rows.i64("api_id"), rows.i32_or("pending_streams", Pending::MISSING));
        if rows.table == TableId::Launches {
            let device = rows.i32_or("device", -1);
            let mut last = -1;
            for device in device.iter().filter(|d| **d >= 0) {
                if *device != last {
                    self.devices.insert(*device);
                    last = *device;
                }
            }
        }
        for row in 0..rows.len {
            let part = match rows.table {
                TableId::Launches | TableId::Dispatches => Part::Launch,
                TableId::Transfers => Part::Copy,
                TableId::DeviceMemory => Part::Memory,
                TableId::Syncs if blocks(kind.get(row)) => Part::Wait,
                _ => Part::Other,
            };
            let (start, ns) = (start[row], length[row].max(0));
            let waited = match part {
                Part::Copy => {
                    let memory = [src.get(row), dst.get(row)];
                    let (set, pending) = (kind.get(row) == "set", Pending::of(pending[row]));
                    let (queued, direction) = (queued.get(row), direction.get(row));
                    Transfer { set, queued, memory, direction, pending }.waited_ns(bytes[row], ns)
                }
                Part::Memory => {
                    let (process_id, api_id, pending) = (process[row], api[row], Pending::of(pending[row]));
                    let memory = Memory { process_id, api_id, kind: kind.get(row), bytes: bytes[row], pending };
                    memory.waited_ns(&self.idle, ns)
                }
                _ => 0,
            };
            // What a dispatch takes is time of the launch that it is encoded for.
            let times = drawn::times(stands_for[row]);
            let calls = u64::from(rows.table != TableId::Dispatches) * u64::from(times);
            let time = self.processes.at(process[row]);
            let end = start.saturating_add(ns);
            if time.span_ns == (0, 0) {
                time.span_ns = (start, end);
                time.steps = steps.of(process[row]).is_some();
            }
            time.span_ns = (time.span_ns.0.min(start), time.span_ns.1.max(end));
            time.failed += u64::from(has_failed(result[row], false));
            time.all.add(part, calls, time_of(ns, times), waited);
            let place = steps.place(&mut self.cursor, process[row], start);
            let mut limit = None;
            match place {
                Place::Middle(step_end) => {
                    time.steady.add(part, calls, time_of(ns, times), waited);
                    // A thread that does not make the steps may still be in the call when the step ends.
                    let within = step_end - start;
                    time.middle.add(part, calls, time_of(ns.min(within), times), waited.min(within));
                    limit = Some(step_end);
                }
                Place::Steady => time.steady.add(part, calls, time_of(ns, times), waited),
                Place::Outside if !time.steps => limit = Some(end),
                _ => {}
            }
            if let (Some(limit), true) = (limit, steps.several_callers(process[row])) {
                let unions = time.covered.get_or_insert_default();
                let begin = start + waited;
                for union in &mut unions[Part::Wait as usize..] {
                    union.add(start, begin.min(limit));
                }
                for union in &mut unions[part as usize..] {
                    union.add(begin, end.min(limit));
                }
            }
        }
    }
}

impl HostTime {
    fn system_waits(&mut self, rows: &Rows, steps: &Steps) {
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (start, length) = (rows.i64("start_ns"), rows.i64("wait_ns"));
        for row in 0..rows.len {
            let time = self.processes.at(process[row]);
            time.system_waits += 1;
            let Place::Middle(step_end) = steps.place(&mut self.cursor, process[row], start[row]) else { continue };
            let end = start[row].saturating_add(length[row].max(0)).min(step_end);
            if !steps.holds_up(process[row], tid[row], start[row], end) {
                continue;
            }
            time.system_ns += end - start[row];
            if steps.several_callers(process[row]) {
                time.covered.get_or_insert_default()[PARTS].add(start[row], end);
            }
        }
    }
}
