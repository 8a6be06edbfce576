//! gpu-gaps: when each GPU did nothing, for which reason, and whose line it was.

use gputrace_collectors::schema::TableId;
use std::collections::BTreeMap;

use super::passes::gpu::{CAUSES, Cause, Device, GapKey, Gpu, Longest};
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, gpu, gpu_clock, unmatched};
use crate::trace::{NO_NAME, Site};

/// The analysis.
pub(crate) struct GpuGaps;

/// What the causes of gaps are found in.
const CAUSES_OF: &[TableId] = &[
    TableId::DeviceCopies,
    TableId::DeviceMemory,
    TableId::Kernels,
    TableId::Launches,
    TableId::Syncs,
    TableId::Transfers,
];

impl Analysis for GpuGaps {
    fn name(&self) -> &'static str {
        "gpu-gaps"
    }

    fn title(&self) -> &'static str {
        "GPU idle gaps"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "A gap is the time between two operations of a device in which none ran. All of it is idle time; gaps of \
                1 us and more are counted. The cause is looked for from the call that launched the operation after the gap. \
                Where that call began after the device had run dry, the host had given it nothing: if the launching thread was \
                then still in a wait that had begun before, or in a copy, free or allocation that was over within half of the gap, the gap is after a wait; else, if calls \
                take at least half of the time until the launch, it is theirs (copies and sets, memory, loading of code, NCCL, \
                waits for the operating system, launch calls, other driver calls); else the host was outside the driver, in Python or other \
                work. Where the call began before, the operation was queued: kernel wait is a gap of less than 30 ns, \
                launching one whose call was under way or less than 10 us old when the device ran dry, queued any \
                other: it waited on the device, for an event or a copy. By line: the wait, or the longest \
                of those calls, else the launch that ended the gap, where a stack was taken of it. Per step: in the steady steps of usual duration. In the mean step: in all \
                steady steps; a gap that is longer than a step lies in no usual one. With --range, only idle time inside of the \
                ranges counts: gaps are cut at their borders, and the GPU's work for others is no gap. With --from and --to the time of a \
                device is the span (--explain gpu-utilisation); the gap at its end is blamed on what the thread did there that had \
                given the device its last work.",
            unit: "ns in JSON; in text the column's head names the unit.",
            limits: "One cause a gap, the one that explains most of it. Work of another process on the device ends a gap like any \
                other. Launches shorter than 20 us have a stack only where they were drawn or followed a pause of 200 us. A \
                thread that was kept from its processor looks like one outside the driver. A gap is not yet a gain: \
                shortening it helps only if nothing else takes its place.",
            source: "HTA's idle time breakdown (host wait, kernel wait, other; per stream there, per device here, and the launch \
                is compared with the end of all earlier work of the device; its threshold of 30, said to be in ns, is compared with \
                microseconds); Nsight Systems' gpu_gaps reports gaps over 500 ms.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Gpu, Need::GpuClock, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("gaps", Count, "gaps of 1 us or more between operations of a GPU")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::about("idle_ns", Ns, "time in which GPUs did nothing")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::cost("idle_percent", Percent, "time in which GPUs did nothing, of the range"),
            Metric::about("host_wait_ns", Ns, "idle time with nothing queued").sums(CAUSES_OF),
            Metric::about("after_wait_ns", Ns, "idle time after waits of the host").sums(CAUSES_OF),
            Metric::about("kernel_wait_ns", Ns, "idle time of less than 30 ns before queued work").sums(CAUSES_OF),
            Metric::about("other_ns", Ns, "other idle time before queued work").sums(CAUSES_OF),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.gpu.is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let Some(gpu) = gpu::devices(facts, &mut section) else { return section };
        gpu_clock::note(&mut section, facts);
        let idle: i64 = gpu.devices.iter().map(Device::idle_ns).sum();
        let range: i64 = gpu.devices.iter().map(Device::range_ns).sum();
        let of = |cause: Cause| gpu.devices.iter().map(|d| d.idle[cause as usize].ns).sum::<i64>();
        let count: u64 = gpu.devices.iter().flat_map(|d| &d.idle).map(|gaps| gaps.count).sum();
        let host: i64 = CAUSES.iter().filter(|(cause, ..)| cause.is_host()).map(|(cause, ..)| of(*cause)).sum();
        section.fact("gaps", "gaps (1 us or more)", Unit::Count, count);
        section.fact("idle_ns", "idle", Unit::Ns, idle);
        section.fact("idle_percent", "idle, of the range", Unit::Percent, percent(idle as f64, range as f64));
        section.fact("host_wait_ns", "nothing queued (host wait)", Unit::Ns, host);
        section.fact("after_wait_ns", "of it after waits", Unit::Ns, of(Cause::AfterWait));
        section.fact("kernel_wait_ns", "queued, within 30 ns", Unit::Ns, of(Cause::KernelWait));
        let other = idle - host - of(Cause::KernelWait);
        section.fact("other_ns", "other", Unit::Ns, other);
        if gpu.without_call > 0 {
            section.note(format!(
                "Operations without a call in the trace: {}; gaps before them are unknown.",
                gpu.without_call
            ));
        }
        unmatched::withhold(&mut section, facts);
        super::uncalled::note(&mut section, facts);
        section.table(by_cause(facts, gpu));
        section.table(by_site(facts, gpu));
        section.table(longest(facts, gpu));
        section
    }
}

fn by_cause(facts: &Facts<'_>, gpu: &Gpu) -> Table {
    const COLUMNS: [Column; 9] = [
        column("device", "GPU", Unit::Text),
        column("cause", "Cause", Unit::Text),
        column("what", "What", Unit::Text),
        column("idle_ns", "Idle", Unit::Ns),
        column("range_percent", "Of range", Unit::Percent),
        column("gaps", "Gaps >= 1 us", Unit::Count),
        column("max_ns", "Longest", Unit::Ns),
        column("per_step_ns", "Per step", Unit::Ns),
        column("mean_step_ns", "In the mean step", Unit::Ns),
    ];
    let mut rows = Vec::new();
    for device in gpu.devices.iter() {
        let mut causes: Vec<_> = CAUSES.iter().map(|cause| (cause, &device.idle[cause.0 as usize])).collect();
        causes.retain(|(_, gaps)| gaps.ns > 0);
        causes.sort_by_key(|(_, gaps)| std::cmp::Reverse(gaps.ns));
        for ((cause, key, what), gaps) in causes {
            let in_steps = device.in_steps.iter().filter_map(|(process_id, own)| {
                let steps = facts.steps.of(*process_id).filter(|steps| steps.tells_of_gpu)?;
                Some(own.idle_ns[*cause as usize] as f64 / steps.middle.max(1) as f64)
            });
            // Several processes on one device: the one whose steps have most of it.
            let per_step = in_steps.reduce(f64::max);
            let in_steady = device.in_steps.iter().filter_map(|(process_id, own)| {
                let steady = facts.steps.of(*process_id)?.sorted_ns.len().max(1);
                Some(own.steady.1[*cause as usize] as f64 / steady as f64)
            });
            rows.push(vec![
                gpu::name(facts, gpu, device).into(),
                (*key).into(),
                (*what).into(),
                gaps.ns.into(),
                percent(gaps.ns as f64, device.range_ns() as f64),
                gaps.count.into(),
                gaps.max_ns.into(),
                per_step.into(),
                in_steady.reduce(f64::max).into(),
            ]);
        }
    }
    Table::new("by_cause", "By cause", &COLUMNS, rows)
}

/// Idle time of one process, cause and line.
#[derive(Debug)]
pub(crate) struct IdleAt<'a> {
    /// Process.
    pub(crate) process_id: i64,
    /// Cause.
    pub(crate) cause: Cause,
    /// Line, where a stack was taken.
    pub(crate) site: Option<&'a Site>,
    /// A function among those that it is blamed on.
    pub(crate) api_id: i64,
    /// Gaps of 1 us or more.
    pub(crate) count: u64,
    /// Time of all.
    pub(crate) ns: i64,
    /// Time in the usual steps.
    pub(crate) middle_ns: i64,
    /// Of that what launching alone can take.
    pub(crate) launch_ns: i64,
    /// Longest.
    pub(crate) max_ns: i64,
}

/// Idle time by process, cause and line, most first.
pub(crate) fn idle_by_site<'a>(facts: &'a Facts<'_>, gpu: &Gpu) -> Vec<IdleAt<'a>> {
    let mut sums: BTreeMap<(i64, usize, Option<&Site>, i64), IdleAt<'_>> = BTreeMap::new();
    for (GapKey { process_id, cause, api_id, stack_id, .. }, gaps) in gpu.devices.gaps.iter() {
        let site = facts.stacks.get(*stack_id);
        // Launches without a stack are one row, whichever function they called.
        let called = if site.is_none() && *cause == Cause::NotLaunched { NO_NAME } else { *api_id };
        let sum = sums.entry((*process_id, *cause as usize, site, called)).or_insert(IdleAt {
            process_id: *process_id,
            cause: *cause,
            site,
            api_id: *api_id,
            count: 0,
            ns: 0,
            middle_ns: 0,
            launch_ns: 0,
            max_ns: 0,
        });
        sum.count += gaps.count;
        sum.ns += gaps.ns;
        sum.middle_ns += gaps.middle.1;
        sum.launch_ns += gaps.launch_ns;
        sum.max_ns = sum.max_ns.max(gaps.max_ns);
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by_key(|at| std::cmp::Reverse(at.ns));
    sums
}

fn by_site(facts: &Facts<'_>, gpu: &Gpu) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("cause", "Cause", Unit::Text),
        column("site", "Line", Unit::Text),
        column("idle_ns", "Idle", Unit::Ns),
        column("gaps", "Gaps >= 1 us", Unit::Count),
        column("per_step_ns", "Per step", Unit::Ns),
        column("max_ns", "Longest", Unit::Ns),
        column("api", "Function", Unit::Name),
        column("place", "File", Unit::Name),
    ];
    let row = |at: IdleAt<'_>| {
        let steps = facts.steps.of(at.process_id);
        vec![
            facts.label(at.process_id).into(),
            CAUSES[at.cause as usize].1.into(),
            at.site.map_or_else(|| "(no stack)".to_owned(), Site::short).into(),
            at.ns.into(),
            at.count.into(),
            steps.map(|steps| at.middle_ns as f64 / steps.middle.max(1) as f64).into(),
            at.max_ns.into(),
            facts.names.full(at.api_id).into(),
            at.site.map(Site::place).into(),
        ]
    };
    let rows = idle_by_site(facts, gpu).into_iter().map(row).collect();
    Table::new("by_site", "By line that the gap is blamed on", &COLUMNS, rows)
}

fn longest(facts: &Facts<'_>, gpu: &Gpu) -> Table {
    const COLUMNS: [Column; 7] = [
        column("device", "GPU", Unit::Text),
        column("after_ns", "After", Unit::Ns),
        column("gap_ns", "Gap", Unit::Ns),
        column("cause", "Cause", Unit::Text),
        column("site", "Line", Unit::Text),
        column("api", "Function", Unit::Name),
        column("next", "Next kernel", Unit::Name),
    ];
    let began = facts.trace.began_ns();
    let row = |(device, gap): (&Device, &Longest)| {
        let call = gap.caused.call;
        let site = call.and_then(|call| facts.stacks.get(call.stack_id));
        vec![
            gpu::name(facts, gpu, device).into(),
            (gap.start - began).into(),
            gap.ns.into(),
            CAUSES[gap.caused.cause as usize].1.into(),
            site.map(Site::short).into(),
            call.map(|call| facts.names.full(call.api_id)).into(),
            (gap.next_name_id != NO_NAME).then(|| facts.names.full(gap.next_name_id)).into(),
        ]
    };
    let mut gaps: Vec<(&Device, &Longest)> =
        gpu.devices.iter().flat_map(|device| device.longest.iter().map(move |gap| (device, gap))).collect();
    gaps.sort_by_key(|(_, gap)| (std::cmp::Reverse(gap.ns), gap.start));
    Table::new("longest", "Longest gaps", &COLUMNS, gaps.into_iter().take(10).map(row).collect())
}
