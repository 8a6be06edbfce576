//! What a hook of NCCL does: finds the copy that the call belongs to, times the call, writes its event, and keeps the
//! numbers of communicators.
//!
//! Calls of NCCL contain calls of the driver, which are recorded as ever: see [`Layer`].

mod births;
mod communicators;
mod operation;

use core::sync::atomic::Ordering;

use gputrace_abi::collective::{pack_party, pack_type};
use gputrace_abi::{Class, Event, event};

use self::communicators::Known;
use self::operation::Effect;
pub(crate) use self::operation::{Comm, Operation, UniqueId};
use crate::gpu_time::peer_comes;
use crate::hooks::nccl as hooks;
use crate::interpose::copies::{self, Target};
use crate::record::{self, Call, Layer};
use crate::thread::State;
use crate::{capture, contexts, stack, tls};

/// ncclSystemError: what a hook returns that was reached although no NCCL is there.
pub(crate) const SYSTEM_ERROR: u32 = 2;
/// ncclSuccess.
const SUCCESS: u32 = 0;
/// ncclInProgress: a communicator that does not block its caller goes on being made.
const IN_PROGRESS: u32 = 7;

/// A call from its beginning to its end. Lies in the hook's own frame, where the word that marks it must be.
pub(crate) struct Running {
    cookie: usize,
    /// The thread, where the call is no part of another one.
    outermost: Option<(Call<'static>, &'static State)>,
    /// Not while recording is paused.
    recorded: bool,
    function: usize,
    operation: Operation,
    communicator: Known,
    copy: u8,
    /// What stood in the place for a new communicator's handle.
    before: usize,
    start: u64,
}

impl Running {
    /// Of nothing yet.
    #[inline(always)]
    pub(crate) fn new() -> Running {
        Running {
            cookie: 0,
            outermost: None,
            recorded: false,
            function: 0,
            operation: Operation::none(),
            communicator: Known::NONE,
            copy: copies::NO_COPY,
            before: 0,
            start: 0,
        }
    }

    /// Begins a call of the function with this number. Returns the original's address, 0 where there is none.
    #[inline(never)]
    pub(crate) fn begin(&mut self, function: usize, operation: Operation) -> usize {
        let known = communicators::find(operation.comm);
        let Target { address, copy } = copies::target(function, tls::caller(), known.copy());
        if address == 0 {
            return 0;
        }
        if operation.joins_others() {
            peer_comes();
        }
        let Some((state, row)) = record::state() else {
            crate::session::count_unrecorded(Class::Collective);
            known.ends(&operation);
            return address;
        };
        // No call of the program: NCCL's own of its export, or that of a stand-in which calls on.
        let Some(call) = Call::enter(Layer::library(state, row), &raw mut self.cookie) else { return address };
        (self.outermost, self.recorded) = (Some((call, state)), !state.is_paused());
        (self.function, self.operation, self.communicator, self.copy) = (function, operation, known, copy);
        self.before = operation.place_before();
        // Before the call: afterwards another thread may get a communicator at the same address.
        known.ends(&operation);
        row.library_about.store(u64::from(known.number()), Ordering::Relaxed);
        // A communicator that is made while recording is paused has its time all the same.
        self.start = match self.recorded {
            true => call.begin(Class::Collective, hooks::FIRST + function as u16),
            false => state.now(),
        };
        address
    }

    /// Ends it.
    #[inline(never)]
    pub(crate) fn end(&mut self, result: u32) {
        let Some((call, state)) = self.outermost else { return };
        if self.recorded {
            self.write(state, result);
        }
        self.take_effect(state, result);
        call.leave();
    }

    fn write(&self, state: &State, result: u32) {
        let end = state.now();
        let operation = &self.operation;
        let around = state.group_depth.get().saturating_sub((operation.effect == Effect::EndsGroup) as u32);
        let grouped = if around > 0 { event::FLAG_IN_GROUP } else { 0 };
        let captured = if capture::holds(operation.stream) { event::FLAG_CAPTURED } else { 0 };
        let event = Event {
            commit: 0,
            hook: hooks::FIRST + self.function as u16,
            thread: 0,
            start: self.start,
            end,
            context: contexts::current(state),
            flags: grouped | captured,
            result: result.min(u32::from(u16::MAX)) as u16,
            spare: 0,
            payload: [
                pack_party(self.communicator.number(), operation.party),
                operation.stream,
                operation.count,
                pack_type(operation.data_type, operation.operator),
            ],
        };
        state.write(event, Class::Collective);
        stack::after(state, Class::Collective, self.start, end, result);
    }

    /// What the call changed, besides what it did.
    #[inline]
    fn take_effect(&self, state: &State, result: u32) {
        match self.operation.effect {
            Effect::Nothing => self.communicator.tell(state),
            Effect::Ends => {}
            Effect::BeginsGroup if result == SUCCESS => state.group_depth.set(state.group_depth.get().wrapping_add(1)),
            Effect::BeginsGroup => {}
            Effect::EndsGroup => {
                let depth = state.group_depth.get().saturating_sub(1);
                state.group_depth.set(depth);
                if depth == 0 {
                    births::group_ended(state, is_good(result), result);
                }
            }
            Effect::Makes | Effect::Derives | Effect::MakesAll if is_good(result) => self.make(state, result),
            Effect::Makes | Effect::Derives | Effect::MakesAll => {}
        }
    }
}

/// The call did, or is doing, what it was asked for.
fn is_good(result: u32) -> bool {
    result == SUCCESS || result == IN_PROGRESS
}
