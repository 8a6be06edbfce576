//! What a process says of its own end: the number that it gave to exit or _exit.
//!
//! Only the parent learns how a process ended, and before Linux 6.15 nobody else can ask once the parent has. So the
//! shim leaves the number in the segment. A process that a signal ends, or that makes the system call itself, says
//! nothing.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use gputrace_abi::layout::SAID_EXIT;

#[cfg(target_os = "linux")]
pub(crate) use linux::{listen, on_exit, prepare};

use crate::session;

fn say(status: c_int) {
    // A child of vfork says it in its parent's segment, and which of them this is would take a system call, for which a
    // sandbox may kill the process. So it says when, too: whoever records later has not ended.
    if let Some(view) = session::present() {
        view.header().said_at.store(session::now(), Ordering::Relaxed);
        view.header().said_exit.store(SAID_EXIT | (status & 0xff) as u32, Ordering::Relaxed);
    }
}
