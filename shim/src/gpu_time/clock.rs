//! CUPTI's own clock, where it does not take ours: both are read together now and then, and its times become ours by that.

use super::library::Cupti;
use crate::sys;

/// Both clocks are read together this often.
const EVERY_NS: u64 = 100_000_000;
/// Of so many readings the one counts that took the least time.
const TRIES: u32 = 8;
/// Pairs that lie closer say nothing of how fast the other clock runs.
const APART_NS: u64 = 200_000_000;

/// One moment on both clocks, ns, and how far they may be off each other.
#[derive(Clone, Copy)]
struct Pair {
    theirs: u64,
    ours: u64,
    error_ns: u64,
}

/// CUPTI's clock, as far as it is known.
pub(super) struct Clock {
    first: Option<Pair>,
    last: Option<Pair>,
    /// The largest error that was told.
    told_ns: u64,
}

impl Clock {
    pub(super) const fn new() -> Clock {
        Clock { first: None, last: None, told_ns: 0 }
    }

    /// Reads both clocks, if it is time. What there is to tell: how far they may be off each other, where that is more than
    /// was told.
    pub(super) fn compare(&mut self, cupti: &Cupti) -> Option<u64> {
        let now = sys::clock_ns(sys::MONOTONIC);
        if self.last.is_some_and(|last| now.saturating_sub(last.ours) < EVERY_NS) {
            return None;
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
        self.first.get_or_insert(pair);
        self.last = Some(pair);
    }

    /// A time of theirs on our clock.
    pub(super) fn ours(&self, theirs: u64) -> u64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return theirs };
        let (their_ns, our_ns) = (last.theirs.wrapping_sub(first.theirs), last.ours.wrapping_sub(first.ours));
        let rate = if our_ns >= APART_NS && their_ns != 0 { our_ns as f64 / their_ns as f64 } else { 1.0 };
        let since = theirs.wrapping_sub(last.theirs) as i64;
        last.ours.wrapping_add((since as f64 * rate) as i64 as u64)
    }
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
        // Before the last pair, and after it.
        for ours in [1_900_000_000, 2_000_000_000, 2_050_000_000] {
            assert_eq!(clock.ours(theirs(ours)), ours);
        }
    }
}
