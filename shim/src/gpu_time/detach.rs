//! Whether CUPTI may be taken off the process between windows, and the program's first graph or peer, after which it may not.
//!
//! From its first use until it is finalized CUPTI makes each launch dearer, whether records are on or not (on an H200
//! by 0.5 to 0.9 us, and a graph's by as much for each five of its nodes). So it is finalized when a window is over and its work
//! is told. That is safe while other threads launch, but not
//! - once the program has graphs: what CUPTI puts into those that are launched goes with it, and their next launch fails;
//! - once kernels may wait for other processes or devices, as NCCL's do: to put CUPTI on or to take it off waits for all kernels that
//!   run, with all launches held up meanwhile (measured on an H200), and what they wait for may be one of these launches;
//! - once somebody else uses CUPTI: it would be taken from them;
//! - before CUDA 12.6, where it ends in crashes.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gputrace_abi::gpu::reason;

use super::asking::{CALLBACKS_ARE_OURS, CLOCK_IS_OURS};
use super::library::Cupti;
use super::{END, OWNER, buffers, cupti, is_asked, is_own_thread, ring};
use crate::sys;

/// CUPTI_API_VERSION of CUDA 12.6.
const FIRST_SAFE: u32 = 24;
/// The program waits so long with its first graph or peer for our thread to begin.
const PATIENCE_NS: u64 = 1_000_000_000;
/// It is looked at so often.
const LOOK_NS: u64 = 10_000_000;

/// Somebody else has called CUPTI.
static IS_SHARED: AtomicBool = AtomicBool::new(false);
/// CUPTI is in the process.
pub(super) static IS_THERE: AtomicBool = AtomicBool::new(false);
/// Kernels may wait for other processes or devices.
static HAS_PEERS: AtomicBool = AtomicBool::new(false);
/// Why CUPTI is bound to stay, or to stay away: one of [`reason`].
static WHY: AtomicU64 = AtomicU64::new(0);
/// How far the program and our thread are about the first graph or peer.
static BOUND: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
/// The program waits for our thread's word.
const ASKED: u32 = 1;
/// Our thread takes CUPTI off, or decides not to.
const WORKING: u32 = 2;
/// There are graphs or peers, or will be in a moment.
const THERE: u32 = 3;

/// Somebody else calls CUPTI.
pub(super) fn share() {
    IS_SHARED.store(true, Ordering::Release);
}

/// Why CUPTI must stay; none: it may be taken off.
pub(super) fn obstacle(cupti: &Cupti) -> Option<u64> {
    let mut version = 0;
    // SAFETY: it writes one number.
    unsafe { (cupti.version)(&raw mut version) };
    if cupti.finalize.is_none() || version < FIRST_SAFE {
        Some(reason::VERSION)
    } else if IS_SHARED.load(Ordering::Acquire) {
        Some(reason::SHARED)
    } else {
        bound()
    }
}

/// Finalizes CUPTI, where it is at work for us and that may be. Under the lock, when records are off; whether it did.
pub(super) fn take_off(cupti: &Cupti) -> bool {
    let ours = CALLBACKS_ARE_OURS.load(Ordering::Relaxed) && obstacle(cupti).is_none();
    let Some(finalize) = cupti.finalize.filter(|_| ours) else { return false };
    // SAFETY: it takes nothing. Records are off, nobody else uses this CUPTI, and there are no graphs.
    let done = unsafe { finalize() } == 0;
    if done {
        CALLBACKS_ARE_OURS.store(false, Ordering::Relaxed);
        CLOCK_IS_OURS.store(false, Ordering::Relaxed);
        IS_THERE.store(false, Ordering::Relaxed);
        buffers::take_back();
    }
    done
}

/// Whether there are graphs or peers: which of them came first.
pub(super) fn bound() -> Option<u64> {
    (BOUND.load(Ordering::Acquire) == THERE).then(|| WHY.load(Ordering::Relaxed))
}

/// Whether it would be too late to put CUPTI on a process.
pub(super) fn is_too_late() -> bool {
    HAS_PEERS.load(Ordering::Acquire) && !IS_THERE.load(Ordering::Relaxed)
}

/// The program is about to make a graph, or to begin a capture.
#[inline(always)]
pub(crate) fn graph_comes() {
    if is_asked() && bound().is_none() {
        agree(reason::GRAPHS);
    }
}

/// The program is about to join others, for whom its kernels will wait: a communicator of several ranks, memory of another process.
#[cold]
#[inline(never)]
pub(crate) fn peer_comes() {
    if is_asked() && !HAS_PEERS.load(Ordering::Acquire) {
        agree(reason::PEERS);
        HAS_PEERS.store(true, Ordering::Release);
    }
}

/// Has our thread answer for the first graph or peer: once it has, it does not take CUPTI off any more. Without CUPTI, or where our
/// thread does not get to it, there is nothing to wait for.
#[cold]
#[inline(never)]
fn agree(reason: u64) {
    if OWNER.load(Ordering::Relaxed) != sys::getpid() || is_own_thread() {
        return;
    }
    let until = sys::clock_ns(sys::MONOTONIC) + PATIENCE_NS;
    let replace = |from, to| BOUND.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    // The first one's, should two come at once.
    let _ = WHY.compare_exchange(0, reason, Ordering::Relaxed, Ordering::Relaxed);
    if replace(NONE, ASKED).is_ok() {
        ring();
    }
    loop {
        let found = BOUND.load(Ordering::Acquire);
        let late = sys::clock_ns(sys::MONOTONIC) >= until;
        let is_alone = cupti().is_none() || END.load(Ordering::Acquire) != 0;
        match found {
            THERE => return,
            // It must not begin any more.
            ASKED if late || is_alone => drop(replace(ASKED, THERE)),
            // Who comes while CUPTI is being taken off waits, however long that takes.
            found => sys::wait(&BOUND, found, LOOK_NS),
        }
    }
}

/// Our thread's answer to the program's first graph or peer, if that is asked for. `work` is done before, and told which it is.
pub(super) fn answer(work: impl FnOnce(u64)) {
    if BOUND.compare_exchange(ASKED, WORKING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        work(WHY.load(Ordering::Relaxed));
        BOUND.store(THERE, Ordering::Release);
        sys::wake(&BOUND);
    }
}
