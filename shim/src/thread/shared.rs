//! Room in the shared chain, for threads that found the pool empty.
//!
//! One thread at a time links the next chunk, the others drop meanwhile. Where a signal handler throws it out, the lock
//! stays its own, and its next attempt, or its end, goes on where it was left.

use core::sync::atomic::Ordering;

use gputrace_abi::layout::{SHARED_OPEN, View};
use gputrace_abi::ring::{Chunks, Place, SHARED, Slot, index_of};

use super::places::step;
use super::state::State;
use crate::session;

impl State {
    pub(super) fn with_shared_places(&self, n: u32, write: &mut impl FnMut(&Slot, u32, u32)) -> bool {
        // SAFETY: the segment is mapped as long as this state has a row.
        let Some(view) = (unsafe { session::view_at(self.segment.get()) }) else { return false };
        for _ in 0..2 {
            let current = view.header().shared.load(Ordering::Acquire);
            if let Some(chunk) = current.checked_sub(1).and_then(|c| view.chunk(c))
                && let Some((commit, first)) = chunk.reserve_shared(n)
            {
                let note = u64::from(n) << 48 | u64::from(current - 1) << 32 | u64::from(commit);
                // A signal handler that writes in the middle puts back what it found.
                let outer = self.row().map(|row| row.sharing.swap(note, Ordering::Relaxed));
                step();
                for nth in 0..n {
                    if let Some(slot) = chunk.slot(first + nth) {
                        write(slot, commit + nth, nth);
                    }
                }
                step();
                if let Some((row, outer)) = self.row().zip(outer) {
                    row.sharing.store(outer, Ordering::Relaxed);
                }
                return true;
            }
            if !self.alone(|| self.next_shared_chunk(&view)) {
                return false;
            }
        }
        false
    }

    /// Puts a new chunk at the end of the shared chain, unless there is room in the last one. One thread does it; the
    /// others find the lock held and drop.
    fn next_shared_chunk(&self, view: &View) -> bool {
        let lock = &view.header().shared_lock;
        let me = self.shared_key();
        // Our own lock is one that an attempt before was thrown out with.
        if lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err_and(|holder| holder != me) {
            return false;
        }
        step();
        let ready = finish_link(view) || has_room(view) || (begin_link(view) && finish_link(view));
        step();
        lock.store(0, Ordering::Release);
        ready
    }

    /// Commits the slots that a call had reserved which was left before it wrote them.
    pub(super) fn fill_shared_holes(&self) {
        let Some(row) = self.row() else { return };
        let note = row.sharing.swap(0, Ordering::Relaxed);
        let (n, chunk, commit) = ((note >> 48) as u32, (note >> 32) as u32 & 0xffff, note as u32);
        // SAFETY: the segment is mapped as long as this state has a row.
        let view = unsafe { session::view_at(self.segment.get()) }.filter(|_| note != 0);
        let Some(shared) = view.as_ref().and_then(|view| view.chunk(chunk)) else { return };
        // What was written may have been read since, and its chunk be in use again.
        for commit in (commit..commit + n).filter(|commit| shared.awaits(*commit)) {
            self.put_padding(Place { chunk, commit, index: index_of(commit) });
        }
    }

    /// Gives up the lock that an attempt before was thrown out with. At thread exit.
    pub(super) fn leave_shared_chain(&self, view: &View) {
        if view.header().shared_lock.load(Ordering::Relaxed) == self.shared_key() {
            self.alone(|| self.next_shared_chunk(view));
        }
    }

    fn shared_key(&self) -> u32 {
        u32::from(self.number.get()) + 1
    }
}

/// Whether the last chunk has room. Numbers come back: the chunk may be the last one again, in a later use.
fn has_room(view: &View) -> bool {
    let last = view.header().shared.load(Ordering::Relaxed).checked_sub(1).and_then(|last| view.chunk(last));
    last.is_some_and(|chunk| chunk.full_at().is_none())
}

/// Takes a chunk and notes it, with the generation of the one that it is to be linked to.
fn begin_link(view: &View) -> bool {
    let header = view.header();
    let last = header.shared.load(Ordering::Relaxed).checked_sub(1).and_then(|last| view.chunk(last));
    header.shared_end.store(last.map_or(0, |chunk| chunk.generation()), Ordering::Relaxed);
    let Some(taken) = view.take_chunk(view.chunk_count()) else { return false };
    step();
    header.shared_taken.store(taken + 1, Ordering::Relaxed);
    step();
    true
}

/// Opens and links the chunk that was taken, or does what of this is not done yet. False: none was.
fn finish_link(view: &View) -> bool {
    let header = view.header();
    let noted = header.shared_taken.load(Ordering::Relaxed);
    let number = noted & !SHARED_OPEN;
    let Some(taken) = number.checked_sub(1) else { return false };
    let Some(new) = view.chunk(taken) else { return false };
    if noted & SHARED_OPEN == 0 {
        new.open(SHARED);
        step();
        header.shared_taken.store(number | SHARED_OPEN, Ordering::Relaxed);
    }
    let last = header.shared.load(Ordering::Relaxed);
    if last != number {
        match last.checked_sub(1).and_then(|last| view.chunk(last)) {
            Some(old) if old.is_unlinked(header.shared_end.load(Ordering::Relaxed)) => {
                old.close(old.full_at().unwrap_or(0));
                step();
                old.link(taken);
            }
            Some(_) => {}
            None => header.shared_first.store(number, Ordering::Release),
        }
        step();
        // SYNC POINT: shared chunk. Release, with the Acquire in `with_shared_places`: the chunk is open.
        header.shared.store(number, Ordering::Release);
    }
    step();
    header.shared_taken.store(0, Ordering::Relaxed);
    true
}
