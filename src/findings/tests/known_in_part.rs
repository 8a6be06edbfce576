//! Findings of traces that lack some of the detail: what a budget left out is told, and an estimate is a limit.

use gputrace_collectors::manifest::{HookBudget, ShedPart};
use gputrace_collectors::names::NameKind;
use gputrace_collectors::schema::TableId;
use serde_json::json;

use super::{evidence, found};
use crate::analysis::{ALL, Facts, Value};
use crate::metrics::{Answer, Answers, Named, find};
use crate::trace::Filter;
use crate::trace::testing::{START, TestTrace};

/// Stacks, or launches, of the first process were left out to keep to a budget.
fn shed(trace: &mut TestTrace, what: &str) {
    let part =
        ShedPart { what: what.to_owned(), from_ns: START + 5_000_000, to_ns: None, one_in: None, sampled_out: 1234 };
    let budget = HookBudget { percent: 1.0, shed: vec![part], ..HookBudget::default() };
    trace.manifest.as_mut().expect("a manifest").processes[0].budget = Some(budget);
}

#[test]
fn waits_without_a_stack_are_told_where_those_are_that_have_one() {
    let said = |without: bool| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        if without {
            shed(&mut trace, "stacks");
        }
        let item = trace.stack("main", "/home/u/train.py", 44);
        let mut thread = trace.thread(1, 11);
        for step in 0..60 {
            let began = thread.range_begin();
            thread.launch("k", 2_000);
            thread.host(700_000);
            thread.stack = (step < 30).then_some((item, 0));
            thread.sync("cuStreamSynchronize", "stream", 200_000);
            thread.stack = None;
            thread.range_end(None, "step", began, true);
        }
        evidence(&trace.section(ALL[0]))
    };
    assert!(said(true).contains("train.py:44 main  cuStreamSynchronize about 1 a step, 200 us each"), "{}", said(true));
    assert!(!said(false).contains("about") && said(false).contains("cuStreamSynchronize 0."), "{}", said(false));
}

#[test]
fn without_steps_the_launches_that_were_left_out_are_named() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    shed(&mut trace, "launches");
    let mut thread = trace.thread(1, 11);
    for n in 0..200 {
        thread.launch("k", 2_000);
        thread.host(1_000 * (n * 7919 % 101));
    }
    let text = trace.section(ALL[0]).literal.unwrap_or_default();
    let why = "to keep to --budget 1,234 launches of kernels were left out between";
    assert!(
        text.lines().any(|line| line.starts_with("UNKNOWN: steps are not known (") && line.contains(why)),
        "{text}"
    );
    assert!(text.contains("\n  no wait, copy or range marks them for sure: record with a larger --budget"), "{text}");
}

#[test]
fn no_finding_promises_more_than_the_gpu_may_idle_by_launches_that_were_timed() {
    let gain = |timed: bool| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let name_id = trace.name(NameKind::Kernel, "k");
        let mut thread = trace.thread(1, 11);
        let mut began = Vec::new();
        for _ in 0..60 {
            let step = thread.range_begin();
            began.push(step);
            thread.launch("k", 5_000);
            thread.system_wait("read", "file", 800_000);
            thread.sync("cuStreamSynchronize", "stream", 195_000);
            thread.range_end(None, "step", step, true);
        }
        for at in began.into_iter().filter(|_| timed) {
            // Of a ms the GPU works for 900 us, while the host reads.
            let row = json!({"start_ns": at, "gpu_ns": 900_000, "process_id": 1, "pid": 1, "device": 0, "stream": 7,
                "kind": "kernel", "name_id": name_id, "grid_x": 1, "weight": 1});
            trace.row(TableId::GpuSamples, row);
        }
        found(&trace.section(ALL[0])).first().cloned()
    };
    assert_eq!(gain(false), Some(("system-waits".to_owned(), 800)));
    assert_eq!(gain(true).map(|(_, us)| us), Some(100));
}

/// 200 steps of 40 launches and 10 ms, of which all but one in eight were left out from the 60th on.
fn thinned(waits: bool, ranges: bool) -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 2_100_000_000);
    let mut thread = trace.thread(1, 11);
    for _ in 0..200 {
        let began = thread.range_begin();
        for kernel in 0..40 {
            thread.launch(&format!("k{kernel}"), 2_000);
        }
        thread.host(if waits { 900_000 } else { 9_920_000 });
        if waits {
            thread.sync("cuStreamSynchronize", "stream", 9_020_000);
        }
        if ranges {
            thread.range_end(None, "step", began, true);
        }
    }
    trace.thin(START + 600_000_000, 8);
    trace
}

#[test]
fn where_launches_were_left_out_steps_are_found_by_what_was_not() {
    for (waits, ranges, found) in [(true, false, true), (false, true, true), (false, false, false)] {
        let summary = thinned(waits, ranges).section(ALL[0]);
        let number = |key: &str| match summary.get(key) {
            Value::Int(number) => Some(*number as f64),
            Value::Num(number) => Some(*number),
            _ => None,
        };
        let text = summary.literal.clone().unwrap_or_default();
        assert_eq!(number("steps"), found.then_some(200.0), "{text}");
        assert_eq!(number("step_p50_ns").map(f64::round), found.then_some(10_000_000.0), "{text}");
        assert_eq!(text.contains("\nsteps not known: "), !found, "{text}");
        assert!(!text.contains("OUTLIER STEPS"), "{text}");
        // 8,000 launches, of which some 700 after the 60th step stand for eight each.
        let per = if found { 200.0 } else { 1.0 };
        let launches = number("launches").unwrap_or(0.0) * per;
        assert!((launches / 8_000.0 - 1.0).abs() < 0.2, "{launches} {text}");
        assert!(text.contains("about ") || found && !waits, "{text}");
    }
}

#[test]
fn the_overhead_of_launches_counts_those_that_were_left_out_by_those_that_stand_for_them() {
    let trace = thinned(true, false);
    let section = trace.section(*ALL.iter().find(|of| of.name() == "launch-overhead").expect("it"));
    let number = |value: &Value| match value {
        Value::Int(number) => *number as f64,
        Value::Num(number) => *number,
        other => panic!("{other:?}"),
    };
    for key in ["launches", "kernels"] {
        assert!((number(section.get(key)) / 8_000.0 - 1.0).abs() < 0.1, "{key}: {:?}", section.get(key));
    }
    let a_step = number(section.cell("by_process", 0, "kernels_per_step"));
    assert!((a_step / 40.0 - 1.0).abs() < 0.2, "{a_step}");
}

#[test]
fn limits_on_steps_that_nobody_knows_are_not_judged() {
    let trace = thinned(false, false);
    let opened = trace.open();
    let named: Vec<Named> =
        ["summary.step_p50_ns", "summary.outside_driver_ns", "summary.step_outliers", "steps.steps", "steps.outliers"]
            .map(|name| find(name).unwrap_or_else(|error| panic!("{error}")))
            .to_vec();
    let filter = Filter::of(&opened);
    let answers = Answers::of(&named, &Facts::gather(&opened, &filter, &Answers::needs(&named)));
    for named in &named {
        let answer = answers.get(named);
        let Answer::Unknown(why) = &answer else { panic!("{}: {answer:?}", named.name()) };
        assert!(why.contains("launches of kernels were left out") && why.contains("larger --budget"), "{why}");
    }
}
