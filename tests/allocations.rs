//! What reports say of malloc, of a program that does known things with it: who held most at the peak, who leaks, who allocates
//! for a moment.

use serde_json::Value;

use crate::util::{Driver, Scratch, driver_folder, linked_with, program_with};

/// Steps that the program makes.
const STEPS: i64 = 200;
const ANALYSES: &str = "host-memory,host-allocations,host-peak,host-leaks,host-temporaries,malloc-time";

fn report(options: &[&str]) -> Value {
    let scratch = Scratch::new();
    let program = program_with("leaks", "program", &linked_with(&driver_folder(Driver::Plain), &[]));
    let target = scratch.target(program).arg(STEPS.to_string()).with_instant_driver();
    let run = target.options(["--malloc", "full"]).options(options).traced().expect(0);
    let folder = run.trace.display().to_string();
    let json = scratch.gputrace(&["report", &folder, "--only", ANALYSES, "--format", "json"]).expect(0).text();
    serde_json::from_str::<Value>(&json).expect("JSON")["analyses"].clone()
}

/// The row of a table whose site is in this function.
#[track_caller]
fn row(report: &Value, analysis: &str, table: &str, function: &str) -> Value {
    let rows = report[analysis]["tables"][table]["rows"].as_array().unwrap_or_else(|| panic!("no {table}: {report:#}"));
    let is_it = |row: &&Value| row["site"].as_str().is_some_and(|site| site.contains(function));
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no {function} in {rows:#?}")).clone()
}

#[test]
fn lines_that_leak_hold_most_at_the_peak_or_allocate_for_a_moment_are_told() {
    let report = report(&[]);
    let leak = row(&report, "host-leaks", "growing", "keep_history");
    let grows = leak["per_step_bytes"].as_f64().expect("a number");
    assert!((grows - 1008.0).abs() < 1.0, "{leak}");
    assert_eq!(report["host-leaks"]["facts"]["growing_stacks"], 1, "{:#}", report["host-leaks"]);
    assert_eq!(row(&report, "host-leaks", "by_stack", "fill_table")["bytes"].as_f64(), Some(2_000_000.0));

    let peak = row(&report, "host-peak", "by_stack", "load_all");
    assert_eq!((peak["bytes"].as_f64(), peak["live_at_end_bytes"].as_f64()), (Some(5_000_000.0), Some(0.0)));
    assert!(
        peak["stack"].as_str().is_some_and(|stack| stack.contains("load_all") && stack.contains(" < main ")),
        "{peak}"
    );
    let kept = row(&report, "host-peak", "by_stack", "keep_history");
    assert_eq!(kept["blocks"].as_i64(), Some(STEPS / 2 + 1));

    let moment = row(&report, "host-temporaries", "by_stack", "format_text");
    assert_eq!((moment["calls"].as_i64(), moment["own_percent"].as_f64()), (Some(10 * STEPS), Some(100.0)));
    let made = row(&report, "host-allocations", "by_stack", "format_text");
    assert_eq!((made["per_step"].as_f64(), made["mean_bytes"].as_f64()), (Some(10.0), Some(300.0)));
    let timed = report["malloc-time"]["facts"]["timed_calls"].as_i64().expect("a number");
    assert!(timed >= 11 * STEPS / 64, "one allocation in 64 of {} is timed, not {timed}", 11 * STEPS);
}

#[test]
fn sums_are_the_same_when_short_lives_are_culled() {
    let [plain, culled] = [&[][..], &["--cull", "1000"]].map(report);
    for (analysis, fact) in [
        ("host-memory", "rows"),
        ("host-memory", "allocations"),
        ("host-memory", "allocated_bytes"),
        ("host-allocations", "allocations"),
        ("host-allocations", "allocated_bytes"),
        ("host-leaks", "live_at_end_bytes"),
        ("host-leaks", "live_at_end_blocks"),
    ] {
        assert_eq!(plain[analysis]["facts"][fact], culled[analysis]["facts"][fact], "{analysis}.{fact}");
    }
    for report in [&plain, &culled] {
        let moment = row(report, "host-temporaries", "by_stack", "format_text");
        assert_eq!(moment["calls"].as_i64(), Some(10 * STEPS));
    }
}

/// The demo's loop makes each batch when it has waited for the GPU: a MiB, of which samples meet nearly all.
#[test]
fn what_a_loop_allocates_while_the_gpu_has_nothing_to_do_is_told_with_its_line() {
    let scratch = Scratch::new();
    crate::util::shim();
    scratch.target(crate::util::gputrace()).args(["demo", "-o", "t"]).plain().expect(0);
    let json = scratch.gputrace(&["report", "t", "--only", "host-allocations", "--format", "json"]).expect(0).text();
    let report = serde_json::from_str::<Value>(&json).expect("JSON")["analyses"].clone();
    let facts = &report["host-allocations"]["facts"];
    assert!(facts["in_gaps"].as_i64() > Some(0) && facts["in_gaps_ns"].as_i64() > Some(0), "{facts}");
    let load = row(&report, "host-allocations", "in_gaps", "load");
    let all = row(&report, "host-allocations", "by_stack", "load");
    assert!(load["calls"].as_i64() > Some(50) && load["calls"].as_i64() <= all["calls"].as_i64(), "{load} of {all}");
}
