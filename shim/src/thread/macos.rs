//! Fork and the ends of threads on macOS: a handler of fork, and the destructor of the state's own key.

use core::ffi::c_void;

use super::State;
use crate::tls;

/// Has the states wiped at a fork, and makes the key.
pub(super) fn prepare(_: *mut u8, _: usize) -> Result<(), &'static [u8]> {
    // SAFETY: the library with the handler is never unloaded.
    if unsafe { libc::pthread_atfork(None, None, Some(super::wipe)) } != 0 || !tls::prepare(at_thread_exit) {
        return Err(b"libSystem has no room for its handlers");
    }
    Ok(())
}

/// Nothing is set for a new thread that only this system has: no launch is timed here.
pub(super) fn reset(state: &State) {
    state.untimed.set(0);
}

unsafe extern "C" fn at_thread_exit(state: *mut c_void) {
    // SAFETY: the key's values are states, which are never unmapped.
    let Some(state) = (unsafe { state.cast::<State>().as_ref() }) else { return };
    if state.row().is_some() && super::goes_on(state) {
        // libSystem has taken it out for this round.
        tls::set(Some(state));
    }
}

/// The key's value is the state itself, so that its destructor is called.
pub(super) fn arm_exit() {}
