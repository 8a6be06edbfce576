//! What is left out so that recording keeps to its budget. The collector says it in one word of the segment,
//! [`crate::layout::Header::shed`]: 0 leaves out nothing.
//!
//! | bits | part |
//! |---|---|
//! | 0 | no stacks are taken |
//! | 1 | no window of GPU times opens, and launches are timed no more often than half of their share pays for |
//! | 8 to 15 | malloc's samples lie 2^n times as far apart |
//! | 16 to 23 | one launch of a kernel in 2^n is recorded, the others are only counted |

/// Bits of [`crate::layout::Header::may_shed`]: what is recorded here and could be left out.
pub mod may {
    /// Stacks.
    pub const STACKS: u32 = 1;
    /// Samples of malloc.
    pub const MALLOC: u32 = 2;
    /// Launches of kernels.
    pub const LAUNCHES: u32 = 4;
    /// Windows of GPU times, or timed launches.
    pub const GPU_TIMES: u32 = 8;
}

/// What is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shed {
    /// All stacks.
    pub stacks: bool,
    /// Malloc's samples lie two to the power of this as far apart.
    pub malloc: u8,
    /// No window of GPU times opens, and few launches are timed.
    pub gpu_times: bool,
    /// One launch of a kernel in two to the power of this is recorded.
    pub launches: u8,
}

impl Shed {
    /// No power is higher, whatever the word says: sums stay inside their numbers.
    pub const MOST: u8 = 16;

    /// What the word says.
    #[inline]
    pub fn of(word: u32) -> Shed {
        let power = |shift: u32| ((word >> shift) as u8).min(Shed::MOST);
        Shed { stacks: word & 1 != 0, malloc: power(8), gpu_times: word & 2 != 0, launches: power(16) }
    }

    /// The word that says it.
    pub fn word(self) -> u32 {
        let marks = u32::from(self.stacks) | u32::from(self.gpu_times) << 1;
        marks | u32::from(self.malloc) << 8 | u32::from(self.launches) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_was_put_into_it_and_no_word_more_than_can_be() {
        let shed = Shed { stacks: true, malloc: 6, gpu_times: false, launches: 3 };
        assert_eq!((Shed::of(shed.word()), Shed::of(0)), (shed, Shed::default()));
        let most = Shed { stacks: true, malloc: Shed::MOST, gpu_times: true, launches: Shed::MOST };
        assert_eq!((Shed::of(u32::MAX), Shed::of(most.word())), (most, most));
    }
}
