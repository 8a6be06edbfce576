//! Commits of Metal 4: numbered, because their feedback names no command buffer.
//!
//! A number's place among [`PLACES`] stands in its low bits; there lies the block that the feedback calls.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::event::detail;
use gputrace_abi::layout::note;
use gputrace_abi::metal::{FLAG_NUMBERED, status};
use gputrace_abi::{Class, Event, local};

use super::completed::{self, Block};
use super::devices;
use crate::hooks::Hook;
use crate::interpose::objc::{Id, objc_getClass, send};
use crate::{session, thread};

const FIRST: u16 = super::entry::END;
/// Number after the last one.
pub(super) const END: u16 = FIRST + HOOKS.len() as u16;

/// What says which command buffers a commit has, an event each.
pub(super) static HOOKS: [Hook; 1] = [Hook::new(
    c"[MTL4CommandQueue commit:count:] command buffer",
    Class::Encode,
    detail::COMMITTED,
    false,
    core::ptr::null(),
)];

/// Commits in flight whose times can be told.
const PLACES: usize = 256;

#[repr(C)]
struct Place {
    /// First: the block's address is the place's.
    block: Block,
    /// The commit's number; 0: free.
    number: AtomicU64,
}

static FLYING: [Place; PLACES] = [const { Place { block: Block::new(arrived), number: AtomicU64::new(0) } }; PLACES];
static COMMITS: AtomicU64 = AtomicU64::new(0);

/// The number of a commit whose times will be told; 0 where too many are in flight.
pub(super) fn begin() -> usize {
    let nth = COMMITS.fetch_add(1, Ordering::Relaxed) + 1;
    for probe in 0..PLACES as u64 {
        let index = nth.wrapping_add(probe) % PLACES as u64;
        let number = nth * PLACES as u64 + index;
        let Some(place) = FLYING.get(index as usize) else { continue };
        if place.number.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return number as usize;
        }
    }
    session::say(note::METAL_TIMES_LOST);
    0
}

/// New options of a commit that give its feedback to us.
pub(super) fn options(number: usize) -> Id {
    // SAFETY: a C string.
    let class = unsafe { objc_getClass(c"MTL4CommitOptions".as_ptr()) };
    let options = send!(class, "new"; Id);
    if let Some(place) = FLYING.get(number % PLACES) {
        if options.is_null() {
            place.number.store(0, Ordering::Relaxed);
        } else {
            send!(options, "addFeedbackHandler:", (place.block.id() => Id); ());
        }
    }
    options
}

unsafe extern "C" fn arrived(block: *const Block, feedback: Id) {
    // SAFETY: the block is the first field of one of the places, which are static.
    let place = unsafe { &*block.cast::<Place>() };
    let number = place.number.load(Ordering::Relaxed);
    let failed = !send!(feedback, "error"; Id).is_null();
    let result = if failed { status::ERROR } else { status::COMPLETED };
    completed::tell(number, feedback, FLAG_NUMBERED, result, devices::number(core::ptr::null_mut()));
    place.number.store(0, Ordering::Relaxed);
}

/// The payload of a commit; number 0: one without times, which gets a number all the same.
pub(super) fn committed(queue: Id, buffers: *const Id, count: usize, number: usize) -> [u64; 4] {
    let number = match number {
        0 => (COMMITS.fetch_add(1, Ordering::Relaxed) + 1) * PLACES as u64 + PLACES as u64 / 2,
        number => number as u64,
    };
    if let Some(state) = thread::state_slow().filter(|state| !state.is_paused() && !buffers.is_null()) {
        let now = session::now();
        for nth in 0..count {
            // SAFETY: the program gave so many.
            let buffer = unsafe { *buffers.add(nth) };
            let hook = FIRST;
            if let Some(seen) = state.row().and_then(|row| row.seen.get(Class::Encode as usize)) {
                local::increment(seen);
            }
            let payload = [0, buffer as u64, number, 0];
            let event = Event { hook, start: now, end: now, payload, ..Event::default() };
            state.write(event, Class::Encode);
        }
    }
    [number, queue as u64, 0, count as u64]
}
