//! What a hook does: guard, clock, original, clock, write.
//!
//! Cost: two reads of the counter (8.5 ns each), one 64-byte store, and about ten loads and stores of lines that stay
//! in the first-level cache. docs/benchmarks.md has the figures.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::layout::ThreadRow;
use gputrace_abi::{Class, Event, event, local};

use crate::hooks::{self, Hook};
use crate::interpose::driver;
use crate::thread::{self, State};
use crate::{capture, contexts, session, stack, tls};

/// CUDA_ERROR_NO_DEVICE: what a hook returns that was reached although no driver is there.
const NO_DEVICE: u32 = 100;

/// The stream that `_ptsz` and `_ptds` functions mean by 0 (CU_STREAM_PER_THREAD).
const PER_THREAD_STREAM: u64 = 2;

/// Passes a call on to its original and records it. `payload` runs after the original with its result.
#[inline(always)]
pub(crate) fn call(
    hook: Hook,
    number: u16,
    original: impl Fn(usize) -> u32,
    payload: impl FnOnce(u32) -> [u64; 4],
) -> u32 {
    let address = match hooks::original(number).load(Ordering::Relaxed) {
        0 => driver::late(number),
        address => address,
    };
    if address == 0 {
        return NO_DEVICE;
    }
    let recording = match state() {
        Some((state, row)) if !state.is_paused() => Some((state, row)),
        Some(_) => None,
        None => {
            count_unrecorded(hook.class);
            None
        }
    };
    let Some((state, row)) = recording else {
        // What payloads keep up to date (names, contexts, captures) must be right when recording goes on.
        let result = original(address);
        payload(result);
        return result;
    };
    let mut cookie = 0usize;
    let layer = Layer::driver(state, row);
    let Some(guard) = Guard::enter(layer, &raw mut cookie) else {
        local::increment(&state.header().nested);
        return original(address);
    };
    if let Some(seen) = row.seen.get(hook.class as usize) {
        local::increment(seen);
    }
    layer.begin(number);
    let start = state.now();
    layer.began(start);
    let result = original(address);
    let end = state.now();
    let mut payload = payload(result);
    let [_, stream, ..] = &mut payload;
    if hook.per_thread && *stream == 0 {
        *stream = PER_THREAD_STREAM;
    }
    let captured = if capture::holds(*stream) { event::FLAG_CAPTURED } else { 0 };
    let event = Event {
        commit: 0,
        hook: number,
        thread: 0,
        start,
        end,
        context: contexts::current(state),
        flags: hook.flags | captured,
        result: result.min(u32::from(u16::MAX)) as u16,
        spare: 0,
        payload,
    };
    state.write(event, hook.class);
    stack::after(state, hook.class, start, end);
    layer.ended();
    guard.leave();
    result
}

/// The calling thread's state and row.
#[inline(always)]
fn state() -> Option<(&'static State, &'static ThreadRow)> {
    let state = match tls::get() {
        Some(state) if state.row().is_some() => state,
        _ => thread::state_slow()?,
    };
    Some((state, state.row()?))
}

/// A call of a thread that has no row: counted as seen and dropped where there is a segment.
///
/// The call itself is not made here: closures passed to a function that is not inlined would put the program's
/// arguments on the stack in every call.
#[cold]
#[inline(never)]
fn count_unrecorded(class: Class) {
    if let Some(counter) = session::present().as_ref().and_then(|v| v.header().rowless.get(class as usize)) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells a hooked call inside another one (the driver calls its own exports) from a call of the program.
///
/// A flag would stay set for ever when siglongjmp or a cancellation leaves the hook. So the state holds the address of
/// a word in the hook's own frame, and that word holds its own address, scrambled. An outer call is running if the
/// word lies above this frame on the same stack and still holds that value; a frame that was left has been
/// overwritten or lies below.
pub(crate) struct Guard<'a> {
    running: &'a Cell<usize>,
    cookie: *mut usize,
}

/// Calls that do not nest in each other: the driver's, or those of a library above it. A library calls the driver,
/// and those calls count as the program's.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'a> {
    running: &'a Cell<usize>,
    hook: &'a AtomicU64,
    start: &'a AtomicU64,
    row: &'a ThreadRow,
}

impl<'a> Layer<'a> {
    /// The driver's calls.
    #[inline(always)]
    pub(crate) fn driver(state: &'a State, row: &'a ThreadRow) -> Layer<'a> {
        Layer { running: &state.guard, hook: &row.in_flight_hook, start: &row.in_flight_start, row }
    }

    /// Marks the call as running.
    #[inline(always)]
    pub(crate) fn begin(self, number: u16) {
        self.hook.store(u64::from(number), Ordering::Relaxed);
    }

    /// Marks when it began.
    #[inline(always)]
    pub(crate) fn began(self, start: u64) {
        self.start.store(start, Ordering::Relaxed);
    }

    /// Takes the mark back.
    #[inline(always)]
    pub(crate) fn ended(self) {
        self.start.store(0, Ordering::Relaxed);
    }
}

/// Two frames further apart than this are not on one stack, or not in one call of the driver.
const NESTING_BYTES: usize = 256 << 10;
const SCRAMBLE: usize = 0x9e37_79b9_7f4a_7c15;

impl<'a> Guard<'a> {
    /// None: this is a call inside a hooked call.
    #[inline(always)]
    pub(crate) fn enter(layer: Layer<'a>, cookie: *mut usize) -> Option<Guard<'a>> {
        let outer = layer.running.get();
        if outer != 0 {
            if Self::is_running(outer, cookie as usize) {
                return None;
            }
            Self::abandon(layer);
        }
        // SAFETY: the word is a local of the calling hook.
        unsafe { ptr::write_volatile(cookie, cookie as usize ^ SCRAMBLE) };
        layer.running.set(cookie as usize);
        Some(Guard { running: layer.running, cookie })
    }

    #[cold]
    #[inline(never)]
    fn is_running(outer: usize, here: usize) -> bool {
        if outer <= here || outer - here > NESTING_BYTES {
            return false;
        }
        // SAFETY: the address lies a little above the stack pointer, where this stack, or one next to it, is mapped.
        unsafe { ptr::read_volatile(outer as *const usize) == outer ^ SCRAMBLE }
    }

    /// The earlier call never came back to its hook.
    #[cold]
    #[inline(never)]
    fn abandon(layer: Layer<'_>) {
        if layer.start.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        let class = crate::hooks::class_of(layer.hook.load(Ordering::Relaxed) as u16);
        if let Some(counter) = layer.row.abandoned.get(class as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(crate) fn leave(self) {
        // SAFETY: the word is a local of the calling hook, which has not returned.
        unsafe { ptr::write_volatile(self.cookie, 0) };
        self.running.set(0);
    }
}

/// An event of a class without a driver function: allocations.
#[inline(always)]
pub(crate) fn write(state: &State, number: u16, class: Class, start: u64, end: u64, payload: [u64; 4]) {
    let event = Event { hook: number, start, end, payload, ..Event::default() };
    state.write(event, class);
}
