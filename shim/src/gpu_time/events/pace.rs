//! How often launches are timed: as often as the budget allows.
//!
//! Where launches are few each graph and collective is timed, and one kernel in [`BASE`]; where they come so fast that this would
//! cost more than the budget, all gaps grow alike. What a gap is has no part in how many launches there are, so nothing swings.

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_abi::sample::{PAIR_NS, kind};
use gputrace_abi::shed::Shed;

/// Mean gaps by [`kind`] - 1 where nothing is short: kernels, graphs, collectives.
const BASE: [u32; 3] = [64, 1, 1];
/// The most, of launches that are recorded: a gap is far below what its 16 bits hold.
const MOST: u32 = 4096;
/// Gaps are set this often.
const EVERY_NS: u64 = 500_000_000;

static GAPS: [AtomicU32; 3] = [const { AtomicU32::new(1) }; 3];
/// Launches that were timed since gaps were set last.
static TIMED: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

/// Nothing is known yet.
pub(super) fn begin() {
    GAPS.iter().zip(BASE).for_each(|(gap, base)| gap.store(base, Ordering::Relaxed));
}

/// The mean gap of a [`kind`] of launches; 1: each is timed.
pub(super) fn gap(kind: u8) -> u32 {
    GAPS.get(place(kind)).map_or(1, |gap| gap.load(Ordering::Relaxed))
}

/// The same counted in launches that are recorded, where one in two to the power of `rarer` is.
pub(super) fn of_recorded(gap: u32, rarer: u8) -> u32 {
    (gap >> rarer.min(Shed::MOST)).clamp(1, MOST)
}

/// A launch was timed.
pub(super) fn timed(kind: u8) {
    if let Some(timed) = TIMED.get(place(kind)) {
        timed.fetch_add(1, Ordering::Relaxed);
    }
}

fn place(number: u8) -> usize {
    const _: () = assert!(kind::KERNEL == 1 && kind::GRAPH == 2 && kind::COLLECTIVE == 3);
    usize::from(number).wrapping_sub(1)
}

/// When gaps were set last.
pub(super) struct Pace {
    set_ns: u64,
}

impl Pace {
    pub(super) const fn new(now: u64) -> Pace {
        Pace { set_ns: now }
    }

    /// Sets the gaps, if it is time: `ppm` millionths of the wall time may be spent, and one launch in two to the power of `rarer`
    /// is recorded.
    pub(super) fn set(&mut self, now: u64, ppm: u64, rarer: u8) {
        let passed_ns = now.saturating_sub(self.set_ns);
        if passed_ns < EVERY_NS {
            return;
        }
        self.set_ns = now;
        let timed = TIMED.each_ref().map(|timed| timed.swap(0, Ordering::Relaxed));
        let gaps = GAPS.each_ref().map(|gap| gap.load(Ordering::Relaxed));
        let wanted = wanted(timed, gaps, passed_ns, ppm, MOST << rarer.min(Shed::MOST));
        GAPS.iter().zip(wanted).for_each(|(gap, wanted)| gap.store(wanted, Ordering::Relaxed));
    }
}

/// The gaps, `most` at most, that keep to the budget if launches go on as in the last `ns`, in which so many were timed with these.
fn wanted(timed: [u32; 3], gaps: [u32; 3], ns: u64, ppm: u64, most: u32) -> [u32; 3] {
    let at_base = timed
        .iter()
        .zip(gaps)
        .zip(BASE)
        .map(|((timed, gap), base)| (u64::from(*timed) * u64::from(gap)).checked_div(u64::from(base)).unwrap_or(0));
    let cost_ns = at_base.sum::<u64>().saturating_mul(PAIR_NS);
    let allowed_ns = (ns / 1000).saturating_mul(ppm) / 1000;
    BASE.map(|base| {
        let all_ns = u64::from(base).saturating_mul(cost_ns);
        let gap = all_ns.saturating_add(allowed_ns.saturating_sub(1)).checked_div(allowed_ns);
        gap.unwrap_or(u64::MAX).min(most.into()).max(base.into()) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn gaps_grow_where_all_would_cost_more_than_the_budget() {
        assert_eq!(wanted([500, 0, 0], BASE, SECOND, 10_000, MOST), BASE, "35,000 launches a second");
        // 10,000 graphs a second: 80 ms of events, where 10 are allowed.
        assert_eq!(wanted([0, 10_000, 0], BASE, SECOND, 10_000, MOST), [512, 8, 8]);
        // The same when only one in eight is timed, and in half the time.
        assert_eq!(wanted([0, 625, 0], [512, 8, 8], SECOND / 2, 10_000, MOST), [512, 8, 8]);
        assert_eq!(wanted([0, 100, 0], [512, 8, 8], SECOND, 10_000, MOST), BASE, "it has become calm");
        assert_eq!(wanted([4000, 4000, 0], BASE, SECOND, 0, MOST), [MOST; 3]);
        assert_eq!(wanted([0; 3], [MOST; 3], SECOND, 10_000, MOST), BASE);
    }

    #[test]
    fn gaps_are_counted_in_launches_whether_these_are_recorded_or_not() {
        // 850,000 launches a second, a 64th of them recorded, and an eighth of a percent for it.
        let gap = wanted([13_281, 0, 0], BASE, SECOND, 1250, MOST << 6)[0];
        assert_eq!((gap, of_recorded(gap, 6)), (5440, 85));
        assert!(u64::from(850_000 / gap) * PAIR_NS <= SECOND / 1_000_000 * 1250);
        assert_eq!((of_recorded(64, 6), of_recorded(64, 3), of_recorded(64, 0)), (1, 8, 64));
    }
}
