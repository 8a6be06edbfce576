//! Flushes in a thread of their own. CUPTI gives back all that is complete before a flush returns; behind a window of a CUDA graph
//! that is millions of records, of which the pool of buffers holds a fraction. So our thread reads while this one flushes.
//!
//! What it calls is a function that never goes away; between flushes it sleeps, in a fork's child it is not there.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use super::{cupti, spawn};
use crate::sys;

/// The thread, as the kernel numbers it; 0: there is none.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// Flushes that were asked for, and that are done.
static ASKED: AtomicU32 = AtomicU32::new(0);
static DONE: AtomicU32 = AtomicU32::new(0);
/// What the last one answered.
static RESULT: AtomicU32 = AtomicU32::new(0);

/// Buffers are read so often while a flush goes on.
const READ_EVERY_NS: u64 = 1_000_000;
/// The thread looks so often, should a wake be missed.
const LOOK_EVERY_NS: u64 = 3_600_000_000_000;

/// Makes the thread. For our own, once.
pub(super) fn start() {
    spawn(run);
}

/// Whether the calling thread is this one.
pub(super) fn is_this() -> bool {
    THREAD.load(Ordering::Relaxed) == sys::gettid()
}

/// Has CUPTI give back what is complete, and does something again and again meanwhile; what CUPTI answered.
pub(super) fn flush(mut meanwhile: impl FnMut()) -> u32 {
    if THREAD.load(Ordering::Acquire) == 0 {
        return flush_here();
    }
    let asked = ASKED.load(Ordering::Relaxed).wrapping_add(1);
    ASKED.store(asked, Ordering::Release);
    sys::wake(&ASKED);
    loop {
        // SYNC POINT: flushed. Acquire, with the Release of DONE: the answer is written.
        let done = DONE.load(Ordering::Acquire);
        if done == asked {
            return RESULT.load(Ordering::Relaxed);
        }
        sys::wait(&DONE, done, READ_EVERY_NS);
        meanwhile();
    }
}

fn flush_here() -> u32 {
    // SAFETY: the function is never unloaded; a flag: only what is complete.
    cupti().map_or(0, |cupti| unsafe { (cupti.flush)(0) })
}

unsafe extern "C" fn run(_: *mut c_void) -> *mut c_void {
    sys::name_thread(c"gputrace-flush");
    THREAD.store(sys::gettid(), Ordering::Release);
    loop {
        let (asked, done) = (ASKED.load(Ordering::Acquire), DONE.load(Ordering::Relaxed));
        if asked == done {
            sys::wait(&ASKED, asked, LOOK_EVERY_NS);
            continue;
        }
        RESULT.store(flush_here(), Ordering::Relaxed);
        // SYNC POINT: flushed. Release, with the Acquire of who asked.
        DONE.store(asked, Ordering::Release);
        sys::wake(&DONE);
    }
    #[expect(unreachable_code, reason = "the type of a thread's function")]
    ptr::null_mut()
}
