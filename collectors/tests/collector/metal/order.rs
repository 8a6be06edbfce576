//! What is told late, in parts, or twice.

use super::*;

#[test]
fn what_the_gpu_did_stands_in_the_order_of_its_begin() {
    let folder = record("metal-order", |one, two| {
        one.call("[MTLCommandBuffer commit]", [0x1000, QUEUE, 0, 1]);
        for buffer in [0x2000, 0x3000] {
            one.call("[MTLCommandBuffer commit]", [buffer, 0xb000, 0, 1]);
            two.gpu_times(buffer, 2_000, 1_000, DONE);
        }
        // It began before the others, on a queue of its own, and ended after them.
        two.gpu_times(0x1000, 10_000_000, 0, DONE);
    });
    let kernels = table(&folder, "kernels");
    assert_eq!(values(&kernels, "stream"), [QUEUE as i64, 0xb000, 0xb000]);
    assert!(values(&kernels, "start_ns").is_sorted());
}

#[test]
fn what_was_read_waits_for_what_stands_unread_in_the_shared_ring() {
    let folder = Folder::new("metal-hole");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let (mut one, mut two) = (target.thread(1), target.thread(2));
    one.text(text_kind::FUNCTION, 0xf1, 0, "first");
    two.text(text_kind::FUNCTION, 0xf2, 0, "second");
    target.wait_until_read();
    // Behind a place that a third thread took and has not written yet.
    one.tear_shared();
    let messages = [
        ("[MTLCommandQueue commandBuffer]", [0x1000, QUEUE, 0, 0]),
        ("[MTLCommandBuffer computeCommandEncoder]", [0x1010, 0x1000, 0, encoder::COMPUTE]),
        ("[MTLComputeCommandEncoder setComputePipelineState:]", [0x1010, 0, 0xf1, 0]),
        ("[MTLComputeCommandEncoder dispatchThreads]", [0x1010, 0, pack_grid(1, 1, 1), pack_block(1, 1, 1, 0)]),
        ("[MTLCommandEncoder endEncoding]", [0x1010, 0, 0, 0]),
        ("[MTLCommandBuffer commit]", [0x1000, QUEUE, 0, 1]),
    ];
    for (name, payload) in messages {
        let (hook, start) = (crate::support::hook(name), counter());
        one.shared(Event { hook, start, end: start + 100, context: 1, payload, ..Event::default() });
        while counter() < start + 100 {
            std::hint::spin_loop();
        }
    }
    // Its address is another thread's, whose ring is read at once.
    two.gpu_times(0x1000, 900, 0, DONE);
    room(&mut two, 0x1000);
    encode(&mut two, 0x1000, &[0xf2]);
    commit(&mut two, 0x1000);
    two.gpu_times(0x1000, 500, 0, DONE);
    target.wait_until_read();
    target.exit(0);
    let manifest = finish(running);
    assert!(
        manifest.processes[0].notes.iter().all(|note| !note.contains("Metal")),
        "{:?}",
        manifest.processes[0].notes
    );
    let launches = table(&folder, "launches");
    assert_eq!(numbers(&launches, "name_id"), ["first", "second"].map(kernel));
    assert_eq!(values(&table(&folder, "command_buffers"), "gpu_ns"), [900, 500]);
    assert_eq!(values(&table(&folder, "dispatches"), "correlation_id"), values(&launches, "correlation_id"));
}

#[test]
fn a_commit_that_is_told_too_late_takes_nothing_of_who_has_its_address() {
    let folder = Folder::new("metal-too-late");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let (mut one, mut two) = (target.thread(1), target.thread(2));
    room(&mut one, 0x1000);
    // In no thread's row: one that is waited for no longer.
    let began = counter();
    room(&mut two, 0x1000);
    encode(&mut two, 0x1000, &[0xf1]);
    target.wait_until_read();
    target.wait_until_read();
    one.call_since(began, "[MTLCommandBuffer commit]", [0x1000, QUEUE, 0, 1]);
    target.wait_until_read();
    commit(&mut two, 0x1000);
    target.exit(0);
    finish(running);
    assert_eq!(numbers(&table(&folder, "launches"), "kernels"), [Some(0), Some(1)]);
}

#[test]
fn of_several_commits_of_a_command_buffer_the_first_one_is_the_launch_and_has_its_time() {
    let folder = Folder::new("metal-twice");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut one = target.thread(1);
    room(&mut one, 0x1000);
    commit(&mut one, 0x1000);
    commit(&mut one, 0x1000);
    one.gpu_times(0x1000, 900, 0, DONE);
    // It has completed: the shim says that it asked.
    one.call("[MTLCommandBuffer commit]", [0x1000, QUEUE, 0, AGAIN]);
    target.exit(0);
    let manifest = finish(running);
    let told = "2 commits of Metal command buffers that had been committed already: the first one gave the GPU its work and has the \
                launch and the times; these stand in api alone";
    assert_eq!(manifest.processes[0].notes, [told]);
    assert_eq!(manifest.processes[0].accounting["commit"].recorded, 3);
    assert_eq!(numbers(&table(&folder, "command_buffers"), "gpu_ns"), [Some(900)]);
    assert_eq!(numbers(&table(&folder, "launches"), "kernels"), [Some(0)]);
    let calls = table(&folder, "api");
    let again: Vec<i64> = values(&calls, "handle")
        .into_iter()
        .zip(texts(&calls, "class"))
        .filter(|(_, class)| class == "commit")
        .map(|(handle, _)| handle)
        .collect();
    assert_eq!(again, [0x1000; 2]);
}
