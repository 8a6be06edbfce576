//! Memory for as long as a graph is read: on the stack for the usual graph, for a larger one pages from the kernel, which
//! take it 10 us.

use core::marker::PhantomData;

use crate::sys;

/// Numbers that find room on the stack: what a graph of some dozen nodes needs.
const FEW: usize = 64;

/// Room for numbers, all zero at first.
pub(super) struct Room<T: Plain> {
    few: [T; FEW],
    /// Where they are if there are more; else null.
    pages: *mut u8,
    count: usize,
    kind: PhantomData<T>,
}

/// Types for which any bytes are a value.
pub(super) trait Plain: Copy {
    /// No bit set.
    const ZERO: Self;
}

impl Plain for u64 {
    const ZERO: u64 = 0;
}

impl Plain for [u64; 2] {
    const ZERO: [u64; 2] = [0; 2];
}

impl<T: Plain> Room<T> {
    /// Room for as many as the stack has it for.
    pub(super) fn few() -> Room<T> {
        Room { few: [T::ZERO; FEW], pages: core::ptr::null_mut(), count: FEW, kind: PhantomData }
    }

    /// Room for so many; none where the kernel has no memory.
    pub(super) fn new(count: usize) -> Option<Room<T>> {
        if count <= FEW {
            return Some(Room { count, ..Room::few() });
        }
        let pages = sys::map(count.checked_mul(size_of::<T>())?, None).ok()?;
        Some(Room { pages, count, ..Room::few() })
    }

    /// How many there is room for.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// All of them.
    pub(super) fn all(&mut self) -> &mut [T] {
        if self.pages.is_null() {
            return self.few.get_mut(..self.count).unwrap_or(&mut []);
        }
        // SAFETY: the mapping is ours, page aligned and this large, and any bytes are a value.
        unsafe { core::slice::from_raw_parts_mut(self.pages.cast(), self.count) }
    }

    /// All of them, to look at.
    pub(super) fn seen(&self) -> &[T] {
        if self.pages.is_null() {
            return self.few.get(..self.count).unwrap_or(&[]);
        }
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts(self.pages.cast(), self.count) }
    }
}

impl<T: Plain> Drop for Room<T> {
    fn drop(&mut self) {
        if !self.pages.is_null() {
            // SAFETY: the mapping is ours, and nothing that borrowed from it lives on.
            unsafe { sys::unmap(self.pages, self.count * size_of::<T>()) };
        }
    }
}

/// Words as the bytes that they are.
pub(super) fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory; bytes have no alignment, and any are valid.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
