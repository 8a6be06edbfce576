//! Calls of NCCL whose kernels have times, and the sizes that they move.

use rustc_hash::FxHashMap;

/// Functions and sizes that are told apart.
const SIZES: usize = 100_000;

/// A call of NCCL whose kernel's times are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) process_id: i64,
    /// The call that launched its kernel.
    pub(crate) call: i64,
    /// Time of the kernel: from when all ranks had come, if that is known.
    pub(crate) gpu_ns: i64,
    /// Time of all of the kernel.
    pub(crate) whole_ns: i64,
    /// The first time is without waiting for other ranks.
    pub(crate) aligned: bool,
    /// Ranks of its communicator; 0 where that is not known.
    pub(crate) ranks: i32,
    /// Place in [`Sizes::get`].
    pub(crate) size: u32,
}

/// Functions with the bytes of a call, by number.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    all: Vec<(i64, i64)>,
    places: FxHashMap<(i64, i64), u32>,
}

impl Sizes {
    /// Function and bytes.
    pub(crate) fn get(&self, place: u32) -> Option<(i64, i64)> {
        self.all.get(place as usize).copied()
    }

    /// The place of a function and its bytes, which may be new; `u32::MAX` where there are too many.
    pub(super) fn place(&mut self, api_id: i64, bytes: i64) -> u32 {
        let next = self.all.len();
        if next == SIZES {
            return self.places.get(&(api_id, bytes)).copied().unwrap_or(u32::MAX);
        }
        let place = *self.places.entry((api_id, bytes)).or_insert(next as u32);
        if place as usize == next {
            self.all.push((api_id, bytes));
        }
        place
    }
}
