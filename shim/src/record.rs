//! What a hook does: guard, clock, original, clock, write.
//!
//! Cost: two reads of the counter (8.5 ns each), one 64-byte store, and about ten loads and stores of lines that stay
//! in the first-level cache. docs/benchmarks.md has the figures.

use core::cell::Cell;
use core::hint::cold_path;
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::layout::ThreadRow;
use gputrace_abi::{Class, Event, event, local};

use crate::hooks::{self, Hook};
use crate::interpose::driver;
use crate::thread::{self, State};
use crate::{capture, contexts, frame, session, stack, tls};

/// CUDA_ERROR_NO_DEVICE: what a hook returns that was reached although no driver is there.
pub(crate) const NO_DEVICE: u32 = 100;

/// The stream that `_ptsz` and `_ptds` functions mean by 0 (CU_STREAM_PER_THREAD).
const PER_THREAD_STREAM: u64 = 2;

/// Passes a call on to its original and records it. `payload` runs after the original with its result, recorded or
/// not: what payloads keep up to date (names, contexts, captures) must be right when recording goes on.
///
/// There is one call of `original` in it: a second one, in a branch that is hardly ever taken, is not inlined, and then
/// the program's arguments go through memory in every call.
#[inline(always)]
pub(crate) fn call(
    hook: Hook,
    number: u16,
    original: impl FnOnce(usize) -> u32,
    payload: impl FnOnce(u32) -> [u64; 4],
) -> u32 {
    let address = match hooks::original(number).load(Ordering::Relaxed) {
        0 => {
            cold_path();
            driver::late(number)
        }
        address => address,
    };
    if address == 0 {
        cold_path();
        return NO_DEVICE;
    }
    let mut cookie = 0usize;
    let mut start = 0;
    let call = match state() {
        Some((state, row)) if !state.is_paused() => Call::enter(Layer::driver(state, row), &raw mut cookie),
        Some(_) => None,
        None => {
            cold_path();
            count_unrecorded(hook.class);
            None
        }
    };
    if let Some(call) = call {
        start = call.begin(hook.class, number);
    }
    let result = original(address);
    let end = call.map_or(0, |call| call.layer.state.now());
    let payload = payload(result);
    match call {
        Some(call) => call.end(hook, Event { hook: number, start, end, payload, ..Event::default() }, result),
        None => cold_path(),
    }
    result
}

/// The calling thread's state and row.
#[inline(always)]
pub(crate) fn state() -> Option<(&'static State, &'static ThreadRow)> {
    let state = match tls::get() {
        Some(state) if state.row().is_some() => state,
        _ => thread::state_slow()?,
    };
    Some((state, state.row()?))
}

/// A call of a thread that has no row: counted as seen and dropped where there is a segment.
#[cold]
#[inline(never)]
pub(crate) fn count_unrecorded(class: Class) {
    if let Some(counter) = session::present().as_ref().and_then(|v| v.header().rowless.get(class as usize)) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A call of the program that is being recorded.
///
/// A hooked call inside another one (the driver calls its own exports) is none. A flag that says so would stay set for
/// ever when siglongjmp or a cancellation leaves the hook. So the state holds the address of a word in the hook's own
/// frame, and that word holds its own address, scrambled. An outer call is running if the word lies above this frame on
/// the same stack and still holds that value; a frame that was left has been overwritten or lies below. The word may
/// keep its value when its call ends: it is looked at only while the state points to it.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    layer: Layer<'a>,
}

/// Calls that do not nest in each other: the driver's, or those of a library above it. A library calls the driver,
/// and those calls count as the program's.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'a> {
    state: &'a State,
    row: &'a ThreadRow,
    running: &'a Cell<usize>,
    hook: &'a AtomicU64,
    start: &'a AtomicU64,
}

/// Whether a call is being made at `here` inside a hooked call, of the driver or of a library above it.
#[inline(always)]
pub(crate) fn is_inside_a_call(state: &State, here: usize) -> bool {
    let (driver, library) = (state.guard.get(), state.library_guard.get());
    driver | library != 0 && (frame::is_running(driver, here) || frame::is_running(library, here))
}

impl<'a> Layer<'a> {
    /// The driver's calls.
    #[inline(always)]
    pub(crate) fn driver(state: &'a State, row: &'a ThreadRow) -> Layer<'a> {
        Layer { state, row, running: &state.guard, hook: &row.in_flight_hook, start: &row.in_flight_start }
    }

    /// Calls of a library above the driver.
    #[inline(always)]
    pub(crate) fn library(state: &'a State, row: &'a ThreadRow) -> Layer<'a> {
        Layer { state, row, running: &state.library_guard, hook: &row.library_hook, start: &row.library_start }
    }
}

impl<'a> Call<'a> {
    /// None: this is a call inside a hooked call of the layer.
    #[inline(always)]
    pub(crate) fn enter(layer: Layer<'a>, cookie: *mut usize) -> Option<Call<'a>> {
        let outer = layer.running.get();
        if outer != 0 {
            cold_path();
            if frame::is_running(outer, cookie as usize) {
                local::increment(&layer.state.header().nested);
                return None;
            }
            abandon(layer, cookie as usize);
        }
        frame::stamp(cookie);
        layer.running.set(cookie as usize);
        Some(Call { layer })
    }

    /// Counts the call and says that it is in flight. Returns its start.
    #[inline(always)]
    pub(crate) fn begin(self, class: Class, number: u16) -> u64 {
        let Layer { state, row, hook, start, .. } = self.layer;
        // The hook first: a call that is left from here on may have been counted, and then by its class.
        hook.store(u64::from(number), Ordering::Relaxed);
        if let Some(seen) = row.seen.get(class as usize) {
            local::increment(seen);
        }
        let now = state.now();
        start.store(now, Ordering::Relaxed);
        now
    }

    /// Writes the event of a driver call, which has its hook, times and payload, and leaves.
    #[inline(always)]
    pub(crate) fn end(self, hook: Hook, mut event: Event, result: u32) {
        let state = self.layer.state;
        let [_, stream, ..] = &mut event.payload;
        if hook.per_thread && *stream == 0 {
            *stream = PER_THREAD_STREAM;
        }
        let captured = if capture::holds(*stream) { event::FLAG_CAPTURED } else { 0 };
        event.context = contexts::current(state);
        event.flags = hook.flags | captured;
        event.result = result.min(u32::from(u16::MAX)) as u16;
        let (start, end) = (event.start, event.end);
        state.write(event, hook.class);
        stack::after(state, hook.class, start, end);
        self.leave();
    }

    /// The call is over, and what is to be recorded of it is written.
    #[inline(always)]
    pub(crate) fn leave(self) {
        self.layer.start.store(0, Ordering::Relaxed);
        self.layer.running.set(0);
    }
}

/// Whether the frame that holds `here` is inside a hooked call of the driver.
pub(crate) fn is_nested(state: &State, here: usize) -> bool {
    let outer = state.guard.get();
    outer != 0 && frame::is_running(outer, here)
}

/// The earlier call was left, or waits on another stack below this signal handler, and its event may be written or not:
/// nobody can tell here. So it is counted as one that may be missing; the collector knows how many are.
#[cold]
#[inline(never)]
fn abandon(layer: Layer<'_>, here: usize) {
    layer.start.store(0, Ordering::Relaxed);
    let class = crate::hooks::class_of(layer.hook.load(Ordering::Relaxed) as u16);
    if let Some(counter) = layer.row.abandoned.get(class as usize) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    if !frame::may_run(layer.running.get(), here) {
        layer.state.fill_holes();
    }
}

/// An event of a class without a driver function: allocations.
#[inline(always)]
pub(crate) fn write(state: &State, number: u16, class: Class, start: u64, end: u64, payload: [u64; 4]) {
    let event = Event { hook: number, start, end, payload, ..Event::default() };
    state.write(event, class);
}
