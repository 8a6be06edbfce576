//! A thread's state, its row in the segment, and how it gets room in a ring.
//!
//! States live in one private mapping that the kernel wipes in a forked child (MADV_WIPEONFORK), because `_Fork` and
//! raw clone run no handler, and a child that wrote to its parent's ring would corrupt it. A wiped state has no row,
//! so the child's first hooked call takes the slow path and makes a segment of its own.

mod patience;
mod places;
mod shared;
mod state;

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::layout::{CLASSES, THREADS_MAX, ThreadRow, View, thread_state};

pub(crate) use state::State;

use crate::interpose::elf;
use crate::{sampling, session, stack, sys, tls};

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
        unsafe { &(*states.add(number + 1)).paused }.store(u8::from(paused), Ordering::SeqCst);
    }
}

/// Where the search for a free row begins.
static NEXT_ROW: AtomicU32 = AtomicU32::new(0);
/// The key whose destructor ends a thread's chain; -1 when there is none.
static EXIT_KEY: AtomicU64 = AtomicU64::new(u64::MAX);
static SET_SPECIFIC: AtomicUsize = AtomicUsize::new(0);

/// Makes the states' memory and the exit key. Once, in the constructor.
pub(crate) fn prepare() -> Result<(), &'static [u8]> {
    let bytes = size_of::<State>() * (THREADS_MAX + 2);
    let at = sys::map(bytes, None).map_err(|_| &b"no address space for its thread states"[..])?;
    STATES.store(at as usize, Ordering::Release);
    if sys::wipe_on_fork(at, bytes).is_err() && !wipe_by_handler() {
        return Err(b"the kernel has no MADV_WIPEONFORK (Linux 4.14)");
    }
    if let Some(key) = make_exit_key() {
        SET_SPECIFIC.store(elf::next_definition(c"pthread_setspecific"), Ordering::Relaxed);
        EXIT_KEY.store(u64::from(key), Ordering::Relaxed);
    }
    Ok(())
}

/// Keys from here on would make pthread_setspecific allocate, inside malloc.
const KEYS: usize = 32;

/// Makes the exit key: the highest of those that need no allocation.
///
/// The program keeps the numbers that it would have got. And a libc in another link namespace (dlmopen) numbers its
/// keys from 0 again but finds values in the same thread: the vendor's driver, opened so, took our value for its own.
fn make_exit_key() -> Option<u32> {
    let create = elf::next_definition(c"pthread_key_create");
    let delete = elf::next_definition(c"pthread_key_delete");
    if create == 0 || delete == 0 {
        return None;
    }
    type Create = unsafe extern "C" fn(*mut u32, unsafe extern "C" fn(*mut core::ffi::c_void)) -> i32;
    // SAFETY: the address is libc's pthread_key_create, whose signature this is.
    let create: Create = unsafe { core::mem::transmute(create) };
    // SAFETY: the same for pthread_key_delete.
    let delete: unsafe extern "C" fn(u32) -> i32 = unsafe { core::mem::transmute(delete) };
    let mut below = [None; KEYS];
    let mut highest = None;
    for place in &mut below {
        let mut key = 0;
        // SAFETY: the key is written to a local; the destructor is never unloaded (nodelete).
        if unsafe { create(&mut key, at_thread_exit) } != 0 {
            break;
        }
        if key as usize >= KEYS {
            *place = Some(key);
            break;
        }
        *place = highest.replace(key);
    }
    for key in below.into_iter().flatten() {
        // SAFETY: a key made above, of which no thread has a value.
        unsafe { delete(key) };
    }
    highest
}

/// Where the kernel cannot wipe (gVisor): a handler that fork runs in the child. `_Fork` and raw clone do not run it.
fn wipe_by_handler() -> bool {
    unsafe extern "C" fn wipe() {
        let at = STATES.load(Ordering::Acquire) as *mut u8;
        // SAFETY: the child has one thread, which is here; the mapping has this size, and all zeros is a valid state.
        unsafe { ptr::write_bytes(at, 0, size_of::<State>() * (THREADS_MAX + 2)) };
    }
    let register = elf::next_definition(c"__register_atfork");
    if register == 0 {
        return false;
    }
    type Handler = Option<unsafe extern "C" fn()>;
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const core::ffi::c_void) -> i32;
    // SAFETY: the address is libc's __register_atfork, whose signature this is.
    let register: Register = unsafe { core::mem::transmute(register) };
    // SAFETY: the handler is never unloaded (nodelete).
    unsafe { register(None, None, Some(wipe), ptr::null()) == 0 }
}

/// The first words of the states' memory: what else must be wiped by a fork.
pub(crate) fn process_word() -> Option<&'static AtomicU32> {
    let at = STATES.load(Ordering::Acquire) as *const AtomicU32;
    // SAFETY: null, or the start of the mapping, which is never unmapped.
    unsafe { at.as_ref() }
}

/// Destructors of other keys and libc's own clean-up still allocate and free after ours has run. So the chain ends in
/// the last round that libc makes, and what comes later finds the state of an ended thread: passed on, only counted.
unsafe extern "C" fn at_thread_exit(_: *mut core::ffi::c_void) {
    const ROUNDS: u8 = 4; // PTHREAD_DESTRUCTOR_ITERATIONS
    let Some(state) = tls::get().filter(|s| s.row().is_some()) else { return };
    state.rounds.set(state.rounds.get() + 1);
    if state.rounds.get() < ROUNDS {
        arm_exit();
        return;
    }
    state.close();
    tls::set(ended());
}

/// The state of every thread that has ended.
fn ended() -> Option<&'static State> {
    let states = STATES.load(Ordering::Acquire) as *const State;
    // SAFETY: null, or the mapping made by `prepare`, which has two states more than rows.
    unsafe { states.as_ref().map(|first| &*(&raw const *first).add(THREADS_MAX + 1)) }
}

fn arm_exit() {
    let key = EXIT_KEY.load(Ordering::Relaxed);
    if key == u64::MAX {
        return;
    }
    type Set = unsafe extern "C" fn(u32, *const core::ffi::c_void) -> i32;
    // SAFETY: stored together with the key; the address is libc's pthread_setspecific.
    let set: Set = unsafe { core::mem::transmute(SET_SPECIFIC.load(Ordering::Relaxed)) };
    // SAFETY: the key exists; the value is never dereferenced.
    unsafe { set(key as u32, ptr::without_provenance(1)) };
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
    row.first_chunk.store(0, Ordering::Relaxed);
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
    state.context.set(crate::contexts::UNKNOWN);
    state.number.set(number as u16);
    state.busy.set(0);
    state.rounds.set(0);
    state.counters.set(ptr::null());
    state
        .random
        .set(session::now() ^ (here as u64).rotate_left(32) ^ (u64::from(row.tid.load(Ordering::Relaxed)) << 17) | 1);
    sampling::reset(state);
    stack::reset(state);
    state.counter.set(u8::from(session::uses_counter()));
    HIGHEST.fetch_max(number, Ordering::Relaxed);
    state.row.set(row);
    state.paused.store((view.header().paused.load(Ordering::SeqCst) != 0) as u8, Ordering::SeqCst);
    // The first chunk now, in the constructor for the main thread: a hook may have no system call left to it later.
    state.next_chunk();
    // SYNC POINT: live. Release, with the collector's Acquire: the row's fields are written.
    row.state.store(thread_state::LIVE, Ordering::Release);
    tls::set(Some(state));
    arm_exit();
    Some(state)
}
