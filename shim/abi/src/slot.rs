//! A slot of the ring: one event, or a part of a text.
//!
//! Its first word is stored last: the commit word in it says that the others are there ([`crate::ring`]).

use crate::event::Event;
use crate::sync::{AtomicU64, Ordering};

/// One event's place in shared memory.
#[repr(C, align(64))]
pub struct Slot([AtomicU64; 8]);

/// Stores as much of a text as there is room for. What stood behind it stays.
///
/// One of some length is written from both of its ends, in as many moves however long it is: as stores of whole words and of what
/// is left, one of 56 bytes takes four times as long.
#[inline(always)]
#[cfg(not(loom))]
fn put(places: &[AtomicU64], text: &[u8]) {
    let bytes = text.len().min(size_of_val(places));
    let (text, _) = text.split_at(bytes);
    let place: *mut u8 = places.as_ptr().cast_mut().cast();
    // SAFETY: so many bytes are in both. Only the thread that reserved the slot touches it until its first word is stored, which
    // says that these are there.
    unsafe {
        if !(put_ends::<32>(place, text) || put_ends::<16>(place, text) || put_ends::<8>(place, text)) {
            place.copy_from_nonoverlapping(text.as_ptr(), bytes);
        }
    }
}

#[cfg(loom)]
fn put(places: &[AtomicU64], text: &[u8]) {
    let (whole, end) = text.as_chunks::<8>();
    for (word, place) in whole.iter().zip(places) {
        place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
    }
    if let Some(place) = places.get(whole.len()).filter(|_| !end.is_empty()) {
        place.store(crate::text::last_word(text), Ordering::Relaxed);
    }
}

/// Copies so many of the first bytes and of the last ones, if there are as many; what both have is the same.
///
/// # Safety
/// There is room for the text, and nobody else touches it.
#[inline(always)]
#[cfg(not(loom))]
unsafe fn put_ends<const BYTES: usize>(place: *mut u8, text: &[u8]) -> bool {
    let (Some(first), Some(last)) = (text.first_chunk::<BYTES>(), text.last_chunk::<BYTES>()) else { return false };
    // SAFETY: the caller's.
    unsafe {
        copy(first, place);
        copy(last, place.add(text.len() - BYTES));
    }
    true
}

/// Copies by 16 bytes: the compiler, which minds processors of 2006 on macOS, takes eight.
///
/// # Safety
/// There is so much room, which nobody else touches.
#[inline(always)]
#[cfg(not(loom))]
unsafe fn copy<const BYTES: usize>(from: &[u8; BYTES], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if BYTES.is_multiple_of(16) {
        use core::arch::x86_64::{_mm_loadu_si128, _mm_storeu_si128};
        for at in (0..BYTES).step_by(16) {
            // SAFETY: 16 bytes of the array; the caller's for the room.
            unsafe { _mm_storeu_si128(to.add(at).cast(), _mm_loadu_si128(from.as_ptr().add(at).cast())) };
        }
        return;
    }
    // SAFETY: the caller's.
    unsafe { to.copy_from_nonoverlapping(from.as_ptr(), BYTES) };
}

impl Slot {
    /// One that nobody wrote.
    pub(crate) fn empty() -> Slot {
        Slot(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Fills the slot and commits it.
    #[inline(always)]
    pub fn write(&self, event: &Event) {
        let [first, rest @ ..] = event.words();
        self.write_text(first, rest);
    }

    /// Fills the slot with a first word and seven words of text, and commits it.
    #[inline(always)]
    pub fn write_text(&self, first: u64, rest: [u64; 7]) {
        // Seven stores, spelled out: as zipped iterators they became a loop over memory, 12 ns in every hook.
        let [commit, a, b, c, d, e, f, g] = &self.0;
        a.store(rest[0], Ordering::Relaxed);
        b.store(rest[1], Ordering::Relaxed);
        c.store(rest[2], Ordering::Relaxed);
        d.store(rest[3], Ordering::Relaxed);
        e.store(rest[4], Ordering::Relaxed);
        f.store(rest[5], Ordering::Relaxed);
        g.store(rest[6], Ordering::Relaxed);
        // SYNC POINT: commit. Release, with the Acquire in `committed`: who sees this word sees the other seven.
        commit.store(first, Ordering::Release);
    }

    /// Fills the slot with a first word and text, of which seven words find room, and commits it. What stood behind the text stays.
    #[inline(always)]
    pub fn write_bytes(&self, first: u64, text: &[u8]) {
        let [commit, rest @ ..] = &self.0;
        put(rest, text);
        // SYNC POINT: commit. As in `write_text`.
        commit.store(first, Ordering::Release);
    }

    /// The same of four words and text, of which four find room.
    #[inline(always)]
    pub fn write_name(&self, [first, ticks, key, about]: [u64; 4], text: &[u8]) {
        let [commit, a, b, c, rest @ ..] = &self.0;
        a.store(ticks, Ordering::Relaxed);
        b.store(key, Ordering::Relaxed);
        c.store(about, Ordering::Relaxed);
        put(rest, text);
        // SYNC POINT: commit. As in `write_text`.
        commit.store(first, Ordering::Release);
    }

    /// The eight words, if this commit word stands there.
    #[inline(always)]
    pub fn committed(&self, commit: u32) -> Option<[u64; 8]> {
        // SYNC POINT: commit. Acquire, with the Release in `write`.
        let first = self.0[0].load(Ordering::Acquire);
        if first as u32 != commit {
            return None;
        }
        let [_, a, b, c, d, e, f, g] = &self.0;
        let load = |place: &AtomicU64| place.load(Ordering::Relaxed);
        Some([first, load(a), load(b), load(c), load(d), load(e), load(f), load(g)])
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_text_of_any_length_is_written_as_far_as_there_is_room_and_nothing_beside_it() {
        let text: Vec<u8> = (1..=60).collect();
        for length in 0..=text.len() {
            let text = &text[..length];
            for (name, room) in [(false, 56), (true, 32)] {
                let slot = Slot(core::array::from_fn(|_| AtomicU64::new(u64::MAX)));
                if name {
                    slot.write_name([7, 8, 9, 10], text);
                } else {
                    slot.write_bytes(7, text);
                }
                let words = slot.committed(7).expect("it is committed");
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let (head, behind) = bytes.split_at(64 - room);
                let written = length.min(room);
                assert_eq!(behind[..written], text[..written], "{length}");
                assert!(behind[written..].iter().all(|byte| *byte == 0xff), "{length}");
                let heads: &[u64] = if name { &[7, 8, 9, 10] } else { &[7] };
                assert!(head.chunks(8).zip(heads).all(|(bytes, word)| bytes == word.to_le_bytes()), "{length}");
            }
        }
    }
}
