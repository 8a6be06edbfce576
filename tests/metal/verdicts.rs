//! What the summary says of runs on Metal that went wrong, or that the trace knows in part.

use super::{Run, each, each_of, sorted};

/// The summary has this line.
#[track_caller]
fn assert_said(run: &Run, said: &str) {
    let text = &run.run.stderr;
    assert!(text.lines().any(|line| line.contains(said)), "{}: {said} in {text}", run.who);
}

#[test]
fn work_that_failed_and_what_answered_nil_are_told() {
    each("metal_odd.m", &["vanish"], |run| {
        assert_said(run, "GPU ERRORS: 1 of 1 command buffer ended in an error");
        // The second queue, its command buffer, and a buffer.
        let results = |table: &str| run.trace.table(table).rows().filter(|row| row.int("result") == 1).count();
        assert_eq!((results("api"), results("device_memory")), (3, 1), "{}", run.who);
    });
    each("metal_waits.m", &["event"], |run| {
        let table = run.trace.table("syncs");
        let events = table.rows().filter(|row| row.text("kind") == "event");
        let results: Vec<i64> = events.map(|row| row.int("result")).collect();
        assert_eq!(results, [0, 1], "{}: the second gave up", run.who);
    });
}

#[test]
fn a_program_that_leaves_the_rest_to_completion_handlers_is_judged() {
    each("metal_odd.m", &["released"], |run| {
        assert!(
            !run.run.stderr.contains("clock") && !run.run.stderr.contains("UNKNOWN"),
            "{}: {}",
            run.who,
            run.run.stderr
        );
    });
}

#[test]
fn a_run_of_which_a_part_is_timed_is_not_judged_as_if_all_were() {
    each("metal_every.m", &["metal4"], |run| {
        assert_said(run, "UNKNOWN: 1 of 3 command buffers has no time on the GPU");
    });
    each("metal_odd.m", &["alien"], |run| {
        assert_said(run, "no commit among them, though command buffers that stand");
    });
}

#[test]
fn a_process_that_ends_in_the_middle_has_its_commit_without_a_time() {
    each("metal_odd.m", &["never"], |run| {
        let table = run.trace.table("command_buffers");
        let seen: Vec<_> = table.rows().map(|row| (row.int("dispatches"), row.maybe_int("gpu_ns"))).collect();
        assert_eq!(seen, [(1, None)], "{}", run.who);
        // That of the one which nobody commits is told to be for nothing.
        let dispatches = run.trace.table("dispatches");
        let told: Vec<_> = sorted(&dispatches, "start_ns")
            .iter()
            .map(|row| (row.maybe_int("correlation_id").is_some(), row.int("discarded")))
            .collect();
        assert_eq!(told, [(false, 1), (true, 0)], "{}", run.who);
    });
}

#[test]
fn what_macos_has_nothing_to_ask_for_is_said_where_it_was_wanted() {
    each_of("metal_training.m", &["2"], &[], &["--malloc-arenas", "1"], |run| {
        let notes = run.process().notes;
        let said = |note: &String| note.starts_with("--malloc-arenas has nothing to ask here");
        assert_eq!(notes.iter().filter(|note| said(note)).count(), 1, "{}: {notes:?}", run.who);
    });
}
