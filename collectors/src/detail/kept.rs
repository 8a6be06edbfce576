//! Of which time single events are in the trace, as the manifest says it.

use serde::{Deserialize, Serialize};

/// Which single events a launcher kept; a manifest without it kept all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptDetail {
    /// `windows`, `triggered` or `rollup`: as `--detail` said; `switched` where recording itself was off for a while.
    pub mode: String,
    /// Windows of the wall clock whose events were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// How long before a trigger events were to be kept, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_ns: Option<i64>,
    /// How long after it, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ns: Option<i64>,
    /// The least that was held back for triggers at any time, ns, where there was too little memory for all of `before_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ns: Option<i64>,
    /// Intervals that triggers opened, in order. All events that began in one are there, but those that the account calls lost.
    #[serde(default)]
    pub intervals: Vec<Interval>,
    /// Where recording was never on: why, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never: Option<String>,
    /// Triggers that came when there were as many intervals as may be.
    #[serde(default)]
    pub refused: u64,
}

impl KeptDetail {
    pub(crate) const SWITCHED: &str = "switched";

    /// Single events are those of the time in which recording was on.
    pub fn is_switched(&self) -> bool {
        self.mode == Self::SWITCHED
    }
}

/// Windows that lie at multiples of a period since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    /// Length of each, ns.
    pub length_ns: i64,
    /// From the begin of one to that of the next, ns.
    pub period_ns: i64,
}

/// A stretch of time whose single events are in the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Begin, ns since the Unix epoch.
    pub from_ns: i64,
    /// End; what began then is no part of it.
    pub to_ns: i64,
    /// Why it was kept, in words.
    pub why: String,
}

impl Windows {
    /// Begin of the window whose period holds a moment.
    fn before(self, at_ns: i64) -> i64 {
        at_ns.saturating_sub(at_ns.rem_euclid(self.period_ns.max(1)))
    }

    /// The windows between two moments, the first and the last one cut off there.
    pub fn between(self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = (i64, i64)> {
        let (first, period, length) = (self.before(from_ns), self.period_ns.max(1), self.length_ns);
        let begins = (0..).map(move |n: i64| first.saturating_add(n.saturating_mul(period)));
        let all = begins.take_while(move |begin| *begin < to_ns);
        let cut = all.map(move |begin| (begin.max(from_ns), begin.saturating_add(length).min(to_ns)));
        cut.filter(|(from, to)| from < to)
    }
}

impl KeptDetail {
    /// Whether what begins at a moment is kept.
    pub(crate) fn holds(&self, at_ns: i64) -> bool {
        self.windows.is_some_and(|windows| at_ns.saturating_sub(windows.before(at_ns)) < windows.length_ns)
            || self.intervals.iter().any(|interval| (interval.from_ns..interval.to_ns).contains(&at_ns))
    }

    /// Whether one interval holds all moments from the first to the last one.
    pub(crate) fn covers(&self, (first_ns, last_ns): (i64, i64)) -> bool {
        self.intervals.iter().any(|i| i.from_ns <= first_ns && last_ns < i.to_ns)
    }

    /// Whether any moment from the first to the last one may be kept.
    pub(crate) fn touches(&self, (first_ns, last_ns): (i64, i64)) -> bool {
        self.windows.is_some() || self.intervals.iter().any(|i| i.from_ns <= last_ns && first_ns < i.to_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_at_multiples_of_their_period() {
        let windows = Windows { length_ns: 10, period_ns: 60 };
        let found: Vec<_> = windows.between(65, 245).collect();
        assert_eq!(found, [(65, 70), (120, 130), (180, 190), (240, 245)]);
        assert_eq!(windows.between(71, 120).count(), 0);
        let kept = KeptDetail { windows: Some(windows), ..KeptDetail::default() };
        let held: Vec<i64> = (0..130).filter(|at| kept.holds(*at)).collect();
        assert_eq!(held, (0..10).chain(60..70).chain(120..130).collect::<Vec<_>>());
    }
}
