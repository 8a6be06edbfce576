//! Two made traces: what differs beyond the spread, what is not compared.

use gputrace_collectors::schema::TableId;
use serde_json::json;

use super::quantities::GIVEN;
use super::*;
use crate::analysis::{ALL, Value};
use crate::trace::testing::{START, TestTrace};
use crate::trace::{Filter, Trace};

/// A loop of 60 steps with noise; `waits` of them in a step, and a kernel of this name.
pub(super) fn made(seed: i64, waits: usize, kernel: &str) -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    for step in 0..60 {
        let began = thread.range_begin();
        thread.host(100_000 + (step * 7919 + seed * 104_729) % 9_973);
        thread.launch("first", 3_000);
        thread.launch(kernel, 4_000 + (step * 31 + seed) % 500);
        thread.launch("last", 3_000);
        (0..waits).for_each(|_| thread.sync("cuStreamSynchronize", "stream", 20_000));
        thread.range_end(None, &format!("step {step}"), began, true);
    }
    trace
}

/// As a pipe has it.
pub(super) fn text(diff: &Diff) -> String {
    super::text(diff, 100)
}

pub(super) fn compared<T>(before: &TestTrace, after: &TestTrace, with: impl FnOnce(&Diff) -> T) -> T {
    let traces: [Trace; 2] = [before.open(), after.open()];
    let filter = Filter::default();
    let facts = [0, 1].map(|i| Facts::gather(&traces[i], &filter, &needs(ALL, false)));
    let [before, after] = [0, 1].map(|i| Side { trace: "abc".chars().nth(i).into_iter().collect(), facts: &facts[i] });
    with(&Diff::of(&before, &after, ALL, &OWN_PARTS))
}

pub(super) fn row(diff: &Diff, part: &str, what: &str) -> Change {
    let part = diff.parts.iter().find(|p| p.name == part).unwrap_or_else(|| panic!("no {part}"));
    part.rows.iter().find(|row| row.what == what).unwrap_or_else(|| panic!("no {what} in {part:?}")).clone()
}

#[test]
fn a_trace_does_not_differ_from_itself_nor_from_its_like() {
    let (one, other) = (made(1, 1, "gemm"), made(2, 1, "gemm"));
    compared(&one, &one, |diff| {
        assert!(text(diff).ends_with("\nno difference beyond spread\n"), "{}", text(diff));
        assert!(diff.parts.iter().filter(|part| part.name != "steps").all(|part| part.rows.is_empty()));
    });
    compared(&one, &other, |diff| assert!(text(diff).ends_with("\nno difference beyond spread\n"), "{}", text(diff)));
}

#[test]
fn a_line_of_one_stack_is_compared_by_line_with_the_same_of_several() {
    let made = |stacks: &[i64]| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        for id in stacks {
            let frame =
                json!({ "language": "python", "function": "load", "file": "/home/u/x.py", "line": 7, "stack_id": id });
            trace.row(TableId::Stacks, frame);
            trace.thread(1, 11).malloc_at(*id, 1000, 1000.0);
        }
        trace
    };
    for (before, after, bytes) in [(&[7][..], &[7, 8][..], [1e3, 2e3]), (&[7, 8], &[7], [2e3, 1e3])] {
        compared(&made(before), &made(after), |diff| {
            let line = diff.parts.iter().find(|part| part.name == "host-allocations.by_line").expect("by line");
            let row = line.rows.iter().find(|row| row.what.contains("x.py:7 load")).expect("the line");
            assert_eq!([row.before, row.after], bytes.map(Some), "{line:?}");
        });
    }
}

#[test]
fn another_wait_in_each_step_is_beyond_the_spread() {
    compared(&made(1, 1, "gemm"), &made(2, 2, "gemm"), |diff| {
        let waits = row(diff, "steps", "waits");
        assert_eq!((waits.before, waits.after, waits.beyond), (Some(1.0), Some(2.0), Some(true)));
        assert_eq!(row(diff, "steps", "duration").beyond, Some(true));
        assert_eq!(row(diff, "steps", "launches").beyond, Some(false));
        assert_eq!(row(diff, "syncs", "waits").by(), 60.0);
        assert_eq!(row(diff, "syncs.by_call", "stream cuStreamSynchronize").by(), 60.0 * 20_000.0);
        let said = text(diff);
        assert!(said.ends_with("\n4 differences beyond spread\n"), "{said}");
        assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
        let read: serde_json::Value = serde_json::from_str(&json(diff)).unwrap();
        assert_eq!((&read["diff_version"], &read["beyond_spread"]), (&1.into(), &4.into()));
        assert!(markdown(diff).contains("| waits | 1 | 2 | +1 | +100.0 | yes |"), "{}", markdown(diff));
    });
}

#[test]
fn a_number_of_a_step_says_where_it_is_the_mean() {
    let rare = |every: usize| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for step in 0..60 {
            let began = thread.range_begin();
            thread.host(100_000);
            thread.launch("first", 3_000);
            if step % every == 0 {
                thread.sync("cuStreamSynchronize", "stream", 1_000);
            }
            thread.range_end(None, "step", began, true);
        }
        trace
    };
    compared(&rare(4), &rare(3), |diff| {
        let waits = row(diff, "steps", "waits");
        assert_eq!((waits.before, waits.after, waits.mean), (Some(0.25), Some(1.0 / 3.0), true));
        assert!(!row(diff, "steps", "launches").mean);
        let said = text(diff);
        assert!(said.contains("  waits (mean) ") && said.contains("  launches  "), "{said}");
        let read: serde_json::Value = serde_json::from_str(&json(diff)).unwrap();
        let rows = read["parts"][0]["rows"].as_array().cloned().unwrap_or_default();
        assert!(rows.iter().any(|row| row["what"] == "waits" && row["mean"] == true), "{rows:?}");
    });
}

#[test]
fn gpu_times_that_one_trace_lacks_are_no_difference() {
    let mut timed = made(1, 1, "gemm");
    // The other launches gave the GPU nothing, or its times would not be known.
    timed.set(gputrace_collectors::schema::TableId::Launches, "kernels", &0.into());
    let mut thread = timed.thread(1, 11);
    for step in 0..60 {
        thread.now = START + step * 100_000;
        let begin = thread.now + 5_000;
        thread.launch_running("timed", 3_000, 7, (begin, 50_000));
    }
    compared(&timed, &made(1, 1, "gemm"), |diff| {
        let kernels = row(diff, "steps", "time of kernels on the GPU");
        assert!(kernels.before.is_some_and(|ns| ns > 0.0));
        assert_eq!((kernels.after, kernels.by(), kernels.beyond), (None, 0.0, None));
        assert_eq!(kernels.note.as_deref(), Some("not measured in after"));
        let busy = row(diff, "gpu-utilisation", "busy_ns");
        assert_eq!((busy.after, busy.by(), busy.note.as_deref()), (None, 0.0, Some("not measured in after")));
    });
}

/// Sixty steps whose copy waits for the kernels before it; each step's kernel takes so long.
fn waiting(seed: i64, kernel_ns: i64) -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    for step in 0..60 {
        let began = thread.range_begin();
        thread.host(100_000 + (step * 7919 + seed * 104_729) % 9_973);
        let begin = thread.now + 5_000;
        let end = thread.launch_running("gemm", 3_000, 7, (begin, kernel_ns));
        thread.copy("DtoH", ("device", "pageable"), true, 4, end - thread.now + 10_000);
        thread.range_end(None, "step", began, true);
    }
    trace
}

#[test]
fn waits_and_copies_are_those_of_the_report() {
    let (one, other) = (waiting(1, 400_000), waiting(2, 800_000));
    let report = one.section(ALL.iter().copied().find(|of| of.name() == "steps").expect("steps"));
    let summary = one.section(ALL[0]);
    compared(&one, &other, |diff| {
        let times = report.tables.iter().find(|table| table.key == "times").expect("times");
        for (what, quantity, metric) in
            [("time in waits", "waits", "wait_ns"), ("time in copies and sets", "copies", "copy_ns")]
        {
            let row = row(diff, "steps", what);
            let at = times.rows.iter().position(|row| row[1] == quantity.into()).expect(quantity);
            let Value::Num(usual) = report.cell("times", at, "usual") else { panic!("no number") };
            let Value::Num(of_summary) = summary.get(metric) else { panic!("no {metric}") };
            let before = row.before.expect("a number");
            // One is the median of the steps, the others are means of the usual ones.
            assert!(
                (before - usual).abs() < 0.02 * usual && (before - of_summary).abs() < 0.02 * usual,
                "{what}: {row:?}"
            );
            assert!(before > 1_000.0, "{what}: {row:?}");
        }
        let waits = row(diff, "steps", "waits");
        assert_eq!((waits.before, summary.get("waits")), (Some(1.0), &Value::Num(1.0)));
        assert!(text(diff).contains("\n  GPU idle ") && text(diff).contains("\n  kernels that ran "), "{}", text(diff));
        assert_eq!(row(diff, "steps", "time in waits").beyond, Some(true));
        assert_eq!(row(diff, "steps", "time in copies and sets").beyond, Some(false));
    });
}

#[test]
fn an_analysis_is_judged_by_the_steps_wherever_they_have_its_numbers() {
    let only = |names: &[&str], with: &dyn Fn(&Diff)| {
        let (one, other) = (waiting(1, 400_000), waiting(2, 800_000));
        let traces: [Trace; 2] = [one.open(), other.open()];
        let filter = Filter::default();
        let analyses: Vec<_> = ALL.iter().copied().filter(|of| names.contains(&of.name())).collect();
        let facts = [0, 1].map(|i| Facts::gather(&traces[i], &filter, &needs(&analyses, false)));
        let [before, after] = [0, 1].map(|i| Side { trace: i.to_string(), facts: &facts[i] });
        with(&Diff::of(&before, &after, &analyses, &[]));
    };
    only(&["syncs", "transfers", "gpu-utilisation", "gpu-gaps"], &|diff| {
        let judged = |part: &str, what: &str| row(diff, part, what).beyond;
        assert_eq!(judged("syncs.per_step", "time in waits"), Some(true));
        assert_eq!(judged("transfers.per_step", "time in copies and sets"), Some(false));
        let busy = row(diff, "gpu-utilisation.per_step", "GPU busy");
        assert_eq!((busy.before, busy.after, busy.beyond), (Some(400_000.0), Some(800_000.0), Some(true)));
        assert!(diff.unjudged.is_empty() && text(diff).ends_with("\n2 differences beyond spread\n"), "{}", text(diff));
    });
    only(&["critical-path"], &|diff| {
        let said = text(diff);
        assert!(said.contains("\nnot judged, for single steps do not have these numbers: critical-path\n"), "{said}");
        assert!(said.ends_with(": steps tell of none of this\n") && !said.contains("eight"), "{said}");
        let read: serde_json::Value = serde_json::from_str(&json(diff)).unwrap();
        assert_eq!(read["not_judged"][0], "critical-path");
    });
}

#[test]
fn the_baseline_of_metal_is_judged_by_the_step_and_not_by_how_many_there_were() {
    // Steps of two command buffers of three kernels each, and a buffer made and freed.
    let ran = |steps: i64, gpu_ns: i64, dispatches: usize| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for step in 0..steps {
            let began = thread.range_begin();
            thread.alloc("[MTLDevice newBufferWithLength:options:]", "managed", 0x50, 4096, 1_000);
            thread.free("[MTLBuffer dealloc]", "managed", 0x50, 1_000);
            for _ in 0..2 {
                let noise = (step * 7919) % 997;
                let begin = thread.now + 20_000;
                thread.commit(
                    &[("gemm", 100_000), ("relu", 64), ("add", 64)][..dispatches],
                    1_000,
                    5_000,
                    (begin, gpu_ns + noise),
                );
                thread.sync("[MTLCommandBuffer waitUntilCompleted]", "stream", begin + gpu_ns + 5_000 - thread.now);
            }
            thread.range_end(None, &format!("step {step}"), began, true);
        }
        trace
    };
    let judged = |after: &TestTrace, with: &dyn Fn(&Diff)| {
        let before = ran(200, 90_000, 3);
        let traces: [Trace; 2] = [before.open(), after.open()];
        let filter = Filter::default();
        let analyses: Vec<_> = ALL.iter().copied().filter(|of| of.name() == "metal-baseline").collect();
        let facts = [0, 1].map(|i| Facts::gather(&traces[i], &filter, &needs(&analyses, false)));
        let [before, after] = [0, 1].map(|i| Side { trace: i.to_string(), facts: &facts[i] });
        with(&Diff::of(&before, &after, &analyses, &[]));
    };
    let all = ["duration", GIVEN, "allocation and free calls", "time of kernels on the GPU", "GPU busy", "GPU idle"];
    let beyond = |diff: &Diff| all.map(|what| row(diff, "metal-baseline.per_step", what).beyond == Some(true));
    judged(&ran(100, 90_000, 3), &|diff| {
        let of_run = row(diff, "metal-baseline", "kernels");
        assert_eq!((of_run.before, of_run.after, of_run.beyond), (Some(1200.0), Some(600.0), None));
        let kernels = row(diff, "metal-baseline.per_step", GIVEN);
        assert_eq!((kernels.before, kernels.after), (Some(6.0), Some(6.0)));
        assert_eq!(beyond(diff), [false; 6]);
        assert!(diff.unjudged.is_empty() && text(diff).ends_with("\nno difference beyond spread\n"), "{}", text(diff));
    });
    judged(&ran(100, 120_000, 3), &|diff| {
        assert_eq!(beyond(diff), [true, false, false, true, true, false], "{}", text(diff));
    });
    judged(&ran(100, 90_000, 2), &|diff| {
        assert_eq!(beyond(diff)[1..4], [true, false, false], "{}", text(diff));
    });
}

#[test]
fn a_renamed_kernel_is_said_to_be_matched_by_pattern() {
    compared(&made(1, 1, "gemm"), &made(1, 1, "gemm_v2"), |diff| {
        let kernel = row(diff, "kernels.launches", "gemm_v2");
        assert_eq!((kernel.before, kernel.after, kernel.beyond), (Some(1.0), Some(1.0), Some(false)));
        assert_eq!(kernel.note.as_deref(), Some("matched by pattern; before: gemm"));
    });
}

#[test]
fn a_renamed_kernel_is_one_in_the_tables_of_analyses_too() {
    let ran = |kernel: &str, ns: i64| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..60 {
            let began = thread.range_begin();
            let end = thread.launch_running(kernel, 4_000, 7, (thread.now + 6_000, ns));
            thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
            thread.range_end(None, "step", began, true);
        }
        trace
    };
    compared(&ran("gemm", 90_000), &ran("gemm_v2", 80_000), |diff| {
        let rows = diff.parts.iter().filter(|part| part.name.starts_with("kernels.")).flat_map(|part| &part.rows);
        let one_side: Vec<_> = rows.filter(|row| row.before.is_none() || row.after.is_none()).collect();
        assert!(one_side.is_empty(), "{one_side:?}");
        let names: Vec<_> = diff.parts.iter().map(|part| part.name.as_str()).collect();
        assert!(names.contains(&"kernels.by_grid"), "{names:?}");
    });
}

#[test]
fn what_is_not_the_same_around_the_two_is_said_at_the_top() {
    let (one, mut other) = (made(1, 1, "gemm"), made(1, 1, "gemm"));
    if let Some(manifest) = &mut other.manifest {
        manifest.tool_version = "9.9.9".into();
        manifest.command = vec!["python".into(), "other\u{1b}.py".into()];
    }
    compared(&one, &other, |diff| {
        let said = text(diff);
        let line = said.lines().nth(2).unwrap_or_default();
        assert!(line.starts_with("not the same: version of gputrace (0.0.0 / 9.9.9); command ("), "{line}");
        assert!(!said.contains('\u{1b}'));
    });
}

#[test]
fn without_steps_the_runs_are_compared_and_no_spread_is_claimed() {
    let run = |launches: usize| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        (0..launches).for_each(|i| thread.launch(&format!("k{i}"), 2_000));
        trace
    };
    compared(&run(12), &run(15), |diff| {
        assert_eq!(row(diff, "steps", "launches").by(), 3.0);
        assert_eq!(diff.beyond(), 0);
        assert!(text(diff).contains("spread is not known"), "{}", text(diff));
    });
    compared(&TestTrace::new(), &TestTrace::new(), |diff| assert!(text(diff).ends_with("\nno difference\n")));
}

#[test]
fn counters_of_a_process_are_compared_whatever_its_pid_and_devices_by_their_name() {
    let with_pid = |pid: i32, percent: f64| {
        let mut trace = TestTrace::new();
        trace.process(i64::from(pid), pid, None, START + 1_000_000_000);
        for second in 0..3 {
            trace.counter(second * 1_000_000_000, Ok(i64::from(pid)), "proc", "cpu_user", percent);
        }
        trace
    };
    compared(&with_pid(100, 40.0), &with_pid(777, 60.0), |diff| {
        let row = row(diff, "counters.counters", "python proc cpu_user %");
        assert_eq!((row.before, row.after), (Some(40.0), Some(60.0)));
        let part = diff.parts.iter().find(|part| part.name == "counters.counters").map(|part| part.rows.len());
        assert_eq!(part, Some(1));
    });
}

#[test]
fn what_neither_trace_can_answer_is_no_part() {
    compared(&made(1, 1, "gemm"), &made(2, 1, "gemm"), |diff| {
        let names: Vec<&str> = diff.parts.iter().map(|part| part.name.as_str()).collect();
        assert!(names.contains(&"launch-overhead") && !names.contains(&"metal-baseline"), "{names:?}");
    });
}

#[test]
fn steps_that_nobody_knows_are_not_compared() {
    let run = |thin: bool| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        (0..2_000).for_each(|n| thread.launch(&format!("k{}", n % 20), 40_000));
        _ = thin.then(|| trace.thin(START + 40_000_000, 8));
        trace
    };
    compared(&run(false), &run(true), |diff| {
        assert_eq!((diff.before.steps_unknown, diff.after.steps_unknown), (false, true));
        assert_eq!((diff.before.steps, diff.after.steps, diff.beyond()), (Some(100), None, 0));
        let p50 = row(diff, "summary", "step_p50_ns");
        assert!(p50.unmeasured && p50.after.is_none(), "{p50:?}");
        let said = text(diff);
        assert!(said.contains("  steps not known\n") && said.contains("launches were left out"), "{said}");
    });
}

#[test]
fn rows_with_long_names_are_told_apart() {
    let row = |what: &str| Change {
        what: what.to_owned(),
        unit: Unit::Ns,
        before: Some(1_000.0),
        after: Some(2_000.0),
        mean: false,
        beyond: None,
        unmeasured: false,
        note: None,
    };
    let rows =
        ["HtoD", "DtoH"].map(|way| row(&format!("transfer cuMemcpy{way}Async_v2 package::module::Training::step")));
    let part = Part { name: "a".into(), title: "A".into(), rows: rows.to_vec(), ..Part::default() };
    let diff = Diff { few: true, parts: vec![part], ..Diff::default() };
    let text = text(&diff);
    assert!(text.contains("cuMemcpyHtoDAsync_v2") && text.contains("cuMemcpyDtoHAsync_v2"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for width in [80, 100, 160] {
        let said = super::text(&diff, width);
        let longest = said.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= width), "{said}");
        // The names stand whole where there is room for them.
        assert_eq!(said.contains("cuMemcpyHtoDAsync_v2 package::module::Training::step "), width == 160, "{said}");
    }
}

#[test]
fn what_one_trace_cannot_know_is_no_difference() {
    let mut blind = made(1, 1, "gemm");
    blind.set(gputrace_collectors::schema::TableId::Launches, "name_id", &serde_json::Value::Null);
    // As an import without GPU times writes them.
    blind.set(gputrace_collectors::schema::TableId::Launches, "grid_x", &0.into());
    blind.set(gputrace_collectors::schema::TableId::Transfers, "bytes", &serde_json::Value::Null);
    compared(&made(1, 1, "gemm"), &blind, |diff| {
        let kernels = diff.parts.iter().find(|part| part.name == "kernels.launches").expect("kernels");
        assert!(kernels.rows.is_empty(), "{:?}", kernels.rows);
        assert!(kernels.note.as_deref().is_some_and(|note| note.contains("do not tell their kernels")));
        let first = diff.parts.iter().flat_map(|part| &part.rows).find(|row| row.what == "steady_first_launches");
        assert!(first.is_none_or(|row| row.after.is_none() && row.beyond.is_none()), "{first:?}");
        let bytes = diff.parts.iter().flat_map(|part| &part.rows).filter(|row| row.what.contains("bytes cop"));
        bytes.for_each(|row| assert_eq!((row.after, row.beyond), (None, None)));
    });
}

#[test]
fn kernels_beyond_those_that_are_kept_apart_are_a_difference_only_where_they_differ() {
    let many = |last: i64| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for kernel in 0..MOST_KERNELS + 300 {
            let begin = thread.now + 6_000;
            thread.launch_running(&format!("kernel {kernel}"), 5_000, 7, (begin, 1_000));
        }
        let begin = thread.now + 6_000;
        thread.launch_running("last", 5_000, 7, (begin, last));
        trace
    };
    let notes = |diff: &Diff| -> Vec<String> { diff.parts.iter().filter_map(|part| part.note.clone()).collect() };
    let (one, other) = (many(1_000), many(2_000));
    assert_eq!(compared(&one, &one, notes), [""; 0]);
    let beyond = "not compared: launches of kernels beyond the first 2000, 301 before and 301 after";
    assert_eq!(compared(&one, &other, notes), [beyond; 2]);
}
