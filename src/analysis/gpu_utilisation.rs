//! gpu-utilisation: how much of the time each GPU worked, with what, and when.

use super::passes::gpu::{Device, Gpu};
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, gpu, idle_gpus, timed_kernels};
use gputrace_collectors::schema::TableId;

/// The analysis.
pub(crate) struct GpuUtilisation;

/// Parts of a device's time that are looked at one by one (Nsight Systems).
const PARTS: usize = 30;
/// A part with less is under-used (Nsight Systems' gpu_time_util).
const LOW_PERCENT: f64 = 50.0;

impl Analysis for GpuUtilisation {
    fn name(&self) -> &'static str {
        "gpu-utilisation"
    }

    fn title(&self) -> &'static str {
        "GPU utilisation"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Busy is the union of all operations of a device (kernels, copies, sets), of all processes and streams, \
                each ns once; utilisation is busy / range, from the begin of the device's first operation to the end of its \
                last; with --from and --to it is the span, as far as it lies between the first and the last operation that the device has in the \
                whole trace, with what had begun before the span and still ran in it. Compute is the union of kernels that are not NCCL's; NCCL exposed the time in which only NCCL's kernels \
                (and copies) ran; copies exposed the time in which only copies and sets did: the three sum to busy. Overlap is \
                the part of NCCL's time with computing beside it. Of all is busy / the time from the first operation of any GPU of the \
                same launcher to the last, which also a GPU has that did next to nothing; notes name such GPUs beside ones that work, and \
                those that processes could see and gave no work. With --range, the range is the time \
                of what was launched inside, and the time inside in which the GPU had no work of anybody; it is not cut in parts. Concurrent is the time with two operations or more. The range is cut into 30 parts; those under 50 % are \
                counted. Where launches were timed (--gpu-time events; with the other ways while CUPTI could not be used) and CUPTI did not tell of nearly \
                all of the run, range, busy and utilisation are those of the whole run, estimated from these launches and from windows (--explain \
                timed-kernels); the other tables are of the windows then. Per step: the part in the steady steps of usual duration, per step; the mean step is that of all steady ones, with \
                gaps that are longer than a step.",
            unit: "ns in JSON; in text the column's head names the unit. Utilisation is a percentage.",
            limits: "What a kernel does inside is not known: a device that is busy may be badly used. Work of one step that runs \
                in the next one counts there; over many steps that evens out. Processes of several launchers that share a device \
                are not joined. A part of the 30 is exact to 1/136 of its length.",
            source: "Nsight Systems gpu_time_util, which sums operations, so that it can exceed 100 %; the union is taken here. \
                HTA's temporal breakdown: idle, compute, and non-compute = NCCL exposed + copies exposed; its \
                communication/computation overlap.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Busy, Need::Samples, Need::GpuClock, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("devices", Count, "GPUs with work"),
            Metric::about("range_ns", Ns, "from the first operation to the last, summed over GPUs")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::about("busy_ns", Ns, "time in which GPUs worked").sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::use_of("busy_percent", Percent, "time in which GPUs worked, of the range"),
            Metric::use_of(
                "least_busy_percent",
                Percent,
                "the GPU that works least: of the time in which any of its run works",
            ),
            Metric::about("idle_ns", Ns, "time in which GPUs did nothing")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::about("compute_ns", Ns, "time with computing kernels")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::about("communication_exposed_ns", Ns, "time in which only kernels of NCCL ran")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::about("copies_exposed_ns", Ns, "time in which only copies and sets ran")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::about("communication_ns", Ns, "time with kernels of NCCL")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::use_of("overlap_percent", Percent, "part of NCCL's time with computing beside it"),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.gpu.is_some() || facts.samples.any()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        if timed_kernels::estimates(facts) && timed_kernels::utilisation(facts, &mut section) {
            if let Some(gpu) = facts.gpu.as_ref().filter(|gpu| gpu.any()) {
                section.note("By GPU, In a usual step, Utilisation over time: in the windows in which CUPTI told of all work, and of no other time.");
                section.table(by_device(facts, gpu));
                section.table(per_step(facts, gpu));
                section.table(over_time(facts, gpu));
            }
            return section;
        }
        let Some(gpu) = gpu::devices(facts, &mut section) else { return section };
        let sum = |of: &dyn Fn(&Device) -> i64| gpu.devices.iter().map(of).sum::<i64>();
        let range = sum(&Device::range_ns);
        let busy = sum(&|device| device.busy().total_ns());
        let communication = sum(&|device| device.overlap_ns().0);
        section.fact(
            "devices",
            "GPUs with work",
            Unit::Count,
            gpu.devices.iter().filter(|device| device.has_work()).count() as u64,
        );
        section.fact("range_ns", "range, summed over GPUs", Unit::Ns, range);
        section.fact("busy_ns", "busy", Unit::Ns, busy);
        section.fact("busy_percent", "utilisation", Unit::Percent, percent(busy as f64, range as f64));
        let shares = idle_gpus::shares(gpu);
        let least = shares.iter().map(|(_, share)| *share).min_by(f64::total_cmp);
        section.fact("least_busy_percent", "of the GPU that works least, of all", Unit::Percent, least);
        section.fact("idle_ns", "idle", Unit::Ns, range - busy);
        section.fact("compute_ns", "compute", Unit::Ns, sum(&|device| device.busy().compute_ns));
        section.fact(
            "communication_exposed_ns",
            "NCCL exposed",
            Unit::Ns,
            sum(&|device| device.busy().communication_ns),
        );
        section.fact("copies_exposed_ns", "copies exposed", Unit::Ns, sum(&|device| device.busy().copy_ns));
        section.fact("communication_ns", "NCCL in all", Unit::Ns, communication);
        let overlap = percent(sum(&|device| device.overlap_ns().1) as f64, communication as f64);
        section.fact("overlap_percent", "of it beside computing", Unit::Percent, overlap);
        idle_gpus::note(&mut section, facts, gpu, &shares);
        super::unmatched::withhold(&mut section, facts);
        section.table(by_device(facts, gpu));
        section.table(per_step(facts, gpu));
        section.table(over_time(facts, gpu));
        section
    }
}

fn by_device(facts: &Facts<'_>, gpu: &Gpu) -> Table {
    const COLUMNS: [Column; 13] = [
        column("device", "GPU", Unit::Text),
        column("range_ns", "Range", Unit::Ns),
        column("busy_ns", "Busy", Unit::Ns),
        column("busy_percent", "Busy", Unit::Percent),
        column("of_all_percent", "Of all", Unit::Percent),
        column("compute_ns", "Compute", Unit::Ns),
        column("communication_exposed_ns", "NCCL exposed", Unit::Ns),
        column("copies_exposed_ns", "Copies exposed", Unit::Ns),
        column("concurrent_ns", "Concurrent", Unit::Ns),
        column("kernels", "Kernels", Unit::Count),
        column("communication_kernels", "NCCL's", Unit::Count),
        column("copies", "Copies", Unit::Count),
        column("low_parts", "Parts < 50 %", Unit::Count),
    ];
    let row = |(device, of_all): (&Device, f64)| {
        let busy = device.busy();
        let part_ns = device.range_ns() as f64 / PARTS as f64;
        let parts = device.bins.parts(PARTS, device.last_ns());
        let low = parts.iter().filter(|(_, ns)| 100.0 * ns < LOW_PERCENT * part_ns).count();
        vec![
            gpu::name(facts, gpu, device).into(),
            device.range_ns().into(),
            busy.total_ns().into(),
            percent(busy.total_ns() as f64, device.range_ns() as f64),
            of_all.into(),
            busy.compute_ns.into(),
            busy.communication_ns.into(),
            busy.copy_ns.into(),
            device.several.total_ns.into(),
            device.operations[0].into(),
            device.operations[1].into(),
            device.operations[2].into(),
            device.is_whole().then_some(low as u64).into(),
        ]
    };
    Table::new("by_device", "By GPU", &COLUMNS, idle_gpus::shares(gpu).into_iter().map(row).collect())
}

fn per_step(facts: &Facts<'_>, gpu: &Gpu) -> Table {
    const COLUMNS: [Column; 12] = [
        column("process", "Process", Unit::Text),
        column("device", "GPU", Unit::Text),
        column("step_ns", "Step", Unit::Ns),
        column("busy_ns", "Busy", Unit::Ns),
        column("busy_percent", "Busy", Unit::Percent),
        column("compute_ns", "Compute", Unit::Ns),
        column("communication_exposed_ns", "NCCL exposed", Unit::Ns),
        column("copies_exposed_ns", "Copies exposed", Unit::Ns),
        column("idle_ns", "Idle", Unit::Ns),
        column("mean_step_ns", "Mean step", Unit::Ns),
        column("mean_busy_ns", "Busy in it", Unit::Ns),
        column("mean_idle_ns", "Idle in it", Unit::Ns),
    ];
    let mut rows = Vec::new();
    for device in gpu.devices.iter() {
        let mut processes: Vec<_> = device.in_steps.iter().collect();
        processes.sort_by_key(|(process_id, _)| facts.place(**process_id));
        for (process_id, own) in processes {
            let Some(steps) = facts.steps.of(*process_id).filter(|steps| steps.tells_of_gpu) else { continue };
            // Of steps that are reported in part only the usual one is known.
            let whole = !facts.filter.is_gapped();
            let mean_busy = own.steady.0 as f64 / steps.sorted_ns.len().max(1) as f64;
            let per_step = |ns: i64| ns as f64 / steps.middle.max(1) as f64;
            rows.push(vec![
                facts.label(*process_id).into(),
                gpu::name(facts, gpu, device).into(),
                steps.middle_ns.into(),
                per_step(own.busy.total_ns()).into(),
                percent(per_step(own.busy.total_ns()), steps.middle_ns),
                per_step(own.busy.compute_ns).into(),
                per_step(own.busy.communication_ns).into(),
                per_step(own.busy.copy_ns).into(),
                (steps.middle_ns - per_step(own.busy.total_ns())).max(0.0).into(),
                whole.then(|| steps.mean_ns()).into(),
                whole.then_some(mean_busy).into(),
                whole.then(|| (steps.mean_ns() - mean_busy).max(0.0)).into(),
            ]);
        }
    }
    Table::new("per_step", "In a usual step", &COLUMNS, rows)
}

fn over_time(facts: &Facts<'_>, gpu: &Gpu) -> Table {
    const COLUMNS: [Column; 3] = [
        column("device", "GPU", Unit::Text),
        column("after_ns", "After", Unit::Ns),
        column("busy_percent", "Busy", Unit::Percent),
    ];
    // What lies inside of many ranges is not one stretch of time.
    let rows = gpu.devices.iter().filter(|device| device.is_whole()).flat_map(|device| {
        let part_ns = device.range_ns() as f64 / PARTS as f64;
        let name = gpu::name(facts, gpu, device);
        let parts = device.bins.parts(PARTS, device.last_ns());
        parts.into_iter().map(move |(at, ns)| vec![name.clone().into(), at.into(), percent(ns, part_ns)])
    });
    Table::new("over_time", "Utilisation over time", &COLUMNS, rows.collect())
}
