//! Buffers for CUPTI's records: a bounded pool, given out when CUPTI asks, read by our thread when it gives them back.
//!
//! CUPTI asks in the program's own launches, and gives back in a thread of its own: neither waits here, unless the user wants
//! calls to wait for room.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::teller::{LOOK_NS, ROOM_LOOKS};
use crate::{session, sys};

/// Size of a buffer: about five thousand kernels.
const BYTES: usize = 1 << 20;
/// Buffers at most.
pub(super) const MOST: usize = 64;

const FREE: u32 = 0;
/// CUPTI has it.
const GIVEN: u32 = 1;
/// CUPTI gave it back.
const FULL: u32 = 2;

struct Buffer {
    at: AtomicPtr<u8>,
    state: AtomicU32,
    /// Bytes that hold records.
    valid: AtomicUsize,
    /// When CUPTI gave it back, in ticks.
    since: AtomicU64,
}

impl Buffer {
    const fn new() -> Buffer {
        Buffer {
            at: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU32::new(FREE),
            valid: AtomicUsize::new(0),
            since: AtomicU64::new(0),
        }
    }
}

static POOL: [Buffer; MOST] = [const { Buffer::new() }; MOST];
/// Records that CUPTI says it dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The last one who asked got a buffer. Where our thread stands in CUPTI behind who waits here, none comes.
static IS_WORTH_WAITING: AtomicBool = AtomicBool::new(true);

/// CUPTI asks for a buffer. Without one it drops records, and says how many.
pub(super) unsafe extern "C" fn request(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
    let at = take().or_else(wait);
    // Who waited in vain did so for those behind, until there are buffers again.
    IS_WORTH_WAITING.store(at.is_some(), Ordering::Relaxed);
    let at = at.unwrap_or(ptr::null_mut());
    // SAFETY: CUPTI's own variables.
    unsafe {
        *buffer = at;
        *bytes = if at.is_null() { 0 } else { BYTES };
        *records = 0;
    }
}

fn take() -> Option<*mut u8> {
    // SYNC POINT: buffer. Acquire, with the Release of FREE: our thread is done with its records.
    let taken =
        |buffer: &&Buffer| buffer.state.compare_exchange(FREE, GIVEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let buffer = POOL.iter().find(taken)?;
    let known = buffer.at.load(Ordering::Relaxed);
    if !known.is_null() {
        return Some(known);
    }
    match sys::map(BYTES, None) {
        Ok(at) => {
            sys::leave_out_of_dumps(at, BYTES);
            buffer.at.store(at, Ordering::Relaxed);
            Some(at)
        }
        Err(_) => {
            buffer.state.store(FREE, Ordering::Release);
            None
        }
    }
}

/// Waits for a buffer, if calls are to wait for room, and this is not the thread that makes it.
#[cold]
fn wait() -> Option<*mut u8> {
    if !session::blocks() || super::is_reader() || !IS_WORTH_WAITING.load(Ordering::Relaxed) {
        return None;
    }
    (0..ROOM_LOOKS).find_map(|_| {
        sys::nap(LOOK_NS);
        take()
    })
}

/// Records that CUPTI dropped so far, all that it knows of.
pub(super) fn dropped() -> u64 {
    // Those of the last buffers that it asked for in vain: no buffer came back since, to be asked beside.
    ask_dropped(ptr::null_mut(), 0);
    DROPPED.load(Ordering::Relaxed)
}

fn ask_dropped(context: *mut c_void, stream: u32) {
    let mut dropped = 0;
    if let Some(cupti) = super::cupti() {
        // SAFETY: CUPTI's own context and stream, or null for what it keeps for all; it writes one number.
        unsafe { (cupti.dropped)(context, stream, &raw mut dropped) };
    }
    DROPPED.fetch_add(dropped as u64, Ordering::Relaxed);
}

/// CUPTI gives a buffer back.
pub(super) unsafe extern "C" fn complete(context: *mut c_void, stream: u32, at: *mut u8, _bytes: usize, valid: usize) {
    ask_dropped(context, stream);
    if let Some(buffer) = POOL.iter().find(|buffer| !at.is_null() && buffer.at.load(Ordering::Relaxed) == at) {
        buffer.valid.store(valid.min(BYTES), Ordering::Relaxed);
        buffer.since.store(session::now(), Ordering::Relaxed);
        // SYNC POINT: buffer. Release, with our thread's Acquire: the records are written.
        buffer.state.store(FULL, Ordering::Release);
    }
}

/// Whether CUPTI has any.
pub(super) fn are_given() -> bool {
    POOL.iter().any(|buffer| buffer.state.load(Ordering::Relaxed) == GIVEN)
}

/// Shows buffers that came back, those that came first before the others, and frees them: at most so many. Since when the
/// one is there that is next, in ticks; none: none is left.
pub(super) fn read_full(most: usize, mut read: impl FnMut(*mut u8, usize)) -> Option<u64> {
    // SYNC POINT: buffer. Acquire, with the Release of FULL.
    let full = || POOL.iter().filter(|buffer| buffer.state.load(Ordering::Acquire) == FULL);
    let next = || full().min_by_key(|buffer| buffer.since.load(Ordering::Relaxed));
    for _ in 0..most {
        let buffer = next()?;
        read(buffer.at.load(Ordering::Relaxed), buffer.valid.load(Ordering::Relaxed));
        // SYNC POINT: buffer. Release, with the Acquire of who takes it.
        buffer.state.store(FREE, Ordering::Release);
    }
    next().map(|buffer| buffer.since.load(Ordering::Relaxed))
}

/// CUPTI was finalized: what it had is ours again.
pub(super) fn take_back() {
    for buffer in &POOL {
        let _ = buffer.state.compare_exchange(GIVEN, FREE, Ordering::AcqRel, Ordering::Relaxed);
    }
}
