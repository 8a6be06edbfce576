//! Room in a ring: places in the thread's own chunk, in a new one, or in the shared chain.
//!
//! A signal handler may leave any of this by siglongjmp, on the thread's stack or from another one, and what it interrupted
//! never goes on. So each step can be done again, and the next attempt begins where the last one was left.

use core::sync::atomic::{Ordering, compiler_fence};

use gputrace_abi::layout::{CHUNKS_FOR_SHARED, Counters, ThreadRow, View, thread_state};
use gputrace_abi::ring::{CHUNK_SLOTS, Chunk, Chunks, Place, Slot, commit_word};
use gputrace_abi::{Event, event};

use super::patience::Patience;
use super::state::State;
use crate::{culling, frame, session, stack};

/// What comes before is done before what comes after, as a signal handler of this thread sees it.
#[inline(always)]
pub(super) fn step() {
    compiler_fence(Ordering::SeqCst);
}

impl State {
    /// Reserves `n` places next to each other, in this thread's chunk, a new one, or the shared chain.
    pub(super) fn with_places(&self, n: u32, mut write: impl FnMut(&Slot, u32, u32)) -> bool {
        let mut patience = Patience::default();
        loop {
            if self.with_own_places(n, &mut write) || self.with_shared_places(n, &mut write) {
                return true;
            }
            if !self.waits(&mut patience) {
                return false;
            }
        }
    }

    fn with_own_places(&self, n: u32, write: &mut impl FnMut(&Slot, u32, u32)) -> bool {
        for _ in 0..3 {
            let place = self.tail.reserve(n);
            if place.index + n <= CHUNK_SLOTS as u32 {
                for nth in 0..n {
                    let place = Place { index: place.index + nth, ..place };
                    write(self.slot(place), place.commit + nth, nth);
                }
                return true;
            }
            self.pad(place);
            if !self.next_chunk() {
                break;
            }
        }
        false
    }

    /// `--on-full block`: waits a little and says whether to try again. Both the pool and the shared chain are tried:
    /// threads that sleep may hold every chunk of the pool, for ever.
    #[cold]
    fn waits(&self, patience: &mut Patience) -> bool {
        let header = self.header();
        let here = 0usize;
        // A signal handler inside the slow path would wait for what it interrupted.
        let waits = header.block_when_full.load(Ordering::Relaxed) != 0 && !self.is_busy(&raw const here as usize);
        let begun = self.now();
        let napped = waits && patience.nap(header);
        if waits {
            header.waited_ticks.fetch_add(self.now().wrapping_sub(begun), Ordering::Relaxed);
        }
        napped
    }

    /// Commits the slots that a reservation took but did not fit into, so that the reader sees no hole.
    #[cold]
    pub(super) fn pad(&self, place: Place) {
        for index in place.index..CHUNK_SLOTS as u32 {
            self.put_padding(Place { index, commit: place.commit + (index - place.index), ..place });
        }
    }

    pub(super) fn put_padding(&self, place: Place) {
        let (commit, thread) = (place.commit, self.number.get());
        self.slot(place).write(&Event { commit, hook: event::KIND_PADDING, thread, ..Event::default() });
    }

    /// Commits the slots of the thread's chunk that a call had reserved which was left before it wrote them. A hole would
    /// hold the reader up, and keep the chunk from being used again.
    #[cold]
    pub(crate) fn fill_holes(&self) {
        self.fill_shared_holes();
        let (end, generation) = (self.tail.peek(), self.tail.generation());
        if !self.tail.has_chunk() {
            return;
        }
        for index in 0..end.index.min(CHUNK_SLOTS as u32) {
            self.fill(Place { index, commit: commit_word(generation, index), ..end });
        }
    }

    fn fill(&self, place: Place) {
        if self.slot(place).committed(place.commit).is_none() {
            self.put_padding(place);
        }
    }

    /// Takes a chunk from the pool and links it after the full one. False: none is free, or this is a signal handler
    /// inside the same work.
    pub(super) fn next_chunk(&self) -> bool {
        self.alone(|| self.next_chunk_guarded())
    }

    /// Does work that a signal handler of this thread must not enter again; false there.
    pub(super) fn alone(&self, work: impl FnOnce() -> bool) -> bool {
        let mut mark = 0usize;
        if self.is_busy(&raw mut mark as usize) {
            return false;
        }
        frame::stamp(&raw mut mark);
        self.busy.set(&raw mut mark as usize);
        step();
        let done = work();
        step();
        self.busy.set(0);
        done
    }

    /// Whether such work may be under way, seen from `here`.
    fn is_busy(&self, here: usize) -> bool {
        let mark = self.busy.get();
        mark != 0 && frame::may_run(mark, here)
    }

    fn next_chunk_guarded(&self) -> bool {
        let full = self.tail.peek();
        if full.index < CHUNK_SLOTS as u32 {
            return true; // a signal handler was here in between
        }
        // SAFETY: the segment is mapped as long as this state has a row.
        let Some(view) = (unsafe { session::view_at(self.segment.get()) }) else { return false };
        let Some(row) = self.row() else { return false };
        let old = self.end_of_chain(&view);
        let Some(taken) = self.take_chunk(&view, full) else {
            // Keeps the count of what was reserved beyond the end from reaching the generation's bits.
            if full.index > 1 << 20 {
                self.tail.park(CHUNK_SLOTS as u32);
            }
            return false;
        };
        let Some(new) = view.chunk(taken) else { return false };
        if self.is_linked(&view, row) {
            // An attempt before did all but the last step.
            self.tail.set(taken, new.generation());
        } else {
            let generation = new.open(u32::from(self.number.get()));
            match old {
                Some(old) => {
                    old.close(CHUNK_SLOTS as u32);
                    old.link(taken);
                }
                // SYNC POINT: first chunk. Release, with the collector's Acquire: the chunk is open.
                None => row.first_chunk.store(taken + 1, Ordering::Release),
            }
            step();
            self.tail.set(taken, generation);
        }
        step();
        self.taken.set(0);
        true
    }

    /// The chunk that the thread's events go to, full or not.
    fn end_of_chain<'a>(&self, view: &'a View) -> Option<&'a Chunk> {
        view.chunk(self.tail.peek().chunk).filter(|_| self.tail.has_chunk())
    }

    /// The chunk that comes next: one that an attempt before had taken, or a new one.
    fn take_chunk(&self, view: &View, full: Place) -> Option<u32> {
        // The tail's own chunk is one that an attempt took and forgot to say that it had done.
        let left = self.taken.get().checked_sub(1).filter(|left| *left != full.chunk || !self.tail.has_chunk());
        let limit = view.chunk_count().saturating_sub(CHUNKS_FOR_SHARED as u32);
        let taken = left.or_else(|| view.take_chunk(limit))?;
        self.taken.set(taken + 1);
        step();
        Some(taken)
    }

    /// Chunks of the segment that nobody has, and all.
    pub(crate) fn free_chunks(&self) -> Option<(u32, u32)> {
        // SAFETY: the segment is mapped as long as this state has a row.
        let view = unsafe { session::view_at(self.segment.get()) }.filter(|_| self.row().is_some())?;
        Some((view.free_chunks(), view.chunk_count()))
    }

    /// Whether the chunk in `taken` stands in the chain behind the tail's.
    fn is_linked(&self, view: &View, row: &ThreadRow) -> bool {
        match self.end_of_chain(view) {
            Some(old) => !old.is_unlinked(self.tail.generation()),
            None => row.first_chunk.load(Ordering::Relaxed) != 0,
        }
    }

    /// The thread's block of counters, taken now if it has none. None: every block is some thread's.
    pub(crate) fn counters(&self, view: &View) -> Option<&Counters> {
        if self.counters.get().is_null() {
            // A signal handler that comes in between counts in everybody's block.
            self.alone(|| {
                let Some(taken) = view.take_counters() else { return false };
                self.block.set(taken);
                self.counters.set(view.counters(taken).map_or(core::ptr::null(), |block| block));
                true
            });
        }
        // SAFETY: null or a block of the mapped segment, which is unmapped only after every state was wiped.
        unsafe { self.counters.get().as_ref() }
    }

    fn give_counters(&self) {
        let held = !self.counters.replace(core::ptr::null()).is_null();
        // SAFETY: the segment is mapped as long as this state has a row.
        if let Some(view) = unsafe { session::view_at(self.segment.get()) }.filter(|_| held) {
            view.give_counters(self.block.get());
        }
    }

    /// Ends the thread's chain, so that the collector can free the row. At thread exit.
    pub(super) fn close(&self) {
        let Some(row) = self.row() else { return };
        stack::forget(self);
        // SAFETY: the segment is mapped as long as this state has a row.
        if let Some(view) = unsafe { session::view_at(self.segment.get()) } {
            self.leave_shared_chain(&view);
            self.end_chain(&view, row);
        }
        self.tail.clear();
        self.give_counters();
        culling::end_thread(self);
        row.ended.store(session::now(), Ordering::Relaxed);
        self.row.set(core::ptr::null());
        // SYNC POINT: exited. Release, with the collector's Acquire: everything the thread wrote is visible.
        row.state.store(thread_state::EXITED, Ordering::Release);
    }

    fn end_chain(&self, view: &View, row: &ThreadRow) {
        let end = self.tail.peek();
        // What an attempt that was left had taken: it is the end of the chain, or in none.
        if let Some(left) = self.taken.get().checked_sub(1).filter(|left| *left != end.chunk || !self.tail.has_chunk())
        {
            if !self.is_linked(view, row) {
                view.give_chunk(left);
            } else if let Some(chunk) = view.chunk(left) {
                chunk.close(0);
                return chunk.link_end();
            }
        }
        if let Some(chunk) = self.end_of_chain(view) {
            chunk.close(end.index);
            chunk.link_end();
        }
    }
}
