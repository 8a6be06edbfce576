//! Labels of queues, command buffers, encoders and memory, wherever they are set.

use gputrace_abi::event::text_kind;
use gputrace_abi::metal::{encoder, status};
use gputrace_abi::text::key;

use super::{DONE, QUEUE, commit, encode, kernel, record, room, table};
use crate::rows::{flags, numbers, texts};
use crate::support::Thread;

/// An object gets a label, or loses it.
fn label(thread: &mut Thread<'_>, kind: &str, object: u64, label: &str) {
    let key = if label.is_empty() { 0 } else { key(text_kind::LABEL, label.as_bytes()) };
    if key != 0 {
        thread.text(text_kind::LABEL, key, 0, label);
    }
    thread.call(&format!("[{kind} setLabel:]"), [object, 0, key, 0]);
}

#[test]
fn a_label_names_a_command_buffer_and_its_queue() {
    let folder = record("metal-label", |one, _| {
        label(one, "MTLCommandQueue", QUEUE, "training");
        label(one, "MTLCommandBuffer", 0x1000, "forward");
        encode(one, 0x1000, &[0xf1]);
        commit(one, 0x1000);
        one.gpu_times(0x1000, 100, 50, (0, status::ERROR));
    });
    assert_eq!(numbers(&table(&folder, "launches"), "name_id"), [kernel("forward")]);
    let buffers = table(&folder, "command_buffers");
    assert_eq!((texts(&buffers, "status"), flags(&buffers, "labelled")), (vec!["error".to_owned()], vec![true]));
    assert_eq!(numbers(&buffers, "queue_name_id"), [kernel("training")]);
    let dispatches = table(&folder, "dispatches");
    assert_eq!(numbers(&dispatches, "name_id"), [None], "a pipeline that was not seen made");
    assert_eq!(numbers(&dispatches, "encoder_id"), [None]);
}

#[test]
fn labels_of_encoders_name_a_command_buffer_without_one() {
    let folder = record("metal-label-encoder", |one, _| {
        one.text(text_kind::FUNCTION, 0xf1, 0, "gemm");
        for (buffer, own) in [(0x1000, ""), (0x3000, "step"), (0x5000, "")] {
            room(one, buffer);
            for (nth, name) in ["attention", "mlp"].into_iter().enumerate().take(if buffer == 0x5000 { 1 } else { 2 }) {
                let encoder = buffer + 0x100 + nth as u64;
                one.call("[MTLCommandBuffer computeCommandEncoder]", [encoder, buffer, 0, encoder::COMPUTE]);
                label(one, "MTLComputeCommandEncoder", encoder, name);
                one.call("[MTLComputeCommandEncoder setComputePipelineState:]", [encoder, 0, 0xf1, 0]);
                one.call("[MTLComputeCommandEncoder dispatchThreads]", [encoder, 0, 64, 64]);
                one.call("[MTLCommandEncoder endEncoding]", [encoder, 0, 0, 0]);
            }
            if !own.is_empty() {
                label(one, "MTLCommandBuffer", buffer, "anything");
                label(one, "MTLCommandBuffer", buffer, own);
            }
            commit(one, buffer);
            one.gpu_times(buffer, 100, 50, DONE);
        }
    });
    let launches = table(&folder, "launches");
    assert_eq!(numbers(&launches, "name_id"), ["attention +1", "step", "attention"].map(kernel));
    let dispatches = table(&folder, "dispatches");
    let encoders = ["attention", "mlp", "attention", "mlp", "attention"].map(kernel);
    assert_eq!(numbers(&dispatches, "encoder_id"), encoders);
    assert_eq!(numbers(&dispatches, "name_id"), [kernel("gemm"); 5]);
    assert_eq!(flags(&table(&folder, "command_buffers"), "labelled"), [false, true, false]);
}

#[test]
fn memory_has_the_label_that_it_got_at_once_and_at_its_end_the_last_one() {
    let folder = record("metal-label-memory", |one, two| {
        one.call("[MTLDevice newBufferWithLength:options:]", [0x50, 0, 0, 100]);
        label(one, "MTLBuffer", 0x50, "weights");
        one.call("[MTLDevice newBufferWithLength:options:]", [0x60, 0, 0, 200]);
        one.call("[MTLBuffer dealloc]", [0x50, 0, 0, 0]);
        // Its address is another one's, which has no label.
        two.call("[MTLDevice newBufferWithLength:options:]", [0x50, 0, 0, 300]);
        two.call("[MTLBuffer dealloc]", [0x50, 0, 0, 0]);
        // A label of what is gone is nobody's.
        label(two, "MTLBuffer", 0x50, "late");
        label(two, "MTLBuffer", 0x60, "cache");
        label(two, "MTLBuffer", 0x60, "");
        two.call("[MTLBuffer dealloc]", [0x60, 0, 0, 0]);
    });
    let memory = table(&folder, "device_memory");
    let mut rows: Vec<_> = numbers(&memory, "bytes")
        .into_iter()
        .zip(texts(&memory, "action"))
        .zip(numbers(&memory, "label_id"))
        .map(|((bytes, action), label)| (bytes, action, label))
        .collect();
    rows.sort();
    let row = |bytes: i64, action: &str, label: Option<i64>| (Some(bytes), action.to_owned(), label);
    let weights = kernel("weights");
    let expected = [
        row(100, "alloc", weights),
        row(100, "free", weights),
        row(200, "alloc", None),
        row(200, "free", None),
        row(300, "alloc", None),
        row(300, "free", None),
    ];
    assert_eq!(rows, expected);
}
