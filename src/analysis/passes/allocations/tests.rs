//! The pass over typed rows.

use super::*;
use crate::analysis::{Facts, Need};
use crate::trace::OTHER_STACKS;
use crate::trace::testing::{START, TestTrace};

/// The pass over a trace.
fn of(trace: &TestTrace, look: impl FnOnce(&Allocations)) {
    let (trace, filter) = (trace.open(), Filter::default());
    let facts = Facts::gather(&trace, &filter, &[Need::Allocations]);
    assert_eq!(trace.problems(), []);
    look(&facts.allocations);
}

#[test]
fn what_was_live_at_the_peak_is_told_by_stack_whatever_came_afterwards() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000);
    let [a, b, c] = ["a", "b", "c"].map(|f| trace.stack(f, "/home/u/x.py", 1));
    let mut thread = trace.thread(1, 11);
    let first = thread.malloc_at(a, 100, 100.0);
    thread.malloc_at(b, 50, 50.0);
    let second = thread.malloc_at(a, 30, 30.0);
    thread.free_block(&first);
    thread.malloc_at(c, 70, 70.0);
    thread.free_block(&second);
    thread.malloc_at(b, 1, 1.0);
    of(&trace, |found| {
        let process = found.processes.get(&1).unwrap();
        assert_eq!((process.peak.bytes, process.peak.blocks, process.peak_at_ns), (180.0, 3.0, START + 20));
        assert_eq!((process.live.bytes, process.live.blocks), (121.0, 3.0));
        let at = |id| {
            let stack = found.stacks.get(&(1, id)).unwrap();
            (stack.at_peak(process).bytes, stack.live.bytes, stack.sums.all.bytes)
        };
        assert_eq!([at(a), at(b), at(c)], [(130.0, 0.0, 130.0), (50.0, 51.0, 51.0), (0.0, 70.0, 70.0)]);
    });
}

#[test]
fn sums_at_the_peak_are_those_of_a_plain_model() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000);
    let stacks: Vec<i64> = (0..7).map(|n| trace.stack(&format!("f{n}"), "/home/u/x.py", n)).collect();
    let mut thread = trace.thread(1, 11);
    let (mut blocks, mut live, mut peak, mut random) = (Vec::new(), [0.0; 7], (0.0, [0.0; 7]), 1u64);
    for _ in 0..3000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (which, bytes) = ((random >> 33) as usize % 7, 1 + (random >> 40) as i64 % 5000);
        if random >> 62 != 0 || blocks.is_empty() {
            blocks.push((which, bytes, thread.malloc_at(stacks[which], bytes, bytes as f64)));
            live[which] += bytes as f64;
        } else {
            let (which, bytes, block) = blocks.swap_remove((random >> 20) as usize % blocks.len());
            thread.free_block(&block);
            live[which] -= bytes as f64;
        }
        let all: f64 = live.iter().sum();
        if all > peak.0 {
            peak = (all, live);
        }
        if random >> 54 == 7 {
            // Goes far down, so that there are many peaks and valleys.
            for (which, bytes, block) in blocks.drain(..) {
                thread.free_block(&block);
                live[which] -= bytes as f64;
            }
        }
    }
    of(&trace, |found| {
        let process = found.processes.get(&1).unwrap();
        assert_eq!(process.peak.bytes, peak.0);
        for (which, stack) in stacks.iter().enumerate() {
            assert_eq!(found.stacks.get(&(1, *stack)).unwrap().at_peak(process).bytes, peak.1[which]);
        }
    });
}

/// As many as are too many, of 16 bytes each, freed or not, and after them those that matter.
#[test]
fn of_too_many_stacks_the_largest_are_told_whenever_they_came_and_nothing_is_lost() {
    for leaks in [false, true] {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000_000);
        let early = trace.stack("early", "/home/u/x.py", 1);
        let late = trace.stack("late", "/home/u/x.py", 2);
        let many: Vec<i64> = (0..9_000).map(|line| trace.stack("many", "/home/u/x.py", 10 + line)).collect();
        let mut thread = trace.thread(1, 11);
        let first = thread.malloc_at(early, 5_000_000, 5_000_000.0);
        thread.free_block(&first);
        for stack in &many {
            let block = thread.malloc_at(*stack, 16, 16.0);
            if !leaks {
                thread.free_block(&block);
            }
        }
        thread.malloc_at(late, 7_000_000, 7_000_000.0);
        of(&trace, |found| {
            let process = found.processes.get(&1).unwrap();
            let of = |stack| found.stacks.get(&(1, stack)).unwrap();
            assert_eq!((of(early).sums.all.bytes, of(late).live.bytes), (5e6, 7e6));
            assert_eq!(of(late).at_peak(process).bytes, 7e6);
            let all: f64 = found.stacks.iter().map(|(_, stack)| stack.sums.all.bytes).sum();
            assert_eq!(all, 12e6 + 9_000.0 * 16.0);
            let at_peak: f64 = found.stacks.iter().map(|(_, stack)| stack.at_peak(process).bytes).sum();
            assert_eq!((at_peak, process.peak.bytes), (process.peak.bytes, if leaks { 7.144e6 } else { 7e6 }));
            assert_eq!(found.stacks.get(&(1, OTHER_STACKS)).is_some(), !leaks);
        });
    }
}

#[test]
fn blocks_that_lived_shortly_are_told_from_those_that_were_freed_before_the_next_one() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let a = trace.stack("a", "/home/u/x.py", 1);
    let mut thread = trace.thread(1, 11);
    thread.host_memory("alloc", 10, 10.0, serde_json::json!({ "stack_id": a, "address": 0x10 }));
    thread.host_memory("free", 10, 10.0, serde_json::json!({ "stack_id": a, "address": 0x10, "age_ns": 10 }));
    thread.host_memory("alloc", 20, 20.0, serde_json::json!({ "stack_id": a, "address": 0x20 }));
    thread.host(5_000_000);
    thread.host_memory("free", 20, 20.0, serde_json::json!({ "stack_id": a, "address": 0x20, "age_ns": 5_000_010 }));
    thread.host_memory("alloc", 40, 40.0, serde_json::json!({ "stack_id": a, "address": 0x40 }));
    thread.host_memory("alloc", 80, 80.0, serde_json::json!({ "stack_id": a, "address": 0x80 }));
    thread.host(5_000_000);
    thread.host_memory("free", 40, 40.0, serde_json::json!({ "stack_id": a, "address": 0x40, "age_ns": 5_000_020 }));
    thread.culled(a, 4, 400, 500);
    of(&trace, |found| {
        let stack = found.stacks.get(&(1, a)).unwrap();
        assert_eq!((stack.short.bytes, stack.short.blocks), (410.0, 5.0));
        assert_eq!((stack.before_next.bytes, stack.before_next.blocks), (20.0, 1.0));
        assert_eq!((stack.sums.all.blocks, stack.calls[0].calls, stack.calls[1].calls), (8.0, 8.0, 7.0));
        assert_eq!(stack.aged, (7.0, 10.0 + 5_000_010.0 + 5_000_020.0 + 4.0 * 500.0));
        assert_eq!((stack.live.bytes, found.processes.get(&1).unwrap().culled), (80.0, 4.0));
        assert_eq!(found.threads.get(&(1, 11)).unwrap().sums.all.bytes, 550.0);
    });
}

#[test]
fn a_free_of_a_block_that_nobody_saw_being_made_takes_nothing_from_what_is_live() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    thread.host(1_000_000);
    thread.malloc("free", 0, 0.0);
    let empty = thread.malloc_at(5, 0, 0.0);
    thread.malloc("alloc", 100, 100.0);
    // Made before what is looked at begins.
    thread.host_memory("free", 70, 70.0, serde_json::json!({ "age_ns": 900_000 }));
    thread.free_block(&empty);
    of(&trace, |found| {
        let live = found.processes.get(&1).unwrap().live;
        assert_eq!((live.blocks, live.bytes), (1.0, 100.0));
    });
}

#[test]
fn memory_from_the_kernel_is_none_of_mallocs() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let a = trace.stack("a", "/home/u/x.py", 1);
    let mut thread = trace.thread(1, 11);
    for (action, bytes, weight, age_ns) in [
        ("reserve", 1000, 0.0, None),
        ("map", 300, 300.0, None),
        ("unmap", 100, 100.0, Some(10)),
        ("unmap", 400, 0.0, Some(20)),
        // Of nothing that is known.
        ("unmap", 77, 0.0, None),
    ] {
        thread.host_memory(action, bytes, weight, serde_json::json!({ "stack_id": a, "age_ns": age_ns }));
    }
    of(&trace, |found| {
        let stack = found.stacks.get(&(1, a)).unwrap();
        assert_eq!((stack.mapped.bytes, stack.mapped.live, stack.mapped.calls), ([300.0, 1000.0], [200.0, 600.0], 2));
        assert_eq!((stack.sums.all, stack.calls[0].calls), (Amount::default(), 0.0));
    });
}

#[test]
fn live_memory_that_grows_with_the_steps_has_its_slope_and_without_steps_with_time() {
    for with_steps in [true, false] {
        let mut trace = TestTrace::new();
        let (leak, cache, early) = (
            trace.stack("leak", "/home/u/x.py", 1),
            trace.stack("cache", "/home/u/x.py", 2),
            trace.stack("early", "/home/u/x.py", 3),
        );
        trace.process(1, 100, None, START + 200 * 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.malloc_at(early, 1 << 30, (1u64 << 30) as f64);
        for step in 0..200 {
            let began = thread.range_begin();
            thread.malloc_at(leak, 48, 48.0);
            let block = thread.malloc_at(cache, 4096, 4096.0);
            thread.launch("k", 10_000);
            thread.host(900_000);
            thread.free_block(&block);
            thread.now = began + 1_000_000;
            if with_steps {
                thread.range_end(None, &format!("step {step}"), began, true);
            }
        }
        if !with_steps {
            trace.clear(TableId::Launches);
        }
        of(&trace, |found| {
            assert_eq!(matches!(found.beat(1), Some(Beat::Steps(_))), with_steps);
            let slope = |id| found.slope(1, found.stacks.get(&(1, id)).unwrap()).unwrap();
            let each = if with_steps { 48.0 } else { 96.0 };
            assert!((slope(leak).each - each).abs() < 0.5 && slope(leak).is_steady(), "{:?}", slope(leak));
            assert!(!slope(cache).is_steady() && !slope(early).is_steady(), "{:?} {:?}", slope(cache), slope(early));
        });
    }
}
