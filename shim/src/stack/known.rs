//! What was already written into this process's rings, so that it is written once: stacks and code objects, by hash.
//!
//! A set of fixed size that forgets: what falls out is written again when it comes back, which costs time and no
//! truth. A forked child has a segment of its own in which nothing stands yet, and inherits the sets; so entries are
//! scrambled with a number that is new for each segment.

use core::sync::atomic::{AtomicU64, Ordering};

const WAYS: usize = 4;

/// A set of so many times four hashes.
pub(super) struct Known<const BUCKETS: usize = 4096>([[AtomicU64; WAYS]; BUCKETS]);

/// New for each segment; odd, so that no entry is zero by design.
static SALT: AtomicU64 = AtomicU64::new(1);

/// A segment was made: nothing stands in it.
pub(crate) fn begin_segment(ticks: u64) {
    SALT.store(ticks.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, Ordering::Relaxed);
}

/// The number that is new for each segment.
pub(super) fn salt() -> u64 {
    SALT.load(Ordering::Relaxed)
}

impl<const BUCKETS: usize> Known<BUCKETS> {
    pub(super) const fn new() -> Self {
        Known([const { [const { AtomicU64::new(0) }; WAYS] }; BUCKETS])
    }

    fn bucket(&self, hash: u64) -> Option<&[AtomicU64; WAYS]> {
        self.0.get((hash >> 20) as usize % BUCKETS)
    }

    fn entry(hash: u64) -> u64 {
        hash ^ salt()
    }

    /// Whether it was written.
    #[inline]
    pub(super) fn has(&self, hash: u64) -> bool {
        let entry = Self::entry(hash);
        self.bucket(hash).is_some_and(|ways| ways.iter().any(|way| way.load(Ordering::Relaxed) == entry))
    }

    /// It was written. Takes the place of another one where its bucket is full.
    pub(super) fn insert(&self, hash: u64) {
        let entry = Self::entry(hash);
        let Some(ways) = self.bucket(hash) else { return };
        let empty = |way: &&AtomicU64| way.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if ways.iter().find(empty).is_none()
            && let Some(oldest) = ways.get((hash >> 50) as usize % WAYS)
        {
            oldest.store(entry, Ordering::Relaxed);
        }
    }
}

/// One more word into a hash.
#[inline(always)]
pub(super) fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}
