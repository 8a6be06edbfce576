//! `gputrace check`: metrics of a trace held against limits, and against another trace.
//!
//! A limit holds, is exceeded, or cannot be judged because the metric was not measured; that is never a pass. Of two traces one may
//! hold what the other does not (times of a GPU): that is said, and is neither.

mod junit;
mod limits;

use crate::analysis::{Unit, Worse};
use crate::metrics::{Answer, Answers, Named, shown};
use crate::render::{share, wrapped};

pub(crate) use junit::xml;
pub(crate) use limits::{Given, given};

/// The limit that another trace is, in words.
pub(crate) const BASE: &str = "as before";

/// What a metric may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// At most.
    Max(f64),
    /// At least.
    Min(f64),
    /// What it is in the other trace, what share of that it may be worse, and how much whatever that share is.
    Base(f64, f64, f64),
}

/// By how much a metric may be worse than in another trace, however little it was there: what is less differs from run to run,
/// and nobody waits for it. Times have `--floor`.
pub(crate) fn floor(unit: Unit, floor_ns: f64) -> f64 {
    match unit {
        Unit::Ns => floor_ns,
        Unit::Bytes | Unit::BytesEach => 65_536.0,
        Unit::Percent => 0.5,
        Unit::Count => 0.05,
        _ => 0.0,
    }
}

/// A limit.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    /// Of what.
    pub(crate) named: Named,
    /// Which.
    pub(crate) bound: Bound,
}

/// How a limit came out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It holds.
    Holds,
    /// It does not: by how much.
    Exceeded(String),
    /// Nobody knows: why.
    NotMeasured(String),
    /// Only one of two traces holds what it takes, and nobody asked for it by name: which, and why the other does not.
    NotCompared(String),
}

/// A limit and how it came out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    /// The metric's name.
    pub(crate) name: String,
    /// `at most 12.0 ms`.
    pub(crate) limit: String,
    /// The limit is what another trace has, which was measured.
    pub(crate) of_base: bool,
    /// How it came out.
    pub(crate) outcome: Outcome,
}

impl Limit {
    /// Holds what the trace answers against the limit.
    pub(crate) fn judge(&self, answers: &Answers) -> Judged {
        let outcome = match answers.get(&self.named) {
            Answer::Absent(why) | Answer::Unknown(why) => Outcome::NotMeasured(why),
            Answer::Known(value) => match (self.beyond(value), answers.lost(&self.named)) {
                (Some(said), _) => Outcome::Exceeded(said),
                (None, Some(lost)) => Outcome::NotMeasured(format!("{lost}: what is left is within the limit")),
                (None, None) => Outcome::Holds,
            },
        };
        let of_base = matches!(self.bound, Bound::Base(..));
        Judged { name: self.named.name(), limit: self.text(), of_base, outcome }
    }

    /// `at most 12.0 ms`.
    fn text(&self) -> String {
        let shown = |value: f64| shown(value, self.named.metric.unit);
        match self.bound {
            Bound::Max(most) => format!("at most {}", shown(most)),
            Bound::Min(least) => format!("at least {}", shown(least)),
            Bound::Base(base, tolerance, floor) => {
                let by = if floor > base.abs() * tolerance { shown(floor) } else { share(tolerance) };
                let sign = match self.named.metric.worse {
                    Worse::More => "+",
                    Worse::Less => "-",
                    Worse::Neither => "+-",
                };
                format!("{} before, {sign} {by} allowed", shown(base))
            }
        }
    }

    /// What a value is beyond the limit, if it is.
    fn beyond(&self, value: f64) -> Option<String> {
        let (least, most) = match self.bound {
            Bound::Max(most) => (f64::NEG_INFINITY, most),
            Bound::Min(least) => (least, f64::INFINITY),
            Bound::Base(base, tolerance, floor) => {
                let allowed = (base.abs() * tolerance).max(floor);
                let (least, most) = (base - allowed, base + allowed);
                match self.named.metric.worse {
                    Worse::More => (f64::NEG_INFINITY, most),
                    Worse::Less => (least, f64::INFINITY),
                    Worse::Neither => (least, most),
                }
            }
        };
        // Both numbers were rounded, at the sixteenth digit.
        let slack = value.abs() * 1e-12;
        let (limit, what) = match () {
            () if value > most + slack => (most, "too much"),
            () if value < least - slack => (least, "too little"),
            () => return None,
        };
        let by = (value - limit).abs();
        let relative = if limit != 0.0 && self.named.metric.unit != Unit::Percent {
            format!(" ({})", share(by / limit.abs()))
        } else {
            String::new()
        };
        let unit = self.named.metric.unit;
        Some(format!("{}, {}: {}{relative} {what}", shown(value, unit), self.text(), shown(by, unit)))
    }
}

/// The limits that do not hold, a line each, and a last line for all.
pub(crate) fn text(judged: &[Judged], trace: &str) -> String {
    let mut out = String::new();
    let mut counts = (0, 0);
    let mut apart: Vec<(&str, Vec<&str>)> = Vec::new();
    for Judged { name, limit, outcome, .. } in judged {
        let (word, said) = match outcome {
            Outcome::Holds => continue,
            Outcome::Exceeded(said) => {
                counts.0 += 1;
                ("exceeded", format!("{name}: {said}"))
            }
            Outcome::NotMeasured(why) => {
                counts.1 += 1;
                ("not measured", format!("{name}, {limit}: {why}"))
            }
            Outcome::NotCompared(why) => {
                match apart.iter_mut().find(|(of, _)| of == why) {
                    Some((_, names)) => names.push(name),
                    None => apart.push((why, vec![name])),
                }
                continue;
            }
        };
        paragraph(&mut out, word, &said);
    }
    for (why, names) in &apart {
        paragraph(&mut out, "not compared", &format!("{}: {why}", names.join(", ")));
    }
    let all = judged.len() - apart.iter().map(|(_, names)| names.len()).sum::<usize>();
    let limits = if all == 1 { "limit" } else { "limits" };
    out.push_str(&match counts {
        (0, 0) if all == 1 => format!("the limit holds: {trace}\n"),
        (0, 0) => format!("all {all} limits hold: {trace}\n"),
        (exceeded, 0) => format!("{exceeded} of {all} {limits} exceeded: {trace}\n"),
        (0, missing) => format!("{missing} of {all} {limits} not measured: {trace}\n"),
        (exceeded, missing) => format!("{exceeded} of {all} {limits} exceeded, {missing} not measured: {trace}\n"),
    });
    out
}

fn paragraph(out: &mut String, word: &str, said: &str) {
    for (index, line) in wrapped(said, 86).iter().enumerate() {
        out.push_str(&format!("{:12}  {line}\n", if index == 0 { word } else { "" }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_collectors::manifest::{Count, Recovered};

    use crate::analysis::Facts;
    use crate::metrics::find;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    fn limit(name: &str, bound: Bound) -> Limit {
        Limit { named: find(name).unwrap_or_else(|error| panic!("{error}")), bound }
    }

    #[test]
    fn what_is_less_than_the_floor_is_no_change_for_the_worse() {
        let base = |ns: f64| limit("summary.wait_ns", Bound::Base(ns, 0.1, floor(Unit::Ns, 5_000.0)));
        assert_eq!((base(1_000.0).beyond(2_000.0), base(1_000.0).beyond(6_000.0)), (None, None));
        assert_eq!(
            base(1_000.0).beyond(7_000.0).as_deref(),
            Some("7.00 us, 1.00 us before, + 5.00 us allowed: 1.00 us (17 %) too much")
        );
        assert!(base(1e6).beyond(1.101e6).is_some_and(|said| said.contains("+ 10 % allowed")));
        let waits = limit("summary.waits", Bound::Base(1.0, 0.1, floor(Unit::Count, 5_000.0)));
        assert!(waits.beyond(2.0).is_some(), "a wait more is one");
    }

    #[test]
    fn a_limit_is_exceeded_beyond_its_value_and_not_at_it() {
        let most = limit("summary.step_p50_ns", Bound::Max(12e6));
        assert_eq!(most.beyond(12e6), None);
        assert_eq!(most.beyond(14.4e6).as_deref(), Some("14.4 ms, at most 12.0 ms: 2.40 ms (20 %) too much"));
        let least = limit("launch-overhead.launches", Bound::Min(10.0));
        assert_eq!((least.beyond(10.0), least.beyond(11.0)), (None, None));
        assert_eq!(least.beyond(9.0).as_deref(), Some("9, at least 10: 1 (10 %) too little"));
        assert_eq!(limit("summary.lost", Bound::Max(0.0)).beyond(3.0).as_deref(), Some("3, at most 0: 3 too much"));
    }

    #[test]
    fn a_limit_on_losses_does_not_pass_where_nobody_counted_to_the_end() {
        let judge = |complete: bool, recovered: Option<Recovered>, name: &str, most: f64| {
            let mut made = TestTrace::rich();
            let manifest = made.manifest.as_mut().expect("a manifest");
            (manifest.complete, manifest.recovered) = (complete, recovered);
            let (trace, filter) = (made.open(), Filter::default());
            let limit = limit(name, Bound::Max(most));
            let facts = Facts::gather(&trace, &filter, &Answers::needs(&[limit.named]));
            limit.judge(&Answers::of(&[limit.named], &facts)).outcome
        };
        let heir = |taken_over| Some(Recovered { taken_over, ..Recovered::default() });
        for name in ["summary.lost", "self.dropped"] {
            assert!(matches!(judge(true, None, name, 1e9), Outcome::Holds), "{name}");
            assert!(matches!(judge(true, heir(true), name, 1e9), Outcome::Holds), "{name}");
            for (complete, recovered) in [(false, None), (true, heir(false))] {
                let outcome = judge(complete, recovered, name, 1e9);
                let Outcome::NotMeasured(why) = &outcome else { panic!("{name}: {outcome:?}") };
                assert!(why.contains("killed") && why.contains("nobody counted"), "{why}");
                // What is known may be too much already.
                assert!(matches!(judge(complete, recovered, name, -1.0), Outcome::Exceeded(_)), "{name}");
            }
        }
        assert!(matches!(judge(false, None, "summary.uncovered", 1e9), Outcome::Holds));
    }

    #[test]
    fn what_is_left_of_lost_events_of_malloc_is_within_no_limit() {
        for (dropped, holds) in [(1, true), (400, false)] {
            let mut made = TestTrace::new();
            made.process(1, 100, None, START + 1_000_000);
            made.thread(1, 11).malloc("alloc", 1000, 1000.0);
            let count = Count { seen: 1000 + dropped, recorded: 1000, dropped, ..Count::default() };
            let accounting = &mut made.manifest.as_mut().unwrap().processes[0].accounting;
            *accounting = [("host_alloc".to_owned(), count)].into();
            for name in ["host-memory.peak_live_bytes", "host-leaks.live_at_end_bytes"] {
                let (trace, filter) = (made.open(), Filter::default());
                let judge = |most| {
                    let limit = limit(name, Bound::Max(most));
                    let facts = Facts::gather(&trace, &filter, &Answers::needs(&[limit.named]));
                    limit.judge(&Answers::of(&[limit.named], &facts)).outcome
                };
                assert_eq!(matches!(judge(1e6), Outcome::Holds), holds, "{name}");
                let said = judge(1e6);
                assert!(
                    holds
                        || matches!(&said, Outcome::NotMeasured(why) if why.starts_with("29 % of the events of malloc are lost")),
                    "{said:?}"
                );
                assert!(matches!(judge(1.0), Outcome::Exceeded(_)), "{name}");
            }
        }
    }

    #[test]
    fn against_another_trace_only_the_bad_direction_counts() {
        let cost = limit("summary.launches", Bound::Base(60.0, 0.05, 0.0));
        assert_eq!((cost.beyond(63.0), cost.beyond(1.0)), (None, None));
        assert_eq!(cost.beyond(75.0).as_deref(), Some("75, 60 before, + 5 % allowed: 12 (19 %) too much"));
        let kept = limit("host-memory.kept_percent", Bound::Base(100.0, 0.05, 0.0));
        assert_eq!((kept.beyond(120.0), kept.beyond(94.0).is_some()), (None, true));
        let about = limit("launch-overhead.launches", Bound::Base(100.0, 0.1, 0.0));
        assert_eq!(
            (about.beyond(111.0).is_some(), about.beyond(89.0).is_some(), about.beyond(95.0)),
            (true, true, None)
        );
        assert!(
            limit("summary.lost", Bound::Base(0.0, 0.5, 0.0)).beyond(1.0).is_some(),
            "of nothing, anything is more"
        );
    }

    #[test]
    fn the_lines_name_what_does_not_hold_and_fit_a_hundred_columns() {
        let judged =
            |outcome| Judged { name: "summary.waits".into(), limit: "at most 1".into(), of_base: false, outcome };
        let all = [
            judged(Outcome::Holds),
            judged(Outcome::Exceeded("3, at most 1: 2 (200 %) too much".into())),
            judged(Outcome::NotMeasured("no steps were found in the trace; ".repeat(5))),
        ];
        let said = text(&all, "trace");
        assert!(
            said.starts_with("exceeded      summary.waits: 3, at most 1: 2 (200 %) too much\nnot measured  "),
            "{said}"
        );
        assert!(said.ends_with("\n1 of 3 limits exceeded, 1 not measured: trace\n"), "{said}");
        assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
        assert_eq!(text(&all[..1], "trace"), "the limit holds: trace\n");
        let apart = [judged(Outcome::Holds), judged(Outcome::NotCompared("only a has it".into()))];
        let said = "not compared  summary.waits, summary.waits: only a has it\nthe limit holds: trace\n";
        assert_eq!(text(&[&apart[..], &apart[1..]].concat(), "trace"), said);
    }
}
