//! Room in a ring: places in the thread's own chunk, in a new one, or in the shared chain.

use core::sync::atomic::Ordering;

use gputrace_abi::layout::{CHUNKS_FOR_SHARED, Counters, View, thread_state};
use gputrace_abi::ring::{CHUNK_SLOTS, Chunks, Place, SHARED, Slot};
use gputrace_abi::{Event, event};

use super::patience::Patience;
use super::state::State;
use crate::session;

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
            if !self.next_chunk(place) {
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
        let frame = 0u8;
        // A signal handler inside the slow path would wait for what it interrupted.
        if header.block_when_full.load(Ordering::Relaxed) == 0 || self.busy.get() > &raw const frame as usize {
            return false;
        }
        patience.nap(header)
    }

    /// Commits the slots that a reservation took but did not fit into, so that the reader sees no hole.
    fn pad(&self, place: Place) {
        for index in place.index..CHUNK_SLOTS as u32 {
            let padding = Event {
                commit: place.commit + (index - place.index),
                hook: event::KIND_PADDING,
                thread: self.number.get(),
                ..Event::default()
            };
            self.slot(Place { index, ..place }).write(&padding);
        }
    }

    /// Takes a chunk from the pool and links it after the full one. False: none is free, or this is a signal handler
    /// inside the same work.
    pub(super) fn next_chunk(&self, full: Place) -> bool {
        self.alone(|| self.next_chunk_guarded(full))
    }

    /// Does work that a signal handler of this thread must not enter again; false there.
    fn alone(&self, work: impl FnOnce() -> bool) -> bool {
        let frame = 0u8;
        let here = &raw const frame as usize;
        if self.busy.get() > here {
            return false;
        }
        self.busy.set(here);
        let done = work();
        self.busy.set(0);
        done
    }

    fn next_chunk_guarded(&self, full: Place) -> bool {
        if self.tail.peek().index < CHUNK_SLOTS as u32 {
            return true; // a signal handler was here in between
        }
        // SAFETY: the segment is mapped as long as this state has a row.
        let Some(view) = (unsafe { session::view_at(self.segment.get()) }) else { return false };
        let limit = view.chunk_count().saturating_sub(CHUNKS_FOR_SHARED as u32);
        let Some(taken) = view.take_chunk(limit) else {
            // Keeps the count of what was reserved beyond the end from reaching the generation's bits.
            if full.index > 1 << 20 {
                self.tail.park(CHUNK_SLOTS as u32);
            }
            return false;
        };
        let Some(new) = view.chunk(taken) else { return false };
        let generation = new.open(u32::from(self.number.get()));
        let had_chunk = self.tail.has_chunk();
        match view.chunk(full.chunk).filter(|_| had_chunk) {
            Some(old) => {
                old.close(CHUNK_SLOTS as u32);
                old.link(taken);
            }
            None => {
                if let Some(row) = self.row() {
                    // SYNC POINT: first chunk. Release, with the collector's Acquire: the chunk is open.
                    row.first_chunk.store(taken + 1, Ordering::Release);
                }
            }
        }
        self.tail.set(taken, generation);
        true
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

    fn with_shared_places(&self, n: u32, write: &mut impl FnMut(&Slot, u32, u32)) -> bool {
        // SAFETY: the segment is mapped as long as this state has a row.
        let Some(view) = (unsafe { session::view_at(self.segment.get()) }) else { return false };
        for _ in 0..2 {
            let current = view.header().shared.load(Ordering::Acquire);
            if let Some(chunk) = current.checked_sub(1).and_then(|c| view.chunk(c))
                && let Ok((commit, first)) = chunk.reserve_shared(n)
            {
                for nth in 0..n {
                    if let Some(slot) = chunk.slot(first + nth) {
                        write(slot, commit + nth, nth);
                    }
                }
                return true;
            }
            if !self.alone(|| next_shared_chunk(&view, current)) {
                return false;
            }
        }
        false
    }

    /// Ends the thread's chain, so that the collector can free the row. At thread exit.
    pub(super) fn close(&self) {
        let Some(row) = self.row() else { return };
        let end = self.tail.peek();
        // SAFETY: the segment is mapped as long as this state has a row.
        if let Some(view) = unsafe { session::view_at(self.segment.get()) }
            && self.tail.has_chunk()
            && let Some(chunk) = view.chunk(end.chunk)
        {
            chunk.close(end.index);
            chunk.link_end();
        }
        self.tail.clear();
        self.give_counters();
        row.ended.store(session::now(), Ordering::Relaxed);
        self.row.set(core::ptr::null());
        // SYNC POINT: exited. Release, with the collector's Acquire: everything the thread wrote is visible.
        row.state.store(thread_state::EXITED, Ordering::Release);
    }
}

/// Puts a new chunk at the end of the shared chain. One thread does it; the others find the lock held and drop.
fn next_shared_chunk(view: &View, current: u32) -> bool {
    let header = view.header();
    if header.shared_lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return false;
    }
    let end = current.checked_sub(1).and_then(|c| view.chunk(c));
    // Numbers come back: the chunk may be the end of the chain again, in a later use that still has room.
    let mut ready = header.shared.load(Ordering::Relaxed) != current || end.is_some_and(|chunk| !chunk.is_closed());
    if !ready
        && let Some(taken) = view.take_chunk(view.chunk_count())
        && let Some(new) = view.chunk(taken)
    {
        new.open(SHARED);
        match end {
            Some(old) => old.link(taken),
            None => header.shared_first.store(taken + 1, Ordering::Release),
        }
        // SYNC POINT: shared chunk. Release, with the Acquire in `with_shared_places`: the chunk is open.
        header.shared.store(taken + 1, Ordering::Release);
        ready = true;
    }
    header.shared_lock.store(0, Ordering::Release);
    ready
}
