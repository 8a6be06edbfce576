//! malloc and its family: passed on to the next definition in search order, sampled on the way.
//!
//! The next definition is what the program would have called: a preloaded jemalloc or tcmalloc, else libc. It is found
//! at the very first call, which comes before any constructor, without the loader's functions (they allocate).
//! Payload: address, 0, old address of a realloc, bytes.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_abi::event::detail;
use gputrace_abi::layout::{ThreadRow, note};
use gputrace_abi::{Class, local};

use crate::interpose::elf;
use crate::thread::{self, State};
use crate::{record, sampling, session, tls};

/// A function of the family, as the hook table names it.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    pub(crate) detail: u8,
}

const fn function(name: &'static str, class: Class, detail: u8) -> Function {
    Function { name, class, detail }
}

/// The functions, numbered from [`super::cuda::END`] on.
pub(crate) static LIST: [Function; 8] = [
    function("malloc", Class::HostAlloc, detail::NONE),
    function("calloc", Class::HostAlloc, detail::NONE),
    function("realloc", Class::HostAlloc, detail::REALLOC),
    function("memalign", Class::HostAlloc, detail::NONE),
    function("aligned_alloc", Class::HostAlloc, detail::NONE),
    function("posix_memalign", Class::HostAlloc, detail::NONE),
    function("reallocarray", Class::HostAlloc, detail::REALLOC),
    function("free", Class::HostFree, detail::NONE),
];

const MALLOC: u16 = super::cuda::END;
const CALLOC: u16 = MALLOC + 1;
const REALLOC: u16 = MALLOC + 2;
const MEMALIGN: u16 = MALLOC + 3;
const ALIGNED_ALLOC: u16 = MALLOC + 4;
const POSIX_MEMALIGN: u16 = MALLOC + 5;
const REALLOCARRAY: u16 = MALLOC + 6;
const FREE: u16 = MALLOC + 7;

const ALLOC: usize = Class::HostAlloc as usize;
const FREED: usize = Class::HostFree as usize;

/// In full mode one call in so many is timed; a second stamp for each would cost 9 ns.
const TIMED_ONE_IN: u64 = 64;

macro_rules! next {
    ($($name:ident = $symbol:expr, fn($($argument:ident : $type:ty),*) -> $result:ty;)*) => {
        /// The next definitions. Each begins as a function that finds the real one, so that no call has to ask.
        mod next {
            use super::*;
            $(
                #[inline(always)]
                pub(super) fn $name() -> unsafe extern "C" fn($($type),*) -> $result {
                    static ADDRESS: AtomicPtr<()> = AtomicPtr::new(first as *mut ());

                    unsafe extern "C" fn first($($argument: $type),*) -> $result {
                        ADDRESS.store(find($symbol) as *mut (), Ordering::Relaxed);
                        // SAFETY: the program's own arguments, passed on.
                        unsafe { $name()($($argument),*) }
                    }

                    // SAFETY: the address is that of `first` or of the next definition, of this signature.
                    unsafe { core::mem::transmute(ADDRESS.load(Ordering::Relaxed)) }
                }
            )*
        }
    };
}

next! {
    malloc = c"malloc", fn(bytes: usize) -> *mut c_void;
    calloc = c"calloc", fn(count: usize, size: usize) -> *mut c_void;
    realloc = c"realloc", fn(block: *mut c_void, bytes: usize) -> *mut c_void;
    memalign = c"memalign", fn(alignment: usize, bytes: usize) -> *mut c_void;
    aligned_alloc = c"aligned_alloc", fn(alignment: usize, bytes: usize) -> *mut c_void;
    posix_memalign = c"posix_memalign", fn(place: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int;
    malloc_usable_size = c"malloc_usable_size", fn(block: *mut c_void) -> usize;
    free = c"free", fn(block: *mut c_void) -> ();
}

#[cold]
#[inline(never)]
fn find(name: &core::ffi::CStr) -> usize {
    let found = elf::next_definition(name);
    if found == 0 {
        // No libc after us: nothing that allocates can run.
        // SAFETY: ends the process, which cannot go on.
        unsafe { libc::abort() }
    }
    found
}

/// Notes in the segment whether another allocator stands between us and libc.
pub(crate) fn note_allocator() {
    if elf::next_definition(c"malloc") != elf::in_library(c"libc.so.6", c"malloc")
        && let Some(view) = session::present()
    {
        view.header().notes.fetch_or(note::OTHER_MALLOC, Ordering::Relaxed);
    }
}

/// Takes the bytes off the thread's countdown. True: nothing else to do for this allocation.
#[inline(always)]
fn passes(bytes: usize) -> bool {
    let Some(state) = tls::get() else { return false };
    let left = state.countdown.get().wrapping_sub(bytes as i64);
    state.countdown.set(left);
    // The countdown of a state without a row (wiped by a fork, or of an ended thread) is never above 0.
    if left <= 0 {
        return false;
    }
    // SAFETY: see above.
    local::increment(unsafe { state.seen_unchecked::<ALLOC>() });
    true
}

/// An allocation that the fast path did not pass.
#[inline(always)]
fn allocate(number: u16, bytes: usize, old: usize, original: impl FnOnce() -> *mut c_void) -> *mut c_void {
    match tls::get().and_then(|state| Some((state, state.row()?))) {
        Some((state, row)) if sampling::is_full() => record_alloc(state, row, number, bytes, old, original),
        _ => sample(number, bytes, old, original),
    }
}

/// Registers the thread if needed; records if a sample fell into the allocation.
#[cold]
#[inline(never)]
fn sample(number: u16, bytes: usize, old: usize, original: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let Some((state, row)) = thread::state_slow().and_then(|state| Some((state, state.row()?))) else {
        return original();
    };
    if sampling::chooses(state) {
        return record_alloc(state, row, number, bytes, old, original);
    }
    if let Some(seen) = row.seen.get(ALLOC) {
        local::increment(seen);
    }
    original()
}

#[inline(always)]
fn record_alloc(
    state: &State,
    row: &ThreadRow,
    number: u16,
    bytes: usize,
    old: usize,
    original: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    if state.is_paused() {
        return original();
    }
    let (Some(seen), Some(chosen)) = (row.seen.get(ALLOC), row.chosen.get(ALLOC)) else { return original() };
    local::increment(seen);
    let start = state.now();
    let block = original();
    let end = if chosen.load(Ordering::Relaxed) % TIMED_ONE_IN == 0 { state.now() } else { start };
    if block.is_null() {
        return block;
    }
    local::increment(chosen);
    if !sampling::is_full() {
        sampling::track(block as usize);
    }
    record::write(state, number, Class::HostAlloc, start, end, [block as usize as u64, 0, old as u64, bytes as u64]);
    block
}

/// The block is about to be freed, and no filter has it. False: it may have been recorded, or the thread is not known.
#[inline(always)]
fn free_passes(block: usize) -> bool {
    if sampling::may_be_tracked(block) {
        return false;
    }
    let Some(row) = tls::get().and_then(State::row) else { return false };
    if let Some(seen) = row.seen.get(FREED) {
        local::increment(seen);
    }
    true
}

/// A free of a block that may have been recorded, or of a thread without a state.
#[inline(always)]
fn freed(block: usize) {
    match tls::get().and_then(|state| Some((state, state.row()?))) {
        Some((state, row)) if sampling::is_full() => record_free(state, row, block, state.now()),
        _ => sampled_free(block),
    }
}

#[cold]
#[inline(never)]
fn sampled_free(block: usize) {
    if block == 0 {
        return;
    }
    let Some((state, row)) = thread::state_slow().and_then(|state| Some((state, state.row()?))) else { return };
    if sampling::may_be_tracked(block) && sampling::untrack(block) {
        record_free(state, row, block, state.now());
    } else if let Some(seen) = row.seen.get(FREED) {
        local::increment(seen);
    }
}

#[inline(always)]
fn record_free(state: &State, row: &ThreadRow, block: usize, now: u64) {
    if block == 0 || state.is_paused() {
        return;
    }
    let (Some(seen), Some(chosen)) = (row.seen.get(FREED), row.chosen.get(FREED)) else { return };
    local::increment(seen);
    local::increment(chosen);
    record::write(state, FREE, Class::HostFree, now, now, [block as u64, 0, 0, 0]);
}

/// `void *malloc(size_t size)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    let next = next::malloc();
    if sampling::is_off() || passes(bytes) {
        // SAFETY: the program's own argument.
        return unsafe { next(bytes) };
    }
    // SAFETY: as above.
    allocate(MALLOC, bytes, 0, || unsafe { next(bytes) })
}

/// `void *calloc(size_t count, size_t size)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let next = next::calloc();
    let bytes = count.saturating_mul(size).min(1 << 62);
    if sampling::is_off() || passes(bytes) {
        // SAFETY: the program's own arguments.
        return unsafe { next(count, size) };
    }
    // SAFETY: as above.
    allocate(CALLOC, bytes, 0, || unsafe { next(count, size) })
}

/// `void *memalign(size_t alignment, size_t size)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    let next = next::memalign();
    if sampling::is_off() || passes(bytes) {
        // SAFETY: the program's own arguments.
        return unsafe { next(alignment, bytes) };
    }
    // SAFETY: as above.
    allocate(MEMALIGN, bytes, 0, || unsafe { next(alignment, bytes) })
}

/// `void *aligned_alloc(size_t alignment, size_t size)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    let next = next::aligned_alloc();
    if sampling::is_off() || passes(bytes) {
        // SAFETY: the program's own arguments.
        return unsafe { next(alignment, bytes) };
    }
    // SAFETY: as above.
    allocate(ALIGNED_ALLOC, bytes, 0, || unsafe { next(alignment, bytes) })
}

/// `int posix_memalign(void **block, size_t alignment, size_t size)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int {
    let next = next::posix_memalign();
    if sampling::is_off() || passes(bytes) {
        // SAFETY: the program's own arguments.
        return unsafe { next(place, alignment, bytes) };
    }
    let mut result = 0;
    allocate(POSIX_MEMALIGN, bytes, 0, || {
        // SAFETY: as above.
        result = unsafe { next(place, alignment, bytes) };
        // SAFETY: a call that succeeded has written the place.
        if result == 0 { unsafe { *place } } else { core::ptr::null_mut() }
    });
    result
}

/// `void *realloc(void *block, size_t size)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the program's own arguments.
    unsafe { resize(REALLOC, block, bytes) }
}

/// `void *reallocarray(void *block, size_t count, size_t size)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        // SAFETY: the calling thread's own errno.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return core::ptr::null_mut();
    };
    // SAFETY: the program's own arguments.
    unsafe { resize(REALLOCARRAY, block, bytes) }
}

/// Frees the old block and allocates the new one, as far as the books are concerned.
unsafe fn resize(number: u16, block: *mut c_void, bytes: usize) -> *mut c_void {
    let next = next::realloc();
    if sampling::is_off() {
        // SAFETY: the program's own arguments.
        return unsafe { next(block, bytes) };
    }
    let old = block as usize;
    // Before the call: another thread may get, and record, the old address as soon as it is free.
    let tracked = old != 0 && sampling::may_be_tracked(old) && sampling::untrack(old);
    if old != 0
        && !tracked
        && let Some(seen) = tls::get().and_then(State::row).and_then(|row| row.seen.get(FREED))
    {
        // Counted whatever the filter says: a block beside a recorded one is freed like any other.
        local::increment(seen);
    }
    // The free is written before the allocation, with a time before it: the new block may have the old one's address.
    let before = if tracked { session::now() } else { 0 };
    let original = || {
        // SAFETY: the program's own arguments.
        let new = unsafe { next(block, bytes) };
        if tracked && new.is_null() && bytes != 0 {
            sampling::track(old); // the old block lives on
        } else if tracked {
            free_resized(old, before);
        }
        new
    };
    if passes(bytes) { original() } else { allocate(number, bytes, old, original) }
}

/// Records the free of a block that was just taken out of the table.
#[cold]
#[inline(never)]
fn free_resized(block: usize, before: u64) {
    if let Some((state, row)) = thread::state_slow().and_then(|state| Some((state, state.row()?))) {
        record_free(state, row, block, before);
    }
}

/// `size_t malloc_usable_size(void *block)`: passed on, so that it fits the allocator that made the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the program's own argument.
    unsafe { next::malloc_usable_size()(block) }
}

/// `void free(void *block)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    let next = next::free();
    if !sampling::is_off() && !free_passes(block as usize) {
        freed(block as usize);
    }
    // SAFETY: the program's own argument.
    unsafe { next(block) }
}
