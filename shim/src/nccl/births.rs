//! How communicators come to be: who they are, and when their handles can be read.
//!
//! A call inside a group only announces a communicator: older versions write its handle when the group ends, and its rank
//! can be asked for only then. Such calls wait in a short list for the end of their thread's group.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::collective::NO_DEVICE;
use gputrace_abi::event::text_kind;

use super::communicators::{self, Facts, Shared};
use super::operation::{Comm, Effect};
use super::{Running, SUCCESS};
use crate::hooks::cuda::DriverCalls;
use crate::hooks::nccl as hooks;
use crate::interpose::copies;
use crate::thread::State;
use crate::{names, session};

impl Running {
    /// The call, which does what it was asked for, makes communicators.
    #[cold]
    #[inline(never)]
    pub(super) fn make(&self, state: &State, result: u32) {
        let birth = &self.operation.birth;
        if birth.place.is_null() {
            return;
        }
        tell_copy(state, self.copy);
        if self.operation.effect == Effect::MakesAll {
            return self.make_all(state);
        }
        let mut facts = self.facts(birth.rank, DriverCalls::current_device());
        facts.id = self.identity();
        // SAFETY: the place that NCCL was given to write the handle to.
        let handle = unsafe { birth.place.read() } as usize;
        let grouped = state.group_depth.get() > 0;
        if grouped && (handle == self.before || facts.rank < 0) {
            return wait(state, birth.place as usize, &facts);
        }
        // A split that leaves this rank out makes none.
        if handle != 0 {
            if result == SUCCESS {
                ask(handle, &mut facts);
            }
            communicators::enter(state, handle as u64, &facts);
        }
    }

    fn facts(&self, rank: i32, device: Option<u64>) -> Facts {
        Facts {
            id: 0,
            rank,
            ranks: self.operation.birth.ranks,
            number: communicators::new_number(),
            parent: self.communicator.number(),
            copy: self.copy,
            maker: hooks::FIRST + self.function as u16,
            device: device.map_or(NO_DEVICE as u16, |device| device as u16),
            since: self.start,
        }
    }

    fn make_all(&self, state: &State) {
        let birth = &self.operation.birth;
        for rank in 0..birth.ranks.max(0) {
            let at = rank as usize;
            // SAFETY: the program's lists have so many places; that of the devices may be missing.
            let (handle, device) = unsafe {
                let device = if birth.devices.is_null() { rank } else { birth.devices.add(at).read() };
                (birth.place.add(at).read() as usize as u64, device)
            };
            let mut facts = self.facts(rank, Some(device as u64));
            // All ranks are in this process, so a number of our own will do.
            facts.id = names::hash(&self.start.to_le_bytes());
            if handle != 0 {
                communicators::enter(state, handle, &facts);
            }
        }
    }

    /// The hash of the unique id, or for a derived communicator of its parent's, the color and the place among the
    /// parent's children: all ranks of the parent split it together.
    fn identity(&self) -> u64 {
        let birth = &self.operation.birth;
        if self.operation.effect != Effect::Derives {
            return birth.id;
        }
        match self.communicator.derive() {
            _ if birth.id != 0 => birth.id,
            (0, _) => 0,
            (parent, nth) => {
                let words = [parent, nth, birth.color as u64].map(u64::to_le_bytes);
                names::hash(words.as_flattened())
            }
        }
    }
}

/// Asks a communicator that is ready for what the call that made it did not say.
fn ask(handle: usize, facts: &mut Facts) {
    let number = |name: &CStr, known: i32| {
        let address = if known < 0 { copies::other_function(facts.copy, name) } else { 0 };
        if address == 0 {
            return known;
        }
        let mut number = 0;
        // SAFETY: ncclCommUserRank or ncclCommCount of the copy that made the communicator; they write one int.
        let result = unsafe {
            let f: unsafe extern "C" fn(usize, *mut i32) -> u32 = core::mem::transmute(address);
            f(handle, &mut number)
        };
        if result == SUCCESS { number } else { known }
    };
    let (rank, ranks) = (number(c"ncclCommUserRank", facts.rank), number(c"ncclCommCount", facts.ranks));
    (facts.rank, facts.ranks) = (rank, ranks);
}

/// A communicator that its group's end will make.
struct Waiting {
    /// State of its thread; 0: the place is free.
    owner: AtomicUsize,
    place: AtomicU64,
    facts: Shared,
}

static WAITING: [Waiting; 64] =
    [const { Waiting { owner: AtomicUsize::new(0), place: AtomicU64::new(0), facts: Shared::new() } }; 64];

fn owner(state: &State) -> usize {
    &raw const *state as usize
}

fn wait(state: &State, place: usize, facts: &Facts) {
    let free = |waiting: &&Waiting| {
        waiting.owner.compare_exchange(0, owner(state), Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    if let Some(waiting) = WAITING.iter().find(free) {
        waiting.place.store(place as u64, Ordering::Relaxed);
        waiting.facts.store(facts);
    }
}

/// The thread's outermost group has ended, and did what it was to do if `result` says so.
#[inline]
pub(super) fn group_ended(state: &State, good: bool, result: u32) {
    for waiting in &WAITING {
        if waiting.owner.load(Ordering::Relaxed) == owner(state) {
            enter_waiting(state, waiting, good, result);
        }
    }
}

#[cold]
fn enter_waiting(state: &State, waiting: &Waiting, good: bool, result: u32) {
    let mut facts = waiting.facts.load();
    if good {
        // SAFETY: the program's place for the handle, which NCCL was given for the time of the group.
        let handle = unsafe { (waiting.place.load(Ordering::Relaxed) as *const Comm).read() } as usize;
        if handle != 0 {
            if result == SUCCESS {
                ask(handle, &mut facts);
            }
            communicators::enter(state, handle as u64, &facts);
        }
    }
    waiting.owner.store(0, Ordering::Release);
}

/// Tells the collector where a copy of NCCL is and which version, once per segment.
fn tell_copy(state: &State, copy: u8) {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    static SEGMENT: AtomicU64 = AtomicU64::new(0);
    let path = copies::path(copy);
    if path.is_null() {
        return;
    }
    // A forked child has a segment of its own.
    let segment = state.header().started.first().map_or(0, |ticks| ticks.load(Ordering::Relaxed));
    if SEGMENT.swap(segment, Ordering::Relaxed) != segment {
        TOLD.store(0, Ordering::Relaxed);
    }
    if TOLD.load(Ordering::Acquire) & 1 << copy != 0 {
        return;
    }
    let mut version = 0;
    let address = copies::other_function(copy, c"ncclGetVersion");
    if address != 0 {
        // SAFETY: ncclGetVersion of that copy, which writes one int.
        unsafe {
            let f: unsafe extern "C" fn(*mut i32) -> u32 = core::mem::transmute(address);
            f(&mut version);
        }
    }
    // SAFETY: the loader's name of the library that was just called.
    let path = unsafe { CStr::from_ptr(path) };
    state.write_text(text_kind::NCCL, u64::from(copy), version as u64, path.to_bytes(), session::now());
    // Only now: another thread's communicator must not come before it. Two may tell the same.
    TOLD.fetch_or(1 << copy, Ordering::Release);
}
