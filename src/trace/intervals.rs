//! Of which time single events are in a trace that does not hold all of them: the last interval is what a command is about.
//!
//! Between intervals nothing is known, and a span over several would take that for time in which nothing happened. So a command
//! looks at one, unless the user names a span. Launchers that share a trace have intervals of their own: what is common to the
//! chosen one and theirs is taken, and who has less than half of it is left out.

use gputrace_collectors::launcher_of;
use gputrace_collectors::manifest::{KeptDetail, Manifest, Windows};
use rustc_hash::FxHashSet;

use super::{Filter, Trace};
use crate::render::{duration, number};

/// A stretch of time whose single events are in the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// Begin, ns since the epoch.
    pub(crate) from_ns: i64,
    /// End.
    pub(crate) to_ns: i64,
    /// Why it was kept.
    pub(crate) why: String,
    /// The run began or ended in it: shorter than it should be.
    cut: bool,
}

impl Trace {
    /// The intervals by their end; none where all single events were kept.
    pub(crate) fn intervals(&self) -> Option<Vec<Interval>> {
        let kept: Vec<_> = self.manifests().filter_map(|m| Some((m, m.detail.as_ref()?))).collect();
        if kept.is_empty() {
            return None;
        }
        let mut all: Vec<Interval> = kept.iter().flat_map(|(manifest, detail)| of(manifest, detail)).collect();
        all.sort_by(|a, b| (a.to_ns, a.from_ns, &a.why).cmp(&(b.to_ns, b.from_ns, &b.why)));
        // Windows are at the same moments for all; where one launcher began later, its first one is cut off.
        all.dedup_by(|later, earlier| later.why == earlier.why && later.from_ns < earlier.to_ns && WINDOW == later.why);
        Some(all)
    }

    /// Whether every launcher was asked to keep events of some time only, and none kept any.
    pub(crate) fn keeps_no_event(&self) -> bool {
        self.manifests().all(|manifest| manifest.detail.is_some()) && self.intervals().is_some_and(|all| all.is_empty())
    }

    /// Which interval a command is about unless told: the last whole one.
    pub(crate) fn usual_interval(&self) -> Option<usize> {
        let all = self.intervals()?;
        all.iter().rposition(|interval| !interval.cut).or_else(|| all.len().checked_sub(1))
    }

    /// What a report says of the time that it is about; nothing where all single events were kept.
    pub(crate) fn about_intervals(&self, filter: &Filter) -> Option<String> {
        let all = self.intervals()?;
        let after = |at: i64| duration(at.saturating_sub(self.began_ns()).max(0) as f64);
        let text = match (filter.interval.and_then(|place| Some((place, all.get(place)?))), all.len()) {
            (_, 0) => {
                "no single event was kept: rollups has the sums of all, and nothing is known of single calls".to_owned()
            }
            (None, 1) => "single events were kept in one interval: what is not in it is not known".to_owned(),
            (None, n) => {
                format!(
                    "single events were kept in {n} intervals: what lies between them is not known, and is no idle time"
                )
            }
            (Some((place, chosen)), n) => {
                let span = format!("{} .. {}, {}", after(chosen.from_ns), after(chosen.to_ns), chosen.why);
                let which = if place + 1 == n { "the last one" } else { "not the last one" };
                match n {
                    1 => format!("single events were kept in one interval ({span}): this is about that"),
                    _ => format!(
                        "single events were kept in {} intervals; this is number {}, {which} ({span}); --from/--to or --interval K \
                         choose another",
                        number(n as f64),
                        place + 1
                    ),
                }
            }
        };
        let left_out = match filter.left_out_launchers {
            0 => String::new(),
            n => format!("; without {n} of {} launchers, which kept other times", self.launchers.len()),
        };
        Some(format!("{text}{left_out}"))
    }
}

const WINDOW: &str = "a window of the wall clock";
const SINCE: &str = "all events, since a collector went on that keeps them";
/// A year has half a million minutes. A manifest that claims more windows is damaged.
const MOST_WINDOWS: i64 = 1 << 20;

/// The intervals of a launcher: of time in which recording was on.
fn of(manifest: &Manifest, detail: &KeptDetail) -> Vec<Interval> {
    let all = asked_for(manifest, detail);
    match &detail.recorded {
        Some(recorded) => all.into_iter().flat_map(|interval| parts(interval, recorded)).collect(),
        None => all,
    }
}

/// The parts of an interval in which recording was on.
fn parts(interval: Interval, recorded: &[(i64, i64)]) -> Vec<Interval> {
    let whole_ns = interval.to_ns.saturating_sub(interval.from_ns);
    let cut = recorded.iter().map(|(from, to)| (interval.from_ns.max(*from), interval.to_ns.min(*to)));
    let cut: Vec<(i64, i64)> = cut.filter(|(from, to)| from < to).collect();
    let part = |(place, (from_ns, to_ns)): (usize, &(i64, i64))| {
        let is_whole = to_ns.saturating_sub(*from_ns) == whole_ns;
        let why = match cut.len() {
            _ if is_whole => interval.why.clone(),
            1 => format!("{}, as far as recording was on", interval.why),
            parts => format!("{}, part {} of {parts} in which recording was on", interval.why, place + 1),
        };
        Interval { from_ns: *from_ns, to_ns: *to_ns, why, cut: interval.cut || !is_whole && interval.why == WINDOW }
    };
    cut.iter().enumerate().map(part).collect()
}

/// The intervals of which events were to be kept.
fn asked_for(manifest: &Manifest, detail: &KeptDetail) -> Vec<Interval> {
    let own = detail.intervals.iter().map(|interval| Interval {
        from_ns: interval.from_ns,
        to_ns: interval.to_ns,
        why: interval.why.clone(),
        cut: false,
    });
    // While it runs, the manifest knows of no later moment than its last look at the clock.
    let last = manifest.clock.pairs.last().and_then(|pair| i64::try_from(pair.realtime_ns).ok());
    let ended_ns = manifest.ended_ns.or(last).unwrap_or(manifest.started_ns);
    let span_ns = ended_ns.saturating_sub(manifest.started_ns);
    let few = |windows: &Windows| span_ns / windows.period_ns.max(1) < MOST_WINDOWS;
    let in_windows = |windows: Windows, from_ns: i64, to_ns: i64| {
        let cut = move |(from_ns, to_ns): (i64, i64)| {
            let cut = to_ns.saturating_sub(from_ns) < windows.length_ns;
            Interval { from_ns, to_ns, why: WINDOW.to_owned(), cut }
        };
        windows.between(from_ns, to_ns).map(cut)
    };
    let began_ns = detail.since_ns.unwrap_or(manifest.started_ns).max(manifest.started_ns);
    let last = detail.windows.map(|windows| (began_ns, ended_ns, windows));
    let earlier =
        detail.earlier.iter().map(|of| (of.from_ns.max(manifest.started_ns), of.to_ns.min(ended_ns), of.windows));
    let mut all: Vec<Interval> = own.collect();
    for (from_ns, to_ns, windows) in last.into_iter().chain(earlier).filter(|(.., windows)| few(windows)) {
        if all.len() as i64 >= MOST_WINDOWS {
            break;
        }
        all.extend(in_windows(windows, from_ns, to_ns));
    }
    if detail.is_full() {
        all.push(Interval { from_ns: began_ns, to_ns: ended_ns, why: SINCE.to_owned(), cut: false });
    }
    all
}

impl Filter {
    /// Keeps what lies in an interval, of the launchers that have most of it.
    pub(crate) fn in_interval(mut self, trace: &Trace, place: usize) -> Filter {
        let Some(chosen) = trace.intervals().and_then(|all| all.into_iter().nth(place)) else { return self };
        let (mut from_ns, mut to_ns) = (chosen.from_ns, chosen.to_ns);
        let half_ns = chosen.to_ns.saturating_sub(chosen.from_ns) / 2;
        let mut left_out = FxHashSet::default();
        for manifest in trace.manifests() {
            let Some(detail) = &manifest.detail else { continue };
            let part = |own: &Interval| (own.from_ns.max(from_ns), own.to_ns.min(to_ns));
            let common = of(manifest, detail).iter().map(part).max_by_key(|(from, to)| to.saturating_sub(*from));
            match common.filter(|(from, to)| to.saturating_sub(*from) >= half_ns) {
                Some(common) => (from_ns, to_ns) = common,
                None => _ = left_out.insert(manifest.launcher_id as i64),
            }
        }
        if !left_out.is_empty() {
            let kept = trace.processes.iter().map(|process| process.process_id);
            self.processes = Some(kept.filter(|id| !left_out.contains(&launcher_of(*id))).collect());
            self.left_out_launchers = left_out.len();
        }
        Filter { from_ns: Some(from_ns), to_ns: Some(to_ns), interval: Some(place), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Facts, Need};
    use crate::trace::Launcher;
    use crate::trace::testing::{START, TestTrace};

    const SECOND: i64 = 1_000_000_000;

    fn kept(intervals: &[(i64, i64)]) -> KeptDetail {
        let interval = |(from, to): &(i64, i64)| gputrace_collectors::manifest::Interval {
            from_ns: START + from * SECOND,
            to_ns: START + to * SECOND,
            why: format!("at {to}"),
        };
        KeptDetail { intervals: intervals.iter().map(interval).collect(), ..KeptDetail::default() }
    }

    fn span(filter: &Filter) -> Option<(i64, i64)> {
        let seconds = |at: i64| (at - START) / SECOND;
        Some((seconds(filter.from_ns?), seconds(filter.to_ns?)))
    }

    #[test]
    fn the_last_interval_is_reported_and_the_time_before_it_is_no_idle_time() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 60 * SECOND);
        let mut thread = made.thread(1, 11);
        for begin in [10, 40] {
            thread.now = START + begin * SECOND;
            for _ in 0..100 {
                thread.launch("k", 2_000);
                thread.sync("cuCtxSynchronize", "context", 50_000);
                thread.host(948_000);
            }
        }
        let mut trace = made.open();
        trace.launchers[0].manifest.as_mut().unwrap().detail = Some(kept(&[(10, 11), (40, 41)]));
        let filter = Filter::of(&trace);
        assert_eq!((span(&filter), filter.interval), (Some((40, 41)), Some(1)));
        let facts = Facts::gather(&trace, &filter, &[Need::Launches]);
        let launches: u64 = facts.launches.processes.iter().map(|(_, launches)| launches.count).sum();
        assert_eq!((launches, facts.wall_ns(1)), (100, SECOND as f64));
        let said = trace.about_intervals(&filter).unwrap();
        assert!(said.contains("in 2 intervals; this is number 2, the last one (40.0 s .. 41.0 s, at 41)"), "{said}");
        let said = trace.about_intervals(&Filter::whole(&trace)).unwrap();
        assert!(said.ends_with("what lies between them is not known, and is no idle time"), "{said}");
        assert_eq!(span(&Filter::whole(&trace).in_interval(&trace, 0)), Some((10, 11)));
    }

    #[test]
    fn a_trace_of_all_events_has_no_intervals_and_one_of_none_says_so() {
        let mut trace = TestTrace::new().open();
        assert_eq!((trace.intervals(), trace.about_intervals(&Filter::of(&trace))), (None, None));
        trace.launchers[0].manifest.as_mut().unwrap().detail = Some(kept(&[]));
        let filter = Filter::of(&trace);
        assert!(span(&filter).is_none());
        assert!(trace.about_intervals(&filter).unwrap().starts_with("no single event was kept"));
    }

    #[test]
    fn of_launchers_those_are_kept_that_have_most_of_the_interval() {
        let mut trace = TestTrace::new().open();
        let own = trace.launchers[0].manifest.clone().unwrap();
        let with = |launcher_id: u64, detail: Option<KeptDetail>| Launcher {
            manifest: Some(Manifest { launcher_id, detail, ..own.clone() }),
            ..Launcher::default()
        };
        trace.launchers = vec![with(1, Some(kept(&[(10, 20)]))), with(2, Some(kept(&[(12, 22)]))), with(3, None)];
        let filter = Filter::of(&trace);
        // The second one's is the last; the first has most of it, and the third keeps all.
        assert_eq!((span(&filter), filter.left_out_launchers), (Some((12, 20)), 0));
        trace.launchers.push(with(4, Some(kept(&[(0, 13)]))));
        let filter = Filter::of(&trace);
        assert_eq!((span(&filter), filter.left_out_launchers), (Some((12, 20)), 1));
        assert!(trace.about_intervals(&filter).unwrap().contains("without 1 of 4 launchers"));
    }

    #[test]
    fn time_in_which_recording_was_off_is_in_no_interval() {
        let mut trace = TestTrace::new().open();
        let second = |at: i64| START + at * SECOND;
        let recorded = Some(vec![(second(0), second(5)), (second(10), second(15)), (second(18), second(60))]);
        let detail = KeptDetail { recorded, ..kept(&[(1, 4), (2, 12), (6, 9), (14, 16)]) };
        trace.launchers[0].manifest.as_mut().unwrap().detail = Some(detail);
        let all = trace.intervals().unwrap();
        let shown: Vec<_> = all
            .iter()
            .map(|of| ((of.from_ns - START) / SECOND, (of.to_ns - START) / SECOND, of.why.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (1, 4, "at 4"),
                (2, 5, "at 12, part 1 of 2 in which recording was on"),
                (10, 12, "at 12, part 2 of 2 in which recording was on"),
                (14, 15, "at 16, as far as recording was on"),
            ]
        );
        assert_eq!(trace.usual_interval(), Some(3));
    }

    #[test]
    fn of_windows_the_last_whole_one_is_reported_once_for_all_launchers() {
        let mut trace = TestTrace::new().open();
        let mut own = trace.launchers[0].manifest.clone().unwrap();
        // The trace's own begin need not be a multiple of a minute.
        let begin = START - START.rem_euclid(60 * SECOND);
        let windows = Some(Windows { length_ns: 10 * SECOND, period_ns: 60 * SECOND });
        own.detail = Some(KeptDetail { windows, ..KeptDetail::default() });
        own.ended_ns = Some(begin + 245 * SECOND);
        let starting = |at: i64| Launcher {
            manifest: Some(Manifest { started_ns: begin + at * SECOND, ..own.clone() }),
            ..Launcher::default()
        };
        trace.launchers = vec![starting(5), starting(62)];
        let all = trace.intervals().unwrap();
        let found: Vec<i64> = all.iter().map(|interval| (interval.from_ns - begin) / SECOND).collect();
        assert_eq!(found, [5, 60, 120, 180, 240]);
        let filter = Filter::of(&trace);
        assert_eq!((filter.interval, filter.from_ns), (Some(3), Some(begin + 180 * SECOND)));
    }
}
