//! Launches joined with what they launched: API time A, queue time Q, execution K and total T of Nsight Systems'
//! `cuda_kern_exec_sum`.

use rustc_hash::FxHashSet;

use super::calls::{Call, Did};
use super::order::{Operation, Work};
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::stats::Stats;

/// A kernel is short when it is shorter than its launch call, and that took at most so long (HTA).
const SHORT_NS: i64 = 50_000;
/// A delay from the end of a call to the begin of its kernel that is an outlier (HTA).
const DELAY_NS: i64 = 100_000;

/// Executions of one kernel by one function.
#[derive(Debug, Default)]
pub(crate) struct OfLaunch {
    /// Time in the call. A graph's call counts with each of its kernels.
    pub(crate) api: Stats,
    /// From the end of the call to the begin of the kernel, where that is not negative.
    pub(crate) queue: Stats,
    /// Time of the kernel.
    pub(crate) kernel: Stats,
    /// From the begin of the call to the end of the kernel or the call.
    pub(crate) total: Stats,
    /// Kernels that began before their call returned.
    pub(crate) no_queue: u64,
    /// Kernels shorter than their own launch call of at most [`SHORT_NS`].
    pub(crate) short: u64,
    /// Kernels that began more than [`DELAY_NS`] after their call returned.
    pub(crate) delayed: u64,
}

/// The join.
#[derive(Debug)]
pub(crate) struct Launched {
    /// By process, function and kernel.
    pub(crate) kernels: Groups<(i64, i64, i64), OfLaunch>,
    /// By process: the times of kernels whose launch is not among them.
    pub(crate) alone: Groups<i64, Stats>,
}

impl Default for Launched {
    fn default() -> Launched {
        Launched { kernels: Groups::new(20_000, (OTHER, OTHER, OTHER)), alone: Groups::default() }
    }
}

impl Launched {
    /// Adds an operation; `all`: not only the time of the kernel.
    #[inline]
    pub(super) fn add(&mut self, of: &Operation, call: &Call, all: bool) {
        if of.work == Work::Copy || call.did != Did::Launch {
            return;
        }
        let (api, kernel) = (call.end - call.start, of.end - of.start);
        let sums = self.kernels.at((of.process_id, call.api_id, of.name_id));
        sums.kernel.add(kernel);
        if !all {
            return;
        }
        sums.api.add(api);
        sums.total.add(call.end.max(of.end) - call.start);
        match of.start - call.end {
            queue @ 0.. => sums.queue.add(queue),
            _ => sums.no_queue += 1,
        }
        sums.short += u64::from(api <= SHORT_NS && kernel < api);
        sums.delayed += u64::from(of.start - call.end > DELAY_NS);
    }

    /// Adds the time of a kernel whose launch is not told of.
    #[inline]
    pub(super) fn add_alone(&mut self, of: &Operation) {
        if of.work != Work::Copy {
            self.alone.at(of.process_id).add(of.end - of.start);
        }
    }

    /// The median time of a process's kernels; none where it has none.
    pub(crate) fn median_ns(&self, process_id: i64) -> Option<i64> {
        let mut times = Stats::default();
        let own = self.kernels.iter().filter(|((process, ..), _)| *process == process_id);
        own.for_each(|(_, of)| times.merge(&of.kernel));
        self.alone.get(&process_id).into_iter().for_each(|alone| times.merge(alone));
        (times.count > 0).then(|| times.median())
    }

    pub(super) fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.kernels.iter().flat_map(|((_, api, name), _)| [*api, *name]));
    }
}
