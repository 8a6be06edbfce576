//! Which part of a trace a command is about: from options to a filter.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::select_device;
use crate::analysis::{Facts, folded_name};
use crate::cli::Select;
use crate::launch::exit::{Failure, USAGE};
use crate::render::duration;
use crate::trace::{Filter, NO_NAME, Spans, Trace, Want};

/// The rows that the user asked for.
pub(crate) fn filter(select: &Select, trace: &Trace) -> Result<Filter> {
    let at = |after: Option<Duration>| {
        after.map(|d| trace.began_ns().saturating_add(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
    };
    let step = select.step_name().cloned();
    let all = Filter { step, ..span(select, trace, at(select.from), at(select.to))? };
    if let (Some(from), Some(to)) = (select.from, select.to)
        && from >= to
    {
        return Err(wrong("--from must be less than --to"));
    }
    if let (Some(from), Some(from_ns), Some(ended)) = (select.from, all.from_ns, trace.ended_ns())
        && from_ns >= ended
    {
        let length = duration(ended.saturating_sub(trace.began_ns()).max(0) as f64);
        return Err(wrong(format!("--from {} lies beyond the trace, which is {length} long", from.as_secs_f64())));
    }
    let mut filter = all.only(&trace.processes, &select.pid, &select.rank);
    if filter.processes.as_ref().is_some_and(|kept| kept.is_empty()) {
        let mut known: Vec<String> = trace.processes.iter().filter(|p| p.summed == 0).map(|p| p.label()).collect();
        known.dedup();
        known.truncate(20);
        let known = known.join(", ");
        return Err(wrong(format!("no process of the trace has that rank and pid; there are {known}")));
    }
    if let Some(wanted) = &select.device {
        select_device::keep(trace, &mut filter, wanted)?;
    }
    let mut within = Vec::new();
    if let Some((first, last)) = select.kept_steps() {
        within.push(Arc::new(steps(trace, &filter, first, last)?));
    }
    if let Some(name) = &select.range {
        within.push(Arc::new(ranges(trace, &filter, name)?));
    }
    filter.within = within;
    filter.steps = select.kept_steps();
    Ok(filter)
}

/// The span of time: the user's, or an interval of which there are single events.
fn span(select: &Select, trace: &Trace, from_ns: Option<i64>, to_ns: Option<i64>) -> Result<Filter> {
    if from_ns.is_some() || to_ns.is_some() {
        return Ok(Filter { from_ns, to_ns, ..Filter::whole(trace) });
    }
    let Some(number) = select.interval else { return Ok(Filter::of(trace)) };
    match trace.intervals() {
        None => {
            Err(wrong("--interval: the trace has all single events, and no intervals; --from and --to choose a span"))
        }
        Some(all) if number as usize > all.len() => {
            Err(wrong(format!("--interval {number}: the trace has {} intervals of single events", all.len())))
        }
        Some(_) => Ok(Filter::whole(trace).in_interval(trace, number as usize - 1)),
    }
}

/// The time of these steps, in each process that has them in the span of time that is kept. They are counted from the begin of
/// the run.
fn steps(trace: &Trace, filter: &Filter, first: usize, last: usize) -> Result<Spans> {
    let around = Filter { steps: Some((first, last)), ..filter.around_steps() };
    let facts = Facts::gather(trace, &around, &[]);
    let mut spans = Spans::default();
    for steps in &facts.steps.all {
        let kept = steps.between(0, last).is_some_and(|(from, to)| filter.may_keep(from, to - 1));
        if let Some([calls, work]) = steps.both_between(0, last).filter(|_| kept) {
            spans.add(steps.process_id, None, calls);
            spans.add_work(steps.process_id, work);
        }
    }
    if spans.is_empty() {
        let whole = Filter { steps: None, ..around };
        let facts = Facts::gather(trace, &whole, &[]);
        let most = facts.steps.all.iter().map(|steps| steps.count).max();
        let beside = if filter.is_window() { ", of the whole run, and of these some in that span" } else { "" };
        let there =
            most.map_or("the trace has none".to_owned(), |most| format!("there are {most}, counted from 0{beside}"));
        return Err(wrong(format!("no step lies in {first}..{last}: {there}")));
    }
    Ok(spans.ordered())
}

/// The time inside ranges of this name, or whose numbers are the stars of this name, as `--only ranges` lists them, by thread, and the calls in there that cause what the GPU does.
fn ranges(trace: &Trace, filter: &Filter, name: &str) -> Result<Spans> {
    let (mut ids, mut folded) = (FxHashSet::default(), FxHashSet::default());
    let is_folded = |text: &str| [false, true].iter().any(|anywhere| folded_name(text, *anywhere) == name);
    let names = [Want { table: TableId::Names, columns: &["name_id", "kind", "name"] }];
    trace.scan(&names, filter, &mut |rows| {
        let (id, kind, text) = (rows.i64("name_id"), rows.texts("kind"), rows.texts("name"));
        let all = || (0..rows.len).filter(|row| kind.get(*row) == "range");
        ids.extend(all().filter(|row| text.get(*row) == name).map(|row| id[row]));
        if name.contains('*') {
            folded.extend(all().filter(|row| is_folded(text.get(*row))).map(|row| id[row]));
        }
    });
    let ids = if ids.is_empty() { folded } else { ids };
    let mut spans = Spans::default();
    let wanted = [Want { table: TableId::Ranges, columns: &["tid", "end_ns", "name_id"] }];
    trace.scan(&wanted, filter, &mut |rows| {
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (start, id) = (rows.i64("start_ns"), rows.i64_or("name_id", NO_NAME));
        // One that is open to the end holds all that comes after it.
        let end = rows.i64_or("end_ns", i64::MAX);
        for row in (0..rows.len).filter(|row| ids.contains(&id[*row]) && start[*row] < end[*row]) {
            spans.add(process[row], Some(tid[row]), (start[row], end[row]));
        }
    });
    if spans.is_empty() {
        return Err(wrong(format!(
            "--range {name}: no range of that name; report --only ranges lists those that there are"
        )));
    }
    let spans = spans.ordered();
    if trace.has_gpu_times() { Ok(projected(trace, filter, spans)) } else { Ok(spans) }
}

/// The same with the calls inside: work of the GPU belongs to the range in which it was launched.
fn projected(trace: &Trace, filter: &Filter, mut spans: Spans) -> Spans {
    const CALL: &[&str] = &["correlation_id"];
    let inside = Filter { within: vec![Arc::new(spans.clone())], ..filter.clone() };
    let wanted = [TableId::Launches, TableId::Transfers].map(|table| Want { table, columns: CALL });
    spans.project();
    trace.scan(&wanted, &inside, &mut |rows| {
        let (process, call) = (rows.i64("process_id"), rows.i64("correlation_id"));
        (0..rows.len).for_each(|row| spans.add_call(process[row], call[row]));
    });
    spans.ordered()
}

/// Says on stderr which interval of a trace a command is about, where its output does not.
pub(crate) fn tell(trace: &Trace, filter: &Filter) {
    if let Some(about) = trace.about_intervals(filter) {
        let folder = trace.folders.first().map(|folder| folder.display().to_string()).unwrap_or_default();
        crate::note(&format!("{folder}: {about}"));
    }
}

/// Fails when what the user calls steps is not in the trace.
pub(crate) fn found(select: &Select, facts: &Facts<'_>) -> Result<()> {
    match select.step_name() {
        Some(name) if !facts.steps.any_named() => {
            let problem = "no process has five ranges, kernels or calls of that name";
            let lists = "report --only ranges,kernels,api lists the names that there are";
            Err(wrong(format!("--step {name}: {problem}; {lists}")))
        }
        _ => Ok(()),
    }
}

/// The user's mistake, not the trace's.
pub(crate) fn wrong(message: impl Into<String>) -> anyhow::Error {
    Failure::error(USAGE, message)
}

#[cfg(test)]
mod parts;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{ALL, Need, Table, Unit, Value};
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn work_of_the_gpu_belongs_to_the_range_that_launched_it() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 10_000_000);
        let mut thread = made.thread(1, 11);
        thread.launch_running("before", 1_000, 7, (START + 5_000, 20_000));
        let range = thread.range_begin();
        thread.launch_running("inside", 1_000, 7, (START + 5_000_000, 30_000));
        thread.copy_running("HtoD", 4096, 1_000, (START + 5_100_000, 40_000));
        thread.host(50_000);
        thread.range_end(None, "forward", range, true);
        let trace = made.open();
        let select = Select { range: Some("forward".to_owned()), ..Select::default() };
        let filter = filter(&select, &trace).expect("a range of that name");
        let facts = Facts::gather(&trace, &filter, &[Need::Gpu]);
        let gpu = facts.gpu.as_ref().expect("times of a GPU");
        let kernels: Vec<i64> = gpu.executions.kernels.iter().map(|(_, stats)| stats.sum).collect();
        assert_eq!(kernels, [30_000], "the kernel that ran meanwhile was launched before");
        assert_eq!(gpu.copies.sums.iter().map(|(_, sum)| sum.time.sum).sum::<i64>(), 40_000);
        assert_eq!((gpu.without_call, facts.wall_ns(1)), (0, 52_000.0));
    }

    #[test]
    fn steps_have_the_numbers_of_the_whole_run_whatever_span_is_kept() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 100_000_000);
        let mut thread = made.thread(1, 11);
        for step in 0..40 {
            let range = thread.range_begin();
            thread.launch(&format!("k{step}"), 1_000);
            thread.host(999_000);
            thread.range_end(None, "step", range, true);
        }
        let trace = made.open();
        // From the middle of step 24 on.
        let from = Some(Duration::from_nanos(24_500_000 + (START - trace.began_ns()).unsigned_abs()));
        let kept = |select: Select| {
            let filter = filter(&select, &trace).map_err(|error| error.to_string())?;
            let facts = Facts::gather(&trace, &filter, &[Need::Launches, Need::StepSums]);
            let names = facts.launches.kernels.iter().map(|((_, name), _)| facts.names.full(*name)).collect::<Vec<_>>();
            Ok::<_, String>((facts.steps.all.iter().map(|steps| steps.count).sum::<u64>(), names))
        };
        let select = |from, steps| Select { from, steps: Some(steps), ..Select::default() };
        let two = (2, vec!["k30".to_owned(), "k31".to_owned()]);
        assert_eq!(kept(select(None, (30, 31))), Ok(two.clone()));
        assert_eq!(kept(select(from, (30, 31))), Ok(two));
        let none = kept(select(from, (3, 4))).unwrap_err();
        assert!(none.contains("no step lies in 3..4: there are 40, counted from 0, of the whole run"), "{none}");
    }

    #[test]
    fn what_lies_outside_of_a_range_is_no_idle_time_and_no_time_of_the_host() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 100_000_000);
        let mut thread = made.thread(1, 11);
        for _ in 0..20 {
            // The GPU is busy with other work for 20 us of the range, idle for 80, then busy for 100 until the wait ends.
            let range = thread.range_begin();
            let begin = thread.now;
            thread.host(90_000);
            thread.launch_running("inside", 5_000, 7, (begin + 100_000, 100_000));
            thread.sync("cuStreamSynchronize", "stream", begin + 205_000 - thread.now);
            thread.host(95_000);
            thread.range_end(None, "forward", range, true);
            // 300 us of a step of 1 ms; the GPU idles for most of the rest, which is nobody's time here.
            thread.host(600_000);
            let end = thread.now;
            thread.launch_running("outside", 5_000, 7, (end + 100_000 - 5_000, 25_000));
            thread.host(end + 100_000 - thread.now);
        }
        let trace = made.open();
        let select = Select { range: Some("forward".to_owned()), ..Select::default() };
        let filter = filter(&select, &trace).expect("a range of that name");
        for needs in [&[Need::Gpu][..], &[Need::Busy]] {
            let facts = Facts::gather(&trace, &filter, needs);
            let gpu = facts.gpu.as_ref().expect("times of a GPU");
            let device = gpu.devices.iter().next().expect("a device");
            // In each range 100 us of work and 180 us without any; in the first one nothing was known before its work.
            let (busy, idle) = (20 * 100_000, 20 * 180_000 - 80_000);
            assert_eq!((device.busy().total_ns(), device.idle_ns(), device.range_ns()), (busy, idle, busy + idle));
            let steps = facts.steps.all.first().expect("steps");
            let ns = (steps.middle_ns - 300_000.0).abs();
            assert!(ns <= 5_000.0, "{}", steps.middle_ns);
            assert!(gpu.devices.gaps.iter().all(|(_, gaps)| gaps.max_ns <= 100_000));
        }
    }

    #[test]
    fn work_that_outlasts_its_range_is_no_share_of_the_ranges_time() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 100_000_000);
        let mut thread = made.thread(1, 11);
        let mut free = thread.now;
        for _ in 0..20 {
            // The range is over after 12 us, and what it launched runs for 400.
            let range = thread.range_begin();
            let begin = free.max(thread.now + 6_000);
            free = thread.launch_running("k", 5_000, 7, (begin, 400_000));
            thread.host(5_000);
            thread.range_end(None, "forward", range, true);
            thread.host(500_000);
        }
        let trace = made.open();
        let select = Select { range: Some("forward".to_owned()), ..Select::default() };
        let filter = filter(&select, &trace).expect("a range of that name");
        let needs: Vec<Need> = ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect();
        let facts = Facts::gather(&trace, &filter, &needs);
        let is_share = |unit: Unit| unit == Unit::Percent;
        let mut beyond = Vec::new();
        for analysis in ALL {
            let section = analysis.section(&facts);
            let stated = section.facts.iter().filter(|fact| is_share(fact.unit)).map(|fact| (fact.key, &fact.value));
            let columns = |table: &Table| table.columns.clone().into_iter().enumerate();
            let cells = section.tables.iter().flat_map(|table| {
                let shares = columns(table).filter(|(_, column)| is_share(column.unit));
                shares.flat_map(|(at, column)| table.rows.iter().map(move |row| (column.key, &row[at])))
            });
            let more = stated.chain(cells).filter(|(_, value)| matches!(value, Value::Num(share) if *share > 100.0));
            beyond.extend(more.map(|(key, value)| format!("{} {key} {value:?}", analysis.name())));
        }
        assert_eq!(beyond, Vec::<String>::new());
    }

    /// The facts that are reported of what was chosen, and the summary.
    fn summary(trace: &Trace, select: &Select) -> crate::analysis::Section {
        let filter = filter(select, trace).expect("some of the trace");
        let facts = Facts::gather(trace, &filter, ALL[0].needs());
        ALL[0].section(&facts)
    }

    #[test]
    fn a_span_has_the_steps_of_the_run_that_lie_wholly_in_it() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 1_000_000_000);
        let mut thread = made.thread(1, 11);
        for _ in 0..60 {
            (0..12).for_each(|_| {
                (0..4).for_each(|k| thread.launch(&format!("layer {k}"), 10_000));
                thread.host(40_000);
            });
            (0..6).for_each(|k| thread.launch(&format!("optimizer {k}"), 10_000));
            thread.host(60_000);
            thread.sync("cuStreamSynchronize", "stream", 40_000);
        }
        let trace = made.open();
        let before = (START - trace.began_ns()).unsigned_abs();
        let at = |us: u64| Some(Duration::from_nanos(before + us * 1_000));
        let of = |from, to| {
            let section = summary(&trace, &Select { from, to, ..Select::default() });
            let key = |key: &str| section.facts.iter().find(|fact| fact.key == key).map(|fact| fact.value.clone());
            (["steps", "cut_steps", "step_p50_ns", "unit_ns", "launches"].map(key), section.literal.unwrap_or_default())
        };
        let (run, _) = of(None, None);
        assert_eq!(
            run[1..],
            [Some(Value::Missing), Some(Value::Int(1_120_000)), Some(Value::Num(1_120_000.0)), Some(Value::Num(54.0))]
        );
        // Three steps and two halves: too few to be found by themselves.
        let (span, text) = of(at(20 * 1_120 - 500), at(23 * 1_120 + 700));
        assert_eq!(span[..2], [Some(Value::Int(3)), Some(Value::Int(2))], "{text}");
        assert_eq!(span[2..], run[2..], "{text}");
        assert!(text.contains("step (2 cut by the span's ends left out)  p50 1.12 ms"), "{text}");
        let (_, text) = of(at(20 * 1_120 + 100), at(20 * 1_120 + 900));
        assert!(text.contains("\nno whole step lies in that span: times are of the span"), "{text}");
    }

    #[test]
    fn of_ranges_the_summary_has_the_runs_steps_and_no_more_than_all_of_their_time() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 100_000_000);
        let mut thread = made.thread(1, 11);
        let mut free = thread.now;
        for step in 0..40 {
            // A step of 1 ms, whose range is over after 20 us and launches 450 us of work.
            let (begin, range) = (thread.now, thread.range_begin());
            for _ in 0..3 {
                free = thread.launch_running("k", 5_000, 7, (free.max(thread.now + 6_000), 150_000));
            }
            thread.host(5_000);
            thread.range_end(None, "forward", range, true);
            thread.launch_running("other", 5_000, 7, (free, 100_000));
            free += 100_000;
            if step % 10 == 5 {
                let range = thread.range_begin();
                for _ in 0..4 {
                    free = thread.launch_running("log", 10_000, 7, (free, 1_000));
                }
                thread.host(260_000);
                thread.range_end(None, "log", range, true);
            }
            let end = begin + 1_000_000 + if step % 10 == 5 { 4_000_000 } else { 0 };
            thread.sync("cuStreamSynchronize", "stream", end - thread.now);
        }
        let trace = made.open();
        let of = |range: Option<&str>| {
            let section = summary(&trace, &Select { range: range.map(str::to_owned), ..Select::default() });
            let number = |key: &str| match section.get(key) {
                Value::Int(number) => *number as f64,
                Value::Num(number) => *number,
                other => panic!("{key}: {other:?}"),
            };
            let keys = ["steps", "step_p50_ns", "unit_ns", "unit_host_ns", "gpu_busy_ns", "gpu_idle_ns"];
            (keys.map(number), section.literal.unwrap_or_default())
        };
        let ([steps, p50, ..], _) = of(None);
        let ([own_steps, own_p50, unit, host, busy, idle], text) = of(Some("forward"));
        assert_eq!((own_steps, own_p50), (steps, p50), "{text}");
        assert_eq!((host, busy), (20_000.0, 450_000.0), "{text}");
        assert!(unit >= busy + idle && unit <= 480_000.0, "{unit} {idle} {text}");
        assert!(text.contains("inside the range 0.02 of the host, 0.4"), "{text}");
        assert!(!text.contains(" 100 %") && text.contains(" GPU   busy 0.45 (9"), "{text}");
        // Ranges of unusual steps alone.
        let (.., text) = {
            let select = Select { range: Some("log".to_owned()), ..Select::default() };
            ((), summary(&trace, &select).literal.unwrap_or_default())
        };
        assert!(text.contains("\nthe ranges lie in no usual step: times are of all of them, 1.20 ms\n"), "{text}");
    }

    #[test]
    fn a_window_behind_the_traces_end_is_answered_with_its_length() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 1_000_000_000);
        made.thread(1, 11).launch("k", 2_000);
        let trace = made.open();
        let from = |seconds: f64| {
            let select = Select { from: Some(Duration::from_secs_f64(seconds)), ..Select::default() };
            filter(&select, &trace).map_err(|error| error.to_string())
        };
        assert_eq!(from(64.2), Err("--from 64.2 lies beyond the trace, which is 64.1 s long".to_owned()));
        assert!(from(64.0).is_ok());
    }

    #[test]
    fn some_steps_are_those_of_the_whole_run_and_no_others() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 1_000_000_000);
        let mut thread = made.thread(1, 11);
        // Within a step the same five calls recur ten times: taken by itself it would have steps of its own.
        for _ in 0..40 {
            let step = thread.range_begin();
            for _ in 0..10 {
                (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
                thread.sync("cuStreamSynchronize", "stream", 90_000);
            }
            thread.range_end(None, "step", step, true);
        }
        let trace = made.open();
        for (first, last, count) in [(30, 39, 10), (5, 5, 1), (0, 3, 4)] {
            let select = Select { steps: Some((first, last)), ..Select::default() };
            let facts_of = filter(&select, &trace).expect("steps");
            let facts = Facts::gather(&trace, &facts_of, &[Need::Launches]);
            let steps = &facts.steps.all[0];
            assert_eq!((steps.count, steps.quantile_ns(0.5)), (count, 1_000_000), "{first}..{last}");
            let launches = facts.launches.processes.iter().map(|(_, launches)| launches.count).sum::<u64>();
            assert_eq!(launches, 50 * count, "{first}..{last}");
        }
    }
}
