//! When windows open in which the GPU's work is recorded, and how long they are: the same for all ranks of a job.
//!
//! A window opens at a moment that is computed from the wall clock and the job: all ranks open theirs together, because a
//! synchronous job waits for the slowest of them, and would pay for each rank's window otherwise. Where in its period a
//! window lies is drawn anew for each, so that nothing periodic of the program hides from all of them.

/// A second, ns.
const SECOND: u64 = 1_000_000_000;
/// Of a period, the longest window is this part, whatever the budget allows.
const LONGEST_PART: u64 = 5;
/// A shorter window would see no step: then some periods have none.
const SHORTEST_PART: u64 = 500;
/// Where windows are to be rare and make a program slower by more than this, in millionths of the time, they are no longer than
/// this part of a period. One step in a hundred decides the 99th percentile: so many must not lie in windows, nor beside
/// them, where CUPTI is put on and taken off.
const NOTICED_PPM: u128 = 5000;
const RARE_PART: u64 = 250;
/// To put CUPTI on a process and take it off again holds its launches up for no longer (docs/benchmarks.md), ns.
pub const SWITCH_NS: u64 = 10_000_000;
/// It holds up one step by that, which is worse than to lose the same time in many steps: so many times as bad.
const SWITCH_WEIGHS: u64 = 3;
/// What a launch takes longer while CUPTI is there and no record is on, ns.
pub const IDLE_NS: u64 = 500;
/// After a window it stays so long, unless the collector says earlier that all work has been told.
pub const SETTLING_NS: u64 = 140_000_000;

/// What the schedule goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// There is at most one window in so long, ns; at least 10 ms.
    pub period_ns: u64,
    /// What windows may cost, in millionths of the wall time.
    pub ppm: u64,
    /// What a record costs, ns.
    pub cost_ns: u64,
    /// CUPTI can be taken off between windows.
    pub detaches: bool,
    /// So few steps are to lie in windows that the 99th percentile is what it is without.
    pub rare: bool,
    /// What the ranks of a job have in common.
    pub job: u64,
}

impl Terms {
    /// How long a window may be, ns, when so many records come in a second, and in how many periods there is one; none: not at
    /// all.
    pub fn length(&self, rate: u64) -> Option<(u64, u64)> {
        let allowed = u128::from(self.ppm) * u128::from(self.period_ns) / 1_000_000;
        let cost = u128::from(self.cost_ns.max(1)) * u128::from(rate.max(1));
        let beside = u128::from(self.beside(rate));
        let left = allowed.saturating_sub(beside);
        let ns = (left * u128::from(SECOND)).checked_div(cost).unwrap_or(0);
        let shortest = u128::from(self.period_ns / SHORTEST_PART);
        if ns >= shortest {
            return Some((ns.min(u128::from(self.longest(cost))) as u64, 1));
        }
        let least = beside + shortest * cost / u128::from(SECOND);
        least.checked_div(allowed).map(|periods| (shortest as u64, periods as u64 + 1))
    }

    /// The longest window, ns, in which a second costs so many ns.
    fn longest(&self, cost: u128) -> u64 {
        let is_noticed = cost * 1_000_000 > NOTICED_PPM * u128::from(SECOND);
        self.period_ns / if self.rare && is_noticed { RARE_PART } else { LONGEST_PART }
    }

    /// What a window costs beside its records, ns, when so many come in a second: CUPTI is put on and taken off again, or stays
    /// ([`Terms::leaves`]).
    pub fn beside(&self, rate: u64) -> u64 {
        let idle = |ns: u64| (u128::from(rate) * u128::from(IDLE_NS) * u128::from(ns) / u128::from(SECOND)) as u64;
        match self.detaches {
            true if self.leaves(rate, self.period_ns, 0) => SWITCH_NS + idle(SETTLING_NS),
            true => idle(self.period_ns),
            // What cannot be changed is no window's fault.
            false => 0,
        }
    }

    /// Whether CUPTI is taken off for so long, ns, when so many launches come in a second: where it would hold them up for longer than that
    /// takes, or for more of the time than half of what windows may cost, whatever else is spared. What launches take longer holds up a
    /// program only as far as its GPU, busy for so many millionths of the time, waits for them.
    pub fn leaves(&self, rate: u64, ns: u64, busy_ppm: u64) -> bool {
        let held_up = u128::from(rate) * u128::from(IDLE_NS) * u128::from(1_000_000u64.saturating_sub(busy_ppm));
        let held_up_ns = held_up / 1_000_000;
        let is_long = held_up_ns * u128::from(ns) > u128::from(SWITCH_WEIGHS * SWITCH_NS) * u128::from(SECOND);
        is_long || held_up_ns * 2 * 1_000_000 > u128::from(self.ppm) * u128::from(SECOND)
    }

    /// When the window of a period opens, ns of the wall clock.
    fn opens(&self, period: u64) -> u64 {
        let room = self.period_ns - self.period_ns / LONGEST_PART;
        let place = scrambled(self.job ^ scrambled(period)).checked_rem(room).unwrap_or(0);
        period.wrapping_mul(self.period_ns).wrapping_add(place)
    }

    /// How far ahead of this wall-clock time the next window opens, of one in so many periods.
    pub fn ahead(&self, wall_ns: u64, one_in: u64) -> u64 {
        let earliest = wall_ns + self.period_ns / LONGEST_PART;
        let one_in = one_in.max(1);
        let first = earliest.checked_div(self.period_ns).unwrap_or(0);
        let over = first.checked_rem(one_in).unwrap_or(0);
        let next = if over == 0 { first } else { first + one_in - over };
        let period = if self.opens(next) >= earliest { next } else { next.saturating_add(one_in) };
        self.opens(period).saturating_sub(wall_ns)
    }
}

/// Steele, Lea and Flood's SplitMix64: neighbours become unlike.
fn scrambled(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { period_ns: 10 * SECOND, ppm: 10_000, cost_ns: 1000, detaches: true, rare: false, job: 7 };

    #[test]
    fn a_window_costs_no_more_than_the_budget() {
        for rate in [1, 1000, 100_000, 1_000_000, 100_000_000] {
            for ppm in [1, 100, 10_000, 1_000_000] {
                let Some((ns, one_in)) = (Terms { ppm, ..TERMS }).length(rate) else { panic!("{rate} {ppm}") };
                let records = ns as f64 * rate as f64 * 1e-9 * TERMS.cost_ns as f64;
                let cost = (records + TERMS.beside(rate) as f64) / one_in as f64;
                assert!(cost <= TERMS.period_ns as f64 * ppm as f64 * 1e-6 * 1.01, "{rate} {ppm}: {ns} {one_in}");
                assert!((20_000_000..=2 * SECOND).contains(&ns));
            }
        }
        assert_eq!((Terms { ppm: 0, ..TERMS }).length(1000), None);
    }

    #[test]
    fn cupti_stays_where_to_take_it_off_costs_more() {
        assert_eq!(TERMS.beside(1000), 5_000_000, "a thousand launches a second for ten seconds");
        assert_eq!(TERMS.beside(100_000), SWITCH_NS + 7_000_000);
        assert_eq!((Terms { detaches: false, ..TERMS }).beside(100_000), 0);
        assert!(TERMS.leaves(100_000, SECOND, 0) && !TERMS.leaves(1000, SECOND, 0));
        // Its GPU hardly ever waits for the host.
        assert!(TERMS.leaves(20_000, 9 * SECOND, 600_000) && !TERMS.leaves(20_000, 9 * SECOND, 800_000));
        // For a second it would be cheaper to stay, and 0.6 % of all time.
        assert!(TERMS.leaves(12_000, SECOND, 0) && !TERMS.leaves(9_000, SECOND, 0));
        // A busy program: 10 % of the wall time would go to a window that is open for ever.
        assert_eq!(TERMS.length(100_000), Some((830_000_000, 1)));
    }

    #[test]
    fn whether_cupti_stays_or_goes_the_budget_is_kept_however_short_the_period_is() {
        for period_ns in [SECOND / 2, 2 * SECOND, 10 * SECOND] {
            for rate in [1000, 8_000, 12_000, 26_000, 58_000, 100_000, 1_000_000] {
                for ppm in [500, 2_000, 10_000, 50_000] {
                    let terms = Terms { period_ns, ppm, ..TERMS };
                    let Some((ns, one_in)) = terms.length(rate) else { panic!("{terms:?} {rate}") };
                    let passed_ns = one_in * period_ns;
                    let idle = |ns: u64| rate as f64 * IDLE_NS as f64 * ns as f64 / 1e9;
                    let beside = match terms.leaves(rate, passed_ns - ns, 0) {
                        true => SWITCH_NS as f64 + idle(SETTLING_NS),
                        false => idle(passed_ns),
                    };
                    let spent = beside + ns as f64 * 1e-9 * rate as f64 * terms.cost_ns as f64;
                    assert!(spent <= passed_ns as f64 * ppm as f64 * 1e-6 * 1.01, "{terms:?} {rate}: {ns} {one_in}");
                }
            }
        }
    }

    #[test]
    fn few_steps_lie_in_windows_that_are_to_be_rare() {
        let rare = Terms { rare: true, ..TERMS };
        // A hundred thousand launches a second are slower by 10 %: less than 1 % of the time.
        assert_eq!(rare.length(100_000), Some((40_000_000, 1)));
        // Four thousand by 0.4 %, which is within the percentile's own 1 %.
        assert_eq!(rare.length(4_000), TERMS.length(4_000));
        // The budget comes first.
        let dear = Terms { cost_ns: 60_000, ..rare };
        assert_eq!(dear.length(100_000), Terms { rare: false, ..dear }.length(100_000));
    }

    #[test]
    fn ranks_of_a_job_open_their_windows_at_one_time_and_each_period_at_another() {
        let wall = 1_700_000_000 * SECOND;
        let mut places = std::vec::Vec::new();
        let mut at = wall;
        for _ in 0..20 {
            let ahead = TERMS.ahead(at, 1);
            // Another rank, which looks a little later, or whose window was shorter.
            let other = TERMS.ahead(at + 200_000_000, 1) + 200_000_000;
            assert!(ahead >= 2 * SECOND && (other == ahead || ahead < 2 * SECOND + 200_000_000));
            at += ahead;
            places.push(at % TERMS.period_ns / SECOND);
        }
        assert!((0..8).filter(|second| places.contains(second)).count() >= 6, "{places:?}");
        assert!(at - wall <= 20 * 2 * TERMS.period_ns);
        let others = (Terms { job: 8, ..TERMS }).ahead(wall, 1);
        assert_ne!(others, TERMS.ahead(wall, 1));
        let rare = wall + TERMS.ahead(wall, 6);
        assert_eq!(rare / TERMS.period_ns % 6, 0);
    }
}
