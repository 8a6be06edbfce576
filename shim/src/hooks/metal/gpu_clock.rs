//! Pairs of host and GPU time: they show whether a GPU's clock runs as the host's, and put its times right where it does not.
//!
//! A device is asked by Metal's own thread, in the handler of one of its command buffers, which holds it: at the first one, then after
//! 16 ms, twice as long each time, and at last once a second. Metal 4's feedback names nothing that holds a device; there the
//! next commit asks, whose queue does. A device whose class does not answer has no pairs.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gputrace_abi::Event;
use gputrace_abi::event::KIND_GPU_CLOCK;

use super::{completed, devices};
use crate::interpose::objc::{Id, send};
use crate::{sys, thread};

/// The first two pairs lie so far apart, and more of them ever further.
const FIRST_NS: u64 = 16_000_000;
const MOST_NS: u64 = 1_000_000_000;

/// When the next pair of a device is due, by its number: ns of [`sys::MONOTONIC`].
struct Due {
    at: AtomicU64,
    step: AtomicU64,
}

/// The last place is for devices whose number is not known.
static DUE: [Due; 17] = [const { Due { at: AtomicU64::new(0), step: AtomicU64::new(FIRST_NS) } }; 17];
/// A commit of Metal 4's is to ask.
static WANTED: AtomicBool = AtomicBool::new(true);

/// Whether a pair is due: whoever is told so takes it.
fn is_due(context: u16, now_ns: u64) -> bool {
    let [.., unknown] = &DUE;
    let place = DUE.get(usize::from(context).wrapping_sub(1)).unwrap_or(unknown);
    let at = place.at.load(Ordering::Relaxed);
    if now_ns < at {
        return false;
    }
    let step = place.step.load(Ordering::Relaxed);
    let is_ours = place.at.compare_exchange(at, now_ns + step, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_ours {
        place.step.store((2 * step).min(MOST_NS), Ordering::Relaxed);
    }
    is_ours
}

/// Times of a command buffer, or of feedback (nil), are about to be told.
pub(super) fn at_end(buffer: Id, context: u16, now_ns: u64) {
    if !is_due(context, now_ns) {
        return;
    }
    match buffer.is_null() {
        true => WANTED.store(true, Ordering::Relaxed),
        false => take(send!(buffer, "device"; Id), context),
    }
}

/// Command buffers were committed to a queue of Metal 4's.
#[inline(always)]
pub(super) fn at_commit(queue: Id) {
    if WANTED.load(Ordering::Relaxed) {
        core::hint::cold_path();
        asked(queue);
    }
}

#[cold]
#[inline(never)]
fn asked(queue: Id) {
    if WANTED.swap(false, Ordering::Relaxed) {
        take(send!(queue, "device"; Id), devices::number(queue));
    }
}

/// Between the readings of the host's clock around one of the GPU's. Where it takes longer, the shortest of some is taken.
const APART_NS: u64 = 2_000;
const MOST_READINGS: usize = 4;

#[cold]
#[inline(never)]
fn take(device: Id, context: u16) {
    let Some(state) = thread::state_slow().filter(|state| !state.is_paused() && context != 0) else { return };
    let (now, moment, apart) = completed::one_moment();
    let mut best = None;
    for _ in 0..MOST_READINGS {
        let (mut host, mut gpu) = (0u64, 0u64);
        let before = sys::clock_ns(sys::MONOTONIC);
        send!(device, "sampleTimestamps:gpuTimestamp:", (&raw mut host => *mut u64, &raw mut gpu => *mut u64); ());
        let after = sys::clock_ns(sys::MONOTONIC);
        // The host's time is Metal's word for ours: ours says more, it is read before and after.
        if gpu == 0 {
            break;
        }
        if best.is_none_or(|(_, from, to): (u64, u64, u64)| after.wrapping_sub(before) < to.wrapping_sub(from)) {
            best = Some((gpu, before, after));
        }
        if after.wrapping_sub(before) <= APART_NS {
            break;
        }
    }
    let Some((gpu, before, after)) = best else { return };
    // One that finds no room is missed by nobody: others come.
    state.write_apart(Event {
        hook: KIND_GPU_CLOCK,
        start: now,
        end: now,
        context,
        payload: [gpu.wrapping_sub(moment), before.wrapping_sub(moment), after.wrapping_sub(moment), apart],
        ..Event::default()
    });
}
