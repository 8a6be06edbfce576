//! malloc, calloc and free where short lives are summed up ([`crate::culling`]): most calls put a word into a table or take it out.
//! All others go the way of those that are recorded, each of them. On x86-64 those have a quicker way before this ([`super::short`]).

use core::ffi::c_void;

use gputrace_abi::pending::{CALLOC, MALLOC};

use super::calls;
use super::platform::next;
use crate::culling::Thread;

/// Where an entry leads.
macro_rules! each {
    (malloc) => {
        culled::first::malloc
    };
    (calloc) => {
        culled::first::calloc
    };
    (free) => {
        culled::first::free
    };
    ($other:ident) => {
        calls::$other::<true>
    };
}
pub(super) use each;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(super) use super::culled as first;
/// Which of the two ways is tried first.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) use super::short as first;

/// `void *malloc(size_t size)`
pub(super) unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: the program's own argument, passed on one way or the other.
    allocation(MALLOC, bytes, || unsafe { next::malloc()(bytes) }, || unsafe { calls::malloc::<true>(bytes) })
}

/// `void *calloc(size_t count, size_t size)`
pub(super) unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let bytes = count.saturating_mul(size);
    // SAFETY: the program's own arguments, passed on one way or the other.
    allocation(
        CALLOC,
        bytes,
        || unsafe { next::calloc()(count, size) },
        || unsafe { calls::calloc::<true>(count, size) },
    )
}

/// `void free(void *block)`
pub(super) unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the program's own argument, passed on one way or the other.
    freed(block as usize, || unsafe { next::free()(block) }, || unsafe { calls::free::<true>(block) });
}

/// An allocation by this function of the table's: its word is put there, or it goes the way of those that are recorded.
#[inline(always)]
pub(super) fn allocation(
    function: u64,
    bytes: usize,
    original: impl FnOnce() -> *mut c_void,
    recorded: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    match Thread::own().and_then(|thread| Some((thread, thread.knows(function, bytes)?))) {
        Some((thread, known)) => put(thread, original(), known),
        None => recorded(),
    }
}

/// A free: its block's word is taken out and counted, or it goes the way of those that are recorded.
#[inline(always)]
pub(super) fn freed(block: usize, original: impl FnOnce(), recorded: impl FnOnce()) {
    // Before the call: another thread may get the address as soon as it is free.
    match block == 0 || Thread::own().is_some_and(|thread| thread.counts_free(block)) {
        true => original(),
        false => recorded(),
    }
}

#[inline(always)]
fn put(thread: Thread, block: *mut c_void, known: u64) -> *mut c_void {
    if !block.is_null()
        && let Some(thread) = thread.again()
    {
        thread.put(block as usize, known);
    }
    block
}

/// The rest of an allocation whose block the quick way could not put into the table.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) unsafe extern "C" fn put_late(block: *mut c_void, known: u64) -> *mut c_void {
    Thread::own().map_or(block, |thread| put(thread, block, known))
}
