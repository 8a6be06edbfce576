//! Which streams are being captured into a graph: work given to them does not run yet.
//!
//! A capture begins on one stream; another joins it when it waits for an event that was recorded in it. The driver
//! could be asked, but while a capture is open none of our own calls is made. Small fixed tables; a program with more
//! than 64 captured streams at once gets some launches marked as not captured.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Captures that are open in the process, and above them [`NAMES`]: what a launch has to look at more closely, in one
/// word that costs it one load.
pub(crate) static ATTENTION: AtomicU32 = AtomicU32::new(0);
/// Names of functions were lost or never seen: launches check whether theirs was written.
pub(crate) const NAMES: u32 = 1 << 31;
static STREAMS: Members<64> = Members::new();
static EVENTS: Members<256> = Members::new();

/// Handles and the stream on which their capture began.
struct Members<const N: usize> {
    handle: [AtomicU64; N],
    origin: [AtomicU64; N],
}

impl<const N: usize> Members<N> {
    const fn new() -> Self {
        Members { handle: [const { AtomicU64::new(0) }; N], origin: [const { AtomicU64::new(0) }; N] }
    }

    fn origin_of(&self, handle: u64) -> Option<u64> {
        let at = self.handle.iter().position(|h| h.load(Ordering::Acquire) == handle)?;
        self.origin.get(at).map(|o| o.load(Ordering::Relaxed))
    }

    fn add(&self, handle: u64, origin: u64) {
        if self.origin_of(handle).is_some() {
            return;
        }
        for (place, from) in self.handle.iter().zip(&self.origin) {
            // The origin first: who sees the handle sees whose it is. A place being filled holds all ones.
            if place.compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                from.store(origin, Ordering::Relaxed);
                place.store(handle, Ordering::Release);
                return;
            }
        }
    }

    fn clear(&self) {
        self.handle.iter().for_each(|handle| handle.store(0, Ordering::Release));
    }

    fn remove_all_of(&self, origin: u64) {
        for (place, from) in self.handle.iter().zip(&self.origin) {
            let handle = place.load(Ordering::Acquire);
            if handle != 0 && handle != u64::MAX && from.load(Ordering::Relaxed) == origin {
                place.store(0, Ordering::Release);
            }
        }
    }
}

/// Whether any capture is open.
#[inline(always)]
pub(crate) fn any() -> bool {
    ATTENTION.load(Ordering::Relaxed) & !NAMES != 0
}

/// Whether launches have to check their functions' names.
#[inline(always)]
pub(crate) fn names_wanted() -> bool {
    ATTENTION.load(Ordering::Relaxed) & NAMES != 0
}

/// Makes launches check their functions' names from now on.
pub(crate) fn want_names() {
    ATTENTION.fetch_or(NAMES, Ordering::Relaxed);
}

/// Nothing is known: captures that were open may have ended unseen, and names of functions were never seen.
pub(crate) fn forget() {
    STREAMS.clear();
    EVENTS.clear();
    ATTENTION.store(NAMES, Ordering::Relaxed);
}

/// Whether work on this stream goes into a graph.
#[inline(always)]
pub(crate) fn holds(stream: u64) -> bool {
    any() && is_captured(stream)
}

#[cold]
#[inline(never)]
fn is_captured(stream: u64) -> bool {
    stream != 0 && STREAMS.origin_of(stream).is_some()
}

/// The legacy stream cannot be captured, so 0 in a capture means the thread's own stream (CU_STREAM_PER_THREAD).
fn named(stream: u64) -> u64 {
    if stream == 0 { 2 } else { stream }
}

/// A capture began on this stream.
pub(crate) fn begin(stream: u64) {
    let stream = named(stream);
    STREAMS.add(stream, stream);
    ATTENTION.fetch_add(1, Ordering::Relaxed);
}

/// The capture that began on this stream ended, in a graph or in an error.
pub(crate) fn end(stream: u64) {
    let stream = named(stream);
    if STREAMS.origin_of(stream) == Some(stream) {
        STREAMS.remove_all_of(stream);
        EVENTS.remove_all_of(stream);
        let close = |word: u32| (word & !NAMES).checked_sub(1).map(|open| open | word & NAMES);
        let _ = ATTENTION.fetch_update(Ordering::Relaxed, Ordering::Relaxed, close);
    }
}

/// An event was recorded on a stream.
pub(crate) fn event_recorded(event: u64, stream: u64) {
    if any()
        && let Some(origin) = STREAMS.origin_of(named(stream))
    {
        EVENTS.add(event, origin);
    }
}

/// A stream was made to wait for an event.
pub(crate) fn stream_waits(stream: u64, event: u64) {
    if any()
        && let Some(origin) = EVENTS.origin_of(event)
    {
        STREAMS.add(named(stream), origin);
    }
}
