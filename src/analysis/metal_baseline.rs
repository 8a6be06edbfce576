//! metal-baseline: the few numbers that users' guides for Metal ask for before and after a change, in one table.

use gputrace_collectors::schema::TableId;

use super::passes::gpu::Device;
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, gpu, loss, targets, unmatched};
use crate::render::{duration, number, share};

/// The analysis.
pub(crate) struct MetalBaseline;

/// What the guide takes as good.
const UTILISATION_PERCENT: f64 = 80.0;
const EFFICIENCY_PERCENT: f64 = 70.0;
const GAP_NS: f64 = 1_000.0;

/// The numbers of the table; none where the trace does not tell.
struct Baseline {
    total_ns: f64,
    utilisation_percent: Option<f64>,
    kernels: Option<u64>,
    kernel_ns: Option<f64>,
    gap_ns: Option<f64>,
    efficiency_percent: Option<f64>,
    allocations: Option<u64>,
}

/// The processes that it is of: those that use Metal, whatever others do beside them; of a trace without any all that called a driver.
fn processes(facts: &Facts<'_>) -> Vec<i64> {
    let mut all: Vec<i64> = facts.busy().iter().map(|(id, _)| *id).collect();
    if all.iter().any(|id| facts.is_metal(*id)) {
        all.retain(|id| facts.is_metal(*id));
    }
    all.sort_by_key(|id| facts.place(*id));
    all
}

impl Baseline {
    /// That of some processes together.
    fn of(facts: &Facts<'_>, own: &[i64]) -> Baseline {
        let uses = |device: &&Device| device.in_steps.iter().any(|(id, _)| own.contains(id));
        let devices = || facts.gpu.iter().flat_map(|gpu| gpu.devices.iter()).filter(uses);
        let sum = |of: fn(&Device) -> i64| devices().map(of).sum::<i64>() as f64;
        let (busy, range) = (sum(|device| device.busy().total_ns()), sum(|device| device.range_ns()));
        let (kernels, (timed, computing_ns)) = kernels(facts, own, devices());
        // What is busy or idle is known where all that ran is.
        let is_whole = own.iter().all(|id| unmatched::missing(facts, *id).is_none()) && !is_lost(facts, own, &WORK);
        Baseline {
            total_ns: facts.wall_of_any_ns(own, false),
            utilisation_percent: (range > 0.0 && is_whole).then(|| 100.0 * busy / range),
            kernels: kernels.filter(|_| !is_removed(facts, TableId::Dispatches) && !is_lost(facts, own, &WORK)),
            kernel_ns: (timed > 0).then(|| computing_ns / timed as f64),
            gap_ns: targets::gap_of(devices()).filter(|_| is_whole),
            efficiency_percent: targets::efficiency_of(facts, devices()).filter(|_| {
                is_whole && !is_removed(facts, TableId::Kernels) && !is_removed(facts, TableId::DeviceCopies)
            }),
            allocations: allocations(facts, own),
        }
    }
}

/// Kernels; those of which is known how long the GPU took, and that time, ns.
fn kernels<'d>(facts: &Facts<'_>, own: &[i64], devices: impl Iterator<Item = &'d Device>) -> (Option<u64>, (u64, f64)) {
    // What Metal times is a command buffer; its dispatches are the kernels.
    let metal = &facts.metal;
    if metal.processes.iter().next().is_some() || metal.dispatches() > 0 {
        let timed = metal.processes.iter().filter(|(id, _)| own.contains(id)).map(|(_, own)| own.timed);
        let timed = timed.fold((0, 0.0), |(kernels, ns), own| (kernels + own.0, ns + own.1 as f64));
        let kernels = metal.kernels.iter().filter(|((id, _), _)| own.contains(id)).map(|(_, of)| of.kernels).sum();
        return (Some(kernels), timed);
    }
    let timed = devices.fold((0, 0.0), |(kernels, ns), device| {
        let busy = device.busy();
        (kernels + device.operations[0] + device.operations[1], ns + (busy.compute_ns + busy.communication_ns) as f64)
    });
    ((timed.0 > 0).then_some(timed.0), timed)
}

/// What tells of the GPU's work: commits, and what is encoded.
const WORK: [TableId; 2] = [TableId::Launches, TableId::Dispatches];
/// Of so many events one may be lost.
const MAY_LOSE: u64 = 20;

/// Whether so many of their events found no room that what is left is not their run.
fn is_lost(facts: &Facts<'_>, own: &[i64], tables: &[TableId]) -> bool {
    let of = own.iter().filter_map(|id| loss::Loss::of_process(facts.trace.process(*id)?, tables));
    let (dropped, recorded) = of.fold((0, 0), |sum, of| (sum.0 + of.dropped, sum.1 + of.recorded));
    dropped * MAY_LOSE > dropped + recorded
}

/// Whether some of these rows are gone: a sum of the others is none of the run.
fn is_removed(facts: &Facts<'_>, table: TableId) -> bool {
    loss::is_removed(facts.trace, &[table])
}

/// Buffers and heaps that they made.
fn allocations(facts: &Facts<'_>, own: &[i64]) -> Option<u64> {
    let made = facts.device_memory.calls.iter().filter(|((id, is_alloc, ..), _)| *is_alloc && own.contains(id));
    let is_known = !is_removed(facts, TableId::DeviceMemory) && !is_lost(facts, own, &[TableId::DeviceMemory]);
    (!own.is_empty() && is_known).then(|| made.map(|(_, calls)| calls.api.count).sum())
}

impl Analysis for MetalBaseline {
    fn name(&self) -> &'static str {
        "metal-baseline"
    }

    fn title(&self) -> &'static str {
        "Metal baseline"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Total time is the wall time in which any process that uses Metal ran: several that share the GPU count once. GPU \
                utilisation is busy time / time from the GPU's first operation to its last (as gpu-utilisation has it), for whichever \
                process it worked. Kernels are dispatches, and commands of indirect command buffers; \
                average kernel time is the time on the GPU of the command buffers that hold some and were timed / these kernels. \
                Average gap is idle time of the GPU / its operations (command buffers). Launch efficiency is GPU busy time / wall \
                time in which any process that gave it work ran, as launch-overhead has it. Allocations are buffers and heaps made. Of several processes a \
                table has each one's own: its wall time, the time in which the GPU ran its command buffers, and that / its wall time, which with \
                others beside it is its part of the GPU. Good is \
                utilisation over 80 %, a gap of at most 1 us, efficiency over 70 %. Compare two runs with gputrace diff, which judges a step's length, kernels, \
                allocations, busy and idle time beside the values of the run; hold one \
                to limits with gputrace check.",
            unit: "ns and percent in JSON; in text each value has its unit.",
            limits: "Metal tells when a command buffer ran, not when each kernel did: gaps between kernels of one command buffer, and copies in it, are \
                busy time here, and count as time of kernels. Kernels whose command buffer has no time are in their number alone, and where more than 5 % of the \
                command buffers have none, or of the dispatches no commit, utilisation, gap and efficiency are not known; nor are they, or the number of kernels, where more than 5 % of commits or dispatches found no room. Dispatches that were not committed ran nowhere. \
                Processes that use CUDA beside Metal's are not counted; of a trace of CUDA alone kernels are those that ran. A process that uses Metal elsewhere at the same time, and is not traced, makes gaps of its own.",
            source: "The metal-candle guide's baseline table and its targets.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Metal, Need::Busy, Need::DeviceMemory]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::cost("total_ns", Ns, "wall time in which any process that used the GPU ran").unsteady(),
            Metric::use_of("utilisation_percent", Percent, "GPU busy, from its first operation to its last").unsteady(),
            Metric::about("kernels", Count, "dispatches and commands of indirect command buffers")
                .sums(&[TableId::Dispatches]),
            Metric::cost("kernel_mean_ns", Ns, "time on the GPU of command buffers with kernels / these kernels"),
            Metric::cost("gap_mean_ns", Ns, "idle time of the GPU / its operations").unsteady(),
            Metric::use_of("efficiency_percent", Percent, "GPU busy, of wall time")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .unsteady(),
            Metric::about("allocations", Count, "buffers and heaps made").sums(&[TableId::DeviceMemory]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.metal.processes.iter().next().is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let own = processes(facts);
        let of = Baseline::of(facts, &own);
        section.fact("total_ns", "total time", Unit::Ns, (of.total_ns > 0.0).then_some(of.total_ns));
        section.fact("utilisation_percent", "GPU utilisation", Unit::Percent, of.utilisation_percent);
        section.fact("kernels", "kernels", Unit::Count, of.kernels);
        section.fact("kernel_mean_ns", "average kernel", Unit::Ns, of.kernel_ns);
        section.fact("gap_mean_ns", "average gap", Unit::Ns, of.gap_ns);
        section.fact("efficiency_percent", "launch efficiency", Unit::Percent, of.efficiency_percent);
        section.fact("allocations", "allocations", Unit::Count, of.allocations);
        section.table(table(&of));
        if own.len() > 1 {
            section.table(by_process(facts, &own));
        }
        gpu::times(facts, &mut section);
        unmatched::note(&mut section, facts);
        loss::note(&mut section, facts, "launches", TableId::Launches);
        loss::note(&mut section, facts, "dispatches and other messages to encoders", TableId::Dispatches);
        loss::note(&mut section, facts, "allocation and free calls", TableId::DeviceMemory);
        loss::removed_note(&mut section, facts, &[TableId::CommandBuffers, TableId::Dispatches, TableId::DeviceMemory]);
        section
    }
}

fn table(of: &Baseline) -> Table {
    const COLUMNS: [Column; 4] = [
        column("what", "What", Unit::Text),
        column("value", "Value", Unit::Text),
        column("good", "Good", Unit::Text),
        column("result", "Result", Unit::Text),
    ];
    let row = |what: &str, value: Option<String>, good: Option<(String, Option<bool>)>| -> Vec<Value> {
        let (good, met) = good.unzip();
        let result = met.flatten().map(|met| if met { "pass" } else { "fail" });
        vec![what.into(), value.into(), good.into(), result.into()]
    };
    let percent = |of: Option<f64>| of.map(|percent| share(percent / 100.0));
    let above = |of: Option<f64>, least: f64| Some((format!("> {least} %"), of.map(|percent| percent > least)));
    let rows = vec![
        row("total time", (of.total_ns > 0.0).then(|| duration(of.total_ns)), None),
        row("GPU utilisation", percent(of.utilisation_percent), above(of.utilisation_percent, UTILISATION_PERCENT)),
        row("kernels", of.kernels.map(|kernels| number(kernels as f64)), None),
        row("average kernel", of.kernel_ns.map(duration), None),
        row(
            "average gap",
            of.gap_ns.map(duration),
            Some((format!("<= {}", duration(GAP_NS)), of.gap_ns.map(|ns| ns <= GAP_NS))),
        ),
        row("launch efficiency", percent(of.efficiency_percent), above(of.efficiency_percent, EFFICIENCY_PERCENT)),
        row("allocations", of.allocations.map(|calls| number(calls as f64)), None),
    ];
    Table::new("baseline", "Before and after a change", &COLUMNS, rows)
}

/// What each of them had of the GPU.
fn by_process(facts: &Facts<'_>, own: &[i64]) -> Table {
    const COLUMNS: [Column; 7] = [
        column("process", "Process", Unit::Text),
        column("total_ns", "Total time", Unit::Ns),
        column("busy_ns", "On the GPU", Unit::Ns),
        column("busy_percent", "Of its time", Unit::Percent),
        column("kernels", "Kernels", Unit::Count),
        column("kernel_mean_ns", "Avg kernel", Unit::Ns),
        column("allocations", "Allocations", Unit::Count),
    ];
    let row = |id: &i64| {
        let of = Baseline::of(facts, &[*id]);
        let busy = facts.metal.processes.get(id).filter(|own| own.gpu.count > 0).map(|own| own.busy.total_ns());
        vec![
            facts.label(*id).into(),
            (of.total_ns > 0.0).then_some(of.total_ns).into(),
            busy.into(),
            busy.map_or(Value::Missing, |busy| percent(busy as f64, of.total_ns)),
            of.kernels.into(),
            of.kernel_ns.into(),
            of.allocations.into(),
        ]
    };
    Table::new("by_process", "By process, each with its own time", &COLUMNS, own.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::Removed;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn the_table_has_the_guides_numbers_and_says_which_are_good() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 200_000);
        let mut thread = trace.thread(1, 11);
        thread.alloc("[MTLDevice newBufferWithLength:options:]", "managed", 0x50, 4096, 1_000);
        // Two command buffers of two dispatches: 90 us each, with 500 ns between them.
        let begin = thread.now + 10_000;
        thread.commit(&[("gemm", 100_000), ("relu", 64)], 1_000, 5_000, (begin, 90_000));
        thread.commit(&[("gemm", 100_000), ("relu", 64)], 1_000, 5_000, (begin + 90_500, 90_000));
        let section = trace.section(&MetalBaseline);
        assert_eq!((section.get("total_ns"), section.get("kernels")), (&Value::Num(200_000.0), &Value::Int(4)));
        assert_eq!(section.get("utilisation_percent"), &Value::Num(100.0 * 180_000.0 / 180_500.0));
        assert_eq!(
            (section.get("kernel_mean_ns"), section.get("gap_mean_ns")),
            (&Value::Num(45_000.0), &Value::Num(250.0))
        );
        assert_eq!(
            (section.get("efficiency_percent"), section.get("allocations")),
            (&Value::Num(90.0), &Value::Int(1))
        );
        let results: Vec<&Value> = (0..7).map(|row| section.cell("baseline", row, "result")).collect();
        assert_eq!(results.iter().filter(|result| **result == &Value::from("pass")).count(), 3);
        assert_eq!(section.notes, Vec::<String>::new());
        let processes = &mut trace.manifest.as_mut().expect("a manifest").processes;
        let account = processes[0].accounting.entry("encode".into()).or_default();
        (account.recorded, account.dropped) = (80, 20);
        let lost = trace.section(&MetalBaseline);
        for unknown in ["kernels", "utilisation_percent", "gap_mean_ns", "efficiency_percent"] {
            assert_eq!(lost.get(unknown), &Value::Missing, "{unknown}");
        }
        assert!(lost.notes.iter().any(|note| note.starts_with("20 of 100 dispatches")), "{:?}", lost.notes);
        let removed =
            Removed { table: "device_memory".into(), limit: "--max-size".into(), rows: 60, ..Removed::default() };
        trace.manifest.as_mut().expect("a manifest").removed.push(removed);
        assert_eq!(trace.section(&MetalBaseline).get("allocations"), &Value::Missing);
    }

    #[test]
    fn processes_that_share_the_gpu_have_one_wall_clock_and_their_own_numbers() {
        let mut trace = TestTrace::new();
        // Two at the same time, each with the GPU for 90 us in turn.
        for id in [1, 2] {
            trace.process(id, 99 + id as i32, None, START + 200_000);
            let mut thread = trace.thread(id, 11);
            thread.alloc("[MTLDevice newBufferWithLength:options:]", "managed", 0x50, 4096, 1_000);
            let begin = START + 10_000 + 90_000 * (id - 1);
            thread.commit(&[("gemm", 100_000)], 1_000, 5_000, (begin, 90_000));
        }
        let section = trace.section(&MetalBaseline);
        assert_eq!((section.get("total_ns"), section.get("kernels")), (&Value::Num(200_000.0), &Value::Int(2)));
        assert_eq!(
            (section.get("utilisation_percent"), section.get("efficiency_percent")),
            (&Value::Num(100.0), &Value::Num(90.0))
        );
        for row in 0..2 {
            let cell = |column| section.cell("by_process", row, column);
            assert_eq!((cell("total_ns"), cell("busy_ns")), (&Value::Num(200_000.0), &Value::Int(90_000)));
            assert_eq!((cell("busy_percent"), cell("kernels")), (&Value::Num(45.0), &Value::Int(1)));
            assert_eq!((cell("kernel_mean_ns"), cell("allocations")), (&Value::Num(90_000.0), &Value::Int(1)));
        }
        let efficiency = |section: &Section| section.get("efficiency_percent").clone();
        assert_eq!(efficiency(&trace.section(&super::super::launch_overhead::LaunchOverhead)), efficiency(&section));
    }

    #[test]
    fn what_processes_of_cuda_do_beside_metal_is_not_counted() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 200_000);
        trace.thread(1, 11).commit(&[("gemm", 100_000)], 1_000, 5_000, (START + 10_000, 90_000));
        let alone = trace.section(&MetalBaseline);
        trace.process(2, 101, None, START + 900_000);
        let mut thread = trace.thread(2, 12);
        thread.alloc("cuMemAlloc_v2", "device", 0x1000, 1 << 20, 8_000);
        thread.device = 1;
        thread.launch_running("relu", 3_000, 7, (START + 300_000, 9_000));
        let beside = trace.section(&MetalBaseline);
        assert_eq!((&alone.facts, &alone.tables), (&beside.facts, &beside.tables));
    }

    #[test]
    fn commands_are_kernels_and_what_holds_none_or_has_no_time_is_in_no_mean() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        let begin = thread.now + 100_000;
        thread.commit_commands("gemm", 50, Some((begin, 100_000)));
        // One without dispatches, and one of which nobody told the end.
        thread.commit(&[], 1_000, 5_000, (begin + 200_000, 70_000));
        thread.commit_commands("gemm", 7, None);
        let section = trace.section(&MetalBaseline);
        assert_eq!((section.get("kernels"), section.get("kernel_mean_ns")), (&Value::Int(57), &Value::Num(2_000.0)));
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.commit(&[], 1_000, 5_000, (begin, 70_000));
        let section = trace.section(&MetalBaseline);
        assert_eq!((section.get("kernels"), section.get("kernel_mean_ns")), (&Value::Int(0), &Value::Missing));
    }
}
