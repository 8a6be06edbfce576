//! How long a thread waits for room where the user asked for it (`--on-full block`).
//!
//! A collector on a loaded machine may get no processor for seconds, and still nothing is to be lost. One that was
//! killed never comes back, and the program must not hang. So a thread waits as long as the collector's process is
//! there, and for one that neither ends nor moves (stopped, or in a namespace of its own) not for ever. Time is counted
//! in naps: a program that was stopped itself, by Ctrl-Z together with the collector, has waited for nobody.

use core::sync::atomic::Ordering;

use gputrace_abi::layout::{Header, note};

use crate::sys;

/// A nap leaves the processor to the collector, which threads that only yield would keep from it.
const NAP_NS: u64 = 100_000;
/// Each nap of a wait is twice as long as the one before, up to 2^10 of these, 0.1 s: four thousand threads that all wake a hundred times a second
/// leave two processors, and the collector, nothing. No wait takes longer than twice what it had to for that.
const LONGER: u32 = 10;
/// So many of the first naps, 0.1 s, lie between two looks whether the collector is there.
const NAPS_TO_A_LOOK: u64 = 1_000;
/// 30 s.
const NAPS_AT_MOST: u64 = 300_000;

/// One event's wait for room.
#[derive(Default)]
pub(super) struct Patience {
    heartbeat: u64,
    /// How long it slept since the heartbeat moved, and at the last look, in first naps.
    slept: u64,
    looked: u64,
    /// Naps so far, up to [`LONGER`].
    naps: u32,
}

impl Patience {
    /// Naps once. False: nobody makes room any more. That holds for every thread until the heartbeat moves again.
    pub(super) fn nap(&mut self, header: &Header) -> bool {
        let beat = header.heartbeat.load(Ordering::Relaxed);
        if beat != self.heartbeat {
            *self = Patience { heartbeat: beat, slept: 0, looked: 0, naps: self.naps };
        }
        if header.gave_up.load(Ordering::Relaxed) == beat.wrapping_add(1) {
            return false;
        }
        sys::nap(NAP_NS << self.naps);
        self.slept += 1 << self.naps;
        self.naps = LONGER.min(self.naps + 1);
        if self.slept - self.looked < NAPS_TO_A_LOOK {
            return true;
        }
        self.looked = self.slept;
        let listener = header.listener.load(Ordering::Relaxed);
        if self.slept < NAPS_AT_MOST && (listener == 0 || sys::is_there(listener)) {
            return true;
        }
        header.gave_up.store(beat.wrapping_add(1), Ordering::Relaxed);
        header.notes.fetch_or(note::GAVE_UP, Ordering::Relaxed);
        false
    }
}
