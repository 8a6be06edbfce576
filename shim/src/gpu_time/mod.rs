//! What the GPU did, when: asked of CUPTI, whose records go through the ring of a thread of ours.
//!
//! That thread alone enables and reads, and has a second one flush; cuInit makes it, with every signal blocked, and a forked child has none.
//! Hooks of the program do nothing for it: which call caused which record is found in the collector, by CUPTI's numbers
//! of calls, which count those that give the GPU work.
//!
//! CUPTI has room for one. Whoever else uses it in this process ([`aside`]) goes first: before their first call goes
//! through, ours are taken back, and nothing of ours happens until they are done.

mod activity;
pub(crate) mod aside;
mod asking;
mod batch;
mod buffers;
mod busy;
mod clock;
mod detach;
mod engine;
pub(crate) mod events;
mod flusher;
mod library;
mod names;
mod path;
mod records;
mod search;
mod settling;
mod teller;
mod windows;

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use gputrace_abi::layout::note;

pub(crate) use self::detach::{graph_comes, peer_comes};
use self::library::Cupti;
use self::path::Path;
use crate::helper::spawn;
use crate::{session, sys};

/// How GPU times are recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mode {
    /// Not.
    Off,
    /// By CUPTI, for the whole run.
    Full,
    /// By CUPTI, in windows.
    Windows,
}

/// CUPTI is given up where it would break the budget: launches are timed instead. The constructor's.
static IS_AUTO: AtomicBool = AtomicBool::new(false);
/// Launches must all be recorded. The constructor's.
static NEEDS_LAUNCHES: AtomicBool = AtomicBool::new(false);
/// A [`Mode`]. The constructor's.
static MODE: AtomicU32 = AtomicU32::new(Mode::Off as u32);
/// The process whose thread runs, or is about to; 0: none was made.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Our thread, as the kernel numbers it.
static THREAD: AtomicU32 = AtomicU32::new(0);
static CUPTI: AtomicPtr<Cupti> = AtomicPtr::new(ptr::null_mut());
/// Where CUPTI's code lies.
static CUPTI_RANGE: Range = Range::new();
/// The same of a copy that somebody else uses.
static OTHER_RANGE: Range = Range::new();
/// Held while records are switched on or off, or flushed.
static LOCK: AtomicBool = AtomicBool::new(false);
/// Records are on.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// What our thread waits on: moves when it has something to do.
static BELL: AtomicU32 = AtomicU32::new(0);
/// 1: our thread has begun, or cannot.
static READY: AtomicU32 = AtomicU32::new(0);
/// The process ends: 1 our thread is to stop, 2 it has.
static END: AtomicU32 = AtomicU32::new(0);

/// Where code lies.
struct Range {
    from: AtomicUsize,
    bytes: AtomicUsize,
}

impl Range {
    const fn new() -> Range {
        Range { from: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    fn learn(&self, (from, to): (usize, usize)) {
        self.from.store(from, Ordering::Relaxed);
        self.bytes.store(to.wrapping_sub(from), Ordering::Relaxed);
    }

    fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.from.load(Ordering::Relaxed)) < self.bytes.load(Ordering::Relaxed)
    }
}

/// A value that the constructor, or our thread at its start, writes once, before anybody reads it.
struct Once<T>(UnsafeCell<T>);

// SAFETY: written before it is shared, as said.
unsafe impl<T> Sync for Once<T> {}

/// The library that the user named.
static WANTED: Once<Path> = Once(UnsafeCell::new(Path::new()));
static BOUND: Once<Option<Cupti>> = Once(UnsafeCell::new(None));

/// How GPU times are recorded in this process.
fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        mode if mode == Mode::Full as u32 => Mode::Full,
        mode if mode == Mode::Windows as u32 => Mode::Windows,
        _ => Mode::Off,
    }
}

/// What recording may cost, in millionths of the wall time; 0: no times of the GPU keep to it.
pub(crate) fn budget_ppm() -> u32 {
    if mode() == Mode::Windows || events::are_asked() { windows::BUDGET_PPM.load(Ordering::Relaxed) } else { 0 }
}

/// Whether CUPTI's records are on.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Whether launches may be left out. Not where each of the GPU's times is to find its own, all the time.
pub(crate) fn spares_launches() -> bool {
    !NEEDS_LAUNCHES.load(Ordering::Relaxed)
}

/// CUPTI can be used from now on, or cannot: then launches are timed.
fn cupti_is_usable(usable: bool) {
    if !usable {
        events::make_thread();
    }
    events::set_active(!usable);
}

/// Whether CUPTI is to be used.
fn is_asked() -> bool {
    mode() != Mode::Off
}

/// Reads what the launcher asked for. For the constructor.
pub(crate) fn configure() {
    let how = sys::variable(b"GPUTRACE_GPU_TIME");
    let mode = match how {
        Some(b"full") => Mode::Full,
        Some(b"windows" | b"auto") => Mode::Windows,
        _ => Mode::Off,
    };
    MODE.store(mode as u32, Ordering::Relaxed);
    NEEDS_LAUNCHES.store(mode == Mode::Full, Ordering::Relaxed);
    windows::configure();
    let auto = how == Some(b"auto");
    IS_AUTO.store(auto, Ordering::Relaxed);
    events::configure(how == Some(b"events"), mode != Mode::Off);
    if let Some(file) = sys::variable(b"GPUTRACE_CUPTI") {
        // SAFETY: one thread, which nobody knows of yet.
        unsafe { (*WANTED.0.get()).push(file) };
    }
    aside::configure();
    activity::configure();
}

/// cuInit has succeeded: makes the threads, once per process.
#[cold]
pub(crate) fn start() {
    if session::present().is_none() {
        return;
    }
    events::start();
    let own = sys::getpid();
    if !is_asked() || OWNER.swap(own, Ordering::Relaxed) == own {
        return;
    }
    spawn(run);
    // What the program does next shall be recorded. Not waited for longer: this may be a library's constructor, and the loader
    // lets nobody else in meanwhile.
    wait_for(&READY, 1, FIRST_WAIT_NS);
}

/// cuInit waits so long for our thread.
const FIRST_WAIT_NS: u64 = 1_000_000_000;

/// Waits until a word has this value, at most so long; whether it has.
fn wait_for(word: &AtomicU32, value: u32, ns: u64) -> bool {
    let until = sys::clock_ns(sys::MONOTONIC) + ns;
    loop {
        let (found, now) = (word.load(Ordering::Acquire), sys::clock_ns(sys::MONOTONIC));
        if found == value || now >= until {
            return found == value;
        }
        sys::wait(word, found, until - now);
    }
}

/// Whoever waits for our thread goes on.
fn ready() {
    READY.store(1, Ordering::Release);
    sys::wake(&READY);
}

unsafe extern "C" fn run(_: *mut c_void) -> *mut c_void {
    THREAD.store(sys::gettid(), Ordering::Relaxed);
    sys::name_thread(c"gputrace-gpu");
    engine::run();
    ready();
    END.store(2, Ordering::Release);
    sys::wake(&END);
    ptr::null_mut()
}

/// Whether the calling thread is one of ours that call CUPTI.
fn is_own_thread() -> bool {
    is_reader() || flusher::is_this()
}

/// Whether it is the one that reads what CUPTI gives back.
fn is_reader() -> bool {
    THREAD.load(Ordering::Relaxed) == sys::gettid()
}

/// The library's functions, once they are known.
fn cupti() -> Option<&'static Cupti> {
    // SAFETY: null, or the place that was written before its address was stored.
    unsafe { CUPTI.load(Ordering::Acquire).as_ref() }
}

/// Does something that nobody else may do at the same time. Waits for who does, at most so long; none: in vain.
fn locked<R>(patience_ns: Option<u64>, work: impl FnOnce() -> R) -> Option<R> {
    const LOOK_NS: u64 = 50_000;
    let mut looks = patience_ns.map_or(u64::MAX, |ns| ns / LOOK_NS);
    while LOCK.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        looks = looks.checked_sub(1)?;
        sys::nap(LOOK_NS);
    }
    let done = work();
    LOCK.store(false, Ordering::Release);
    Some(done)
}

/// Our thread is to look whether there is something to do.
fn ring() {
    BELL.fetch_add(1, Ordering::Release);
    sys::wake(&BELL);
}

/// Whether a caller is CUPTI itself: what it asks the driver is none of the program's calls.
#[inline]
pub(crate) fn is_cupti(caller: usize) -> bool {
    CUPTI_RANGE.holds(caller) || OTHER_RANGE.holds(caller)
}

/// CUPTI's clock: the one whose pairs with ticks the collector keeps.
unsafe extern "C" fn stamp() -> u64 {
    sys::clock_ns(sys::MONOTONIC)
}

/// How long the end of the program waits for what the GPU did last.
const LAST_WAIT_NS: u64 = 1_000_000_000;

/// The program ends: has our thread tell the rest.
unsafe extern "C" fn at_exit(_: c_int, _: *mut c_void) {
    if OWNER.load(Ordering::Relaxed) != sys::getpid() || is_own_thread() {
        return;
    }
    if END.compare_exchange(0, 1, Ordering::Release, Ordering::Relaxed).is_err() {
        return;
    }
    ring();
    let ns = if session::blocks() { LAST_WAIT_NS * 10 } else { LAST_WAIT_NS };
    if !wait_for(&END, 2, ns) {
        session::say(note::GPU_TIME_CUT);
    }
}
