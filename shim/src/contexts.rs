//! Small numbers for CUDA contexts: a stream or an address means nothing without its context.
//!
//! Each thread keeps the number of its current context; calls that change it set it to unknown, and the next event
//! asks the driver. A context that was destroyed never gives its number to another one at the same address.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::{Event, event};

use crate::hooks::cuda::DriverCalls;
use crate::session;
use crate::thread::{State, UNKNOWN_CONTEXT as UNKNOWN};

/// Handles by number - 1. [`GONE`] after their end.
static HANDLES: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
const GONE: u64 = u64::MAX;

/// Number of the calling thread's context, 0 for none.
#[inline(always)]
pub(crate) fn current(state: &State) -> u16 {
    let known = state.context.get();
    if known == UNKNOWN { ask(state) } else { known }
}

#[cold]
#[inline(never)]
fn ask(state: &State) -> u16 {
    let Some(handle) = DriverCalls::current_context() else { return 0 };
    let number = if handle == 0 { 0 } else { number(state, handle) };
    state.context.set(number);
    number
}

/// The calling thread's context may have changed.
pub(crate) fn forget(state: Option<&State>) {
    if let Some(state) = state {
        state.context.set(UNKNOWN);
    }
}

/// Contexts may have come and gone unseen: they get numbers from the first on again, and are told of again.
pub(crate) fn forget_all() {
    HANDLES.iter().for_each(|place| place.store(0, Ordering::Relaxed));
}

/// The context was destroyed.
pub(crate) fn destroyed(handle: u64) {
    for place in &HANDLES {
        let _ = place.compare_exchange(handle, GONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn number(state: &State, handle: u64) -> u16 {
    for (n, place) in HANDLES.iter().enumerate() {
        let number = n as u16 + 1;
        match place.load(Ordering::Relaxed) {
            known if known == handle => return number,
            0 => match place.compare_exchange(0, handle, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    announce(state, number, handle);
                    return number;
                }
                Err(now) if now == handle => return number,
                Err(_) => {}
            },
            _ => {}
        }
    }
    state.header().notes.fetch_or(gputrace_abi::layout::note::CONTEXTS_FULL, Ordering::Relaxed);
    0
}

/// Tells the collector which device the context is on.
fn announce(state: &State, number: u16, handle: u64) {
    let device = DriverCalls::current_device().unwrap_or(u64::MAX);
    let now = session::now();
    let event = Event {
        hook: event::KIND_CONTEXT,
        start: now,
        end: now,
        context: number,
        payload: [handle, 0, device, 0],
        ..Event::default()
    };
    // Without room the context keeps its number and lacks its device.
    state.write_apart(event);
}
