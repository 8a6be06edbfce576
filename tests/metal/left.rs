//! Commits that exceptions leave, and what comes after them.

use super::{assert_command_buffers, each};
use crate::util::count;

#[test]
fn what_is_sent_after_a_commit_was_left_is_recorded_from_deeper_functions_too() {
    each("metal_left.m", &["deep"], |run| {
        assert_eq!(run.truth("command_buffer").len(), 50, "{}", run.who);
        let commits = count(&run.process(), "commit");
        assert_eq!((commits.recorded, commits.abandoned), (50, 2), "{}", run.who);
        assert_command_buffers(run);
    });
}

#[test]
fn a_commit_that_is_left_when_metal_has_taken_its_work_is_told_when_that_has_run() {
    each("metal_left.m", &["taken"], |run| {
        assert_eq!(run.truth("command_buffer").len(), 20, "{}", run.who);
        let commits = count(&run.process(), "commit");
        // The calls that were left are missing; what they began is not.
        assert_eq!((commits.recorded, commits.abandoned), (20, 10), "{}", run.who);
        assert_command_buffers(run);
        let dispatches = run.trace.table("dispatches");
        assert!(dispatches.rows().all(|row| row.int("discarded") == 0), "{}", run.who);
    });
}
