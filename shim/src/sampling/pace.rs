//! How often a process is sampled whose samples have no distance of their own to keep ([`super`]): some 1,000 times a second.
//!
//! What programs allocate in a second differs a thousandfold. One that makes a gigabyte of small objects a second would have 2,000
//! samples where they lie 512 KiB apart, each of which costs a microsecond or two: nothing of what it reads and writes is in any cache. More
//! of them tell another digit of numbers that have two already. So samples are paid for, from an account that time fills: while it is more than
//! half full they lie as far apart as ever; with less twice as far, with a quarter four times. That settles between two levels whatever the
//! rate, and needs no rate to be measured.
//!
//! The account is one word of the process, the moment since which nothing was spent of what was earned. A payment that is lost
//! between two threads makes one sample more.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::rate;

/// What a sample costs is earned in so many microseconds.
const EACH_US: u64 = 1000;
/// The account holds as much as so many cost: what a program that begins, or rested, takes without a thought of the rate is half.
const MOST: u64 = 1024;

static IS_KEPT: AtomicBool = AtomicBool::new(false);
static UNSPENT_SINCE: AtomicU64 = AtomicU64::new(0);

/// For the constructor.
pub(super) fn configure(is_kept: bool) {
    IS_KEPT.store(is_kept, Ordering::Relaxed);
}

/// What there is at this moment, in ticks, and what there can be.
fn account(now: u64) -> (u64, u64) {
    let most = rate::ticks(EACH_US * MOST);
    // Another thread may have paid a moment later than now.
    let earned = (now.wrapping_sub(UNSPENT_SINCE.load(Ordering::Relaxed)) as i64).max(0) as u64;
    (earned.min(most), most)
}

/// Powers of two by which the samples that are drawn now are to lie further apart.
pub(super) fn level(now: u64) -> u8 {
    if !IS_KEPT.load(Ordering::Relaxed) {
        return 0;
    }
    let (earned, most) = account(now);
    level_of(earned, most)
}

fn level_of(earned: u64, most: u64) -> u8 {
    // At the least one sample's worth: ten powers.
    (most / earned.max(most / MOST).max(1)).max(1).ilog2() as u8
}

/// A sample was taken. What was not there is not owed: a program whose blocks are all so large that each is a sample has its rate back as
/// soon as it makes smaller ones.
pub(super) fn pay(now: u64) {
    if IS_KEPT.load(Ordering::Relaxed) {
        let (earned, most) = account(now);
        UNSPENT_SINCE.store(now.wrapping_sub(earned).wrapping_add(most / MOST), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_rises_with_each_halving() {
        let levels = [1024, 513, 512, 511, 257, 256, 128, 64, 2, 1, 0].map(|earned| level_of(earned << 10, 1024 << 10));
        assert_eq!(levels, [0, 0, 1, 1, 1, 2, 3, 4, 9, 10, 10]);
    }
}
