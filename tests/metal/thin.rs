//! A layer's objects that answer no message which their program does not send.

use super::{each, sorted};

#[test]
fn objects_are_not_asked_what_their_class_does_not_answer() {
    each("metal_thin.m", &[], |run| {
        assert_eq!(run.run.text(), "1\n", "{}", run.who);
        let table = run.trace.table("command_buffers");
        let seen: Vec<_> = sorted(&table, "start_ns")
            .iter()
            .map(|row| {
                (row.int("dispatches"), row.maybe_int("gpu_ns").is_some(), row.maybe_int("schedule_ns").is_some())
            })
            .collect();
        assert_eq!(seen, [(1, true, false); 3], "{}", run.who);
        assert!(table.rows().all(|row| row.maybe_text("status") == Some("completed")), "{}", run.who);
        // Its bytes are not known.
        let memory = run.trace.table("device_memory");
        assert_eq!(memory.rows().map(|row| row.int("bytes")).collect::<Vec<_>>(), [0], "{}", run.who);
    });
}
