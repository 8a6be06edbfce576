//! Finds what repeats in a thread's calls: the first half of step detection.
//!
//! A training or serving loop makes the same calls again and again. Every event has a name (the kernel launched, or the
//! function called), and its correlation id says how many calls its thread made before it. A name that occurs once a
//! step therefore has occurrences that are all the same number of calls apart. Per name this keeps a small histogram of
//! those gaps, which no time stamp and no other thread disturbs. Most launches between the first and the last occurrence must
//! lie in gaps that are alike: a collective for each of a model's buckets recurs regularly too, for a while, and then all other
//! work of the step comes in one gap.
//!
//! Several loops may be nested: layers in a step, steps in an epoch. A name whose gaps are regular makes a **level**.
//! From the innermost level outwards, a level is left for the next one only when the next one adds work of its own:
//! the optimizer after twelve equal layers does, a log line every hundred steps does not; or when it is exactly regular
//! where the inner one is only roughly so. A level in which the host
//! waits every time is a step already, and so is one of which the next level would hold more than 128, unless it is tiny.
//!
//! A loop whose turns differ in length, for the number of layers or of tokens differs, has no regular level of its own: its
//! layers have. What may mark such turns is told apart here and judged when it was read where it occurs ([`uneven`]).

pub(super) mod uneven;

use rustc_hash::FxHashMap;

/// A name must occur so often before it can mark steps.
const FEWEST: u64 = 10;
/// Share of the launches between its occurrences that must lie in gaps of the usual length.
const COVERED: f64 = 0.5;
/// A loop of fewer calls is hardly a step: a wait outside of it ends one, however often it repeats.
pub(super) const TINY: f64 = 16.0;
/// Names per thread that are followed; a loop has fewer.
const NAMES: usize = 20_000;
/// Different gaps per name that are followed; a regular name has fewer.
const GAPS: usize = 48;

/// The calls of one thread.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    names: FxHashMap<Name, Recurrence>,
    waits: u64,
    launches: u64,
    /// What graphs are launched with: a turn of one call is a step where that call is such a launch.
    graph: Option<Name>,
    first: Option<u32>,
    last: u32,
}

/// What an event is called, and in which table it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Name {
    /// A launch: the kernel's `name_id`, or the function's `api_id` where there is no kernel.
    Launch(i64),
    /// A call in which the host waits: its `api_id`.
    Wait(i64),
    /// A range that the program named: its `name_id`.
    Range(i64),
    /// Another call: its `api_id`. Of those that a loop is found by these are copies, allocations and frees.
    Call(i64),
}

impl Name {
    /// The id behind it.
    pub(crate) fn id(self) -> i64 {
        match self {
            Name::Launch(id) | Name::Wait(id) | Name::Range(id) | Name::Call(id) => id,
        }
    }
}

/// How often and how regularly a name occurs.
#[derive(Debug, Default)]
struct Recurrence {
    count: u64,
    /// The first call and the last.
    first: u32,
    last: u32,
    /// Launches of the thread before the first occurrence, and before the last. Waits stand in another table: there 0.
    launches: (u64, u64),
    /// Gaps in calls. The most frequent tends to the front.
    gaps: Vec<Gaps>,
    irregular: bool,
}

/// Gaps of one bucket.
#[derive(Clone, Copy, Debug)]
struct Gaps {
    bucket: u16,
    count: u32,
    sum: f64,
    squares: f64,
    /// Launches in these gaps.
    launches: u64,
}

/// The loop that was found in a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Period {
    /// The name that occurs once in it.
    pub(crate) anchor: Name,
    /// How often it occurs.
    pub(crate) count: u64,
    /// Calls of the thread in it.
    pub(crate) calls: f64,
    /// The same in most of its turns.
    pub(crate) usual: f64,
    /// Share of its gaps that are the usual ones.
    pub(crate) regularity: f64,
    /// Standard deviation of those, as a share of their mean.
    pub(crate) spread: f64,
    /// Number of its first call, and of its last.
    pub(crate) span: (u32, u32),
}

impl Sequence {
    /// Adds an event. `call` is the number of the call in its thread; it may wrap.
    #[inline]
    pub(crate) fn add(&mut self, name: Name, call: u32) {
        // What is copied before a loop, weights and data, is no part of it.
        if !matches!(name, Name::Call(_)) {
            self.extend(call);
        }
        self.waits += u64::from(matches!(name, Name::Wait(_)));
        let launched = if matches!(name, Name::Launch(_)) { self.launches } else { 0 };
        self.launches += u64::from(matches!(name, Name::Launch(_)));
        if self.names.len() >= NAMES && !self.names.contains_key(&name) {
            return;
        }
        let seen = self.names.entry(name).or_default();
        if seen.count > 0 && !seen.irregular {
            seen.gap(call.wrapping_sub(seen.last), launched - seen.launches.1);
        }
        if seen.count == 0 {
            (seen.first, seen.launches.0) = (call, launched);
        }
        seen.count += 1;
        (seen.last, seen.launches.1) = (call, launched);
    }

    /// Adds a launch of a graph.
    pub(crate) fn add_graph(&mut self, api: i64, call: u32) {
        self.graph = Some(Name::Launch(api));
        self.add(Name::Launch(api), call);
    }

    /// Waits and launches stand in tables of their own, whose batches come one after the other.
    #[inline]
    fn extend(&mut self, call: u32) {
        let earlier = |than: u32| call.wrapping_sub(than) > u32::MAX / 2;
        let first = *self.first.get_or_insert_with(|| {
            self.last = call;
            call
        });
        if !earlier(self.last) {
            self.last = call;
        }
        if earlier(first) {
            self.first = Some(call);
        }
    }

    /// Calls of the thread from its first event to its last.
    pub(crate) fn calls(&self) -> u64 {
        self.first.map_or(0, |first| u64::from(self.last.wrapping_sub(first)) + 1)
    }

    /// How often the thread waits for the GPU.
    pub(crate) fn waits(&self) -> u64 {
        self.waits
    }

    /// The loop, if there is one.
    pub(crate) fn period(&self) -> Option<Period> {
        let marks = self.names.iter().filter(|(name, _)| !matches!(name, Name::Call(_)));
        let mut regular: Vec<Period> = marks.filter_map(|(name, seen)| seen.period(*name)).collect();
        // A graph stands for all that is in it.
        let is_graph = |p: &Period| Some(p.anchor) == self.graph;
        let weight = |p: &Period| p.count as f64 * if is_graph(p) { p.calls.max(TINY) } else { p.calls };
        regular.retain(|p| weight(p) >= 0.3 * self.calls() as f64 && (p.calls >= 1.5 || is_graph(p)));
        // A wait ends a step better than any kernel begins one; then the most regular; the name makes it deterministic.
        let rank = |p: &Period| {
            let irregular = ((1.0 - p.regularity) * 1e6) as i64;
            (matches!(p.anchor, Name::Launch(_)), irregular, (p.spread * 1e6) as i64, p.anchor)
        };
        regular.sort_by_key(rank);
        let mut levels: Vec<Period> = Vec::new();
        for period in regular {
            let same = |l: &&mut Period| (l.count as f64 / period.count as f64 - 1.0).abs() <= 0.02;
            if levels.iter_mut().find(same).is_none() {
                levels.push(period);
            }
        }
        levels.sort_by_key(|level| std::cmp::Reverse(level.count));
        let mut levels = levels.into_iter();
        let mut inner = levels.next()?;
        for outer in levels {
            if self.waits_every_time(&inner) {
                break;
            }
            if !inner.lies_in(outer.span) {
                // Another loop, before or after it: the longer one is looked at.
                if weight(&outer) > weight(&inner) {
                    inner = outer;
                }
                continue;
            }
            let times = outer.count.max(1) as f64;
            let repeats = inner.count as f64 / times;
            let own = outer.calls - repeats * inner.calls;
            let tiny = inner.calls < TINY;
            let adds = own >= 0.1 * inner.calls || tiny && matches!(outer.anchor, Name::Wait(_));
            if (adds || inner.is_part_of(&outer, repeats)) && (tiny || repeats <= 128.0) {
                inner = outer;
            }
        }
        Some(inner)
    }

    /// Whether the host waits at least once in (nearly) every turn of a loop.
    fn waits_every_time(&self, level: &Period) -> bool {
        self.waits as f64 >= 0.9 * level.count as f64
    }
}

impl Period {
    /// Whether most of its turns were made while another loop was, of which this is the first call and the last.
    fn lies_in(&self, other: (u32, u32)) -> bool {
        let from = self.span.0;
        let at = |call: u32| i64::from(call.wrapping_sub(from) as i32);
        let both = at(self.span.1).min(at(other.1)) - at(other.0).max(0);
        2 * both >= at(self.span.1)
    }

    /// Whether the gaps of this level differ, yet those of the outer one do not: then they are not steps that differ by
    /// chance, whose sums would differ too, but always the same unequal parts of a larger pattern.
    fn is_part_of(&self, outer: &Period, repeats: f64) -> bool {
        self.spread > 0.005 && outer.spread < 0.3 * self.spread / repeats.sqrt()
    }
}

impl Recurrence {
    #[inline]
    fn gap(&mut self, gap: u32, launches: u64) {
        let (bucket, calls) = (bucket_of(gap), f64::from(gap));
        let Some(at) = self.gaps.iter().position(|g| g.bucket == bucket) else {
            self.irregular = self.gaps.len() >= GAPS;
            self.gaps.push(Gaps { bucket, count: 1, sum: calls, squares: calls * calls, launches });
            return;
        };
        let gaps = &mut self.gaps[at];
        gaps.count = gaps.count.saturating_add(1);
        gaps.sum += calls;
        gaps.squares += calls * calls;
        gaps.launches += launches;
        if at > 0 && self.gaps[at].count > self.gaps[at - 1].count {
            self.gaps.swap(at, at - 1);
        }
    }

    /// The name as the mark of a loop, when three quarters of its gaps are alike, and hold most of what was launched.
    fn period(&self, anchor: Name) -> Option<Period> {
        if self.count < FEWEST || self.irregular {
            return None;
        }
        let most = self.gaps.iter().max_by_key(|g| g.count)?;
        let (mode, usual) = (most.bucket, most.sum / f64::from(most.count));
        let near = || self.gaps.iter().filter(|g| g.bucket.abs_diff(mode) <= 1);
        let covered: u64 = near().map(|gaps| gaps.launches).sum();
        if (covered as f64) < COVERED * (self.launches.1 - self.launches.0) as f64 {
            return None;
        }
        let (alike, sum, squares) = near().fold((0.0, 0.0, 0.0), |(count, sum, squares), g| {
            (count + f64::from(g.count), sum + g.sum, squares + g.squares)
        });
        let (regularity, calls) = (alike / (self.count - 1) as f64, sum / alike);
        let spread = (squares / alike - calls * calls).max(0.0).sqrt() / calls;
        (regularity >= 0.75).then_some(Period {
            anchor,
            count: self.count,
            calls,
            usual,
            regularity,
            spread,
            span: (self.first, self.last),
        })
    }
}

/// Gaps up to 16 have a bucket each; above, eight buckets to the octave (9 %).
fn bucket_of(gap: u32) -> u16 {
    if gap < 16 {
        return gap as u16;
    }
    let exponent = 31 - gap.leading_zeros();
    (16 + (exponent - 4) * 8 + ((gap >> (exponent - 3)) & 7)) as u16
}

#[cfg(test)]
mod tests;
