//! What a hook of a call that may wait for the operating system does: clock, original, clock, and an event only if the
//! wait was long.
//!
//! Most such calls return at once, and only the long ones say where time went: the others are counted. Nothing is held
//! while the original runs. A cancellation or a longjmp out of it leaves a mark behind, which the thread's next wait
//! finds to be of a frame that is gone, as [`record::Call`] does. A call is counted when it has returned; the collector
//! counts the one that a thread is in.
//!
//! A wait inside a hooked driver call is that call's own and is neither counted nor recorded. Waits are looked at from
//! the process's first look at the driver on, and in the children that it forks from then on.

use core::ffi::{CStr, c_int, c_void};
use core::hint::cold_path;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_abi::layout::ThreadRow;
use gputrace_abi::{Class, Event, local};

use crate::hooks::{self, os};
use crate::interpose::elf;
use crate::stack::{self, rate};
use crate::thread::State;
use crate::{frame, record, session, tls};

/// Ticks from which on a wait becomes an event; all ones: waits are not looked at.
static THRESHOLD: AtomicU64 = AtomicU64::new(NEVER);
const NEVER: u64 = u64::MAX;

/// What the environment asked for.
static WANTED: AtomicU32 = AtomicU32::new(OFF);
static OVER_US: AtomicU64 = AtomicU64::new(DEFAULT_OVER_US);
const DEFAULT_OVER_US: u64 = 20;
const OFF: u32 = 0;
const WITH_DRIVER: u32 = 1;
const ALWAYS: u32 = 2;

/// `GPUTRACE_OS`: cuda, all or off. `GPUTRACE_OS_OVER`: microseconds. For the constructor.
pub(crate) fn configure(mode: Option<&[u8]>, over: Option<&[u8]>) {
    let mode = match mode {
        Some(b"off") => OFF,
        Some(b"all") => ALWAYS,
        _ => WITH_DRIVER,
    };
    WANTED.store(mode, Ordering::Relaxed);
    OVER_US.store(over.and_then(session::number).unwrap_or(DEFAULT_OVER_US), Ordering::Relaxed);
}

/// The process's segment is made: waits are looked at from now on where that is wanted in every process.
pub(crate) fn started(driver_is_known: bool) {
    if WANTED.load(Ordering::Relaxed) == ALWAYS || driver_is_known {
        arm();
    }
}

/// The process has reached the driver.
pub(crate) fn arm() {
    if WANTED.load(Ordering::Relaxed) != OFF && !is_on() {
        set_threshold();
        os::lead_to_ours();
    }
}

fn set_threshold() -> u64 {
    let ticks = rate::ticks(OVER_US.load(Ordering::Relaxed)).min(NEVER - 1);
    THRESHOLD.store(ticks, Ordering::Relaxed);
    ticks
}

/// Whether waits are looked at in this process.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    THRESHOLD.load(Ordering::Relaxed) != NEVER
}

/// What a call waits for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Target {
    /// Address of a lock, thread or memory; 0: none.
    pub(crate) address: u64,
    /// Descriptor + 1; 0: none. [`FIRST_OF_LIST`]: the first of the list at the address.
    pub(crate) descriptor: u64,
}

impl Target {
    /// A lock, a thread, memory.
    #[inline(always)]
    pub(crate) fn at(address: usize) -> Target {
        Target { address: address as u64, descriptor: 0 }
    }

    /// A file, a pipe, a socket.
    #[inline(always)]
    pub(crate) fn fd(descriptor: c_int) -> Target {
        Target { address: 0, descriptor: (i64::from(descriptor) + 1) as u64 }
    }
}

/// The descriptor stands in a `struct pollfd` at the address, and is read only when it is needed.
pub(crate) const FIRST_OF_LIST: u64 = u64::MAX;

/// What stands in a hook's frame while its original runs.
#[repr(C)]
pub(crate) struct Mark {
    /// Its own address, scrambled: tells a frame that is there from one that a longjmp left.
    cookie: usize,
    /// Ticks at the beginning; 0: the call is not looked at.
    start: u64,
    /// The mark of the wait that a signal interrupted for the handler that this call is made in; 0: none.
    outer: usize,
    /// The thread's row in the segment: another one when the call returns in a forked child.
    row: usize,
    number: u16,
}

impl Mark {
    #[inline(always)]
    pub(crate) fn new(number: u16) -> Mark {
        Mark { cookie: 0, start: 0, outer: 0, row: 0, number }
    }
}

/// The call begins.
#[inline(never)]
pub(crate) fn begin(mark: &mut Mark) {
    let here = &raw mut mark.cookie as usize;
    let Some((state, row)) = state() else {
        mark.start = session::now();
        return;
    };
    if state.is_paused() || record::is_inside_a_call(state, here) {
        return;
    }
    mark.row = ptr::from_ref(row) as usize;
    mark.outer = match state.wait.get() {
        0 => 0,
        outer if frame::is_running(outer, here) => outer,
        _ => {
            count_abandoned(row, 1);
            0
        }
    };
    frame::stamp(&raw mut mark.cookie);
    state.wait.set(here);
    mark.start = state.now();
    row.wait_hook.store(u64::from(mark.number), Ordering::Relaxed);
    row.wait_start.store(mark.start, Ordering::Relaxed);
}

/// The call has returned.
#[inline(never)]
pub(crate) fn end(mark: &mut Mark, result: i64, target: Target) {
    if mark.start == 0 {
        return;
    }
    let known = state();
    let end = known.map_or_else(session::now, |(state, _)| state.now());
    if let Some((state, row)) = known {
        leave(mark, state, row);
        if let Some(seen) = row.seen.get(Class::OsWait as usize) {
            local::increment(seen);
        }
    }
    if end.saturating_sub(mark.start) >= THRESHOLD.load(Ordering::Relaxed) {
        keep(mark, end, result, target, known.is_some());
    }
}

/// Takes the mark back. Where a signal handler made the call, the wait that it interrupted is marked again.
#[inline(always)]
fn leave(mark: &mut Mark, state: &State, row: &ThreadRow) {
    // A signal handler may have forked: then this is the child, in which the call did not begin.
    if mark.cookie == 0 || mark.row != ptr::from_ref(row) as usize {
        return;
    }
    let (mut hook, mut start) = (u64::from(mark.number), 0);
    if mark.outer != 0 {
        cold_path();
        // SAFETY: the handler has not returned, so the frame below it is there.
        let outer = unsafe { &*(mark.outer as *const Mark) };
        (hook, start) = (u64::from(outer.number), outer.start);
    }
    row.wait_hook.store(hook, Ordering::Relaxed);
    row.wait_start.store(start, Ordering::Relaxed);
    if state.wait.get() == &raw mut mark.cookie as usize {
        state.wait.set(mark.outer);
    } else {
        cold_path();
        // A handler on a stack of its own took this call for one that was left.
        count_abandoned(row, -1);
    }
}

/// Counts a call that never came back to its hook.
#[cold]
#[inline(never)]
fn count_abandoned(row: &ThreadRow, calls: i32) {
    const CLASS: usize = Class::OsWait as usize;
    // Seen and not sampled out.
    for counter in [row.seen.get(CLASS), row.chosen.get(CLASS)].into_iter().flatten() {
        counter.fetch_add(i64::from(calls) as u64, Ordering::Relaxed);
    }
    if let Some(abandoned) = row.abandoned.get(CLASS) {
        abandoned.fetch_add(calls as u32, Ordering::Relaxed);
    }
}

#[inline(always)]
fn state() -> Option<(&'static State, &'static ThreadRow)> {
    let state = tls::get()?;
    Some((state, state.row()?))
}

/// Records a long wait. A thread or forked child that is not known yet gets its state only now.
#[cold]
#[inline(never)]
fn keep(mark: &Mark, end: u64, result: i64, target: Target, counted: bool) {
    // The threshold may have been set before the clock's rate was known well.
    if end.saturating_sub(mark.start) < set_threshold() {
        return;
    }
    let Some((state, row)) = record::state() else { return session::count_unrecorded(Class::OsWait) };
    if state.is_paused() && !counted {
        return;
    }
    if let (false, Some(seen)) = (counted, row.seen.get(Class::OsWait as usize)) {
        local::increment(seen);
    }
    if let Some(chosen) = row.chosen.get(Class::OsWait as usize) {
        local::increment(chosen);
    }
    let (number, start) = (mark.number, mark.start);
    let error = os::LIST.get(usize::from(number.saturating_sub(os::FIRST))).map_or(0, |f| f.tells.error(result));
    let (address, descriptor) = match target.descriptor {
        FIRST_OF_LIST if error != 0 => (0, 0),
        // SAFETY: poll succeeded, so it has read the list that the program gave it.
        FIRST_OF_LIST => (0, unsafe { (*(target.address as *const libc::pollfd)).fd } as i64 as u64 + 1),
        descriptor => (target.address, descriptor),
    };
    let payload = [address, descriptor, 0, result as u64];
    state.write(Event { hook: number, start, end, result: error, payload, ..Event::default() }, Class::OsWait);
    stack::after_wait(state, start, end);
}

/// How a function tells that it failed.
#[derive(Clone, Copy)]
pub(crate) enum Tells {
    /// It returns -1, and the reason is in errno.
    Errno,
    /// It returns the reason.
    Code,
    /// It returns the reason, negative.
    Negative,
    /// It does not.
    Nothing,
}

impl Tells {
    /// The error number of a call that has just returned this; 0 for none.
    fn error(self, result: i64) -> u16 {
        match self {
            // SAFETY: the calling thread's own errno.
            Tells::Errno if result == -1 => unsafe { *libc::__errno_location() as u16 },
            Tells::Code => result as u16,
            Tells::Negative if result < 0 => -result as u16,
            _ => 0,
        }
    }
}

/// What a hook returns whose original is nowhere: the program was told of a function that its libc does not have.
#[cold]
#[inline(never)]
pub(crate) fn missing(number: u16) -> i64 {
    match os::LIST.get(usize::from(number.saturating_sub(os::FIRST))).map(|f| f.tells) {
        Some(Tells::Code) => i64::from(libc::ENOSYS),
        Some(Tells::Negative) => i64::from(-libc::ENOSYS),
        _ => {
            // SAFETY: the calling thread's own errno.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
            -1
        }
    }
}

/// The next definition of a function in search order; 0 when there is none.
#[inline(always)]
pub(crate) fn original(number: u16, name: &CStr) -> usize {
    match hooks::original(number).load(Ordering::Relaxed) {
        0 => find(number, name),
        address => address,
    }
}

/// A call before our constructor ran, or of a library that came later (libpthread, libaio).
#[cold]
#[inline(never)]
fn find(number: u16, name: &CStr) -> usize {
    let found = elf::next_definition(name);
    hooks::original(number).store(found, Ordering::Relaxed);
    found
}

/// Takes a lock that is free without looking at the clock. None: it is not, or there is no such function to ask.
///
/// An uncontended lock takes 15 ns; two looks at the clock would take as long. What these functions answer but EBUSY
/// is what their waiting sisters would have answered: free, owner died, not recoverable, too many readers.
#[inline(always)]
pub(crate) fn tried(function: usize, lock: *mut c_void) -> Option<c_int> {
    if function == 0 {
        return None;
    }
    // SAFETY: the address is that of pthread_mutex_trylock or one of its sisters, whose signature this is.
    let f: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { core::mem::transmute(function) };
    // SAFETY: the program's own argument.
    let result = unsafe { f(lock) };
    (result != libc::EBUSY).then_some(result)
}
