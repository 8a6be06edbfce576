//! What was already written into this process's rings, so that it is written once: stacks and code objects, by hash.
//!
//! A set of fixed size that forgets: what falls out is written again when it comes back, which costs time and no
//! truth. A forked child has a segment of its own in which nothing stands yet, and inherits the sets; so entries are
//! scrambled with a number that is new for each segment, and whenever the collector forgets what was written.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::thread::State;

const WAYS: usize = 4;

/// A set of so many times four hashes.
pub(super) struct Known<const BUCKETS: usize = 4096>([[AtomicU64; WAYS]; BUCKETS]);

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
        Known([const { [const { AtomicU64::new(0) }; WAYS] }; BUCKETS])
    }

    fn bucket(&self, hash: u64) -> Option<&[AtomicU64; WAYS]> {
        self.0.get((hash >> 20) as usize % BUCKETS)
    }

    /// Whether it was written under this number.
    #[inline]
    pub(super) fn has(&self, hash: u64, since: u64) -> bool {
        let entry = hash ^ since;
        self.bucket(hash).is_some_and(|ways| ways.iter().any(|way| way.load(Ordering::Relaxed) == entry))
    }

    /// It was written under this number. Takes the place of another one where its bucket is full.
    pub(super) fn insert(&self, hash: u64, since: u64) {
        let entry = hash ^ since;
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
