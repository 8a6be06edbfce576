//! Memory for as long as a graph is read: pages from the kernel, given back at once.

use core::marker::PhantomData;

use crate::sys;

/// Numbers in pages of their own, all zero at first.
pub(super) struct Pages<T: Plain> {
    at: *mut u8,
    count: usize,
    kind: PhantomData<T>,
}

/// Types for which any bytes are a value.
pub(super) trait Plain: Copy {}

impl Plain for u64 {}
impl Plain for [u64; 2] {}

impl<T: Plain> Pages<T> {
    /// Room for so many; none where the kernel has no memory.
    pub(super) fn new(count: usize) -> Option<Pages<T>> {
        let at = sys::map(count.checked_mul(size_of::<T>())?.max(1), None).ok()?;
        Some(Pages { at, count, kind: PhantomData })
    }

    /// All of them.
    pub(super) fn all(&mut self) -> &mut [T] {
        // SAFETY: the mapping is ours, page aligned and this large, and any bytes are a value.
        unsafe { core::slice::from_raw_parts_mut(self.at.cast(), self.count) }
    }

    /// All of them, to look at.
    pub(super) fn seen(&self) -> &[T] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts(self.at.cast(), self.count) }
    }
}

impl<T: Plain> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing that borrowed from it lives on.
        unsafe { sys::unmap(self.at, (self.count * size_of::<T>()).max(1)) };
    }
}

/// Words as the bytes that they are.
pub(super) fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory; bytes have no alignment, and any are valid.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
