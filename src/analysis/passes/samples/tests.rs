//! How well the estimate is known, and of whom it is.

use serde_json::json;

use super::*;
use crate::analysis::gpu_utilisation::GpuUtilisation;
use crate::analysis::timed_kernels::TimedKernels;
use crate::analysis::{Analysis, Facts, Section, Value};
use crate::trace::Filter;
use crate::trace::testing::{START, TestTrace};
use gputrace_collectors::names::NameKind;

/// A launch that was timed.
fn sample(trace: &mut TestTrace, kernel: &str, start_ns: i64, gpu_ns: i64) {
    let name_id = trace.name(NameKind::Kernel, kernel);
    let row = json!({"start_ns": start_ns, "gpu_ns": gpu_ns, "process_id": 1, "pid": 1, "device": 0, "stream": 7,
        "kind": "kernel", "name_id": name_id, "grid_x": 1, "weight": 64});
    trace.row(TableId::GpuSamples, row);
}

/// 100 launches of a long kernel and 900 of a short one in 10 ms, of which so many were timed.
fn trace(long: usize, short: usize) -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 1, None, START + 11_000_000);
    for (kernel, ns, timed) in [("long", 50_000, long), ("short", 2_000, short)] {
        (0..timed).for_each(|n| sample(&mut trace, kernel, START + 1_000 * n as i64, ns));
    }
    let mut thread = trace.thread(1, 1);
    for n in 0..1000 {
        thread.launch(if n % 10 == 0 { "long" } else { "short" }, 3_000);
        thread.host(7_000);
    }
    trace
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Num(number) => *number,
        Value::Int(number) => *number as f64,
        other => panic!("{other:?}"),
    }
}

#[test]
fn how_many_of_a_kind_were_drawn_does_not_matter() {
    // 100 x 50 us and 900 x 2 us are 6.8 ms, of 10 ms less the last pause: whichever were drawn.
    for (long, short) in [(2, 14), (9, 7), (100, 900)] {
        let section = trace(long, short).section(&GpuUtilisation);
        let busy = number(section.get("busy_percent"));
        assert!((busy - 100.0 * 6.8 / 9.993).abs() < 0.01, "{busy}");
        let error = number(section.cell("estimated_by_device", 0, "error_points"));
        assert!(if long == 100 { error == 0.0 } else { error > 0.1 }, "{error}");
        assert_eq!(number(section.cell("estimated_by_device", 0, "timed")) as usize, long + short);
    }
}

#[test]
fn what_was_assumed_of_timing_itself_counts_as_error_for_every_launch() {
    let mut trace = trace(100, 900);
    let error =
        |trace: &TestTrace| number(trace.section(&GpuUtilisation).cell("estimated_by_device", 0, "error_points"));
    assert_eq!(error(&trace), 0.0);
    let about = trace.manifest.as_mut().expect("a manifest");
    let events = gputrace_collectors::manifest::TimedLaunches { assumed: 1, ..Default::default() };
    let gpu_time = gputrace_collectors::manifest::GpuTime { events: Some(events), ..Default::default() };
    about.processes[0].gpu_time = Some(gpu_time);
    // 1.4 us of 1000 launches, of 9.993 ms.
    assert!((error(&trace) - 100.0 * 1.4 / 9.993).abs() < 0.01, "{}", error(&trace));
}

#[test]
fn what_was_waited_for_behind_the_last_launch_belongs_to_the_range() {
    let mut trace = trace(100, 900);
    // The first launches' begin is START; a wait that ends at 16 ms shows work until then, one of a moment none.
    let waits = [(9_900_000, 2_000, "stream"), (10_000_000, 6_000_000, "query"), (10_000_000, 6_000_000, "stream")];
    for (after, ns, kind) in waits.into_iter().chain([(30_000_000, 40_000, "context")]) {
        let row = json!({"start_ns": START + after, "api_ns": ns, "process_id": 1, "pid": 1, "device": 0, "stream": 7, "kind": kind,
            "pending_streams": 1});
        trace.row(TableId::Syncs, row);
    }
    let section = trace.section(&GpuUtilisation);
    assert_eq!(section.get("range_ns"), &Value::Num(16e6));
}

#[test]
fn a_device_that_processes_share_is_one() {
    let mut trace = trace(100, 900);
    // Another process, at the same time, with kernels that take a fifth of it.
    trace.process(2, 2, None, START + 11_000_000);
    let name_id = trace.name(NameKind::Kernel, "other");
    let row = json!({"start_ns": START, "gpu_ns": 200_000, "process_id": 2, "pid": 2, "device": 0, "stream": 7,
        "kind": "kernel", "name_id": name_id, "grid_x": 1, "weight": 64});
    trace.row(TableId::GpuSamples, row);
    let mut thread = trace.thread(2, 2);
    for _ in 0..10 {
        thread.launch("other", 3_000);
        thread.host(996_000);
    }
    let section = trace.section(&GpuUtilisation);
    assert_eq!(section.get("devices"), &Value::from(1u64));
    let busy = number(section.get("busy_percent"));
    assert!((busy - 100.0 * 8.8 / 9.993).abs() < 0.01, "{busy}");
    assert!(section.notes.iter().any(|note| note.contains("2 processes")), "{:?}", section.notes);
}

#[test]
fn a_kind_that_was_never_drawn_counts_as_the_others() {
    let section = trace(0, 10).section(&GpuUtilisation);
    let busy = number(section.get("busy_percent"));
    assert!((busy - 100.0 * 2.0 / 9.993).abs() < 0.01, "{busy}");
    assert!(number(section.cell("estimated_by_device", 0, "error_points")) > 3.0);
}

#[test]
fn kernels_are_named_with_their_share() {
    let section = trace(5, 20).section(&TimedKernels);
    assert_eq!(section.cell("by_kernel", 0, "kernel"), &Value::from("long".to_owned()));
    assert!((number(section.cell("by_kernel", 0, "gpu_ns")) - 5e6).abs() < 1.0);
    assert!((number(section.cell("by_kernel", 0, "percent")) - 100.0 * 5.0 / 6.8).abs() < 0.01);
    assert_eq!(number(section.cell("by_kernel", 1, "launches")), 900.0);
}

#[test]
fn a_trace_without_timed_launches_has_no_estimate() {
    let section = trace(0, 0).section(&TimedKernels);
    assert!(section.tables.is_empty() && !section.notes.is_empty());
}

/// A run of two parts of 10 ms: 1000 launches of a kernel of 6 us, of which a window holds 100, and 1000 of another one of 1 us, of
/// which events timed each tenth. Then so many graphs, of which nothing is known.
fn in_two_parts(graphs: usize) -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 1, None, START + 30_000_000);
    let about = trace.manifest.as_mut().expect("a manifest");
    about.processes[0].gpu_time = Some(gputrace_collectors::manifest::GpuTime {
        given_up: Some("the program uses CUDA graphs".to_owned()),
        ..Default::default()
    });
    let name_id = trace.name(NameKind::Kernel, "early");
    for (from, ended_by) in [(2_000_000, "window"), (7_000_000, "graphs")] {
        let row = json!({"start_ns": START + from, "window_ns": 500_000, "process_id": 1, "pid": 1, "kind": "window",
            "ended_by": ended_by});
        trace.row(TableId::GpuWindows, row);
        for n in 0..50 {
            let row = json!({"start_ns": START + from + 1_000 + n * 10_000, "gpu_ns": 6_000, "process_id": 1, "pid": 1,
                "device": 0, "stream": 7, "name_id": name_id, "grid_x": 1});
            trace.row(TableId::Kernels, row);
        }
    }
    let name_id = trace.name(NameKind::Kernel, "late");
    for n in 0..100 {
        let row = json!({"start_ns": START + 10_000_000 + n * 100_000, "gpu_ns": 1_000, "process_id": 1, "pid": 1, "device": 0,
            "stream": 7, "kind": "kernel", "name_id": name_id, "grid_x": 1, "weight": 10});
        trace.row(TableId::GpuSamples, row);
    }
    let mut thread = trace.thread(1, 1);
    for n in 0..2000 {
        thread.launch(if n < 1000 { "early" } else { "late" }, 3_000);
        thread.host(7_000);
    }
    (0..graphs).for_each(|_| thread.launch_graph(Some(1), Some(5), 3_000));
    trace
}

/// A section as a report has it, which knows of windows.
fn observed(trace: &TestTrace, analysis: &dyn Analysis) -> Section {
    let opened = trace.open();
    analysis.section(&Facts::gather(&opened, &Filter::of(&opened), analysis.needs()))
}

#[test]
fn a_run_in_windows_and_with_events_after_them_is_estimated_as_a_whole() {
    let trace = in_two_parts(0);
    let section = observed(&trace, &GpuUtilisation);
    // 6 ms of the first ten, 1 ms of the second.
    let busy = number(section.get("busy_percent"));
    assert!((busy - 100.0 * 7.0 / 19.993).abs() < 0.05, "{busy} {:?}", section.notes);
    assert!((number(section.get("range_ns")) - 19.993e6).abs() < 1e4);
    let row = |column: &str| number(section.cell("estimated_by_device", 0, column));
    assert_eq!((row("launches"), row("timed"), row("told")), (2000.0, 100.0, 100.0));
    assert!(row("error_points") > 0.0 && row("error_points") < 6.0, "{}", row("error_points"));
    assert!(
        section.notes.iter().any(|note| note.contains("100 of which CUPTI told in windows")),
        "{:?}",
        section.notes
    );
    // The windows have their own tables, which say that they are.
    assert!(section.tables.iter().any(|table| table.key == "by_device"));
    assert!(
        section.notes.iter().any(|note| note.contains("in the windows in which CUPTI told")),
        "{:?}",
        section.notes
    );
    let kernels = observed(&trace, &TimedKernels);
    assert_eq!(kernels.cell("by_kernel", 0, "kernel"), &Value::from("early".to_owned()));
    assert!((number(kernels.cell("by_kernel", 0, "gpu_ns")) - 6e6).abs() < 1.0);
    assert_eq!(
        (number(kernels.cell("by_kernel", 0, "told")), number(kernels.cell("by_kernel", 1, "timed"))),
        (100.0, 100.0)
    );
}

#[test]
fn launches_of_which_nothing_is_known_are_told_of() {
    let section = observed(&in_two_parts(20), &GpuUtilisation);
    assert!(
        section.notes.iter().any(|note| note.starts_with("Of 20 launches no time is known")),
        "{:?}",
        section.notes
    );
}

#[test]
fn launches_that_were_left_out_are_counted_by_those_that_were_drawn() {
    let mut trace = TestTrace::new();
    trace.process(1, 1, None, START + 11_000_000);
    // A hundred rows of 64 launches each, of 1 us, every other one timed.
    for n in 0..50 {
        let start_ns = START + 200_000 * n;
        sample(&mut trace, "tiny", start_ns, 1_000);
    }
    let mut thread = trace.thread(1, 1);
    for _ in 0..100 {
        thread.launch("tiny", 3_000);
        thread.host(97_000);
    }
    trace.set(TableId::Launches, "stands_for", &json!(64));
    let section = observed(&trace, &GpuUtilisation);
    let busy = number(section.get("busy_percent"));
    assert!((busy - 100.0 * 6.4 / 9.903).abs() < 0.05, "{busy}");
    // How many there were is known to a tenth, about.
    let error = number(section.cell("estimated_by_device", 0, "error_points"));
    assert!((10.0..16.0).contains(&error), "{error}");
    assert_eq!(number(section.cell("estimated_by_device", 0, "launches")), 6400.0);
}
