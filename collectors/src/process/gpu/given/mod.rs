//! Which call gave the GPU a piece of work: by CUPTI's number of the call, and by what was given.
//!
//! CUPTI numbers the calls that give the GPU work, one after the other over all threads, at some moment between a call's
//! begin and its end. So calls in the order of their begin have consecutive numbers, but for calls that overlap: there the
//! number can be any that their times allow. What was given (a kernel's shape, the bytes of a copy) and the stream say
//! which of them it is. CUPTI may leave out calls that we know (some that are captured), so the place of a number is looked
//! for again where it does not fit. A record whose call is still running, and has no event yet, waits.
//!
//! Once another profiler has had CUPTI count every call there are gaps between the numbers, and only their order is left:
//! work of a stream then belongs to the next call that gave the same to that stream.

use std::collections::{HashMap, VecDeque};

use gputrace_abi::gpu::{Work, kind};

/// Calls that are remembered: those of ten seconds at a hundred thousand a second take 60 MB.
const MOST: usize = 1 << 20;
/// Streams of which it is known how far their work was found.
const MOST_STREAMS: usize = 1 << 14;
/// Launches of graphs, whose nodes run for as long as they like.
const MOST_GRAPHS: usize = 1 << 14;
/// How far from its place a call is looked for.
const REACH: i64 = 64;
/// A longer call, in the middle of which its thread was stopped, may have a number far from its place: these are looked at one
/// by one.
const LONG_NS: i64 = 10_000;
/// Records and places that are compared when the place is not known.
const SAMPLE: usize = 256;
const PLACES: i64 = 4096;
/// Records by which another place must be better than the one that is known.
const CERTAIN: usize = 8;
/// A call that began so shortly before records went on may have been counted.
const EARLIER_NS: i64 = 20_000_000;
/// Work may seem to begin so long before its call, beyond the error of CUPTI's clock: on an H200 it began 4.4 us after it at the
/// earliest.
const SLACK_NS: i64 = 20_000;

/// What was given, as the call and CUPTI's record both know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A kernel: grid, block and dynamic shared memory, packed.
    Kernel(u64, u64),
    /// A copy of so many bytes.
    Copy(u64),
    /// A set.
    Set(u64),
    /// A graph, with all that is in it.
    Graph,
    /// Nothing: the call was captured, or failed.
    Nothing,
}

impl What {
    /// What a record is of.
    pub(crate) fn of(work: &Work) -> What {
        match work.kind {
            _ if work.graph != 0 => What::Graph,
            kind::KERNEL => What::Kernel(work.grid, work.block),
            kind::SET => What::Set(work.amount),
            _ => What::Copy(work.amount),
        }
    }
}

/// A call that gave the GPU work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    pub(crate) correlation_id: i64,
    pub(crate) what: What,
    pub(crate) stream: i64,
    pub(crate) context: i32,
    pub(crate) device: Option<i32>,
    /// It is sure that there is a record of it.
    pub(crate) sure: bool,
    /// Its record was found.
    pub(crate) done: bool,
}

impl Given {
    /// A call that began and ended then.
    pub(crate) fn new((start_ns, end_ns): (i64, i64), correlation_id: i64, what: What) -> Given {
        Given { start_ns, end_ns, correlation_id, what, stream: 0, context: 0, device: None, sure: true, done: false }
    }
}

/// The calls whose records may still come.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// In the order of their begin.
    calls: VecDeque<Given>,
    /// Place of the first of them, counted over the whole run.
    first: i64,
    /// Begin and end of those that took long, in the order of their begin.
    long: VecDeque<(i64, i64)>,
    /// What the longest of them took.
    longest_ns: i64,
    /// CUPTI's number of a call is its place and this.
    shift: Option<i64>,
    /// CUPTI's last number, which wraps at 32 bits.
    last: i64,
    /// The highest number that was looked for.
    seen: i64,
    /// How wrong CUPTI's times may be.
    pub(crate) error_ns: i64,
    /// Graphs that were launched, by CUPTI's number of the launch.
    graphs: HashMap<i64, Given>,
    graph_order: VecDeque<i64>,
    /// Begin of the last call whose work was found, of each stream and of all.
    found: HashMap<Option<i64>, i64>,
    /// Work that was given before is not told of.
    since_ns: i64,
    /// Calls inside windows whose work was told of.
    pub(crate) answered: u64,
}

impl Calls {
    /// A call was made. Calls of other threads that began later may have come before.
    pub(crate) fn add(&mut self, call: Given) {
        let is_last = self.calls.back().is_none_or(|last| last.start_ns <= call.start_ns);
        let before = |other: &Given| other.start_ns <= call.start_ns;
        let at = if is_last { self.calls.len() } else { self.calls.partition_point(before) };
        self.calls.insert(at, call);
        if call.end_ns - call.start_ns > LONG_NS {
            let at = self.long.partition_point(|(start_ns, _)| *start_ns <= call.start_ns);
            self.long.insert(at, (call.start_ns, call.end_ns));
            self.longest_ns = self.longest_ns.max(call.end_ns - call.start_ns);
        }
        if self.calls.len() > MOST {
            self.pop();
        }
    }

    fn pop(&mut self) {
        let popped = self.calls.pop_front();
        self.first += 1;
        if self.long.front().is_some_and(|(start_ns, _)| popped.is_some_and(|call| *start_ns <= call.start_ns)) {
            self.long.pop_front();
        }
    }

    /// CUPTI's number, which wraps at 32 bits, on the way that it went.
    fn number(&self, correlation: u32) -> i64 {
        self.last + i64::from(correlation.wrapping_sub(self.last as u32) as i32)
    }

    fn at(&self, place: i64) -> Option<&Given> {
        usize::try_from(place - self.first).ok().and_then(|at| self.calls.get(at))
    }

    /// Up to when the call of work that began then may have begun.
    fn latest(&self, begin_ns: i64) -> i64 {
        begin_ns.saturating_add(SLACK_NS + self.error_ns)
    }

    /// Whether the call at a place may be the one that gave this.
    fn fits(&self, place: i64, what: What, stream: Option<i64>, before_ns: i64) -> bool {
        self.at(place).is_some_and(|call| {
            let stream_fits = stream.is_none_or(|stream| stream == call.stream);
            !call.done && call.what == what && stream_fits && call.start_ns <= before_ns
        })
    }

    /// Whether the times of the call at `place` allow the number that belongs to the place `expected`: so many calls that began
    /// before it must have been numbered after it, or the other way round, and have overlapped with it.
    fn may_be(&self, place: i64, expected: i64) -> bool {
        let Some(call) = self.at(place) else { return false };
        if place <= expected {
            return self.at(expected).is_none_or(|there| call.end_ns >= there.start_ns);
        }
        let near = (1..=REACH).map_while(|away| self.at(place - away));
        let far_ns = self.at(place - REACH).map_or(i64::MIN, |far| far.start_ns);
        let long = self.long_between(call.start_ns, far_ns).map(|(_, end_ns)| end_ns);
        let running = near.map(|other| other.end_ns).chain(long).filter(|end_ns| *end_ns >= call.start_ns);
        running.take((place - expected) as usize).count() as i64 == place - expected
    }

    /// Places of long calls that were running at some time.
    fn long_at(&self, ns: i64) -> impl Iterator<Item = i64> {
        let running = self.long_between(ns, ns).filter(move |(_, end_ns)| *end_ns >= ns);
        running.map(|(start_ns, _)| self.first + self.calls.partition_point(|call| call.start_ns < start_ns) as i64)
    }

    /// Begin and end of long calls that may have been running at some time and began before another.
    fn long_between(&self, ns: i64, before_ns: i64) -> impl Iterator<Item = (i64, i64)> {
        let from = self.long.partition_point(|(start_ns, _)| *start_ns < ns.saturating_sub(self.longest_ns));
        self.long.range(from..).copied().take_while(move |(start_ns, _)| *start_ns < before_ns)
    }

    /// The call that gave this work. `stream`: where it was given, as the driver names that, if it is known. `anywhere`: its
    /// number may have nothing to do with the calls' times, since CUPTI counted what we do not see.
    pub(crate) fn find(&mut self, work: &Work, begin_ns: i64, stream: Option<i64>, anywhere: bool) -> Option<Given> {
        let number = self.number(work.correlation);
        if work.graph != 0
            && let Some(known) = self.graphs.get(&number)
        {
            return Some(*known);
        }
        // Nodes of a graph run in other streams too than the one that it was launched in.
        let stream = stream.filter(|_| work.graph == 0);
        let (what, before_ns) = (What::of(work), self.latest(begin_ns));
        let expected = number - self.shift?;
        let skipped = number - self.seen - 1;
        self.seen = self.seen.max(number);
        if expected > self.first + self.calls.len() as i64 + REACH {
            return None;
        }
        let near = (0..=REACH).flat_map(|away| [expected + away, expected - away]);
        let there_ns = self.at(expected).map_or(before_ns, |there| there.start_ns);
        let fits = |place: &i64| self.fits(*place, what, stream, before_ns);
        let sure =
            near.clone().chain(self.long_at(there_ns)).find(|place| fits(place) && self.may_be(*place, expected));
        // CUPTI counts what we do not see, too, such as what the driver does to load a kernel's code: where numbers are
        // missing the call may lie so many places before.
        let before = if sure.is_some() { None } else { (expected - skipped.clamp(0, REACH)..expected).find(fits) };
        let place = sure.or(before).or_else(|| { near }.find(|place| anywhere && fits(place)))?;
        if before.is_some() {
            self.shift = Some(number - place);
        }
        self.take(number, place)
    }

    fn take(&mut self, number: i64, place: i64) -> Option<Given> {
        let call = self.calls.get_mut(usize::try_from(place - self.first).ok()?)?;
        call.done = true;
        self.answered += u64::from(call.sure);
        let found = *call;
        if self.found.len() > MOST_STREAMS {
            self.found.clear();
        }
        for of in [Some(found.stream), None] {
            let last = self.found.entry(of).or_insert(found.start_ns);
            *last = found.start_ns.max(*last);
        }
        self.last = self.last.max(number);
        if found.what == What::Graph {
            self.graphs.insert(number, found);
            self.graph_order.push_back(number);
            if self.graph_order.len() > MOST_GRAPHS
                && let Some(oldest) = self.graph_order.pop_front()
            {
                self.graphs.remove(&oldest);
            }
        }
        Some(found)
    }

    /// Finds out where CUPTI's numbers lie among the calls: where the most of these records, and more than one in four, in
    /// the order of their numbers, find what they are of, in the same stream each time. `from_ns`: earlier calls are none of
    /// theirs. A place that is known is given up for one that more than half of them fit and that is better by far. False: there
    /// is none, or there are gaps between the numbers.
    pub(crate) fn align(&mut self, records: &[(Work, i64)], from_ns: i64) -> bool {
        let sample = records.get(..SAMPLE).unwrap_or(records);
        let Some((first, _)) = sample.first().filter(|_| is_dense(sample)) else { return false };
        // Numbers go on from where they were, unless they were never known.
        if self.shift.is_none() {
            self.last = i64::from(first.correlation);
        }
        let base = self.number(first.correlation);
        let begin = self.first + self.calls.partition_point(|call| call.start_ns < from_ns) as i64;
        let end = self.first + self.calls.len() as i64;
        let scored = |place: i64| (self.score(sample, base, place), place);
        let best = match self.shift {
            // A call that had begun before may be the first that was counted: where work would begin before its call at the
            // first place, and not at an earlier one.
            None => {
                let earlier = (begin - PLACES / 4).max(self.first);
                let ranked = |(score, place): (usize, i64)| {
                    let early = self.early(sample, base, place) * 20 > score;
                    ((score, !early, -(place - begin).abs()), (score, place))
                };
                let all = (earlier..end.min(begin + PLACES)).map(scored).collect::<Vec<_>>();
                let most = all.iter().map(|(score, _)| *score).max().unwrap_or(0);
                all.into_iter()
                    .filter(|(score, _)| *score == most)
                    .map(ranked)
                    .max_by_key(|(rank, _)| *rank)
                    .map(|(_, best)| best)
            }
            Some(shift) => {
                let expected = base - shift;
                let near = (expected - PLACES / 4).max(begin)..end.min(expected + PLACES / 4);
                let best = near.map(scored).max_by_key(|(score, place)| (*score, -(*place - expected).abs()));
                best.filter(|(score, _)| {
                    *score > sample.len() / 2 && *score >= self.score(sample, base, expected) + CERTAIN
                })
            }
        };
        // Work that begins before its call is not of it: the calls of some thread may not be known yet.
        let fits =
            |(score, place): &(usize, i64)| *score * 4 > sample.len() && self.early(sample, base, *place) * 2 <= *score;
        let Some((_, place)) = best.filter(fits) else { return false };
        (self.last, self.shift) = (base, Some(base - place));
        true
    }

    /// Whether it is known where the numbers lie.
    pub(crate) fn is_aligned(&self) -> bool {
        self.shift.is_some()
    }

    /// The next call that gave the same to this stream (to any where none is known), whatever its number.
    pub(crate) fn next(&mut self, work: &Work, begin_ns: i64, stream: Option<i64>) -> Option<Given> {
        // Numbers of launches of graphs are remembered as they are.
        let number = i64::from(work.correlation);
        if work.graph != 0
            && let Some(known) = self.graphs.get(&number)
        {
            return Some(*known);
        }
        let stream = stream.filter(|_| work.graph == 0);
        let (what, before_ns) = (What::of(work), self.latest(begin_ns));
        let after_ns = self.found.get(&stream).copied().unwrap_or(self.since_ns).max(self.since_ns);
        let from = self.calls.partition_point(|call| call.start_ns <= after_ns);
        // What began later than the work gave it to nobody: most records whose call was lost are known by that at once.
        let until = self.calls.partition_point(|call| call.start_ns <= before_ns).min(from + PLACES as usize);
        let at = (from..until).find(|at| self.fits(self.first + *at as i64, what, stream, before_ns))?;
        self.take(number, self.first + at as i64)
    }

    /// How many records find what they are of if the number `base` belongs to this place; of each of CUPTI's streams those of
    /// the stream that most are in.
    fn score(&self, records: &[(Work, i64)], base: i64, place: i64) -> usize {
        let streams = self.streams(records, base, place);
        streams.iter().map(|(own, _, count)| (*own, *count)).collect::<HashMap<_, _>>().values().sum()
    }

    /// How many records would begin before their call if the number `base` belongs to this place.
    fn early(&self, records: &[(Work, i64)], base: i64, place: i64) -> usize {
        let call = |work: &Work| self.at(place + self.number(work.correlation) - base);
        records.iter().filter(|(work, begin_ns)| call(work).is_some_and(|call| call.start_ns > *begin_ns)).count()
    }

    /// The streams in which records find what they are of: CUPTI's number, the driver's handle and how often, the commonest
    /// last.
    fn streams(&self, records: &[(Work, i64)], base: i64, place: i64) -> Vec<(u32, i64, usize)> {
        let mut streams: Vec<(u32, i64, usize)> = Vec::new();
        for (work, begin_ns) in records {
            let at = place + self.number(work.correlation) - base;
            let fits = self.fits(at, What::of(work), None, self.latest(*begin_ns));
            if let Some(call) = self.at(at).filter(|_| fits) {
                match streams.iter_mut().find(|(own, handle, _)| (*own, *handle) == (work.stream, call.stream)) {
                    Some((_, _, count)) => *count += 1,
                    None => streams.push((work.stream, call.stream, 1)),
                }
            }
        }
        streams.sort_by_key(|(_, _, count)| *count);
        streams
    }

    /// The driver's handle of each of CUPTI's streams that these records are in, as most of them say.
    pub(crate) fn handles(&self, records: &[(Work, i64)]) -> HashMap<u32, i64> {
        let Some(shift) = self.shift else { return HashMap::new() };
        let many = records.get(..PLACES as usize).unwrap_or(records);
        let streams = self.streams(many, self.last, self.last - shift);
        streams.into_iter().filter(|(_, _, count)| *count >= 4).map(|(own, handle, _)| (own, handle)).collect()
    }

    /// The numbers that come now have nothing to do with those before.
    pub(crate) fn lose_place(&mut self) {
        self.shift = None;
    }

    /// Work that is given from now on is told of, and nothing before.
    pub(crate) fn begin(&mut self, since_ns: i64) {
        self.lose_place();
        // Numbers begin anew where CUPTI itself did.
        self.graphs.clear();
        self.graph_order.clear();
        self.since_ns = since_ns;
        self.forget_before(since_ns - EARLIER_NS);
    }

    /// When the first call began whose record may still come; calls that are older than `given_up_ns` have none.
    pub(crate) fn outstanding_ns(&mut self, given_up_ns: i64) -> Option<i64> {
        while self.calls.front().is_some_and(|call| call.done || call.start_ns < given_up_ns) {
            self.pop();
        }
        self.calls.iter().find(|call| call.sure && !call.done).map(|call| call.start_ns)
    }

    /// Nothing that was given before this time is recorded.
    pub(crate) fn forget_before(&mut self, ns: i64) {
        while self.calls.front().is_some_and(|call| call.start_ns < ns) {
            self.pop();
        }
    }
}

/// Whether the numbers of these records, in their order, mostly follow each other.
fn is_dense(records: &[(Work, i64)]) -> bool {
    let pairs = records.iter().zip(records.iter().skip(1));
    let steps =
        pairs.map(|((one, _), (next, _))| next.correlation.wrapping_sub(one.correlation)).filter(|step| *step != 0);
    let (dense, all) = steps.fold((0, 0), |(dense, all), step| (dense + usize::from(step == 1), all + 1));
    dense * 2 >= all
}

#[cfg(test)]
mod tests;
