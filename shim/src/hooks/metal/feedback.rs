//! Commits of Metal 4: numbered, because their feedback names no command buffer.
//!
//! A number's place among [`PLACES`] stands in its low bits; there lies the block that the feedback calls, and the options that give
//! it to a commit. They are made once: options may be used again, and keep their handlers.

use core::ffi::c_void;
use core::hint::cold_path;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::event::detail;
use gputrace_abi::layout::note;
use gputrace_abi::metal::{FLAG_NUMBERED, status};
use gputrace_abi::{Class, Event, local};

use super::completed::{self, BLOCK_WORDS, Block};
use super::{devices, gpu_clock};
use crate::hooks::Hook;
use crate::interpose::objc::{self, Id, objc_getClass, send};
use crate::record::At;
use crate::session;
use crate::thread::State;

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

/// Commits in flight whose times can be told. Memory of places that were never taken is never touched.
const PLACES: usize = 4096;

#[repr(C)]
struct Place {
    /// The block, which is made with the options. First: its address is the place's.
    block: [AtomicUsize; BLOCK_WORDS],
    /// The commit's number; 0: free.
    number: AtomicU64,
    /// What must still happen before it is free: the commit returns, its feedback comes.
    holders: AtomicU32,
    /// The thread whose commit has not returned, by its state's address; 0: it has.
    thread: AtomicUsize,
    /// Our options, which call the block.
    options: AtomicPtr<c_void>,
}

impl Place {
    const fn new() -> Place {
        Place {
            block: [const { AtomicUsize::new(0) }; BLOCK_WORDS],
            number: AtomicU64::new(0),
            holders: AtomicU32::new(0),
            thread: AtomicUsize::new(0),
            options: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// One of its two holders is done with it.
    fn let_go(&self) {
        if self.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.free();
        }
    }

    fn free(&self) {
        let number = self.number.swap(0, Ordering::Relaxed) as usize % PLACES;
        // SYNC POINT: free. Release, with the Acquire of `take_place`: who takes it next finds nothing of this use.
        TAKEN
            .get(number / WORD)
            .into_iter()
            .for_each(|word| _ = word.fetch_and(!(1 << (number % WORD)), Ordering::Release));
    }
}

static FLYING: [Place; PLACES] = [const { Place::new() }; PLACES];
/// Which places are taken, a bit each: so many commits as are in flight are passed over by 64 at once.
static TAKEN: [AtomicU64; PLACES / WORD] = [const { AtomicU64::new(0) }; PLACES / WORD];
const WORD: usize = u64::BITS as usize;
static COMMITS: AtomicU64 = AtomicU64::new(0);

fn place(number: usize) -> Option<&'static Place> {
    FLYING.get(number % PLACES)
}

/// The number of a commit whose times will be told; 0 where too many are in flight.
#[inline(always)]
pub(super) fn begin(state: &'static State) -> usize {
    let thread = &raw const *state as usize;
    take_place(thread).unwrap_or_else(|| {
        cold_path();
        clear_left(thread);
        take_place(thread).unwrap_or_else(|| {
            session::say(note::METAL_TIMES_LOST);
            0
        })
    })
}

fn take_place(thread: usize) -> Option<usize> {
    // The first free one: its options are there, unless more are in flight than ever before.
    let index = TAKEN.iter().enumerate().find_map(|(nth, word)| {
        let free = |bits: u64| !bits & bits.wrapping_add(1);
        let mut known = word.load(Ordering::Relaxed);
        while free(known) != 0 {
            let bit = free(known);
            known = word.fetch_or(bit, Ordering::Acquire);
            if known & bit == 0 {
                return Some(nth * WORD + bit.trailing_zeros() as usize);
            }
        }
        None
    })?;
    let place = FLYING.get(index)?;
    let number = (COMMITS.fetch_add(1, Ordering::Relaxed) + 1) * PLACES as u64 + index as u64;
    place.holders.store(2, Ordering::Relaxed);
    place.thread.store(thread, Ordering::Relaxed);
    place.number.store(number, Ordering::Relaxed);
    Some(number as usize)
}

/// Frees the places of this thread's commits that were left by exceptions: it is about to make another one, so none of them
/// goes on.
#[cold]
fn clear_left(thread: usize) {
    for place in &FLYING {
        if place.thread.load(Ordering::Relaxed) == thread {
            place.thread.store(0, Ordering::Relaxed);
            place.free();
        }
    }
}

/// Places whose options are made with the first queue, and so many more each time that half of them were in flight at once: by
/// Metal's thread then, so that a commit makes its own only where it is ahead of all feedback.
const READY: usize = 64;
/// Places from the first one on whose options are made, or being made.
static PREPARED: AtomicUsize = AtomicUsize::new(0);

/// A queue was made: the first commits find their options there.
pub(super) fn prepare() {
    if PREPARED.load(Ordering::Relaxed) == 0 {
        prepare_from(0);
    }
}

#[cold]
#[inline(never)]
fn prepare_from(known: usize) {
    if PREPARED.compare_exchange(known, known + READY, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    for (index, place) in FLYING.iter().enumerate().skip(known).take(READY) {
        let (Some(word), bit) = (TAKEN.get(index / WORD), 1 << (index % WORD)) else { return };
        // One that is in flight has them.
        if word.fetch_or(bit, Ordering::Acquire) & bit == 0 {
            if place.options.load(Ordering::Relaxed).is_null() {
                make_options(place);
            }
            word.fetch_and(!bit, Ordering::Release);
        }
    }
}

/// The options of a commit that give its feedback to us.
#[inline(always)]
pub(super) fn options(number: usize) -> Id {
    let Some(place) = place(number) else { return core::ptr::null_mut() };
    let known = place.options.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    cold_path();
    let made = make_options(place);
    if made.is_null() {
        place.let_go();
    }
    made
}

/// Makes the options of a place, which is this thread's for now.
#[cold]
#[inline(never)]
fn make_options(place: &'static Place) -> Id {
    // SAFETY: a C string.
    let class = unsafe { objc_getClass(c"MTL4CommitOptions".as_ptr()) };
    let options = objc::new(class);
    if !options.is_null() {
        let block = Block::write(&place.block, arrived);
        send!(options, "addFeedbackHandler:", (block => Id); ());
        place.options.store(options, Ordering::Relaxed);
    }
    options
}

/// The commit returned.
pub(super) fn returned(number: usize) {
    if let Some(place) = place(number) {
        place.thread.store(0, Ordering::Relaxed);
        place.let_go();
    }
}

unsafe extern "C" fn arrived(block: *const Block, feedback: Id) {
    // SAFETY: the block is the first field of one of the places, which are static.
    let place = unsafe { &*block.cast::<Place>() };
    let number = place.number.load(Ordering::Relaxed);
    let failed = !send!(feedback, "error"; Id).is_null();
    let result = if failed { status::ERROR } else { status::COMPLETED };
    completed::tell(number, feedback, FLAG_NUMBERED, result, devices::number(core::ptr::null_mut()));
    place.let_go();
    let prepared = PREPARED.load(Ordering::Relaxed);
    if number as usize % PLACES * 2 >= prepared && prepared < PLACES {
        prepare_from(prepared);
    }
}

/// The payload of a commit; number 0: one without times, which gets a number all the same.
#[inline(always)]
pub(super) fn committed(queue: Id, buffers: *const Id, count: usize, number: usize, at: At) -> [u64; 4] {
    let number = match number {
        0 => (COMMITS.fetch_add(1, Ordering::Relaxed) + 1) * PLACES as u64 + PLACES as u64 / 2,
        number => number as u64,
    };
    if let Some((state, now)) = at.recorded().filter(|_| !buffers.is_null()) {
        state.notice_pause();
        gpu_clock::at_commit(queue);
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
