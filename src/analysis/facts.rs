//! What the passes found in one trace: the only input of analyses and findings.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::need::Need;
use super::passes::Pass;
use super::passes::activity::Activities;
use super::passes::allocations::Allocations;
use super::passes::api::Api;
use super::passes::calls::Calls;
use super::passes::collectives::Collectives;
use super::passes::counters::Counters;
use super::passes::critical::Critical;
use super::passes::device_memory::DeviceMemory;
use super::passes::folds::Folds;
use super::passes::gpu::{Asked, Gpu, communication};
use super::passes::gpu_clock::GpuClock;
use super::passes::gpu_steps::GpuSteps;
use super::passes::graphs::GraphsMade;
use super::passes::host_memory::HostMemory;
use super::passes::host_time::{HostTime, ProcessTime};
use super::passes::implicit::Implicit;
use super::passes::launches::Launches;
use super::passes::loading::Loading;
use super::passes::metal::Metal;
use super::passes::modules::Modules;
use super::passes::occupancy::Occupancy;
use super::passes::ops::Ops;
use super::passes::os_waits::OsWaits;
use super::passes::ranges::Ranges;
use super::passes::ranks::Ranks;
use super::passes::replays::GraphReplays;
use super::passes::rollups::Rollups;
use super::passes::samples::Samples;
use super::passes::sequences::Sequences;
use super::passes::sites::Sites;
use super::passes::spread::{self, Costing};
use super::passes::step_sums::StepSums;
use super::passes::steps::Steps;
use super::passes::syncs::Syncs;
use super::passes::transfers::Transfers;
use super::{before, clock, loss};
use crate::progress;
use crate::trace::{self, Filter, Names, Process, Trace};

/// More threads would wait for the dearest pass.
const THREADS: usize = 4;
/// Parts of the work: steps, what is asked before the large read, the large read, and names and lines of what is reported.
const PARTS: u8 = 4;

/// Results of the passes; those that were not needed are empty.
pub(crate) struct Facts<'a> {
    /// The trace.
    pub(crate) trace: &'a Trace,
    /// Which of its rows.
    pub(crate) filter: &'a Filter,
    /// Names of what is reported.
    pub(crate) names: Names,
    /// Steps.
    pub(crate) steps: Steps,
    /// The host's time.
    pub(crate) host: HostTime,
    /// All calls.
    pub(crate) api: Api,
    /// Calls that have a stack.
    pub(crate) calls: Calls,
    /// Loading of code.
    pub(crate) modules: Modules,
    /// What single steps did.
    pub(crate) step_sums: StepSums,
    /// How long steps took on the GPU.
    pub(crate) gpu_steps: GpuSteps,
    /// Whether the GPU's clock is the host's.
    pub(crate) gpu_clock: GpuClock,
    /// When ranks began their collectives.
    pub(crate) ranks: Ranks,
    /// Launches of graphs one after another.
    pub(crate) replays: GraphReplays,
    /// What graphs hold.
    pub(crate) graphs: GraphsMade,
    /// Operators and modules.
    pub(crate) ops: Ops,
    /// Launches.
    pub(crate) launches: Launches,
    /// Waits and questions.
    pub(crate) syncs: Syncs,
    /// Copies and sets.
    pub(crate) transfers: Transfers,
    /// Memory of the driver.
    pub(crate) device_memory: DeviceMemory,
    /// malloc.
    pub(crate) host_memory: HostMemory,
    /// malloc by stack, thread and process.
    pub(crate) allocations: Allocations,
    /// Modules and other driver calls.
    pub(crate) loading: Loading,
    /// Ranges that the program named.
    pub(crate) ranges: Ranges,
    /// What launches of ranges put on the GPU.
    pub(crate) sequences: Sequences,
    /// Calls of NCCL.
    pub(crate) collectives: Collectives,
    /// Costly calls and drawn launches by stack.
    pub(crate) sites: Sites,
    /// Waits for the operating system.
    pub(crate) os_waits: OsWaits,
    /// The lines behind those stacks.
    pub(crate) stacks: trace::Sites,
    /// What waits without saying so.
    pub(crate) implicit: Implicit,
    /// Kernels by how they were launched.
    pub(crate) occupancy: Occupancy,
    /// Metal's command buffers and dispatches.
    pub(crate) metal: Metal,
    /// What was read from outside.
    pub(crate) counters: Counters,
    /// Sums of all events.
    pub(crate) rollups: Rollups,
    /// Launches that were timed.
    pub(crate) samples: Samples,
    /// What CUPTI told beside the GPU's work.
    pub(crate) activities: Activities,
    /// What the GPU did; none where no time of it is in the trace.
    pub(crate) gpu: Option<Gpu>,
    /// The critical path, and what would be gained; none where no time of a GPU is in the trace.
    pub(crate) critical: Option<Critical>,
}

/// How many read a trace.
fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS)
}

impl<'a> Facts<'a> {
    /// Reads the trace: for the steps ([`before`]), then once for everything else.
    pub(crate) fn gather(trace: &'a Trace, filter: &'a Filter, needs: &[Need]) -> Facts<'a> {
        Facts::gather_on(threads(), trace, filter, needs, true)
    }

    /// The same without the lines behind stacks, for who reads these otherwise: there may be many.
    pub(crate) fn gather_without_lines(trace: &'a Trace, filter: &'a Filter, needs: &[Need]) -> Facts<'a> {
        Facts::gather_on(threads(), trace, filter, needs, false)
    }

    /// The same on so many threads, which changes nothing but how long it takes.
    fn gather_on(threads: usize, trace: &'a Trace, filter: &'a Filter, needs: &[Need], lines: bool) -> Facts<'a> {
        // A trace without ranges has no operators and no sequences of theirs, whose launches would be held for nothing.
        let ranges = trace.may_hold(TableId::Ranges);
        let mut needs: Vec<Need> =
            needs.iter().copied().filter(|need| ranges || !matches!(need, Need::Ops | Need::Sequences)).collect();
        // Of rows that were removed the sums still tell.
        if !needs.is_empty() && (trace.keeps_no_event() || !loss::removed(trace).is_empty()) {
            needs.push(Need::Rollups);
        }
        let gpu_times = trace.has_gpu_times();
        let everything = needs.is_empty() || filter.asks_for_steps();
        let host = everything || needs.iter().any(|need| need.asks_for_host());
        // For whoever watches: how many reads a part makes depends on what the one before found.
        progress::part(1, PARTS);
        let (steps, idle) = match () {
            () if everything || needs.iter().any(|need| need.asks_for_steps()) => {
                before::steps(trace, filter, gpu_times)
            }
            () if host => (Steps::default(), before::idle(trace, filter)),
            () => Default::default(),
        };

        progress::part(2, PARTS);
        let folded = needs.iter().any(|need| matches!(need, Need::Ranges | Need::Ops | Need::Sequences));
        let folds = Arc::new(if folded { Folds::read(trace) } else { Folds::default() });
        let asked = [Need::Executions, Need::Busy, Need::Gpu, Need::Launched].map(|need| needs.contains(&need));
        let allocations = needs.contains(&Need::GpuAllocations) && trace.may_hold(TableId::HostMemory);
        let with_gpu = asked.contains(&true) || allocations;
        let [shapes, busy, gaps, launched] = asked;
        let asked = Asked { shapes, busy, gaps: gaps || allocations, allocations, launched };
        let named = gpu_times && (with_gpu || needs.iter().any(|need| matches!(need, Need::Ranks | Need::Critical)));
        let communication = Arc::new(if named { communication::communication(trace) } else { FxHashSet::default() });
        let summed = needs.contains(&Need::StepSums);
        let step_sums = if summed { StepSums::new(&steps, idle.clone()) } else { StepSums::default() };
        // What lies between ranges is not theirs, and cannot be left out of a replay.
        let replayed = needs.contains(&Need::Critical) && gpu_times && !filter.is_gapped();
        let critical = replayed.then(|| Critical::new(trace, communication.clone(), &steps));
        let allocations = if needs.contains(&Need::Allocations) {
            Allocations::new(trace, filter, &steps)
        } else {
            Allocations::default()
        };
        let gpu = (gpu_times && with_gpu).then(|| Gpu::new(trace, communication.clone(), asked, filter, &steps));
        let mut facts = Facts {
            trace,
            filter,
            names: Names::default(),
            steps,
            host: HostTime::new(idle.clone()),
            api: Api::default(),
            calls: Calls::default(),
            modules: Modules::default(),
            step_sums,
            gpu_steps: GpuSteps::default(),
            gpu_clock: GpuClock::default(),
            ranks: if needs.contains(&Need::Ranks) {
                Ranks::new(trace, filter, communication.clone())
            } else {
                Ranks::default()
            },
            replays: GraphReplays::default(),
            graphs: GraphsMade::default(),
            ops: Ops::new(folds.clone(), gpu_times),
            launches: Launches::default(),
            syncs: Syncs::default(),
            transfers: Transfers::default(),
            device_memory: DeviceMemory::new(trace, filter),
            host_memory: HostMemory::new(trace, filter),
            allocations,
            loading: Loading::default(),
            ranges: Ranges::new(folds.clone()),
            sequences: Sequences::new(folds),
            collectives: Collectives::default(),
            sites: Sites::new(idle.clone()),
            os_waits: OsWaits::default(),
            stacks: trace::Sites::default(),
            implicit: Implicit::new(idle),
            critical,
            metal: Metal::default(),
            counters: Counters::default(),
            rollups: Rollups::default(),
            samples: Samples::new(trace),
            activities: Activities::default(),
            occupancy: if needs.contains(&Need::Occupancy) { Occupancy::new(trace) } else { Occupancy::default() },
            gpu,
        };
        // What each costs: ns for a launch and its kernel in a launch-bound loop, by which threads share them out.
        let optional: [(Need, u32, &mut dyn Pass); 29] = [
            (Need::Ops, 60, &mut facts.ops),
            (Need::GraphsMade, 1, &mut facts.graphs),
            (Need::GraphReplays, 3, &mut facts.replays),
            (Need::Ranks, 5, &mut facts.ranks),
            (Need::StepSums, 12, &mut facts.step_sums),
            (Need::GpuSteps, 14, &mut facts.gpu_steps),
            (Need::GpuClock, 22, &mut facts.gpu_clock),
            (Need::Modules, 8, &mut facts.modules),
            (Need::Api, 8, &mut facts.api),
            (Need::Calls, 8, &mut facts.calls),
            (Need::Launches, 22, &mut facts.launches),
            (Need::Syncs, 1, &mut facts.syncs),
            (Need::Transfers, 1, &mut facts.transfers),
            (Need::DeviceMemory, 1, &mut facts.device_memory),
            (Need::HostMemory, 1, &mut facts.host_memory),
            (Need::Allocations, 2, &mut facts.allocations),
            (Need::Loading, 1, &mut facts.loading),
            (Need::Ranges, 1, &mut facts.ranges),
            (Need::Sequences, 10, &mut facts.sequences),
            (Need::Collectives, 1, &mut facts.collectives),
            (Need::Sites, 12, &mut facts.sites),
            (Need::Implicit, 2, &mut facts.implicit),
            (Need::OsWaits, 1, &mut facts.os_waits),
            (Need::Occupancy, 12, &mut facts.occupancy),
            (Need::Metal, 3, &mut facts.metal),
            (Need::Counters, 1, &mut facts.counters),
            (Need::Rollups, 1, &mut facts.rollups),
            (Need::Samples, 20, &mut facts.samples),
            (Need::Activities, 1, &mut facts.activities),
        ];
        let mut passes: Vec<Costing<'_>> = if host { vec![(12, &mut facts.host)] } else { Vec::new() };
        let needed = optional.into_iter().filter(|(need, ..)| {
            let known = match need {
                Need::GpuClock | Need::Sequences => gpu_times,
                Need::GpuSteps => gpu_times && filter.observed.is_none(),
                Need::Samples => trace.may_hold(TableId::GpuSamples),
                Need::Activities => trace.may_hold(TableId::GpuActivity),
                _ => true,
            };
            known && needs.contains(need)
        });
        passes.extend(needed.map(|(_, cost, pass)| (cost, pass)));
        passes.extend(facts.gpu.as_mut().map(|pass| (120, pass as &mut dyn Pass)));
        passes.extend(facts.critical.as_mut().map(|pass| (pass.costs(140), pass as &mut dyn Pass)));
        let steps = &facts.steps;
        progress::part(3, PARTS);
        spread::read(trace, filter, steps, &mut passes, threads);
        progress::part(4, PARTS);
        let mut ids = FxHashSet::default();
        steps.names(&mut ids);
        passes.iter().for_each(|(_, pass)| pass.names(&mut ids));
        facts.gpu_clock.look_beside(trace, filter);

        facts.implicit.lazy(&facts.sites);
        facts.names = trace.names(&ids);
        let mut stacks = facts.sites.stacks();
        stacks.extend(facts.gpu.iter().flat_map(|gpu| gpu.devices.stacks()));
        stacks.extend(facts.step_sums.stacks());
        stacks.extend(facts.device_memory.stacks());
        stacks.extend(facts.allocations.stacks());
        stacks.extend(facts.rollups.stacks());
        stacks.extend(facts.calls.stacks());
        stacks.extend(facts.api.stacks());
        if lines && !stacks.is_empty() {
            facts.stacks = trace.sites(&stacks);
        }
        clock::note(&facts);
        progress::part(0, 0);
        facts
    }

    /// Processes that the filter keeps.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &'a Process> {
        let keep = self.filter.processes.as_ref();
        self.trace.processes.iter().filter(move |p| keep.is_none_or(|k| k.contains(&p.process_id)))
    }

    /// Whether a process gave work to Metal, or sent it messages.
    pub(crate) fn is_metal(&self, process_id: i64) -> bool {
        let sent = || self.trace.process(process_id).is_some_and(Process::is_metal);
        self.metal.processes.get(&process_id).is_some() || sent()
    }

    /// Whether nobody called another driver than Metal's: what only others' tools know is not spoken of then.
    pub(crate) fn is_metal_only(&self) -> bool {
        let busy = self.busy();
        !busy.is_empty() && busy.iter().all(|(id, _)| self.is_metal(*id))
    }

    /// Whether every rank is among them, as far as the world's size is known: the latest one may be one that is not.
    pub(crate) fn has_all_ranks(&self) -> bool {
        let ranks: FxHashSet<i32> = self.processes().filter_map(|process| process.rank).collect();
        let all = self.processes().filter_map(|process| process.world_size).max();
        ranks.len() as i64 >= i64::from(all.unwrap_or(0))
    }

    /// Processes that called the driver, the one with most calls first.
    pub(crate) fn busy(&self) -> Vec<(i64, &ProcessTime)> {
        let mut busy: Vec<(i64, &ProcessTime)> =
            self.host.processes.iter().filter(|(_, time)| time.any()).map(|(id, time)| (*id, time)).collect();
        busy.sort_by_key(|(id, time)| (std::cmp::Reverse(time.all.calls.iter().sum::<u64>()), self.place(*id)));
        busy
    }

    /// Where a process stands among all: by rank, then as they started. What is equal stands in this order, whatever ids they have.
    pub(crate) fn place(&self, process_id: i64) -> (usize, i64) {
        (self.trace.place(process_id), process_id)
    }

    /// `rank 3` or `pid 4711`.
    pub(crate) fn label(&self, process_id: i64) -> String {
        match self.trace.process(process_id) {
            Some(process) => process.label(),
            None if process_id < 0 => "others".to_owned(),
            None => format!("process {process_id}"),
        }
    }

    /// File name of a process's executable.
    pub(crate) fn program(&self, process_id: i64) -> Option<String> {
        let exe = self.trace.process(process_id)?.exe.as_str();
        Some(exe.rsplit('/').next().unwrap_or(exe)).filter(|name| !name.is_empty()).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::api::Api;
    use crate::analysis::kernels::Kernels;
    use crate::analysis::{ALL, Analysis, Section};
    use crate::trace::testing::TestTrace;

    #[test]
    fn however_the_passes_are_spread_over_threads_they_find_the_same() {
        let trace = TestTrace::rich();
        let trace = Trace::open(&[trace.write_parts(7).to_owned()]).unwrap();
        let (filter, needs) = (Filter::default(), ALL.iter().flat_map(|a| a.needs()).copied().collect::<Vec<_>>());
        let sections = |threads: usize| -> Vec<Section> {
            let facts = Facts::gather_on(threads, &trace, &filter, &needs, true);
            ALL.iter().map(|analysis| analysis.section(&facts)).collect()
        };
        let alone = sections(1);
        for threads in [2, 3, 5, 100] {
            assert!(alone == sections(threads), "{threads} threads");
        }
    }

    #[test]
    fn sums_of_kernels_and_calls_need_no_steps() {
        let trace = TestTrace::rich();
        let trace = Trace::open(&[trace.write_parts(7).to_owned()]).unwrap();
        let all: Vec<Need> = ALL.iter().flat_map(|a| a.needs()).copied().collect();
        let found = |of: &dyn Analysis, needs: &[Need], filter: &Filter| {
            let facts = Facts::gather(&trace, filter, needs);
            let processes = facts.host.processes.iter().map(|(id, time)| (*id, time.span_ns, time.all));
            (of.section(&facts), facts.steps.all.len(), processes.collect::<Vec<_>>())
        };
        let filter = Filter::default();
        let (kernels, steps, processes) = found(&Kernels, &all, &filter);
        assert!(steps > 0 && !processes.is_empty());
        assert!(found(&Kernels, Kernels.needs(), &filter) == (kernels, 0, Vec::new()));
        let (calls, ..) = found(&Api, &all, &filter);
        assert!(found(&Api, Api.needs(), &filter) == (calls, 0, processes));
        let named = Filter { step: Some("step".to_owned()), ..filter };
        assert!(!found(&Kernels, Kernels.needs(), &named).2.is_empty(), "whether there are such steps is to be told");
    }
}
