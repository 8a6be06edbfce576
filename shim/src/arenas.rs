//! What glibc's malloc holds for itself (`--malloc-arenas`): a thread of ours asks it every few seconds.
//!
//! mallinfo2 takes the lock of one arena after the other and counts what is free in it. So it is asked only where the user
//! wants that, and never by a thread of the program, which may hold such a lock. A forked child has no such thread.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_abi::arenas::Look;
use gputrace_abi::layout::note;

use crate::interpose::elf;
use crate::{helper, session, sys};

/// Time between two looks; 0: nobody wants any.
static PERIOD_NS: AtomicU64 = AtomicU64::new(0);
/// Many programs are short: the first look comes so soon.
const FIRST_NS: u64 = 100_000_000;

/// A program that is over by the end of its last thread waits so long for ours.
const NAP_NS: u64 = 500_000_000;

/// `struct mallinfo2` of malloc.h.
#[repr(C)]
#[derive(Default)]
struct Info {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

static MALLINFO2: elf::Function = elf::Function::anywhere(c"mallinfo2");

/// `GPUTRACE_MALLOC_ARENAS`: milliseconds. For the constructor.
pub(crate) fn configure() {
    let wanted = sys::variable(b"GPUTRACE_MALLOC_ARENAS").and_then(session::number);
    PERIOD_NS.store(wanted.unwrap_or(0).saturating_mul(1_000_000), Ordering::Relaxed);
}

/// There is a segment: makes the thread, or says why there is nothing to ask.
pub(crate) fn started() {
    if PERIOD_NS.load(Ordering::Relaxed) == 0 {
        return;
    }
    let libc = elf::in_library(c"libc.so.6", c"malloc");
    if MALLINFO2.address() == 0 || elf::next_definition(c"malloc") != libc || elf::earlier_definition(c"malloc") != 0 {
        return session::say(note::NO_ARENAS);
    }
    helper::spawn(run);
}

unsafe extern "C" fn run(_: *mut c_void) -> *mut c_void {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    sys::name_thread(c"gputrace-arenas");
    let period = PERIOD_NS.load(Ordering::Relaxed);
    let mut left = period.min(FIRST_NS);
    while let Some(view) = session::present().filter(|_| !helper::is_alone()) {
        if left > 0 {
            let nap = left.min(NAP_NS);
            sys::wait(&NEVER, 0, nap);
            left -= nap;
            continue;
        }
        if view.header().paused.load(Ordering::Relaxed) == 0 {
            view.header().arenas.tell(&look());
        }
        left = period;
    }
    helper::ends();
    ptr::null_mut()
}

fn look() -> Look {
    type Mallinfo2 = unsafe extern "C" fn() -> Info;
    // SAFETY: glibc's function of this name, which was found before this thread was made, has this signature.
    let ask: Mallinfo2 = unsafe { core::mem::transmute(MALLINFO2.known()) };
    let at = session::now();
    // SAFETY: it may be called by any thread; this one holds no lock.
    let info = unsafe { ask() };
    Look {
        at,
        took: session::now().wrapping_sub(at),
        held: info.arena as u64,
        free: info.fordblks as u64,
        at_end: info.keepcost as u64,
        mapped: info.hblkhd as u64,
    }
}
