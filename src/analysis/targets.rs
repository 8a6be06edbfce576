//! targets: each threshold that users' guides teach, whether this trace meets it, and whom to ask where it cannot know.
//!
//! The guides disagree with each other; every one is listed with its source. What only hardware counters know is told by those that
//! the trace has (GPM, perf), else named with the metric to ask Nsight Compute, or perf, for.

use gputrace_collectors::schema::TableId;

use super::bound;
use super::kernels::layout_ns;
use super::passes::counters::Of as OfSubject;
use super::passes::gpu::Device;
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{ALL, Analysis, Explain, Facts, Metric, Need, loss, removed};
use crate::render::{duration, share};

/// The analysis.
pub(crate) struct Targets;

/// A threshold.
struct Target {
    /// What is measured.
    what: &'static str,
    /// What it must be.
    limit: Limit,
    /// Who says so.
    source: &'static str,
    /// How it is known.
    measure: Measure,
}

/// What a number must be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// So many percent and more.
    AtLeast(f64),
    /// Less than so many percent.
    Below(f64),
    /// So many ns at most.
    AtMostNs(f64),
    /// Enough from the first of these percentages on; guides name both.
    Between(f64, f64),
    /// More of it than this many percent.
    MorePercent(f64),
    /// More than this number.
    More(f64),
    /// None of it.
    None,
}

/// How a number is known.
enum Measure {
    /// A fact of another analysis.
    Fact(&'static str, &'static str),
    /// From the passes.
    Of(fn(&Facts<'_>) -> Option<f64>),
    /// From counters, which few traces have; without them whom to ask, and for what.
    Counted(fn(&Facts<'_>) -> Option<f64>, &'static str),
    /// Only from elsewhere: whom to ask, and for what.
    Ask(&'static str),
}

use Limit::{AtLeast, AtMostNs, Below, Between, More, MorePercent};
use Measure::{Ask, Counted, Fact, Of};

const fn target(what: &'static str, limit: Limit, source: &'static str, measure: Measure) -> Target {
    Target { what, limit, source, measure }
}

const OCCUPANCY: &str = "ncu --metrics sm__warps_active.avg.pct_of_peak_sustained_active";
const MEMORY: &str = "ncu --metrics dram__throughput.avg.pct_of_peak_sustained_elapsed";
/// Who knows a GPU's counters on macOS.
const INSTRUMENTS: &str = "Instruments, Metal System Trace: GPU counters";
const LAUNCHES: &str = "Nsight Systems and HTA (outliers of launches)";
const GUIDES: &str = "users' guides, which disagree";

/// Every threshold.
const TARGETS: &[Target] = &[
    target("GPU utilisation", AtLeast(50.0), "PyTorch's profiler plugin", Fact("gpu-utilisation", "busy_percent")),
    target("GPU utilisation", AtLeast(70.0), GUIDES, Fact("gpu-utilisation", "busy_percent")),
    target("GPU utilisation", AtLeast(80.0), GUIDES, Fact("gpu-utilisation", "busy_percent")),
    target("GPU utilisation", AtLeast(90.0), GUIDES, Fact("gpu-utilisation", "busy_percent")),
    target("launch efficiency: GPU busy / wall", AtLeast(70.0), "metal-candle", Of(efficiency_of_run)),
    target("average gap between GPU operations", AtMostNs(1_000.0), GUIDES, Of(average_gap_ns)),
    target("longest gap", AtMostNs(500e6), "Nsight Systems gpu_gaps", Of(longest_gap_ns)),
    target("99th percentile of launch calls", AtMostNs(50_000.0), LAUNCHES, Fact("launch-overhead", "p99_ns")),
    target("waits of the loop beside the GPU (input)", Below(5.0), "PyTorch's profiler plugin (DataLoader)", Of(input)),
    target("NCCL with no computing beside it", Below(10.0), "PyTorch's profiler plugin (communication)", Of(exposed)),
    target("kernels that only change layouts", Below(5.0), "users' guides (channels_last)", Of(layouts)),
    target("allocations in steady steps", Limit::None, GUIDES, Fact("device-memory", "steady_allocations")),
    target("occupancy", AtLeast(75.0), GUIDES, Counted(occupancy, OCCUPANCY)),
    target("occupancy", Between(50.0, 75.0), GUIDES, Counted(occupancy, OCCUPANCY)),
    target("memory throughput, of peak", AtLeast(80.0), GUIDES, Counted(memory, MEMORY)),
    target("L1 misses", Below(5.0), GUIDES, Ask("ncu --metrics l1tex__t_sector_hit_rate.pct (100 - it)")),
    target("L2 misses", Below(10.0), GUIDES, Ask("ncu --metrics lts__t_sector_hit_rate.pct (100 - it)")),
    target("L3 misses, of the host", Below(20.0), GUIDES, Ask("perf stat -e LLC-loads,LLC-load-misses")),
    target("branch misses, of the host", Below(5.0), GUIDES, Ask("perf stat -e branches,branch-misses")),
    target(
        "instructions per cycle, of the host",
        More(2.0),
        GUIDES,
        Counted(instructions_per_cycle, "--cpu-counters on, or perf stat -e instructions,cycles"),
    ),
    target(
        "tensor cores used where they could be",
        MorePercent(0.0),
        GUIDES,
        Counted(tensor, "ncu --metrics sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"),
    ),
];

impl Analysis for Targets {
    fn name(&self) -> &'static str {
        "targets"
    }

    fn title(&self) -> &'static str {
        "Targets of users' guides"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Each threshold that users' guides teach, with its source, what this trace measured, and pass, fail or \
                not measured. GPU utilisation is as in gpu-utilisation; launch efficiency is GPU busy / wall time in which any \
                process that uses it ran; the average gap is idle time / number of operations; input is the time of the \
                loop's thread in waits for the operating system, of a usual step, in the process where that is most; \
                layout kernels are those whose names have direct_copy, nchwToNhwc or nhwcToNchw, of the time of all \
                kernels. Where the trace has counters (--explain counters), occupancy, memory throughput and tensor cores are GPM's, \
                the mean of the devices while they were used; instructions per cycle are those of the traced processes in user mode \
                (--cpu-counters on). Where only other tools know, the command to ask is given.",
            unit: "percent, or a time with its unit.",
            limits: "The guides disagree, and a threshold met is no proof that nothing can be gained: the summary's findings \
                say what can. GPM's numbers are of the whole device and of all kernels, with multiprocessors that have nothing to do: a \
                kernel may do better, and Nsight Compute tells. Caches, and branches that were predicted, are in no counter here. Waits for the operating system are no \
                proof of a slow DataLoader.",
            source: "Each row names its own.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Gpu, Need::Launches, Need::Sites, Need::DeviceMemory, Need::Counters, Need::GpuClock, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("passed", Count, "thresholds of users' guides that are met"),
            Metric::cost("failed", Count, "thresholds of users' guides that are not met").unsteady(),
            Metric::about("not_measured", Count, "thresholds of users' guides that this trace cannot measure"),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        const COLUMNS: [Column; 6] = [
            column("what", "What", Unit::Text),
            column("target", "Target", Unit::Text),
            column("result", "Result", Unit::Text),
            column("measured", "Measured", Unit::Text),
            column("source", "Source", Unit::Text),
            column("ask", "Ask", Unit::Text),
        ];
        let mut section = Section::default();
        let metal = facts.is_metal_only();
        let mut counts = [0u64; 3];
        let mut rows: Vec<Vec<Value>> = Vec::new();
        for target in TARGETS {
            let measured = target.measure.value(facts);
            let passed = measured.map(|value| target.limit.holds(value));
            let (count, result) = match passed {
                Some(true) => (0, "pass"),
                Some(false) => (1, "fail"),
                None => (2, "not measured"),
            };
            counts[count] += 1;
            let ask = match &target.measure {
                Counted(..) if measured.is_some() => None,
                Ask(ask) | Counted(_, ask) if ask.starts_with("ncu") && metal => Some(INSTRUMENTS),
                Ask(ask) | Counted(_, ask) => Some(*ask),
                Fact(..) | Of(..) => None,
            };
            rows.push(vec![
                target.what.into(),
                target.limit.text().into(),
                result.into(),
                measured.map(|value| target.limit.shown(value)).into(),
                target.source.into(),
                ask.into(),
            ]);
        }
        section.fact("passed", "pass", Unit::Count, counts[0]);
        section.fact("failed", "fail", Unit::Count, counts[1]);
        section.fact("not_measured", "not measured", Unit::Count, counts[2]);
        section.table(Table::new("targets", "Thresholds, and what this trace says", &COLUMNS, rows));
        super::unmatched::note_of_rest(&mut section, facts);
        let limits = loss::limits(facts.trace, &[TableId::Launches]);
        if !limits.is_empty() {
            section.note(format!("Old launches were removed to keep to {limits}: the numbers are of what is left."));
        }
        section
    }
}

impl Measure {
    fn value(&self, facts: &Facts<'_>) -> Option<f64> {
        match self {
            Measure::Fact(analysis, key) => {
                let analysis = ALL.iter().find(|known| known.name() == *analysis)?;
                let metric = analysis.metrics().iter().find(|metric| metric.key == *key);
                if metric.is_some_and(|metric| removed::why(facts, metric).is_some()) {
                    return None;
                }
                super::answer(*analysis, facts).number(key)
            }
            Measure::Of(of) | Measure::Counted(of, _) => of(facts),
            Measure::Ask(_) => None,
        }
    }
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            AtLeast(least) | Between(least, _) => value >= least,
            Below(limit) => value < limit,
            MorePercent(limit) | More(limit) => value > limit,
            AtMostNs(most) => value <= most,
            Limit::None => value == 0.0,
        }
    }

    fn text(self) -> String {
        match self {
            AtLeast(least) => format!(">= {least} %"),
            Below(limit) => format!("< {limit} %"),
            AtMostNs(most) => format!("<= {}", duration(most)),
            Between(least, most) => format!("{least}-{most} %"),
            MorePercent(limit) => format!("> {limit} %"),
            More(limit) => format!("> {limit}"),
            Limit::None => "none".to_owned(),
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            AtLeast(_) | Below(_) | Between(..) | MorePercent(_) => share(value / 100.0),
            AtMostNs(_) => duration(value),
            More(_) => format!("{value:.2}"),
            Limit::None => format!("{value}"),
        }
    }
}

/// Busy time of each GPU of the wall time in which any process that uses it ran: they share it, and it works for one or the other. Not of
/// ranges: work may outlast the one that launched it.
pub(super) fn launch_efficiency(facts: &Facts<'_>) -> Option<f64> {
    efficiency_of(facts, facts.gpu.iter().flat_map(|gpu| gpu.devices.iter()))
}

/// The same, where all of that work is in the trace.
fn efficiency_of_run(facts: &Facts<'_>) -> Option<f64> {
    launch_efficiency(facts).filter(|_| !loss::is_removed(facts.trace, &[TableId::DeviceCopies, TableId::Kernels]))
}

/// The same of some devices.
pub(super) fn efficiency_of<'d>(facts: &Facts<'_>, devices: impl Iterator<Item = &'d Device>) -> Option<f64> {
    let (busy, wall) = devices.fold((0.0, 0.0), |(busy, wall), device| {
        let mut users: Vec<i64> = device.in_steps.iter().map(|(process_id, _)| *process_id).collect();
        users.sort_unstable();
        (busy + device.busy().total_ns() as f64, wall + facts.wall_of_any_ns(&users, true))
    });
    (wall > 0.0 && !facts.filter.projects()).then(|| 100.0 * busy / wall)
}

/// Idle time of the GPUs / their operations, ns.
pub(super) fn average_gap_ns(facts: &Facts<'_>) -> Option<f64> {
    gap_of(facts.gpu.iter().flat_map(|gpu| gpu.devices.iter()))
}

/// The same of some devices.
pub(super) fn gap_of<'d>(devices: impl Iterator<Item = &'d Device>) -> Option<f64> {
    let (idle, count) = devices.fold((0.0, 0), |(idle, count), device| {
        let idle_ns = device.range_ns() - device.busy().total_ns();
        (idle + idle_ns as f64, count + device.operations.iter().sum::<u64>())
    });
    (count > 1).then(|| idle / count as f64)
}

fn longest_gap_ns(facts: &Facts<'_>) -> Option<f64> {
    let devices = facts.gpu.as_ref()?.devices.iter();
    devices.map(|device| device.longest.first().map_or(0.0, |gap| gap.ns as f64)).reduce(f64::max)
}

/// Waits of the loop's thread for the operating system, of a usual step.
fn input(facts: &Facts<'_>) -> Option<f64> {
    let of = |steps: &super::ProcessSteps| {
        let time = facts.host.processes.get(&steps.process_id).filter(|time| time.system_waits > 0)?;
        let whole = steps.middle_ns * steps.middle as f64;
        (whole > 0.0).then(|| 100.0 * time.system_ns().unwrap_or(0) as f64 / whole)
    };
    facts.steps.all.iter().filter_map(of).reduce(f64::max)
}

/// Communication with no computing beside it, of the GPU's time from its first operation to its last.
fn exposed(facts: &Facts<'_>) -> Option<f64> {
    let devices = facts.gpu.as_ref()?.devices.iter();
    let (exposed, range) = devices.fold((0.0, 0.0), |(exposed, range), device| {
        (exposed + device.busy().communication_ns as f64, range + device.range_ns() as f64)
    });
    (range > 0.0).then(|| 100.0 * exposed / range)
}

/// Kernels that only change layouts, of the time of all kernels.
fn layouts(facts: &Facts<'_>) -> Option<f64> {
    let (layouts, all_ns) = layout_ns(facts)?;
    Some(100.0 * layouts.iter().map(|(_, ns)| *ns as f64).sum::<f64>() / all_ns as f64)
}

fn occupancy(facts: &Facts<'_>) -> Option<f64> {
    bound::mean_percent(facts, "sm_occupancy")
}

fn memory(facts: &Facts<'_>) -> Option<f64> {
    bound::mean_percent(facts, "dram_bw_util")
}

fn tensor(facts: &Facts<'_>) -> Option<f64> {
    bound::mean_percent(facts, "any_tensor_util")
}

/// Of all processes whose cycles and instructions were counted.
fn instructions_per_cycle(facts: &Facts<'_>) -> Option<f64> {
    let both = |of: &OfSubject| Some((of.get("perf", "instructions")?.sum(), of.get("perf", "cycles")?.sum()));
    let (instructions, cycles) =
        facts.counters.all.values().filter_map(both).fold((0.0, 0.0), |all, of| (all.0 + of.0, all.1 + of.1));
    (cycles > 0.0).then(|| instructions / cycles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    fn results(section: &Section) -> Vec<(Value, Value)> {
        let table = section.tables.iter().find(|table| table.key == "targets").expect("targets");
        table.rows.iter().map(|row| (row[0].clone(), row[2].clone())).collect()
    }

    #[test]
    fn each_target_is_met_missed_or_said_to_be_unknown() {
        let section = TestTrace::rich().section(&Targets);
        let of = |what: &str| {
            let found = results(&section).into_iter().filter(|(name, _)| *name == what.into());
            found.map(|(_, result)| result).collect::<Vec<_>>()
        };
        assert_eq!(of("allocations in steady steps"), ["fail".into()]);
        assert_eq!(of("99th percentile of launch calls"), ["pass".into()]);
        assert_eq!(of("longest gap"), ["pass".into()]);
        assert_eq!(of("GPU utilisation"), vec![Value::from("fail"); 4]);
        assert_eq!(of("waits of the loop beside the GPU (input)"), ["fail".into()]);
        assert_eq!(of("occupancy"), vec![Value::from("not measured"); 2]);
        assert_eq!(section.get("not_measured"), &Value::Int(9));
    }

    #[test]
    fn what_counters_tell_is_measured_with_them() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000_000);
        for (second, occupancy) in [(1, 50.0), (2, 70.0)] {
            let device = [
                ("graphics_util", 90.0),
                ("sm_occupancy", occupancy),
                ("dram_bw_util", 85.0),
                ("any_tensor_util", 0.0),
            ];
            for (name, value) in device {
                trace.counter(second * 1_000_000_000, Err("GPU-1"), "gpm", name, value);
            }
            trace.counter(second * 1_000_000_000, Ok(1), "perf", "instructions", 5e9);
            trace.counter(second * 1_000_000_000, Ok(1), "perf", "cycles", 2e9);
        }
        // A reading in which nothing ran says nothing of what did.
        trace.counter(3_000_000_000, Err("GPU-1"), "gpm", "graphics_util", 0.0);
        trace.counter(3_000_000_000, Err("GPU-1"), "gpm", "sm_occupancy", 0.0);
        let section = trace.section(&Targets);
        let table = section.tables.iter().find(|table| table.key == "targets").expect("targets");
        let of = |what: &str, limit: &str| {
            let row = table.rows.iter().find(|row| row[0] == what.into() && row[1] == limit.into()).expect("a row");
            [2, 3, 5].map(|column| row[column].clone())
        };
        assert_eq!(of("occupancy", ">= 75 %"), ["fail".into(), "60 %".into(), Value::Missing]);
        assert_eq!(of("occupancy", "50-75 %"), ["pass".into(), "60 %".into(), Value::Missing]);
        assert_eq!(of("memory throughput, of peak", ">= 80 %"), ["pass".into(), "85 %".into(), Value::Missing]);
        assert_eq!(of("tensor cores used where they could be", "> 0 %"), ["fail".into(), "0 %".into(), Value::Missing]);
        assert_eq!(of("instructions per cycle, of the host", "> 2"), ["pass".into(), "2.50".into(), Value::Missing]);
    }

    #[test]
    fn processes_that_take_turns_at_a_gpu_use_it_no_more_than_one_that_works_all_the_time() {
        let mut trace = TestTrace::new();
        // One after the other: they began with the first one, and live for 1, 2, 3 and 4 ms.
        for n in 0..4 {
            let began = START + n * 1_000_000;
            trace.process(n + 1, 100 + n as i32, None, began + 1_000_000);
            let mut thread = trace.thread(n + 1, 11 + n as i32);
            thread.now = began + 1_000;
            thread.commit(&[("gemm", 100_000)], 1_000, 5_000, (began + 10_000, 250_000));
        }
        let of = |section: &Section, key: &str| section.get(key).clone();
        let baseline = trace.section(&super::super::metal_baseline::MetalBaseline);
        assert_eq!(of(&baseline, "efficiency_percent"), Value::Num(25.0));
        assert_eq!(of(&baseline, "total_ns"), Value::Num(4_000_000.0));
        let launches = trace.section(&super::super::launch_overhead::LaunchOverhead);
        assert_eq!(of(&launches, "efficiency_percent"), Value::Num(25.0));
        let targets = trace.section(&Targets);
        assert!(results(&targets).contains(&("launch efficiency: GPU busy / wall".into(), "fail".into())));
    }

    #[test]
    fn without_times_of_the_gpu_its_targets_are_not_measured() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        trace.thread(1, 11).launch("k", 90_000);
        let section = trace.section(&Targets);
        assert!(
            results(&section)
                .iter()
                .filter(|(name, _)| *name == "GPU utilisation".into())
                .all(|(_, r)| *r == "not measured".into())
        );
        assert_eq!(section.get("failed"), &Value::Int(1));
        assert!(section.cell("targets", 12, "ask") == &OCCUPANCY.into());
    }
}
