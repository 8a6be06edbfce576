//! Reads of memory that another program's structures point to.
//!
//! Nothing is known about it but an address, so each is looked at first: not null, aligned, in the half that user space
//! has. That catches a layout that is not what we think, not an unmapped page; who calls says why the page is mapped.

/// Lowest address that Linux maps for anybody (vm.mmap_min_addr), and the end of user space.
const LOWEST: usize = 4096;
const END: usize = 1 << 47;

/// Whether a pointer to words may lead there.
#[inline(always)]
pub(super) fn may_be(address: usize) -> bool {
    (LOWEST..END).contains(&address) && address & 7 == 0
}

/// A word.
///
/// # Safety
/// Where the address [`may_be`], its page is mapped.
#[inline(always)]
pub(super) unsafe fn word(address: usize) -> Option<usize> {
    // SAFETY: the caller's promise; other threads may write it, which a volatile read tolerates.
    may_be(address).then(|| unsafe { core::ptr::read_volatile(address as *const usize) })
}

/// A number of 32 bits.
///
/// # Safety
/// As for [`word`].
#[inline(always)]
pub(super) unsafe fn number(address: usize) -> Option<i32> {
    // SAFETY: as above; the two lowest bits are checked.
    may_be(address & !7)
        .then(|| unsafe { core::ptr::read_volatile((address & !3) as *const i32) })
        .filter(|_| address & 3 == 0)
}

/// A byte.
///
/// # Safety
/// As for [`word`].
#[inline(always)]
pub(super) unsafe fn byte(address: usize) -> Option<u8> {
    // SAFETY: as above.
    may_be(address & !7).then(|| unsafe { core::ptr::read_volatile(address as *const u8) })
}
