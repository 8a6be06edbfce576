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
//! put a block there. An age is known to one pass, and times that are told late are too early by up to one.

#[cfg(not(loom))]
use crate::layout::{CHUNKS_AT, View};
#[cfg(not(loom))]
use crate::ring::{CHUNK_BYTES, Chunks};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const SLOT_BITS: u32 = 17;
/// Places of the table.
pub const SLOTS: usize = 1 << SLOT_BITS;
/// Blocks have addresses of so many bits, above the four that are zero.
const ADDRESS_BITS: u32 = 44;
const SIZED_BITS: u32 = 11;
/// Blocks that are put here are smaller than this: what is told late is never much.
pub const MOST_BYTES: usize = 1 << (SIZED_BITS - 1);
/// Sizes of each of the two functions.
pub const SIZES: usize = 1 << SIZED_BITS;
/// Number of malloc and of calloc in a word.
pub const MALLOC: u64 = 0;
/// See [`MALLOC`].
pub const CALLOC: u64 = 1;
/// Beats have so many numbers, 1 the first: no word is zero.
pub const BEATS: u64 = (1 << 14) - 1;
const THREAD_AT: u32 = SIZED_BITS + 14;
const TAG_AT: u32 = THREAD_AT + 12;
const _: () = assert!(TAG_AT + ADDRESS_BITS - SLOT_BITS == 64);

/// Set in the second word of an event that was told late, beside the thread ([`late_thread`]).
pub const LATE: u64 = 1 << 63;

/// The second word of an event that was told late, of the thread with this id.
pub const fn late(tid: u32) -> u64 {
    LATE | (tid as u64) << 16
}

/// The id of the thread that made the call, where the event was told late.
pub const fn late_thread(word: u64) -> Option<i32> {
    if word & LATE != 0 { Some((word >> 16) as i32) } else { None }
}

/// What a place of the table holds: address but for what the place says, thread, beat, function and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    /// Nothing.
    pub const NONE: Word = Word(0);

    /// Number of the thread's row.
    pub const fn thread(self) -> usize {
        (self.0 >> THREAD_AT & 0xfff) as usize
    }

    /// Its beat.
    pub const fn beat(self) -> u64 {
        self.0 >> SIZED_BITS & BEATS
    }

    /// Function and size, for [`Counts::pairs`].
    pub const fn sized(self) -> usize {
        self.0 as usize & (SIZES - 1)
    }

    /// [`MALLOC`] or [`CALLOC`].
    pub const fn function(self) -> usize {
        self.sized() >> (SIZED_BITS - 1)
    }

    /// Its size.
    pub const fn bytes(self) -> u64 {
        self.0 & (MOST_BYTES as u64 - 1)
    }

    /// What the block's place and this word differ in, at or above [`SIZES`] unless the block is this one, by the same thread in the same beat:
    /// then its function and size.
    #[inline(always)]
    pub const fn against(self, place: Place, thread: u16, beat: u64) -> u64 {
        self.0 ^ (place.tag << TAG_AT | (thread as u64) << THREAD_AT | beat << SIZED_BITS)
    }

    /// Whether it is the block of this place.
    #[inline(always)]
    pub const fn is_of(self, place: Place) -> bool {
        self.0 != 0 && self.0 >> TAG_AT == place.tag
    }
}

/// Where an address stands in the table, and what of it the place does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    index: usize,
    tag: u64,
}

impl Place {
    /// None: blocks with such an address are not put there.
    #[inline(always)]
    pub const fn of(address: usize) -> Option<Place> {
        // What is no multiple of 16 has bits at the top.
        let at = (address as u64).rotate_right(4);
        if at >> ADDRESS_BITS != 0 {
            return None;
        }
        let tag = at >> SLOT_BITS;
        Some(Place { index: ((at ^ spread(tag)) as usize) & (SLOTS - 1), tag })
    }

    /// The word of a block of this address.
    #[inline(always)]
    pub const fn word(self, thread: u16, beat: u64, function: u64, bytes: usize) -> Word {
        let sized = function << (SIZED_BITS - 1) | bytes as u64;
        Word(self.tag << TAG_AT | (thread as u64) << THREAD_AT | beat << SIZED_BITS | sized)
    }

    /// Number of the place in the table.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.index
    }
}

/// The address of the block that has this word at this place.
pub const fn address(index: usize, word: Word) -> u64 {
    let tag = word.0 >> TAG_AT;
    let low = (index as u64 ^ spread(tag)) & (SLOTS as u64 - 1);
    (tag << SLOT_BITS | low) << 4
}

/// Heaps of threads begin at multiples of 64 MiB: what lies alike in them is not to have one place.
#[inline(always)]
const fn spread(tag: u64) -> u64 {
    tag.wrapping_mul(0x9e37_79b9) >> 12
}

/// The number of a moment's beat, which is so many powers of two of ticks long.
pub const fn beat_of(ticks: u64, shift: u32) -> u64 {
    (ticks >> shift) % BEATS + 1
}

/// How many beats lie between two; none where the later one is the earlier, for two clocks may differ a little.
pub const fn beats_between(earlier: u64, later: u64) -> u64 {
    let beats = (later + BEATS - earlier) % BEATS;
    if beats > BEATS / 2 { 0 } else { beats }
}

/// The moment at which a beat began, seen at a later one: never after it.
pub const fn began(beat: u64, shift: u32, now: u64) -> u64 {
    let beats = beats_between(beat, beat_of(now, shift));
    if beats == 0 && beat != beat_of(now, shift) {
        return now;
    }
    (now >> shift).saturating_sub(beats) << shift
}

/// The table, behind the chunks of a segment.
#[repr(C, align(64))]
pub struct Pending<const N: usize = SLOTS> {
    /// Number of the present beat; 0: none is put here, for nobody would take it out. The collector's.
    pub beat: AtomicU64,
    /// Powers of two of ticks that it lasts. The collector's.
    pub shift: AtomicU32,
    /// A block that lives for no more beats than so has a short life. The collector's.
    pub limit: AtomicU32,
    /// Hooks of [`MALLOC`] and [`CALLOC`].
    pub hooks: [AtomicU32; 2],
    padding: [AtomicU64; 5],
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
            beat: AtomicU64::new(0),
            shift: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            hooks: [AtomicU32::new(0), AtomicU32::new(0)],
            padding: core::array::from_fn(word),
            slots: core::array::from_fn(word),
        }
    }
}

impl<const N: usize> Pending<N> {
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
    /// The beat in which the thread last looked for what else is new.
    pub beat: AtomicU64,
}

impl Default for Counts {
    /// Counts as they are in fresh memory: zeros.
    fn default() -> Counts {
        let [aged, aged_taken, beat] = core::array::from_fn(|_| AtomicU64::new(0));
        let pairs = core::array::from_fn(|_| AtomicU64::new(0));
        Counts { pairs, taken: core::array::from_fn(|_| AtomicU32::new(0)), aged, aged_taken, beat }
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
        [&self.aged, &self.aged_taken, &self.beat].into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
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
    fn a_place_and_its_word_say_the_whole_address_and_all_that_is_known_of_the_block() {
        for at in [1u64, 0x5555_5555_5555, 0x7f12_3456_789a, 0x0fff_ffff_ffff, 0x200_0000, 0x1f_ffff] {
            let block = (at << 4 & 0xffff_ffff_ffff) as usize;
            let place = Place::of(block).unwrap();
            for (thread, beat, function, bytes) in
                [(0, 1, MALLOC, 0), (4095, BEATS, CALLOC, 1023), (77, 5000, MALLOC, 500)]
            {
                let word = place.word(thread, beat, function, bytes);
                assert_eq!(address(place.index(), word), block as u64);
                assert_eq!((word.thread(), word.beat()), (thread.into(), beat));
                assert_eq!((word.function() as u64, word.bytes()), (function, bytes as u64));
                assert!(word.is_of(place) && word != Word::NONE);
                assert_eq!(word.against(place, thread, beat), word.sized() as u64);
                assert!(word.against(place, thread ^ 1, beat) >= SIZES as u64);
                assert!(word.against(place, thread, beat % BEATS + 1) >= SIZES as u64);
                let other = Place::of(block ^ 1 << 30).unwrap();
                assert!(!word.is_of(other) && word.against(other, thread, beat) >= SIZES as u64);
            }
        }
        assert!(!Word::NONE.is_of(Place::of(0).unwrap()));
        assert!(Word::NONE.against(Place::of(0).unwrap(), 0, 1) >= SIZES as u64);
        assert_eq!([24, 1 << 48, 8].map(Place::of), [None; 3]);
    }

    #[test]
    fn beats_go_round_and_two_that_are_told_in_the_wrong_order_are_no_time() {
        assert_eq!((beat_of(0, 4), beat_of(BEATS * 16 - 1, 4), beat_of(BEATS * 16, 4)), (1, BEATS, 1));
        assert_eq!((beats_between(5, 9), beats_between(BEATS, 2), beats_between(9, 8)), (4, 2, 0));
        let now = (BEATS + 3) * 16 + 5;
        assert_eq!(began(beat_of(now, 4), 4, now), (BEATS + 3) * 16);
        assert_eq!(began(beat_of(now - 80, 4), 4, now), (BEATS - 2) * 16);
        assert_eq!(began(beat_of(now + 32, 4), 4, now), now);
    }

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
        assert_eq!((take(), counts.sum()), (std::vec::Vec::new(), (2 << 32) + 5));
        counts.clear();
        assert_eq!((take(), counts.sum()), (std::vec::Vec::new(), 0));
    }
}
