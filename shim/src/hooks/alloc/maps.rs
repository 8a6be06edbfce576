//! mmap and its family, for `--mmap`: every call that succeeded.
//!
//! libc's malloc asks the kernel by itself; what comes here are the program's own calls and those of other allocators, Python's
//! arenas among them. Payload: address, protection and flags << 32, key of the stack, bytes (whole pages); of the end of a
//! region, whichever call made it, address, 0, 0, bytes.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_abi::{Class, local};

use super::number::{BRK, MMAP, MMAP64, MREMAP, MUNMAP, SBRK};
use super::platform::next;
use crate::{record, stack};

const PAGE: usize = 4096;
static WANTED: AtomicBool = AtomicBool::new(false);

/// Reads what the launcher asked for. For the constructor.
pub(crate) fn configure(wanted: bool) {
    WANTED.store(wanted, Ordering::Relaxed);
}

/// Whether such calls are recorded.
pub(crate) fn are_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// `void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset)`
pub(super) unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the program's own arguments.
    mapped(MMAP, length, protection, flags, || unsafe {
        next::mmap()(address, length, protection, flags, file, offset)
    })
}

/// `mmap64`, which is the same.
pub(super) unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the program's own arguments.
    mapped(MMAP64, length, protection, flags, || unsafe {
        next::mmap64()(address, length, protection, flags, file, offset)
    })
}

fn mapped(
    number: u16,
    length: usize,
    protection: c_int,
    flags: c_int,
    original: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let start = now();
    let at = original();
    if at != libc::MAP_FAILED {
        made(number, start, at as usize, length, u64::from(protection as u32) | u64::from(flags as u32) << 32);
    }
    at
}

/// `int munmap(void *address, size_t length)`
pub(super) unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    // Before the call: another thread may get the addresses as soon as they are free.
    let start = now();
    // SAFETY: the program's own arguments.
    let result = unsafe { next::munmap()(address, length) };
    if result == 0 {
        ended(start, address as usize, length);
    }
    result
}

/// `void *mremap(void *old, size_t old_length, size_t length, int flags, ...)`: the end of one region and the start of another.
pub(super) unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_length: usize,
    length: usize,
    flags: c_int,
    address: *mut c_void,
) -> *mut c_void {
    let start = now();
    // SAFETY: the program's own arguments; one that it did not pass is not looked at.
    let at = unsafe { next::mremap()(old, old_length, length, flags, address) };
    if at != libc::MAP_FAILED {
        // A length of 0 makes a second mapping of shared memory.
        if old_length != 0 {
            ended(start, old as usize, old_length);
        }
        const WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        made(MREMAP, start, at as usize, length, WRITE);
    }
    at
}

/// `int brk(void *end)`
pub(super) unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    let start = now();
    // SAFETY: asks where the data segment ends.
    let before = unsafe { next::sbrk()(0) } as usize;
    // SAFETY: the program's own argument.
    let result = unsafe { next::brk()(end) };
    if result == 0 {
        moved(BRK, start, before, end as usize);
    }
    result
}

/// `void *sbrk(intptr_t increment)`
pub(super) unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    let start = now();
    // SAFETY: the program's own argument.
    let before = unsafe { next::sbrk()(increment) };
    if before != libc::MAP_FAILED && increment != 0 {
        moved(SBRK, start, before as usize, (before as usize).wrapping_add_signed(increment));
    }
    before
}

fn moved(number: u16, start: u64, before: usize, after: usize) {
    const WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    if after > before {
        made(number, start, before, after - before, WRITE);
    } else if before > after {
        ended(start, after, before - after);
    }
}

fn now() -> u64 {
    record::state().map_or(0, |(state, _)| state.now())
}

fn pages(length: usize) -> u64 {
    (length.saturating_add(PAGE - 1) & !(PAGE - 1)) as u64
}

#[cold]
#[inline(never)]
fn made(number: u16, start: u64, address: usize, length: usize, how: u64) {
    const CLASS: Class = Class::HostAlloc;
    let Some((state, row)) = record::state().filter(|(state, _)| !state.is_paused()) else { return };
    let (Some(seen), Some(chosen)) = (row.seen.get(CLASS as usize), row.chosen.get(CLASS as usize)) else { return };
    let end = state.now();
    local::increment(seen);
    local::increment(chosen);
    let key = if stack::wants_allocations() { stack::of_allocation(state, Some(1)) } else { 0 };
    record::write(state, number, CLASS, start, end, [address as u64, how, key, pages(length)]);
}

#[cold]
#[inline(never)]
fn ended(start: u64, address: usize, length: usize) {
    const CLASS: Class = Class::HostFree;
    let Some((state, row)) = record::state().filter(|(state, _)| !state.is_paused()) else { return };
    let (Some(seen), Some(chosen)) = (row.seen.get(CLASS as usize), row.chosen.get(CLASS as usize)) else { return };
    local::increment(seen);
    local::increment(chosen);
    record::write(state, MUNMAP, CLASS, start, start, [address as u64, 0, 0, pages(length)]);
}
