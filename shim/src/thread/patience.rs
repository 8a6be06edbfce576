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
/// Naps, and the time that they take at least: 0.1 s.
const NAPS_TO_A_LOOK: u32 = 1_000;
/// 30 s.
const NAPS_AT_MOST: u32 = 300_000;

/// One event's wait for room.
#[derive(Default)]
pub(super) struct Patience {
    heartbeat: u64,
    naps: u32,
}

impl Patience {
    /// Naps once. False: nobody makes room any more. That holds for every thread until the heartbeat moves again.
    pub(super) fn nap(&mut self, header: &Header) -> bool {
        let beat = header.heartbeat.load(Ordering::Relaxed);
        if beat != self.heartbeat {
            *self = Patience { heartbeat: beat, naps: 0 };
        }
        if header.gave_up.load(Ordering::Relaxed) == beat.wrapping_add(1) {
            return false;
        }
        sys::nap(NAP_NS);
        self.naps += 1;
        if !self.naps.is_multiple_of(NAPS_TO_A_LOOK) {
            return true;
        }
        let listener = header.listener.load(Ordering::Relaxed);
        if self.naps < NAPS_AT_MOST && (listener == 0 || sys::is_there(listener)) {
            return true;
        }
        header.gave_up.store(beat.wrapping_add(1), Ordering::Relaxed);
        header.notes.fetch_or(note::GAVE_UP, Ordering::Relaxed);
        false
    }
}
