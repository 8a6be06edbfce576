//! Where the calling thread's stack is; calls get no stack of frames on macOS yet.

use core::ops::Range;

use crate::thread::State;

/// No stacks are taken.
pub(crate) fn is_on() -> bool {
    false
}

/// Nor do allocations.
#[inline(always)]
pub(crate) fn wants_allocations() -> bool {
    false
}

/// The key of an allocation's stack: there is none.
pub(crate) fn of_allocation(_: &State, _: Option<u64>) -> u64 {
    0
}

/// The thread ends.
pub(crate) fn forget(_: &State) {}

/// A thread's first time: there are no thresholds.
pub(crate) fn reset(_: &State) {}

/// A segment begins: no stack is known in it.
pub(crate) fn begin_segment(_: u64) {}

/// Bits of an address inside its page.
const PAGE_BITS: u32 = if cfg!(target_arch = "aarch64") { 14 } else { 12 };

/// Whether the memory from `here` up to the word at `there` is the calling thread's own stack, and so mapped.
pub(crate) fn reaches(here: usize, there: usize) -> bool {
    // Asked once for both: each message inside another one comes here, unless both are on one page.
    here >> PAGE_BITS == there >> PAGE_BITS || {
        let own = own();
        own.contains(&here) && own.contains(&there)
    }
}

/// Whether an address lies on the calling thread's own stack.
pub(crate) fn is_own(there: usize) -> bool {
    own().contains(&there)
}

/// The calling thread's own stack.
fn own() -> Range<usize> {
    // SAFETY: the calling thread's own description, which libSystem reads without a lock.
    unsafe {
        let thread = libc::pthread_self();
        let end = libc::pthread_get_stackaddr_np(thread) as usize;
        end.saturating_sub(libc::pthread_get_stacksize_np(thread))..end
    }
}
