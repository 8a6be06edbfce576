//! The pool of free chunks: a bit each, taken by the writers and given back by the reader.
//!
//! Any thread and any signal handler may take, at any moment: there is no lock, and a bit that somebody else took
//! between the look and the exchange only means another look.

use crate::sync::{AtomicU64, Ordering};

/// Takes the lowest free chunk (which was most likely used last and is still in the cache), below `limit`.
pub fn take(free: &[AtomicU64], limit: u32) -> Option<u32> {
    first(free.iter().enumerate(), u64::trailing_zeros, |chunk| chunk < limit)
}

/// Takes the highest free chunk, if it is no lower than this.
pub fn take_last(free: &[AtomicU64], lowest: u32) -> Option<u32> {
    first(free.iter().enumerate().rev(), |bits| 63 - bits.leading_zeros(), |chunk| chunk >= lowest)
}

/// Takes the first free chunk in an order of words, and of the bits of each, if it may be taken; none that comes later may if it may not.
fn first<'a>(
    words: impl Iterator<Item = (usize, &'a AtomicU64)>,
    bit_of: impl Fn(u64) -> u32,
    may: impl Fn(u32) -> bool,
) -> Option<u32> {
    for (n, word) in words {
        let mut bits = word.load(Ordering::Relaxed);
        while bits != 0 {
            let bit = bit_of(bits);
            let chunk = n as u32 * 64 + bit;
            if !may(chunk) {
                return None;
            }
            // SYNC POINT: pool. Acquire, with the Release in `give`: the reader is done with the slots.
            match word.compare_exchange_weak(bits, bits & !(1 << bit), Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(chunk),
                Err(now) => bits = now,
            }
        }
    }
    None
}

/// How many chunks are free.
pub fn count(free: &[AtomicU64]) -> u32 {
    free.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
}

/// Gives a chunk back; a number beyond the pool is ignored.
pub fn give(free: &[AtomicU64], chunk: u32) {
    if let Some(word) = free.get(chunk as usize / 64) {
        // SYNC POINT: pool. Release, with the Acquire in `take`.
        word.fetch_or(1 << (chunk % 64), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_taken_from_both_ends_up_to_a_limit() {
        let free: [AtomicU64; 3] = core::array::from_fn(|_| AtomicU64::new(0));
        [0, 1, 63, 64, 130].into_iter().for_each(|chunk| give(&free, chunk));
        let last = |lowest| take_last(&free, lowest);
        assert_eq!([last(131), last(130), last(65), last(64), last(2)], [None, Some(130), None, Some(64), Some(63)]);
        assert_eq!((take(&free, 1), take(&free, 1), last(0), last(0), count(&free)), (Some(0), None, Some(1), None, 0));
    }
}
