//! The programs of examples/bottlenecks: each has exactly the finding that its first line names, and its fixed variant has none.
//!
//! The simulated driver's own account of its device is the truth that gains are made of.

use serde_json::Value;

use crate::util::{Driver, Scratch};

/// The names of the findings, and their evidence.
fn findings(scratch: &Scratch, program: &str, variant: &str) -> Vec<(String, String)> {
    let truth = scratch.path().join("truth.json");
    let script = format!("{}/examples/bottlenecks/{program}.py", env!("CARGO_MANIFEST_DIR"));
    let target = scratch.target("python3").args([&script, variant]).with_driver(Driver::Plain);
    let target = target.env("PYTHONDONTWRITEBYTECODE", "1").env("FAKE_CUDA_TRUTH", &truth);
    let run = target.traced().expect(0);
    scratch.gputrace(&["import", &truth.to_string_lossy(), "-o", &run.trace.to_string_lossy()]).expect(0);
    let arguments = ["report", &run.trace.to_string_lossy(), "--only", "summary", "--format", "json"];
    let report: Value = serde_json::from_str(&scratch.gputrace(&arguments).expect(0).text()).expect("JSON");
    let rows = report["analyses"]["summary"]["tables"]["findings"]["rows"].as_array().cloned().unwrap_or_default();
    let text = |row: &Value, key: &str| row[key].as_str().expect("a text").to_owned();
    rows.iter().map(|row| (text(row, "name"), text(row, "evidence"))).collect()
}

/// The simulated GPU works in real time, and so does the host: who is kept from its processor for milliseconds has another
/// bottleneck for that long. A machine that is quiet for one run of these shows what the program does.
const RUNS: usize = 6;

/// Asserts that the bad variant has this finding alone, with that line, and the fixed one none.
fn is_found(program: &str, finding: &str, line: &str) {
    let scratch = Scratch::new();
    let is_alone = |found: &[(String, String)]| found.len() == 1 && found[0].0 == finding && found[0].1.contains(line);
    shows(&scratch, program, "bad", is_alone);
    shows(&scratch, program, "fixed", <[_]>::is_empty);
}

#[track_caller]
fn shows(scratch: &Scratch, program: &str, variant: &str, is_right: impl Fn(&[(String, String)]) -> bool) {
    let mut seen = Vec::new();
    for _ in 0..RUNS {
        let found = findings(scratch, program, variant);
        if is_right(&found) {
            return;
        }
        seen.push(found);
    }
    panic!("{program} {variant}, of {RUNS} runs: {seen:#?}");
}

#[test]
fn many_small_kernels_are_launch_bound_and_a_graph_of_them_is_not() {
    is_found("launches", "launch-bound", "launches.py:17 forward");
}

#[test]
fn a_loss_read_in_every_step_is_a_wait_and_one_read_seldom_is_not() {
    is_found("waits", "wait-every-step", "waits.py:19 item()");
}

#[test]
fn pageable_copies_are_found_and_pinned_ones_beside_the_kernels_are_fine() {
    is_found("transfers", "pageable-copies", "transfers.py:21 copy()");
}

#[test]
fn a_free_in_the_loop_is_a_hidden_wait_and_a_buffer_that_is_kept_is_fine() {
    is_found("allocations", "hidden-waits", "allocations.py:20 free()");
}

#[test]
fn batches_loaded_when_needed_are_found_and_batches_loaded_ahead_are_fine() {
    is_found("input", "system-waits", "input.py:18 time.sleep");
}

#[test]
fn copies_behind_the_kernels_of_a_host_that_never_waits_are_found_and_those_beside_them_are_fine() {
    is_found("copies", "exposed-copies", "cuMemcpyHtoDAsync_v2 HtoD 1 a step of 16.0 MiB");
}

#[test]
fn copies_that_block_are_found_and_queued_ones_are_fine() {
    is_found("blocking", "sync-copies", "blocking.py:21 copy()");
}

#[test]
fn work_of_the_host_in_every_step_is_found_and_in_every_twentieth_is_fine() {
    is_found("host", "host-work", "host.py:12 forward()");
}

#[test]
fn code_that_is_loaded_in_every_step_is_found_and_code_that_is_loaded_once_is_fine() {
    is_found("loading", "warm-up", "loading.py:16 load()");
}

#[test]
fn a_stream_behind_the_default_stream_is_serialised_and_streams_of_their_own_are_not() {
    is_found("streams", "serialised-streams", "cuLaunchKernel 2 a step behind work of another stream");
}
