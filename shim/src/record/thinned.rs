//! Calls of a thread of which not all launches are recorded, to keep to a budget ([`gputrace_abi::shed`]).
//!
//! A launch that is left out costs no clock and no slot: it is counted by its hook, as calls are that always are
//! ([`count`]), when it has returned. Which ones are recorded is drawn for each anew: every n-th would be the same kernel
//! wherever n divides a step. A launch that fails, one that NCCL makes, and all while CUPTI's records are on, whose numbers
//! count each of them, are recorded.
//!
//! Threads take notice when they fill a chunk ([`State::notice`]), and here when it is over: a hook that records
//! everything reads no word for it but the one by which recording is paused.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use gputrace_abi::event::{self, detail};
use gputrace_abi::layout::ThreadRow;
use gputrace_abi::shed::Shed;
use gputrace_abi::{Class, Event, local};

use super::{Call, Layer};
use crate::hooks::{self, Hook};
use crate::thread::State;
use crate::{count, gpu_time, sampling, tls};

/// Begins to record the call of a thread that is held; false: it is not recorded. Then its guard may be set, and [`leave`]
/// takes it back.
#[inline(always)]
pub(crate) fn enter(state: &'static State, row: &'static ThreadRow, hook: Hook, cookie: *mut usize) -> bool {
    // In the hook itself: a program may be paused for days, and a call of a function is half of what that costs.
    !state.is_paused() && choose(state, row, hook, cookie)
}

/// The same where recording is not paused.
#[cold]
#[inline(never)]
pub(crate) fn choose(state: &State, row: &ThreadRow, hook: Hook, cookie: *mut usize) -> bool {
    if Call::enter(Layer::driver(state, row), cookie).is_none() {
        return false;
    }
    let rarer = Shed::of(state.header().shed.load(Ordering::Relaxed)).launches;
    if rarer == 0 {
        state.hold(State::THINNED, false);
        // The launches that were left out are no pause before this one.
        state.last_end.set(state.now());
        return true;
    }
    !is_drawn(state, hook) || sampling::one_in(state, rarer)
}

/// Whether chance decides of a launch like this.
fn is_drawn(state: &State, hook: Hook) -> bool {
    let kernel = matches!(hook.class, Class::Launch) && hook.detail == detail::KERNEL;
    kernel && state.library_guard.get() == 0 && !gpu_time::is_on()
}

/// By how many powers of two a thread's launches of kernels are rarer in the ring than they are made.
pub(crate) fn rarer(state: &State) -> u8 {
    if state.is_thinned() { Shed::of(state.header().shed.load(Ordering::Relaxed)).launches } else { 0 }
}

/// What the event of a recorded launch of a held thread says of those that it stands for.
#[cold]
#[inline(never)]
pub(crate) fn flags(state: &State, hook: Hook) -> u16 {
    if is_drawn(state, hook) { event::drawn_flag(rarer(state)) } else { 0 }
}

/// A call that is not recorded has returned. The payload in words: an array would stand in memory in recorded calls too.
#[cold]
#[inline(never)]
pub(crate) fn leave(number: u16, cookie: *const c_void, result: u32, a: u64, b: u64, c: u64, d: u64) {
    // Else this is a call inside another one.
    if let Some(state) = tls::get().filter(|state| state.guard.get() == cookie as usize) {
        over(state, number, result, [a, b, c, d]);
    }
}

/// Counts the call, or records that it failed.
pub(crate) fn over(state: &State, number: u16, result: u32, payload: [u64; 4]) {
    state.guard.set(0);
    let Some(hook) = hooks::by_number(number).filter(|_| result != 0) else { return count::of_thread(state, number) };
    if let Some(seen) = state.row().and_then(|row| row.seen.get(hook.class as usize)) {
        local::increment(seen);
    }
    let now = state.now();
    let event = Event {
        hook: number,
        start: now,
        end: now,
        context: crate::contexts::current(state),
        flags: hook.flags,
        result: result.min(u32::from(u16::MAX)) as u16,
        payload,
        ..Event::default()
    };
    state.write(event, hook.class);
}
