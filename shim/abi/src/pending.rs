//! Blocks of malloc that nothing has been told of yet, where short lives are summed up (`--malloc full --cull`).
//!
//! Two events for each block that is gone a moment later cost more than the block. So an allocation puts one word into a table of
//! the process, at the place that its address has there, and the free that finds it takes it out again and adds to its thread's
//! counts ([`Counts`]): no event, no clock. Whatever cannot be such a pair becomes an event, told late: a block whose place another
//! one needs, that another thread frees, that is resized, that is freed after the limit; and one that has stood there for longer
//! than that, which the collector takes itself, as it takes all that is left when the process ends. The table is in the segment, so
//! that a killed process loses none of it.
//!
//! **One word, taken once.** An address has one place, and a word says all that is known of the block. Who exchanges the word for
//! another owns what it said, whichever thread or process that is; nobody writes a place otherwise. So a block is counted or told
//! once, also where one thread frees what another one allocated, and an address that is in use again finds its own place.
//!
//! **Order.** An event told late bears two times: when it was allocated, as far as that is known, and a moment at which the block
//! was there, by which it is put in order. That one is read before the word is taken out, and a free reads the clock after it has
//! looked: so it lies after every earlier free of the same address, and before its own.
//!
//! **Time.** Words bear the number of the *beat*, which the collector makes of the clock at each pass, so nobody reads a clock to
//! put a block there. An age is known to one pass, and times that are told late are too early by up to one. Who tells of another thread's block has read
//! the clock for that, and puts its own next ones there by it: threads that free each other's blocks would have all begin with the pass. What was put there since the
//! pass before is never old, however late a pass comes: all that lives then would be told at once, and hold up the next one.

#[cfg(not(loom))]
use crate::layout::{CHUNKS_AT, View};
#[cfg(not(loom))]
use crate::ring::{CHUNK_BYTES, Chunks};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

mod counts;
mod word;

pub use counts::Counts;
use word::began;
pub use word::{
    BEATS, CALLOC, MALLOC, MOST_BYTES, Place, SIZES, SLOTS, UNKNOWN, Word, address, beat_of, beats_between, owner,
    sized, stamp,
};

/// Set in the second word of an event that was told late, beside the thread ([`late_thread`]).
const LATE: u64 = 1 << 63;

/// The second word of an event that was told late, of the thread with this id.
pub const fn late(tid: u32) -> u64 {
    LATE | (tid as u64) << 16
}

/// The id of the thread that made the call, where the event was told late.
pub const fn late_thread(word: u64) -> Option<i32> {
    if word & LATE != 0 { Some((word >> 16) as i32) } else { None }
}

/// The table, behind the chunks of a segment.
#[repr(C, align(64))]
pub struct Pending<const N: usize = SLOTS> {
    /// The present beat as words have it ([`stamp`]); 0: none is put here, for nobody would take it out. The collector's.
    pub stamp: AtomicU64,
    /// Powers of two of ticks that it lasts. The collector's.
    pub shift: AtomicU32,
    /// A block that lives for no more beats than so has a short life. The collector's.
    pub limit: AtomicU32,
    /// Hooks of [`MALLOC`] and [`CALLOC`].
    pub hooks: [AtomicU32; 2],
    /// When the present beat was made, ticks. The collector's.
    pub made: AtomicU64,
    padding: [AtomicU64; 4],
    slots: [AtomicU64; N],
}

/// Bytes of the table.
pub const BYTES: usize = size_of::<Pending>();

/// Chunks of which a segment with a table has so many fewer.
pub const CHUNKS: u32 = BYTES.div_ceil(32768) as u32;

#[cfg(not(loom))]
const _: () = {
    assert!(BYTES == 64 + 8 * SLOTS);
    assert!(CHUNKS as usize == BYTES.div_ceil(CHUNK_BYTES));
    assert!(COUNTS_AT + size_of::<Counts>() <= CHUNK_BYTES);
};

#[cfg(not(loom))]
impl View {
    /// The table, where there is one.
    pub fn pending(&self) -> Option<&Pending> {
        let header = self.header();
        let at = CHUNKS_AT + header.chunk_count.load(Ordering::Relaxed) as usize * CHUNK_BYTES;
        (header.pending.load(Ordering::Acquire) != 0 && at + BYTES <= self.bytes()).then(|| self.at(at))
    }

    /// The counts that stand in a chunk of the pool.
    pub fn counts(&self, chunk: u32) -> Option<&Counts> {
        self.chunk(chunk).filter(|_| chunk < self.chunk_count())?;
        Some(self.at(CHUNKS_AT + chunk as usize * CHUNK_BYTES + COUNTS_AT))
    }
}

/// Where counts stand in their chunk, whose header stays as it is.
#[cfg(not(loom))]
const COUNTS_AT: usize = 64;

impl<const N: usize> Default for Pending<N> {
    /// A table as it is in fresh memory: zeros.
    fn default() -> Pending<N> {
        let word = |_| AtomicU64::new(0);
        Pending {
            stamp: AtomicU64::new(0),
            shift: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            hooks: [AtomicU32::new(0), AtomicU32::new(0)],
            made: AtomicU64::new(0),
            padding: core::array::from_fn(word),
            slots: core::array::from_fn(word),
        }
    }
}

impl<const N: usize> Pending<N> {
    /// Number of the present beat; 0: there is none.
    pub fn beat(&self) -> u64 {
        self.stamp.load(Ordering::Acquire) >> word::SIZED_BITS
    }

    /// The number of a moment's beat; none where the collector has stood still for so long that numbers may go round.
    pub fn beat_at(&self, now: u64) -> Option<u64> {
        let (shift, made) = (self.shift.load(Ordering::Relaxed), self.made.load(Ordering::Relaxed));
        (now.saturating_sub(made) >> shift <= BEATS / 4).then(|| beat_of(now, shift))
    }

    /// When the beat of a word began, seen now: never after its block was there.
    pub fn began(&self, word: Word, now: u64) -> u64 {
        let (shift, made) = (self.shift.load(Ordering::Relaxed), self.made.load(Ordering::Relaxed));
        // Its thread has looked at the clock since the present beat was made.
        let is_later = beats_between(beat_of(made, shift), word.beat()) > 0;
        began(word.beat(), shift, if is_later { now } else { made })
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &AtomicU64 {
        // N is a power of two. The mask costs nothing where the index has it already.
        &self.slots[index & (N - 1)]
    }

    /// What stands at a place.
    #[inline(always)]
    pub fn at(&self, index: usize) -> Word {
        // SYNC POINT: pending. Acquire, with the Release in `exchange`: what the block's thread did before is seen.
        Word(self.slot(index).load(Ordering::Acquire))
    }

    /// Exchanges a word: true for one of all who try, who then owns what it said.
    #[inline(always)]
    pub fn exchange(&self, index: usize, old: Word, new: Word) -> bool {
        // SYNC POINT: pending. Release, with the Acquire in `at`; and whoever reads the clock first has read it before.
        self.slot(index).compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// What code needs that no compiler writes.
pub mod fixed {
    use core::mem::offset_of;

    pub use super::word::{SLOT_BITS, SPREAD, TAG_AT};
    use super::{Counts, Pending};

    /// Where things stand in a table, or in a thread's counts.
    pub const LIMIT: usize = offset_of!(Pending, limit);
    /// See [`LIMIT`].
    pub const SLOTS: usize = offset_of!(Pending, slots);
    /// See [`LIMIT`].
    pub const KNOWN: usize = offset_of!(Counts, known);
    /// See [`LIMIT`].
    pub const AGED: usize = offset_of!(Counts, aged);
    /// See [`LIMIT`].
    pub const PAIRS: usize = offset_of!(Counts, pairs);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_looked_at_the_clock_since_the_present_beat_was_made_is_ahead_of_it() {
        const SHIFT: u32 = 4;
        let table = Pending::<1>::default();
        let made = (3 * BEATS + 100) << SHIFT;
        table.shift.store(SHIFT, Ordering::Relaxed);
        table.made.store(made, Ordering::Relaxed);
        let began = |at: u64, now: u64| {
            let word = Word(owner(7) | stamp(beat_of(at, SHIFT)) | sized(MALLOC, 100));
            table.began(word, now)
        };
        // Of the present beat, of earlier ones, of later ones, and by a clock that is ahead of who sees it.
        assert_eq!(began(made + 3, made + 500), made);
        assert_eq!(began(made - (90 << SHIFT), made + 500), made - (90 << SHIFT));
        assert_eq!(began(made + (9 << SHIFT) + 5, made + (20 << SHIFT)), made + (9 << SHIFT));
        assert_eq!(began(made + (9 << SHIFT), made + (8 << SHIFT)), made + (8 << SHIFT));
        let far = (BEATS / 4) << SHIFT;
        assert_eq!(table.beat_at(made + far), Some(beat_of(made + far, SHIFT)));
        assert_eq!(table.beat_at(made + far + (1 << SHIFT)), None);
    }
}
