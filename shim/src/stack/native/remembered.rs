//! The last stack of each thread, so that the next one costs what is new in it.
//!
//! Programs allocate again and again from the same place, or from places that have most of their callers in common. Following
//! unwinding rules takes a few nanoseconds a frame; to see that a frame is still what it was takes one: where a frame's caller is
//! follows from three registers and the two words that the rule reads, so when these are what they were the answer is too.
//! A new walk goes on until it stands where the last one stood, looks at the words of all frames outside of that, and has the
//! hash that was made of them then: hashes are made from the outermost frame inwards.
//!
//! Of a stack that is deeper than is described the innermost frames are remembered, and what is called from there on. That is enough as
//! long as it is all that is described; with room for twice as many a recursion goes far before it has to be found again.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence};

use gputrace_abi::stack::DEPTH_MAX;

use super::{Place, Step, address, bounds, find, here, step, walk};
use crate::stack::frames::{Key, Language, Sink};
use crate::stack::memory::word;
use crate::stack::{known, python};
use crate::sys;
use crate::thread::State;

/// Frames of a stack that are remembered.
const DEEPEST: usize = 2 * DEPTH_MAX;
/// All that are described are among so many: some of them are our own.
const ENOUGH: usize = DEPTH_MAX + 16;
/// Frames of a deeper stack that are looked at: it may return from those beyond what is enough before more are wanted.
const AT_ONCE: usize = ENOUGH + DEPTH_MAX / 4;

/// One frame: where it is, which words told who called it, and the hash of it and all frames outside of it.
#[derive(Clone, Copy)]
struct Entry {
    place: Place,
    /// Where its caller's address and frame pointer were read; 0: the frame pointer was not.
    caller_at: usize,
    frame_at: usize,
    hash: u64,
}

/// A thread's last stack, outermost frame first; while the next one is walked, its new frames come from the other end. All zeros: none.
struct Memory {
    count: usize,
    /// The outermost frame is the stack's own.
    whole: bool,
    /// Libraries that had been opened: with another one an address may mean something else.
    opened: u32,
    entries: [Entry; DEEPEST],
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
            // SAFETY: mapped, as the slot has an owner, which is this thread; and no handler that interrupts it touches what is busy.
            let hash = unsafe { &mut *slot.memory.load(Ordering::Relaxed) }.walk(begin, end);
            compiler_fence(Ordering::SeqCst);
            slot.busy.store(false, Ordering::Relaxed);
            hash
        }
        None => Some(plain()),
    }
}

/// Hash of the frame that lies there in the calling thread's stack, and of all outside of it, as it is part of what [`hash`] just gave; none
/// where that is not known.
pub(in crate::stack) fn hash_from(state: &State, stack: usize) -> Option<u64> {
    let slot = slot_of(state.number()).filter(|slot| !slot.busy.load(Ordering::Relaxed))?;
    slot.busy.store(true, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as in `hash`.
    let hash = unsafe { &*slot.memory.load(Ordering::Relaxed) }.hash_from(stack);
    compiler_fence(Ordering::SeqCst);
    slot.busy.store(false, Ordering::Relaxed);
    hash
}

/// Another hash of the same frames, without memory: made from the innermost outwards.
#[cold]
#[inline(never)]
fn plain() -> u64 {
    let mut key = Key::new(Language::Native, DEPTH_MAX);
    walk(|pc, _| key.native(pc));
    key.hash
}

impl Memory {
    fn walk(&mut self, begin: Place, end: usize) -> Option<u64> {
        let opened = python::opened();
        if self.opened != opened {
            (self.opened, self.count) = (opened, 0);
        }
        // New frames are kept from here on.
        let (mut place, mut known, mut fresh) = (begin, self.count, DEEPEST);
        let known = loop {
            // Frames inside of this one have returned, and the innermost make room for new ones.
            known = known.min(fresh.saturating_sub(1));
            while let Some(entry) = known.checked_sub(1).and_then(|last| self.entries.get(last))
                && entry.place.stack < place.stack
            {
                known -= 1;
            }
            if let Some(same) = known.checked_sub(1).and_then(|last| self.entries.get(last))
                && same.place == place
            {
                match self.changed_outside(known) {
                    0 if self.whole || known + DEEPEST - fresh >= ENOUGH => break known,
                    // From that frame on nothing is known; inside of it nothing of use.
                    changed => known = changed,
                }
            }
            if fresh + AT_ONCE == DEEPEST {
                self.whole = false;
                break 0;
            }
            fresh -= 1;
            let entry = self.entries.get_mut(fresh)?;
            let Some(Step { next, caller_at, frame_at }) = step(place, end) else {
                *entry = Entry { place, caller_at: 0, frame_at: 0, hash: 0 };
                self.whole = true;
                break 0;
            };
            *entry = Entry { place, caller_at, frame_at, hash: 0 };
            place = next;
        };
        let (count, hash) = self.combine(known, fresh);
        self.count = count;
        hash
    }

    fn hash_from(&self, stack: usize) -> Option<u64> {
        let entries = self.entries.get(..self.count)?;
        let entry = entries.iter().rev().find(|entry| entry.place.stack >= stack)?;
        (entry.place.stack == stack).then_some(entry.hash)
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

    /// Puts the new frames, from `fresh` on, inside of the `known` ones. Their number, and the hash of all.
    fn combine(&mut self, known: usize, fresh: usize) -> (usize, Option<u64>) {
        let seed = known::mix(Language::Native as u64, self.opened.into());
        let outermost = known.checked_sub(1).and_then(|last| self.entries.get(last));
        let mut hash = outermost.map_or(seed, |entry| entry.hash);
        let ours = find::ours();
        let mut count = known;
        for at in fresh..DEEPEST {
            let Some(entry) = self.entries.get(at).copied() else { break };
            if !ours.contains(&entry.place.pc) {
                hash = known::mix(hash, entry.place.pc as u64);
            }
            if let Some(place) = self.entries.get_mut(count) {
                *place = Entry { hash, ..entry };
                count += 1;
            }
        }
        (count, Some(hash))
    }
}

const SLOTS: usize = 256;

struct Slot {
    /// Whose memory this is: number of the thread's row + 1, and above that which segment it belongs to. 0: nobody's.
    owner: AtomicU64,
    busy: AtomicBool,
    /// Mapped before the first owner has it, and touched only by who is; never unmapped.
    memory: AtomicPtr<Memory>,
}

static MEMORIES: [Slot; SLOTS] = [const {
    let memory = AtomicPtr::new(core::ptr::null_mut());
    Slot { owner: AtomicU64::new(0), busy: AtomicBool::new(false), memory }
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
    if living
        || !has_memory(slot)
        || slot.owner.compare_exchange(has, own, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        return None;
    }
    // SAFETY: the slot is this thread's now, and its memory is mapped. What another thread remembered may lie where nothing is mapped any
    // more, also where that had this one's number.
    unsafe { (*slot.memory.load(Ordering::Relaxed)).count = 0 };
    slot.busy.store(false, Ordering::Relaxed);
    Some(slot)
}

fn has_memory(slot: &Slot) -> bool {
    let none = core::ptr::null_mut();
    if slot.memory.load(Ordering::Relaxed) != none {
        return true;
    }
    let Ok(mapped) = sys::map(size_of::<Memory>(), None) else { return false };
    if slot.memory.compare_exchange(none, mapped.cast(), Ordering::Relaxed, Ordering::Relaxed).is_err() {
        // SAFETY: another thread was first, and nobody knows of this one.
        unsafe { sys::unmap(mapped, size_of::<Memory>()) };
    }
    true
}

/// The thread ends.
pub(in crate::stack) fn forget(number: u16) {
    if let Some(slot) = MEMORIES.get(usize::from(number) % SLOTS) {
        let _ = slot.owner.compare_exchange(owner(number), 0, Ordering::Release, Ordering::Relaxed);
    }
}
