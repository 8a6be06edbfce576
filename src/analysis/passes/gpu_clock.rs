//! Whether the GPU's clock and the host's are one: kernels begin after the call that launched them, and not long after all calls.
//! And whether launches have their kernels: where many have none, the GPU's times are not whole.
//!
//! Launches and kernels are joined wherever they lie, unlike in [`super::gpu`], which joins what lies near in time; so of a long run
//! a part of the calls is looked at, by their numbers.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::Pass;
use super::by_call::ByCall;
use super::kernels::NO_GRAPH;
use super::stats::Stats;
use super::steps::Steps;
use crate::trace::{Filter, Rows, Trace, Want};

/// Calls and kernels of a process that wait for each other at most; where there are more, fewer are looked at.
const WAITING: usize = 16_384;
/// Processes that are looked at.
const PROCESSES: usize = 256;
/// Clocks that profilers compared differ by less.
const EARLY_NS: i64 = 5_000;

/// What waits for what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Kernel,
    /// A launch of one kernel.
    Launch,
    /// Another launch: of a graph, of a host function, under capture, one that failed.
    Other,
}

/// Launches without a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    /// How many; about, of a long run.
    pub(crate) count: u64,
    /// When the first of them began.
    pub(crate) first_ns: i64,
}

/// What was seen of one process.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Kernels whose launch was found.
    pub(crate) joined: u64,
    /// Those that began before their launch did: by how much.
    pub(crate) early: Stats,
    /// The shortest time from the begin of a launch to the begin of its kernel.
    pub(crate) soonest_ns: i64,
    /// From the begin of its first kernel to the end of the last.
    pub(crate) span_ns: (i64, i64),
    /// Launches of one kernel each, that of a graph not.
    pub(crate) launches: u64,
    /// Its kernels, and those of them that name no call.
    pub(crate) kernels: u64,
    nameless: u64,
    /// Begin of the last launch whose kernel was found.
    pub(crate) last_joined_ns: i64,
    /// Begin of the last call that waited for the GPU, and came back.
    last_wait_ns: i64,
    /// Calls, and kernels, that have not met: when each began, and what it is.
    waiting: ByCall<(i64, What)>,
    /// How many these are.
    held: usize,
    /// One call of so many powers of two is looked at.
    halvings: u32,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            joined: 0,
            early: Stats::default(),
            soonest_ns: i64::MAX,
            span_ns: (i64::MAX, i64::MIN),
            launches: 0,
            kernels: 0,
            nameless: 0,
            last_joined_ns: i64::MIN,
            last_wait_ns: i64::MIN,
            waiting: ByCall::new(usize::MAX),
            held: 0,
            halvings: 0,
        }
    }
}

/// Whether a call is one of those that are looked at.
fn is_drawn(call: i64, halvings: u32) -> bool {
    (call as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).leading_zeros() >= halvings
}

impl Seen {
    /// Launches whose kernel is missing. What was launched after the last wait, and after all that is known to have run, may
    /// have been under way when the trace ended; of a window (`part`) all that was launched after its last wait.
    pub(crate) fn missing(&self, part: bool) -> Missing {
        let last = if part { self.last_wait_ns } else { self.last_wait_ns.max(self.last_joined_ns) };
        let none_ran = self.joined == 0 && !part;
        let missing = |(at, what): &&(i64, What)| *what == What::Launch && (none_ran || *at <= last);
        let found = || self.waiting.values().filter(missing);
        let count = (found().count() as u64) << self.halvings.min(32);
        Missing { count: count.min(self.launches), first_ns: found().map(|(at, _)| *at).min().unwrap_or(i64::MAX) }
    }

    /// A kernel that lies beside what is kept: its launch has one.
    fn add_beside(&mut self, call: i64) {
        if self.waiting.get(0, call).is_some_and(|(_, what)| *what == What::Launch) {
            self.waiting.take(0, call);
            self.held -= 1;
        }
    }

    /// Kernels whose launch is missing, about, if that is most of them. Of a graph's kernels one meets the launch of all, and one
    /// waits, so that no more than half are taken for such.
    pub(crate) fn uncalled(&self) -> Option<u64> {
        let waiting = self.waiting.values().filter(|(_, what)| *what == What::Kernel).count() as u64;
        let most = self.nameless + waiting > self.joined;
        most.then(|| (self.nameless + (waiting << self.halvings.min(32))).min(self.kernels))
    }

    fn add(&mut self, call: i64, at: i64, what: What) {
        if !is_drawn(call, self.halvings) {
            return;
        }
        let is_kernel = what == What::Kernel;
        let Some((other, other_what)) = self.waiting.get(0, call).copied() else {
            self.waiting.insert(0, call, at, (at, what));
            self.held += 1;
            if self.held > WAITING {
                self.halvings += 1;
                let halvings = self.halvings;
                self.waiting.retain(|_, call| is_drawn(call, halvings));
                self.held = self.waiting.len();
            }
            return;
        };
        if (other_what == What::Kernel) == is_kernel {
            return;
        }
        self.waiting.take(0, call);
        self.held -= 1;
        let after_ns = if is_kernel { at - other } else { other - at };
        self.joined += 1;
        self.last_joined_ns = self.last_joined_ns.max(if is_kernel { other } else { at });
        self.soonest_ns = self.soonest_ns.min(after_ns);
        if after_ns < -EARLY_NS {
            self.early.add(-after_ns);
        }
    }
}

/// The pass.
#[derive(Debug, Default)]
pub(crate) struct GpuClock {
    processes: FxHashMap<i64, Seen>,
}

impl GpuClock {
    /// What was seen of a process.
    pub(crate) fn any_of(&self, process_id: i64) -> Option<&Seen> {
        self.processes.get(&process_id)
    }

    /// The same of one that has kernels.
    pub(crate) fn of(&self, process_id: i64) -> Option<&Seen> {
        self.any_of(process_id).filter(|seen| seen.span_ns.0 <= seen.span_ns.1)
    }
}

impl GpuClock {
    /// Looks beside what is kept of a trace for the kernels that launches lack.
    pub(crate) fn look_beside(&mut self, trace: &Trace, filter: &Filter) {
        let processes = &mut self.processes;
        if !filter.is_stretch() || filter.is_gapped() || processes.values().all(|seen| seen.missing(true).count == 0) {
            return;
        }
        let beside = Filter { from_ns: filter.begin_ns(), ..filter.around_steps() };
        trace.scan(&[Want { table: TableId::Kernels, columns: &["correlation_id"] }], &beside, &mut |rows| {
            let (process, call) = (rows.i64("process_id"), rows.i64("correlation_id"));
            for (process, call) in process.iter().zip(call.iter()) {
                processes.get_mut(process).into_iter().for_each(|seen| seen.add_beside(*call));
            }
        });
    }

    fn waits(&mut self, rows: &Rows) {
        let (process, start, kind) = (rows.i64("process_id"), rows.i64("start_ns"), rows.texts("kind"));
        for row in (0..rows.len).filter(|row| matches!(kind.get(*row), "context" | "stream" | "event")) {
            if self.processes.len() == PROCESSES && !self.processes.contains_key(&process[row]) {
                continue;
            }
            let seen = self.processes.entry(process[row]).or_default();
            seen.last_wait_ns = seen.last_wait_ns.max(start[row]);
        }
    }
}

impl Pass for GpuClock {
    fn wants(&self) -> &'static [Want] {
        &[
            Want { table: TableId::Launches, columns: &["correlation_id", "kernels", "graph_exec_id"] },
            Want { table: TableId::Syncs, columns: &["kind"] },
            Want { table: TableId::Kernels, columns: &["gpu_ns", "correlation_id"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        if rows.table == TableId::Syncs {
            return self.waits(rows);
        }
        let is_kernel = rows.table == TableId::Kernels;
        let (kernels, graph) = match is_kernel {
            true => Default::default(),
            false => (rows.i32_or("kernels", 0), rows.i64_or("graph_exec_id", NO_GRAPH)),
        };
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        let (call, gpu) = (rows.i64("correlation_id"), rows.i64("gpu_ns"));
        let mut next = 0;
        while next < rows.len {
            // Rows of a process come in runs: it is looked up once for each.
            let run = next..next + process[next..].iter().take_while(|other| **other == process[next]).count();
            next = run.end;
            if self.processes.len() == PROCESSES && !self.processes.contains_key(&process[run.start]) {
                continue;
            }
            let seen = self.processes.entry(process[run.start]).or_default();
            for row in run {
                if is_kernel {
                    seen.span_ns.0 = seen.span_ns.0.min(start[row]);
                    seen.span_ns.1 = seen.span_ns.1.max(start[row].saturating_add(gpu[row].max(0)));
                }
                let what = match is_kernel {
                    true => What::Kernel,
                    false if kernels[row] == 1 && graph[row] == NO_GRAPH => What::Launch,
                    false => What::Other,
                };
                seen.launches += u64::from(what == What::Launch);
                seen.kernels += u64::from(is_kernel);
                if is_kernel && call[row] == 0 {
                    seen.nameless += 1;
                    continue;
                }
                seen.add(call[row], start[row], what);
            }
        }
    }
}
