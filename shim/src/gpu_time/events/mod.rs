//! Timed launches: two events around a launch that was drawn by chance, around each graph and around what NCCL launches.
//!
//! CUPTI is not needed for it. Each launch of a kernel is drawn with the same chance whatever was drawn before, so that the gaps
//! between two of a stream are distributed geometrically: a step whose launches are a multiple of any fixed gap would always
//! show the same ones. Most launches pay a load and a countdown; one that is drawn pays the driver for two events, which go past
//! our hooks. [`drain`] reads their times later, in a thread of ours; no launch waits for that.
//!
//! Nothing is timed while any stream is being captured, nor in a forked child.

mod clock;
mod drain;
mod driver;
mod gate;
mod pace;
mod pool;
mod price;
pub(super) mod sets;

use core::hint::cold_path;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gputrace_abi::event::{FLAG_TIMED, detail};
use gputrace_abi::sample::{Sample, kind};

use self::pool::Pool;
use crate::helper::spawn;
use crate::hooks::Hook;
use crate::record::thinned;
use crate::thread::State;
use crate::{capture, frame, sampling, sys};

pub(crate) use self::driver::bind;

/// [`State::untimed`] of threads in a forked child, and the longest gap.
const NEVER: u16 = u16::MAX;
const LONGEST: i64 = 0xfffe;

/// Launches are timed. What a hook looks at.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// They are to be, from cuInit on.
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// The thread that reads times is wanted, whether launches are timed now or later.
static MAY_BE: AtomicBool = AtomicBool::new(false);
/// The process in which launches are timed; 0: none was made.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// What our thread waits on.
static BELL: AtomicU32 = AtomicU32::new(0);
/// The process ends: 1 our thread is to stop, 2 it has.
static END: AtomicU32 = AtomicU32::new(0);
static WITHOUT_ROOM: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// `asked`: launches are timed from cuInit on. `may_be`: or later, when [`set_active`] says so. For the constructor.
pub(super) fn configure(asked: bool, may_be: bool) {
    IS_ASKED.store(asked, Ordering::Relaxed);
    MAY_BE.store(asked || may_be, Ordering::Relaxed);
}

/// Whether launches may be timed in this process.
pub(super) fn may_be() -> bool {
    MAY_BE.load(Ordering::Relaxed)
}

/// Whether launches are timed from cuInit on.
pub(super) fn are_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

/// cuInit has succeeded.
#[cold]
pub(super) fn start() {
    if are_asked() {
        make_thread();
        set_active(true);
    }
}

/// Makes the thread, once per process.
#[cold]
pub(super) fn make_thread() {
    let own = sys::getpid();
    if OWNER.swap(own, Ordering::Relaxed) == own {
        return;
    }
    END.store(0, Ordering::Relaxed);
    pace::begin();
    spawn(drain::run);
}

/// Switches the timing of launches on or off. Those that are under way keep their events.
pub(crate) fn set_active(on: bool) {
    IS_ON.store(on && OWNER.load(Ordering::Relaxed) == sys::getpid(), Ordering::Release);
    ring();
}

/// Sets a thread's countdown for its first time.
pub(crate) fn reset(state: &State) {
    let owner = OWNER.load(Ordering::Relaxed);
    state.untimed.set(if owner != 0 && owner != sys::getpid() { NEVER } else { 0 });
}

/// A launch that is being timed: its pair's number + 1; 0: it is not.
#[derive(Clone, Copy)]
pub(crate) struct Timed(u32);

impl Timed {
    /// It is not.
    pub(crate) const NO: Timed = Timed(0);
}

/// A launch in this stream is about to be made: draws it, or not.
#[inline(always)]
pub(crate) fn begin(state: &State, hook: Hook, stream: impl FnOnce() -> u64) -> Timed {
    if !IS_ON.load(Ordering::Relaxed) {
        return Timed::NO;
    }
    let left = state.untimed.get();
    let alone = state.library_guard.get() == 0 && hook.detail == detail::KERNEL;
    if alone && left > 1 && left != NEVER {
        state.untimed.set(left - 1);
        return Timed::NO;
    }
    cold_path();
    draw(state, hook, stream())
}

/// A launch that was drawn has been made, or has failed: the flag of its event. `start` and `end` are its event's.
#[inline(always)]
pub(crate) fn end(
    state: &State,
    hook: Hook,
    timed: Timed,
    stream: impl FnOnce() -> u64,
    result: u32,
    (start, end): (u64, u64),
) -> u16 {
    if timed.0 == 0 {
        return 0;
    }
    cold_path();
    finish(state, timed, named(hook, stream()), result, [start, end])
}

#[cold]
#[inline(never)]
fn draw(state: &State, hook: Hook, stream: u64) -> Timed {
    let left = state.untimed.get();
    if left == NEVER {
        return Timed::NO;
    }
    let here = 0u8;
    let kind = match hook.detail {
        detail::GRAPH => kind::GRAPH,
        _ if frame::is_running(state.library_guard.get(), &raw const here as usize) => kind::COLLECTIVE,
        _ => kind::KERNEL,
    };
    // Of launches that are drawn to be recorded at all, some are drawn to be timed: what was left out is not asked.
    let rarer = if kind == kind::KERNEL { thinned::rarer(state) } else { 0 };
    let gap = pace::of_recorded(pace::gap(kind), rarer);
    let drawn = if kind == kind::KERNEL {
        let next = || sampling::geometric(state, gap.into()).min(LONGEST) as u16;
        let left = if left == 0 { next() } else { left };
        state.untimed.set(if left > 1 { left - 1 } else { next() });
        left <= 1
    } else {
        sampling::geometric(state, gap.into()) == 1
    };
    if !drawn || capture::any() {
        return Timed::NO;
    }
    let stream = named(hook, stream);
    let Some((place, pool)) = context_of(stream).and_then(Pool::of) else { return Timed::NO };
    if !pool.enter() {
        return Timed::NO;
    }
    let Some((nth, pair)) = pool.take() else {
        WITHOUT_ROOM.fetch_add(1, Ordering::Relaxed);
        pool.leave();
        return Timed::NO;
    };
    let about = Sample { kind, thread: state.number(), weight: gap << rarer, ..Sample::default() };
    let [about, ..] = about.to_words();
    pair.about.store(about, Ordering::Relaxed);
    pair.tick(0, state.now());
    if driver::record(pair.event(0), stream) != driver::SUCCESS {
        LOST.fetch_add(1, Ordering::Relaxed);
        pair.give_back();
        pool.leave();
        return Timed::NO;
    }
    Timed((place * pool::PAIRS + nth + 1) as u32)
}

#[cold]
#[inline(never)]
fn finish(state: &State, timed: Timed, stream: u64, result: u32, [start, end]: [u64; 2]) -> u16 {
    let Some((pool, pair)) = Pool::at(timed.0.wrapping_sub(1) as usize) else { return 0 };
    // The launch gave the GPU nothing, its context is about to end, or a capture has taken its stream meanwhile.
    let good = result == 0 && pool.is_ready() && !capture::any();
    let recorded = good && driver::record(pair.event(1), stream) == driver::SUCCESS;
    if recorded {
        [start, end, state.now()].into_iter().zip(1..).for_each(|(tick, nth)| pair.tick(nth, tick));
        pair.recorded();
        pace::timed(Sample::from_words(&[pair.about.load(Ordering::Relaxed), 0, 0, 0, 0]).kind);
    } else {
        if result == 0 {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        pair.give_back();
    }
    pool.leave();
    if recorded { FLAG_TIMED } else { 0 }
}

/// The stream that a handle means, by a name that every function of the driver understands.
fn named(hook: Hook, stream: u64) -> u64 {
    const PER_THREAD: u64 = 2;
    if hook.per_thread && stream == 0 { PER_THREAD } else { stream }
}

/// A stream's context: the calling thread's for the default streams. None: the driver cannot say.
fn context_of(stream: u64) -> Option<u64> {
    let mut context = 0;
    let result = if stream <= 2 { driver::current(&mut context) } else { driver::context_of(stream, &mut context) };
    Some(context).filter(|context| result == driver::SUCCESS && *context != 0)
}

/// A context is about to end: its events are forgotten.
pub(crate) fn context_ends(context: u64) {
    close(|pool| pool.context.load(Ordering::Relaxed) == context);
}

/// A device's primary context may be.
pub(crate) fn device_ends(device: i32) {
    close(|pool| pool.device.load(Ordering::Relaxed) == device as u32);
}

/// A part of a device may be: which contexts are made of it is not known.
pub(crate) fn any_context_ends() {
    close(|_| true);
}

fn close(which: impl Fn(&Pool) -> bool) {
    let owner = OWNER.load(Ordering::Relaxed);
    if owner != 0 && owner == sys::getpid() {
        LOST.fetch_add(pool::close(which), Ordering::Relaxed);
    }
}

/// Our thread is to look whether there is something to do.
fn ring() {
    BELL.fetch_add(1, Ordering::Release);
    sys::wake(&BELL);
}
