//! Whatever stands in a segment, the reader comes to an end and reads nothing outside of it.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use gputrace_abi::event::text_kind;
use gputrace_abi::graph::{action, pack_action};
use gputrace_abi::layout::{CHUNKS_AT, HOOKS_AT, INFO_AT, THREADS_AT, malloc_mode};
use gputrace_abi::ring::CHUNK_BYTES;
use gputrace_abi::sync::AtomicU64;
use gputrace_abi::{MAGIC, VERSION};
use proptest::prelude::*;

use crate::clock::Clocks;
use crate::manifest::Process as Described;
use crate::names::Written;
use crate::process::Process;
use crate::redact::Redact;
use crate::segment::Segment;
use crate::support::{Memory, Thread};
use crate::tables::Tables;

const BYTES: usize = CHUNKS_AT + 40 * CHUNK_BYTES;

/// Changes a word of the segment, whatever it is.
fn poke(memory: &Memory, at: usize, value: u64) {
    assert!(at + 8 <= BYTES);
    // SAFETY: inside the mapping, aligned; all its words are atomics.
    let word = unsafe { &*memory.view.base().add(at & !7).cast::<AtomicU64>() };
    word.store(value, gputrace_abi::sync::Ordering::Relaxed);
}

/// A segment with some threads and events.
fn honest() -> Memory {
    let memory = Memory::new(BYTES as u64, malloc_mode::SAMPLE);
    for tid in 1..4 {
        let mut thread = Thread::new(memory.view, tid);
        thread.context(1, 0);
        thread.text(1, 0xf0, 0, "a kernel of some length, which takes more than a slot to write down");
        let instantiated = pack_action(action::INSTANTIATE, 0, u64::from(tid));
        thread.text(text_kind::GRAPH, 0xe0, instantiated, &"what a graph holds is words, and so is this. ".repeat(4));
        for n in 0..700 {
            thread.call("cuLaunchKernel", [0xf0, n, 0, 0]);
            thread.call("cuMemAlloc_v2", [n << 12, 0, 0, 4096]);
        }
        for n in 0..300 {
            thread.call("[MTLCommandBuffer computeCommandEncoder]", [0xe0, n % 7, 0, 1]);
            thread.call("[MTLComputeCommandEncoder dispatchThreads]", [0xe0, 0, n, n]);
            thread.call("[MTLCommandBuffer commit]", [n % 7, 0xa0, 0, 1]);
            thread.gpu_times(n % 7, n << 4, n, (0, 4));
            thread.gpu_clock(1, (n << 40).cast_signed(), n << 5);
        }
        thread.shared_event("cuStreamSynchronize", [0; 4]);
    }
    memory
}

/// Reads it as a process that lives, and then as one that has died.
fn read(memory: &Memory) -> u64 {
    let Ok(segment) = Segment::map(memory.fd.as_fd()) else { return 0 };
    let (mut clocks, mut tables, mut written) = (Clocks::start(), Tables::new(), Written::default());
    let mut process = Process::new(1, 1, segment, &Redact::default());
    for _ in 0..2 {
        process.pass(&mut clocks, &mut tables, &mut written, false);
    }
    process.finish(&mut clocks, &mut tables, &mut written, Some(1));
    let messages = tables.take_full().len() + tables.take(1).count();
    assert!(messages < 2000);
    process.describe(&clocks).accounting.values().map(|c| c.recorded).sum()
}

/// A place where a change does most harm: headers, rows, chunk headers, slots.
fn place() -> impl Strategy<Value = usize> {
    prop_oneof![
        16..4096usize,
        INFO_AT..INFO_AT + 64,
        HOOKS_AT..HOOKS_AT + 1024,
        THREADS_AT..THREADS_AT + 8 * 512,
        (0..40usize, 0..128usize).prop_map(|(chunk, byte)| CHUNKS_AT + chunk * CHUNK_BYTES + byte),
        CHUNKS_AT..BYTES - 8,
    ]
}

/// A value that means something somewhere, or anything.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![0..64u64, any::<u64>(), any::<u32>().prop_map(|n| u64::from(n) << 32 | 1), Just(u64::MAX)]
}

#[test]
fn an_honest_segment_is_read_completely() {
    assert_eq!(read(&honest()), 3 * 2301);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_segment_with_wrong_words_is_read_to_an_end(changes in prop::collection::vec((place(), value()), 1..200)) {
        let memory = honest();
        for (at, value) in changes {
            poke(&memory, at, value);
        }
        read(&memory);
    }

    #[test]
    fn a_segment_of_random_bytes_is_read_to_an_end(seed: u64, only_small: bool) {
        let memory = Memory::new(BYTES as u64, malloc_mode::FULL);
        let mut random = seed | 1;
        for at in (16..BYTES).step_by(8) {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let value = random >> 20;
            poke(&memory, at, if only_small { value % 50 } else { random ^ value << 32 });
        }
        poke(&memory, 0, MAGIC);
        poke(&memory, 8, u64::from(VERSION) | 1 << 32);
        read(&memory);
    }
}

#[test]
fn a_head_that_was_written_over_is_said_and_its_numbers_are_not_counted() {
    let memory = honest();
    let segment = Segment::map(memory.fd.as_fd()).unwrap();
    let (mut clocks, mut tables, mut written) = (Clocks::start(), Tables::new(), Written::default());
    let mut process = Process::new(1, 1, segment, &Redact::default());
    process.pass(&mut clocks, &mut tables, &mut written, false);
    let said = |about: &Described| about.notes.iter().any(|note| note.contains("wrote over the head"));
    let about = process.describe(&clocks);
    assert!(!said(&about) && about.notes.is_empty(), "{:?}", about.notes);
    let mut random = 9u64;
    for at in (64..5064).step_by(8) {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        poke(&memory, at, random ^ random >> 32);
    }
    process.finish(&mut clocks, &mut tables, &mut written, Some(1));
    let about = process.describe(&clocks);
    assert!(said(&about) && !about.balanced);
    assert!(about.accounting.values().all(|count| count.seen < 10_000), "{:?}", about.accounting);
}

#[test]
fn chunks_that_lead_in_a_circle_are_left() {
    let memory = honest();
    // Every chunk leads to the next one, the last to the first, and says that it is full.
    for chunk in 0..40u64 {
        let at = CHUNKS_AT + chunk as usize * CHUNK_BYTES;
        poke(&memory, at + 8, ((chunk + 1) % 40 + 1) | (512 << 32));
    }
    for row in 0..4096 {
        poke(&memory, THREADS_AT + row * 512, 2);
        poke(&memory, THREADS_AT + row * 512 + 8, 1 | 1 << 32);
    }
    read(&memory);
}

#[test]
fn a_writer_that_scribbles_while_it_is_read_harms_nobody() {
    let memory = honest();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 7u64;
            while !stop.load(Ordering::Relaxed) {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let at = 16 + (random >> 16) as usize % (BYTES - 24);
                poke(&memory, if random & 1 == 0 { THREADS_AT + at % 4096 } else { at }, random >> (random & 63));
            }
        });
        for _ in 0..20 {
            read(&memory);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
