//! One process as the rules see it: its usual step, or its run when it has no steps.

use super::{Evidence, OnGpu, SLOW_HOST, imbalance};
use crate::analysis::{
    Cause, CriticalSums, Did, Facts, Late, PARTS, Part, ProcessSteps, Samples, Shed, Without, gpu_clock_off,
    missing_calls, missing_kernels, stacks_are_shed, thinned_from,
};

/// Processes that are looked at one by one; of more, those with most driver calls.
const SUBJECTS: usize = 256;

/// A process with fewer driver calls is not judged.
const FEWEST_CALLS: u64 = 10;

/// One process.
pub(crate) struct Subject<'a> {
    /// Everything known.
    pub(crate) facts: &'a Facts<'a>,
    /// The process.
    pub(crate) process_id: i64,
    /// It uses Metal.
    pub(crate) metal: bool,
    /// Its steps, if any were found.
    pub(crate) steps: Option<&'a ProcessSteps>,
    /// Numbers are per step, not per run.
    pub(crate) per_step: bool,
    /// Length of the usual step, or of the run, ns.
    pub(crate) unit_ns: f64,
    /// The host's time in it; other than its length where the host runs ahead of the GPU.
    pub(crate) host_ns: f64,
    /// Length of the run from the first driver call to the last, ns.
    pub(crate) run_ns: f64,
    /// Steady steps of usual duration; 1 for a run.
    pub(crate) units: f64,
    /// Time of the unit by what the host did, each ns once.
    pub(crate) parts_ns: [f64; PARTS],
    /// Calls of the unit.
    pub(crate) calls: [f64; PARTS],
    /// Time of the unit outside the driver in which the loop's thread waited for the operating system, ns; none where
    /// such waits were not recorded.
    pub(crate) system_ns: Option<f64>,
    /// Copies, frees and allocations of the unit that waited for earlier work: they are waits as well.
    pub(crate) implicit_waits: f64,
    /// What its GPUs did in the unit; none where the trace does not tell.
    pub(crate) on_gpu: Option<OnGpu>,
    /// How long its GPUs were busy in the unit, about, where only launches that were timed tell of them.
    pub(crate) busy: Option<Busy>,
    /// Time of the unit in which its kernels of NCCL waited for other ranks, ns.
    pub(crate) waited_ns: f64,
    /// What the ranks wait for each other, where this is the one that they wait for most.
    pub(crate) imbalance: Option<Evidence>,
    /// Why the times of its GPU are not looked at: what is wrong with its clock, or how many kernels the trace lacks.
    pub(crate) gpu_doubt: Option<String>,
    /// Why what it launched is not known: how many kernels have no launch.
    pub(crate) calls_doubt: Option<String>,
    /// Its critical path, and how long the unit would be without some of the work; none where the trace does not tell.
    critical: Option<&'a CriticalSums>,
}

/// An estimate of how long GPUs were busy in the unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    /// No longer than the unit.
    pub(crate) ns: f64,
    /// How far that may be off, 95 times in 100.
    pub(crate) error_ns: f64,
    /// Launches, in all of the run, and those that were timed.
    pub(crate) launches: f64,
    pub(crate) timed: u64,
    /// Those of which CUPTI told in windows.
    pub(crate) told: u64,
    /// Of it what is sure: one stream's, less how far that may be off.
    pub(crate) at_least_ns: f64,
    /// Processes that use these GPUs; what the others launched is not in it.
    pub(crate) processes: usize,
}

impl Busy {
    fn of(samples: &Samples, process_id: i64, unit_ns: f64, units: f64) -> Option<Busy> {
        let busy = samples.usual(process_id)?;
        Some(Busy {
            ns: (busy.ns / units).min(unit_ns),
            error_ns: busy.error_ns() / units,
            launches: busy.launches,
            timed: busy.timed,
            told: busy.told,
            at_least_ns: (samples.at_least_ns(process_id) / units).min(unit_ns),
            processes: samples.sharing(process_id),
        })
    }
}

impl Subject<'_> {
    /// Time of the unit in a part, ns.
    pub(crate) fn ns(&self, part: Part) -> f64 {
        self.parts_ns[part as usize]
    }

    /// The same as a share.
    pub(crate) fn share(&self, part: Part) -> f64 {
        if self.unit_ns > 0.0 { self.ns(part) / self.unit_ns } else { 0.0 }
    }

    /// Calls of the unit for a part.
    pub(crate) fn calls(&self, part: Part) -> f64 {
        self.calls[part as usize]
    }

    /// Kernels that the unit's launches give the GPU; none where the kernels of some graphs are not known.
    pub(crate) fn kernels(&self) -> Option<f64> {
        let kernels = self.facts.launches.processes.get(&self.process_id).map(|l| l.kernels).unwrap_or_default();
        (kernels.unknown == 0).then(|| self.per_unit(kernels.all as f64, kernels.middle as f64))
    }

    /// Waits of the unit: calls whose only work is to wait, and others that waited.
    pub(crate) fn waits(&self) -> f64 {
        self.calls(Part::Wait) + self.implicit_waits
    }

    /// Time of the unit outside the driver, ns.
    pub(crate) fn outside_ns(&self) -> f64 {
        (self.host_ns - self.parts_ns.iter().sum::<f64>()).max(0.0)
    }

    /// Time of the unit whose cause nothing in the trace tells: outside the driver, and not in a wait for the operating
    /// system. Python's or other work of the host, or the host's processor was another's.
    pub(crate) fn unknown_ns(&self) -> f64 {
        (self.outside_ns() - self.system_ns.unwrap_or(0.0)).max(0.0)
    }

    /// Why there may be no steps, where something is known to be in the way of finding them.
    pub(crate) fn without_steps(&self) -> Option<String> {
        let own = self.facts.trace.process(self.process_id).into_iter();
        Shed::of(own).map(|shed| shed.text(self.facts.trace))
    }

    /// Whether launches were left out to keep to a budget: what is counted and summed of them is an estimate then.
    pub(crate) fn lacks_launches(&self) -> bool {
        self.facts.trace.process(self.process_id).and_then(thinned_from).is_some()
    }

    /// Whether calls lack their stack to keep to a budget: what is counted by line is too little then.
    pub(crate) fn lacks_stacks(&self) -> bool {
        self.facts.trace.process(self.process_id).is_some_and(stacks_are_shed)
    }

    /// `step` or `run`.
    pub(crate) fn unit(&self) -> &'static str {
        if self.per_step { "step" } else { "run" }
    }

    /// A number that a pass counted, per unit: in the steps of usual duration where there are steps, else in the run.
    pub(crate) fn per_unit(&self, all: f64, middle: f64) -> f64 {
        if self.per_step { middle / self.units } else { all }
    }

    /// How much shorter the unit would be without some of the work, ns; none where the trace does not tell, or without none.
    pub(crate) fn shorter_ns(&self, without: Without) -> Option<f64> {
        let sums = self.critical.filter(|sums| sums.of_steps == self.per_step && without != Without::default())?;
        Some(sums.gain_ns(without))
    }

    /// Most time that can be saved by no longer waiting for the GPU, where its times are known: the idle time after waits,
    /// and no more than the waits themselves, for the host's own work of the unit remains.
    fn wait_gain_ns(&self, gpu: &OnGpu) -> f64 {
        gpu.after_ns(&[Did::Wait, Did::Transfer]).min(self.ns(Part::Wait))
    }

    /// Time of the unit in which NCCL runs with no computing beside it and moves data, ns: not longer than it runs without waiting
    /// for other ranks.
    pub(crate) fn transferring_ns(&self, gpu: &OnGpu) -> f64 {
        gpu.communication_ns.min((gpu.all_communication_ns - self.waited_ns).max(0.0))
    }

    /// Idle time after waits beyond what less waiting can gain: the host would not have launched sooner. What it did: waited for the
    /// operating system for so long, and worked for the rest.
    fn after_waits_anyway_ns(&self, gpu: &OnGpu) -> (f64, f64) {
        let after = &[Did::Wait, Did::Transfer];
        let anyway = gpu.after_ns(after) - self.wait_gain_ns(gpu);
        let system = anyway.min(gpu.after_system_ns(after));
        (system, anyway - system)
    }

    /// Idle time in which the loop waits for the operating system.
    pub(crate) fn system_idle_ns(&self, gpu: &OnGpu) -> f64 {
        gpu.idle_ns(&[Cause::System]) + self.after_waits_anyway_ns(gpu).0
    }

    /// Idle time in which the host is at work of its own, without what launching alone can take; no more than it is outside of the
    /// driver, for nothing else of it can go away.
    pub(crate) fn host_idle_ns(&self, gpu: &OnGpu) -> f64 {
        let between = (gpu.idle_ns(SLOW_HOST) - gpu.launch_idle_ns).max(0.0);
        (between + self.after_waits_anyway_ns(gpu).1).min(self.unknown_ns())
    }

    /// Most time that anything can save but less work of the GPU, where only launches that were timed tell of it: what it may idle
    /// of the unit.
    pub(crate) fn may_idle_ns(&self) -> Option<f64> {
        Some((self.unit_ns - self.busy.as_ref()?.at_least_ns).max(0.0))
    }

    /// Most time that can be saved where the host spends `host_ns` on something: idle time of the GPU for that reason, or the
    /// host's own where GPU times are not known.
    pub(crate) fn gain_ns(&self, host_ns: f64, idle_ns: impl FnOnce(&OnGpu) -> f64) -> f64 {
        self.on_gpu.as_ref().map_or(host_ns, idle_ns)
    }

    /// Most time that can be saved by no longer waiting for `ns`: the rest of the unit, or the wait itself. While the
    /// host waits something else works, and that work remains.
    pub(crate) fn overlap_bound(&self, ns: f64) -> f64 {
        ns.min(self.unit_ns - ns).max(0.0)
    }
}

/// The processes worth judging, the one with most driver calls first.
pub(crate) fn subjects<'a>(facts: &'a Facts<'a>) -> Vec<Subject<'a>> {
    let busy = facts.busy();
    let most = busy.first().map_or(0, |(_, time)| time.all.calls.iter().sum::<u64>());
    let matters = |calls: u64| calls >= FEWEST_CALLS && calls * 20 >= most;
    let judged = busy.into_iter().filter(|(_, time)| matters(time.all.calls.iter().sum())).take(SUBJECTS);
    let looked_at = |process_id: i64, time: &crate::analysis::ProcessTime| {
        let manifest = facts.trace.process(process_id).and_then(|process| process.manifest.as_ref());
        let count = manifest.and_then(|manifest| manifest.accounting.get("os_wait"));
        time.system_waits > 0 || count.is_some_and(|count| count.seen > 0)
    };
    let subject = |(process_id, time): (i64, &'a crate::analysis::ProcessTime)| {
        // Ranges may lie in no usual step.
        let steps = facts.steps.of(process_id).filter(|s| s.middle > 0 && s.middle_ns > 0.0);
        // What the GPU did before the first call or after the last one, in a trace that was cut off, is of the run too.
        let own = facts.gpu.iter().flat_map(|gpu| gpu.devices.iter()).filter(|d| d.in_steps.get(&process_id).is_some());
        let on_gpu = own.map(|device| (device.first_ns, device.last_ns()));
        let span = on_gpu.fold(time.span_ns, |all, own| (all.0.min(own.0), all.1.max(own.1)));
        let span_ns = (span.1 - span.0) as f64;
        // Of ranges and steps the time inside of them.
        let run_ns = facts.filter.inside_ns(process_id).map_or(span_ns, |inside| span_ns.min(inside as f64));
        let (unit_ns, host_ns, middle, counted) = match steps {
            Some(steps) => (steps.middle_ns, steps.middle_host_ns, steps.middle as f64, &time.middle),
            None => (run_ns, run_ns, 1.0, &time.all),
        };
        // Of a run that is known in part, as much as that part says of the whole.
        let observed = || facts.filter.observed_share(process_id, span);
        let gpu_units = steps.map_or_else(observed, |steps| if steps.tells_of_gpu { middle } else { 0.0 });
        let shares = time.shares_ns();
        let clock = gpu_clock_off(facts, process_id).map(|what| format!("the GPU's clock is not the host's: {what}"));
        let gpu_doubt = clock.or_else(|| missing_kernels(facts, process_id));
        // What was recorded before CUPTI was given up is not the run.
        let by_events = facts.trace.gave_cupti_up() && facts.samples.any();
        let critical = facts.critical.as_ref().and_then(|critical| critical.of(process_id));
        let on_gpu = OnGpu::of(facts, process_id, gpu_units).filter(|_| gpu_doubt.is_none() && !by_events);
        // What is launched in a range may run on after it: then the range lasts as long as its work.
        let told_ns = on_gpu.as_ref().filter(|_| facts.filter.projects()).map_or(0.0, |gpu| gpu.told_ns);
        let unit_ns = unit_ns.max(told_ns);
        Subject {
            facts,
            process_id,
            metal: facts.is_metal(process_id),
            steps,
            per_step: steps.is_some(),
            unit_ns,
            host_ns,
            run_ns,
            units: middle,
            parts_ns: shares.map(|ns| ns as f64 / middle),
            system_ns: time.system_ns().filter(|_| looked_at(process_id, time)).map(|ns| ns as f64 / middle),
            calls: counted.calls.map(|calls| calls as f64 / middle),
            implicit_waits: counted.implicit_waits as f64 / middle,
            on_gpu,
            busy: Busy::of(&facts.samples, process_id, unit_ns, middle).filter(|_| facts.gpu.is_none() || by_events),
            waited_ns: facts.ranks.late.get(&process_id).map_or(0, Late::waited_ns) as f64 / middle,
            imbalance: None,
            critical: critical.filter(|_| gpu_doubt.is_none()),
            gpu_doubt,
            calls_doubt: missing_calls(facts, process_id),
        }
    };
    let mut subjects: Vec<Subject<'a>> = judged.map(subject).collect();
    if let Some((latest, evidence)) = imbalance::of(&subjects) {
        subjects[latest].imbalance = Some(evidence);
    }
    subjects
}
