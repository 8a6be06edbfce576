//! Adding to a counter that only this thread and its own signal handlers write.
//!
//! A load, an add and a store could be split by a signal whose handler does the same, and both would get one value;
//! a locked instruction costs 5 ns. One unlocked `xadd` cannot be split by a signal and costs under 1 ns.

use crate::sync::{AtomicU64, Ordering};

/// Adds `n` and returns the value before. Atomic against signal handlers of the calling thread, not against threads.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
pub fn fetch_add(counter: &AtomicU64, n: u64) -> u64 {
    let mut value = n;
    // SAFETY: the reference gives a valid, aligned address; the instruction reads and writes those eight bytes only.
    unsafe {
        core::arch::asm!(
            "xadd qword ptr [{at}], {value}",
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
pub fn fetch_add(counter: &AtomicU64, n: u64) -> u64 {
    counter.fetch_add(n, Ordering::Relaxed)
}

/// Adds 1. Atomic against signal handlers of the calling thread, not against threads.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
pub fn increment(counter: &AtomicU64) {
    // SAFETY: as in `fetch_add`.
    unsafe { core::arch::asm!("inc qword ptr [{at}]", at = in(reg) counter.as_ptr(), options(nostack)) };
}

/// Adds 1.
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
#[inline(always)]
pub fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const _: Ordering = Ordering::Relaxed;
