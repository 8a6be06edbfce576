//! Parts of a run on the GPU: what is told of a step, or of a span of time, is what the whole run has there.

use std::time::Duration;

use super::filter;
use crate::analysis::{ALL, Analysis, Facts, Need, Section, Value, answer};
use crate::cli::Select;
use crate::trace::Trace;
use crate::trace::testing::{START, TestTrace};

/// The answer of an analysis about what was chosen.
fn of(trace: &Trace, select: &Select, name: &str) -> Section {
    let filter = filter(select, trace).expect("some of the trace");
    let analysis: &dyn Analysis = *ALL.iter().find(|analysis| analysis.name() == name).expect("an analysis");
    let facts = Facts::gather(trace, &filter, analysis.needs());
    answer(analysis, &facts)
}

fn steps(first: usize, last: usize) -> Select {
    Select { steps: Some((first, last)), ..Select::default() }
}

/// A span from so many us after the first call.
fn span(trace: &Trace, from: u64, to: u64) -> Select {
    let at = |us: u64| Some(Duration::from_nanos((START - trace.began_ns()).unsigned_abs() + us * 1_000));
    Select { from: at(from), to: at(to), ..Select::default() }
}

fn number(section: &Section, key: &str) -> f64 {
    match section.get(key) {
        Value::Int(number) => *number as f64,
        Value::Num(number) => *number,
        other => panic!("{key}: {other:?} {section:?}"),
    }
}

/// Forty steps of 800 us: 285 us of the host, 25 launches of kernels of 20 us, and the wait for these.
fn waiting() -> TestTrace {
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 100_000_000);
    let mut thread = made.thread(1, 11);
    for _ in 0..40 {
        let step = thread.range_begin();
        thread.host(285_000);
        let mut end = thread.now + 5_000;
        (0..25).for_each(|_| end = thread.launch_running("gemm", 5_000, 7, (end, 20_000)));
        thread.sync("cuStreamSynchronize", "stream", end + 5_000 - thread.now);
        thread.range_end(None, "step", step, true);
    }
    made
}

#[test]
fn a_step_has_the_idle_time_before_its_first_kernel_and_its_cause() {
    let made = waiting();
    let trace = made.open();
    for (first, last) in [(20, 20), (20, 21), (10, 29)] {
        let (select, count) = (steps(first, last), (last - first + 1) as f64);
        let (busy, gaps) = (of(&trace, &select, "gpu-utilisation"), of(&trace, &select, "gpu-gaps"));
        let step_ns = number(&of(&trace, &select, "summary"), "step_p50_ns");
        assert_eq!(number(&busy, "busy_ns"), 500_000.0 * count, "{first}..{last}");
        assert_eq!(number(&busy, "range_ns"), step_ns * count, "{first}..{last}");
        assert_eq!(number(&gaps, "idle_ns"), number(&busy, "range_ns") - number(&busy, "busy_ns"));
        let summary = of(&trace, &select, "summary");
        assert_eq!(summary.get("verdict"), of(&trace, &Select::default(), "summary").get("verdict"), "{summary:?}");
    }
    // The first idle time of the step is that of the wait in which the GPU ran dry, in the step before.
    let after_wait = |select: &Select| number(&of(&trace, select, "gpu-gaps"), "after_wait_ns");
    assert_eq!(after_wait(&steps(20, 20)), after_wait(&steps(20, 21)) / 2.0);
}

/// Sixty launches of a kernel of a millisecond; the host is free to go on during the first forty, and then waits for room.
fn filling() -> TestTrace {
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 200_000_000);
    let mut thread = made.thread(1, 11);
    let mut free = thread.now + 10_000;
    for number in 0..160_i64 {
        let step = thread.range_begin();
        let room = free - 40 * 1_000_000 - thread.now;
        let call = if number < 40 { 5_000 } else { room.max(5_000) };
        free = thread.launch_running(&format!("k{number}"), call, 7, (free.max(thread.now + 6_000), 1_000_000));
        thread.host(5_000);
        thread.range_end(None, "step", step, true);
    }
    thread.sync("cuStreamSynchronize", "stream", free - thread.now);
    made
}

#[test]
fn where_the_host_runs_ahead_a_step_has_the_gpus_work_that_was_launched_in_it() {
    let made = filling();
    let trace = made.open();
    let select = steps(20, 29);
    let kernels = of(&trace, &select, "kernels");
    let named = kernels.tables.iter().find(|table| table.key == "by_kernel").map(|table| table.rows.len());
    assert_eq!((number(&kernels, "kernels"), named), (10.0, Some(10)), "{kernels:?}");
    assert_eq!(kernels.tables[0].rows[0][0], Value::from("k20"), "{kernels:?}");
    let summary = of(&trace, &select, "summary");
    assert_eq!((number(&summary, "steps"), number(&summary, "gpu_operations")), (10.0, 1.0));
    assert_eq!((number(&summary, "step_p50_ns"), number(&summary, "gpu_busy_ns")), (1_000_000.0, 1_000_000.0));
    assert_eq!(number(&summary, "launches"), 1.0);
}

#[test]
fn of_kernels_whose_launches_lie_before_a_span_the_median_is_told() {
    let made = filling();
    let trace = made.open();
    let text = |select: &Select| of(&trace, select, "summary").literal.unwrap_or_default();
    let said = text(&span(&trace, 80_000, 110_500));
    assert!(said.contains("median kernel 1.00 ms"), "{said}");
}

#[test]
fn launches_whose_kernels_come_after_the_span_are_not_missing() {
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 200_000_000);
    let mut thread = made.thread(1, 11);
    let mut free = thread.now;
    for number in 0..200 {
        free = thread.launch_running("k", 5_000, 7, (free.max(thread.now + 6_000), 100_000));
        thread.host(5_000);
        // It waits for an event of long ago.
        if number % 10 == 9 {
            thread.sync("cuEventSynchronize", "event", 1_000);
        }
    }
    let trace = made.open();
    let filter = filter(&span(&trace, 0, 1_000), &trace).expect("a span");
    let facts = Facts::gather(&trace, &filter, &[Need::GpuClock]);
    assert_eq!(crate::analysis::missing_kernels(&facts, 1), None);
    let summary = of(&trace, &span(&trace, 0, 1_000), "summary");
    assert!(summary.get("gpu_busy_ns") != &Value::Missing, "{:?}", summary.literal);
}

#[test]
fn the_parts_of_adjacent_spans_are_the_whole() {
    let made = waiting();
    let trace = made.open();
    let sum = |key: &str, name: &str, cuts: &[u64]| -> f64 {
        cuts.windows(2).map(|cut| number(&of(&trace, &span(&trace, cut[0], cut[1]), name), key)).sum()
    };
    let cuts = [0, 700, 5_250, 17_800, 40_000];
    for (key, name) in [("busy_ns", "gpu-utilisation"), ("range_ns", "gpu-utilisation"), ("idle_ns", "gpu-gaps")] {
        assert_eq!(sum(key, name, &cuts), sum(key, name, &[0, 40_000]), "{key}");
    }
    let parts = of(&trace, &span(&trace, 700, 5_250), "gpu-utilisation");
    assert_eq!(number(&parts, "range_ns"), 4_550_000.0);
}

#[test]
fn ranges_that_are_steps_are_the_steps_that_are_told() {
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 100_000_000);
    let mut thread = made.thread(1, 11);
    for number in 0..40 {
        let step = thread.range_begin();
        (0..12).for_each(|_| thread.launch("k", 5_000));
        if number == 25 {
            (0..100).for_each(|_| thread.launch("validate", 5_000));
        }
        thread.host(440_000);
        thread.range_end(None, &format!("ProfilerStep#{number}"), step, true);
    }
    let trace = made.open();
    let summary = |range: &str| {
        let section = of(&trace, &Select { range: Some(range.to_owned()), ..Select::default() }, "summary");
        ["steps", "step_p50_ns", "launches"].map(|key| number(&section, key))
    };
    assert_eq!(summary("ProfilerStep#5"), [1.0, 500_000.0, 12.0]);
    assert_eq!(summary("ProfilerStep#25"), [1.0, 1_000_000.0, 112.0], "of no other step");
    // As `--only ranges` lists them.
    assert_eq!(summary("ProfilerStep#*"), [40.0, 500_000.0, 12.0]);
    let none = filter(&Select { range: Some("Step#*".to_owned()), ..Select::default() }, &trace);
    assert!(none.is_err_and(|error| error.to_string().contains("no range of that name")));
}
