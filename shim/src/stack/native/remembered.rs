//! The last stack of each thread, so that the next one costs what is new in it.
//!
//! Programs allocate again and again from the same place, or from places that have most of their callers in common. Following
//! unwinding rules takes a few nanoseconds a frame; to see that a frame is still what it was takes one: where a frame's caller is
//! follows from three registers and the two words that the rule reads, so when these are what they were the answer is too.
//! A new walk goes on until it stands where the last one stood, looks at the words of all frames outside of that, and has the
//! hash that was made of them then: hashes are made from the outermost frame inwards.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};

use super::{Place, Step, address, bounds, find, here, step, walk};
use crate::stack::frames::{Key, Language, Sink};
use crate::stack::memory::word;
use crate::stack::{known, python};
use crate::thread::State;

/// Frames of a stack that are remembered: more than are described, and our own.
const DEEPEST: usize = 144;

/// One frame: where it is, which words told who called it, and the hash of it and all frames outside of it.
#[derive(Clone, Copy)]
struct Entry {
    place: Place,
    /// Where its caller's address and frame pointer were read; 0: the frame pointer was not.
    caller_at: usize,
    frame_at: usize,
    hash: u64,
}

const NOTHING: Entry = Entry { place: Place { pc: 0, stack: 0, frame: 0 }, caller_at: 0, frame_at: 0, hash: 0 };

/// A thread's last stack, outermost frame first, and room for the frames that are new.
struct Memory {
    count: usize,
    /// Libraries that had been opened: with another one an address may mean something else.
    opened: u32,
    entries: [Entry; DEEPEST],
    fresh: [Entry; DEEPEST],
}

/// Hash of the calling thread's frames; none where they are not known.
pub(in crate::stack) fn hash(state: &State) -> Option<u64> {
    let begin = here();
    let end = bounds::end_of_stack(begin.stack)?;
    let slot = slot_of(state.number());
    match slot.filter(|slot| !slot.busy.load(Ordering::Relaxed)) {
        Some(slot) => {
            slot.busy.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            // SAFETY: the slot is this thread's, and no handler that interrupts it touches what is busy.
            let hash = unsafe { &mut *slot.memory.get() }.walk(begin, end);
            compiler_fence(Ordering::SeqCst);
            slot.busy.store(false, Ordering::Relaxed);
            hash
        }
        None => Some(plain()),
    }
}

/// Another hash of the same frames, without memory: made from the innermost outwards.
#[cold]
#[inline(never)]
fn plain() -> u64 {
    let mut key = Key::new(Language::Native);
    walk(|pc, _| key.native(pc));
    key.hash
}

impl Memory {
    fn walk(&mut self, begin: Place, end: usize) -> Option<u64> {
        let opened = python::opened();
        if self.opened != opened {
            (self.opened, self.count) = (opened, 0);
        }
        let (mut place, mut known, mut fresh) = (begin, self.count, 0);
        let known = loop {
            // Frames inside of this one have returned.
            while let Some(entry) = known.checked_sub(1).and_then(|last| self.entries.get(last))
                && entry.place.stack < place.stack
            {
                known -= 1;
            }
            if let Some(same) = known.checked_sub(1).and_then(|last| self.entries.get(last))
                && same.place == place
            {
                match self.changed_outside(known) {
                    0 => break known,
                    // From that frame on nothing is known; inside of it nothing of use.
                    changed => known = changed,
                }
            }
            let Some(entry) = self.fresh.get_mut(fresh) else {
                // Deeper than is remembered, and than is described.
                self.count = 0;
                return self.combine(0, fresh).1;
            };
            fresh += 1;
            let Some(Step { next, caller_at, frame_at }) = step(place, end) else {
                *entry = Entry { place, ..NOTHING };
                break 0;
            };
            *entry = Entry { place, caller_at, frame_at, hash: 0 };
            place = next;
        };
        let (count, hash) = self.combine(known, fresh);
        self.count = count;
        hash
    }

    /// Of the frames before `known`, looks at those outside of the last: how many are left that may still be as they were; 0 when
    /// all are.
    fn changed_outside(&self, known: usize) -> usize {
        let Some(entries) = self.entries.get(..known) else { return 0 };
        for (at, pair) in entries.windows(2).enumerate().rev() {
            let [outer, inner] = pair else { continue };
            // SAFETY: the words lie between the stack pointer and the end of the stack, where they were read before.
            let word = |at: usize| unsafe { word(at) };
            let caller = word(inner.caller_at).map(address) == Some(outer.place.pc);
            if !caller || inner.frame_at != 0 && word(inner.frame_at) != Some(outer.place.frame) {
                return at + 1;
            }
        }
        0
    }

    /// Puts the new frames inside of the `known` ones. Their number, and the hash of all.
    fn combine(&mut self, known: usize, fresh: usize) -> (usize, Option<u64>) {
        let seed = known::mix(Language::Native as u64, self.opened.into());
        let outermost = known.checked_sub(1).and_then(|last| self.entries.get(last));
        let mut hash = outermost.map_or(seed, |entry| entry.hash);
        let ours = find::ours();
        let new = self.fresh.get(..fresh).unwrap_or(&[]).iter().rev();
        let mut count = known;
        for entry in new {
            if !ours.contains(&entry.place.pc) {
                hash = known::mix(hash, entry.place.pc as u64);
            }
            // Known and new ones together may be more than are remembered: the innermost are in the hash only.
            if let Some(place) = self.entries.get_mut(count) {
                *place = Entry { hash, ..*entry };
                count += 1;
            }
        }
        (count, Some(hash))
    }
}

const SLOTS: usize = 256;

/// Whose memory this is: number of the thread's row + 1, and above that which segment it belongs to. 0: nobody's.
struct Slot {
    owner: AtomicU64,
    busy: AtomicBool,
    memory: UnsafeCell<Memory>,
}

// SAFETY: the memory is touched only by the owner, a thread.
unsafe impl Sync for Slot {}

static MEMORIES: [Slot; SLOTS] = [const {
    let memory = Memory { count: 0, opened: 0, entries: [NOTHING; DEEPEST], fresh: [NOTHING; DEEPEST] };
    Slot { owner: AtomicU64::new(0), busy: AtomicBool::new(false), memory: UnsafeCell::new(memory) }
}; SLOTS];

fn owner(number: u16) -> u64 {
    known::salt() << 16 | (u64::from(number) + 1)
}

/// The thread's memory. None: another living thread has it.
fn slot_of(number: u16) -> Option<&'static Slot> {
    let slot = MEMORIES.get(usize::from(number) % SLOTS)?;
    let (has, own) = (slot.owner.load(Ordering::Relaxed), owner(number));
    if has == own {
        return Some(slot);
    }
    // Threads of another segment are those of the process that this one was forked from.
    let living = has != 0 && has >> 16 == own >> 16;
    if living || slot.owner.compare_exchange(has, own, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return None;
    }
    // SAFETY: the slot is this thread's now. What another thread remembered may lie where nothing is mapped any more.
    unsafe { (*slot.memory.get()).count = 0 };
    slot.busy.store(false, Ordering::Relaxed);
    Some(slot)
}

/// The thread ends.
pub(in crate::stack) fn forget(number: u16) {
    if let Some(slot) = MEMORIES.get(usize::from(number) % SLOTS) {
        let _ = slot.owner.compare_exchange(owner(number), 0, Ordering::Release, Ordering::Relaxed);
    }
}
