//! An environment with our variables put back: what a child is given by a program that makes its environment itself.
//!
//! Pure, and of no system: a test of the repository takes this file as it is. No allocation: the new array stands where
//! the caller has room, and its strings are the given ones and ours.

use core::ffi::{CStr, c_char};

/// Entries for which a caller has room: more are passed on as they are, and that child is lost.
pub(crate) const MOST: usize = 1024;

/// What tells a loader of us.
const LOADERS: &[u8] = b"DYLD_INSERT_LIBRARIES";
/// What tells us to do nothing.
const OFF: &[u8] = b"GPUTRACE=off";

/// `given` with those of `ours` that it lacks, in `room`; `given` itself where there is nothing to put back: it names
/// libraries to insert already, it wants no tracing, or it is too long.
///
/// # Safety
/// `given` is null, or an array of C strings that a null pointer ends; `ours` are C strings.
pub(crate) unsafe fn kept(
    given: *const *mut c_char,
    ours: impl Iterator<Item = *mut c_char>,
    room: &mut [*mut c_char; MOST],
) -> *const *mut c_char {
    if given.is_null() {
        return given;
    }
    let mut count = 0;
    loop {
        // SAFETY: the array is ended by a null pointer, at which the loop stops.
        let entry = unsafe { *given.add(count) };
        if entry.is_null() {
            break;
        }
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        let Some(place) = room.get_mut(count) else { return given };
        if name(text) == LOADERS || text == OFF {
            return given;
        }
        *place = entry;
        count += 1;
    }
    let of_given = count;
    for entry in ours {
        // SAFETY: the caller's promise.
        let wanted = name(unsafe { CStr::from_ptr(entry) }.to_bytes());
        let there = room.get(..of_given).unwrap_or(&[]);
        // SAFETY: these were looked at above.
        if there.iter().any(|other| name(unsafe { CStr::from_ptr(*other) }.to_bytes()) == wanted) {
            continue;
        }
        let Some(place) = room.get_mut(count) else { return given };
        *place = entry;
        count += 1;
    }
    let Some(end) = room.get_mut(count) else { return given };
    *end = core::ptr::null_mut();
    if count == of_given { given } else { room.as_ptr() }
}

/// What stands before the first `=`.
fn name(entry: &[u8]) -> &[u8] {
    entry.split(|byte| *byte == b'=').next().unwrap_or(entry)
}
