//! What was already written into this process's rings, so that it is written once: stacks and code objects, by hash.
//!
//! A set of fixed size that forgets: what falls out is written again when it comes back, which costs time and no
//! truth. Most programs have some hundred stacks: these stand in a small set before the large one, of whose memory each new one would
//! take a page of its own. A forked child has a segment of its own in which nothing stands yet, and inherits the sets; so entries are
//! scrambled with a number that is new for each segment, and whenever the collector forgets what was written.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::thread::State;

const WAYS: usize = 4;
type Bucket = [AtomicU64; WAYS];
/// Buckets of the small set: 8 KiB.
const FEW: usize = 256;

/// A set of so many times four hashes, and some more.
pub(super) struct Known<const BUCKETS: usize = 4096> {
    /// Where a bucket of these is full, the rest is in `many`.
    few: [Bucket; FEW],
    many: [Bucket; BUCKETS],
}

/// New for each segment; odd, so that no entry is zero by design.
static SALT: AtomicU64 = AtomicU64::new(1);

/// The same, and new whenever the collector forgets.
static SINCE: AtomicU64 = AtomicU64::new(1);

/// A segment was made: nothing stands in it.
pub(crate) fn begin_segment(ticks: u64) {
    let salt = ticks.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    SALT.store(salt, Ordering::Relaxed);
    SINCE.store(salt, Ordering::Relaxed);
}

/// The number of what is written from now on: the collector has it until it has forgotten twice more. Who writes several things that name each
/// other takes one number for all, for another thread may go on to the next one meanwhile.
pub(super) fn since(state: &State) -> u64 {
    let forgotten = u64::from(state.header().stacks_forgotten.load(Ordering::Relaxed));
    let since = salt().wrapping_add(forgotten << 1);
    if last_since() != since {
        SINCE.store(since, Ordering::Relaxed);
    }
    since
}

/// The number that is new for each segment.
pub(super) fn salt() -> u64 {
    SALT.load(Ordering::Relaxed)
}

/// The last number that was asked for.
#[inline(always)]
pub(super) fn last_since() -> u64 {
    SINCE.load(Ordering::Relaxed)
}

impl<const BUCKETS: usize> Known<BUCKETS> {
    pub(super) const fn new() -> Self {
        Known {
            few: [const { [const { AtomicU64::new(0) }; WAYS] }; FEW],
            many: [const { [const { AtomicU64::new(0) }; WAYS] }; BUCKETS],
        }
    }

    fn few(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        self.few.get((hash >> 12) as usize % FEW).into_iter().flatten()
    }

    fn many(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        self.many.get((hash >> 20) as usize % BUCKETS).into_iter().flatten()
    }

    /// Whether it was written under this number.
    #[inline]
    pub(super) fn has(&self, hash: u64, since: u64) -> bool {
        let entry = hash ^ since;
        // Nothing is ever taken out: behind one that is empty there is nothing, in the large set either.
        let mut few = self.few(hash).map(|way| way.load(Ordering::Relaxed));
        match few.find(|word| *word == entry || *word == 0) {
            Some(word) => word == entry,
            None => self.many(hash).any(|way| way.load(Ordering::Relaxed) == entry),
        }
    }

    /// It was written under this number. Takes the place of another one where its bucket is full.
    pub(super) fn insert(&self, hash: u64, since: u64) {
        let entry = hash ^ since;
        let empty = |way: &AtomicU64| way.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !self.few(hash).chain(self.many(hash)).any(empty)
            && let Some(oldest) = self.many(hash).nth((hash >> 50) as usize % WAYS)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_small_set_has_no_room_for_stands_in_the_large_one() {
        static SET: Known = Known::new();
        let hashes = || (1..=3000u64).map(|n| mix(7, n));
        for hash in hashes() {
            assert!(!SET.has(hash, 1));
            SET.insert(hash, 1);
            assert!(SET.has(hash, 1) && !SET.has(hash, 3));
        }
        let kept = hashes().filter(|hash| SET.has(*hash, 1)).count();
        let few = SET.few.iter().flatten().filter(|way| way.load(Ordering::Relaxed) != 0).count();
        assert!(kept == 3000 && few > 900, "{kept} {few}");
    }
}
