//! A message to an object of Metal's: passed on to its original and recorded.

use core::hint::cold_path;

use gputrace_abi::Event;

use super::{Call, Layer, Unrecorded, enter};
use crate::hooks::Hook;
use crate::hooks::metal::devices;
use crate::interpose::objc::Id;
use crate::session;
use crate::thread::{self, Reserved, State};

/// The thread and the moment of a message, for what is written beside it: known where it is recorded, else looked for.
#[derive(Clone, Copy)]
pub(crate) struct At(Option<(&'static State, u64)>);

impl At {
    /// Of a message that is not recorded, or of none.
    pub(crate) const UNKNOWN: At = At(None);

    /// The thread's state and the end of the message.
    #[inline(always)]
    pub(crate) fn get(self) -> Option<(&'static State, u64)> {
        match self.0 {
            Some(known) => Some(known),
            None => At::find(),
        }
    }

    /// The same of a message that is recorded.
    #[inline(always)]
    pub(crate) fn recorded(self) -> Option<(&'static State, u64)> {
        self.0
    }

    #[cold]
    #[inline(never)]
    fn find() -> Option<(&'static State, u64)> {
        thread::state_slow().map(|state| (state, session::now()))
    }
}

/// What the event of a message says, and the place that was reserved for it together with others, if one was.
pub(crate) trait Said {
    fn parts(self) -> ([u64; 4], Option<Reserved<'static>>);
}

impl Said for [u64; 4] {
    #[inline(always)]
    fn parts(self) -> ([u64; 4], Option<Reserved<'static>>) {
        (self, None)
    }
}

impl Said for ([u64; 4], Option<Reserved<'static>>) {
    #[inline(always)]
    fn parts(self) -> ([u64; 4], Option<Reserved<'static>>) {
        self
    }
}

/// What a message answers.
pub(crate) trait Answer: Copy {
    /// 1 for nil, and for a wait that gave up; else 0.
    fn refused(self) -> u32;
}

impl Answer for () {
    #[inline(always)]
    fn refused(self) -> u32 {
        0
    }
}

impl Answer for Id {
    #[inline(always)]
    fn refused(self) -> u32 {
        u32::from(self.is_null())
    }
}

/// A BOOL.
impl Answer for u8 {
    #[inline(always)]
    fn refused(self) -> u32 {
        u32::from(self == 0)
    }
}

/// Passes a message on to its original and records it. `before` runs first, only if it is recorded, and what it returns goes
/// to the original and the payload (zeros where it did not run). `payload` runs after the original, and where recording is
/// paused too: what appears must be hooked in any case. Of a message inside another one, only the outer one's payload is
/// asked for, which has what the program is given.
#[inline(always)]
pub(crate) fn message<R: Answer, P: Copy + Default, S: Said>(
    hook: Hook,
    number: u16,
    this: Id,
    before: impl FnOnce(Id, &'static State) -> P,
    original: impl FnOnce(P) -> R,
    payload: impl FnOnce(Id, R, P, At) -> S,
) -> R {
    let mut cookie = 0usize;
    let mut start = 0;
    let mark = &raw mut cookie;
    // Where a thread is held recording is paused, or was: to look takes the mark back.
    let goes_on =
        |state: &'static State, row| !state.is_paused() && Call::enter(Layer::driver(state, row), mark).is_some();
    let call = enter(hook.class, mark, goes_on);
    let mut prepared = P::default();
    if let Ok(call) = call {
        call.layer.state.about.set(this as usize);
        prepared = before(this, call.layer.state);
        start = call.begin(hook.class, number);
    }
    // What the original may end is asked before.
    let context = call.map_or(0, |_| devices::number(this));
    let result = original(prepared);
    let end = call.map_or(0, |call| call.layer.state.now());
    if let Err(Unrecorded::Inside) = call {
        return result;
    }
    let at = At(call.ok().map(|call| (call.layer.state, end)));
    let (payload, place) = payload(this, result, prepared, at).parts();
    match call {
        Ok(call) => {
            let event = Event { hook: number, start, end, context, payload, ..Event::default() };
            call.end_at(hook, event, result.refused(), place);
        }
        Err(_) => cold_path(),
    }
    result
}

impl Call<'_> {
    /// Writes the event of a message, which has its hook, times and payload, and leaves.
    #[inline(always)]
    pub(crate) fn end(self, hook: Hook, event: Event, result: u32) {
        self.end_at(hook, event, result, None);
    }

    /// The same at its place, if it has one.
    #[inline(always)]
    fn end_at(self, hook: Hook, mut event: Event, result: u32, place: Option<Reserved<'_>>) {
        event.flags = hook.flags;
        event.result = result.min(u32::from(u16::MAX)) as u16;
        match place {
            Some(place) => self.layer.state.write_at(place, event),
            None => self.layer.state.write(event, hook.class),
        }
        self.leave();
    }
}
