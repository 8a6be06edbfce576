//! The budget: what windows may cost after the hooks have had their part, told to the process through its segment.
//!
//! Windows are the dearest thing, and shed first: they get shorter, then rarer, and none opens while the hooks alone cost
//! what is allowed. The parts change slowly (each says a fifth of the next), so that nothing swings. What a window costs is
//! known when it is over: a tenth of what the hooks leave is kept back, and what windows cost beyond their part is saved on
//! the next ones.

use gputrace_abi::windows::SWITCH_NS;

use super::cost::Cost;
use crate::manifest::Budget;

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

/// What a process spends.
#[derive(Debug, Default)]
pub(super) struct Governor {
    /// When the first look was, and the last.
    began_ns: Option<i64>,
    looked_ns: i64,
    events: u64,
    /// Events before the first look.
    first_events: u64,
    /// The hooks' part of the wall time, in millionths.
    hooks_ppm: f64,
    /// What windows may have cost so far, ns.
    allowed_ns: f64,
    about: Budget,
}

impl Governor {
    /// Looks at what was spent, once a second, and says what windows may cost then, in millionths of the wall time.
    /// `events`: all so far; `event_ns`: what one costs; `windows_ns`: what windows cost so far ([`Self::windows_ns`]).
    pub(super) fn look(
        &mut self,
        budget_ppm: u32,
        now_ns: i64,
        (events, event_ns): (u64, Option<f64>),
        windows_ns: f64,
    ) -> Option<u32> {
        let Some(began_ns) = self.began_ns else {
            (self.began_ns, self.looked_ns) = (Some(now_ns), now_ns);
            (self.events, self.first_events) = (events, events);
            return None;
        };
        let passed_ns = now_ns - self.looked_ns;
        if passed_ns < EVERY_NS {
            return None;
        }
        let part = |events: u64, ns: i64| events as f64 * event_ns.unwrap_or(0.0) / ns.max(1) as f64 * 1e6;
        let now_ppm = part(events.saturating_sub(self.events), passed_ns);
        // The first second is all that is known.
        let new = if self.looked_ns == began_ns { 1.0 } else { NEW };
        self.hooks_ppm += (now_ppm - self.hooks_ppm) * new;
        (self.looked_ns, self.events) = (now_ns, events);
        let left = (f64::from(budget_ppm) - self.hooks_ppm).max(0.0);
        self.about.hooks_percent = part(events.saturating_sub(self.first_events), now_ns - began_ns) / 1e4;
        if left == 0.0 && self.about.spent_ns.is_none() {
            self.about.spent_ns = Some(now_ns);
        }
        Some(self.planned(left, passed_ns as f64, windows_ns) as u32)
    }

    /// What of `left` the next windows may cost, in millionths.
    fn planned(&mut self, left: f64, passed_ns: f64, windows_ns: f64) -> f64 {
        let most_ns = windows_ns + left / 1e6 * AHEAD_NS;
        self.allowed_ns = (self.allowed_ns + left / 1e6 * passed_ns).min(most_ns);
        let too_much_ns = (windows_ns - self.allowed_ns).max(0.0);
        (left * PLANNED - too_much_ns / SAVED_NS * 1e6).max(left * GIVEN_UP)
    }

    /// What windows with so many records cost, and to take CUPTI off so often, ns.
    pub(super) fn windows_ns(records: u64, detached: u64, cost: &Cost) -> f64 {
        records as f64 * cost.record_ns().unwrap_or(FIRST_NS) + (detached * SWITCH_NS) as f64
    }

    /// When the hooks alone first cost what is allowed.
    pub(super) fn spent_ns(&self) -> Option<i64> {
        self.about.spent_ns
    }

    /// What the manifest says, with so many records of windows, and CUPTI taken off so often.
    pub(super) fn describe(&self, budget_ppm: u32, records: u64, detached: u64, cost: &Cost) -> Budget {
        let run_ns = (self.looked_ns - self.began_ns.unwrap_or(self.looked_ns)).max(1);
        let windows_ns = Governor::windows_ns(records, detached, cost);
        let windows_percent = if run_ns > 1 { Some(windows_ns / run_ns as f64 * 100.0) } else { None };
        Budget {
            percent: f64::from(budget_ppm) / 1e4,
            host_ns: cost.host_ns(),
            record_ns: cost.record_ns(),
            windows_percent,
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
        let mut events = 0;
        for second in 0..40i64 {
            // 100,000 events of 30 ns a second are 0.3 %; the second half makes four times as many.
            events += if second < 20 { 100_000 } else { 400_000 };
            allowed.extend(governor.look(10_000, second * 1_000_000_000, (events, Some(30.0)), 0.0));
        }
        assert_eq!((allowed.len(), allowed[0], allowed[5]), (39, 6300, 6300), "at first nothing is known");
        assert!(allowed[19..].is_sorted_by(|one, next| one >= next), "{allowed:?}");
        assert_eq!(allowed[38], 0, "the hooks alone cost more");
        let about = governor.describe(10_000, 1_000_000, 10, &Cost::default());
        assert_eq!((about.percent, about.record_ns), (1.0, None));
        assert!(about.spent_ns.is_some_and(|at| (25_000_000_000..35_000_000_000).contains(&at)), "{about:?}");
        assert!((about.windows_percent.unwrap() - 100.0 * (0.9 + 0.1) / 39.0).abs() < 0.1, "{about:?}");
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
            planned = governor.look(10_000, second * 1_000_000_000, (0, None), windows_ns).unwrap_or(planned);
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
