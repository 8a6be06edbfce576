//! Others who use CUPTI in this process: the program's own profiler, or a tool that is injected.
//!
//! CUPTI has one set of buffers for the process, and whoever registered last gets everything. Being there first harms
//! nobody who comes later; joining in while they record ruins their result. So their calls are looked at before they go
//! through: with the first one our records go off, what is complete is taken back, and nothing is switched on again until
//! they have switched everything off and been silent for a while. Who subscribes and records nothing is no obstacle.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::asking::{CALLBACKS_ARE_OURS, CLOCK_IS_OURS, WAS_USED, switch_off};
use super::{IS_ON, OWNER, cupti, detach, events, is_asked, is_own_thread, library, locked, ring};
use crate::{session, sys};

/// What a call of theirs means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Their buffers are registered: functions are the first two arguments.
    Registers,
    /// The same, by a newer function.
    Begins,
    /// Records of a kind go on: the kind is this argument.
    Enables(usize),
    /// They go off.
    Disables(usize),
    /// Something that has nothing to do with records and excludes them: counters, samples.
    Measures,
    /// That ends.
    EndsMeasuring,
    /// What is complete is wanted.
    Flushes,
    /// Another clock.
    SetsClock,
    /// Everything ends.
    Finalizes,
    /// They want to be called.
    Subscribes,
}

/// They are silent for so long before we begin again.
const SILENCE_NS: u64 = 1_000_000_000;

/// Our thread is waited for so long.
const PATIENCE_NS: u64 = 200_000_000;

/// Kinds of records that they have on, a bit each.
static KINDS: AtomicU64 = AtomicU64::new(0);
static MEASURES: AtomicBool = AtomicBool::new(false);
/// When they called last, ns of CLOCK_MONOTONIC; 0: never, or long ago.
static LAST_NS: AtomicU64 = AtomicU64::new(0);
/// They had the library last: we have not begun again.
static IS_ASIDE: AtomicBool = AtomicBool::new(false);
/// The functions that they registered.
static THEIRS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// An injected tool was there before the program began.
static INJECTED: AtomicBool = AtomicBool::new(false);
/// What our thread has to tell: when, and the function's number in the list + 1; above, whether records were on.
static NEWS_AT: AtomicU64 = AtomicU64::new(0);
static NEWS: AtomicU32 = AtomicU32::new(0);
const WAS_ON: u32 = 1 << 16;
/// Where the function lies, if that is another copy of CUPTI than ours, and ours was used.
static NEWS_FROM: AtomicUsize = AtomicUsize::new(0);

/// Tools that the launcher's caller has CUDA or NVTX inject use CUPTI from the first call on. For the constructor.
pub(super) fn configure() {
    let injected = sys::variable(b"CUDA_INJECTION64_PATH").is_some_and(|path| !path.is_empty());
    INJECTED.store(injected, Ordering::Relaxed);
    if injected {
        NEWS.store(1 + crate::hooks::cupti::INJECTION, Ordering::Relaxed);
    }
}

/// Whether others record, or measure, or were there first.
pub(super) fn is_recording() -> bool {
    INJECTED.load(Ordering::Relaxed) || KINDS.load(Ordering::Acquire) != 0 || MEASURES.load(Ordering::Acquire)
}

/// Whether others use CUPTI, or may be about to.
pub(super) fn is_wanted(now: u64) -> bool {
    is_recording()
        || (IS_ASIDE.load(Ordering::Acquire) && now.saturating_sub(LAST_NS.load(Ordering::Relaxed)) < SILENCE_NS)
}

/// Whether they have just ended, once.
pub(super) fn is_over(now: u64) -> bool {
    IS_ASIDE.load(Ordering::Acquire) && !is_wanted(now) && IS_ASIDE.swap(false, Ordering::AcqRel)
}

/// What they did, since it was told last.
pub(super) struct News {
    pub(super) at: u64,
    /// Their function.
    pub(super) name: &'static [u8],
    /// Records were on.
    pub(super) was_on: bool,
    /// An address in their copy of CUPTI, if ours is another one that was used: the driver serves one for the life of a process,
    /// finalized or not.
    pub(super) refused: Option<usize>,
}

/// What there is to tell since the last call.
pub(super) fn take_news() -> Option<News> {
    let news = NEWS.swap(0, Ordering::AcqRel);
    let at = NEWS_AT.load(Ordering::Relaxed);
    let name = crate::hooks::cupti::name(usize::try_from((news & !WAS_ON).checked_sub(1)?).ok()?);
    let refused = Some(NEWS_FROM.load(Ordering::Relaxed)).filter(|from| *from != 0);
    Some(News { at: if at == 0 { session::now() } else { at }, name, was_on: news & WAS_ON != 0, refused })
}

/// A call of theirs, before it goes through to the function at `original`. `arguments` are its first six.
pub(crate) fn before(number: usize, what: Use, original: usize, arguments: &[usize; 6]) {
    if !(is_asked() || events::may_be()) || is_own_thread() {
        return;
    }
    // Programs bring copies of their own too (Triton's Proton).
    let is_another = cupti().is_some_and(|cupti| !library::is_beside(original, cupti.enable as usize));
    let other = is_another.then_some(original);
    match other {
        Some(function) => library::learn_other(function),
        None => detach::share(),
    }
    // What our own stream is given is none of theirs: it ends before they begin, and does not begin before they are known to record.
    let begins = matches!(what, Use::Registers | Use::Begins | Use::Enables(_) | Use::Measures);
    let held = begins && events::sets::hold();
    let now = sys::clock_ns(sys::MONOTONIC);
    let kind = |place: usize| 1u64 << (arguments.get(place).copied().unwrap_or(0) & 63);
    match what {
        Use::Registers | Use::Begins => {
            for (place, argument) in THEIRS.iter().zip(arguments) {
                place.store(if what == Use::Registers { *argument } else { 0 }, Ordering::Relaxed);
            }
            stand_aside(number, now, other);
            CALLBACKS_ARE_OURS.store(false, Ordering::Relaxed);
        }
        Use::Enables(place) => {
            stand_aside(number, now, other);
            give_back();
            KINDS.fetch_or(kind(place), Ordering::AcqRel);
        }
        Use::Measures => {
            MEASURES.store(true, Ordering::Release);
            stand_aside(number, now, other);
        }
        Use::Disables(place) => {
            KINDS.fetch_and(!kind(place), Ordering::AcqRel);
        }
        Use::EndsMeasuring => MEASURES.store(false, Ordering::Release),
        Use::SetsClock => {
            CLOCK_IS_OURS.store(false, Ordering::Relaxed);
            stand_aside(number, now, other);
        }
        Use::Finalizes => {
            stand_aside(number, now, other);
            KINDS.store(0, Ordering::Release);
            MEASURES.store(false, Ordering::Release);
            for ours in [&CALLBACKS_ARE_OURS, &CLOCK_IS_OURS, &detach::IS_THERE] {
                ours.store(false, Ordering::Relaxed);
            }
        }
        Use::Subscribes => stand_aside(number, now, other),
        Use::Flushes => {}
    }
    if held {
        events::sets::release();
    }
    LAST_NS.store(now, Ordering::Relaxed);
}

/// Takes our records back, in the calling thread: theirs begin when it returns. `other`: ours and theirs are two copies of
/// the library, theirs at this address.
fn stand_aside(number: usize, now: u64, other: Option<usize>) {
    LAST_NS.store(now, Ordering::Relaxed);
    if IS_ASIDE.swap(true, Ordering::AcqRel) || OWNER.load(Ordering::Relaxed) != sys::getpid() {
        return;
    }
    let at = session::now();
    let was_used = WAS_USED.load(Ordering::Relaxed);
    // Not for ever: our thread may hold the lock in a call of CUPTI that waits for this one, which is in a callback of CUPTI's.
    // Then our thread sees that it has to stand aside when that call returns.
    let was_on = locked(Some(PATIENCE_NS), || {
        let was_on = IS_ON.load(Ordering::Relaxed);
        if let Some(cupti) = cupti().filter(|_| was_on) {
            switch_off(cupti);
            // SAFETY: a flag: only what is complete.
            unsafe { (cupti.flush)(0) };
        }
        was_on
    });
    let was_on = was_on.unwrap_or(false);
    NEWS_AT.store(at, Ordering::Relaxed);
    NEWS_FROM.store(other.filter(|_| was_used).unwrap_or(0), Ordering::Relaxed);
    NEWS.store((number as u32 + 1) | if was_on { WAS_ON } else { 0 }, Ordering::Release);
    ring();
}

/// They switch records on and registered their buffers before we did: theirs are put back.
fn give_back() {
    let [request, complete] = [0, 1].map(|n| THEIRS.get(n).map_or(0, |place| place.load(Ordering::Relaxed)));
    if request == 0 || complete == 0 || !CALLBACKS_ARE_OURS.swap(false, Ordering::AcqRel) {
        return;
    }
    if let Some(cupti) = cupti() {
        // SAFETY: the functions that they gave to cuptiActivityRegisterCallbacks, whose type these are.
        unsafe {
            let request: library::Request = core::mem::transmute(request);
            let complete: library::Complete = core::mem::transmute(complete);
            (cupti.register)(request, complete);
        }
    }
}
