//! Of which time single events are in the trace, as the manifest says it.

use serde::{Deserialize, Serialize};

/// Why there is all of a time whose collector another one followed that keeps fewer.
const ALL_UNTIL_THEN: &str = "all events, until a collector went on that keeps fewer";

/// Which single events a launcher kept; a manifest without it kept all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptDetail {
    /// `windows`, `triggered` or `rollup`: as `--detail` said last; `switched` where recording itself was off for a while; `full`
    /// where all are kept by now, after an earlier collector that kept fewer.
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
    /// Intervals that triggers opened, and times of which earlier collectors kept all, in order. All events that began in one are there, but those that the account calls lost.
    #[serde(default)]
    pub intervals: Vec<Interval>,
    /// Where recording was never on: why, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never: Option<String>,
    /// What the mode says holds from this moment on, ns since the Unix epoch; missing: since the trace began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<i64>,
    /// Windows of earlier collectors of the same session, in order; whatever else they kept is among `intervals`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Earlier>,
    /// Where recording itself was off for a while: the times in which it was on, beginnings and ends in ns since the Unix epoch. What was kept
    /// of other times is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Vec<(i64, i64)>>,
    /// Triggers that came when there were as many intervals as may be.
    #[serde(default)]
    pub refused: u64,
}

impl KeptDetail {
    pub(crate) const SWITCHED: &str = "switched";
    const FULL: &str = "full";
    pub(crate) const ROLLUP: &str = "rollup";

    /// The times in which recording was on, where it was off for a while.
    pub(crate) fn switches(&self) -> Option<Vec<(i64, i64)>> {
        let own = || self.intervals.iter().map(|interval| (interval.from_ns, interval.to_ns)).collect();
        if self.is_switched() { Some(own()) } else { self.recorded.clone() }
    }

    /// Single events are those of the time in which recording was on.
    pub fn is_switched(&self) -> bool {
        self.mode == Self::SWITCHED
    }

    /// All single events are kept since an earlier collector, which kept fewer.
    pub fn is_full(&self) -> bool {
        self.mode == Self::FULL
    }

    /// No single event is kept but for what earlier collectors kept.
    pub fn is_sums(&self) -> bool {
        self.mode == Self::ROLLUP
    }

    /// What earlier collectors kept, for one that goes on at their end and keeps what `own` says; none in place of any: all events.
    pub(crate) fn gone_on(
        before: Option<&KeptDetail>,
        began_ns: i64,
        ended_ns: i64,
        own: Option<&KeptDetail>,
    ) -> Option<KeptDetail> {
        let mode =
            |of: Option<&KeptDetail>| of.map_or((Self::FULL.to_owned(), None), |of| (of.mode.clone(), of.windows));
        // Recording that is off for a while is no other --detail than all.
        if mode(before) == mode(own) || own.is_none() && before.is_some_and(KeptDetail::is_switched) {
            return before.cloned();
        }
        let mut kept = before.cloned().unwrap_or_default();
        let from_ns = kept.since_ns.unwrap_or(began_ns);
        if let Some(windows) = kept.windows.take() {
            kept.earlier.push(Earlier { from_ns, to_ns: ended_ns, windows });
        } else if mode(before).0 == Self::FULL {
            kept.intervals.push(Interval { from_ns, to_ns: ended_ns, why: ALL_UNTIL_THEN.to_owned() });
        }
        (kept.mode, kept.since_ns) = (Self::FULL.to_owned(), Some(ended_ns));
        Some(kept)
    }

    /// What it says beside when recording was on; nothing where that is all.
    pub(crate) fn beside_switches(self) -> Option<KeptDetail> {
        if !self.is_switched() {
            return Some(self);
        }
        self.since_ns.map(|_| KeptDetail { intervals: Vec::new(), ..self })
    }

    /// What a collector keeps, after earlier ones.
    pub(crate) fn after(self, before: KeptDetail) -> KeptDetail {
        let mut intervals = before.intervals;
        intervals.retain(|interval| !self.intervals.contains(interval));
        intervals.extend(self.intervals);
        KeptDetail { intervals, since_ns: before.since_ns, earlier: before.earlier, ..self }
    }
}

/// A time in which an earlier collector of the session kept the events of windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// Begin, ns since the Unix epoch.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// Which.
    pub windows: Windows,
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

    #[test]
    fn what_an_earlier_collector_kept_is_told_beside_what_the_next_one_keeps() {
        let each = Windows { length_ns: 1, period_ns: 60 };
        let windows = Some(each);
        let mode = |mode: &str, windows| KeptDetail { mode: mode.to_owned(), windows, ..KeptDetail::default() };
        let (sums, in_windows) = (mode("rollup", None), mode("windows", windows));
        // All, then windows, then sums, then all again.
        let first = KeptDetail::gone_on(None, 5, 100, Some(&in_windows)).unwrap();
        let first = in_windows.clone().after(first);
        assert_eq!((first.windows, first.since_ns), (windows, Some(100)));
        let second = sums.clone().after(KeptDetail::gone_on(Some(&first), 5, 200, Some(&sums)).unwrap());
        let all = Interval { from_ns: 5, to_ns: 100, why: ALL_UNTIL_THEN.to_owned() };
        let spans = [Earlier { from_ns: 100, to_ns: 200, windows: each }];
        assert_eq!((second.mode.as_str(), second.windows, second.earlier.as_slice()), ("rollup", None, &spans[..]));
        assert_eq!(second.intervals, std::slice::from_ref(&all));
        let third = KeptDetail::gone_on(Some(&second), 5, 300, None).unwrap();
        assert!(third.is_full() && third.since_ns == Some(300) && third.earlier == spans, "{third:?}");
        assert_eq!(third.intervals, [all]);
        // One that keeps the same goes on as if it were one.
        assert_eq!(KeptDetail::gone_on(Some(&in_windows), 5, 100, Some(&in_windows)), Some(in_windows));
        assert_eq!(KeptDetail::gone_on(None, 5, 100, None), None);
        // Recording that was off for a while since does not make it forget them.
        let mut switched = mode(KeptDetail::SWITCHED, None).after(third);
        switched.intervals = vec![Interval { from_ns: 310, to_ns: 320, why: String::new() }];
        let kept = KeptDetail::gone_on(Some(&switched), 5, 400, None).and_then(KeptDetail::beside_switches).unwrap();
        assert!(kept.intervals.is_empty() && kept.earlier == spans && kept.since_ns == Some(300), "{kept:?}");
        assert_eq!(mode(KeptDetail::SWITCHED, None).beside_switches(), None);
    }
}
