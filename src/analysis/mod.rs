//! The analyses: one question each, one file each, listed in [`ALL`].
//!
//! An analysis is a pure function from [`Facts`] to a [`Section`]. The facts come from streaming passes over the trace
//! ([`passes`]), several in one read. To add an analysis: write its file, name it in [`ALL`]; `report --only`,
//! `--explain` and every format then know it. Other tools' names for it stand in [`aliases`].

mod aliases;
mod alignment;
mod answer;
mod apart;
mod api;
mod bandwidth;
mod before;
mod bound;
mod by_line;
mod by_stack;
mod clock;
mod collectives;
mod copies;
mod counters;
mod critical_path;
mod decode;
mod device_memory;
mod dispatches;
mod executions;
mod facts;
mod gpu;
mod gpu_clock;
mod gpu_cost;
mod gpu_gaps;
mod gpu_utilisation;
mod graphs;
mod growing;
mod host_allocations;
mod host_leaks;
mod host_memory;
mod host_peak;
mod host_temporaries;
mod hung;
mod idle_gpus;
mod implicit_syncs;
mod kernel_sequences;
mod kernels;
mod launch_overhead;
pub(crate) mod loss;
mod malloc_time;
mod metal_baseline;
mod metric;
mod modules;
mod need;
mod node_counters;
mod node_health;
mod occupancy;
mod ops;
mod os_waits;
mod outliers;
mod passes;
mod pinned;
#[cfg(test)]
mod properties;
mod queue_length;
mod ranges;
mod ranks;
pub(crate) mod removed;
mod rollups;
mod roofline;
mod section;
mod self_;
mod sites;
mod slowest;
mod steps;
mod streams;
pub(crate) mod summary;
mod sums;
mod syncs;
mod targets;
#[cfg(test)]
mod ties;
mod timed_kernels;
mod torch_memory;
mod transfers;
mod uncalled;
mod unified_memory;
mod unmatched;
mod untimed;
mod wall;

pub(crate) use aliases::{find, unknown};
pub(crate) use answer::{answer, answer_by_sums, answers as sums_answer, lacks_rows, of_all_events};
pub(crate) use clock::back as clock_back;
pub(crate) use facts::Facts;
pub(crate) use gpu::name as gpu_name;
pub(crate) use gpu_clock::off as gpu_clock_off;
pub(crate) use gpu_gaps::{IdleAt, idle_by_site};
pub(crate) use growing::{Growing, growing};
pub(crate) use hung::{lines as hung_lines, of_process as hung};
pub(crate) use kernels::layout_ns;
pub(crate) use loss::{Loss, STEP_CURE, Shed, stacks_are_shed, steps_unknown, thinned_from};
pub(crate) use malloc_time::{Sum as MallocSum, slowest as slowest_in_malloc};
pub(crate) use metric::{Metric, Worse};
pub(crate) use need::Need;
pub(crate) use node_health::{faults as node_faults, is_known as node_is_known, lost as lost_gpus};
pub(crate) use outliers::{causes as outlier_causes, long as long_steps};
pub(crate) use passes::critical::{Class, Sums as CriticalSums, Without};
pub(crate) use passes::device_memory::Calls as AllocationCalls;
pub(crate) use passes::folds::pattern as folded_name;
pub(crate) use passes::gpu::{CAUSES, Cause, Did, InSteps};
pub(crate) use passes::host_time::{PARTS, Part, ProcessTime};
pub(crate) use passes::implicit::{Calls as ImplicitCalls, Key as ImplicitKey, Kind as ImplicitKind};
pub(crate) use passes::loading::Calls as LoadingCalls;
pub(crate) use passes::ranks::Late;
pub(crate) use passes::samples::Samples;
pub(crate) use passes::sites::{Drawn, What};
pub(crate) use passes::stats::Stats;
pub(crate) use passes::step_sums::{Cause as StepCause, Tally};
pub(crate) use passes::steps::ProcessSteps;
pub(crate) use passes::transfers::{Key as TransferKey, Rule as TransferRule, Sum as TransferSum};
pub(crate) use passes::union::Union;
pub(crate) use passes::waiting::{Idle, Memory, Pending, Transfer};
pub(crate) use section::{Column, Section, Table, Unit, Value};
pub(crate) use sites::{AtSite, costs as costs_by_site, launches as launches_by_site};
pub(crate) use steps::one_by_one as steps_one_by_one;
pub(crate) use sums::alone as has_sums_alone;
pub(crate) use syncs::polls;
pub(crate) use uncalled::calls as missing_calls;
pub(crate) use unmatched::missing as missing_kernels;

/// One question, answered from a trace.
pub(crate) trait Analysis: Sync {
    /// Name for `--only` and in JSON.
    fn name(&self) -> &'static str;

    /// Title in text.
    fn title(&self) -> &'static str;

    /// What `--explain` prints.
    fn explain(&self) -> Explain;

    /// The passes whose results it reads.
    fn needs(&self) -> &'static [Need];

    /// Its numbers that a limit can be set to: those of [`Section::facts`] that are no text.
    fn metrics(&self) -> &'static [Metric] {
        &[]
    }

    /// Whether the trace can answer it. A whole report leaves the others out; who asks for one is told why there is none.
    fn answers(&self, _: &Facts<'_>) -> bool {
        true
    }

    /// The answer.
    fn section(&self, facts: &Facts<'_>) -> Section;
}

/// What an analysis means.
pub(crate) struct Explain {
    /// What is computed, and how.
    pub(crate) definition: &'static str,
    /// Units of its numbers.
    pub(crate) unit: &'static str,
    /// What it does not know, and how exact it is.
    pub(crate) limits: &'static str,
    /// Where the definition comes from.
    pub(crate) source: &'static str,
}

/// Every analysis, in the order of a report.
pub(crate) const ALL: &[&dyn Analysis] = &[
    &summary::Summary,
    &gpu_utilisation::GpuUtilisation,
    &timed_kernels::TimedKernels,
    &gpu_gaps::GpuGaps,
    &critical_path::CriticalPath,
    &steps::Steps,
    &launch_overhead::LaunchOverhead,
    &metal_baseline::MetalBaseline,
    &dispatches::Dispatches,
    &queue_length::QueueLength,
    &kernels::Kernels,
    &kernel_sequences::KernelSequences,
    &occupancy::Occupancy,
    &roofline::Roofline,
    &streams::Streams,
    &graphs::Graphs,
    &decode::Decode,
    &api::Api,
    &modules::Modules,
    &syncs::Syncs,
    &transfers::Transfers,
    &unified_memory::UnifiedMemory,
    &device_memory::DeviceMemory,
    &host_memory::HostMemory,
    &host_allocations::HostAllocations,
    &host_peak::HostPeak,
    &host_leaks::HostLeaks,
    &host_temporaries::HostTemporaries,
    &malloc_time::MallocTime,
    &os_waits::OsWaits,
    &collectives::Collectives,
    &ranks::Ranks,
    &ranges::Ranges,
    &ops::Ops,
    &rollups::AllEvents,
    &counters::Counters,
    &node_health::NodeHealth,
    &targets::Targets,
    &self_::Itself,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_everything_is_explained() {
        for (index, analysis) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|a| a.name() != analysis.name()), "{}", analysis.name());
            let Explain { definition, unit, limits, source } = analysis.explain();
            for text in [definition, unit, limits, source, analysis.title()] {
                assert!(!text.is_empty() && !text.contains('\t'), "{}", analysis.name());
            }
        }
    }
}
