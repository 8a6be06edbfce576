//! The programs of examples/bottlenecks: each has exactly the finding that its first line names, and the verdict that goes with it; its
//! fixed variant has none.
//!
//! The simulated driver's own account of its device is the truth that gains are made of.

use serde_json::Value;

use crate::util::{Driver, Scratch};

/// What a run shows: its verdict, and of each finding the name, the evidence, and what part of a step it is worth.
#[derive(Debug)]
struct Shown {
    verdict: String,
    found: Vec<(String, String, f64)>,
}

fn shown(scratch: &Scratch, program: &str, variant: &str) -> Shown {
    let truth = scratch.path().join("truth.json");
    let script = format!("{}/examples/bottlenecks/{program}.py", env!("CARGO_MANIFEST_DIR"));
    let target = scratch.target("python3").args([&script, variant]).with_driver(Driver::Plain);
    let target = target.env("PYTHONDONTWRITEBYTECODE", "1").env("FAKE_CUDA_TRUTH", &truth);
    let run = target.traced().expect(0);
    scratch.gputrace(&["import", &truth.to_string_lossy(), "-o", &run.trace.to_string_lossy()]).expect(0);
    let arguments = ["report", &run.trace.to_string_lossy(), "--only", "summary", "--format", "json"];
    let report: Value = serde_json::from_str(&scratch.gputrace(&arguments).expect(0).text()).expect("JSON");
    let summary = &report["analyses"]["summary"];
    let rows = summary["tables"]["findings"]["rows"].as_array().cloned().unwrap_or_default();
    let text = |row: &Value, key: &str| row[key].as_str().expect("a text").to_owned();
    let finding = |row: &Value| {
        (text(row, "name"), text(row, "evidence"), row["gain_percent"].as_f64().expect("its gain is known"))
    };
    Shown { verdict: text(&summary["facts"], "verdict"), found: rows.iter().map(finding).collect() }
}

/// The simulated GPU works in real time, and so does the host: who is kept from its processor for milliseconds has another
/// bottleneck for that long. A machine that is quiet for one run of these shows what the program does.
const RUNS: usize = 6;

/// Asserts that the bad variant has this finding alone, with that line, and this verdict where it is worth a tenth of a step; and
/// that the fixed one has none.
fn is_found(program: &str, finding: &str, line: &str, verdict: &str) {
    let scratch = Scratch::new();
    // Steps in which the machine did something else are not the program's.
    let is_own = |of: &&(String, String, f64)| of.0 != "outlier-steps";
    let is_it = |shown: &Shown| {
        let own: Vec<_> = shown.found.iter().filter(is_own).collect();
        let [(name, evidence, _)] = own.as_slice() else { return false };
        let agrees = shown.found.first().is_some_and(|first| {
            let word = if is_own(&first) { verdict } else { "OUTLIER STEPS" };
            first.2 < 10.0 || shown.verdict == word
        });
        name == finding && evidence.contains(line) && agrees
    };
    shows(&scratch, program, "bad", is_it);
    shows(&scratch, program, "fixed", |shown| !shown.found.iter().any(|of| is_own(&of)));
}

#[track_caller]
fn shows(scratch: &Scratch, program: &str, variant: &str, is_right: impl Fn(&Shown) -> bool) {
    let mut seen = Vec::new();
    for _ in 0..RUNS {
        let run = shown(scratch, program, variant);
        if is_right(&run) {
            return;
        }
        seen.push(run);
    }
    panic!("{program} {variant}, of {RUNS} runs: {seen:#?}");
}

#[test]
fn many_small_kernels_are_launch_bound_and_a_graph_of_them_is_not() {
    is_found("launches", "launch-bound", "launches.py:17 forward", "LAUNCH BOUND");
}

#[test]
fn a_loss_read_in_every_step_is_a_wait_and_one_read_seldom_is_not() {
    is_found("waits", "wait-every-step", "waits.py:19 item()", "SYNC BOUND");
}

#[test]
fn pageable_copies_are_found_and_pinned_ones_beside_the_kernels_are_fine() {
    is_found("transfers", "pageable-copies", "transfers.py:21 copy()", "TRANSFER BOUND");
}

#[test]
fn a_free_in_the_loop_is_a_hidden_wait_and_a_buffer_that_is_kept_is_fine() {
    is_found("allocations", "hidden-waits", "allocations.py:20 free()", "ALLOCATION BOUND");
}

#[test]
fn batches_loaded_when_needed_are_found_and_batches_loaded_ahead_are_fine() {
    is_found("input", "system-waits", "input.py:18 time.sleep", "HOST BOUND");
}

#[test]
fn copies_behind_the_kernels_of_a_host_that_never_waits_are_found_and_those_beside_them_are_fine() {
    is_found("copies", "exposed-copies", "cuMemcpyHtoDAsync_v2 HtoD 1 a step of 16.0 MiB", "TRANSFER BOUND");
}

#[test]
fn copies_that_block_are_found_and_queued_ones_are_fine() {
    is_found("blocking", "sync-copies", "blocking.py:21 copy()", "TRANSFER BOUND");
}

#[test]
fn work_of_the_host_in_every_step_is_found_and_in_every_twentieth_is_fine() {
    is_found("host", "host-work", "host.py:12 forward()", "HOST BOUND");
}

#[test]
fn code_that_is_loaded_in_every_step_is_found_and_code_that_is_loaded_once_is_fine() {
    is_found("loading", "warm-up", "loading.py:16 load()", "LOADING");
}

#[test]
fn a_stream_behind_the_default_stream_is_serialised_and_streams_of_their_own_are_not() {
    is_found("streams", "serialised-streams", "cuLaunchKernel 2 a step behind work of another stream", "GPU BOUND");
}
