//! Turns of a loop that differ in length: what may mark them, and what does.
//!
//! Where the number of layers, tokens or parts differs from turn to turn no name recurs after a regular number of calls but those of
//! the layers. Names that occur once a turn show it otherwise: several of them occur equally often, and one after the other in
//! turn. So of names that occur ten times and more, from the run's begin to its end, a few are chosen ([`Sequence::marks`]): waits,
//! copies, allocations, and kernels of which others occur as often. The read that notes when they occur ([`super::super::detect`]) judges them
//! ([`choose`]). One that takes turns with another may have gaps of any length, as long as most work lies in gaps of at most four
//! times the median; one that stands alone must have nearly all there, and few gaps that are much shorter, which what occurs by
//! chance has not. By chance a few gaps may be even, though, so a name that is no wait must occur a hundred times then.
//!
//! From the layers to such turns the same rules lead outwards as between regular levels, but that a loop of more than
//! [`LAYER`] calls is not left for them: steps with an evaluation now and then look the same, and are large.

use rustc_hash::FxHashMap;

use super::{COVERED, FEWEST, Name, Period, Sequence, TINY};

/// A name that occurs more often marks no turns that hold others.
const MOST: u64 = 200_000;
/// Names of each kind that are judged: waits, copies and allocations, groups of kernels that occur equally often, kernels of a group.
const WAITS: usize = 3;
const COPIES: usize = 3;
const GROUPS: usize = 5;
const OF_GROUP: usize = 2;
/// A level outside of another one occurs so many times less often.
const RARER: f64 = 1.25;
/// Calls of a loop that may be a layer of an uneven one.
const LAYER: f64 = 128.0;
/// A gap of more than so many times the median is out of the ordinary.
const FAR: u32 = 4;
/// Share of the work, and of the gaps, that must be ordinary of what stands alone, and how often it occurs if it is no wait.
const ALONE: f64 = 0.9;
const OFTEN: usize = 100;
/// Share of the gaps that hold another name exactly once, where two take turns.
const IN_TURN: f64 = 0.95;

/// An occurrence of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Number of the call in its thread; it may wrap.
    pub(crate) call: u32,
    /// Launches of the thread before it; 0 in tables that do not tell.
    pub(crate) launches: u32,
    /// When it marks a step.
    pub(crate) at_ns: i64,
}

/// A name that may mark turns, and where it occurs.
#[derive(Debug)]
pub(crate) struct Marks {
    pub(crate) name: Name,
    pub(crate) marks: Vec<Mark>,
}

impl Marks {
    /// Those before a time.
    pub(crate) fn before(&self, until_ns: i64) -> Marks {
        let marks = self.marks.iter().filter(|mark| mark.at_ns < until_ns).copied().collect();
        Marks { name: self.name, marks }
    }
}

impl Sequence {
    /// What may mark the turns of an uneven loop around the one that was found, if one was.
    pub(crate) fn marks(&self, found: Option<&Period>) -> Vec<Marks> {
        if found.is_some_and(|found| self.waits_every_time(found) || found.calls > LAYER) {
            return Vec::new();
        }
        let most = found.map_or(MOST, |found| ((found.count as f64 / RARER) as u64).min(MOST));
        let covers = |name: &Name, seen: &super::Recurrence| match name {
            Name::Launch(_) => (seen.launches.1 - seen.launches.0) as f64 >= COVERED * self.launches as f64,
            _ => f64::from(seen.last.wrapping_sub(seen.first)) >= COVERED * self.calls() as f64,
        };
        let may =
            |(name, seen): &(&Name, &super::Recurrence)| (FEWEST..=most).contains(&seen.count) && covers(name, seen);
        let mut all: Vec<(u64, u32, Name)> =
            self.names.iter().filter(may).map(|(n, seen)| (seen.count, seen.first, *n)).collect();
        let base = self.first.unwrap_or(0);
        all.sort_by_key(|(count, first, name)| (std::cmp::Reverse(*count), first.wrapping_sub(base) as i32, *name));
        let mut groups: FxHashMap<u64, usize> = FxHashMap::default();
        all.iter()
            .filter(|(.., name)| matches!(name, Name::Launch(_)))
            .for_each(|(count, ..)| *groups.entry(*count).or_default() += 1);
        let mut groups: Vec<(u64, usize)> = groups.into_iter().collect();
        groups.sort_by_key(|(count, names)| std::cmp::Reverse((*names, *count)));
        groups.truncate(GROUPS);
        let of = |is: &dyn Fn(&Name) -> bool, most: usize| -> Vec<Name> {
            all.iter().map(|(.., name)| *name).filter(|name| is(name)).take(most).collect()
        };
        let waits = of(&|name| matches!(name, Name::Wait(_)), WAITS);
        let copies = of(&|name| matches!(name, Name::Call(_)), COPIES);
        let launches = groups.into_iter().flat_map(|(of_group, _)| {
            let own = all.iter().filter(move |(count, _, name)| *count == of_group && matches!(name, Name::Launch(_)));
            own.map(|(.., name)| *name).take(OF_GROUP)
        });
        waits.into_iter().chain(launches).chain(copies).map(|name| Marks { name, marks: Vec::new() }).collect()
    }
}

/// A name as the mark of turns.
struct Level {
    /// Its place among the marks.
    at: usize,
    count: f64,
    /// Calls from one to the next: in the median, and in the mean.
    median: f64,
    mean: f64,
}

/// Which of these marks the turns of the loop: its place; none: the loop that was found is what there is. `waits`: how often the
/// thread waits for the GPU.
pub(crate) fn choose(found: Option<&Period>, waits: u64, all: &mut [Marks]) -> Option<usize> {
    let base = all.iter().filter_map(|of| of.marks.first()).map(|mark| mark.call).next()?;
    let place = |call: u32| call.wrapping_sub(base) as i32;
    all.iter_mut().for_each(|of| of.marks.sort_unstable_by_key(|mark| place(mark.call)));
    let mut levels: Vec<Level> = (0..all.len()).filter_map(|at| level(all, at)).collect();
    // Of those that occur equally often a wait is taken, for it ends a turn, else what comes first.
    levels.sort_by_key(|of| {
        let (name, first) = (all[of.at].name, all[of.at].marks.first().map_or(0, |mark| place(mark.call)));
        (std::cmp::Reverse(of.count as u64), !matches!(name, Name::Wait(_)), first, name)
    });
    levels.dedup_by(|later, first| first.count - later.count <= 1.0 && !matches!(all[later.at].name, Name::Wait(_)));
    let mut inner: Option<&Level> = None;
    for outer in &levels {
        let (count, calls) = match (inner, found) {
            (Some(inner), _) => (inner.count, inner.median),
            // Another loop, before it or after.
            (None, Some(found)) if !found.lies_in(span(&all[outer.at])) => continue,
            // Of a few calls one more, in one of eight turns, is lost in the mean.
            (None, Some(found)) => (found.count as f64, if found.calls < TINY { found.usual } else { found.calls }),
            (None, None) => {
                inner = Some(outer);
                continue;
            }
        };
        if waits as f64 >= 0.9 * count && count > outer.count + 1.0 {
            break;
        }
        let (repeats, tiny, waited) = (count / outer.count, calls < TINY, matches!(all[outer.at].name, Name::Wait(_)));
        let own = outer.mean - repeats * calls;
        let same = count - outer.count <= 1.0 && waited;
        let ends = tiny && !matches!(all[outer.at].name, Name::Call(_)) || repeats <= LAYER;
        if same || calls <= LAYER && (own >= 0.1 * calls || tiny && waited) && ends {
            inner = Some(outer);
        }
    }
    inner.map(|level| level.at)
}

/// Number of its first call, and of its last.
fn span(of: &Marks) -> (u32, u32) {
    let call = |mark: Option<&Mark>| mark.map_or(0, |mark| mark.call);
    (call(of.marks.first()), call(of.marks.last()))
}

/// A name whose gaps are even enough.
fn level(all: &[Marks], at: usize) -> Option<Level> {
    let Marks { name, marks } = &all[at];
    let is_launch = matches!(name, Name::Launch(_));
    let gap = |pair: &[Mark], by_launches: bool| match by_launches {
        true => pair[1].launches.wrapping_sub(pair[0].launches),
        false => pair[1].call.wrapping_sub(pair[0].call),
    };
    let mut gaps: Vec<u32> = marks.windows(2).map(|pair| gap(pair, is_launch)).collect();
    if gaps.len() < FEWEST as usize - 1 {
        return None;
    }
    gaps.sort_unstable();
    let median = gaps[gaps.len() / 2];
    let ordinary = median / FAR..=median.saturating_mul(FAR);
    let sum = |most: u32| gaps.iter().filter(|gap| **gap <= most).map(|gap| f64::from(*gap)).sum::<f64>();
    let share = sum(*ordinary.end()) / sum(u32::MAX).max(1.0);
    let even = gaps.iter().filter(|gap| ordinary.contains(gap)).count() as f64 / gaps.len() as f64;
    let mut others = (0..all.len()).filter(|other| *other != at);
    let marked = match others.any(|other| take_turns(marks, &all[other].marks)) {
        true => share >= COVERED,
        false => share.min(even) >= ALONE && (marks.len() >= OFTEN || matches!(name, Name::Wait(_))),
    };
    let mut calls: Vec<u32> = marks.windows(2).map(|pair| gap(pair, false)).collect();
    calls.sort_unstable();
    let mean = calls.iter().map(|gap| f64::from(*gap)).sum::<f64>() / calls.len() as f64;
    let level = Level { at, count: marks.len() as f64, median: f64::from(calls[calls.len() / 2]), mean };
    (marked && mean >= 1.5).then_some(level)
}

/// Whether the other one occurs once between one occurrence and the next.
fn take_turns(one: &[Mark], other: &[Mark]) -> bool {
    if one.len().abs_diff(other.len()) > 1 {
        return false;
    }
    let mut rest = other;
    let mut in_turn = 0;
    for pair in one.windows(2) {
        let before =
            |end: u32, rest: &[Mark]| rest.iter().take_while(|mark| (mark.call.wrapping_sub(end) as i32) < 0).count();
        rest = &rest[before(pair[0].call, rest)..];
        let between = before(pair[1].call, rest);
        in_turn += usize::from(between == 1);
        rest = &rest[between..];
    }
    in_turn as f64 >= IN_TURN * (one.len() - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of a thread, as the two reads see them.
    #[derive(Default)]
    struct Calls {
        sequence: Sequence,
        all: Vec<(Name, u32)>,
        seed: u64,
    }

    impl Calls {
        fn call(&mut self, name: Name) {
            let call = (u32::MAX - 500).wrapping_add(self.all.len() as u32);
            self.sequence.add(name, call);
            self.all.push((name, call));
        }

        fn launches(&mut self, names: std::ops::Range<i64>) {
            names.for_each(|name| self.call(Name::Launch(name)));
        }

        fn random(&mut self, below: u64) -> u64 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.seed >> 33) % below
        }

        /// What marks the steps, and how often it occurs.
        fn found(&self) -> Option<(Name, usize)> {
            let period = self.sequence.period();
            let mut all = self.sequence.marks(period.as_ref());
            let mut launches = 0;
            for (name, call) in &self.all {
                if let Some(of) = all.iter_mut().find(|of| of.name == *name) {
                    of.marks.push(Mark { call: *call, launches, at_ns: 0 });
                }
                launches += u32::from(matches!(name, Name::Launch(_)));
            }
            let chosen = choose(period.as_ref(), self.sequence.waits, &mut all).map(|at| &all[at]);
            chosen.map(|of| (of.name, of.marks.len())).or(period.map(|p| (p.anchor, p.count as usize)))
        }
    }

    const WAIT: Name = Name::Wait(1);
    const COPY: Name = Name::Call(2);

    #[test]
    fn requests_of_any_length_are_steps_and_their_layers_are_not() {
        for longest in [6, 30, 100] {
            let mut calls = Calls::default();
            for _ in 0..60 {
                calls.call(COPY);
                calls.launches(100..102);
                for _ in 0..2 + calls.random(longest) {
                    calls.launches(10..22);
                }
                calls.launches(200..203);
                calls.call(WAIT);
            }
            assert_eq!(calls.found(), Some((WAIT, 60)), "{longest}");
        }
    }

    #[test]
    fn without_a_wait_what_comes_first_in_a_turn_marks_it() {
        let turns = |copy: bool| {
            let mut calls = Calls::default();
            for _ in 0..60 {
                if copy {
                    calls.call(COPY);
                }
                calls.launches(100..102);
                for _ in 0..3 + calls.random(40) {
                    calls.launches(10..22);
                }
                calls.launches(200..203);
            }
            calls.found()
        };
        assert_eq!([turns(true), turns(false)], [Some((COPY, 60)), Some((Name::Launch(100), 60))]);
    }

    #[test]
    fn sequences_of_any_length_of_one_kernel_are_steps() {
        let cells = |first: Option<Name>, last: Option<Name>| {
            let mut calls = Calls::default();
            for _ in 0..120 {
                first.into_iter().for_each(|name| calls.call(name));
                for _ in 0..5 + calls.random(60) {
                    calls.call(Name::Launch(10));
                }
                last.into_iter().for_each(|name| calls.call(name));
            }
            calls.found()
        };
        assert_eq!(cells(None, Some(WAIT)), Some((WAIT, 120)));
        assert_eq!(cells(Some(Name::Launch(7)), None), Some((Name::Launch(7), 120)));
        assert_eq!(cells(Some(COPY), None), Some((COPY, 120)));
        assert_eq!(cells(Some(COPY), Some(Name::Launch(7))), Some((COPY, 120)));
    }

    #[test]
    fn forward_and_backward_of_any_length_with_an_optimizer_are_one_step() {
        let mut calls = Calls::default();
        for _ in 0..100 {
            let length = 4 + calls.random(50);
            (0..length).for_each(|_| calls.launches(10..15));
            calls.launches(100..101);
            (0..length).for_each(|_| calls.launches(20..28));
            calls.launches(200..206);
        }
        assert_eq!(calls.found().map(|(_, count)| count), Some(100));
    }

    #[test]
    fn an_evaluation_now_and_then_leaves_steps_what_they_are() {
        let mut calls = Calls::default();
        for _ in 0..15 {
            for _ in 0..20 + calls.random(20) {
                calls.launches(0..200);
            }
            calls.launches(500..900);
            calls.call(WAIT);
        }
        assert_eq!(calls.found().map(|(name, _)| name), Some(Name::Launch(0)));
    }

    #[test]
    fn solvers_that_wait_in_every_iteration_have_iterations_for_steps() {
        let mut calls = Calls::default();
        for _ in 0..30 {
            calls.launches(100..103);
            for _ in 0..5 + calls.random(50) {
                calls.launches(10..14);
                calls.call(WAIT);
            }
        }
        assert_eq!(calls.found().map(|(name, _)| name), Some(WAIT));
    }

    #[test]
    fn what_occurs_by_chance_marks_nothing() {
        for seed in 0..20 {
            let mut calls = Calls { seed, ..Calls::default() };
            for _ in 0..20_000 {
                let name = calls.random(20) as i64;
                calls.call(if name < 2 { Name::Wait(name) } else { Name::Launch(name) });
            }
            assert_eq!(calls.found(), None, "{seed}");
        }
    }
}
