//! A segment of any bytes at all, read through to its end as a collector would read it.
//!
//! Shared by the property test and the fuzz target. Panics when the reader leaves the memory (an index check, or the
//! sanitizer), goes on for ever, or accepts what cannot be.

use gputrace_abi::event::Event;
use gputrace_abi::hello::Hello;
use gputrace_abi::layout::{
    CHUNKS_AT, COUNTER_BLOCKS, HOOKS_AT, HOOKS_MAX, INFO_AT, THREADS_AT, THREADS_MAX, View, chunks_in,
};
use gputrace_abi::ring::{CHUNK_BYTES, CHUNK_SLOTS, Chunks, Cursor, Step};

/// Chunks in the segments that are made here.
pub(crate) const CHUNKS: usize = 4;
const WORDS: usize = (CHUNKS_AT + CHUNKS * CHUNK_BYTES) / 8;

/// Page-aligned memory of a segment, zero at first.
pub(crate) struct Memory(Vec<Page>);

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u64; 512]);

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory(vec![Page([0; 512]); WORDS.div_ceil(512)])
    }

    pub(crate) fn set(&mut self, word: usize, value: u64) {
        let word = word % WORDS;
        self.0[word / 512].0[word % 512] = value;
    }

    /// Words at places where they matter: `place` chooses the part and the place in it.
    pub(crate) fn poke(&mut self, place: u32, value: u64) {
        let (part, place) = (place % 8, place as usize / 8);
        let chunk = CHUNKS_AT + place % CHUNKS * CHUNK_BYTES;
        let slot = place / CHUNKS % CHUNK_SLOTS;
        let byte = match part {
            0 => place % 4096,
            1 => INFO_AT + place % (HOOKS_AT - INFO_AT),
            2 => HOOKS_AT + place % (THREADS_AT - HOOKS_AT),
            3 => THREADS_AT + place % (8 * 512),
            4 | 5 => chunk + place / CHUNKS % 4 * 8,
            _ => chunk + 64 * (slot + 1),
        };
        // A slot's own commit word in one of the first generations: else hardly a slot would be an event.
        let value = if part == 7 { value & !0xffff_ffff | (value & 3) << 9 | slot as u64 } else { value };
        self.set(byte / 8, value);
    }

    pub(crate) fn view(&mut self) -> View {
        // SAFETY: the memory is page aligned, of this size, and outlives the view's use in `read`.
        unsafe { View::new(self.0.as_mut_ptr().cast(), WORDS * 8) }.expect("large enough")
    }

    /// Reads everything and returns how many events that were.
    pub(crate) fn read(&mut self) -> usize {
        let view = self.view();
        assert!(view.chunk_count() <= chunks_in(view.bytes() as u64) && view.chunk_count() as usize <= CHUNKS);
        for n in 0..HOOKS_MAX {
            let hook = view.hook(n).expect("a row").read();
            assert!(hook.name().len() <= 56);
        }
        assert!(view.hook(HOOKS_MAX).is_none() && view.thread(THREADS_MAX).is_none());
        view.started();
        let heads = (0..THREADS_MAX).filter_map(|n| view.thread(n)).map(|row| &row.first_chunk);
        let mut events = 0;
        for head in heads.chain([&view.header().shared_first]) {
            let first = head.load(core::sync::atomic::Ordering::Acquire);
            for dead in [false, true] {
                events += first.checked_sub(1).map_or(0, |chunk| read_chain(&view, chunk, dead));
            }
        }
        let words = view.info().first_chunk::<3>().expect("words").each_ref();
        Hello::from_bytes(words.map(|w| w.load(core::sync::atomic::Ordering::Relaxed).to_le_bytes()).as_flattened());
        for limit in [0, 1, 63, 64, 1024, u32::MAX] {
            assert!(view.take_chunk(limit).is_none_or(|chunk| chunk < limit.min(1024)));
        }
        view.give_chunk(u32::MAX);
        assert!(view.counters(COUNTER_BLOCKS as u32).is_none() && view.counters(u32::MAX).is_none());
        assert!(view.take_counters().is_none_or(|block| view.counters(block).is_some()));
        view.give_counters(u32::MAX);
        events
    }
}

/// A chain that is longer than the pool runs in a circle: whoever reads must stop there, as this does.
fn read_chain(view: &View, first: u32, dead: bool) -> usize {
    let Some(mut cursor) = Cursor::new(view, first) else {
        assert!(view.chunk(first).is_none());
        return 0;
    };
    let (mut events, mut finished) = (0, 0);
    for _ in 0..(CHUNK_SLOTS + 1) * (CHUNKS + 1) {
        match cursor.step(view, dead) {
            Step::Words(words) => {
                assert_eq!(Event::from_words(words).words(), words);
                events += 1;
            }
            Step::Hole => cursor.skip(),
            Step::Finished(chunk) => {
                assert!(view.chunk(chunk).is_some() && view.chunk(cursor.chunk).is_some());
                finished += 1;
                if finished > CHUNKS {
                    return events;
                }
            }
            Step::Empty | Step::Ended(_) | Step::Broken => return events,
        }
    }
    panic!("more steps than slots");
}
