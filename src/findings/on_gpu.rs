//! What a process's GPUs did in its usual step, or in its run when it has no steps.

use crate::analysis::{CAUSES, Cause, Did, Facts};

/// Causes of gaps that are the host's slowness: it launches, or is at something else.
pub(crate) const SLOW_HOST: &[Cause] = &[Cause::NotLaunched, Cause::Driver, Cause::Launching];

/// The GPUs of a process in its unit; of several the mean.
#[derive(Debug)]
pub(crate) struct OnGpu {
    /// Computing, ns.
    pub(crate) compute_ns: f64,
    /// NCCL with no computing beside it, ns.
    pub(crate) communication_ns: f64,
    /// Copies with nothing beside them, ns.
    pub(crate) copy_ns: f64,
    /// Operations.
    pub(crate) operations: f64,
    /// Median time of a kernel, ns.
    pub(crate) kernel_ns: f64,
    /// Gaps because the host does not launch fast enough.
    pub(crate) starved_gaps: f64,
    idle_ns: [f64; CAUSES.len()],
    /// After waits in calls of this kind, ns.
    after: Vec<(Did, f64)>,
}

impl OnGpu {
    /// None where the trace has no GPU times of the process.
    pub(crate) fn of(facts: &Facts<'_>, process_id: i64, units: f64) -> Option<OnGpu> {
        let gpu = facts.gpu.as_ref()?;
        let own: Vec<_> =
            gpu.devices.iter().filter_map(|device| Some((device, device.in_steps.get(&process_id)?))).collect();
        if own.is_empty() {
            return None;
        }
        let each = own.len() as f64 * units;
        let mean = |of: &dyn Fn(&crate::analysis::InSteps) -> i64| {
            own.iter().map(|(_, own)| of(own)).sum::<i64>() as f64 / each
        };
        let own_gaps = || gpu.devices.gaps.iter().filter(|(key, _)| key.process_id == process_id);
        let starved = own_gaps().filter(|(key, _)| SLOW_HOST.contains(&key.cause)).map(|(_, gaps)| gaps.middle.0);
        let after = own_gaps().filter(|(key, _)| key.cause == Cause::AfterWait);
        let kernels = gpu.launched.kernels.iter().filter(|((process, ..), _)| *process == process_id);
        let mut times = crate::analysis::Stats::default();
        kernels.for_each(|(_, of)| times.merge(&of.kernel));
        Some(OnGpu {
            compute_ns: mean(&|own| own.busy.compute_ns),
            communication_ns: mean(&|own| own.busy.communication_ns),
            copy_ns: mean(&|own| own.busy.copy_ns),
            operations: mean(&|own| own.operations as i64),
            kernel_ns: times.median() as f64,
            starved_gaps: starved.sum::<u64>() as f64 / each,
            idle_ns: std::array::from_fn(|cause| mean(&|own| own.idle_ns[cause])),
            after: after.filter_map(|(key, gaps)| Some((key.did?, gaps.middle.1 as f64 / each))).collect(),
        })
    }

    /// Time in which any operation ran, ns.
    pub(crate) fn busy_ns(&self) -> f64 {
        self.compute_ns + self.communication_ns + self.copy_ns
    }

    /// Idle time for one of these reasons, ns.
    pub(crate) fn idle_ns(&self, causes: &[Cause]) -> f64 {
        causes.iter().map(|cause| self.idle_ns[*cause as usize]).sum()
    }

    /// All idle time, ns.
    pub(crate) fn all_idle_ns(&self) -> f64 {
        self.idle_ns.iter().sum()
    }

    /// Idle time because the host had given no work and was not waiting for the GPU, ns.
    pub(crate) fn not_launched_ns(&self) -> f64 {
        let host =
            CAUSES.iter().map(|(cause, ..)| *cause).filter(|cause| cause.is_host() && *cause != Cause::AfterWait);
        host.map(|cause| self.idle_ns[cause as usize]).sum()
    }

    /// Idle time after waits in calls of one of these kinds, ns.
    pub(crate) fn after_ns(&self, kinds: &[Did]) -> f64 {
        self.after.iter().filter(|(did, _)| kinds.contains(did)).map(|(_, ns)| ns).sum()
    }
}
