//! What an allocation and a free do when they are recorded, all of them (`FULL`) or a sample.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use gputrace_abi::layout::ThreadRow;
use gputrace_abi::{Class, local};

#[cfg(target_os = "macos")]
use super::number::REALLOCF;
use super::number::VALLOC;
#[cfg(target_os = "linux")]
use super::number::{MEMALIGN, PVALLOC, REALLOCARRAY};
use super::platform::next;
use super::{ALIGNED_ALLOC, CALLOC, FREE, MALLOC, POSIX_MEMALIGN, REALLOC};
use crate::thread::{self, State};
use crate::{culling, record, sampling, session, stack, tls, tracked};

const ALLOC: usize = Class::HostAlloc as usize;
const FREED: usize = Class::HostFree as usize;

/// In full mode one call in so many is timed; a second stamp for each would cost 9 ns. Of samples each is. The others have the
/// stamp of their end: from then on they have their block, and other threads may have freed it until then.
/// Not the first, which finds nothing in any cache. A prime, or a loop of as many calls would time the same one again and again.
const TIMED_ONE_IN: u64 = 61;

/// `void *malloc(size_t size)`
pub(super) unsafe extern "C" fn malloc<const FULL: bool>(bytes: usize) -> *mut c_void {
    // SAFETY: the program's own argument.
    allocation::<FULL>(MALLOC, bytes, || unsafe { next::malloc()(bytes) })
}

/// `void *calloc(size_t count, size_t size)`
pub(super) unsafe extern "C" fn calloc<const FULL: bool>(count: usize, size: usize) -> *mut c_void {
    // SAFETY: the program's own arguments.
    allocation::<FULL>(CALLOC, count.saturating_mul(size), || unsafe { next::calloc()(count, size) })
}

/// `void *memalign(size_t alignment, size_t size)`
#[cfg(target_os = "linux")]
pub(super) unsafe extern "C" fn memalign<const FULL: bool>(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the program's own arguments.
    allocation::<FULL>(MEMALIGN, bytes, || unsafe { next::memalign()(alignment, bytes) })
}

/// `void *aligned_alloc(size_t alignment, size_t size)`
pub(super) unsafe extern "C" fn aligned_alloc<const FULL: bool>(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the program's own arguments.
    allocation::<FULL>(ALIGNED_ALLOC, bytes, || unsafe { next::aligned_alloc()(alignment, bytes) })
}

/// `void *valloc(size_t size)`
pub(super) unsafe extern "C" fn valloc<const FULL: bool>(bytes: usize) -> *mut c_void {
    // SAFETY: the program's own argument.
    allocation::<FULL>(VALLOC, bytes, || unsafe { next::valloc()(bytes) })
}

/// `void *pvalloc(size_t size)`
#[cfg(target_os = "linux")]
pub(super) unsafe extern "C" fn pvalloc<const FULL: bool>(bytes: usize) -> *mut c_void {
    // SAFETY: the program's own argument.
    allocation::<FULL>(PVALLOC, bytes, || unsafe { next::pvalloc()(bytes) })
}

/// `int posix_memalign(void **block, size_t alignment, size_t size)`
pub(super) unsafe extern "C" fn posix_memalign<const FULL: bool>(
    place: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
) -> c_int {
    let mut result = 0;
    allocation::<FULL>(POSIX_MEMALIGN, bytes, || {
        // SAFETY: the program's own arguments.
        result = unsafe { next::posix_memalign()(place, alignment, bytes) };
        // SAFETY: a call that succeeded has written the place.
        if result == 0 { unsafe { *place } } else { core::ptr::null_mut() }
    });
    result
}

/// `void *realloc(void *block, size_t size)`
pub(super) unsafe extern "C" fn realloc<const FULL: bool>(block: *mut c_void, bytes: usize) -> *mut c_void {
    resize::<FULL>(REALLOC, block as usize, bytes, || {
        // SAFETY: the program's own arguments.
        unsafe { next::realloc()(block, bytes) }
    })
}

/// `void *reallocf(void *block, size_t size)`: libSystem's is a realloc, too, and a free of what could not be had larger.
#[cfg(target_os = "macos")]
pub(super) unsafe extern "C" fn reallocf<const FULL: bool>(block: *mut c_void, bytes: usize) -> *mut c_void {
    let made = resize::<FULL>(REALLOCF, block as usize, bytes, || {
        // SAFETY: the program's own arguments.
        unsafe { next::realloc()(block, bytes) }
    });
    if made.is_null() && bytes != 0 {
        // SAFETY: a block that stayed as it was, and that the program gives up.
        unsafe { free::<FULL>(block) };
    }
    made
}

/// `void *reallocarray(void *block, size_t count, size_t size)`
#[cfg(target_os = "linux")]
pub(super) unsafe extern "C" fn reallocarray<const FULL: bool>(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        // SAFETY: the calling thread's own errno.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return core::ptr::null_mut();
    };
    // Not the next reallocarray: libc's calls realloc as the program would, and that is ours.
    resize::<FULL>(REALLOCARRAY, block as usize, bytes, || {
        // SAFETY: the program's own arguments.
        unsafe { next::realloc()(block, bytes) }
    })
}

/// `size_t malloc_usable_size(void *block)`: passed on, so that it fits the allocator that made the block.
#[cfg(target_os = "linux")]
pub(super) unsafe extern "C" fn malloc_usable_size<const FULL: bool>(block: *mut c_void) -> usize {
    // SAFETY: the program's own argument.
    unsafe { next::malloc_usable_size()(block) }
}

/// `void free(void *block)`
pub(super) unsafe extern "C" fn free<const FULL: bool>(block: *mut c_void) {
    // SAFETY: the program's own argument.
    freed::<FULL>(FREE, block as usize, || unsafe { next::free()(block) });
}

/// `void free_sized(void *block, size_t size)`: to free, which every allocator has.
#[cfg(target_os = "linux")]
pub(super) unsafe extern "C" fn free_sized<const FULL: bool>(block: *mut c_void, _: usize) {
    // SAFETY: the program's own argument.
    unsafe { free::<FULL>(block) }
}

/// `void free_aligned_sized(void *block, size_t alignment, size_t size)`
#[cfg(target_os = "linux")]
pub(super) unsafe extern "C" fn free_aligned_sized<const FULL: bool>(block: *mut c_void, _: usize, _: usize) {
    // SAFETY: the program's own argument.
    unsafe { free::<FULL>(block) }
}

/// The calling thread's state and row, if it has them.
#[inline(always)]
fn known() -> Option<(&'static State, &'static ThreadRow)> {
    tls::get().and_then(|state| Some((state, state.row()?)))
}

/// The same, for a thread that may have to be registered.
#[cold]
#[inline(never)]
fn registered() -> Option<(&'static State, &'static ThreadRow)> {
    thread::state_slow().and_then(|state| Some((state, state.row()?)))
}

/// An allocation of so many bytes by the hook of this number.
#[inline(always)]
pub(super) fn allocation<const FULL: bool>(
    number: u16,
    bytes: usize,
    original: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    if FULL {
        let Some((state, row)) = known().or_else(registered) else { return original() };
        return record_alloc::<FULL>(state, row, number, bytes, 0, original);
    }
    if let Some((state, row)) = known()
        && sampling::passes(state, bytes)
    {
        count(row);
        return original();
    }
    sample(number, bytes, original)
}

/// Counts an allocation.
#[inline(always)]
fn count(row: &ThreadRow) {
    if let Some(seen) = row.seen.get(ALLOC) {
        local::increment(seen);
    }
}

/// Registers the thread if needed; records if a sample fell into the allocation.
#[cold]
#[inline(never)]
fn sample(number: u16, bytes: usize, original: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let Some((state, row)) = registered() else { return original() };
    if let Some(rarer) = sampling::chooses(state, bytes) {
        return record_alloc::<false>(state, row, number, bytes, rarer, original);
    }
    count(row);
    original()
}

#[inline(always)]
fn record_alloc<const FULL: bool>(
    state: &State,
    row: &ThreadRow,
    number: u16,
    bytes: usize,
    rarer: u8,
    original: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    if state.is_paused() {
        return original();
    }
    let (Some(seen), Some(chosen)) = (row.seen.get(ALLOC), row.chosen.get(ALLOC)) else { return original() };
    local::increment(seen);
    let timed = !FULL || chosen.load(Ordering::Relaxed) % TIMED_ONE_IN == TIMED_ONE_IN - 1;
    let before = if timed { state.now() } else { 0 };
    let block = original();
    if FULL {
        culling::tell_before(state, block as usize);
    }
    let end = state.now();
    let start = if timed { before } else { end };
    if block.is_null() {
        return block;
    }
    local::increment(chosen);
    if !FULL {
        tracked::insert(block as usize);
    }
    let mut stack_key = 0;
    if stack::wants_allocations() {
        let stands_for = if FULL { TIMED_ONE_IN } else { 1 };
        stack_key = stack::of_allocation(state, timed.then_some(stands_for));
    }
    let payload = [block as usize as u64, rarer.into(), stack_key, bytes as u64];
    record::write(state, number, Class::HostAlloc, start, end, payload);
    block
}

/// A free, by the hook of this number.
#[inline(always)]
pub(super) fn freed<const FULL: bool>(number: u16, block: usize, original: impl FnOnce()) {
    if !FULL {
        return sampled_free(number, block, original);
    }
    match known().or_else(registered) {
        Some((state, row)) if block != 0 => record_free::<FULL>(state, row, number, block, original),
        _ => original(),
    }
}

#[inline(always)]
fn sampled_free(number: u16, block: usize, original: impl FnOnce()) {
    if block == 0 || !tracked::may_be(block) || !tracked::remove(block) {
        return original();
    }
    match known().or_else(registered) {
        Some((state, row)) => record_free::<false>(state, row, number, block, original),
        None => original(),
    }
}

/// The block is free from the event's start on: another thread may have it before the call returns.
#[inline(always)]
fn record_free<const FULL: bool>(state: &State, row: &ThreadRow, number: u16, block: usize, original: impl FnOnce()) {
    if FULL {
        culling::tell_before(state, block);
    }
    if state.is_paused() {
        return original();
    }
    let timed =
        !FULL || row.chosen.get(FREED).is_some_and(|n| n.load(Ordering::Relaxed) % TIMED_ONE_IN == TIMED_ONE_IN - 1);
    let start = state.now();
    if !timed {
        // Written before: a heap that is corrupt may end the process there.
        write_free(state, row, number, block, [start, start]);
        return original();
    }
    original();
    write_free(state, row, number, block, [start, state.now()]);
}

#[inline(always)]
fn write_free(state: &State, row: &ThreadRow, number: u16, block: usize, [start, end]: [u64; 2]) {
    let (Some(seen), Some(chosen)) = (row.seen.get(FREED), row.chosen.get(FREED)) else { return };
    local::increment(seen);
    local::increment(chosen);
    record::write(state, number, Class::HostFree, start, end, [block as u64, 0, 0, 0]);
}

/// Frees the old block and allocates the new one, as far as the books are concerned.
#[inline(always)]
fn resize<const FULL: bool>(
    number: u16,
    old: usize,
    bytes: usize,
    original: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    // Before the call: another thread may get, and record, the old address as soon as it is free.
    let tracked = old != 0 && (FULL || tracked::may_be(old) && tracked::remove(old));
    if FULL
        && old != 0
        && let Some((state, _)) = known().or_else(registered)
    {
        culling::tell_before(state, old);
    }
    // The free is written before the allocation, with a time before it: the new block may have the old one's address.
    let before = if tracked { session::now() } else { 0 };
    allocation::<FULL>(number, bytes, || {
        let new = original();
        if tracked && new.is_null() && bytes != 0 {
            if !FULL {
                tracked::insert(old); // the old block lives on
            }
        } else if tracked
            && let Some((state, row)) = registered()
            && !state.is_paused()
        {
            write_free(state, row, FREE, old, [before, before]);
        }
        new
    })
}
