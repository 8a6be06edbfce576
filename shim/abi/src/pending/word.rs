//! What is known of a block in one word, and where the word stands.

/// Bits of a place's number.
pub const SLOT_BITS: u32 = 17;
/// Places of the table.
pub const SLOTS: usize = 1 << SLOT_BITS;
/// Blocks have addresses of so many bits, above the four that are zero.
const ADDRESS_BITS: u32 = 44;
pub(super) const SIZED_BITS: u32 = 11;
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
/// Where in a word what its place does not say of the address stands.
pub const TAG_AT: u32 = THREAD_AT + 12;
const _: () = assert!(TAG_AT + ADDRESS_BITS - SLOT_BITS == 64);

/// What words say of the thread of this row.
pub const fn owner(row: u16) -> u64 {
    (row as u64) << THREAD_AT
}

/// What they say of a beat; 0: there is none.
pub const fn stamp(beat: u64) -> u64 {
    beat << SIZED_BITS
}

/// In the place of both: nothing is known. No word of a block is like it, and none like that of an empty place either.
pub const UNKNOWN: u64 = 1 << 63;

/// What they say of [`MALLOC`] or [`CALLOC`], and a size below [`MOST_BYTES`].
pub const fn sized(function: u64, bytes: usize) -> u64 {
    function << (SIZED_BITS - 1) | bytes as u64
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

    /// Function and size, for [`super::Counts::pairs`].
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

    /// What the block's place and this word differ in, at or above [`SIZES`] unless the block is this one, by the same thread in the same beat
    /// ([`super::Counts::known`]): then its function and size.
    #[inline(always)]
    pub const fn against(self, place: Place, known: u64) -> u64 {
        self.0 ^ (place.tag << TAG_AT | known)
    }

    /// Whether it is the block of this place.
    #[inline(always)]
    pub const fn is_of(self, place: Place) -> bool {
        self.0 != 0 && self.0 >> TAG_AT == place.tag
    }
}

/// Where an address stands in the table, and what of it the place does not say.
///
/// One place for each 32 bytes: libc's blocks, the smallest of which are that far apart, have one each, and of the table, which the program
/// has to fetch as it does its blocks, half as much is in use as with one for each 16 (a program of small objects took 1.20 of its time on a
/// Xeon in place of 1.27). Allocators that have blocks of 16 bytes side by side lose half of those to each other.
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
        let (window, cell) = (at >> (SLOT_BITS + 1), at >> 1);
        Some(Place { index: ((cell & (SLOTS as u64 - 1)) ^ spread(window)) as usize, tag: window << 1 | at & 1 })
    }

    /// The word of a block of this address: all of it but for the address is what its thread knew before it got that ([`owner`], [`stamp`],
    /// [`sized`]).
    #[inline(always)]
    pub const fn word(self, known: u64) -> Word {
        Word(self.tag << TAG_AT | known)
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
    let (window, odd) = (tag >> 1, tag & 1);
    (window << SLOT_BITS | index as u64 ^ spread(window)) << 5 | odd << 4
}

/// Heaps of threads begin at multiples of 64 MiB: what lies alike in them is not to have one place.
#[inline(always)]
const fn spread(tag: u64) -> u64 {
    ((tag as u32).wrapping_mul(SPREAD) >> (u32::BITS - SLOT_BITS)) as u64
}

/// Spreads tags.
pub const SPREAD: u32 = 0x9e37_79b9;

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
pub(super) const fn began(beat: u64, shift: u32, now: u64) -> u64 {
    let beats = beats_between(beat, beat_of(now, shift));
    if beats == 0 && beat != beat_of(now, shift) {
        return now;
    }
    (now >> shift).saturating_sub(beats) << shift
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
                let (owned, stamped) = (owner(thread), stamp(beat));
                let word = place.word(owned | stamped | sized(function, bytes));
                assert_eq!(address(place.index(), word), block as u64);
                assert_eq!((word.thread(), word.beat()), (thread.into(), beat));
                assert_eq!((word.function() as u64, word.bytes()), (function, bytes as u64));
                assert!(word.is_of(place) && word != Word::NONE);
                let beside = Place::of(block ^ 16).unwrap();
                assert_eq!(beside.index(), place.index());
                assert!(!word.is_of(beside) && word.against(beside, owned | stamped) >= SIZES as u64);
                assert_eq!(word.against(place, owned | stamped), word.sized() as u64);
                assert!(word.against(place, owner(thread ^ 1) | stamped) >= SIZES as u64);
                assert!(word.against(place, owned | stamp(beat % BEATS + 1)) >= SIZES as u64);
                let other = Place::of(block ^ 1 << 30).unwrap();
                assert!(!word.is_of(other) && word.against(other, owned | stamped) >= SIZES as u64);
            }
        }
        assert!(!Word::NONE.is_of(Place::of(0).unwrap()));
        assert!(Word::NONE.against(Place::of(0).unwrap(), UNKNOWN) >= SIZES as u64);
        assert!(Word::NONE.against(Place::of(0).unwrap(), stamp(1)) >= SIZES as u64);
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
}
