//! What an analysis may need: one line for each pass, named as its type.

/// A pass that an analysis may need. Steps and the host's time are there beside it, where any of them asks for these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// `Ops`.
    Ops,
    /// `GraphsMade`.
    GraphsMade,
    /// `GraphReplays`.
    GraphReplays,
    /// `Ranks`.
    Ranks,
    /// `StepSums`.
    StepSums,
    /// `Modules`.
    Modules,
    /// `Api`.
    Api,
    /// `Calls`.
    Calls,
    /// `Launches`.
    Launches,
    /// `Syncs`.
    Syncs,
    /// `Transfers`.
    Transfers,
    /// `DeviceMemory`.
    DeviceMemory,
    /// `HostMemory`.
    HostMemory,
    /// `Allocations`.
    Allocations,
    /// `Loading`.
    Loading,
    /// `Ranges`.
    Ranges,
    /// `Sequences`.
    Sequences,
    /// `Collectives`.
    Collectives,
    /// `Sites`.
    Sites,
    /// `Implicit`.
    Implicit,
    /// `OsWaits`.
    OsWaits,
    /// `Gpu`, with the causes of gaps.
    Gpu,
    /// `Gpu`, with the causes of gaps and what was allocated in them.
    GpuAllocations,
    /// `Gpu`, with the queues, and with all times of launches.
    Launched,
    /// `GpuClock`.
    GpuClock,
    /// `GpuSteps`.
    GpuSteps,
    /// `Gpu`, what the devices were busy with.
    Busy,
    /// `Gpu`, its sums, those by the shapes of kernels too.
    Executions,
    /// `Critical`.
    Critical,
    /// `Occupancy`.
    Occupancy,
    /// `Samples`.
    Samples,
    /// `Activities`.
    Activities,
    /// `Metal`.
    Metal,
    /// `Counters`.
    Counters,
    /// `Rollups`.
    Rollups,
}

impl Need {
    /// Whether the pass, or an analysis that needs no other, asks for steps. To find them may take longer than the pass.
    pub(super) fn asks_for_steps(self) -> bool {
        !matches!(self, Need::Activities | Need::Api | Need::Calls | Need::Counters | Need::Executions | Need::Rollups)
    }

    /// The same of the host's time.
    pub(super) fn asks_for_host(self) -> bool {
        !matches!(self, Need::Activities | Need::Calls | Need::Counters | Need::Executions | Need::Rollups)
    }
}
