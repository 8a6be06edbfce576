//! A young child of which two threads make the first hooked calls at once: one of them makes the segment, the other one waits for
//! it. And calls of threads without a row, which are counted.

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_abi::Class;

use super::{LIVE, STARTING, present};
use crate::sys;
use crate::thread::{self, Process};

/// How often, and for how many nanoseconds, a thread waits for another one to make the segment: 20 ms at most, where a millisecond
/// is usual.
const NAPS: usize = 200;
const NAP_NS: u64 = 100_000;

/// Waits until another thread has made the segment, or has not; false: it is this one, interrupted by a signal, or takes too long.
pub(super) fn comes(process: &Process) -> bool {
    let is_made = || process.word.load(Ordering::Acquire) != STARTING;
    process.maker.load(Ordering::Relaxed) != sys::gettid()
        && (0..NAPS).any(|_| {
            sys::nap(NAP_NS);
            is_made()
        })
}

/// Counts a call of a thread that has no row, as seen and dropped, where there is a segment or one is being made.
#[cold]
#[inline(never)]
pub(crate) fn count_unrecorded(class: Class) {
    let Some(process) = thread::process() else { return };
    match process.word.load(Ordering::Acquire) {
        LIVE => count_rowless(class as usize, 1),
        STARTING => {
            if let Some(calls) = process.early.get(class as usize) {
                calls.fetch_add(1, Ordering::SeqCst);
                // It may be there by now, and who made it past these counts.
                if process.word.load(Ordering::SeqCst) != STARTING {
                    move_to_segment(class as usize, calls);
                }
            }
        }
        _ => {}
    }
}

/// Counts in the segment the calls of a class that were made before it was there. Who comes second finds none.
fn move_to_segment(class: usize, calls: &AtomicU32) {
    match calls.swap(0, Ordering::SeqCst) {
        0 => {}
        n => count_rowless(class, n.into()),
    }
}

fn count_rowless(class: usize, calls: u64) {
    if let Some(view) = present()
        && let Some(counter) = view.header().rowless.get(class)
    {
        counter.fetch_add(calls, Ordering::Relaxed);
    }
}

/// The segment is there, or will not be.
pub(super) fn take(process: &Process) {
    process.early.iter().enumerate().for_each(|(class, calls)| move_to_segment(class, calls));
}
