//! steps: how long they take, what each does, and which took too long and why.

use super::passes::period::Name;
use super::passes::stats::Stats;
use super::passes::step_sums::{Cause, Outlier, Tally};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, ProcessSteps};
use crate::trace::Site;

/// The analysis.
pub(crate) struct Steps;

/// Parts in which the times of the steps over a run are shown.
const CHUNKS: usize = 30;
/// A cause must explain so much of what an outlier took beyond the median.
const EXPLAINS: f64 = 0.5;

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
                its launches and waits (--explain summary). Warm-up are the steps before the first five of which four take \
                at most 1.3 times the median of the second half, or as long as nine of ten steps there; at most half of \
                all. p50, p90, p99 and all else are of the steady steps after them. Usual is the mean over steady steps \
                between the 40th and 60th percentile of duration; the spread (StdDev, Min, Med, Max) is over steady steps. \
                Outliers are steady steps of more than twice the median; the cause of one is what it spent most time in \
                beyond the usual step (waits, system waits, module loads, allocations, copies, launches, other driver \
                calls), where that is half of what it took beyond the median or more, with the line that most of that time \
                went to; else it is unknown: work of the host outside the driver, or its processor was another's.",
            unit: "ns in JSON; counts are calls per step. Times of a cause are over all threads, those of system waits of \
                the loop's thread.",
            limits: "GPU time per step is not among these numbers. Of more than 200,000 steps (shared by the processes of \
                the trace) every k-th is summed for the usual step and the spread; their durations are all there. The \
                longest 1,000 outliers are listed. A call belongs to the step in which it began. Lines are known for calls \
                of 20 us and more.",
            source: "metrics.md, Steps, ranks, communication; PyTorch's profiler (ProfilerStep).",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::StepSums]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("processes", Count, "processes in which steps were found"),
            Metric::about("steps", Count, "steady steps, over all processes"),
            Metric::about("warm_up", Count, "steps left out as warm-up, over all processes"),
            Metric::about("outliers", Count, "steady steps of more than twice the median"),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let all = &facts.steps.all;
        let sum = |of: fn(&ProcessSteps) -> usize| all.iter().map(of).sum::<usize>() as u64;
        section.fact("processes", "processes with steps", Unit::Count, all.len() as u64);
        section.fact("steps", "steady steps", Unit::Count, sum(|steps| steps.sorted_ns.len()));
        section.fact("warm_up", "warm-up steps, left out", Unit::Count, sum(|steps| steps.warm_up));
        section.fact("outliers", "outliers (> 2 x median)", Unit::Count, sum(ProcessSteps::outliers));
        if all.is_empty() {
            section.note(
                "No steps in this trace: no process names them, or repeats its calls ten times and more. Name a range of \
                 the loop step, or name one that there is with --step.",
            );
        }
        for steps in all.iter().filter(|steps| steps.warm_up > 0 && steps.warm_up >= steps.sorted_ns.len()) {
            section.note(format!(
                "The steps of {} never become even: half of them are left out as warm-up.",
                facts.label(steps.process_id)
            ));
        }
        section.table(by_process(facts));
        section.table(over_time(facts));
        section.table(counts(facts));
        section.table(times(facts));
        section.table(outliers(facts));
        section
    }
}

fn by_process(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 13] = [
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
    ];
    let row = |steps: &ProcessSteps| {
        let (found, name) = match steps.anchor {
            Name::Range(id) => ("range", id),
            Name::Wait(id) => ("wait", id),
            Name::Launch(id) => ("launch", id),
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
            facts.names.full(name).into(),
            steps.count.into(),
            steps.tid.to_string().into(),
        ]
    };
    Table::new("by_process", "By process", &COLUMNS, facts.steps.all.iter().map(row).collect())
}

fn over_time(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 3] = [
        column("process", "Process", Unit::Text),
        column("after_ns", "After", Unit::Ns),
        column("step_ns", "Step", Unit::Ns),
    ];
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for steps in &facts.steps.all {
        let each: Vec<(i64, i64)> = steps.each().collect();
        for chunk in each.chunks(each.len().div_ceil(CHUNKS).max(1)) {
            let mean = chunk.iter().map(|(_, ns)| *ns).sum::<i64>() as f64 / chunk.len() as f64;
            let end = chunk.last().map_or(0, |(start, ns)| start + ns);
            rows.push(vec![facts.label(steps.process_id).into(), (end - steps.first_ns()).into(), mean.into()]);
        }
    }
    let title = "Mean step over the run, warm-up too, in at most 30 parts of equally many steps";
    Table::new("over_time", title, &COLUMNS, rows)
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
            let lengths: Vec<i64> = steps.each().map(|(_, ns)| ns).collect();
            for (index, tally) in facts.step_sums.tallies(slot) {
                all.add(of(tally));
                if lengths.get(index).is_some_and(|ns| steps.is_usual(*ns)) {
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
        ("waits", &calls(Cause::Wait)),
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

/// The mean time by cause over the usual steps of a process.
fn usual_ns(facts: &Facts<'_>, slot: usize) -> [f64; 7] {
    let steps = &facts.steps.all[slot];
    let lengths: Vec<i64> = steps.each().map(|(_, ns)| ns).collect();
    let usual =
        facts.step_sums.tallies(slot).filter(|(index, _)| lengths.get(*index).is_some_and(|ns| steps.is_usual(*ns)));
    let (mut count, mut sums) = (0.0_f64, [0.0; 7]);
    for (_, tally) in usual {
        count += 1.0;
        sums.iter_mut().zip(tally.ns).for_each(|(sum, ns)| *sum += ns as f64);
    }
    sums.map(|sum| sum / count.max(1.0))
}

/// What a step had more of than the usual one: the cause, and how much more.
fn cause(outlier: &Outlier, usual_ns: &[f64; 7], beyond_ns: i64) -> Option<(Cause, &'static str, f64)> {
    let more = Cause::ALL.map(|(cause, name)| {
        let at = cause as usize;
        (cause, name, outlier.tally.ns[at] as f64 - usual_ns[at])
    });
    more.into_iter().max_by(|a, b| a.2.total_cmp(&b.2)).filter(|(.., ns)| *ns >= EXPLAINS * beyond_ns as f64)
}

fn outliers(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("step", "Step", Unit::Count),
        column("step_ns", "Took", Unit::Ns),
        column("beyond_ns", "Beyond median", Unit::Ns),
        column("cause", "Cause", Unit::Text),
        column("cause_percent", "Of beyond", Unit::Percent),
        column("site", "Line", Unit::Text),
        column("after_ns", "After", Unit::Ns),
        column("place", "File", Unit::Name),
    ];
    let usual: Vec<[f64; 7]> = (0..facts.steps.all.len()).map(|slot| usual_ns(facts, slot)).collect();
    let row = |outlier: &Outlier| -> Vec<Value> {
        let steps = &facts.steps.all[outlier.slot];
        let beyond = outlier.ns - steps.quantile_ns(0.5);
        let cause = cause(outlier, &usual[outlier.slot], beyond);
        let site = cause.and_then(|(cause, ..)| facts.stacks.get(outlier.site(cause)?));
        vec![
            facts.label(steps.process_id).into(),
            (outlier.index as u64).into(),
            outlier.ns.into(),
            beyond.into(),
            cause.map_or("unknown", |(_, name, _)| name).into(),
            cause.map_or(Value::Missing, |(.., ns)| percent(ns.min(beyond as f64), beyond as f64)),
            site.map(Site::short).into(),
            (outlier.start_ns - steps.first_ns()).into(),
            site.map(Site::place).into(),
        ]
    };
    let mut all: Vec<&Outlier> = facts.step_sums.outliers.iter().collect();
    all.sort_by_key(|o| std::cmp::Reverse(o.ns));
    let title = "Outliers, the longest first (After: since the first step)";
    Table::new("outliers", title, &COLUMNS, all.into_iter().map(row).collect())
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
        assert_eq!(row(1), [Value::Int(30), "unknown".into(), Value::Missing]);
        assert_eq!(row(2), [Value::Int(25), "module loads".into(), "train.py:212 save".into()]);
        assert_eq!(section.cell("outliers", 1, "beyond_ns"), &Value::Int(5_000_000));
    }

    #[test]
    fn a_trace_without_steps_says_how_to_get_them() {
        let section = TestTrace::new().section(&Steps);
        assert!(section.notes[0].contains("--step"), "{:?}", section.notes);
    }
}
