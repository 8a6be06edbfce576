//! CUPTI's own clock, where it does not take ours: both are read together now and then, and its times become ours by that.
//!
//! A time between two moments at which both were read lies between them on both clocks, at whatever pace the other one runs. What
//! comes after the last one is told by the pace so far, for no longer than that was watched: a clock that gains 20 us in a
//! second is 2 us off after the first tenth of one, and records are of that age when they come.

use super::library::Cupti;
use crate::sys;

/// Both clocks are read together this often; at first as often as they have been watched, and no closer than the least.
const EVERY_NS: u64 = 100_000_000;
const LEAST_NS: u64 = 1_000_000;
/// Of so many readings the one counts that took the least time.
const TRIES: u32 = 8;
/// Moments that are remembered.
const KEPT: usize = 32;

/// One moment on both clocks, ns, and how far they may be off each other.
#[derive(Clone, Copy, Default)]
struct Pair {
    theirs: u64,
    ours: u64,
    error_ns: u64,
}

/// CUPTI's clock, as far as it is known.
pub(super) struct Clock {
    /// In the order of time.
    pairs: [Pair; KEPT],
    count: usize,
    /// The largest error that was told.
    told_ns: u64,
}

impl Clock {
    pub(super) const fn new() -> Clock {
        Clock { pairs: [Pair { theirs: 0, ours: 0, error_ns: 0 }; KEPT], count: 0, told_ns: 0 }
    }

    fn pairs(&self) -> &[Pair] {
        self.pairs.get(..self.count).unwrap_or(&[])
    }

    /// Reads both clocks, if it is time. What there is to tell: how far they may be off each other, where that is more than
    /// was told.
    pub(super) fn compare(&mut self, cupti: &Cupti) -> Option<u64> {
        let now = sys::clock_ns(sys::MONOTONIC);
        if let [first, .., last] | [first @ last] = self.pairs() {
            let watched_ns = last.ours.saturating_sub(first.ours);
            if now.saturating_sub(last.ours) < watched_ns.clamp(LEAST_NS, EVERY_NS) {
                return None;
            }
        }
        let read = |_| {
            let (mut theirs, before) = (0, sys::clock_ns(sys::MONOTONIC));
            // SAFETY: it writes one number.
            let result = unsafe { (cupti.time)(&raw mut theirs) };
            let took_ns = sys::clock_ns(sys::MONOTONIC).saturating_sub(before);
            (result == 0).then_some(Pair { theirs, ours: before + took_ns / 2, error_ns: took_ns.div_ceil(2) })
        };
        let best = (0..TRIES).filter_map(read).min_by_key(|pair| pair.error_ns)?;
        self.add(best);
        if best.error_ns <= self.told_ns {
            return None;
        }
        self.told_ns = best.error_ns;
        Some(best.error_ns)
    }

    fn add(&mut self, pair: Pair) {
        if self.count == KEPT {
            // The oldest goes.
            self.pairs.rotate_left(1);
            self.count -= 1;
        }
        if let Some(place) = self.pairs.get_mut(self.count) {
            *place = pair;
            self.count += 1;
        }
    }

    /// A time of theirs on our clock.
    pub(super) fn ours(&self, theirs: u64) -> u64 {
        let pairs = self.pairs();
        let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else { return theirs };
        let behind = pairs.partition_point(|pair| pair.theirs <= theirs);
        // Between two of them, else by the pace of all.
        let (from, to) = match behind.checked_sub(1).and_then(|before| Some((pairs.get(before)?, pairs.get(behind)?))) {
            Some(around) => around,
            None if behind == 0 => return on(first, theirs, first, last),
            None => return on(last, theirs, first, last),
        };
        on(from, theirs, from, to)
    }
}

/// A time of theirs on our clock, from this moment on, at the pace of both clocks between two others.
fn on(base: &Pair, theirs: u64, from: &Pair, to: &Pair) -> u64 {
    let (their_ns, our_ns) = (to.theirs.wrapping_sub(from.theirs), to.ours.wrapping_sub(from.ours));
    let pace = if their_ns == 0 { 1.0 } else { our_ns as f64 / their_ns as f64 };
    let since = theirs.wrapping_sub(base.theirs) as i64;
    base.ours.wrapping_add((since as f64 * pace) as i64 as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_another_time_and_pace_is_followed() {
        let theirs = |ours: u64| ours * 2 + 5_000_000_000_000;
        let mut clock = Clock::new();
        assert_eq!(clock.ours(7), 7, "nothing is known");
        for ours in [1_000_000_000, 1_300_000_000, 2_000_000_000] {
            clock.add(Pair { theirs: theirs(ours), ours, error_ns: 100 });
        }
        // Before all pairs, between two, and after all.
        for ours in [900_000_000, 1_000_000_000, 1_900_000_000, 2_000_000_000, 2_050_000_000] {
            assert_eq!(clock.ours(theirs(ours)), ours);
        }
    }

    #[test]
    fn a_clock_whose_pace_changes_is_right_between_two_moments_that_are_remembered() {
        // It gains 1 us in each millisecond, and from the fifth second on 3.
        let theirs = |ours: u64| ours + ours / 1_000 + ours.saturating_sub(5_000_000_000) / 500;
        let mut clock = Clock::new();
        for tenth in 1..100 {
            let ours = tenth * 100_000_000;
            clock.add(Pair { theirs: theirs(ours), ours, error_ns: 100 });
        }
        assert_eq!((clock.count, clock.pairs[0].ours), (KEPT, 6_800_000_000));
        for ours in [6_850_000_000, 8_012_345_678, 9_899_999_999, 9_950_000_000] {
            assert!(clock.ours(theirs(ours)).abs_diff(ours) <= 2, "{ours}: {}", clock.ours(theirs(ours)));
        }
    }

    #[test]
    fn one_moment_says_no_pace() {
        let mut clock = Clock::new();
        clock.add(Pair { theirs: 700, ours: 1_000, error_ns: 1 });
        assert_eq!([600, 700, 900].map(|theirs| clock.ours(theirs)), [900, 1_000, 1_200]);
    }
}
