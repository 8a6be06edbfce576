//! The reader on arbitrary bytes: it stays inside the memory, never panics, and comes to an end.
#![cfg(not(loom))]

#[path = "hostile/walk.rs"]
mod walk;

use proptest::prelude::*;
use walk::Memory;

const CASES: u32 = if cfg!(miri) { 1 } else { 48 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_segment_of_noise_is_read_to_an_end(seed in any::<u64>(), small in any::<bool>()) {
        let mut memory = Memory::new();
        let mut state = seed | 1;
        for word in 0..memory.view().bytes() / 8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Small numbers are valid more often: chunks that exist, counts in range.
            memory.set(word, if small { state & 0x0000_0003_0000_0007 } else { state });
        }
        memory.read();
    }

    #[test]
    fn a_segment_with_wrong_words_is_read_to_an_end(
        words in prop::collection::vec((any::<u32>(), prop_oneof![any::<u64>(), 0..8u64, Just(u64::MAX)]), 0..400)
    ) {
        let mut memory = Memory::new();
        for (place, value) in words {
            memory.poke(place, value);
        }
        memory.read();
    }
}

#[test]
fn the_walk_reads_events_and_stops_in_a_circle() {
    let mut memory = Memory::new();
    let chunk = |n: usize| (2_703_360 + n * 32_768) / 8;
    memory.set((16_384 + 65_536) / 8 + 1, 1); // thread 0: first chunk 0
    for n in 0..2 {
        memory.set(chunk(n), 1); // generation 1
        memory.set(chunk(n) + 1, (1 - n as u64 + 1) | 3 << 32); // next: the other one; closed after 2
        memory.set(chunk(n) + 8, 1 << 9);
        memory.set(chunk(n) + 16, 1 << 9 | 1);
    }
    assert!(memory.read() >= 2 * 2 * 2, "both chunks, alive and dead");
}
