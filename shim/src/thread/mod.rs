//! A thread's state, its row in the segment, and how it gets room in a ring.
//!
//! States live in one private mapping that the kernel wipes in a forked child (MADV_WIPEONFORK), because `_Fork` and
//! raw clone run no handler, and a child that wrote to its parent's ring would corrupt it. A wiped state has no row,
//! so the child's first hooked call takes the slow path and makes a segment of its own.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
mod patience;
mod places;
mod shared;
mod state;
mod texts;
mod words;

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use gputrace_abi::layout::{CLASSES, THREADS_MAX, ThreadRow, View, note, thread_state};

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(target_os = "macos")]
use macos as platform;
pub(crate) use state::State;
#[cfg(target_os = "macos")]
pub(crate) use texts::Reserved;

use crate::{culling, record, sampling, session, stack, sys, tls};

/// All states of the process, one per row of the thread table, after the process's own words.
static STATES: AtomicUsize = AtomicUsize::new(0);
/// The highest row that was ever used.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Switches recording of all threads. The segment's header, which new threads read, is set before.
pub(crate) fn pause(paused: bool) {
    let states = STATES.load(Ordering::Acquire) as *const State;
    if states.is_null() {
        return;
    }
    for number in 0..=HIGHEST.load(Ordering::Relaxed) {
        // SAFETY: `prepare` mapped one state more than there are rows; the field is an atomic.
        unsafe { &*states.add(number + 1) }.hold(State::PAUSED, paused);
    }
}

/// Threads have changed their contexts unseen: each asks again.
#[cfg(target_os = "linux")]
pub(crate) fn forget_contexts() {
    let states = STATES.load(Ordering::Acquire) as *const State;
    if states.is_null() {
        return;
    }
    for number in 0..=HIGHEST.load(Ordering::Relaxed) {
        // SAFETY: as above; a thread reads the word in a hook only, and nobody is in one.
        unsafe { &*states.add(number + 1) }.context.set(UNKNOWN_CONTEXT);
    }
}

/// [`State::context`] of a thread whose context is to be asked for.
pub(crate) const UNKNOWN_CONTEXT: u16 = u16::MAX;

/// Where the search for a free row begins.
static NEXT_ROW: AtomicU32 = AtomicU32::new(0);

/// A forked child has a segment of its own, with rows that nobody has taken: the collector looks for threads from the first on.
pub(crate) fn begin_segment() {
    NEXT_ROW.store(0, Ordering::Relaxed);
    HIGHEST.store(0, Ordering::Relaxed);
}
/// Makes the states' memory, has it wiped at a fork and threads' ends told. Once, in the constructor.
pub(crate) fn prepare() -> Result<(), &'static [u8]> {
    let at = sys::map(STATES_BYTES, None).map_err(|_| &b"no address space for its thread states"[..])?;
    STATES.store(at as usize, Ordering::Release);
    platform::prepare(at, STATES_BYTES)
}

/// A state for each row, after the process's own words and before the state of ended threads.
const STATES_BYTES: usize = size_of::<State>() * (THREADS_MAX + 2);

/// Wipes the states where the kernel cannot (macOS, gVisor), by a handler that fork runs in the child.
unsafe extern "C" fn wipe() {
    let at = STATES.load(Ordering::Acquire) as *mut u8;
    // SAFETY: the child has one thread, which is here; the mapping has this size, and all zeros is a valid state.
    unsafe { ptr::write_bytes(at, 0, STATES_BYTES) };
    forget();
}

/// Has a child's one thread, of which fork runs this, forget its wiped state: another thread, whose hooked call is the first one,
/// gets the first row, and that one's state may be the same.
extern "C" fn forget() {
    let is_wiped = |state: &State| state.row().is_none() && !ended().is_some_and(|ended| ptr::eq(state, ended));
    if tls::get().is_some_and(is_wiped) {
        tls::set(None);
    }
}

/// The process's own words, at the start of the states' memory: what else must be wiped by a fork.
#[repr(C)]
pub(crate) struct Process {
    /// Whether it has a segment; see [`crate::session`].
    pub(crate) word: AtomicU32,
    /// The thread that makes it, in a forked child.
    pub(crate) maker: AtomicU32,
    /// Calls that were made meanwhile, and did not wait for it.
    pub(crate) early: [AtomicU32; CLASSES],
}

const _: () = assert!(size_of::<Process>() <= size_of::<State>());

/// The process's own words.
pub(crate) fn process() -> Option<&'static Process> {
    let at = STATES.load(Ordering::Acquire) as *const Process;
    // SAFETY: null, or the start of the mapping, which is never unmapped.
    unsafe { at.as_ref() }
}

/// A round of destructors has come to ours. Those of other keys and libc's own clean-up still allocate and free after
/// ours has run. So the chain ends in the last round that libc makes, and what comes later finds the state of an ended
/// thread: passed on, only counted. True: this was not the last round.
fn goes_on(state: &State) -> bool {
    const ROUNDS: u8 = 4; // PTHREAD_DESTRUCTOR_ITERATIONS
    state.rounds.set(state.rounds.get() + 1);
    if state.rounds.get() < ROUNDS {
        return true;
    }
    record::thread_ends(state);
    state.close();
    tls::set(ended());
    false
}

/// The state of every thread that has ended.
fn ended() -> Option<&'static State> {
    let states = STATES.load(Ordering::Acquire) as *const State;
    // SAFETY: null, or the mapping made by `prepare`, which has two states more than rows.
    unsafe { states.as_ref().map(|first| &*(&raw const *first).add(THREADS_MAX + 1)) }
}

/// The calling thread's state, registered if it is not yet. None: not recording in this process, or no row is free.
#[cold]
#[inline(never)]
pub(crate) fn state_slow() -> Option<&'static State> {
    if let Some(state) = tls::get().filter(|s| s.row().is_some()) {
        return Some(state);
    }
    if tls::get().is_some_and(|s| ended().is_some_and(|e| ptr::eq(s, e))) {
        return None;
    }
    let view = session::live()?;
    let frame = 0u8;
    register(&view, &raw const frame as usize)
}

fn claim(row: &ThreadRow) -> bool {
    use thread_state::{CLAIMED, FREE};
    // SYNC POINT: row. Acquire, with the collector's Release of FREE: it is done with the counters.
    row.state.load(Ordering::Relaxed) == FREE
        && row.state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

fn register(view: &View, here: usize) -> Option<&'static State> {
    let states = STATES.load(Ordering::Acquire) as *const State;
    let first = NEXT_ROW.fetch_add(1, Ordering::Relaxed) as usize;
    let claimed = (0..THREADS_MAX).map(|i| (first + i) % THREADS_MAX).find_map(|number| {
        let row = view.thread(number)?;
        claim(row).then_some((number, row))
    });
    let Some((number, row)) = claimed else {
        // No row is free: this thread stays unrecorded, and is not to search again at each of its calls.
        view.header().notes.fetch_or(note::THREADS_FULL, Ordering::Relaxed);
        tls::set(ended());
        return None;
    };
    // SAFETY: `prepare` mapped one state more than there are rows; this one belongs to the row just claimed.
    let state = unsafe { &*states.add(number + 1) };
    row.tid.store(sys::gettid(), Ordering::Relaxed);
    row.started.store(session::now(), Ordering::Relaxed);
    row.ended.store(0, Ordering::Relaxed);
    row.in_flight_start.store(0, Ordering::Relaxed);
    row.library_hook.store(0, Ordering::Relaxed);
    row.library_start.store(0, Ordering::Relaxed);
    row.wait_hook.store(0, Ordering::Relaxed);
    row.wait_start.store(0, Ordering::Relaxed);
    row.sharing.store(0, Ordering::Relaxed);
    row.in_flight_about.store(0, Ordering::Relaxed);
    row.library_about.store(0, Ordering::Relaxed);
    row.first_chunk.store(0, Ordering::Relaxed);
    row.counts.store(0, Ordering::Relaxed);
    row.generation.fetch_add(1, Ordering::Relaxed);
    for class in 0..CLASSES {
        for counter in [row.seen.get(class), row.chosen.get(class)].into_iter().flatten() {
            counter.store(0, Ordering::Relaxed);
        }
        for counter in [row.dropped.get(class), row.abandoned.get(class)].into_iter().flatten() {
            counter.store(0, Ordering::Relaxed);
        }
    }
    state.segment.set(view.base());
    state.tail.clear();
    state.taken.set(0);
    state.guard.set(0);
    state.library_guard.set(0);
    state.group_depth.set(0);
    state.wait.set(0);
    state.context.set(UNKNOWN_CONTEXT);
    state.number.set(number as u16);
    state.busy.set(0);
    state.rounds.set(0);
    state.counters.set(ptr::null());
    state
        .random
        .set(session::now() ^ (here as u64).rotate_left(32) ^ (u64::from(row.tid.load(Ordering::Relaxed)) << 17) | 1);
    sampling::reset(state);
    stack::reset(state);
    platform::reset(state);
    state.counter.set(u8::from(session::uses_counter()));
    HIGHEST.fetch_max(number, Ordering::Relaxed);
    state.row.set(row);
    culling::begin_thread(state, view);
    state.held.store(0, Ordering::SeqCst);
    state.notice();
    // The first chunk now, in the constructor for the main thread: a hook may have no system call left to it later.
    state.next_chunk();
    // SYNC POINT: live. Release, with the collector's Acquire: the row's fields are written.
    row.state.store(thread_state::LIVE, Ordering::Release);
    tls::set(Some(state));
    platform::arm_exit();
    Some(state)
}
