//! dobby-hook: 14 bytes on x86-64, where it moves any instruction; 16 on aarch64, where it moves those only that do not
//! refer to their own address (what it would do wrong is kept from it by [`gputrace_patch`]).

use std::ffi::c_void;

use dobby_hook_core::Error;

use super::{Engine, near};

/// The engine.
pub(crate) struct Dobby;

impl Dobby {
    pub(crate) fn new() -> Dobby {
        // Asked for where moved instructions refer to data that is too far from just any memory.
        dobby_hook_core::register_alloc_near_code_callback(Some(near::map));
        Dobby
    }
}

impl Engine for Dobby {
    unsafe fn replace(&mut self, function: usize, replacement: usize) -> Option<usize> {
        let function = function as *mut c_void;
        // SAFETY: the caller's promise.
        let hook = || unsafe { dobby_hook_core::hook(function, replacement as *mut c_void) };
        let original = match hook() {
            Err(Error::AlreadyHooked) => {
                // SAFETY: as above.
                unsafe { forget(function) }?;
                hook()
            }
            made => made,
        };
        let original = original.ok()?;
        // It is written; from now on it is only run.
        // SAFETY: the engine mapped this page for the function alone.
        unsafe { libc::mprotect(original, 1, libc::PROT_READ | libc::PROT_EXEC) };
        Some(original as usize)
    }
}

/// Bytes that the engine may have replaced: its jump, and the rest of the instruction in which that ends.
const MOST_REPLACED: usize = 32;

/// Lets the engine forget a function that stood here before, in a library that was unloaded. It writes back what it
/// remembers of that one, and so what stands here now is written back after it.
///
/// # Safety
/// Nobody runs the function.
unsafe fn forget(function: *mut c_void) -> Option<()> {
    // SAFETY: code, of which the engine itself reads more.
    let now = unsafe { function.cast::<[u8; MOST_REPLACED]>().read() };
    // SAFETY: the caller's promise.
    unsafe {
        dobby_hook_core::destroy(function).ok()?;
        dobby_hook_core::code_patch(function, now.as_ptr(), now.len() as u32).ok()
    }
}
