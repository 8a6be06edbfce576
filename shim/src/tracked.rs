//! The recorded blocks that live, so that their frees are recorded too.
//!
//! A free asks a filter first: one byte for each KiB of addresses (what lies 4 GiB above counts with it), the number of recorded blocks
//! that begin there. Most frees end there. By pages it would cost several times as much: a program frees most where it has
//! just allocated, and a recorded block that lives there would send all frees of its page the long way; by less than a KiB it would take
//! more of the first-level cache than it spares. Of its 4 MiB most is never
//! written, and so is one and the same page of zeros to the processor's caches. Behind it is an exact table, in
//! buckets of a cache line. Counts are exact too, so the filter is as good after days as at the start: a block that would
//! overflow its cell's count, or finds its bucket full, is not followed, and counted. The table is made for the machine: should all its memory be
//! allocated, it is half full. Most programs have some hundred recorded blocks, which stand in a small table before it: a large one of which they
//! use a line here and there is in no cache, and each of its pages is a fault.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use crate::{session, sys};

/// Places of the table at least and at most. Powers of two.
const FEWEST: usize = 1 << 16;
const MOST: usize = 1 << 23;

/// Always looked at: the cell of no block, so that `free(NULL)` takes the slow way, and the fast one need not ask.
const ALWAYS: u8 = u8::MAX;
/// More recorded blocks of a cell are not followed.
const FULL: u8 = u8::MAX - 1;

const BUCKET: usize = 8;
#[repr(align(64))]
struct Bucket([AtomicUsize; BUCKET]);

/// Buckets of the small table: 8 KiB.
const FEW: usize = 128;
static SMALL: [Bucket; FEW] = [const { Bucket([const { AtomicUsize::new(0) }; BUCKET]) }; FEW];
/// Blocks that stand in the large one: while there are none, nobody looks there.
static SPILLED: AtomicUsize = AtomicUsize::new(0);

/// A cell's addresses differ in so many bits. Which cell it is say the others of an address's lower half.
pub(crate) const CELL_BITS: u32 = 10;
const CELLS: usize = 1 << (u32::BITS - CELL_BITS);
/// Null where nothing is sampled, or no memory was there. Neither is ever unmapped.
pub(crate) static FILTER: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());
static BUCKETS: AtomicPtr<Bucket> = AtomicPtr::new(core::ptr::null_mut());
/// One less than there are buckets.
static BUCKET_MASK: AtomicUsize = AtomicUsize::new(0);

/// Makes filter and table for samples that lie so many bytes apart. Once, in the constructor, before any block is recorded.
pub(crate) fn prepare(mean_bytes: u64) {
    let blocks = sys::memory_bytes().checked_div(mean_bytes).unwrap_or(0).min(MOST as u64) as usize;
    let places = blocks.saturating_mul(2).next_power_of_two().clamp(FEWEST, MOST);
    let (Ok(filter), Ok(buckets)) = (sys::map(CELLS, None), sys::map(places * size_of::<usize>(), None)) else {
        return;
    };
    sys::keep_pages_small(filter, CELLS);
    BUCKET_MASK.store(places / BUCKET - 1, Ordering::Relaxed);
    BUCKETS.store(buckets.cast(), Ordering::Relaxed);
    // SYNC POINT: filter. Release, with the Acquire in `cell`: who sees the filter sees the table.
    FILTER.store(filter.cast(), Ordering::Release);
    if let Some(of_none) = cell(0) {
        of_none.store(ALWAYS, Ordering::Relaxed);
    }
}

#[inline(always)]
fn cell(address: usize) -> Option<&'static AtomicU8> {
    // SYNC POINT: filter. Acquire, with the Release in `prepare`.
    let filter = FILTER.load(Ordering::Acquire);
    let at = address as u32 >> CELL_BITS;
    // SAFETY: null, or as many bytes as the shift leaves numbers; any byte is a count.
    (!filter.is_null()).then(|| unsafe { &*filter.add(at as usize) })
}

/// Whether a block at this address may have been recorded. False for all others but those in the same few cells.
#[inline(always)]
pub(crate) fn may_be(address: usize) -> bool {
    cell(address).is_some_and(|cell| cell.load(Ordering::Relaxed) != 0)
}

fn hash(address: usize) -> usize {
    ((address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

/// A block's places in the small table.
fn small(address: usize) -> &'static [AtomicUsize] {
    SMALL.get(hash(address) % FEW).map_or(&[], |Bucket(places)| places)
}

/// Those in the large one.
fn large(address: usize) -> &'static [AtomicUsize] {
    let buckets = BUCKETS.load(Ordering::Relaxed);
    let at = hash(address) & BUCKET_MASK.load(Ordering::Relaxed);
    // SAFETY: null, or the table, which has a bucket for each number that the mask leaves, and is never unmapped.
    let bucket = (!buckets.is_null()).then(|| unsafe { &*buckets.add(at) });
    bucket.map_or(&[], |Bucket(places)| places)
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
    let Some(cell) = cell(address) else { return false };
    let more = |n: u8| match n {
        ALWAYS => Some(ALWAYS),
        FULL => None,
        n => Some(n + 1),
    };
    // The cell first: a free that came between would find nothing to look for.
    if cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
        return false;
    }
    let placed = replace(small(address), 0, address) || spills(address);
    if !placed {
        leave(cell);
    }
    placed
}

/// Whether it found a place in the large table.
#[cold]
fn spills(address: usize) -> bool {
    SPILLED.fetch_add(1, Ordering::Relaxed);
    let placed = replace(large(address), 0, address);
    if !placed {
        SPILLED.fetch_sub(1, Ordering::Relaxed);
    }
    placed
}

/// Puts a word in the place of another one, if it is there. Looks first: an exchange that finds something else costs as much as one that does
/// not, and there are eight places. One function for all who ask: none of them has it in a cache.
#[inline(never)]
fn replace(places: &[AtomicUsize], old: usize, new: usize) -> bool {
    while let Some(place) = places.iter().find(|place| place.load(Ordering::Relaxed) == old) {
        if place.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return true;
        }
    }
    false
}

fn leave(cell: &AtomicU8) {
    let fewer = |n: u8| if n == ALWAYS { None } else { n.checked_sub(1) };
    let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
}

/// Whether the block that is about to be freed was recorded; forgets it. Before the free: another thread may get, and
/// record, the same address right after it.
pub(crate) fn remove(address: usize) -> bool {
    let Some(cell) = cell(address) else { return false };
    let found = replace(small(address), address, 0) || was_spilled(address);
    if found {
        leave(cell);
    }
    found
}

fn was_spilled(address: usize) -> bool {
    let found = SPILLED.load(Ordering::Relaxed) > 0 && replace(large(address), address, 0);
    if found {
        SPILLED.fetch_sub(1, Ordering::Relaxed);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_until_they_are_freed_where_the_small_table_is_full_too() {
        prepare(512 << 10);
        let blocks = || (0..4000).map(|n| 0x7f00_0010_0000 + n * 2064);
        assert_eq!(blocks().filter(|block| find_place(*block)).count(), 4000);
        assert!(SPILLED.load(Ordering::Relaxed) > 2900);
        assert!(blocks().all(may_be) && !remove(0x7f00_0010_0010));
        // The last first: those of the small table go last.
        assert!(blocks().rev().all(remove) && !blocks().any(|block| may_be(block) || remove(block)));
        assert_eq!(SPILLED.load(Ordering::Relaxed), 0);
    }
}
