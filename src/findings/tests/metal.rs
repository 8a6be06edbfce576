//! Findings of programs that use Metal.

use super::{advised, loop_of};
use crate::analysis::{ALL, Value};
use crate::trace::testing::TestTrace;

#[test]
fn who_uses_metal_is_told_of_metal() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        let at = thread.now;
        for n in 0..20 {
            thread.commit(&[("add", 64)], 2_000, 6_000, (at + 12_000 * n + 6_000, 1_000));
            thread.alloc("[MTLDevice newBufferWithLength:options:]", "managed", 64, 4096, 3_000);
            thread.free("[MTLBuffer dealloc]", "managed", 64, 1_000);
        }
        thread.sync("[MTLCommandBuffer waitUntilCompleted]", "stream", 30_000);
    }
    let section = trace.section(ALL[0]);
    let text = section.literal.as_deref().unwrap_or_default();
    assert!(text.contains("not known: call sites; kernels within a command buffer;"), "{text}");
    // Dispatches are time of launches, and none of their own.
    assert_eq!((section.get("launches"), section.get("launch_ns")), (&Value::Num(20.0), &Value::Num(160_000.0)));
    let (advised, fine) = advised(&section);
    let names: Vec<&str> = advised.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"launch-bound") && names.contains(&"allocation-in-loop"), "{names:?}");
    for (name, text) in &advised {
        assert!(!text.contains("cu") && !text.contains("torch") && !text.contains("CUDA"), "{name}: {text}");
    }
    assert!(
        ["pageable copies", "communication", "serialised streams"].iter().all(|about| !fine.contains(about)),
        "{fine}"
    );
}

#[test]
fn a_command_buffer_of_copies_alone_is_a_launch_without_kernels() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        let begin = thread.now + 10_000;
        thread.commit(&[], 1_000, 5_000, (begin, 70_000));
        thread.sync("[MTLCommandBuffer waitUntilCompleted]", "stream", 80_000);
    }
    let text = trace.section(ALL[0]).literal.unwrap_or_default();
    assert!(text.contains(" 1 launch without kernels") && !text.contains("0 kernels"), "{text}");
}

#[test]
fn a_function_is_named_once_however_many_queues_it_is_called_for() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        let step = thread.range_begin();
        for queue in [1, 2] {
            thread.commit(&[("add", 1 << 20)], 2_000, 6_000, (thread.now + 9_000, 100_000));
            thread.wait_for_queue(queue, 110_000);
            thread.host(20_000);
        }
        thread.range_end(None, "step", step, true);
    }
    let text = trace.section(ALL[0]).literal.unwrap_or_default();
    assert!(text.contains("\n   [MTLCommandBuffer waitUntilCompleted] 2 a step, 110 us each\n"), "{text}");
    assert_eq!(text.matches("waitUntilCompleted] ").count(), 1, "{text}");
}

#[test]
fn a_function_is_named_once_however_many_kinds_of_memory_it_takes() {
    let section = loop_of(|thread| {
        for (kind, address) in [("managed", 64), ("device", 128)] {
            thread.alloc("[MTLDevice newBufferWithLength:options:]", kind, address, 4096, 50_000);
            thread.free("[MTLBuffer dealloc]", kind, address, 1_000);
        }
    });
    let text = section.literal.unwrap_or_default();
    assert!(text.contains("\n   [MTLDevice newBufferWithLength:options:] 2 a step, 50.0 us each\n"), "{text}");
    assert!(text.contains("\n   [MTLBuffer dealloc] 2 a step, "), "{text}");
}

#[test]
fn waits_for_metal_are_waits() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        let begin = thread.now + 9_000;
        thread.commit(&[("add", 1 << 20)], 2_000, 6_000, (begin, 100_000));
        thread.sync("[MTLCommandQueue commandBuffer]", "room", 120_000);
        thread.sync("[MTLCommandBuffer waitUntilScheduled]", "schedule", 10_000);
    }
    let section = trace.section(ALL.iter().find(|analysis| analysis.name() == "syncs").copied().unwrap());
    assert_eq!((section.get("waits"), section.get("waits_ns")), (&Value::Int(80), &Value::Int(40 * 130_000)));
    assert_eq!(section.cell("by_kind", 0, "kind"), &Value::from("schedule"));
}
