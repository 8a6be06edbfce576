//! What glibc's malloc holds for itself, as the process told it last.
//!
//! One thread of the process writes, the collector reads. `turn` is odd while the words are written, and another even number after
//! that, so that a reader that finds the same even number before and after has words of one look.

use crate::sync::{AtomicU64, Ordering, fence};

/// Words that a process and its collector share.
#[derive(Default)]
#[repr(C)]
pub struct Arenas {
    turn: AtomicU64,
    words: [AtomicU64; 6],
}

/// One look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Ticks when it was begun.
    pub at: u64,
    /// Ticks that it took; each arena is locked for its part of them.
    pub took: u64,
    /// Bytes that the arenas have from the kernel.
    pub held: u64,
    /// Bytes of these that no block has.
    pub free: u64,
    /// Bytes of these at the heap's end, which malloc_trim would give back at once.
    pub at_end: u64,
    /// Bytes of blocks that have a mapping of their own, outside of the arenas.
    pub mapped: u64,
}

impl Arenas {
    /// Tells of a look. One thread of the process alone does.
    pub fn tell(&self, look: &Look) {
        let begun = self.turn.load(Ordering::Relaxed).wrapping_add(1) | 1;
        self.turn.store(begun, Ordering::Relaxed);
        // SYNC POINT: arenas. Release, with the Acquire in `read`: who sees one of the new words sees that a turn was begun.
        fence(Ordering::Release);
        let Look { at, took, held, free, at_end, mapped } = *look;
        for (place, word) in self.words.iter().zip([at, took, held, free, at_end, mapped]) {
            place.store(word, Ordering::Relaxed);
        }
        // SYNC POINT: arenas turned. Release, with the Acquire in `read`: the words are written.
        self.turn.store(begun.wrapping_add(1), Ordering::Release);
    }

    /// The last look, and its number; none: there was none yet, or one is being told.
    pub fn read(&self) -> Option<(u64, Look)> {
        // SYNC POINT: arenas turned. Acquire, with the Release in `tell`.
        let turn = self.turn.load(Ordering::Acquire);
        if turn == 0 || turn & 1 == 1 {
            return None;
        }
        let [at, took, held, free, at_end, mapped] =
            core::array::from_fn(|nth| self.words.get(nth).map_or(0, |word| word.load(Ordering::Relaxed)));
        // SYNC POINT: arenas. Acquire, with the Release in `tell`.
        fence(Ordering::Acquire);
        let same = self.turn.load(Ordering::Relaxed) == turn;
        same.then_some((turn, Look { at, took, held, free, at_end, mapped }))
    }
}
