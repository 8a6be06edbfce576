//! What the shim asks of the system, without a trace in the program: errno stays as it was.
//!
//! Used at start, in a forked child's first event and when a thread registers; never on a hot path.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, Ordering};

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "macos")]
pub(crate) use macos::*;

/// A failed call's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// What stands for the environment in a process that was attached to; null: the process's own does.
static GIVEN: AtomicPtr<*const c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Has variables be looked for here from now on: the program may be changing its own environment.
///
/// # Safety
/// An array of C strings, ended by a null pointer, that stays as it is.
pub(crate) unsafe fn give(environment: *const *const c_char) {
    GIVEN.store(environment.cast_mut(), Ordering::Relaxed);
}

/// A variable of the environment that the process was started with. For the constructor only.
pub(crate) fn variable(name: &[u8]) -> Option<&'static [u8]> {
    entries().find_map(|entry| entry.to_bytes().strip_prefix(name)?.strip_prefix(b"="))
}

/// The entries of that environment. For the constructor only.
pub(crate) fn entries() -> impl Iterator<Item = &'static CStr> {
    let given: *const *const c_char = GIVEN.load(Ordering::Relaxed);
    let mut at = if given.is_null() { environment() } else { given };
    core::iter::from_fn(move || {
        // SAFETY: the array is ended by a null pointer, at which it stays.
        let entry = if at.is_null() { core::ptr::null() } else { unsafe { *at } };
        if entry.is_null() {
            return None;
        }
        // SAFETY: the entry was not the last.
        at = unsafe { at.add(1) };
        // SAFETY: entries are C strings that live as long as nobody unsets them; see above.
        Some(unsafe { CStr::from_ptr(entry) })
    })
}
