//! What a hook does: guard, clock, original, clock, write.
//!
//! Cost: two reads of the counter (8.5 ns each), one 64-byte store, and about ten loads and stores of lines that stay
//! in the first-level cache. docs/benchmarks.md has the figures.

#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "macos")]
mod message;
#[cfg(target_os = "linux")]
mod off;
#[cfg(target_os = "linux")]
pub(crate) mod thinned;

use core::cell::Cell;
use core::hint::cold_path;
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::layout::ThreadRow;
use gputrace_abi::{Class, Event, local};

use crate::thread::{self, State};
use crate::{frame, session, tls};

#[cfg(target_os = "linux")]
pub(crate) use driver::{NO_DEVICE, call, launch, wait};
#[cfg(target_os = "macos")]
pub(crate) use message::{At, Said, message};
#[cfg(target_os = "linux")]
pub(crate) use off::off;

/// The calling thread's state and row.
#[inline(always)]
pub(crate) fn state() -> Option<(&'static State, &'static ThreadRow)> {
    let state = match tls::get() {
        Some(state) if state.row().is_some() => state,
        _ => thread::state_slow()?,
    };
    Some((state, state.row()?))
}

/// Why a call is not recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unrecorded {
    /// It is inside another one, which is.
    Inside,
    /// Nothing is.
    Off,
}

/// Begins to record a call of the driver, or a message to Metal. `held` says of one of a thread that is held whether it is
/// recorded, and has begun it then.
#[inline(always)]
fn enter(
    class: Class,
    cookie: *mut usize,
    held: impl FnOnce(&'static State, &'static ThreadRow) -> bool,
) -> Result<Call<'static>, Unrecorded> {
    match state() {
        Some((state, row)) if !state.is_held() => {
            Call::enter(Layer::driver(state, row), cookie).ok_or(Unrecorded::Inside)
        }
        Some((state, row)) if held(state, row) => Ok(Call { layer: Layer::driver(state, row) }),
        Some(_) => Err(Unrecorded::Off),
        None => {
            cold_path();
            session::count_unrecorded(class);
            Err(Unrecorded::Off)
        }
    }
}

/// A call of the program that is being recorded.
///
/// A hooked call inside another one (the driver calls its own exports) is none. A flag that says so would stay set for
/// ever when siglongjmp or a cancellation leaves the hook. So the state holds the address of a word in the hook's own
/// frame, and that word holds its own address, scrambled. An outer call is running if the word lies above this frame on
/// the same stack and still holds that value; a frame that was left has been overwritten or lies below, or its word stands
/// in a hole of another function's frame, which a look at the stack's frames tells. The word may keep its value when its
/// call ends: it is looked at only while the state points to it.
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
    is_library: bool,
    running: &'a Cell<usize>,
    hook: &'a AtomicU64,
    start: &'a AtomicU64,
}

/// Whether the frame that holds `here` is inside a hooked call of the driver, or a message to Metal.
pub(crate) fn is_nested(state: &State, here: usize) -> bool {
    let outer = state.guard.get();
    outer != 0 && frame::is_surely_running(outer, here)
}

/// Whether a call is being made at `here` inside a hooked call, of the driver or of a library above it.
#[inline(always)]
pub(crate) fn is_inside_a_call(state: &State, here: usize) -> bool {
    let (driver, library) = (state.guard.get(), state.library_guard.get());
    driver | library != 0 && (frame::is_surely_running(driver, here) || frame::is_surely_running(library, here))
}

impl<'a> Layer<'a> {
    /// The driver's calls.
    #[inline(always)]
    pub(crate) fn driver(state: &'a State, row: &'a ThreadRow) -> Layer<'a> {
        Layer {
            state,
            row,
            is_library: false,
            running: &state.guard,
            hook: &row.in_flight_hook,
            start: &row.in_flight_start,
        }
    }

    /// Calls of a library above the driver.
    #[inline(always)]
    pub(crate) fn library(state: &'a State, row: &'a ThreadRow) -> Layer<'a> {
        Layer {
            state,
            row,
            is_library: true,
            running: &state.library_guard,
            hook: &row.library_hook,
            start: &row.library_start,
        }
    }
}

impl<'a> Call<'a> {
    /// None: this is a call inside a hooked call of the layer.
    #[inline(always)]
    pub(crate) fn enter(layer: Layer<'a>, cookie: *mut usize) -> Option<Call<'a>> {
        let outer = layer.running.get();
        if outer != 0 {
            cold_path();
            if frame::is_surely_running(outer, cookie as usize) {
                local::increment(&layer.state.header().nested);
                return None;
            }
            abandon(layer.state, layer.row, layer.is_library, cookie as usize);
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

    /// The call is over, and what is to be recorded of it is written.
    #[inline(always)]
    pub(crate) fn leave(self) {
        // SYNC POINT: in flight. Release, with the collector's Acquire: what is not in flight any more is in a ring.
        self.layer.start.store(0, Ordering::Release);
        self.layer.running.set(0);
    }
}

/// The earlier call was left, or waits on another stack below this signal handler, and its event may be written or not:
/// nobody can tell here. So it is counted as one that may be missing; the collector knows how many are.
#[cold]
#[inline(never)]
fn abandon(state: &State, row: &ThreadRow, is_library: bool, here: usize) {
    // Made anew: of a layer that is passed on each call would write all of it to its frame.
    let layer = if is_library { Layer::library(state, row) } else { Layer::driver(state, row) };
    #[cfg(target_os = "macos")]
    crate::hooks::metal::left(
        layer.state,
        layer.hook.load(Ordering::Relaxed) as u16,
        layer.start.load(Ordering::Relaxed),
    );
    layer.start.store(0, Ordering::Relaxed);
    let class = crate::hooks::class_of(layer.hook.load(Ordering::Relaxed) as u16);
    if let Some(counter) = layer.row.abandoned.get(class as usize) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    if !frame::may_run(layer.running.get(), here) {
        layer.state.fill_holes();
    }
}

/// The thread ends: calls that it left, and after which it made no other, may be missing as well.
pub(crate) fn thread_ends(state: &State) {
    let Some(row) = state.row() else { return };
    let here = 0u8;
    for layer in [Layer::driver(state, row), Layer::library(state, row)] {
        if layer.running.get() != 0 {
            abandon(state, row, layer.is_library, &raw const here as usize);
            layer.running.set(0);
        }
    }
}

/// An event of a class without a driver function: allocations.
#[inline(always)]
pub(crate) fn write(state: &State, number: u16, class: Class, start: u64, end: u64, payload: [u64; 4]) {
    let event = Event { hook: number, start, end, payload, ..Event::default() };
    state.write(event, class);
}
