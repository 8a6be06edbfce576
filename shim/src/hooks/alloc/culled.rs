//! malloc, calloc and free where short lives are summed up ([`crate::culling`]): most calls put a word into a table or take it out.
//! All others go the way of those that are recorded, each of them.

use core::ffi::c_void;

use gputrace_abi::pending::{CALLOC, MALLOC};

use super::calls;
use super::platform::next;
use crate::culling::Thread;

/// Where an entry leads.
macro_rules! each {
    (malloc) => {
        culled::malloc
    };
    (calloc) => {
        culled::calloc
    };
    (free) => {
        culled::free
    };
    ($other:ident) => {
        calls::$other::<true>
    };
}
pub(super) use each;

/// `void *malloc(size_t size)`
pub(super) unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    let Some(thread) = Thread::own().filter(|thread| thread.may_put(bytes)) else {
        // SAFETY: the program's own argument.
        return unsafe { calls::malloc::<true>(bytes) };
    };
    // SAFETY: as above.
    put(thread, unsafe { next::malloc()(bytes) }, MALLOC, bytes)
}

/// `void *calloc(size_t count, size_t size)`
pub(super) unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let bytes = count.saturating_mul(size);
    let Some(thread) = Thread::own().filter(|thread| thread.may_put(bytes)) else {
        // SAFETY: the program's own arguments.
        return unsafe { calls::calloc::<true>(count, size) };
    };
    // SAFETY: as above.
    put(thread, unsafe { next::calloc()(count, size) }, CALLOC, bytes)
}

/// `void free(void *block)`
pub(super) unsafe extern "C" fn free(block: *mut c_void) {
    // Before the call: another thread may get the address as soon as it is free.
    if Thread::own().is_some_and(|thread| thread.counts_free(block as usize)) {
        // SAFETY: the program's own argument.
        return unsafe { next::free()(block) };
    }
    // SAFETY: as above.
    unsafe { calls::free::<true>(block) };
}

#[inline(always)]
fn put(thread: Thread, block: *mut c_void, function: u64, bytes: usize) -> *mut c_void {
    if !block.is_null()
        && let Some(thread) = thread.again()
    {
        thread.put(block as usize, function, bytes);
    }
    block
}
