//! malloc and its family: passed on to the next definition in search order, recorded or sampled on the way.
//!
//! The next definition is what the program would have called: a preloaded jemalloc or tcmalloc, else libc; on macOS
//! libSystem, whose malloc asks its zones.
//! Payload: address, by how many powers of two samples lay further apart than was asked for, key of the stack, bytes.

mod calls;
#[cfg(target_os = "linux")]
mod entry;
#[cfg(target_os = "macos")]
mod interposed;
#[cfg(target_os = "linux")]
mod reach;

use gputrace_abi::Class;
use gputrace_abi::event::detail;

#[cfg(target_os = "linux")]
use entry as platform;
#[cfg(target_os = "linux")]
pub(crate) use entry::lead_all;
#[cfg(target_os = "macos")]
use interposed as platform;
#[cfg(target_os = "macos")]
pub(crate) use interposed::{lead_all, note_allocator, out_of_reach};
#[cfg(target_os = "linux")]
pub(crate) use reach::{note_allocator, out_of_reach};

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
pub(crate) const FIRST: u16 = super::FIRST_OF_ALLOC;

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
#[cfg(target_os = "linux")]
const MEMALIGN: u16 = MALLOC + 3;
const ALIGNED_ALLOC: u16 = MALLOC + 4;
const POSIX_MEMALIGN: u16 = MALLOC + 5;
#[cfg(target_os = "linux")]
const REALLOCARRAY: u16 = MALLOC + 6;
const FREE: u16 = MALLOC + 7;
