//! The allocator of Rust code inside the shim: pages from the kernel, never the hooked malloc.
//!
//! Nothing here allocates on purpose. Should a linked library do it all the same, each block is a mapping of its own:
//! slow, and simple enough to be right.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;

use crate::sys;

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

// SAFETY: every block is a fresh mapping, page aligned, and is unmapped once.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > 4096 {
            return ptr::null_mut();
        }
        sys::map(layout.size().max(1), None).unwrap_or(ptr::null_mut())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back a block of `alloc` with its layout.
        unsafe { sys::unmap(block, layout.size().max(1)) };
    }
}
