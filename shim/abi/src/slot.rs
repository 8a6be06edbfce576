//! A slot of the ring: one event, or a part of a text.
//!
//! Its first word is stored last: the commit word in it says that the others are there ([`crate::ring`]).

use crate::event::Event;
use crate::sync::{AtomicU64, Ordering};

/// One event's place in shared memory.
#[repr(C, align(64))]
pub struct Slot([AtomicU64; 8]);

/// Stores as much of a short text as there is room for.
#[inline(always)]
fn put<const WORDS: usize>(places: &[AtomicU64; WORDS], text: &[u8]) {
    let (whole, end) = text.as_chunks::<8>();
    // Of a loop over what may end the compiler makes one with twice as many branches.
    if put_words::<WORDS>(places, whole) {
        return;
    }
    let mut places = places.iter();
    for (word, place) in whole.iter().zip(places.by_ref()) {
        place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
    }
    if let Some(place) = places.next().filter(|_| !end.is_empty()) {
        place.store(crate::text::last_word(text), Ordering::Relaxed);
    }
}

/// The same of one of any length, by one jump to as many stores as there are whole words: of the loop each takes five instructions.
#[inline(always)]
fn put_long(places: &[AtomicU64; 7], text: &[u8]) {
    let (whole, end) = text.as_chunks::<8>();
    match whole.len() {
        0 => false,
        1 => put_words::<1>(places, whole),
        2 => put_words::<2>(places, whole),
        3 => put_words::<3>(places, whole),
        4 => put_words::<4>(places, whole),
        5 => put_words::<5>(places, whole),
        6 => put_words::<6>(places, whole),
        _ => put_words::<7>(places, whole),
    };
    if let Some(place) = places.get(whole.len()).filter(|_| !end.is_empty()) {
        place.store(crate::text::last_word(text), Ordering::Relaxed);
    }
}

/// Stores so many words, if there are as many.
#[inline(always)]
fn put_words<const COUNT: usize>(places: &[AtomicU64], words: &[[u8; 8]]) -> bool {
    let words = words.first_chunk::<COUNT>();
    for (word, place) in words.into_iter().flatten().zip(places) {
        place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
    }
    words.is_some()
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
        put_long(rest, text);
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
