//! Metal 4: commits of several command buffers, by number.

use super::*;

#[test]
fn a_command_buffer_of_metal_4_that_is_begun_anew_holds_nothing_of_before() {
    let folder = record("metal4-anew", |one, _| {
        for dispatches in [5, 2] {
            one.call("[MTL4CommandBuffer beginCommandBufferWithAllocator:]", [0x1000, 0, 0, 0]);
            encode(one, 0x1000, &vec![0xf1; dispatches]);
        }
        one.call("[MTL4CommandQueue commit:count:] command buffer", [0, 0x1000, 1, 0]);
        commit_numbered(one, 1, 1);
    });
    assert_eq!(values(&table(&folder, "command_buffers"), "dispatches"), [2]);
    let discarded = flags(&table(&folder, "dispatches"), "discarded");
    assert_eq!(discarded.iter().filter(|discarded| **discarded).count(), 5);
}

#[test]
fn a_commit_of_several_holds_what_it_says() {
    let folder = record("metal-4", |one, two| {
        one.text(text_kind::FUNCTION, 0xf1, 0, "a");
        encode(two, 0x5000, &[0xf1]);
        for buffer in [0x1000, 0x2000, 0x3000] {
            encode(one, buffer, &[0xf1]);
        }
        for buffer in [0x1000, 0x3000] {
            one.call("[MTL4CommandQueue commit:count:] command buffer", [0, buffer, 1, 0]);
        }
        commit_numbered(one, 1, 2);
        one.gpu_times(1, 300, 100, (FLAG_NUMBERED, status::COMPLETED));
    });
    let buffers = table(&folder, "command_buffers");
    assert_eq!((values(&buffers, "dispatches"), values(&buffers, "command_buffers")), (vec![2], vec![2]));
    assert_eq!((values(&buffers, "gpu_ns"), values(&buffers, "compute_encoders")), (vec![200], vec![2]));
    assert_eq!(numbers(&buffers, "schedule_ns"), [None], "feedback does not have it");
    assert_eq!(numbers(&table(&folder, "launches"), "kernels"), [Some(2)]);
}

#[test]
fn commits_of_metal_4_may_hold_nothing_or_more_than_is_followed() {
    let folder = Folder::new("metal4-many");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut one = target.thread(1);
    one.context(1, 0);
    commit_numbered(&mut one, 1, 0);
    for n in 0..1_030u64 {
        one.call("[MTL4CommandQueue commit:count:] command buffer", [0, 0x10_0000 + 64 * n, 2, 0]);
    }
    commit_numbered(&mut one, 2, 1_030);
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    assert_eq!(manifest.processes[0].notes.len(), 1, "{:?}", manifest.processes[0].notes);
    assert!(manifest.processes[0].notes[0].starts_with("6 command buffers beyond the first 1024 of their commit"));
    assert_eq!(values(&table(&folder, "command_buffers"), "command_buffers"), [0, 1_030]);
}

#[test]
fn commits_of_metal_4_wait_in_any_number_for_a_thread_that_is_inside_of_a_message() {
    const COMMITS: u64 = 3_000;
    let folder = record("metal4-waiting", |one, two| {
        // What began before them, and is told after them.
        let began = two.enter("[MTLCommandBuffer waitUntilCompleted]");
        for number in 1..=COMMITS {
            // A few command buffers, used again and again.
            let buffer = 0x10_0000 + 0x100 * (number % 8);
            encode(one, buffer, &[0xf1; 1]);
            one.call("[MTL4CommandQueue commit:count:] command buffer", [0, buffer, number, 0]);
            commit_numbered(one, number, 1);
        }
        two.call_since(began, "[MTLCommandBuffer waitUntilCompleted]", [0x9000, QUEUE, 0, 0]);
    });
    assert_eq!(values(&table(&folder, "command_buffers"), "dispatches"), vec![1; COMMITS as usize]);
    let dispatches = table(&folder, "dispatches");
    assert!(numbers(&dispatches, "correlation_id").iter().all(Option::is_some));
}
