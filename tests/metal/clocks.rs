//! The GPU's clock beside the host's: what is said of one that runs as the host's, and what becomes of one that does not.

use serde_json::Value;

use super::{Run, each, each_with, int, sorted};
use gputrace_collectors::manifest::GpuClock;

const CLOCK: &str = "FAKE_METAL_GPU_CLOCK";
/// What reading a clock may be off that the simulation reads once more.
const APART_NS: u64 = 2_000;

fn clock(run: &Run) -> GpuClock {
    let mut clocks = run.process().gpu_clocks;
    assert_eq!(clocks.len(), 1, "{}: {clocks:?}", run.who);
    let clock = clocks.remove(0);
    assert_eq!((clock.device, clock.violations), (0, 0), "{}: {clock:?}", run.who);
    clock
}

/// Each command buffer began when the simulation says, by no more off than is said.
#[track_caller]
fn assert_in_place(run: &Run, clock: &GpuClock) {
    let pair = run.trace.manifest().clock.pairs[0];
    let epoch_ns = pair.realtime_ns as i64 - pair.monotonic_ns as i64;
    let (truth, table) = (run.truth("command_buffer"), run.trace.table("command_buffers"));
    let rows = sorted(&table, "start_ns");
    let began: Vec<i64> = rows.iter().filter_map(|row| row.maybe_int("gpu_start_ns")).collect();
    assert_eq!((began.len(), clock.joined), (truth.len(), truth.len() as u64), "{}: {clock:?}", run.who);
    for (began, line) in began.iter().zip(&truth) {
        let off_ns = began.abs_diff(int(line, "start_ns") + epoch_ns);
        assert!(off_ns <= clock.alignment_error_ns + APART_NS, "{}: {off_ns} ns, {clock:?}", run.who);
    }
}

#[test]
fn a_clock_that_runs_as_the_hosts_is_said_to_with_its_error() {
    each("metal_training.m", &["12"], |run| {
        let clock = clock(run);
        assert_eq!((clock.runs_as_host, clock.corrected), (Some(true), 0), "{}: {clock:?}", run.who);
        assert!(clock.pairs > 0 && clock.pair_error_ns > 0, "{}: {clock:?}", run.who);
        assert!(clock.alignment_error_ns >= clock.pair_error_ns, "{}: {clock:?}", run.who);
        assert!(clock.offset_ns.is_some_and(|ns| ns.unsigned_abs() <= clock.alignment_error_ns), "{clock:?}");
        assert_in_place(run, &clock);
        let trace = run.run.trace.display().to_string();
        let report = run.scratch.gputrace(&["report", "--only", "self", "--format", "json", &trace]).expect(0);
        let all: Value = serde_json::from_str(&report.text()).expect("a report");
        let text = all.to_string();
        assert!(text.contains(r#""runs_as_host":"yes""#), "{}: {text}", run.who);
    });
}

#[test]
fn times_in_a_clock_of_the_gpus_own_that_is_off_and_drifts_are_put_right() {
    // Behind by seconds and ahead, too fast and too slow.
    for (offset_ns, ppm) in [(-7_000_000_000i64, 300.0), (50_000_000, -200.0)] {
        let variable = format!("{offset_ns},{ppm},times");
        each_with("metal_training.m", &["150"], &[(CLOCK, &variable)], |run| {
            let clock = clock(run);
            assert_eq!((clock.runs_as_host, clock.corrected), (Some(false), clock.joined), "{}: {clock:?}", run.who);
            assert_in_place(run, &clock);
            // By two pairs at least, which are off by so much; the first lies behind where the clock was set.
            let (off_ns, error_ns) = (clock.offset_ns.unwrap_or_default().abs_diff(offset_ns), clock.pair_error_ns);
            assert!(off_ns <= error_ns + 1_000_000, "{}: {clock:?}", run.who);
            assert!(clock.drift_ppm.is_some_and(|drift| (drift - ppm).abs() < 100.0), "{}: {clock:?}", run.who);
            let said = format!(
                "the times of {} of {} command buffers on GPU 0 were in a clock of its own",
                clock.joined, clock.joined
            );
            assert!(
                run.process().notes.iter().any(|note| note.starts_with(&said)),
                "{}: {:?}",
                run.who,
                run.process().notes
            );
        });
    }
}

#[test]
fn times_that_metal_put_right_stay_though_the_gpus_timestamps_are_its_own() {
    each_with("metal_training.m", &["12"], &[(CLOCK, "-7000000000,300,stamps")], |run| {
        let clock = clock(run);
        assert_eq!((clock.runs_as_host, clock.corrected), (Some(false), 0), "{}: {clock:?}", run.who);
        assert_in_place(run, &clock);
        assert_eq!(run.process().notes, Vec::<String>::new(), "{}", run.who);
    });
}

#[test]
fn a_device_that_gives_no_timestamps_is_left_at_metals_word() {
    each_with("metal_training.m", &["12"], &[(CLOCK, "0,0,none")], |run| {
        let clock = clock(run);
        assert_eq!((clock.pairs, clock.runs_as_host), (0, None), "{}: {clock:?}", run.who);
        assert_in_place(run, &clock);
    });
    // A layer whose device does not answer is sent nothing.
    each_with("metal_training.m", &["4"], &[("FAKE_METAL_LAYER", "1")], |run| {
        assert_eq!(clock(run).pairs, 0, "{}", run.who);
    });
}

#[test]
fn feedback_of_metal_4_is_put_right_by_pairs_of_its_queues_device() {
    each_with("metal_every.m", &["metal4"], &[(CLOCK, "-7000000000,300,times")], |run| {
        let clock = clock(run);
        assert_eq!((clock.joined, clock.corrected), (2, 2), "{}: {clock:?}", run.who);
        assert!(clock.pairs > 0, "{}: {clock:?}", run.who);
    });
}
