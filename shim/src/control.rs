//! Recording that is switched: what the traced program itself may call, `gputrace_pause`, `gputrace_resume`,
//! `gputrace_recording`; cuProfilerStart and cuProfilerStop, where these are to switch it (`--capture-range`); and ranges ([`ranges`]).
//!
//! Recording on and off inside one process is the honest way to price the tracer: the same program, the same memory,
//! the same clocks a moment apart. From Python: `ctypes.CDLL(None).gputrace_pause()`.

use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_abi::layout::{Header, SWITCHES_KEPT};

use crate::{ranges, session, sys, thread};

/// A process begins without recording.
static BEGINS_PAUSED: AtomicBool = AtomicBool::new(false);
/// The driver's profiler calls switch recording.
static BY_PROFILER: AtomicBool = AtomicBool::new(false);

/// Reads what the launcher asked for. For the constructor.
pub(crate) fn configure() {
    let wanted = sys::variable(b"GPUTRACE_PAUSED");
    BY_PROFILER.store(sys::variable(b"GPUTRACE_CAPTURE") == Some(b"profiler"), Ordering::Relaxed);
    BEGINS_PAUSED.store(wanted == Some(b"on"), Ordering::Relaxed);
    ranges::configure();
}

/// Sets how a new segment begins.
pub(crate) fn begin(header: &Header) {
    let is_paused = BEGINS_PAUSED.load(Ordering::Relaxed) && !ranges::is_recording();
    header.paused.store(u32::from(is_paused), Ordering::Relaxed);
}

/// The program called cuProfilerStart or cuProfilerStop.
pub(crate) fn profiler(starts: bool) {
    if BY_PROFILER.load(Ordering::Relaxed) {
        set(u32::from(!starts));
    }
}

/// A range began that is to be recorded, or ended.
pub(crate) fn switch(on: bool) {
    set(u32::from(!on));
}

/// Stops recording in this process. Returns 1 when it is traced, 0 otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_pause() -> i32 {
    set(1)
}

/// Goes on recording in this process. Returns 1 when it is traced, 0 otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_resume() -> i32 {
    set(0)
}

/// 1: this process is traced and not paused; 0: it is not.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_recording() -> i32 {
    session::present().is_some_and(|view| view.header().paused.load(Ordering::Relaxed) == 0) as i32
}

fn set(paused: u32) -> i32 {
    let Some(view) = session::present() else { return 0 };
    let header = view.header();
    // All that is recorded lies between the two times that are told.
    let before = session::now();
    header.paused.store(paused, Ordering::SeqCst);
    thread::pause(paused != 0);
    let at = if paused == 0 { session::now() } else { before };
    let number = header.switches.load(Ordering::Relaxed);
    if let Some(word) = header.switched.get(number as usize % SWITCHES_KEPT) {
        word.store(at << 1 | u64::from(paused == 0), Ordering::Relaxed);
    }
    header.switches.store(number.wrapping_add(1), Ordering::Release);
    1
}
