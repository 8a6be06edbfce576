//! Adding to a counter that only this thread and its own signal handlers write.
//!
//! A load, an add and a store could be split by a signal whose handler does the same, and both would get one value;
//! a locked instruction costs 5 ns. One unlocked `xadd` cannot be split by a signal and costs under 1 ns.

use crate::sync::{AtomicU32, Ordering};

/// Adds `n` and returns the value before. Atomic against signal handlers of the calling thread, not against threads.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
pub(crate) fn fetch_add(counter: &AtomicU32, n: u32) -> u32 {
    let mut value = n;
    // SAFETY: the reference gives a valid, aligned address; the instruction reads and writes those four bytes only.
    unsafe {
        core::arch::asm!(
            "xadd dword ptr [{at}], {value:e}",
            at = in(reg) counter.as_ptr(),
            value = inout(reg) value,
            options(nostack),
        );
    }
    value
}

/// Adds `n` and returns the value before.
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
#[inline(always)]
pub(crate) fn fetch_add(counter: &AtomicU32, n: u32) -> u32 {
    counter.fetch_add(n, Ordering::Relaxed)
}

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const _: Ordering = Ordering::Relaxed;
