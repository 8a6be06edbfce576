//! What a process's GPUs did in its usual step, or in its run when it has no steps.

use crate::analysis::{CAUSES, Cause, Did, Facts, gpu_name};

/// Causes of gaps that are the host's slowness: it launches, or is at something else.
pub(crate) const SLOW_HOST: &[Cause] = &[Cause::NotLaunched, Cause::LaunchCalls, Cause::Driver, Cause::Launching];

/// A GPU that works for a smaller part of the unit idles, where another one works for [`WORKS`] and [`TIMES`] as long.
const IDLES: f64 = 0.1;
const WORKS: f64 = 0.2;
const TIMES: f64 = 5.0;

/// One GPU of a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Each {
    /// As the user knows it.
    pub(crate) name: String,
    /// Time in which it worked, ns.
    pub(crate) busy_ns: f64,
}

/// The GPUs of a process in its unit; of several the mean.
#[derive(Debug)]
pub(crate) struct OnGpu {
    /// Each of them.
    pub(crate) each: Vec<Each>,
    /// Time that is told of, at work or idle, of the one of which most is.
    pub(crate) told_ns: f64,
    /// Computing, ns.
    pub(crate) compute_ns: f64,
    /// NCCL with no computing beside it, ns.
    pub(crate) communication_ns: f64,
    /// NCCL, whatever else was going on, ns.
    pub(crate) all_communication_ns: f64,
    /// Copies with nothing beside them, ns.
    pub(crate) copy_ns: f64,
    /// Operations.
    pub(crate) operations: f64,
    /// Median time of a kernel, ns; none where there is none.
    pub(crate) kernel_ns: Option<f64>,
    /// Idle time because the host does not launch fast enough: of each gap what launching alone can take, ns.
    pub(crate) launch_idle_ns: f64,
    idle_ns: [f64; CAUSES.len()],
    /// Idle time of other causes in which the host took or gave back memory, ns: after a wait for one.
    memory_beside_ns: f64,
    /// Idle time of the mean steady step, usual or not, ns; none without steps.
    pub(crate) mean_idle_ns: Option<f64>,
    /// After waits in calls of this kind, ns; and of that, while the host waited for the operating system.
    after: Vec<(Did, f64, f64)>,
}

impl OnGpu {
    /// None where the trace has no GPU times of the process.
    pub(crate) fn of(facts: &Facts<'_>, process_id: i64, units: f64) -> Option<OnGpu> {
        let gpu = facts.gpu.as_ref()?;
        let own: Vec<_> =
            gpu.devices.iter().filter_map(|device| Some((device, device.in_steps.get(&process_id)?))).collect();
        if own.is_empty() || units <= 0.0 {
            return None;
        }
        let each = own.len() as f64 * units;
        let is_whole = !facts.filter.is_gapped();
        let mean = |of: &dyn Fn(&crate::analysis::InSteps) -> i64| {
            own.iter().map(|(_, own)| of(own)).sum::<i64>() as f64 / each
        };
        let own_gaps = || gpu.devices.gaps.iter().filter(|(key, _)| key.process_id == process_id);
        let starved = own_gaps().filter(|(key, _)| SLOW_HOST.contains(&key.cause)).map(|(_, gaps)| gaps.launch_ns);
        let beside = own_gaps().filter(|(key, _)| key.cause != Cause::Memory).map(|(_, gaps)| gaps.memory_ns);
        let after = own_gaps().filter(|(key, _)| key.cause == Cause::AfterWait);
        let after =
            after.filter_map(|(key, gaps)| Some((key.did?, gaps.middle.1 as f64 / each, gaps.system_ns as f64 / each)));
        let each_one = own.iter().map(|(device, own)| Each {
            name: gpu_name(facts, gpu, device),
            busy_ns: own.busy.total_ns() as f64 / units,
        });
        let told = own.iter().map(|(_, own)| own.busy.total_ns() + own.idle_ns.iter().sum::<i64>());
        Some(OnGpu {
            told_ns: told.max().unwrap_or(0) as f64 / units,
            each: each_one.collect(),
            compute_ns: mean(&|own| own.busy.compute_ns),
            communication_ns: mean(&|own| own.busy.communication_ns),
            all_communication_ns: mean(&|own| own.communication_ns),
            copy_ns: mean(&|own| own.busy.copy_ns),
            operations: mean(&|own| own.operations as i64),
            kernel_ns: gpu.launched.median_ns(process_id).map(|ns| ns as f64),
            launch_idle_ns: starved.sum::<i64>() as f64 / each,
            idle_ns: std::array::from_fn(|cause| mean(&|own| own.idle_ns[cause])),
            memory_beside_ns: beside.sum::<i64>() as f64 / each,
            // Of all steady steps; where parts are not known, or not asked for, there is no such mean.
            mean_idle_ns: facts.steps.of(process_id).filter(|steps| is_whole && !steps.sorted_ns.is_empty()).map(
                |steps| {
                    let idle: i64 = own.iter().flat_map(|(_, own)| own.steady.1).sum();
                    idle as f64 / (own.len() * steps.sorted_ns.len()) as f64
                },
            ),
            after: after.collect(),
        })
    }

    /// The GPU that works most, and those that idle in its unit of this length meanwhile.
    pub(crate) fn idle_beside(&self, unit_ns: f64) -> Option<(&Each, Vec<&Each>)> {
        let most = self.each.iter().max_by(|a, b| a.busy_ns.total_cmp(&b.busy_ns))?;
        let idles = |of: &&Each| of.busy_ns < IDLES * unit_ns && TIMES * of.busy_ns <= most.busy_ns;
        let idle: Vec<&Each> = self.each.iter().filter(idles).collect();
        (most.busy_ns >= WORKS * unit_ns && !idle.is_empty()).then_some((most, idle))
    }

    /// Time in which any operation ran, ns.
    pub(crate) fn busy_ns(&self) -> f64 {
        self.compute_ns + self.communication_ns + self.copy_ns
    }

    /// Idle time for one of these reasons, ns.
    pub(crate) fn idle_ns(&self, causes: &[Cause]) -> f64 {
        causes.iter().map(|cause| self.idle_ns[*cause as usize]).sum()
    }

    /// Idle time in which the host took or gave back memory, ns, whatever else the gaps are blamed on.
    pub(crate) fn memory_idle_ns(&self) -> f64 {
        self.idle_ns(&[Cause::Memory]) + self.memory_beside_ns
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
        self.after.iter().filter(|(did, ..)| kinds.contains(did)).map(|(_, ns, _)| ns).sum()
    }

    /// Time of it in which the host waited for the operating system, ns.
    pub(crate) fn after_system_ns(&self, kinds: &[Did]) -> f64 {
        self.after.iter().filter(|(did, ..)| kinds.contains(did)).map(|(.., ns)| ns).sum()
    }
}
