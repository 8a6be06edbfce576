//! A layer for debugging in between, whose objects pass messages on, and hooks of another one in classes above those that are hooked.

use super::{assert_command_buffers, assert_dispatches, each, each_with};
use crate::util::count;

const LAYER: [(&str, &str); 1] = [("FAKE_METAL_LAYER", "1")];

#[test]
fn commits_of_metal_4_through_a_layer_count_once_and_have_their_times() {
    each_with("metal_every.m", &["metal4"], &LAYER, |run| {
        assert_eq!(count(&run.process(), "commit").recorded, 3, "{}", run.who);
        let buffers = run.trace.table("command_buffers");
        // The last one has options of the program's own, which keep what is added to them.
        let timed = buffers.rows().filter(|row| row.maybe_int("gpu_ns").is_some()).count();
        assert_eq!((buffers.len(), timed), (3, 2), "{}", run.who);
    });
}

#[test]
fn a_wait_for_room_in_a_layers_queue_is_one_of_that_queue() {
    each_with("metal_waits.m", &["room"], &LAYER, |run| {
        assert_eq!(count(&run.process(), "commit").recorded, 3, "{}", run.who);
        let syncs = run.trace.table("syncs");
        let rooms = syncs.rows().filter(|row| row.text("kind") == "room").count();
        assert_eq!(rooms, 1, "{}", run.who);
    });
}

#[test]
fn another_ones_hooks_in_classes_above_are_called_as_long_as_they_stand_there() {
    for (way, called) in [("above", "above 3 3 3 3\n"), ("removed", "above 1 1 1 1\n")] {
        each("metal_odd.m", &[way], |run| {
            assert!(run.run.text().contains(called), "{} {way}: {}", run.who, run.run.text());
            assert_command_buffers(run);
            assert_dispatches(run);
        });
    }
}

#[test]
fn methods_that_another_one_puts_into_a_class_between_are_called_as_without_us() {
    each("metal_between.m", &[], |run| {
        assert_eq!(run.run.text(), "added 3 and 3, replaced 3\n", "{}", run.who);
        assert_command_buffers(run);
        // Each message once, whoever passes it on.
        let hooks = run.process().coverage.hooks;
        let calls = |name: &str| hooks.iter().filter(|hook| hook.name == name).map(|hook| hook.calls).sum::<u64>();
        let names = ["enqueue", "commit", "waitUntilScheduled"].map(|name| format!("[MTLCommandBuffer {name}]"));
        assert_eq!(names.map(|name| calls(&name)), [4; 3], "{}", run.who);
    });
}
