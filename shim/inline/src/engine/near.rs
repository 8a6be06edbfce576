//! Memory near a function, for code that refers to what lies around it.

use std::ffi::c_void;

/// Steps in which a free place is looked for, away from the function in both directions.
const STEP: usize = 1 << 20;

/// Maps memory that is executable and writable within `range` of `position`; 0 where none is free.
pub(crate) fn map(bytes: u32, position: usize, range: usize) -> usize {
    let page = position & !0xfff;
    let most = range.saturating_sub(2 * STEP) / STEP;
    (1..=most)
        .flat_map(|n| [page.wrapping_sub(n * STEP), page.wrapping_add(n * STEP)])
        .find_map(|at| exactly(at, bytes))
        .unwrap_or(0)
}

fn exactly(at: usize, bytes: u32) -> Option<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the flags forbid to replace what is there; a kernel that does not know them takes the address for a hint.
    let found = unsafe { libc::mmap(at as *mut c_void, bytes as usize, protection, flags, -1, 0) };
    if found == libc::MAP_FAILED {
        return None;
    }
    if found as usize != at {
        // SAFETY: just mapped, and not where it was wanted.
        unsafe { libc::munmap(found, bytes as usize) };
        return None;
    }
    Some(at)
}
