//! Objects of classes that are not hooked: the program runs as without us, and the trace names them.

use super::{each, sorted};

#[test]
fn a_queue_that_nobody_saw_come_is_left_alone() {
    each("metal_odd.m", &["unseen"], |run| {
        assert_eq!(run.truth("command_buffer").len(), 3, "{}", run.who);
        assert_eq!(run.trace.table("launches").len(), 0, "{}", run.who);
    });
}

#[test]
fn who_waits_for_a_command_buffer_of_a_class_that_nobody_saw_come_has_it_named_and_seen_from_then_on() {
    each("metal_odd.m", &["waited"], |run| {
        assert_eq!(run.truth("command_buffer").len(), 5, "{}", run.who);
        let table = run.trace.table("command_buffers");
        let seen: Vec<_> =
            sorted(&table, "start_ns").iter().map(|row| (row.int("dispatches"), row.int("gpu_ns") > 0)).collect();
        // One of a usual class; the first of the other one's is missing.
        assert_eq!(seen, [(1, true); 4], "{}", run.who);
        let queues: Vec<_> = table.rows().map(|row| row.int("queue") != 0).collect();
        assert_eq!(queues, [true; 4], "{}", run.who);
        let waits = run.trace.table("syncs");
        assert_eq!(waits.rows().filter(|row| row.text("kind") == "stream").count(), 4, "{}", run.who);
        let late = "no message returned the MTLCommandBuffer of class OddSimCommandBuffer before one was waited for: until then \
             their commits, dispatches, copies and times on the GPU are missing";
        assert!(run.process().notes.contains(&late.to_owned()), "{}: {:?}", run.who, run.process().notes);
    });
}

#[test]
fn objects_of_other_kinds_than_known_are_passed_over_and_named() {
    let queues = "its command buffers, and their commits where they are of no known class, are missing";
    let said = [
        (
            "classes",
            5,
            format!("1 MTLCommandQueue of class NewSimQueue4, beyond the fourth class of the kind: {queues}"),
        ),
        (
            "wrapper",
            0,
            // Of three; the second is told of, as each twofold number is.
            format!(
                "at least 2 MTLCommandQueue of class ThinQueue, which lacks what its kind has (a wrapper, or a newer macOS): \
                 {queues}"
            ),
        ),
        (
            "signature",
            1,
            "[NewSimQueue0 commandBufferWithDescriptor:] has another signature than Metal's method of that name: its calls \
             are missing"
                .to_owned(),
        ),
    ];
    for (way, commits, note) in said {
        each("metal_odd.m", &[way], |run| {
            assert_eq!(run.process().notes, std::slice::from_ref(&note), "{}", run.who);
            // The fifth queue's command buffers are of a class that is hooked.
            assert_eq!(run.trace.table("launches").len(), commits, "{}", run.who);
            assert_eq!(run.truth("command_buffer").len(), commits.max(1), "{}", run.who);
        });
    }
}
