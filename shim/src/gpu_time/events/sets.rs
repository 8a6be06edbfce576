//! The sets that tell what a pair of events takes are work on the GPU, which the program's own profiler would find in its results.
//! So none is given while somebody records, and who is about to waits until those that were given are done.

use core::sync::atomic::{AtomicU32, Ordering};

use super::super::aside;
use crate::sys;

/// Nobody minds.
const FREE: u32 = 0;
/// Sets are on their way.
const GIVEN: u32 = 1;
/// Somebody is about to record.
const HELD: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(FREE);

/// Sets take a millisecond or two, and 20 where the GPU is busy.
const LOOKS: u32 = 1000;
const LOOK_EVERY_NS: u64 = 100_000;

/// Gives sets and waits for them, which `work` does. None: somebody records.
pub(super) fn give<R>(work: impl FnOnce() -> R) -> Option<R> {
    // SYNC POINT: sets. Acquire, with the Release of whoever held them: that they record is seen.
    STATE.compare_exchange(FREE, GIVEN, Ordering::Acquire, Ordering::Relaxed).ok()?;
    let done = (!aside::is_recording()).then(work);
    STATE.store(FREE, Ordering::Release);
    done
}

/// Waits until no set is on its way, and lets none begin; false: in vain.
pub(in super::super) fn hold() -> bool {
    (0..LOOKS).any(|look| {
        if look > 0 {
            sys::nap(LOOK_EVERY_NS);
        }
        STATE.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    })
}

/// Whoever held them records now, or does not.
pub(in super::super) fn release() {
    // SYNC POINT: sets. Release, with the Acquire of who gives some.
    STATE.store(FREE, Ordering::Release);
}
