//! steps: how long they take, what each does, and which took too long and why.

use super::passes::period::Name;
use super::passes::stats::Stats;
use super::passes::step_sums::{Cause, Tally};
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need, ProcessSteps, loss, outliers};
use gputrace_collectors::schema::TableId;

/// The analysis.
pub(crate) struct Steps;

/// Parts in which the times of the steps over a run are shown.
const CHUNKS: usize = 30;

impl Analysis for Steps {
    fn name(&self) -> &'static str {
        "steps"
    }

    fn title(&self) -> &'static str {
        "Steps"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Steps are ranges that the program names (--explain ranges) or, where it names none, the period of \
                its launches and waits (--explain summary), or lie between calls that --step names (a kernel, a function). Warm-up are the steps before the first five of which four take \
                at most 1.3 times the median of the second half, or as long as nine of ten steps there; at most half of \
                all. p50, p90, p99 and all else are of the steady steps after them. Usual is the mean over steady steps \
                between the 40th and 60th percentile of duration; the spread (StdDev, Min, Med, Max) is over steady steps. \
                Outliers are steady steps of more than twice the median; the cause of one is what it spent most time in \
                beyond the usual step (waits, system waits, module loads, allocations, copies, launches, other driver \
                calls), where that is half of what it took beyond the median or more, with the line that most of that time \
                went to. Where that is waits or launches, or nothing, and kernels took so much more than in the other steps, it is more GPU \
                work, which the host waits for; where it is none of these, the host outside the driver (work of its own, or its processor \
                was another's), else it is unknown. On the GPU a \
                step lasts from the end of the last kernel that the step before launched to the end of its own last one. \
                Where that is longer than the host's step by 5 % and more in the median, the host runs ahead of the GPU: \
                then steps are the GPU's in every answer. A call belongs to the step whose launches it is among, what the GPU \
                does to the step of its own in which it began, and usual are all steady steps of at most 1.3 times the median, for \
                the host's wait for many of them is in one. Where steps longer than that come at even distances (a line \
                of log every so many steps), on the host or on the GPU, they and all shorter ones are usual if they take at most twice the \
                median, or come every eighth step or more often and ten times, or if the host hardly waits in short steps and the long ones \
                spend half of what they take beyond the median waiting for the GPU; others are outliers, told with their distance.",
            unit: "ns in JSON; counts are calls per step. Times of a cause are over all threads, those of system waits of \
                the loop's thread.",
            limits: "Whether the host runs ahead is looked at where its steps are uneven (mean and median differ by a fifth), or \
                kernels begin two steps after its last one, or of steps chosen with --steps, where the GPU ends the last of them two steps later; with --range steps are the host's. Of more than 200,000 steps (shared by the processes of \
                the trace) every k-th is summed for the usual step and the spread; their durations are all there. The \
                longest 1,000 outliers are listed. A step in which an imported clock jumped, or gputrace was killed, is in no number. Where launches were left out for --budget none marks steps: the \
                loop is found in what came before, and waits, copies, allocations or ranges mark it; where it has none of these \
                its steps are not known. A call belongs to the step in which it began. Lines are known for calls \
                of 20 us and more.",
            source: "PyTorch's profiler (ProfilerStep).",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::StepSums, Need::GpuSteps]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("processes", Count, "processes in which steps were found"),
            Metric::about("steps", Count, "steady steps, over all processes").sums(&[
                TableId::Launches,
                TableId::Ranges,
                TableId::Syncs,
            ]),
            Metric::about("warm_up", Count, "steps left out as warm-up, over all processes").sums(&[
                TableId::Launches,
                TableId::Ranges,
                TableId::Syncs,
            ]),
            Metric::about("outliers", Count, "steady steps of more than twice the median").sums(&[
                TableId::Launches,
                TableId::Ranges,
                TableId::Syncs,
            ]),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let all = &facts.steps.all;
        let sum = |of: fn(&ProcessSteps) -> usize| all.iter().map(of).sum::<usize>() as u64;
        // Where nobody knows the steps of a process there is no number of them, and least of all none.
        let unknown = loss::steps_unknown(facts);
        let known = |number: u64| unknown.is_none().then_some(number);
        section.fact("processes", "processes with steps", Unit::Count, known(all.len() as u64));
        section.fact("steps", "steady steps", Unit::Count, known(sum(|steps| steps.sorted_ns.len())));
        section.fact("warm_up", "warm-up steps, left out", Unit::Count, known(sum(|steps| steps.warm_up)));
        section.fact("outliers", "outliers (> 2 x median)", Unit::Count, known(sum(ProcessSteps::outliers)));
        if let Some(why) = &unknown {
            section.note(format!("{}.", why.replacen('s', "S", 1)));
        }
        if all.is_empty() && unknown.is_none() {
            section.note(
                "No steps in this trace: no process names them, or repeats its calls ten times and more. Name a range of \
                 the loop step, or name a range, kernel or function that there is with --step.",
            );
        }
        for steps in all.iter().filter(|steps| steps.warm_up > 0 && steps.warm_up >= steps.sorted_ns.len()) {
            section.note(format!(
                "The steps of {} never become even: half of them are left out as warm-up.",
                facts.label(steps.process_id)
            ));
        }
        section.table(by_process(facts));
        section.table(on_gpu(facts));
        section.table(over_time(facts));
        section.table(counts(facts));
        section.table(times(facts));
        section.table(outliers::table(facts));
        section
    }
}

fn by_process(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 14] = [
        column("process", "Process", Unit::Text),
        column("steps", "Steps", Unit::Count),
        column("p50_ns", "p50", Unit::Ns),
        column("p90_ns", "p90", Unit::Ns),
        column("p99_ns", "p99", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
        column("outliers", "Outliers", Unit::Count),
        column("warm_up", "Warm-up", Unit::Count),
        column("warm_up_ns", "It took", Unit::Ns),
        column("found", "Found by", Unit::Text),
        column("anchor", "Name", Unit::Name),
        column("anchors", "It occurs", Unit::Count),
        column("tid", "Thread", Unit::Text),
        column("clock", "Timed by", Unit::Text),
    ];
    let row = |steps: &ProcessSteps| {
        let found = match steps.anchor {
            Name::Range(_) => "range",
            Name::Wait(_) => "wait",
            Name::Launch(_) => "launch",
            Name::Call(_) => "call",
        };
        vec![
            facts.label(steps.process_id).into(),
            (steps.sorted_ns.len() as u64).into(),
            steps.quantile_ns(0.5).into(),
            steps.quantile_ns(0.9).into(),
            steps.quantile_ns(0.99).into(),
            steps.sorted_ns.last().copied().into(),
            (steps.outliers() as u64).into(),
            (steps.warm_up as u64).into(),
            steps.warm_up_ns().into(),
            found.into(),
            facts.names.full(steps.anchor.id()).into(),
            steps.count.into(),
            steps.tid.to_string().into(),
            steps.whose().into(),
        ]
    };
    Table::new("by_process", "By process", &COLUMNS, facts.steps.all.iter().map(row).collect())
}

fn on_gpu(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 8] = [
        column("process", "Process", Unit::Text),
        column("steps", "Steps", Unit::Count),
        column("p50_ns", "p50", Unit::Ns),
        column("p90_ns", "p90", Unit::Ns),
        column("p99_ns", "p99", Unit::Ns),
        column("span_p50_ns", "First to last kernel", Unit::Ns),
        column("host_p50_ns", "Host's p50", Unit::Ns),
        column("bound", "Bound by", Unit::Text),
    ];
    let row = |steps: &ProcessSteps| {
        let on_gpu = facts.gpu_steps.of(steps.process_id)?;
        Some(vec![
            facts.label(steps.process_id).into(),
            (on_gpu.sorted_ns.len() as u64).into(),
            on_gpu.quantile_ns(0.5).into(),
            on_gpu.quantile_ns(0.9).into(),
            on_gpu.quantile_ns(0.99).into(),
            on_gpu.span_ns().into(),
            steps.host_p50_ns().into(),
            steps.whose().into(),
        ])
    };
    let title = "On the GPU: from the end of a step's last kernel to that of the next one's";
    Table::new("on_gpu", title, &COLUMNS, facts.steps.all.iter().filter_map(row).collect())
}

fn over_time(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 3] = [
        column("process", "Process", Unit::Text),
        column("after_ns", "After", Unit::Ns),
        column("step_ns", "Step", Unit::Ns),
    ];
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for steps in &facts.steps.all {
        let counted = steps.each().enumerate().filter(|(step, _)| !steps.is_left_out(*step));
        let each: Vec<(i64, i64)> = counted.map(|(_, step)| step).collect();
        for chunk in each.chunks(each.len().div_ceil(CHUNKS).max(1)) {
            let mean = chunk.iter().map(|(_, ns)| *ns).sum::<i64>() as f64 / chunk.len() as f64;
            let end = chunk.last().map_or(0, |(start, ns)| start + ns);
            rows.push(vec![facts.label(steps.process_id).into(), (end - steps.first_ns()).into(), mean.into()]);
        }
    }
    let title = "Mean step over the run, warm-up too, in at most 30 parts of equally many steps";
    Table::new("over_time", title, &COLUMNS, rows)
}

/// Of each process its steps one by one, or where there are more than `most` in that many parts of equally many: when it ends, since the
/// first one began, how long it took, and the longest of the part.
pub(crate) fn one_by_one(facts: &Facts<'_>, most: usize) -> Vec<(String, Vec<[f64; 3]>)> {
    let part = |first_ns: i64, steps: &[(i64, i64)]| {
        let end = steps.last().map_or(first_ns, |(start, ns)| start + ns);
        let mean = steps.iter().map(|(_, ns)| *ns as f64).sum::<f64>() / steps.len() as f64;
        let longest = steps.iter().map(|(_, ns)| *ns).max().unwrap_or(0);
        [(end - first_ns) as f64, mean.round(), longest as f64]
    };
    let of = |steps: &ProcessSteps| {
        let each: Vec<(i64, i64)> = steps.each().collect();
        let chunks = each.chunks(each.len().div_ceil(most).max(1));
        (facts.label(steps.process_id), chunks.map(|chunk| part(steps.first_ns(), chunk)).collect())
    };
    facts.steps.all.iter().map(of).collect()
}

/// What is told of a step: its name, and how a tally has it.
type Quantity<'a> = (&'static str, &'a dyn Fn(&Tally) -> i64);

/// One row a process and quantity: the usual step, and the spread over the steady ones.
fn spread(facts: &Facts<'_>, unit: Unit, quantities: &[Quantity<'_>]) -> (Vec<Column>, Vec<Vec<Value>>) {
    let columns = vec![
        column("process", "Process", Unit::Text),
        column("quantity", "Per step", Unit::Text),
        column("usual", "Usual", unit),
        column("stddev", "StdDev", unit),
        column("min", "Min", unit),
        column("med", "Med", unit),
        column("max", "Max", unit),
    ];
    let mut rows = Vec::new();
    for (slot, steps) in facts.steps.all.iter().enumerate() {
        for (name, of) in quantities {
            let (mut all, mut usual) = (Stats::default(), Stats::default());
            for (index, tally) in facts.step_sums.tallies(slot) {
                all.add(of(tally));
                if steps.is_middle(index) {
                    usual.add(of(tally));
                }
            }
            if all.max > 0 {
                let mean = if usual.count > 0 { Value::from(usual.mean()) } else { Value::Missing };
                let label: Value = facts.label(steps.process_id).into();
                let spread = [all.min.into(), all.median().into(), all.max.into()];
                rows.push([label, (*name).into(), mean, all.deviation().into()].into_iter().chain(spread).collect());
            }
        }
    }
    (columns, rows)
}

fn counts(facts: &Facts<'_>) -> Table {
    let calls = |cause: Cause| move |tally: &Tally| i64::from(tally.calls[cause as usize]);
    let quantities: [Quantity<'_>; 8] = [
        ("launches", &calls(Cause::Launch)),
        ("kernels", &|tally| i64::from(tally.kernels)),
        ("waits", &|tally| i64::from(tally.waits())),
        ("copies and sets", &calls(Cause::Copy)),
        ("bytes copied and set", &|tally| tally.bytes),
        ("allocations", &calls(Cause::Memory)),
        ("module loads", &calls(Cause::Load)),
        ("system waits", &calls(Cause::System)),
    ];
    let (columns, rows) = spread(facts, Unit::Count, &quantities);
    Table::new("counts", "What a step does", &columns, rows)
}

fn times(facts: &Facts<'_>) -> Table {
    let spent = |cause: Cause| move |tally: &Tally| tally.ns[cause as usize];
    let times = Cause::ALL.map(|(cause, name)| (name, spent(cause)));
    let quantities: Vec<Quantity<'_>> = times.iter().map(|(name, of)| (*name, of as &dyn Fn(&Tally) -> i64)).collect();
    let (columns, rows) = spread(facts, Unit::Ns, &quantities);
    Table::new("times", "Where a step's time goes, over all threads", &columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    /// Forty steps of a millisecond; `odd` is done in step 20 and 30.
    fn trace(odd: impl Fn(&mut crate::trace::testing::Thread<'_>, usize)) -> Section {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 200_000_000);
        let line = trace.stack("save", "/home/u/train.py", 212);
        let mut thread = trace.thread(1, 11);
        for n in 0..40 {
            let began = thread.range_begin();
            (0..3).for_each(|_| thread.launch("k", 2_000));
            thread.copy("HtoD", ("pinned", "device"), true, 4096, 4_000);
            thread.stack = Some((line, 0));
            odd(&mut thread, n);
            thread.stack = None;
            thread.sync("cuStreamSynchronize", "stream", 90_000);
            thread.host(900_000);
            thread.range_end(None, "step", began, true);
        }
        trace.section(&Steps)
    }

    #[test]
    fn the_usual_step_and_its_spread_are_told() {
        let section = trace(|_, _| {});
        assert_eq!((section.get("steps"), section.get("warm_up")), (&Value::Int(40), &Value::Int(0)));
        let cell = |column: &str| section.cell("by_process", 0, column).clone();
        assert_eq!([cell("p50_ns"), cell("p99_ns"), cell("outliers")], [1_000_000, 1_000_000, 0].map(Value::Int));
        assert_eq!((cell("found"), cell("anchor")), ("range".into(), "step".into()));
        let row = |row: usize| ["quantity", "usual", "max"].map(|column| section.cell("counts", row, column).clone());
        assert_eq!(row(0), ["launches".into(), Value::Num(3.0), Value::Int(3)]);
        assert_eq!(row(4), ["bytes copied and set".into(), Value::Num(4096.0), Value::Int(4096)]);
        assert_eq!(section.cell("times", 0, "usual"), &Value::Num(90_000.0));
        assert!(section.tables.iter().all(|table| table.key != "outliers"));
        let series = section.tables.iter().find(|table| table.key == "over_time").expect("a series");
        assert_eq!((series.rows.len(), &series.rows[0][1]), (20, &Value::Int(2_000_000)));
    }

    #[test]
    fn an_outlier_is_told_by_what_it_had_more_of_and_by_the_line_of_that() {
        let section = trace(|thread, step| match step {
            20 => thread.copy("DtoH", ("device", "pageable"), false, 4, 9_000_000),
            25 => thread.other("cuModuleLoadData", "module", 2_000_000),
            30 => thread.host(5_000_000),
            _ => {}
        });
        let row = |row: usize| ["step", "cause", "site"].map(|column| section.cell("outliers", row, column).clone());
        assert_eq!(row(0), [Value::Int(20), "waits".into(), "train.py:212 save".into()]);
        assert_eq!(row(1), [Value::Int(30), "host outside the driver".into(), Value::Missing]);
        assert_eq!(row(2), [Value::Int(25), "module loads".into(), "train.py:212 save".into()]);
        assert_eq!(section.cell("outliers", 1, "beyond_ns"), &Value::Int(5_000_000));
    }

    #[test]
    fn more_work_of_the_gpu_than_usual_is_the_cause_and_not_the_wait_for_it() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 200_000_000);
        let line = trace.stack("validate", "/home/u/train.py", 90);
        let mut thread = trace.thread(1, 11);
        thread.stack = Some((line, 0));
        for n in 0..40 {
            let began = thread.range_begin();
            let ns = if n == 20 { 5_000_000 } else { 800_000 };
            let end = thread.launch_running("gemm", 5_000, 7, (thread.now + 6_000, ns));
            // The GPU's work of this step is the usual one: the host waits for nothing but the system's clock.
            let waits = if n == 30 { 4_000_000 } else { 0 };
            thread.sync("cuStreamSynchronize", "stream", end + 5_000 + waits - thread.now);
            thread.range_end(None, "step", began, true);
        }
        let section = trace.section(&Steps);
        let row = |row: usize| ["step", "cause", "site"].map(|column| section.cell("outliers", row, column).clone());
        assert_eq!(row(0), [Value::Int(20), "more GPU work".into(), "train.py:90 validate".into()]);
        assert_eq!(row(1), [Value::Int(30), "waits".into(), "train.py:90 validate".into()]);
    }

    /// Sixty steps of 30 us on the host and 900 us on the GPU; the host waits after every `wait`th.
    fn ahead(wait: usize) -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 200_000_000);
        let mut thread = trace.thread(1, 11);
        let mut end = START + 20_000;
        for n in 0..60 {
            let began = thread.range_begin();
            for _ in 0..3 {
                end = thread.launch_running("gemm", 5_000, 7, (end.max(thread.now + 6_000), 300_000));
                thread.host(5_000);
            }
            if n % wait == wait - 1 {
                thread.sync("cuStreamSynchronize", "stream", end - thread.now);
            }
            thread.range_end(None, "step", began, true);
        }
        trace
    }

    #[test]
    fn where_the_host_runs_ahead_every_number_is_of_the_gpus_steps() {
        for wait in [10, 60, 1_000] {
            let trace = ahead(wait);
            let summary = trace.section(crate::analysis::ALL[0]);
            let number = |key: &str| match summary.get(key) {
                Value::Int(n) => *n as f64,
                Value::Num(n) => *n,
                other => panic!("{key}: {other:?}"),
            };
            let steps = if wait == 10 { 900_000.0 + 5.0 * 6_000.0 / 60.0 } else { 900_000.0 };
            let near = |key: &str, expected: f64| {
                assert!((number(key) - expected).abs() < 1e-6 * expected.max(1.0), "{wait}: {key} {}", number(key));
            };
            near("unit_ns", steps);
            near("launches", 3.0);
            near("launch_ns", 15_000.0);
            near("gpu_operations", 3.0);
            near("gpu_busy_ns", 900_000.0);
            near("gpu_idle_ns", steps - 900_000.0);
            near("outside_driver_ns", 15_000.0);
            assert_eq!(summary.get("verdict"), &"HEALTHY".into());
            let path = trace.section(*crate::analysis::ALL.iter().find(|a| a.name() == "critical-path").expect("it"));
            assert_eq!(path.get("step_ns"), &Value::Num(steps), "{wait}");
            assert!(matches!(path.get("gpu_percent"), Value::Num(share) if *share > 99.0), "{path:?}");
        }
    }

    #[test]
    fn where_the_host_runs_ahead_the_gpus_steps_are_told_beside_its_own() {
        let trace = ahead(10);
        let section = trace.section(&Steps);
        let cell = |column: &str| section.cell("on_gpu", 0, column).clone();
        assert_eq!([cell("p50_ns"), cell("host_p50_ns")], [900_000, 30_000].map(Value::Int));
        assert_eq!((cell("bound"), cell("span_p50_ns")), ("GPU".into(), Value::Int(900_000)));
        let summary = trace.section(crate::analysis::ALL[0]);
        assert_eq!(summary.get("step_p50_ns"), &Value::Int(900_000));
        assert_eq!((summary.get("step_host_p50_ns"), summary.get("step_bound")), (&Value::Int(30_000), &"GPU".into()));
        let text = summary.literal.unwrap_or_default();
        let line = "\nstep of the GPU  p50 900.0 us  p99 9";
        assert!(
            text.contains(line) && text.contains("\n  the host runs ahead: its own p50 is 30.0; below: means\n"),
            "{text}"
        );
    }

    #[test]
    fn a_trace_without_steps_says_how_to_get_them() {
        let section = TestTrace::new().section(&Steps);
        assert!(section.notes[0].contains("--step"), "{:?}", section.notes);
    }
}
