//! roofline: which class of the roofline each of the longest kernels is in, as far as no hardware counter is needed to know,
//! and the command that measures the rest.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_collectors::quote;

use super::occupancy::Launch;
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, bound, gpu};

/// The analysis.
pub(crate) struct Roofline;

/// Kernels that get a row.
const LISTED: usize = 20;
/// More of a kernel's time in grids that are too small makes that its class.
const MOST: f64 = 0.5;

impl Analysis for Roofline {
    fn name(&self) -> &'static str {
        "roofline"
    }

    fn title(&self) -> &'static str {
        "Roofline class"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "For each of the 20 kernels that take most time: too small, where more than half of its time goes to grids \
                with fewer blocks than the device has multiprocessors, so that neither its memory nor its arithmetic can be \
                the limit; communication, of NCCL; else not measured: whether memory or arithmetic bounds it is known to hardware counters alone, which no \
                trace holds. Where GPM was read, a table says of each device what bounds it as a whole (--explain counters). The command has Nsight Compute measure one launch of it, the one in the middle of the run.",
            unit: "percent of the time of all kernels; ns in JSON.",
            limits: "Nsight Compute picks kernels by the name of the function without namespace and template arguments, so that \
                other instances of a template may be counted and measured in its place. It runs the program again, slower, and needs \
                permission to read counters (NVreg_RestrictProfilingToAdminUsers). What GPUs had how many multiprocessors is known \
                where the manifest says it.",
            source: "Nsight Compute's guide: --set roofline, --kernel-name, --launch-skip.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Gpu, Need::Occupancy, Need::Counters]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::cost("too_small_percent", Percent, "time of kernels that are mostly too small for the GPU, of all"),
            Metric::about("not_measured_percent", Percent, "time of kernels whose class only counters know, of all"),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        (facts.gpu.is_some() || bound::is_known(facts)) && !facts.is_metal_only()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        const COLUMNS: [Column; 6] = [
            column("kernel", "Kernel", Unit::Name),
            column("total_ns", "Total", Unit::Ns),
            column("time_percent", "Time", Unit::Percent),
            column("class", "Class", Unit::Text),
            column("calls", "Calls", Unit::Count),
            column("ask", "Ask", Unit::Name),
        ];
        let mut section = Section::default();
        bound::add(&mut section, facts);
        let Some(gpu) = gpu::times(facts, &mut section) else { return section };
        // What NCCL's kernels do with few blocks is to move data, and to wait for other ranks.
        let moves: BTreeSet<i64> = gpu.communication().map(|(id, _)| id).collect();
        let mut sums: BTreeMap<i64, Sum> = BTreeMap::new();
        for (config, stats) in facts.occupancy.configs.iter() {
            let sum = sums.entry(config.name_id).or_default();
            let small =
                !moves.contains(&config.name_id) && Launch::of(&facts.occupancy, config).too_small() == Some(true);
            sum.calls += stats.count;
            sum.ns += stats.sum;
            sum.small_ns += if small { stats.sum } else { 0 };
        }
        let all: i64 = sums.values().map(|sum| sum.ns).sum();
        let small: i64 = sums.values().filter(|sum| sum.is_small()).map(|sum| sum.ns).sum();
        let moving: i64 = sums.iter().filter(|(id, _)| moves.contains(id)).map(|(_, sum)| sum.ns).sum();
        let mut sums: Vec<(i64, Sum)> = sums.into_iter().collect();
        sums.sort_by_key(|(id, sum)| (std::cmp::Reverse(sum.ns), *id));
        section.fact("too_small_percent", "too small", Unit::Percent, percent(small as f64, all as f64));
        section.fact(
            "not_measured_percent",
            "not measured",
            Unit::Percent,
            percent((all - small - moving) as f64, all as f64),
        );
        let command = command(facts);
        let rows = sums.iter().take(LISTED).map(|(id, sum)| {
            let name = facts.names.full(*id);
            let class = match () {
                () if moves.contains(id) => "communication",
                () if sum.is_small() => "too small",
                () => "not measured",
            };
            let ask = (class == "not measured").then(|| ask(&name, sum.calls, &command));
            vec![
                name.into(),
                sum.ns.into(),
                percent(sum.ns as f64, all as f64),
                class.into(),
                sum.calls.into(),
                ask.into(),
            ]
        });
        section.table(Table::new("kernels", "Kernels that take most time", &COLUMNS, rows.collect()));
        let first = sums.iter().find(|(id, sum)| !sum.is_small() && !moves.contains(id));
        if let Some((id, sum)) = first {
            section.note(format!("To measure the first: {}", ask(&facts.names.full(*id), sum.calls, &command)));
        }
        section
    }
}

/// One kernel in all its shapes.
#[derive(Debug, Default)]
struct Sum {
    calls: u64,
    ns: i64,
    small_ns: i64,
}

impl Sum {
    fn is_small(&self) -> bool {
        self.small_ns as f64 > MOST * self.ns as f64
    }
}

/// The program that was traced, as a shell takes it; imported traces do not know it.
fn command(facts: &Facts<'_>) -> String {
    let first = facts.trace.manifests().min_by_key(|manifest| manifest.started_ns);
    match first.map(|manifest| manifest.command.as_slice()) {
        Some([tool, import, ..]) if tool == "gputrace" && import == "import" => "COMMAND".to_owned(),
        Some(words) if !words.is_empty() => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
        _ => "COMMAND".to_owned(),
    }
}

/// The command that measures a launch of a kernel from the middle of the run.
fn ask(kernel: &str, calls: u64, command: &str) -> String {
    let name = quote(&format!("regex:^{}$", function(kernel)));
    format!("ncu --set roofline --kernel-name {name} --launch-skip {} --launch-count 1 {command}", calls / 2)
}

/// The function's own name: `void at::native::add<4, float>(int)` is `add`.
fn function(kernel: &str) -> String {
    let end = kernel.find(['<', '(']).unwrap_or(kernel.len());
    let name = kernel[..end].rsplit([':', ' ']).next().unwrap_or(kernel);
    name.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::Device;

    use super::super::section::Value;
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn a_kernel_too_small_for_its_gpu_is_told_and_the_others_have_their_command() {
        let section = |sm_count: i64| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 10_000_000);
            let about = trace.manifest.as_mut().expect("a manifest");
            about.command = vec!["python".to_owned(), "my train.py".to_owned()];
            about.devices = vec![Device { uuid: "GPU-1".into(), sm_count: Some(sm_count), ..Device::default() }];
            about.processes[0].devices = vec!["GPU-1".to_owned()];
            let mut thread = trace.thread(1, 11);
            // Grids of eight blocks.
            (0..10).for_each(|n| thread.ran("void ns::add<4, float>(int)", START + n * 10_000, 5_000, n));
            trace.section(&Roofline)
        };
        let cell = |section: &Section, column| section.cell("kernels", 0, column).clone();
        let small = section(132);
        assert_eq!([cell(&small, "class"), cell(&small, "ask")], ["too small".into(), Value::Missing]);
        assert_eq!(small.get("too_small_percent"), &Value::Num(100.0));
        let large = section(8);
        let ask =
            "ncu --set roofline --kernel-name 'regex:^add$' --launch-skip 5 --launch-count 1 python 'my train.py'";
        assert_eq!([cell(&large, "class"), cell(&large, "ask")], ["not measured".into(), ask.into()]);
        assert_eq!(large.notes, [format!("To measure the first: {ask}")]);
        assert_eq!(large.get("not_measured_percent"), &Value::Num(100.0));
    }

    #[test]
    fn a_kernel_of_nccl_is_communication_whatever_its_grid() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let about = trace.manifest.as_mut().expect("a manifest");
        about.devices = vec![Device { uuid: "GPU-1".into(), sm_count: Some(132), ..Device::default() }];
        about.processes[0].devices = vec!["GPU-1".to_owned()];
        let mut thread = trace.thread(1, 11);
        (0..10).for_each(|n| thread.ran("ncclDevKernel_AllReduce_Sum_f32_RING_LL", START + n * 10_000, 5_000, n));
        let section = trace.section(&Roofline);
        assert_eq!(section.cell("kernels", 0, "class"), &"communication".into());
        assert_eq!(section.get("too_small_percent"), &Value::Num(0.0));
        assert_eq!(section.get("not_measured_percent"), &Value::Num(0.0));
    }

    #[test]
    fn a_function_is_named_as_nsight_compute_names_it() {
        for (kernel, name) in [
            ("void at::native::add<4, ns::T<float>>(int, char*)", "add"),
            ("gemm_128x64", "gemm_128x64"),
            ("ns::run()", "run"),
            ("odd$name", "odd.name"),
        ] {
            assert_eq!(function(kernel), name);
        }
    }
}
