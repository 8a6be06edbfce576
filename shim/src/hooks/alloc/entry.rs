//! The exported functions: one jump each.
//!
//! Where an entry jumps to is decided once, when the mode is known: to the next definition when allocations are not
//! looked at, so that a pair of malloc and free costs two jumps; else to our function for that mode. Until our constructor, or its
//! first call if that is earlier, an entry leads to a function that finds the next definition: the first malloc comes before any
//! constructor, and the loader's own functions, which allocate, cannot be asked.
//!
//! On x86-64 those that programs call all the time have a quick way before that ([`quick`]). Their code lies side by side, and so do the words
//! that it reads: what a program of small objects finds in the first-level cache after each call is the half of what a call costs.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_abi::layout::malloc_mode;

use super::{calls, culled, maps};
#[cfg(target_arch = "x86_64")]
use super::{quick, short, straight};
use crate::interpose::elf;
#[cfg(target_arch = "x86_64")]
use crate::tracked;
use crate::{culling, sampling};

/// What an entry may lead to: the function of the same name in [`calls`] for its mode, in [`maps`] if they are wanted.
macro_rules! ours {
    (calls, $name:ident) => {
        match sampling::mode() {
            malloc_mode::OFF => None,
            malloc_mode::FULL if culling::is_wanted() => Some(culled::each!($name) as *mut ()),
            malloc_mode::FULL => Some(calls::$name::<true> as *mut ()),
            _ => Some(calls::$name::<false> as *mut ()),
        }
    };
    (maps, $name:ident) => {
        maps::are_wanted().then_some(maps::$name as *mut ())
    };
}

/// A word for each entry, in their order, those of the first eight in one cache line.
#[repr(align(64))]
pub(super) struct Words([AtomicPtr<()>; Number::COUNT]);

/// One line a function: its symbol, or that of the function that is asked instead, and where ours is.
macro_rules! entries {
    ($($name:ident = $symbol:literal, $ours:ident, ($($argument:ident : $type:ty),*) -> $result:ty;)*) => {
        #[allow(non_camel_case_types, reason = "the functions' own names")]
        #[derive(Clone, Copy)]
        enum Number {
            $($name,)*
        }

        impl Number {
            const COUNT: usize = [$(Number::$name),*].len();
        }

        /// The next definitions. Each begins as a function that finds the real one, so that no call has to ask.
        pub(super) static NEXT: Words = Words([$(AtomicPtr::new($name::late as *mut ())),*]);

        /// What the entries jump to.
        pub(super) static TARGET: Words = Words([$(AtomicPtr::new($name::first as *mut ())),*]);

        /// The next definitions, as functions.
        pub(super) mod next {
            use super::*;
            $(
                #[inline(always)]
                pub(in super::super) fn $name() -> unsafe extern "C" fn($($type),*) -> $result {
                    // SAFETY: the address of `late` or of the next definition, both of this signature.
                    unsafe { core::mem::transmute($name::own(&NEXT).load(Ordering::Relaxed)) }
                }
            )*
        }

        $(
            pub(super) mod $name {
                use super::*;

                const NUMBER: usize = Number::$name as usize;

                /// Where the entry's own word stands, in bytes.
                pub(in super::super) const AT: usize = NUMBER * size_of::<AtomicPtr<()>>();

                #[inline(always)]
                pub(super) fn own(words: &'static Words) -> &'static AtomicPtr<()> {
                    &words.0[NUMBER]
                }

                pub(super) unsafe extern "C" fn late($($argument: $type),*) -> $result {
                    own(&NEXT).store(find(stringify!($name), $symbol) as *mut (), Ordering::Relaxed);
                    // SAFETY: the program's own arguments, passed on.
                    unsafe { next::$name()($($argument),*) }
                }

                pub(super) unsafe extern "C" fn first($($argument: $type),*) -> $result {
                    own(&NEXT).store(find(stringify!($name), $symbol) as *mut (), Ordering::Relaxed);
                    lead();
                    // SAFETY: the program's own arguments, passed on to where the entry leads now.
                    unsafe {
                        core::mem::transmute::<*mut (), unsafe extern "C" fn($($type),*) -> $result>(
                            own(&TARGET).load(Ordering::Relaxed),
                        )($($argument),*)
                    }
                }

                /// Finds the next definition, if it is not known, and there is one: a library that was opened, and not preloaded, comes
                /// after libc, and nobody calls it.
                pub(super) fn prepare() {
                    let known = !core::ptr::eq(own(&NEXT).load(Ordering::Relaxed), late as *mut ());
                    let found = if known { 0 } else { definition(stringify!($name), $symbol) };
                    if found != 0 {
                        own(&NEXT).store(found as *mut (), Ordering::Relaxed);
                    }
                }

                /// The entry, where it leads on and not to [`first`].
                #[cfg(target_arch = "x86_64")]
                pub(in super::super) fn known() -> Option<straight::Entry> {
                    let (next, target) = (own(&NEXT), own(&TARGET));
                    let known = !core::ptr::eq(target.load(Ordering::Relaxed), first as *mut ());
                    let code = super::$name as *const () as usize;
                    known.then_some(straight::Entry { code, bytes: straight::BYTES, next, target: Some(target) })
                }

                /// Leads the entry to where the mode wants it, if the next definition is known.
                pub(super) fn lead() {
                    let next = own(&NEXT).load(Ordering::Relaxed);
                    if core::ptr::eq(next, late as *mut ()) {
                        return;
                    }
                    loop {
                        let wanted = ours!($ours, $name);
                        own(&TARGET).store(wanted.unwrap_or(next), Ordering::Relaxed);
                        // Another thread's first call may be between the two lines of the constructor.
                        if ours!($ours, $name) == wanted {
                            return;
                        }
                    }
                }
            }

            #[doc = concat!("`", stringify!($name), "` as the program calls it.")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[unsafe(link_section = ".text.gputrace_entries")]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                quick::entry!($name);
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    "adrp x16, {target} + {at}",
                    "ldr x16, [x16, :lo12:{target} + {at}]",
                    "br x16",
                    target = sym TARGET,
                    at = const $name::AT,
                );
            }
        )*

        /// Finds all next definitions. In the constructor: the loader is asked under its lock, and in the child of a fork another thread
        /// of the parent may have that for ever.
        pub(crate) fn find_all() {
            $($name::prepare();)*
            lead_all();
        }

        /// The mode is known, or another one now.
        pub(crate) fn lead_all() {
            $($name::lead();)*
        }

        /// The mode is known, and stays.
        #[cfg(target_arch = "x86_64")]
        pub(crate) fn straighten_all() {
            let short = culling::is_wanted().then(short::entries);
            straight::write([$($name::known()),*].into_iter().chain(short.into_iter().flatten()).flatten());
        }
    };
}

entries! {
    // Called all the time.
    malloc = c"malloc", calls, (bytes: usize) -> *mut c_void;
    free = c"free", calls, (block: *mut c_void) -> ();
    calloc = c"calloc", calls, (count: usize, size: usize) -> *mut c_void;
    realloc = c"realloc", calls, (block: *mut c_void, bytes: usize) -> *mut c_void;
    // And the others.
    aligned_alloc = c"aligned_alloc", calls, (alignment: usize, bytes: usize) -> *mut c_void;
    brk = c"brk", maps, (end: *mut c_void) -> c_int;
    // New in C23: where libc has them not, a program that finds ours frees by them what came from the malloc that it has.
    free_aligned_sized = c"free", calls, (block: *mut c_void, alignment: usize, bytes: usize) -> ();
    free_sized = c"free", calls, (block: *mut c_void, bytes: usize) -> ();
    malloc_usable_size = c"malloc_usable_size", calls, (block: *mut c_void) -> usize;
    memalign = c"memalign", calls, (alignment: usize, bytes: usize) -> *mut c_void;
    mmap = c"mmap", maps, (address: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
    mmap64 = c"mmap64", maps, (address: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
    mremap = c"mremap", maps, (old: *mut c_void, old_length: usize, length: usize, flags: c_int, address: *mut c_void) -> *mut c_void;
    munmap = c"munmap", maps, (address: *mut c_void, length: usize) -> c_int;
    posix_memalign = c"posix_memalign", calls, (place: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int;
    pvalloc = c"pvalloc", calls, (bytes: usize) -> *mut c_void;
    reallocarray = c"reallocarray", calls, (block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    sbrk = c"sbrk", maps, (increment: isize) -> *mut c_void;
    valloc = c"valloc", calls, (bytes: usize) -> *mut c_void;
}

/// What an entry passes calls on to. One that stands for another function: what everybody calls by that one's name, also where that is the
/// program's own, which comes before us.
fn definition(entry: &str, symbol: &CStr) -> usize {
    let first = if entry.as_bytes() == symbol.to_bytes() { 0 } else { elf::earlier_definition(symbol) };
    if first == 0 { elf::next_definition(symbol) } else { first }
}

#[cold]
#[inline(never)]
fn find(entry: &str, symbol: &CStr) -> usize {
    let found = definition(entry, symbol);
    if found == 0 {
        // No libc after us: nothing that allocates can run.
        // SAFETY: ends the process, which cannot go on.
        unsafe { libc::abort() }
    }
    found
}
