//! What the traced program itself may call: `gputrace_pause`, `gputrace_resume`, `gputrace_recording`.
//!
//! Recording on and off inside one process is the honest way to price the tracer: the same program, the same memory,
//! the same clocks a moment apart. From Python: `ctypes.CDLL(None).gputrace_pause()`.

use core::sync::atomic::Ordering;

use crate::{session, thread};

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
    view.header().paused.store(paused, Ordering::SeqCst);
    thread::pause(paused != 0);
    1
}
