//! What a thread counts of short lives.

use super::word::SIZES;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What a thread counts of blocks that it allocated and freed again, in a chunk of the pool. Nobody sets a count back, so a reader adds what is
/// more than it has taken.
#[repr(C)]
pub struct Counts {
    /// Blocks by function and size, which is exact: one addition counts a block and its bytes.
    pub pairs: [AtomicU64; SIZES],
    /// So many of them the collector has taken, the lower half.
    pub taken: [AtomicU32; SIZES],
    /// Beats for which those lived that were freed in a later beat than they were allocated.
    pub aged: AtomicU64,
    /// So many of these the collector has taken.
    pub aged_taken: AtomicU64,
    /// What the thread's words say of it and of the beat ([`super::owner`], [`super::stamp`]). The collector sets it to [`super::UNKNOWN`] at each beat: then the thread looks
    /// for what else is new, and goes on with the present one.
    pub known: AtomicU64,
    /// Blocks of the thread that collectors have told of. The collector's.
    pub told: AtomicU64,
    /// The thread's own: how many blocks lost their places to its blocks; what it had counted when it looked last whether that is worth it; and how
    /// many allocations it puts nothing into the table.
    pub displaced: AtomicU64,
    /// See `displaced`.
    pub gained: AtomicU64,
    /// See `displaced`.
    pub rests: AtomicU64,
}

impl Default for Counts {
    /// Counts as they are in fresh memory: zeros.
    fn default() -> Counts {
        let [aged, aged_taken, known, told, displaced, gained, rests] = core::array::from_fn(|_| AtomicU64::new(0));
        let pairs = core::array::from_fn(|_| AtomicU64::new(0));
        Counts {
            pairs,
            taken: core::array::from_fn(|_| AtomicU32::new(0)),
            aged,
            aged_taken,
            known,
            told,
            displaced,
            gained,
            rests,
        }
    }
}

impl Counts {
    /// All that was counted.
    pub fn sum(&self) -> u64 {
        self.pairs.iter().map(|pairs| pairs.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Sets everything back: for the next thread, or for whoever has the chunk next.
    pub fn clear(&self) {
        self.pairs.iter().for_each(|pairs| pairs.store(0, Ordering::Relaxed));
        self.taken.iter().for_each(|taken| taken.store(0, Ordering::Relaxed));
        let words = [&self.aged, &self.aged_taken, &self.known, &self.told, &self.displaced, &self.gained, &self.rests];
        words.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// What was counted and not taken yet, by function and size; it is taken now.
    pub fn take(&self, mut each: impl FnMut(usize, u64)) {
        for (sized, (pairs, taken)) in self.pairs.iter().zip(&self.taken).enumerate() {
            let (now, before) = (pairs.load(Ordering::Relaxed) as u32, taken.load(Ordering::Relaxed));
            if now != before {
                taken.store(now, Ordering::Relaxed);
                each(sized, now.wrapping_sub(before).into());
            }
        }
    }

    /// So many blocks were taken.
    pub fn taken(&self) -> u64 {
        let taken = self.pairs.iter().zip(&self.taken).map(|(pairs, taken)| {
            let pairs = pairs.load(Ordering::Relaxed);
            pairs.wrapping_sub((pairs as u32).wrapping_sub(taken.load(Ordering::Relaxed)).into())
        });
        taken.fold(0, u64::wrapping_add)
    }

    /// Beats of [`Counts::aged`] that were not taken yet.
    pub fn take_aged(&self) -> u64 {
        let now = self.aged.load(Ordering::Relaxed);
        now.wrapping_sub(self.aged_taken.swap(now, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_taken_once() {
        let counts = Counts::default();
        let take = || {
            let mut all = std::vec::Vec::new();
            counts.take(|sized, pairs| all.push((sized, pairs)));
            all
        };
        counts.pairs[7].store(3, Ordering::Relaxed);
        counts.pairs[SIZES - 1].store((1 << 32) + 2, Ordering::Relaxed);
        assert_eq!(take(), [(7, 3), (SIZES - 1, 2)]);
        counts.pairs[7].store(4, Ordering::Relaxed);
        counts.pairs[SIZES - 1].store((2 << 32) + 1, Ordering::Relaxed);
        assert_eq!(take(), [(7, 1), (SIZES - 1, u32::MAX.into())]);
        assert_eq!((take(), counts.sum(), counts.taken()), (std::vec::Vec::new(), (2 << 32) + 5, (2 << 32) + 5));
        counts.pairs[7].store(6, Ordering::Relaxed);
        assert_eq!((counts.sum(), counts.taken()), ((2 << 32) + 7, (2 << 32) + 5));
        counts.clear();
        assert_eq!((take(), counts.sum()), (std::vec::Vec::new(), 0));
    }
}
