//! malloc and its family: passed on to the next definition in search order, recorded or sampled on the way.
//!
//! The next definition is what the program would have called: a preloaded jemalloc or tcmalloc, else libc; on macOS
//! libSystem, whose malloc asks its zones.
//! Payload: address, by how many powers of two samples lay further apart than was asked for, key of the stack, bytes.

mod calls;
mod culled;
#[cfg(target_os = "linux")]
mod entry;
#[cfg(target_os = "macos")]
mod interposed;
#[cfg(target_os = "linux")]
pub(crate) mod maps;
#[cfg(target_os = "linux")]
pub(crate) mod operators;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod quick;
#[cfg(target_os = "linux")]
mod reach;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod short;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod straight;

use gputrace_abi::event::detail;
use gputrace_abi::{Class, pending};

#[cfg(target_os = "linux")]
use entry as platform;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use entry::straighten_all;
#[cfg(target_os = "linux")]
pub(crate) use entry::{find_all, lead_all};
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

/// Number of the first.
pub(crate) const FIRST: u16 = super::FIRST_OF_ALLOC;

/// The functions.
#[cfg(target_os = "linux")]
pub(crate) static LIST: [Function; 18] = [
    function("malloc", Class::HostAlloc, detail::NONE),
    function("calloc", Class::HostAlloc, detail::NONE),
    function("realloc", Class::HostAlloc, detail::REALLOC),
    function("aligned_alloc", Class::HostAlloc, detail::NONE),
    function("posix_memalign", Class::HostAlloc, detail::NONE),
    function("free", Class::HostFree, detail::NONE),
    function("memalign", Class::HostAlloc, detail::NONE),
    function("reallocarray", Class::HostAlloc, detail::REALLOC),
    function("valloc", Class::HostAlloc, detail::NONE),
    function("pvalloc", Class::HostAlloc, detail::NONE),
    function("mmap", Class::HostAlloc, detail::MAP),
    function("mmap64", Class::HostAlloc, detail::MAP),
    function("mremap", Class::HostAlloc, detail::MAP),
    function("brk", Class::HostAlloc, detail::MAP),
    function("sbrk", Class::HostAlloc, detail::MAP),
    function("munmap", Class::HostFree, detail::MAP),
    function("operator new", Class::HostAlloc, detail::NONE),
    function("operator delete", Class::HostFree, detail::NONE),
];

/// The functions.
#[cfg(target_os = "macos")]
pub(crate) static LIST: [Function; 8] = [
    function("malloc", Class::HostAlloc, detail::NONE),
    function("calloc", Class::HostAlloc, detail::NONE),
    function("realloc", Class::HostAlloc, detail::REALLOC),
    function("aligned_alloc", Class::HostAlloc, detail::NONE),
    function("posix_memalign", Class::HostAlloc, detail::NONE),
    function("free", Class::HostFree, detail::NONE),
    function("valloc", Class::HostAlloc, detail::NONE),
    function("reallocf", Class::HostAlloc, detail::REALLOC),
];

/// How many there are.
#[cfg(target_os = "macos")]
pub(crate) const COUNT: u16 = LIST.len() as u16;

/// The hook of [`pending::MALLOC`] or [`pending::CALLOC`].
pub(crate) fn number_of(function: u64) -> u16 {
    if function == pending::CALLOC { CALLOC } else { MALLOC }
}

const MALLOC: u16 = FIRST;
const CALLOC: u16 = FIRST + 1;
const REALLOC: u16 = FIRST + 2;
const ALIGNED_ALLOC: u16 = FIRST + 3;
const POSIX_MEMALIGN: u16 = FIRST + 4;
const FREE: u16 = FIRST + 5;
/// Those of macOS behind them.
#[cfg(target_os = "macos")]
mod number {
    use super::FIRST;

    pub(super) const VALLOC: u16 = FIRST + 6;
    pub(super) const REALLOCF: u16 = FIRST + 7;
}
/// Those of Linux.
#[cfg(target_os = "linux")]
mod number {
    use super::FIRST;

    pub(super) const MEMALIGN: u16 = FIRST + 6;
    pub(super) const REALLOCARRAY: u16 = FIRST + 7;
    pub(super) const VALLOC: u16 = FIRST + 8;
    pub(super) const PVALLOC: u16 = FIRST + 9;
    pub(super) const MMAP: u16 = FIRST + 10;
    pub(super) const MMAP64: u16 = FIRST + 11;
    pub(super) const MREMAP: u16 = FIRST + 12;
    pub(super) const BRK: u16 = FIRST + 13;
    pub(super) const SBRK: u16 = FIRST + 14;
    pub(super) const MUNMAP: u16 = FIRST + 15;
    pub(super) const OPERATOR_NEW: u16 = FIRST + 16;
    pub(super) const OPERATOR_DELETE: u16 = FIRST + 17;
}
