//! The budget: what the GPU's times may cost after the hooks have had their part, told to the process through its segment.
//!
//! Windows are the dearest thing, and shed first: they get shorter, then rarer, down to the part of the budget that is theirs
//! whatever the hooks cost ([`least`]): where `--budget` was given the hooks leave it to them. The parts change slowly (each
//! says a fifth of the next), so that nothing swings. What a window costs is known when it is over: a tenth of what the hooks
//! leave is kept back, and what windows cost beyond their part is saved on the next ones.

use gputrace_abi::sample::PAIR_NS;
use gputrace_abi::shed::Shed;
use gputrace_abi::windows::{IDLE_NS, SWITCH_NS};

use super::cost::Cost;
use crate::manifest::Budget;
use crate::process::shed::least;

/// The parts are looked at this often.
const EVERY_NS: i64 = 1_000_000_000;
/// What the last second says about the next.
const NEW: f64 = 0.2;
/// A record that was not measured yet is taken to cost so much, ns.
const FIRST_NS: f64 = 900.0;
/// Windows are planned with this part of what the hooks leave.
const PLANNED: f64 = 0.9;
/// What windows cost too much is saved over so long, ns: an overspent run is within its budget a minute later.
const SAVED_NS: f64 = 60e9;
/// For that they give up so much of their part at most: there are windows still.
const GIVEN_UP: f64 = 0.5;
/// Windows spend at once what is allowed for so long, ns: what was not spent before is forgotten.
const AHEAD_NS: f64 = 10e9;

/// What was done so far for the GPU's times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// Records of CUPTI, and how often it was taken off.
    pub(super) records: u64,
    pub(super) detached: u64,
    /// Launches while CUPTI was there and no record was on; each node of a graph counts as a fifth of one. Of them those
    /// that no window could have spared, for CUPTI cannot be taken off.
    pub(super) attached: f64,
    pub(super) unspared: f64,
    /// Launches that events timed.
    pub(super) timed: u64,
}

impl Spent {
    /// What that cost, ns: records and switches, launches beside CUPTI, timed launches.
    fn parts_ns(&self, cost: &Cost) -> [f64; 3] {
        let records = self.records as f64 * cost.record_ns().unwrap_or(FIRST_NS);
        let switches = self.detached as f64 * SWITCH_NS as f64;
        // The process says itself how many it timed: any number.
        [records + switches, self.attached * IDLE_NS as f64, self.timed as f64 * PAIR_NS as f64]
    }

    /// The same in all, but for what cannot be spared.
    pub(super) fn planned_ns(&self, cost: &Cost) -> f64 {
        self.parts_ns(cost).iter().sum::<f64>() - self.unspared * IDLE_NS as f64
    }
}

/// What a process spends.
#[derive(Debug, Default)]
pub(super) struct Governor {
    /// When the first look was, and the last.
    began_ns: Option<i64>,
    looked_ns: i64,
    /// What the hooks cost so far, and before the first look.
    hooks_ns: f64,
    first_ns: f64,
    /// The hooks' part of the wall time, in millionths.
    hooks_ppm: f64,
    /// What windows may have cost so far, ns.
    allowed_ns: f64,
    about: Budget,
}

impl Governor {
    /// Whether it is time to look: once a second.
    pub(super) fn is_due(&self, now_ns: i64) -> bool {
        self.began_ns.is_none() || now_ns - self.looked_ns >= EVERY_NS
    }

    /// Looks at what was spent, and says what the GPU's times may cost then, in millionths of the wall time.
    /// `hooks_ns`: what the hooks cost so far; `times_ns`: what the GPU's times did ([`Spent`]).
    pub(super) fn look(
        &mut self,
        budget_ppm: u32,
        now_ns: i64,
        shed: Shed,
        hooks_ns: f64,
        times_ns: f64,
    ) -> Option<u32> {
        let Some(began_ns) = self.began_ns else {
            (self.began_ns, self.looked_ns) = (Some(now_ns), now_ns);
            (self.first_ns, self.hooks_ns) = (hooks_ns, hooks_ns);
            return None;
        };
        let passed_ns = now_ns - self.looked_ns;
        let part = |spent_ns: f64, ns: i64| spent_ns.max(0.0) / ns.max(1) as f64 * 1e6;
        let now_ppm = part(hooks_ns - self.hooks_ns, passed_ns);
        // The first second is all that is known.
        let new = if self.looked_ns == began_ns { 1.0 } else { NEW };
        self.hooks_ppm += (now_ppm - self.hooks_ppm) * new;
        (self.looked_ns, self.hooks_ns) = (now_ns, hooks_ns);
        let least = f64::from(budget_ppm) * least(shed);
        let left = f64::from(budget_ppm) - self.hooks_ppm;
        self.about.hooks_percent = part(hooks_ns - self.first_ns, now_ns - began_ns) / 1e4;
        if left < least && self.about.spent_ns.is_none() {
            self.about.spent_ns = Some(now_ns);
        }
        Some(self.planned(left.max(least), passed_ns as f64, times_ns) as u32)
    }

    /// What of `left` the next windows may cost, in millionths.
    fn planned(&mut self, left: f64, passed_ns: f64, windows_ns: f64) -> f64 {
        let most_ns = windows_ns + left / 1e6 * AHEAD_NS;
        self.allowed_ns = (self.allowed_ns + left / 1e6 * passed_ns).min(most_ns);
        let too_much_ns = (windows_ns - self.allowed_ns).max(0.0);
        (left * PLANNED - too_much_ns / SAVED_NS * 1e6).max(left * GIVEN_UP)
    }

    /// When the hooks first left less than what is the GPU's times' for sure.
    pub(super) fn spent_ns(&self) -> Option<i64> {
        self.about.spent_ns
    }

    /// What the manifest says.
    pub(super) fn describe(&self, budget_ppm: u32, spent: &Spent, cost: &Cost) -> Budget {
        let run_ns = (self.looked_ns - self.began_ns.unwrap_or(self.looked_ns)).max(1);
        let percent = |ns: f64| Some(ns / run_ns as f64 * 100.0).filter(|_| run_ns > 1);
        let [windows_ns, attached_ns, events_ns] = spent.parts_ns(cost);
        let used = |count: bool, ns: f64| percent(ns).filter(|_| count);
        Budget {
            percent: f64::from(budget_ppm) / 1e4,
            host_ns: cost.host_ns(),
            record_ns: cost.record_ns(),
            windows_percent: percent(windows_ns),
            attached_launches: spent.attached as u64,
            attached_percent: used(spent.attached > 0.0, attached_ns),
            events_percent: used(spent.timed > 0, events_ns),
            total_percent: percent(windows_ns + attached_ns + events_ns).map(|times| times + self.about.hooks_percent),
            ..self.about.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_get_what_the_hooks_leave_and_nothing_swings() {
        let (mut governor, mut allowed) = (Governor::default(), Vec::new());
        let mut hooks_ns = 0.0;
        for second in 0..40i64 {
            // 100,000 events of 30 ns a second are 0.3 %; the second half makes four times as many.
            hooks_ns += 30.0 * if second < 20 { 100_000.0 } else { 400_000.0 };
            allowed.extend(governor.look(10_000, second * 1_000_000_000, Shed::default(), hooks_ns, 0.0));
        }
        assert_eq!((allowed.len(), allowed[0], allowed[5]), (39, 6300, 6300), "at first nothing is known");
        assert!(allowed[19..].is_sorted_by(|one, next| one >= next), "{allowed:?}");
        assert_eq!(allowed[38], 2250, "the hooks alone cost more: a quarter is theirs all the same, less a tenth");
        let spent = Spent { records: 1_000_000, detached: 10, ..Spent::default() };
        let about = governor.describe(10_000, &spent, &Cost::default());
        assert_eq!((about.percent, about.record_ns, about.events_percent), (1.0, None, None));
        assert!(about.spent_ns.is_some_and(|at| (20_000_000_000..35_000_000_000).contains(&at)), "{about:?}");
        assert!((about.windows_percent.unwrap() - 100.0 * (0.9 + 0.1) / 39.0).abs() < 0.1, "{about:?}");
    }

    #[test]
    fn what_cannot_be_spared_is_in_the_cost_and_not_in_the_plan() {
        let mut governor = Governor::default();
        for second in 0..=10i64 {
            governor.look(10_000, second * 1_000_000_000, Shed::default(), second as f64 * 1e6, 0.0);
        }
        let spent = Spent { attached: 400_000.0, unspared: 400_000.0, timed: 1000, ..Spent::default() };
        let about = governor.describe(10_000, &spent, &Cost::default());
        // 0.2 s and 8 ms of ten.
        assert_eq!(
            (about.attached_launches, about.attached_percent, about.events_percent),
            (400_000, Some(2.0), Some(0.08))
        );
        assert!((about.total_percent.unwrap() - 2.18).abs() < 1e-6, "with the hooks' 0.1 %: {about:?}");
        assert!((spent.planned_ns(&Cost::default()) - 8e6).abs() < 1.0);
    }

    /// Windows every ten seconds whose records cost `dearer` times what was expected of them: what they cost of each whole
    /// minute, in parts of the budget.
    fn minutes(dearer: f64) -> Vec<f64> {
        let (mut governor, mut windows_ns, mut planned, mut minutes, mut before) =
            (Governor::default(), 0.0, 10_000, Vec::new(), 0.0);
        for second in 0..=600i64 {
            if second % 10 == 0 {
                windows_ns += f64::from(planned) / 1e6 * 10e9 * dearer;
            }
            if second % 60 == 59 {
                minutes.push((windows_ns - before) / (0.01 * 60e9));
                before = windows_ns;
            }
            planned =
                governor.look(10_000, second * 1_000_000_000, Shed::default(), 0.0, windows_ns).unwrap_or(planned);
        }
        minutes
    }

    #[test]
    fn what_windows_cost_too_much_is_saved_on_the_next_ones() {
        let as_planned = minutes(1.0);
        assert!(as_planned.iter().all(|part| (0.75..=1.0).contains(part)), "{as_planned:?}");
        let dearer = minutes(1.4);
        assert!(dearer[1..].iter().all(|part| (0.75..=1.05).contains(part)), "{dearer:?}");
        // However dear: half of what they were planned with is left to them.
        let much_dearer = minutes(10.0);
        assert!(much_dearer[1..].iter().all(|part| (4.9..=5.1).contains(part)), "{much_dearer:?}");
    }
}
