//! Queues of Metal 4 that are not Metal's alone: each commit goes the way that it goes without us.

use super::each;
use crate::util::count;

#[test]
fn another_ones_commit_and_a_layers_without_options_are_called_as_alone() {
    for way in ["before", "after", "thin"] {
        each("metal_queue4.m", &[way], |run| {
            assert_eq!(run.run.text(), "seen 3\n", "{}", run.who);
            assert_eq!(run.truth("command_buffer").len(), 3, "{}", run.who);
            assert_eq!(count(&run.process(), "commit").recorded, 3, "{}", run.who);
            let table = run.trace.table("command_buffers");
            let told: Vec<_> = table.rows().map(|row| (row.int("dispatches"), row.maybe_int("gpu_ns"))).collect();
            assert_eq!(told, [(1, None); 3], "{}: their times need options", run.who);
        });
    }
}

#[test]
fn another_ones_method_that_comes_to_a_subclass_after_its_first_commit_is_called_as_alone() {
    each("metal_queue4.m", &["later"], |run| {
        assert_eq!(run.run.text(), "seen 3\n", "{}", run.who);
        assert_eq!(run.truth("command_buffer").len(), 4, "{}", run.who);
        assert_eq!(count(&run.process(), "commit").recorded, 4, "{}", run.who);
    });
}

#[test]
fn each_of_thousands_of_commits_in_flight_has_its_time() {
    each("metal_queue4.m", &["flight"], |run| {
        let table = run.trace.table("command_buffers");
        let told: Vec<_> = table.rows().map(|row| (row.int("dispatches"), row.maybe_int("gpu_ns").is_some())).collect();
        assert_eq!(told, [(1, true); 4_000], "{}", run.who);
        assert!(
            table.rows().all(|row| row.maybe_int("schedule_ns").is_none()),
            "{}: feedback does not have it",
            run.who
        );
        assert_eq!(run.process().notes, Vec::<String>::new(), "{}", run.who);
    });
}
