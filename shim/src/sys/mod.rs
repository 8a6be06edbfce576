//! What the shim asks of the system, without a trace in the program: errno stays as it was.
//!
//! Used at start, in a forked child's first event and when a thread registers; never on a hot path.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

use core::ffi::CStr;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "macos")]
pub(crate) use macos::*;

/// A failed call's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// A variable of the environment that the process was started with. For the constructor only.
pub(crate) fn variable(name: &[u8]) -> Option<&'static [u8]> {
    let mut at = environment();
    while !at.is_null() {
        // SAFETY: the array is ended by a null pointer, at which the loop stops.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        // SAFETY: entries are C strings that live as long as nobody unsets them; see above.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(value) = entry.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
            return Some(value);
        }
        // SAFETY: the entry was not the last.
        at = unsafe { at.add(1) };
    }
    None
}
