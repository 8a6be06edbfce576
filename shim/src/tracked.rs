//! The recorded blocks that live, so that their frees are recorded too.
//!
//! A free asks a filter first: one byte for each page of addresses (hashed), the number of recorded blocks that live there. Most
//! frees end there. Behind it is an exact table, in buckets of a cache line. Counts are exact too, so the filter is as good after
//! days as at the start: a block that would overflow its page's count, or finds its bucket full, is not followed, and
//! counted. Both are made for the machine: should all its memory be allocated, the table is half full.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use crate::{session, sys};

/// Places of the table, and pages that the filter tells apart, at least and at most. Powers of two.
const FEWEST: usize = 1 << 16;
const MOST: usize = 1 << 23;

/// Always looked at: the page of no block, so that `free(NULL)` takes the slow way, and the fast one need not ask.
const ALWAYS: u8 = u8::MAX;
/// More recorded blocks of a page are not followed.
const FULL: u8 = u8::MAX - 1;

const BUCKET: usize = 8;
#[repr(align(64))]
struct Bucket([AtomicUsize; BUCKET]);

/// A page's addresses differ in so many bits.
pub(crate) const PAGE_BITS: u32 = 12;
static FEW_PAGES: [AtomicU8; FEWEST] = [const { AtomicU8::new(0) }; FEWEST];
pub(crate) static PAGES: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const FEW_PAGES).cast_mut().cast());
/// One less than there are pages.
pub(crate) static PAGE_MASK: AtomicUsize = AtomicUsize::new(FEWEST - 1);
/// Null where nothing is sampled, or no memory was there.
static BUCKETS: AtomicPtr<Bucket> = AtomicPtr::new(core::ptr::null_mut());
/// One less than there are buckets.
static BUCKET_MASK: AtomicUsize = AtomicUsize::new(0);

/// Makes filter and table for samples that lie so many bytes apart. Once, in the constructor, before any block is recorded.
pub(crate) fn prepare(mean_bytes: u64) {
    let blocks = sys::memory_bytes().checked_div(mean_bytes).unwrap_or(0).min(MOST as u64) as usize;
    let places = blocks.saturating_mul(2).next_power_of_two().clamp(FEWEST, MOST);
    if let Ok(at) = sys::map(places * size_of::<usize>(), None) {
        BUCKET_MASK.store(places / BUCKET - 1, Ordering::Relaxed);
        BUCKETS.store(at.cast(), Ordering::Release);
    }
    page(0).store(ALWAYS, Ordering::Relaxed);
    if places > FEWEST
        && let Ok(at) = sys::map(places, None)
    {
        let pages: *mut AtomicU8 = at.cast();
        // SAFETY: the first byte of a new mapping that nobody else knows yet.
        unsafe { (*pages).store(ALWAYS, Ordering::Relaxed) };
        // A free between these two lines looks at fewer pages than there are.
        PAGES.store(pages, Ordering::Relaxed);
        // SYNC POINT: pages. Release, with the Acquire in `page`.
        PAGE_MASK.store(places - 1, Ordering::Release);
    }
}

#[inline(always)]
fn page(address: usize) -> &'static AtomicU8 {
    // SYNC POINT: pages. Acquire, with the Release in `prepare`: who sees the larger mask sees the larger filter.
    let at = address >> PAGE_BITS & PAGE_MASK.load(Ordering::Acquire);
    // SAFETY: there are at least so many pages, which are never unmapped; any byte is a count.
    unsafe { &*PAGES.load(Ordering::Relaxed).add(at) }
}

/// Whether a block at this address may have been recorded. False for all others but those on the same few pages.
#[inline(always)]
pub(crate) fn may_be(address: usize) -> bool {
    page(address).load(Ordering::Relaxed) != 0
}

fn bucket(address: usize) -> Option<&'static Bucket> {
    let buckets = BUCKETS.load(Ordering::Acquire);
    let hash = (address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let at = hash as usize & BUCKET_MASK.load(Ordering::Relaxed);
    // SAFETY: null, or the table, which has a bucket for each number that the mask leaves, and is never unmapped.
    (!buckets.is_null()).then(|| unsafe { &*buckets.add(at) })
}

/// Remembers a recorded block until it is freed. A block that finds no place is counted: its free will not be recorded.
pub(crate) fn insert(address: usize) {
    if !find_place(address)
        && let Some(view) = session::present()
    {
        view.header().unfollowed.fetch_add(1, Ordering::Relaxed);
    }
}

fn find_place(address: usize) -> bool {
    let Some(Bucket(places)) = bucket(address) else { return false };
    let page = page(address);
    let more = |n: u8| match n {
        ALWAYS => Some(ALWAYS),
        FULL => None,
        n => Some(n + 1),
    };
    // The page first: a free that came between would find nothing to look for.
    if page.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
        return false;
    }
    let placed = places.iter().any(|p| p.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).is_ok());
    if !placed {
        leave(page);
    }
    placed
}

fn leave(page: &AtomicU8) {
    let fewer = |n: u8| if n == ALWAYS { None } else { n.checked_sub(1) };
    let _ = page.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
}

/// Whether the block that is about to be freed was recorded; forgets it. Before the free: another thread may get, and
/// record, the same address right after it.
pub(crate) fn remove(address: usize) -> bool {
    let Some(Bucket(places)) = bucket(address) else { return false };
    let found = places.iter().any(|p| p.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok());
    if found {
        leave(page(address));
    }
    found
}
