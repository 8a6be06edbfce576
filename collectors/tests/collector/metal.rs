//! Messages of Metal become command buffers.

mod clocks;
mod four;
mod labels;
mod memory;
mod order;

use arrow::array::RecordBatch;
use gputrace_abi::clock::counter;
use gputrace_abi::event::{Event, pack_block, pack_grid, text_kind};
use gputrace_abi::metal::{AGAIN, FLAG_NUMBERED, encoder, status, storage};
use gputrace_collectors::names::{NameKind, id};

use crate::rows::{batches, count, flags, numbers, texts, values};
use crate::support::{Folder, Target, Thread};
use crate::{assert_exact, collect, finish};

/// Longer than a row of the hook table, as most of Metal's.
const COPY: &str = "[MTLBlitCommandEncoder copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:]";

const QUEUE: u64 = 0xa000;
const DONE: (u16, u16) = (0, status::COMPLETED);

/// Encodes so many dispatches of a pipeline into a command buffer.
fn encode(thread: &mut Thread<'_>, buffer: u64, pipelines: &[u64]) {
    let own = buffer + 0x10;
    thread.call("[MTLCommandBuffer computeCommandEncoder]", [own, buffer, 0, encoder::COMPUTE]);
    for pipeline in pipelines {
        thread.call("[MTLComputeCommandEncoder setComputePipelineState:]", [own, 0, *pipeline, 0]);
        let (threads, group) = (pack_grid(1000, 2, 1), pack_block(64, 2, 1, 0));
        thread.call("[MTLComputeCommandEncoder dispatchThreads]", [own, 0, threads, group]);
    }
    thread.call("[MTLCommandEncoder endEncoding]", [own, 0, 0, 0]);
}

fn room(thread: &mut Thread<'_>, buffer: u64) {
    thread.call("[MTLCommandQueue commandBuffer]", [buffer, QUEUE, 0, 0]);
}

fn commit(thread: &mut Thread<'_>, buffer: u64) {
    thread.call("[MTLCommandBuffer commit]", [buffer, QUEUE, 0, 1]);
}

/// A commit of Metal 4's, of so many command buffers.
fn commit_numbered(thread: &mut Thread<'_>, number: u64, count: u64) {
    let start = counter();
    thread.event(Event {
        hook: crate::support::hook("[MTL4CommandQueue commit:count:]"),
        start,
        end: start + 100,
        flags: FLAG_NUMBERED,
        payload: [number, QUEUE, 0, count],
        ..Event::default()
    });
}

/// A moment that is so long ago that a call which began then has waited.
fn long_ago() -> u64 {
    let (now, began) = (counter(), std::time::Instant::now());
    while began.elapsed() < std::time::Duration::from_micros(100) {
        std::hint::spin_loop();
    }
    now
}

/// Records what `job` writes with two threads, and gives the trace.
fn record(name: &str, job: impl for<'a> FnOnce(&mut Thread<'a>, &mut Thread<'a>)) -> Folder {
    let folder = Folder::new(name);
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let (mut one, mut two) = (target.thread(1), target.thread(2));
    one.context(1, 0);
    job(&mut one, &mut two);
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    // Most times here are made up, of moments before their commit too: clocks.rs is about those.
    let is_told = |note: &&String| !note.contains("begin before their commit");
    assert_eq!(manifest.processes[0].notes.iter().filter(is_told).collect::<Vec<_>>(), Vec::<&String>::new());
    folder
}

fn table(folder: &Folder, name: &str) -> Vec<RecordBatch> {
    batches(&folder.trace(), name)
}

fn kernel(name: &str) -> Option<i64> {
    Some(id(NameKind::Kernel, name))
}

#[test]
fn a_commit_is_a_launch_of_what_was_encoded_and_an_interval_of_the_gpu() {
    let folder = record("metal", |one, two| {
        one.text(text_kind::FUNCTION, 0xf1, 0, "gemm");
        one.text(text_kind::FUNCTION, 0xf2, 0, "relu");
        room(one, 0x1000);
        encode(one, 0x1000, &[0xf1, 0xf2, 0xf1]);
        commit(one, 0x1000);
        two.gpu_times(0x1000, 5_000, 1_000, DONE);
        one.call("[MTLCommandBuffer waitUntilCompleted]", [0x1000, QUEUE, 0, 0]);
        one.call("[MTLCommandBuffer waitUntilCompleted]", [0x1000, QUEUE, 0, 0]);
    });
    let launches = table(&folder, "launches");
    let commits = values(&launches, "correlation_id");
    assert_eq!(numbers(&launches, "name_id"), [kernel("gemm +1")]);
    assert_eq!((numbers(&launches, "kernels"), numbers(&launches, "device")), (vec![Some(3)], vec![Some(0)]));
    assert_eq!((values(&launches, "function"), values(&launches, "stream")), (vec![0x1000], vec![QUEUE as i64]));
    assert_eq!((values(&launches, "grid_x"), flags(&launches, "captured")), (vec![0], vec![false]));

    let dispatches = table(&folder, "dispatches");
    assert_eq!(values(&dispatches, "correlation_id"), [commits[0]; 3]);
    assert_eq!(numbers(&dispatches, "name_id"), ["gemm", "relu", "gemm"].map(kernel));
    assert_eq!((values(&dispatches, "size_x"), values(&dispatches, "group_y")), (vec![1000; 3], vec![2; 3]));
    assert_eq!((values(&dispatches, "threads"), texts(&dispatches, "kind")[0].as_str()), (vec![2000; 3], "threads"));

    let buffers = table(&folder, "command_buffers");
    assert_eq!((values(&buffers, "correlation_id"), values(&buffers, "dispatches")), (commits.clone(), vec![3]));
    assert_eq!((values(&buffers, "compute_encoders"), values(&buffers, "blit_encoders")), (vec![1], vec![0]));
    assert_eq!((values(&buffers, "gpu_ns"), values(&buffers, "schedule_ns")), (vec![4_000], vec![7_000]));
    assert_eq!((texts(&buffers, "status"), flags(&buffers, "labelled")), (vec!["completed".to_owned()], vec![false]));
    assert!(values(&buffers, "encode_ns")[0] > values(&dispatches, "api_ns")[0] * 5);

    let kernels = table(&folder, "kernels");
    assert_eq!((values(&kernels, "correlation_id"), values(&kernels, "gpu_ns")), (commits, vec![4_000]));
    assert_eq!(values(&kernels, "start_ns"), values(&buffers, "gpu_start_ns"));
    let syncs = table(&folder, "syncs");
    assert_eq!(texts(&syncs, "kind"), ["stream", "stream"]);
    assert_eq!(values(&syncs, "pending_streams"), [1, 0], "the first one waited for it");
    assert_eq!(texts(&table(&folder, "api"), "class"), ["sync"], "there was room");
}

#[test]
fn addresses_come_back_and_threads_share_the_work() {
    let folder = record("metal-again", |one, two| {
        two.text(text_kind::FUNCTION, 0xf1, 0, "a");
        two.text(text_kind::FUNCTION, 0xf2, 0, "b");
        for n in 0..6 {
            room(one, 0x1000);
            // What is encoded by one thread is committed by another, whose ring may be read first.
            encode(if n % 2 == 0 { one } else { two }, 0x1000, &[if n % 3 == 0 { 0xf1 } else { 0xf2 }]);
            commit(if n % 2 == 0 { two } else { one }, 0x1000);
            one.gpu_times(0x1000, 100 + n, 50, DONE);
        }
    });
    let launches = table(&folder, "launches");
    let names = |table: &[RecordBatch]| {
        let mut rows: Vec<_> = values(table, "start_ns").into_iter().zip(numbers(table, "name_id")).collect();
        rows.sort();
        rows.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(&launches), ["a", "b", "b", "a", "b", "b"].map(kernel));
    assert_eq!(values(&launches, "grid_x"), [16; 6], "of a lone dispatch");
    let buffers = table(&folder, "command_buffers");
    assert_eq!(names(&buffers), names(&launches));
    assert_eq!(values(&buffers, "gpu_ns"), (50..56).collect::<Vec<i64>>());
}

#[test]
fn copies_alone_are_copies_on_the_gpu_and_know_their_buffers() {
    let folder = record("metal-blit", |one, _| {
        let private = storage::PRIVATE << 4;
        one.call("[MTLDevice newBufferWithLength:options:]", [0x50, 0, 0, 4096]);
        one.call("[MTLDevice newBufferWithLength:options:]", [0x60, 0, private, 8192]);
        one.call("[MTLDevice newBufferWithBytesNoCopy]", [0x70, 0, 0x7000_0000, 100]);
        room(one, 0x1000);
        one.call("[MTLCommandBuffer computeCommandEncoder]", [0x1010, 0x1000, 0, encoder::BLIT]);
        one.call(COPY, [0x60, 0x1010, 0x50, 64]);
        one.call("[MTLBlitCommandEncoder fillBuffer:range:value:]", [0x60, 0x1010, 0, 32]);
        one.call("[MTLCommandEncoder endEncoding]", [0x1010, 0, 0, 0]);
        commit(one, 0x1000);
        one.gpu_times(0x1000, 100, 50, DONE);
        one.call("[MTLBuffer dealloc]", [0x60, 0, 0, 0]);
        // A part of a heap.
        one.call("[MTLBuffer dealloc]", [0x90, 0, 0, 0]);
    });
    let transfers = table(&folder, "transfers");
    assert_eq!(texts(&transfers, "direction"), ["DtoD", "D"]);
    assert_eq!(
        (texts(&transfers, "src_kind"), texts(&transfers, "dst_kind")[0].as_str()),
        (vec!["managed".to_owned(), "-".to_owned()], "device")
    );
    assert_eq!(values(&transfers, "stream"), [QUEUE as i64; 2]);
    let copies = table(&folder, "device_copies");
    assert_eq!((values(&copies, "bytes"), values(&copies, "gpu_ns")), (vec![96], vec![50]));
    assert_eq!(
        (texts(&copies, "kind"), texts(&copies, "direction")),
        (vec!["copy".to_owned()], vec!["unknown".to_owned()])
    );
    assert_eq!(count(&folder.trace(), "kernels"), 0);
    let names: Vec<_> = texts(&table(&folder, "names"), "name").into_iter().filter(|name| *name == COPY).collect();
    assert_eq!((names.len(), values(&transfers, "api_id")[0]), (1, id(NameKind::Api, COPY)));
    let memory = table(&folder, "device_memory");
    assert_eq!(texts(&memory, "kind"), ["managed", "device", "registered", "device"]);
    assert_eq!(values(&memory, "bytes"), [4096, 8192, 100, 8192]);
}

#[test]
fn a_new_command_buffer_waits_only_when_the_queue_is_full() {
    let folder = record("metal-room", |one, two| {
        one.call("[MTLDevice newCommandQueueWithMaxCommandBufferCount:]", [QUEUE, 0, 0, 2]);
        for buffer in [0x1000, 0x2000] {
            room(one, buffer);
            commit(one, buffer);
        }
        // Two have not completed; the first one does while the third is waited for.
        let asked = long_ago();
        one.call_since(asked, "[MTLCommandQueue commandBuffer]", [0x3000, QUEUE, 0, 0]);
        two.gpu_times(0x1000, 200, 0, DONE);
        commit(one, 0x3000);
        two.gpu_times(0x2000, 200, 0, DONE);
        room(one, 0x4000);
    });
    let syncs = table(&folder, "syncs");
    assert_eq!((texts(&syncs, "kind"), values(&syncs, "handle")), (vec!["room".to_owned()], vec![0x3000]));
    assert_eq!(values(&syncs, "pending_streams"), [1]);
    assert_eq!(values(&table(&folder, "api"), "handle"), [QUEUE as i64, 0x1000, 0x2000, 0x4000]);
    let buffers = table(&folder, "command_buffers");
    assert_eq!(texts(&buffers, "status"), ["completed", "completed", "-"], "the last one was not seen to end");
}

#[test]
fn command_buffers_that_are_let_go_of_without_a_commit_give_their_room_back() {
    let folder = record("metal-dropped", |one, two| {
        one.call("[MTLDevice newCommandQueueWithMaxCommandBufferCount:]", [QUEUE, 0, 0, 2]);
        // At addresses that do not come again. From the third on there is room where there would be none.
        for n in 1..=5 {
            room(one, 0x1000 * n);
        }
        // One that takes long does so for another reason: four are gone.
        let asked = long_ago();
        one.call_since(asked, "[MTLCommandQueue commandBuffer]", [0x8000, QUEUE, 0, 0]);
        commit(one, 0x5000);
        commit(one, 0x8000);
        let asked = long_ago();
        one.call_since(asked, "[MTLCommandQueue commandBuffer]", [0x9000, QUEUE, 0, 0]);
        two.gpu_times(0x5000, 200, 0, DONE);
    });
    let syncs = table(&folder, "syncs");
    assert_eq!((texts(&syncs, "kind"), values(&syncs, "handle")), (vec!["room".to_owned()], vec![0x9000]));
}

#[test]
fn who_is_waited_for_was_committed_whether_that_was_seen_or_not() {
    let folder = Folder::new("metal-unseen-commit");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut one = target.thread(1);
    for n in 0..3 {
        room(&mut one, 0x1000);
        encode(&mut one, 0x1000, &[0xf1]);
        if n < 2 {
            one.call("[MTLCommandBuffer waitUntilCompleted]", [0x1000, QUEUE, 0, 0]);
        }
    }
    target.exit(0);
    let manifest = finish(running);
    let notes = &manifest.processes[0].notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("2 Metal command buffers were waited for and their commit was not seen"), "{notes:?}");
    assert_eq!(flags(&table(&folder, "dispatches"), "discarded"), [false; 3]);
}

#[test]
fn dispatches_beyond_those_that_are_held_for_their_commit_are_told() {
    const MOST: usize = 1 << 17;
    let folder = Folder::new("metal-held");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut one = target.thread(1);
    one.call("[MTLCommandQueue commandBuffer]", [0x1000, QUEUE, 0, 0]);
    one.call("[MTLCommandBuffer computeCommandEncoder]", [0x1010, 0x1000, 0, encoder::COMPUTE]);
    for n in 0..MOST + 3 {
        let (threads, group) = (pack_grid(1000, 2, 1), pack_block(64, 2, 1, 0));
        one.call("[MTLComputeCommandEncoder dispatchThreads]", [0x1010, 0, threads, group]);
        if n % (1 << 12) == 0 {
            target.wait_until_read();
        }
    }
    commit(&mut one, 0x1000);
    target.exit(0);
    let manifest = finish(running);
    let told =
        "3 Metal dispatches beyond 131072 in command buffers that were not committed yet: their rows are of no commit";
    assert_eq!(manifest.processes[0].notes, [told]);
}

#[test]
fn a_new_command_buffer_may_have_the_address_of_one_that_completed_while_it_was_waited_for() {
    let folder = record("metal-reused", |one, two| {
        room(one, 0x1000);
        commit(one, 0x1000);
        let asked = counter();
        one.gpu_times(0x1000, 100, 0, DONE);
        two.call_since(asked, "[MTLCommandQueue commandBuffer]", [0x1000, QUEUE, 0, 0]);
        commit(two, 0x1000);
        one.gpu_times(0x1000, 100, 0, DONE);
    });
    assert_eq!(texts(&table(&folder, "command_buffers"), "status"), ["completed", "completed"]);
}

#[test]
fn a_commit_that_is_told_late_keeps_its_place() {
    let folder = record("metal-late", |one, two| {
        room(one, 0x1000);
        let began = one.enter("[MTLCommandBuffer commit]");
        // It completes, and its address is another's, before its thread runs on and tells of it.
        two.gpu_times(0x1000, 900, 0, DONE);
        room(two, 0x1000);
        commit(two, 0x1000);
        two.gpu_times(0x1000, 500, 0, DONE);
        std::thread::sleep(std::time::Duration::from_millis(50));
        one.call_since(began, "[MTLCommandBuffer commit]", [0x1000, QUEUE, 0, 1]);
    });
    let buffers = table(&folder, "command_buffers");
    assert_eq!(texts(&buffers, "status"), ["completed", "completed"]);
    assert_eq!(values(&buffers, "gpu_ns"), [900, 500]);
}

#[test]
fn what_nobody_commits_is_told_without_a_commit() {
    let folder = record("metal-open", |one, _| {
        room(one, 0x1000);
        encode(one, 0x1000, &[0xf1, 0xf1]);
        // The address comes back: the first command buffer was thrown away.
        room(one, 0x1000);
        encode(one, 0x1000, &[0xf1]);
        commit(one, 0x1000);
        // Of one that nobody saw made nobody need see the commit.
        encode(one, 0x3000, &[0xf1]);
    });
    let dispatches = table(&folder, "dispatches");
    let told = numbers(&dispatches, "correlation_id").into_iter().map(|id| id.is_some());
    let mut told: Vec<_> = told.zip(flags(&dispatches, "discarded")).collect();
    told.sort_unstable();
    assert_eq!(told, [(false, false), (false, true), (false, true), (true, false)]);
    assert_eq!(numbers(&table(&folder, "launches"), "kernels"), [Some(1)]);
}

#[test]
fn a_queue_that_waits_for_an_event_waits_for_who_signals_it() {
    let folder = record("metal-events", |one, _| {
        room(one, 0x1000);
        one.call("[MTLCommandBuffer encodeSignalEvent:value:]", [0xee, QUEUE, 0x1000, 1]);
        commit(one, 0x1000);
        one.call("[MTLCommandQueue commandBuffer]", [0x2000, 0xb000, 0, 0]);
        one.call("[MTLCommandBuffer encodeWaitForEvent:value:]", [0xee, 0, 1, 0x2000]);
    });
    let syncs = table(&folder, "syncs");
    assert_eq!((texts(&syncs, "kind"), values(&syncs, "pending_streams")), (vec!["stream_wait".to_owned()], vec![1]));
    assert_eq!(values(&syncs, "stream"), [0xb000]);
}

#[test]
fn who_waits_for_a_value_waits_for_the_queue_as_far_as_its_signal() {
    let folder = record("metal-values", |one, _| {
        for (buffer, queue, value) in [(0x1000, QUEUE, 1), (0x2000, 0xb000, 2)] {
            one.call("[MTLCommandQueue commandBuffer]", [buffer, queue, 0, 0]);
            one.call("[MTLCommandBuffer encodeSignalEvent:value:]", [0xee, queue, buffer, value]);
            one.call("[MTLCommandBuffer commit]", [buffer, queue, 0, 1]);
        }
        one.call("[MTLSharedEvent waitUntilSignaledValue:timeoutMS:]", [0xee, 0, 1, 1000]);
        one.call("[MTLCommandBuffer waitUntilCompleted]", [0x1000, QUEUE, 0, 0]);
        one.call("[MTLCommandBuffer waitUntilCompleted]", [0x2000, 0xb000, 0, 0]);
    });
    let syncs = table(&folder, "syncs");
    assert_eq!(values(&syncs, "pending_streams"), [1, 0, 1], "the second command buffer was not waited for by then");
}
