//! How busy the GPU was, by launches that events time: the estimate is what the simulated device did, and nothing of it is in
//! the program's way.

use std::path::Path;

use gputrace_collectors::manifest::TimedLaunches;
use serde_json::Value;

use crate::util::{Driver, Scratch, Target, Trace, driver_folder, linked_with_library, program_with, truth};

/// The program, linked with the simulated driver.
fn timed<'a>(scratch: &'a Scratch, scenario: &str) -> Target<'a> {
    let flags = linked_with_library("libcuda.so.1", &driver_folder(Driver::Plain), &["-l:libcuda.so.1"]);
    scratch.target(program_with("timed", "linked", &flags)).arg(scenario).with_driver(Driver::Plain)
}

fn with_events<'a>(scratch: &'a Scratch, scenario: &str) -> Target<'a> {
    let file = scratch.path().join("truth.json");
    timed(scratch, scenario).env("FAKE_CUDA_TRUTH", file).options(["--gpu-time", "events", "--malloc", "off"])
}

/// What the manifest says of the timing.
fn about(trace: &Trace) -> TimedLaunches {
    trace.root().gpu_time.and_then(|about| about.events).expect("launches were timed")
}

/// Busy time and range of the simulated device, ns: of streams that take turns.
pub(crate) fn busy(file: &Path) -> f64 {
    let text = std::fs::read_to_string(file).expect("the driver's truth");
    let truth: Value = serde_json::from_str(&text).expect("JSON");
    let spans: Vec<(f64, f64)> = truth["device"]
        .as_array()
        .expect("records")
        .iter()
        .map(|record| [&record["start_ns"], &record["end_ns"]].map(|at| at.as_f64().expect("a time")))
        .map(|[start, end]| (start, end))
        .collect();
    let (from, to) = spans.iter().fold((f64::MAX, 0f64), |(from, to), (start, end)| (from.min(*start), to.max(*end)));
    100.0 * spans.iter().map(|(start, end)| end - start).sum::<f64>() / (to - from)
}

#[test]
fn the_estimate_is_within_three_points_of_the_truth() {
    for scenario in ["random", "thin", "multiple", "streams", "graph"] {
        let scratch = Scratch::new();
        let run = with_events(&scratch, scenario).traced().expect(0);
        let trace = run.read();
        let truth = busy(&scratch.path().join("truth.json"));
        let found = scratch.section(&run, "gpu-utilisation");
        let percent = found["facts"]["busy_percent"].as_f64().unwrap_or_else(|| panic!("{scenario}: {found}"));
        // On a busy machine the device waits for its host nearly always: three points would prove nothing there.
        assert!(truth < 97.0, "{scenario}: {truth} % proves nothing");
        assert!(
            (percent - truth).abs() < f64::min(3.0, truth / 2.0),
            "{scenario}: {percent:.2} %, in truth {truth:.2} %; {:?}",
            about(&trace)
        );
        trace.assert_balanced();
    }
}

#[test]
fn kernels_are_named_with_their_times() {
    let scratch = Scratch::new();
    let run = with_events(&scratch, "multiple").traced().expect(0);
    let found = scratch.section(&run, "timed-kernels");
    let rows = found["tables"]["by_kernel"]["rows"].as_array().expect("kernels").clone();
    for (name, us) in [("spin_us_40", 40.0), ("spin_us_300", 300.0)] {
        let row = rows.iter().find(|row| row["kernel"] == name).unwrap_or_else(|| panic!("{name}: {found}"));
        let mean = row["mean_ns"].as_f64().expect("a mean") / 1000.0;
        assert!((mean - us).abs() < 5.0 + us / 50.0, "{name}: {row}");
    }
}

#[test]
fn samples_name_their_launches() {
    let scratch = Scratch::new();
    let run = with_events(&scratch, "graph").traced().expect(0);
    let (trace, names) = (run.read(), run.read().names());
    let (samples, launches) = (trace.table("gpu_samples"), trace.table("launches"));
    let calls: std::collections::BTreeMap<i64, String> =
        launches.rows().map(|row| (row.int("correlation_id"), names[&row.int("api_id")].clone())).collect();
    let graphs: Vec<_> = samples.rows().filter(|row| row.text("kind") == "graph").collect();
    // All but those that were launched before the events were made, and what a pair takes was measured: tens of ms on a busy machine.
    assert!(graphs.len() >= 300, "{} of 400", graphs.len());
    for row in &graphs {
        assert_eq!(calls[&row.int("correlation_id")], "cuGraphLaunch");
        assert_eq!(row.int("weight"), 1);
        assert!(row.int("pair_ns") >= row.int("gpu_ns"));
    }
    // The simulated GPU is a thread, which a busy machine holds up now and then.
    let near = graphs.iter().filter(|row| (row.int("gpu_ns") - 400_000).abs() < 60_000).count();
    assert!(near * 10 >= graphs.len() * 9, "{near} of {}", graphs.len());
}

#[test]
fn calls_of_the_program_are_as_many_as_without() {
    for scenario in ["random", "graph", "contexts"] {
        let scratch = Scratch::new();
        let without = timed(&scratch, scenario).options(["--gpu-time", "off"]).traced().expect(0).read().calls();
        let with = with_events(&scratch, scenario).traced().expect(0);
        assert_eq!(with.read().calls(), without, "{scenario}");
        // And ours were made.
        let records = truth(&scratch.path().join("truth.json"));
        assert!(records["cuEventRecord"] > 20, "{scenario}: {records:?}");
    }
}

#[test]
fn no_capture_is_harmed_and_nothing_is_recorded_in_it() {
    let scratch = Scratch::new();
    let run = with_events(&scratch, "capture").same().expect(0);
    let text = run.text();
    assert_eq!(text.lines().filter(|line| *line == "200 nodes").count(), 60, "{text}");
    let trace = run.read();
    assert!(about(&trace).timed > 0);
    let captured: Vec<i64> = trace
        .table("launches")
        .rows()
        .filter(|row| row.int("captured") == 1)
        .map(|row| row.int("correlation_id"))
        .collect();
    assert!(trace.table("gpu_samples").rows().all(|row| !captured.contains(&row.int("correlation_id"))));
}

#[test]
fn contexts_end_in_the_midst_of_it() {
    let scratch = Scratch::new();
    let run = with_events(&scratch, "contexts").same().expect(0);
    let about = about(&run.read());
    // On a busy machine a context may always end before its times are read.
    assert!(about.contexts > 20 && about.timed + about.lost > 0, "{about:?}");
}

#[test]
fn launches_without_a_free_pair_are_counted() {
    let scratch = Scratch::new();
    let run = with_events(&scratch, "flood").same().expect(0);
    let trace = run.read();
    let about = about(&trace);
    assert!(about.without_room > 100 && about.timed >= 512, "{about:?}");
    assert!(about.timed + about.without_room + about.lost + about.late <= 3030, "{about:?}");
    assert_eq!(about.timed, trace.table("gpu_samples").len() as u64);
}

#[test]
fn a_forked_child_times_nothing() {
    let scratch = Scratch::new();
    let run = with_events(&scratch, "fork").same().expect(0);
    let trace = run.read();
    let root = trace.root().process_id;
    assert!(trace.table("gpu_samples").rows().all(|row| row.int("process_id") == root));
    let children = trace.manifest().processes.into_iter().filter(|process| process.process_id != root);
    assert_eq!(children.filter(|process| process.gpu_time.is_some()).count(), 0);
}

#[test]
fn a_kernel_that_is_loaded_while_events_are_priced_holds_nothing_up_for_ever() {
    let scratch = Scratch::new();
    // To load its code waits for the device, and so for our stream, while whoever would open the gate there is held up.
    let trace = with_events(&scratch, "loads").same().expect(0).read();
    assert!(about(&trace).timed > 0, "{:?}", about(&trace));
    trace.assert_balanced();
}
