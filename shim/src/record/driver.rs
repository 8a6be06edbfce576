//! A call of the driver: passed on to its original and recorded.

use core::hint::cold_path;
use core::sync::atomic::Ordering;

use gputrace_abi::{Event, event};

use super::{Call, enter, thinned};
use crate::gpu_time::events::{self, Timed};
use crate::hooks::{self, Hook};
use crate::interpose::driver;
use crate::{capture, contexts, stack};

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
    around(hook, number, None::<fn() -> u64>, None::<fn() -> u64>, original, payload)
}

/// The same of a call that gives this stream work, whose time on the GPU may be asked for.
#[inline(always)]
pub(crate) fn launch(
    hook: Hook,
    number: u16,
    stream: impl Fn() -> u64,
    original: impl FnOnce(usize) -> u32,
    payload: impl FnOnce(u32) -> [u64; 4],
) -> u32 {
    around(hook, number, Some(stream), None::<fn() -> u64>, original, payload)
}

/// The same of a call that waits for this stream or event, and says so first: its event comes when it is over, which may be never.
#[inline(always)]
pub(crate) fn wait(
    hook: Hook,
    number: u16,
    awaited: impl Fn() -> u64,
    original: impl FnOnce(usize) -> u32,
    payload: impl FnOnce(u32) -> [u64; 4],
) -> u32 {
    around(hook, number, None::<fn() -> u64>, Some(awaited), original, payload)
}

#[inline(always)]
fn around(
    hook: Hook,
    number: u16,
    stream: Option<impl Fn() -> u64>,
    awaited: Option<impl Fn() -> u64>,
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
    let mut timed = Timed::NO;
    let mark = &raw mut cookie;
    let call = enter(hook.class, mark, |state, row| thinned::enter(state, row, hook, mark)).ok();
    if let Some(call) = call {
        if let Some(stream) = &stream {
            timed = events::begin(call.layer.state, hook, stream);
        }
        if let Some(awaited) = &awaited {
            call.layer.row.in_flight_about.store(awaited(), Ordering::Relaxed);
        }
        start = call.begin(hook.class, number);
    }
    let result = original(address);
    let end = call.map_or(0, |call| call.layer.state.now());
    let mut flags = 0;
    if let (Some(call), Some(stream)) = (call, &stream) {
        let state = call.layer.state;
        flags = events::end(state, hook, timed, stream, result, (start, end));
        if state.is_held() {
            flags |= thinned::flags(state, hook);
        }
    }
    // Asked for in each arm: what both share would go through memory.
    match call {
        Some(call) => {
            let payload = payload(result);
            call.end(hook, Event { hook: number, start, end, flags, payload, ..Event::default() }, result);
        }
        None => {
            cold_path();
            let [first, second, third, fourth] = payload(result);
            // Else it was not entered: recording is paused.
            if cookie != 0 {
                thinned::leave(number, mark.cast(), result, first, second, third, fourth);
            }
        }
    }
    result
}

impl Call<'_> {
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
        event.flags |= hook.flags | captured;
        event.result = result.min(u32::from(u16::MAX)) as u16;
        let (start, end) = (event.start, event.end);
        state.write(event, hook.class);
        stack::after(state, hook.class, start, end, result);
        self.leave();
    }
}
