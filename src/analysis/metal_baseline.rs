//! metal-baseline: the few numbers that users' guides for Metal ask for before and after a change, in one table.

use gputrace_collectors::schema::TableId;

use super::section::{Column, Section, Table, Unit, Value, column};
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

impl Baseline {
    fn of(facts: &Facts<'_>) -> Baseline {
        let devices = || facts.gpu.iter().flat_map(|gpu| gpu.devices.iter());
        let sum = |of: fn(&super::passes::gpu::Device) -> i64| devices().map(of).sum::<i64>() as f64;
        let (busy, range) = (sum(|device| device.busy().total_ns()), sum(|device| device.range_ns()));
        let (kernels, (timed, computing_ns)) = kernels(facts);
        // What is busy or idle is known where all that ran is.
        let is_whole = unmatched::any(facts).is_none();
        let allocating = facts.device_memory.calls.iter().filter(|((_, is_alloc, ..), _)| *is_alloc);
        Baseline {
            total_ns: facts.busy().iter().map(|(id, _)| facts.wall_ns(*id)).sum(),
            utilisation_percent: (range > 0.0 && is_whole).then(|| 100.0 * busy / range),
            kernels,
            kernel_ns: (timed > 0).then(|| computing_ns / timed as f64),
            gap_ns: targets::average_gap_ns(facts).filter(|_| is_whole),
            efficiency_percent: targets::launch_efficiency(facts).filter(|_| is_whole),
            allocations: (!facts.busy().is_empty() && !loss::is_removed(facts.trace, &[TableId::DeviceMemory]))
                .then(|| allocating.map(|(_, calls)| calls.api.count).sum()),
        }
    }
}

/// Kernels; those of which is known how long the GPU took, and that time, ns.
fn kernels(facts: &Facts<'_>) -> (Option<u64>, (u64, f64)) {
    // What Metal times is a command buffer; its dispatches are the kernels.
    if facts.metal.processes.iter().next().is_some() || facts.metal.dispatches() > 0 {
        let timed = facts.metal.processes.iter().map(|(_, own)| own.timed);
        let timed = timed.fold((0, 0.0), |(kernels, ns), own| (kernels + own.0, ns + own.1 as f64));
        return (Some(facts.metal.kernels()), timed);
    }
    let devices = facts.gpu.iter().flat_map(|gpu| gpu.devices.iter());
    let timed = devices.fold((0, 0.0), |(kernels, ns), device| {
        let busy = device.busy();
        (kernels + device.operations[0] + device.operations[1], ns + (busy.compute_ns + busy.communication_ns) as f64)
    });
    ((timed.0 > 0).then_some(timed.0), timed)
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
            definition: "Total time is the wall time of the processes that used the GPU. GPU utilisation is busy time / time from the \
                first operation to the last (as gpu-utilisation has it). Kernels are dispatches, and commands of indirect command buffers; \
                average kernel time is the time on the GPU of the command buffers that hold some and were timed / these kernels. \
                Average gap is idle time of the GPU / its operations (command buffers). Launch efficiency is GPU busy time / wall \
                time of the processes that gave it work, as launch-overhead has it. Allocations are buffers and heaps made. Good is \
                utilisation over 80 %, a gap of at most 1 us, efficiency over 70 %. Compare two runs with gputrace diff, which judges a step's length, kernels, \
                allocations, busy and idle time beside the values of the run; hold one \
                to limits with gputrace check.",
            unit: "ns and percent in JSON; in text each value has its unit.",
            limits: "Metal tells when a command buffer ran, not when each kernel did: gaps between kernels of one command buffer, and copies in it, are \
                busy time here, and count as time of kernels. Kernels whose command buffer has no time are in their number alone, and where more than 5 % of the \
                command buffers have none, or of the dispatches no commit, utilisation, gap and efficiency are not known. Dispatches that were not committed ran nowhere. Of a trace of CUDA kernels are those that ran.",
            source: "The metal-candle guide's baseline table and its targets.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Metal, Need::Busy, Need::DeviceMemory]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::cost("total_ns", Ns, "wall time of the processes that used the GPU").unsteady(),
            Metric::use_of("utilisation_percent", Percent, "GPU busy, from its first operation to its last").unsteady(),
            Metric::about("kernels", Count, "dispatches and commands of indirect command buffers"),
            Metric::cost("kernel_mean_ns", Ns, "time on the GPU of command buffers with kernels / these kernels"),
            Metric::cost("gap_mean_ns", Ns, "idle time of the GPU / its operations").unsteady(),
            Metric::use_of("efficiency_percent", Percent, "GPU busy, of wall time").unsteady(),
            Metric::about("allocations", Count, "buffers and heaps made"),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.metal.processes.iter().next().is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let of = Baseline::of(facts);
        section.fact("total_ns", "total time", Unit::Ns, (of.total_ns > 0.0).then_some(of.total_ns));
        section.fact("utilisation_percent", "GPU utilisation", Unit::Percent, of.utilisation_percent);
        section.fact("kernels", "kernels", Unit::Count, of.kernels);
        section.fact("kernel_mean_ns", "average kernel", Unit::Ns, of.kernel_ns);
        section.fact("gap_mean_ns", "average gap", Unit::Ns, of.gap_ns);
        section.fact("efficiency_percent", "launch efficiency", Unit::Percent, of.efficiency_percent);
        section.fact("allocations", "allocations", Unit::Count, of.allocations);
        section.table(table(&of));
        gpu::times(facts, &mut section);
        unmatched::note(&mut section, facts);
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
        let removed =
            Removed { table: "device_memory".into(), limit: "--max-size".into(), rows: 60, ..Removed::default() };
        trace.manifest.as_mut().expect("a manifest").removed.push(removed);
        assert_eq!(trace.section(&MetalBaseline).get("allocations"), &Value::Missing);
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
