//! What recording costs in this process, measured on memory of our own: briefly at the start, where malloc is recorded,
//! and with more care when the driver is found.
//!
//! The report multiplies it by the number of events: the trace says what the tracing cost. A forked child goes by its
//! parent's figures.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_abi::layout::{CHUNKS_AT, ThreadRow, View};
use gputrace_abi::{Class, Event, event::detail, local};

use crate::hooks::Hook;
#[cfg(target_os = "linux")]
use crate::record::thinned;
use crate::record::{Call, Layer};
use crate::thread::State;
use crate::{culling, session, sys, tracked};

/// What takes no longer than a look at the clock is measured in so many more rounds: the fastest of few was two to three times too slow where
/// others worked on the same core, and a program that calls malloc two million times a second was told that the hooks spent its budget.
const MORE_ROUNDS: u64 = 16;

/// Cost of an event, of a launch that is only counted and of a malloc that is not recorded with its free (where short lives are summed up, of each of
/// the two, which are both counted), in 1/256 ticks; 0: not measured.
static EVENT: AtomicU64 = AtomicU64::new(0);
static COUNTED: AtomicU64 = AtomicU64::new(0);
static MALLOC: AtomicU64 = AtomicU64::new(0);

/// At the start of a process that may live for a millisecond only: some 25 us, for a figure that is good to a quarter.
#[cold]
pub(crate) fn at_start() {
    measure(64, 4);
}

/// When the driver is found.
#[cold]
pub(crate) fn with_driver() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    if session::present().is_some() && DONE.swap(1, Ordering::Relaxed) == 0 {
        measure(256, 8);
    }
}

/// Writes the figures into a segment's header.
pub(crate) fn tell(view: &View) {
    view.header().event_cost.store(EVENT.load(Ordering::Relaxed), Ordering::Relaxed);
    view.header().counted_cost.store(COUNTED.load(Ordering::Relaxed), Ordering::Relaxed);
    view.header().malloc_cost.store(MALLOC.load(Ordering::Relaxed), Ordering::Relaxed);
}

fn measure(events: u64, rounds: u64) {
    let Some(view) = session::present() else { return };
    let bytes = CHUNKS_AT + gputrace_abi::ring::CHUNK_BYTES;
    let Ok(memory) = sys::map(bytes, None) else { return };
    // SAFETY: fresh zeroed memory of this size; a row consists of atomics.
    let row = unsafe { &*memory.add(gputrace_abi::layout::THREADS_AT).cast::<ThreadRow>() };
    let state = State::detached(row, memory);
    let event = fastest(events, rounds, || state.rewind(), || record_one(&state, row));
    let count = AtomicU64::new(0);
    let more = rounds * MORE_ROUNDS;
    let pass = if culling::is_wanted() {
        let pair = culling::Pair::default();
        fastest(events, more, || (), || pair.work(&count)) / 2
    } else {
        let pair = || {
            local::increment(core::hint::black_box(&count));
            core::hint::black_box(tracked::may_be(core::hint::black_box(0x5000)));
        };
        fastest(events, more, || (), pair)
    };
    let counted = counted(&state, row, |count_one| fastest(events, rounds, || (), count_one));
    EVENT.store(event, Ordering::Relaxed);
    COUNTED.store(counted, Ordering::Relaxed);
    MALLOC.store(pass, Ordering::Relaxed);
    tell(&view);
    // SAFETY: the state and the row are not used any more.
    unsafe { sys::unmap(memory, bytes) };
}

/// The fastest round's cost of one call, in 1/256 ticks.
fn fastest(calls: u64, rounds: u64, before: impl Fn(), call: impl Fn()) -> u64 {
    let mut best = u64::MAX;
    for _ in 0..rounds {
        before();
        let start = session::now();
        for _ in 0..calls {
            call();
        }
        best = best.min(session::now().saturating_sub(start));
    }
    best.saturating_mul(256).checked_div(calls).unwrap_or(0)
}

const LAUNCH: Hook = Hook::new(c"cuLaunchKernel", Class::Launch, detail::KERNEL, false, core::ptr::null());

/// Measures a launch that is left out.
#[cfg(target_os = "linux")]
fn counted(state: &State, row: &ThreadRow, measured: impl FnOnce(&dyn Fn()) -> u64) -> u64 {
    use gputrace_abi::shed::Shed;
    state.header().shed.store(Shed { launches: Shed::MOST, ..Shed::default() }.word(), Ordering::Relaxed);
    state.rewind();
    measured(&|| {
        let mut cookie = 0usize;
        if !thinned::choose(state, row, LAUNCH, &raw mut cookie) {
            thinned::over(state, 0, 0, [0; 4]);
        }
    })
}

/// None is left out.
#[cfg(target_os = "macos")]
fn counted(_: &State, _: &ThreadRow, _: impl FnOnce(&dyn Fn()) -> u64) -> u64 {
    0
}

/// The work of `record::call` without a driver call in the middle.
#[inline(always)]
fn record_one(state: &State, row: &ThreadRow) {
    let mut cookie = 0usize;
    let Some(call) = Call::enter(Layer::driver(state, row), &raw mut cookie) else { return };
    let start = call.begin(LAUNCH.class, 0);
    let end = state.now();
    call.end(LAUNCH, Event { start, end, payload: [start, 1, 2, 3], ..Event::default() }, 0);
}
