//! The functions in place of libSystem's: one jump each.
//!
//! Where an entry jumps to is decided once, when the mode is known: to libSystem's function when allocations are not
//! looked at, else to ours for that mode. libSystem's own calls of each other, and those of the libraries in the shared
//! cache, come here only where dyld patches the cache.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_abi::layout::malloc_mode;

use super::{calls, culled};
use crate::interpose::macho::{Tuple, jump};
use crate::{culling, sampling};

/// One line a function; ours for the modes is the one of the same name in [`calls`].
macro_rules! entries {
    ($($name:ident($($argument:ident : $type:ty),*) -> $result:ty;)*) => {
        /// libSystem's functions.
        pub(super) mod next {
            use super::*;
            $(
                #[inline(always)]
                pub(in super::super) fn $name() -> unsafe extern "C" fn($($type),*) -> $result {
                    system::$name
                }
            )*
        }

        mod system {
            use super::*;

            unsafe extern "C" {
                $(pub(super) fn $name($($argument: $type),*) -> $result;)*
            }
        }

        $(
            mod $name {
                use super::*;

                /// What the entry jumps to.
                static TARGET: AtomicPtr<()> = AtomicPtr::new(system::$name as *mut ());

                #[unsafe(naked)]
                unsafe extern "C" fn entry() {
                    jump!(TARGET)
                }

                #[used]
                #[unsafe(link_section = "__DATA,__interpose,interposing")]
                static TUPLE: Tuple = Tuple { ours: entry as *const (), system: system::$name as *const () };

                /// Leads the entry to where the mode wants it.
                pub(super) fn lead() {
                    let target = match sampling::mode() {
                        malloc_mode::OFF => system::$name as *mut (),
                        malloc_mode::FULL if culling::is_wanted() => culled::each!($name) as *mut (),
                        malloc_mode::FULL => calls::$name::<true> as *mut (),
                        _ => calls::$name::<false> as *mut (),
                    };
                    TARGET.store(target, Ordering::Relaxed);
                }
            }
        )*

        /// The mode is known, or another one now.
        pub(crate) fn lead_all() {
            $($name::lead();)*
        }
    };
}

entries! {
    aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void;
    calloc(count: usize, size: usize) -> *mut c_void;
    free(block: *mut c_void) -> ();
    malloc(bytes: usize) -> *mut c_void;
    posix_memalign(place: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int;
    realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    reallocf(block: *mut c_void, bytes: usize) -> *mut c_void;
    valloc(bytes: usize) -> *mut c_void;
}

/// Nothing is: where the loader does not come to us, the program has its own, and nothing can tell.
pub(crate) fn out_of_reach() -> u32 {
    0
}

/// Other allocators are zones of libSystem's malloc.
pub(crate) fn note_allocator() {}
