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
