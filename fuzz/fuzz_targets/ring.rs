//! Any words at any place of a segment: the reader stays inside the memory, never panics, and comes to an end.
//!
//! `cargo +nightly fuzz run segment -- -max_total_time=60`
//!
//! The input is a list of twelve bytes each: a place and the word that is written there (see `Memory::poke`).
#![no_main]

#[path = "../../shim/abi/tests/hostile/walk.rs"]
mod walk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut memory = walk::Memory::new();
    for poke in data.chunks_exact(12) {
        let (place, value) = poke.split_at(4);
        let place = u32::from_le_bytes(place.try_into().unwrap_or_default());
        memory.poke(place, u64::from_le_bytes(value.try_into().unwrap_or_default()));
    }
    memory.read();
});
