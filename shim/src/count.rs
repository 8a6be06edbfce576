//! What the hook of a function does that is counted only: one addition, no clock, no event.
//!
//! Cost: docs/benchmarks.md, about 2 ns. Each thread adds to a block of counters of its own, in the segment, so that
//! threads do not wait for each other's cache lines and a kill loses nothing; when all blocks are some thread's, to
//! everybody's, atomically. The collector adds the blocks up: a counted call was seen, and sampled out. Launches that are left out
//! to keep to a budget are counted here as well.

use core::sync::atomic::Ordering;

use gputrace_abi::layout::View;
use gputrace_abi::{Class, local};

#[cfg(target_os = "linux")]
use crate::hooks;
#[cfg(target_os = "linux")]
use crate::interpose::driver;
use crate::record;
#[cfg(target_os = "linux")]
use crate::record::NO_DEVICE;
use crate::thread::State;
use crate::{session, thread, tls};

/// Counts a call and passes it on to its original. `effect` runs after the original with its result.
#[cfg(target_os = "linux")]
#[inline(always)]
pub(crate) fn call<R>(number: u16, original: impl Fn(usize) -> u32, effect: impl FnOnce(u32) -> R) -> u32 {
    let address = match hooks::original(number).load(Ordering::Relaxed) {
        0 => driver::late(number),
        address => address,
    };
    if address == 0 {
        return NO_DEVICE;
    }
    one(number);
    let result = original(address);
    effect(result);
    result
}

/// Counts a call.
#[inline(always)]
pub(crate) fn one(number: u16) {
    // The block of a state without a row (wiped by a fork, or of an ended thread) is null.
    if let Some(state) = tls::get()
        && state.guard.get() == 0
        && !state.is_paused()
        // SAFETY: null or a block of the mapped segment, which is unmapped only after every state was wiped.
        && let Some(block) = unsafe { state.counters.get().as_ref() }
        && let Some(counter) = block.get(usize::from(number))
    {
        local::increment(counter);
    } else {
        slow(number);
    }
}

/// The thread has no block, recording is paused, or this is a call inside another one.
#[cold]
#[inline(never)]
fn slow(number: u16) {
    let Some(view) = session::live() else { return session::count_unrecorded(Class::Api) };
    if view.header().paused.load(Ordering::Relaxed) != 0 {
        return;
    }
    let state = thread::state_slow();
    let frame = 0u8;
    if state.is_some_and(|state| record::is_nested(state, &raw const frame as usize)) {
        local::increment(&view.header().nested);
        return;
    }
    add(&view, state, number);
}

/// Counts a call of this thread's, wherever it is made.
pub(crate) fn of_thread(state: &State, number: u16) {
    if let Some(view) = session::present() {
        add(&view, Some(state), number);
    }
}

fn add(view: &View, state: Option<&State>, number: u16) {
    match state.and_then(|state| state.counters(view)) {
        Some(block) => {
            if let Some(counter) = block.get(usize::from(number)) {
                local::increment(counter);
            }
        }
        None => {
            if let Some(counter) = view.shared_counters().and_then(|block| block.get(usize::from(number))) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
