//! A gate in our own stream: what is given behind it stands in the queue until it opens.
//!
//! So the GPU finds all of it there, and what passes between two events does not depend on how fast the host gave them. Nothing
//! but our own stream waits, for as long as a hundred calls take, and for a word of host memory: to open it takes no call that
//! the driver could refuse or hold up.
//!
//! But what is given behind it takes such calls. The driver may hold them up for a call of the program's that waits for the whole
//! device (code that is loaded at a kernel's first launch does), and so for our stream: then both would wait for ever.
//! So another thread of ours opens a gate that is closed for long.

use core::ffi::c_void;
use core::hint;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::driver;
use super::pool::Pool;
use crate::{helper, sys};

/// A gate is closed for no longer.
const LONGEST_NS: u64 = 2_000_000;
/// The thread that opens it looks so often, should a wake be missed.
const LOOK_EVERY_NS: u64 = 3_600_000_000_000;

/// The word of the gate that is closed; 0: none is.
static CLOSED: AtomicUsize = AtomicUsize::new(0);
/// Counts gates that close and open.
static TURNS: AtomicU32 = AtomicU32::new(0);
/// A gate is being opened by the other thread.
static OPENING: AtomicBool = AtomicBool::new(false);
/// The other thread, as the kernel numbers it; 0: there is none.
static KEEPER: AtomicU32 = AtomicU32::new(0);

/// Closed as long as this lives, but for [`LONGEST_NS`] at most.
pub(super) struct Gate(&'static AtomicU32);

impl Gate {
    /// Closes it. None: this driver or device has no such waits, or nobody would open it in time.
    pub(super) fn close(pool: &Pool, stream: u64) -> Option<Gate> {
        let (mut at, mut there) = (pool.gate.load(Ordering::Relaxed), 0);
        if at == 0 {
            if driver::host_allocate(&mut at, size_of::<u32>(), driver::REACHED_BY_DEVICE) != driver::SUCCESS {
                return None;
            }
            pool.gate.store(at, Ordering::Relaxed);
        }
        // SAFETY: the driver gave this word, aligned, and it is given back when nobody uses the pool any more.
        let gate = Gate::over(unsafe { &*(at as *const AtomicU32) })?;
        let closed = driver::device_pointer(&mut there, at, 0) == driver::SUCCESS
            && driver::wait_value(stream, there, 1, driver::AT_LEAST) == driver::SUCCESS;
        closed.then_some(gate)
    }

    /// A gate that opens when this word becomes 1. None: there is no thread to open it.
    fn over(word: &'static AtomicU32) -> Option<Gate> {
        if KEEPER.load(Ordering::Acquire) == 0 {
            helper::spawn(keep);
            // It begins within a moment, or next time there is one.
            sys::wait(&KEEPER, 0, LONGEST_NS);
        }
        if KEEPER.load(Ordering::Acquire) == 0 {
            return None;
        }
        word.store(0, Ordering::Release);
        CLOSED.store(ptr::from_ref(word).addr(), Ordering::SeqCst);
        turn();
        Some(Gate(word))
    }

    /// Opens it. False: it was open already, for it had been closed too long.
    pub(super) fn open(self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SYNC POINT: gate. Release: the device reads it.
        self.0.store(1, Ordering::Release);
        CLOSED.store(0, Ordering::SeqCst);
        turn();
        // The other thread took the word before, and writes it in a moment: it must not be given back meanwhile.
        while OPENING.load(Ordering::SeqCst) {
            hint::spin_loop();
        }
    }
}

fn turn() {
    TURNS.fetch_add(1, Ordering::AcqRel);
    sys::wake(&TURNS);
}

/// The other thread: opens each gate that is closed for too long.
unsafe extern "C" fn keep(_: *mut c_void) -> *mut c_void {
    sys::name_thread(c"gputrace-gate");
    KEEPER.store(sys::gettid(), Ordering::Release);
    sys::wake(&KEEPER);
    loop {
        let turns = TURNS.load(Ordering::Acquire);
        if CLOSED.load(Ordering::SeqCst) == 0 {
            sys::wait(&TURNS, turns, LOOK_EVERY_NS);
            continue;
        }
        sys::wait(&TURNS, turns, LONGEST_NS);
        if TURNS.load(Ordering::Acquire) != turns {
            continue;
        }
        OPENING.store(true, Ordering::SeqCst);
        // SAFETY: whoever closed the gate gives its word back only after this thread has said that it opens none.
        if let Some(word) = unsafe { (CLOSED.swap(0, Ordering::SeqCst) as *const AtomicU32).as_ref() } {
            word.store(1, Ordering::Release);
        }
        OPENING.store(false, Ordering::SeqCst);
    }
    #[expect(unreachable_code, reason = "the type of a thread's function")]
    ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_whose_maker_is_held_up_is_opened_all_the_same() {
        static WORD: AtomicU32 = AtomicU32::new(7);
        let closed = || (0..1000).find_map(|_| Gate::over(&WORD)).expect("a thread that opens it");
        // As a rule it is opened by who closed it.
        let gate = closed();
        assert_eq!(WORD.load(Ordering::Relaxed), 0);
        drop(gate);
        assert_eq!((WORD.load(Ordering::Relaxed), CLOSED.load(Ordering::Relaxed)), (1, 0));
        // Its maker never comes to that.
        let held = closed();
        let is_open = (0..10_000).any(|_| {
            sys::nap(1_000_000);
            WORD.load(Ordering::Acquire) == 1
        });
        assert!(is_open && !held.open());
    }
}
