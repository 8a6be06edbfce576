//! Texts in a thread's ring: names, and what is told of a process.

use core::hint::cold_path;

use gputrace_abi::event::{self, Event};
use gputrace_abi::ring::{CHUNK_SLOTS, Place, Slot};

use super::state::State;
use super::words::Words;

/// A slot that was reserved together with others, and its commit word.
#[derive(Clone, Copy)]
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "calls of the driver write their names apart"))]
pub(crate) struct Reserved<'a> {
    slot: &'a Slot,
    commit: u32,
}

impl State {
    /// Writes a text and what it is about; false when there was no room.
    pub(crate) fn write_text(&self, kind: u64, key: u64, number: u64, text: &[u8], now: u64) -> bool {
        self.write_texts(kind, key, number, [text, &[], &[]], now)
    }

    /// Writes a text without a number: in one slot or two, if it is short. False when there was no room.
    #[inline(always)]
    pub(crate) fn write_name(&self, kind: u64, key: u64, text: &[u8], now: u64) -> bool {
        self.write_name_before::<0>([kind, key, now], text).is_some()
    }

    /// The same of `[kind, key, now]`, with a place behind it for an event that the caller writes next; `MORE` is 1, or 0 for none. The
    /// text may be written without such a place, where it is long or at the end of a chunk. None: there was no room.
    #[inline(always)]
    pub(crate) fn write_name_before<const MORE: u32>(
        &self,
        [kind, key, now]: [u64; 3],
        text: &[u8],
    ) -> Option<Option<Reserved<'_>>> {
        if text.len() <= event::NAME_BYTES {
            let place = self.tail.reserve(1 + MORE);
            if place.index + MORE < CHUNK_SLOTS as u32 {
                let about = kind | (text.len() as u64) << 16;
                self.slot(place).write_name([self.first(place, event::KIND_NAME), now, key, about], text);
                return Some(self.behind::<MORE>(place, 1));
            }
            cold_path();
            return self
                .write_anew((place.chunk, place.commit, place.index), [kind, key, now], [text, &[], &[]])
                .then_some(None);
        }
        match text.split_first_chunk() {
            Some((head, rest)) if rest.len() <= event::TEXT_SLOT_BYTES => {
                self.write_two::<MORE>([kind, key, now], head, rest)
            }
            _ => self.write_long_name(kind, key, text, now).then_some(None),
        }
    }

    /// Inline: as a function of its own it takes a fifth of what a new name of 88 bytes does.
    #[inline(always)]
    fn write_two<const MORE: u32>(
        &self,
        [kind, key, now]: [u64; 3],
        head: &[u8; event::NAME_BYTES],
        rest: &[u8],
    ) -> Option<Option<Reserved<'_>>> {
        // What one slot's first word has more than that of the one before it.
        const NEXT: u64 = ((event::KIND_TEXT_MORE as u64) << 32).wrapping_sub((event::KIND_NAME as u64) << 32) + 1;
        let place = self.tail.reserve(2 + MORE);
        if place.index + MORE >= CHUNK_SLOTS as u32 - 1 {
            cold_path();
            return self
                .write_anew((place.chunk, place.commit, place.index), [kind, key, now], [head, rest, &[]])
                .then_some(None);
        }
        let about = kind | ((head.len() + rest.len()) as u64) << 16;
        // All before any is written: what is stored there might be what this reads.
        let first = self.first(place, event::KIND_NAME);
        let (slot, more) = (self.slot(place), self.slot(Place { index: place.index + 1, ..place }));
        let behind = self.behind::<MORE>(place, 2);
        slot.write_name([first, now, key, about], head);
        more.write_bytes(first.wrapping_add(NEXT), rest);
        Some(behind)
    }

    /// The slot so many behind a place, where one more was reserved.
    #[inline(always)]
    fn behind<const MORE: u32>(&self, place: Place, slots: u32) -> Option<Reserved<'_>> {
        let at = Place { index: place.index + slots, ..place };
        (MORE > 0).then(|| Reserved { slot: self.slot(at), commit: place.commit + slots })
    }

    /// Where the slots do not fit the rest of the chunk.
    #[cold]
    #[inline(never)]
    fn write_anew(
        &self,
        (chunk, commit, index): (u32, u32, u32),
        [kind, key, now]: [u64; 3],
        texts: [&[u8]; 3],
    ) -> bool {
        self.pad(Place { chunk, commit, index });
        self.write_texts(kind, key, 0, texts, now)
    }

    #[inline(never)]
    fn write_long_name(&self, kind: u64, key: u64, text: &[u8], now: u64) -> bool {
        let (text, _) = text.split_at(text.len().min(event::TEXT_MAX_BYTES));
        let (here, mut rest) = text.split_at(text.len().min(event::NAME_BYTES));
        let more = rest.len().div_ceil(event::TEXT_SLOT_BYTES) as u32;
        let mut place = self.tail.reserve(1 + more);
        if place.index + more >= CHUNK_SLOTS as u32 {
            cold_path();
            self.pad(place);
            return self.write_text(kind, key, 0, text, now);
        }
        let about = kind | (text.len() as u64) << 16;
        self.slot(place).write_name([self.first(place, event::KIND_NAME), now, key, about], here);
        while !rest.is_empty() {
            let (here, behind) = rest.split_at(rest.len().min(event::TEXT_SLOT_BYTES));
            rest = behind;
            place = Place { index: place.index + 1, commit: place.commit + 1, ..place };
            self.slot(place).write_bytes(self.first(place, event::KIND_TEXT_MORE), here);
        }
        true
    }

    /// The first word of what is no event.
    #[inline(always)]
    fn first(&self, place: Place, hook: u16) -> u64 {
        let [first, ..] = Event { commit: place.commit, hook, thread: self.number.get(), ..Event::default() }.words();
        first
    }

    /// Writes several texts as one.
    pub(crate) fn write_texts(&self, kind: u64, key: u64, number: u64, texts: [&[u8]; 3], now: u64) -> bool {
        let bytes = texts.iter().map(|text| text.len()).sum::<usize>().min(event::TEXT_MAX_BYTES);
        let more = bytes.div_ceil(event::TEXT_SLOT_BYTES) as u32;
        let head = Event {
            hook: event::KIND_TEXT,
            thread: self.number.get(),
            start: now,
            end: now,
            payload: [key, kind, bytes as u64, number],
            ..Event::default()
        };
        let mut left = bytes;
        let mut rest = Words::of(texts.map(|text| {
            let (text, _) = text.split_at(text.len().min(left));
            left -= text.len();
            text
        }));
        self.with_places(1 + more, |slot, commit, nth| {
            if nth == 0 {
                return slot.write(&Event { commit, ..head });
            }
            let words = core::array::from_fn(|_| rest.next());
            let first = Event { commit, hook: event::KIND_TEXT_MORE, thread: head.thread, ..Event::default() };
            slot.write_text(first.words()[0], words);
        })
    }

    /// Writes an event into a slot that was reserved for it.
    #[cfg(target_os = "macos")]
    #[inline(always)]
    pub(crate) fn write_at(&self, at: Reserved<'_>, event: Event) {
        at.slot.write(&Event { thread: self.number.get(), commit: at.commit, ..event });
    }
}
