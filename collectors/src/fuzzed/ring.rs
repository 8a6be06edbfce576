//! Any words at any place of a segment: its reader stays inside the memory, never panics, and comes to an end.
//!
//! The input is a list of twelve bytes each: a place and the word that is written there (see `Memory::poke`). What a collector makes of what it reads
//! is [`super::segment`].

#[path = "../../../shim/abi/tests/hostile/walk.rs"]
mod walk;

pub(super) fn ring(data: &[u8]) {
    let mut memory = walk::Memory::new();
    for poke in data.chunks_exact(12) {
        let (place, value) = poke.split_at(4);
        let place = u32::from_le_bytes(place.try_into().unwrap_or_default());
        memory.poke(place, u64::from_le_bytes(value.try_into().unwrap_or_default()));
    }
    memory.read();
}
