//! GPUs that the program uses, and that no hooked function gave to it.

use super::{assert_command_buffers, each_with, sorted};

#[test]
fn a_device_that_no_hooked_function_returned_is_another_gpu() {
    each_with("metal_given.m", &[], &[("FAKE_METAL_DEVICES", "3")], |run| {
        assert_command_buffers(run);
        let table = run.trace.table("command_buffers");
        let devices: Vec<_> =
            sorted(&table, "start_ns").iter().map(|row| (row.maybe_int("device"), row.int("dispatches"))).collect();
        assert_eq!(devices, [[(Some(0), 1); 3], [(Some(1), 2); 3]].concat(), "{}", run.who);
        let memory = run.trace.table("device_memory");
        let taken = memory.rows().filter(|row| row.text("action") == "alloc");
        let taken: Vec<_> = taken.map(|row| (row.maybe_int("device"), row.int("bytes"))).collect();
        assert_eq!(taken, [(Some(0), 1000), (Some(1), 2000)], "{}", run.who);
    });
}
