//! Whose line caused it: stacks of calls that took long, and of launches.
//!
//! A hook calls [`after`] when its event is written. Most calls pay a comparison; those that took as long as
//! `--stacks-over` (20 us) get a stack, and of launches about one in `--launch-stacks` (1,000), drawn with geometric gaps:
//! every 1,000th would be the same kernel wherever 1,000 divides a step. A launch after a pause of its thread gets one
//! too: it says what the host did instead of feeding the GPU. A call that failed gets one, however short it was (`failures`).
//!
//! What they take is measured as they are taken. To keep to a budget the collector may leave out all of them
//! ([`gputrace_abi::shed`]): then what would get one pays a load, and is counted.

mod allocation;
mod failures;
mod frames;
mod known;
mod memory;
mod native;
mod python;
pub(crate) mod rate;
mod spared;

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::layout::stacks;
use gputrace_abi::stack::DEPTH_OF_CALLS;
use gputrace_abi::{Class, Event, event};

pub(crate) use allocation::{forget, is_wanted as wants_allocations, key as of_allocation};
use failures::Wanted;
use frames::{Frames, Language, Sink};
use known::Known;
pub(crate) use known::begin_segment;
pub(crate) use native::{remember_main_stack, told_main_stack};

use crate::sampling;
use crate::thread::State;

const DEFAULT_OVER_US: u64 = 20;
const DEFAULT_LAUNCHES: u64 = 1000;
/// A launch that begins so long after the thread's last driver call ended gets a stack.
const PAUSE_US: u64 = 200;

/// Calls of so many microseconds get a stack; [`OFF`]: none does.
static OVER_US: AtomicU64 = AtomicU64::new(DEFAULT_OVER_US);
/// Mean distance of launches that get one; [`OFF`]: none does.
static LAUNCHES: AtomicU64 = AtomicU64::new(DEFAULT_LAUNCHES);
const OFF: u64 = u64::MAX;

/// Stacks that were described.
static STACKS: Known = Known::new();

/// What a stack stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The call itself: it took long, or the launch followed a pause.
    Itself,
    /// So many launches, of which this one was drawn.
    Launches(u64),
}

/// Reads what the launcher asked for. For the constructor. `allocations`: they get stacks.
pub(crate) fn configure(stacks: Option<&[u8]>, launches: Option<&[u8]>, allocations: bool) {
    let read = |text: &[u8]| if text == b"off" { Some(OFF) } else { crate::session::number(text) };
    OVER_US.store(stacks.and_then(read).unwrap_or(DEFAULT_OVER_US), Ordering::Relaxed);
    let launches = launches.and_then(read).filter(|n| *n > 0).unwrap_or(DEFAULT_LAUNCHES);
    LAUNCHES.store(if OVER_US.load(Ordering::Relaxed) == OFF { OFF } else { launches }, Ordering::Relaxed);
    native::prepare();
    allocation::configure(allocations);
}

/// There is a segment now. In a forked child this may be a signal handler: there it was looked for Python before.
pub(crate) fn started() {
    if is_on() || wants_allocations() {
        python::begin();
        allocation::looked_for_python();
    }
}

/// The program opens a library.
pub(crate) fn library_opens() {
    // Python may have come with the one before.
    symbol_is_looked_up();
    python::library_opens();
}

/// The program looks a symbol up, by a call that takes the loader's lock itself: Python may have come since.
pub(crate) fn symbol_is_looked_up() {
    if is_on() || wants_allocations() {
        python::prepare();
        allocation::looked_for_python();
    }
}

/// Whether stacks are taken in this process.
pub(crate) fn is_on() -> bool {
    OVER_US.load(Ordering::Relaxed) != OFF
}

/// Sets a thread's thresholds for its first time.
pub(crate) fn reset(state: &State) {
    state.last_end.set(0);
    state.launches_left.set(launches_to_next(state));
    state.long_ticks.set(long_ticks());
}

/// Ticks from which on [`consider`] looks at a call.
fn long_ticks() -> u64 {
    let pause_us = if LAUNCHES.load(Ordering::Relaxed) == OFF { OFF } else { PAUSE_US };
    match OVER_US.load(Ordering::Relaxed) {
        OFF => OFF,
        us => rate::ticks(us.min(pause_us)),
    }
}

/// Takes the stack of a driver call whose event was just written, if it is one of those that get one.
#[inline(always)]
pub(crate) fn after(state: &State, class: Class, start: u64, end: u64, result: u32) {
    let launch = matches!(class, Class::Launch);
    // A pause before a launch and the launch itself share one comparison; `consider` tells them apart.
    let since = if launch { state.last_end.get() } else { start };
    state.last_end.set(end);
    let failed = failures::is_failure(class, result);
    let mut wanted = end.wrapping_sub(since) >= state.long_ticks.get() || failed;
    if launch {
        let left = state.launches_left.get() - 1;
        state.launches_left.set(left);
        wanted |= left < 0;
    }
    if wanted {
        consider(state, launch, since, (start, end), if failed { Some((class, result)) } else { None });
    }
}

/// Whether the memory from `here` up to the word at `there` is the calling thread's own stack, and so mapped.
pub(crate) fn reaches(here: usize, there: usize) -> bool {
    here >> 12 == there >> 12 || native::reaches(here, there)
}

/// Whether the word at `mark`, which lies above this frame, is in the frame of a function of ours that is running; None where frames
/// cannot be followed up to there, or not without a lock.
pub(crate) fn is_in_frame_of_ours(mark: usize) -> Option<bool> {
    if native::is_lock_free() { native::is_in_frame_of_ours(mark) } else { None }
}

/// Whether an address lies on the calling thread's own stack, as far as that is known.
pub(crate) fn is_own(there: usize) -> bool {
    native::is_own(there)
}

/// Takes the stack of a wait for the operating system whose event was just written, if it was long enough.
///
/// Unlike the driver, such functions are called in signal handlers, on stacks of a few KiB, and in children that were
/// forked while another thread held the loader's lock. There a wait gets no stack, or none that the lock is needed for.
pub(crate) fn after_wait(state: &State, start: u64, end: u64) {
    let over_us = OVER_US.load(Ordering::Relaxed);
    if over_us != OFF && end.wrapping_sub(start) >= rate::ticks(over_us) {
        if native::is_on_own_stack() {
            take(state, start, Why::Itself, python::is_known(), native::is_lock_free());
        } else {
            count(state, stacks::NONE);
        }
    }
}

#[cold]
#[inline(never)]
fn consider(state: &State, launch: bool, since: u64, (start, end): (u64, u64), failed: Option<(Class, u32)>) {
    state.notice();
    let over_us = OVER_US.load(Ordering::Relaxed);
    let mut why = None;
    if over_us != OFF {
        // The first thresholds were taken before the clock's rate was known well.
        state.long_ticks.set(long_ticks());
        let paused = || LAUNCHES.load(Ordering::Relaxed) != OFF && start.wrapping_sub(since) >= rate::ticks(PAUSE_US);
        if end.wrapping_sub(start) >= rate::ticks(over_us) || (launch && paused()) {
            why = Some(Why::Itself);
        }
    }
    if launch && state.launches_left.get() < 0 {
        state.launches_left.set(launches_to_next(state));
        why = Some(Why::Launches(LAUNCHES.load(Ordering::Relaxed)));
    }
    if over_us != OFF
        && let Some((class, result)) = failed
    {
        match failures::wanted(class, result, end) {
            Some(Wanted::First) => return timed(state, start, why.unwrap_or(Why::Itself), true, true),
            Some(Wanted::Again) => why = why.or(Some(Why::Itself)),
            None => {}
        }
    }
    if let Some(why) = why {
        capture(state, start, why);
    }
}

/// Takes the calling thread's stack for its event that began at `start` and was just written.
///
/// For hooks that decide themselves; the others call [`after`].
pub(crate) fn capture(state: &State, start: u64, why: Why) {
    take(state, start, why, true, true);
}

#[cold]
#[inline(never)]
fn take(state: &State, start: u64, why: Why, python: bool, native: bool) {
    if spared::is_left_out(state) {
        return;
    }
    timed(state, start, why, python, native);
}

/// Takes a stack, and counts what it took.
fn timed(state: &State, start: u64, why: Why, python: bool, native: bool) {
    let header = state.header();
    let begun = state.now();
    walk(state, start, why, python, native);
    header.stack_ticks.fetch_add(state.now().wrapping_sub(begun), Ordering::Relaxed);
}

fn walk(state: &State, start: u64, why: Why, python: bool, native: bool) {
    let mut frames = Frames::<DEPTH_OF_CALLS>::unused();
    frames.begin(Language::Python);
    let looked = if python { python::walk(&mut frames) } else { python::Looked::None };
    if looked == python::Looked::Found {
        return finish(state, start, why, &mut frames, stacks::PYTHON);
    }
    if looked == python::Looked::Unread {
        count(state, stacks::UNREAD);
    }
    frames.begin(Language::Native);
    if native {
        native::walk(|pc, _| frames.native(pc));
    }
    let what = if frames.key.count > 0 { stacks::NATIVE } else { stacks::NONE };
    finish(state, start, why, &mut frames, what);
}

fn finish(state: &State, start: u64, why: Why, frames: &mut Frames<DEPTH_OF_CALLS>, what: usize) {
    count(state, what);
    if frames.key.count == 0 {
        return;
    }
    let key = frames.key.hash;
    // Unknown stacks are described first. Where the ring has no room, the collector learns of a stack that it does not
    // know, which counts as none.
    let since = known::since(state);
    if !STACKS.has(key, since) && frames.describe(state, key, since) {
        STACKS.insert(key, since);
    }
    let launches = match why {
        Why::Itself => 0,
        Why::Launches(n) => n,
    };
    let event =
        Event { hook: event::KIND_STACK, start, end: start, payload: [key, 0, launches, 0], ..Event::default() };
    state.write_apart(event);
}

fn count(state: &State, what: usize) {
    if let Some(counter) = state.header().stacks.get(what) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Launches to pass before the next one that gets a stack: geometrically distributed.
fn launches_to_next(state: &State) -> i64 {
    match LAUNCHES.load(Ordering::Relaxed) {
        OFF => i64::MAX,
        mean => sampling::geometric(state, mean) - 1,
    }
}
