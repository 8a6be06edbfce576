//! malloc and its family: passed on to the next definition in search order, recorded or sampled on the way.
//!
//! The next definition is what the program would have called: a preloaded jemalloc or tcmalloc, else libc.
//! Payload: address, 0, old address of a realloc, bytes.

mod calls;
mod entry;

use core::sync::atomic::Ordering;

use gputrace_abi::Class;
use gputrace_abi::event::detail;
use gputrace_abi::layout::note;

use crate::interpose::elf;
use crate::session;

pub(crate) use entry::lead_all;

/// A function of the family, as the hook table names it.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    pub(crate) detail: u8,
}

const fn function(name: &'static str, class: Class, detail: u8) -> Function {
    Function { name, class, detail }
}

/// How many functions there are.
pub(crate) const COUNT: u16 = 8;
/// Number of the first.
pub(crate) const FIRST: u16 = super::cuda::END;

/// The functions.
pub(crate) static LIST: [Function; COUNT as usize] = [
    function("malloc", Class::HostAlloc, detail::NONE),
    function("calloc", Class::HostAlloc, detail::NONE),
    function("realloc", Class::HostAlloc, detail::REALLOC),
    function("memalign", Class::HostAlloc, detail::NONE),
    function("aligned_alloc", Class::HostAlloc, detail::NONE),
    function("posix_memalign", Class::HostAlloc, detail::NONE),
    function("reallocarray", Class::HostAlloc, detail::REALLOC),
    function("free", Class::HostFree, detail::NONE),
];

const MALLOC: u16 = FIRST;
const CALLOC: u16 = MALLOC + 1;
const REALLOC: u16 = MALLOC + 2;
const MEMALIGN: u16 = MALLOC + 3;
const ALIGNED_ALLOC: u16 = MALLOC + 4;
const POSIX_MEMALIGN: u16 = MALLOC + 5;
const REALLOCARRAY: u16 = MALLOC + 6;
const FREE: u16 = MALLOC + 7;

/// Why this program's malloc is not to be recorded, as a bit of [`note`]; 0 when it is.
///
/// A sanitizer's reports name the callers of malloc, and its leak check looks for addresses in our memory too; they
/// alone define the function that is looked for. Where the program itself defines malloc, nobody calls ours.
pub(crate) fn out_of_reach() -> u32 {
    if elf::anywhere(c"__sanitizer_get_heap_size") != 0 {
        note::SANITIZER
    } else if elf::earlier_definition(c"malloc") != 0 {
        note::OWN_MALLOC
    } else {
        0
    }
}

/// Notes in the segment whether another allocator stands between us and libc.
pub(crate) fn note_allocator() {
    if elf::next_definition(c"malloc") != elf::in_library(c"libc.so.6", c"malloc")
        && let Some(view) = session::present()
    {
        view.header().notes.fetch_or(note::OTHER_MALLOC, Ordering::Relaxed);
    }
}
