//! Objects of classes that are not hooked: the program runs as without us, and the trace names them.

use super::{Run, each, sorted};

const LATE: &str = "no message returned the MTLCommandBuffer of class OddSimCommandBuffer before one was committed or waited \
     for: what was encoded before that is missing, and so are commits before a wait";

/// Dispatches of each command buffer and whether the GPU's time of it is known.
fn command_buffers(run: &Run) -> Vec<(i64, bool)> {
    let table = run.trace.table("command_buffers");
    assert!(table.rows().all(|row| row.int("queue") != 0 && row.maybe_int("device") == Some(0)), "{}", run.who);
    sorted(&table, "start_ns").iter().map(|row| (row.int("dispatches"), row.int("gpu_ns") > 0)).collect()
}

#[test]
fn a_queue_that_nobody_saw_come_is_seen_from_its_first_commit_on() {
    for way in ["unseen", "private"] {
        each("metal_odd.m", &[way], |run| {
            assert_eq!(run.truth("command_buffer").len(), 3, "{}", run.who);
            // What the first one encodes is gone by before its class is known.
            assert_eq!(command_buffers(run), [(0, true), (1, true), (1, true)], "{}", run.who);
            assert_eq!(run.trace.table("launches").len(), 3, "{}", run.who);
            // Its queue is met with it: the later ones came by a message that is known.
            // They count as waits where they took long.
            let (calls, waits) = (run.trace.table("api"), run.trace.table("syncs"));
            let rooms = calls.rows().filter(|row| row.text("class") == "sync").count()
                + waits.rows().filter(|row| row.text("kind") == "room").count();
            assert_eq!(rooms, 2, "{}", run.who);
            assert_eq!(run.process().notes, [LATE], "{}", run.who);
        });
    }
}

#[test]
fn command_buffers_that_nobody_saw_come_and_that_stand_on_nothing_known_are_left_alone() {
    each("metal_odd.m", &["alien"], |run| {
        assert_eq!(run.truth("command_buffer").len(), 3, "{}", run.who);
        assert_eq!(run.trace.table("launches").len(), 0, "{}", run.who);
    });
}

#[test]
fn who_commits_command_buffers_of_a_class_that_nobody_saw_come_beside_known_ones_has_it_named() {
    each("metal_odd.m", &["waited"], |run| {
        assert_eq!(run.truth("command_buffer").len(), 5, "{}", run.who);
        // One of a usual class, then four of the other one's.
        assert_eq!(command_buffers(run), [(1, true), (0, true), (1, true), (1, true), (1, true)], "{}", run.who);
        let waits = run.trace.table("syncs");
        assert_eq!(waits.rows().filter(|row| row.text("kind") == "stream").count(), 4, "{}", run.who);
        let first = "2 messages to Metal encoders whose command buffer was not seen";
        assert_eq!(run.process().notes, [LATE, first], "{}", run.who);
    });
}

#[test]
fn objects_of_other_kinds_than_known_are_passed_over_and_named() {
    let queues = "its command buffers, and their commits where they are of no known class, are missing";
    let said = [
        (
            "classes",
            5,
            vec![format!("1 MTLCommandQueue of class NewSimQueue4, beyond the fourth class of the kind: {queues}")],
        ),
        (
            "wrapper",
            1,
            vec![
                // Of three; the second is told of, as each twofold number is.
                format!(
                    "at least 2 MTLCommandQueue of class ThinQueue, which lacks what its kind has (a wrapper, or a newer macOS): \
                     {queues}"
                ),
                LATE.to_owned(),
            ],
        ),
        (
            "signature",
            1,
            vec![
                "[NewSimQueue0 commandBufferWithDescriptor:] has another signature than Metal's method of that name: its calls \
                 are missing"
                    .to_owned(),
            ],
        ),
    ];
    for (way, commits, notes) in said {
        each("metal_odd.m", &[way], |run| {
            assert_eq!(run.process().notes, notes, "{}", run.who);
            // The fifth queue's command buffers are of a class that is hooked.
            assert_eq!(run.trace.table("launches").len(), commits, "{}", run.who);
            assert_eq!(run.truth("command_buffer").len(), commits, "{}", run.who);
        });
    }
}
