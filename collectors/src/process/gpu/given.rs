//! Which call gave the GPU a piece of work: by CUPTI's number of the call, and by what was given.
//!
//! CUPTI numbers the calls that give the GPU work, one after the other over all threads, at some moment between a call's
//! begin and its end. So calls in the order of their begin have consecutive numbers, but for calls that overlap: there the
//! number can be any that their times allow. What was given (a kernel's shape, the bytes of a copy) and the stream say
//! which of them it is. A record whose call is still running, and has no event yet, waits.

use std::collections::{HashMap, VecDeque};

use gputrace_abi::gpu::{Work, kind};

/// Calls that are remembered: those of ten seconds at a hundred thousand a second take 60 MB.
const MOST: usize = 1 << 20;
/// Launches of graphs, whose nodes run for as long as they like.
const MOST_GRAPHS: usize = 1 << 14;
/// How far from its place a call is looked for.
const REACH: i64 = 64;
/// A longer call, in the middle of which its thread was stopped, may have a number far from its place: these are looked at one
/// by one.
const LONG_NS: i64 = 10_000;
/// Records and places that are compared when the place is not known.
const SAMPLE: usize = 64;
const PLACES: i64 = 4096;
/// Records that must agree, beyond half of them, on another place than the one that is known.
const CERTAIN: usize = 8;
/// The GPU's clock is compared with the host's: work may seem to begin so long before its call.
const SLACK_NS: i64 = 1_000_000;

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
    /// Its record was found.
    pub(crate) done: bool,
}

impl Given {
    /// A call that began and ended then.
    pub(crate) fn new((start_ns, end_ns): (i64, i64), correlation_id: i64, what: What) -> Given {
        Given { start_ns, end_ns, correlation_id, what, stream: 0, context: 0, device: None, done: false }
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
    /// CUPTI's number of a call is its place and this.
    shift: Option<i64>,
    /// CUPTI's last number, which wraps at 32 bits.
    last: i64,
    /// Graphs that were launched, by CUPTI's number of the launch.
    graphs: HashMap<i64, Given>,
    graph_order: VecDeque<i64>,
}

impl Calls {
    /// A call was made. Calls of other threads that began later may have come before.
    pub(crate) fn add(&mut self, call: Given) {
        let at = self.calls.iter().rposition(|other| other.start_ns <= call.start_ns).map_or(0, |before| before + 1);
        self.calls.insert(at, call);
        if call.end_ns - call.start_ns > LONG_NS {
            let at = self.long.partition_point(|(start_ns, _)| *start_ns <= call.start_ns);
            self.long.insert(at, (call.start_ns, call.end_ns));
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
        let long = self.long.iter().take_while(|(start_ns, _)| *start_ns < far_ns).map(|(_, end_ns)| *end_ns);
        let running = near.map(|other| other.end_ns).chain(long).filter(|end_ns| *end_ns >= call.start_ns);
        running.take((place - expected) as usize).count() as i64 == place - expected
    }

    /// Places of long calls that were running at some time.
    fn long_at(&self, ns: i64) -> impl Iterator<Item = i64> {
        let running =
            self.long.iter().take_while(move |(start_ns, _)| *start_ns < ns).filter(move |(_, end_ns)| *end_ns >= ns);
        running.map(|(start_ns, _)| self.first + self.calls.partition_point(|call| call.start_ns < *start_ns) as i64)
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
        let (what, before_ns) = (What::of(work), begin_ns.saturating_add(SLACK_NS));
        let expected = number - self.shift?;
        if expected > self.first + self.calls.len() as i64 + REACH {
            return None;
        }
        let near = (0..=REACH).flat_map(|away| [expected + away, expected - away]);
        let there_ns = self.at(expected).map_or(before_ns, |there| there.start_ns);
        let fits = |place: &i64| self.fits(*place, what, stream, before_ns);
        let sure =
            near.clone().chain(self.long_at(there_ns)).find(|place| fits(place) && self.may_be(*place, expected));
        let place = sure.or_else(|| { near }.find(|place| anywhere && fits(place)))?;
        self.take(number, place)
    }

    fn take(&mut self, number: i64, place: i64) -> Option<Given> {
        let call = self.calls.get_mut(usize::try_from(place - self.first).ok()?)?;
        call.done = true;
        let found = *call;
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
    /// theirs. True: a place was found.
    pub(crate) fn align(&mut self, records: &[(Work, i64)], from_ns: i64) -> bool {
        let Some((first, _)) = records.first() else { return false };
        // Numbers go on from where they were, unless they were never known.
        if self.shift.is_none() {
            self.last = i64::from(first.correlation);
        }
        let base = self.number(first.correlation);
        let sample = records.get(..SAMPLE).unwrap_or(records);
        let begin = self.first + self.calls.partition_point(|call| call.start_ns < from_ns) as i64;
        let end = (self.first + self.calls.len() as i64).min(begin + PLACES);
        let best = (begin..end).map(|place| (self.score(sample, base, place), place));
        // A place that is known is given up for a better one only.
        let enough = if self.shift.is_some() { sample.len() / 2 + CERTAIN } else { sample.len() / 4 };
        let best = best.max_by_key(|(score, place)| (*score, -*place)).filter(|(score, _)| *score > enough);
        let Some((_, place)) = best else { return false };
        (self.last, self.shift) = (base, Some(base - place));
        true
    }

    /// How many records find what they are of if the number `base` belongs to this place; of each of CUPTI's streams those of
    /// the stream that most are in.
    fn score(&self, records: &[(Work, i64)], base: i64, place: i64) -> usize {
        let streams = self.streams(records, base, place);
        streams.iter().map(|(own, _, count)| (*own, *count)).collect::<HashMap<_, _>>().values().sum()
    }

    /// The streams in which records find what they are of: CUPTI's number, the driver's handle and how often, the commonest
    /// last.
    fn streams(&self, records: &[(Work, i64)], base: i64, place: i64) -> Vec<(u32, i64, usize)> {
        let mut streams: Vec<(u32, i64, usize)> = Vec::new();
        for (work, begin_ns) in records {
            let at = place + self.number(work.correlation) - base;
            let fits = self.fits(at, What::of(work), None, begin_ns.saturating_add(SLACK_NS));
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
        let sample = records.get(..SAMPLE).unwrap_or(records);
        let streams = self.streams(sample, self.last, self.last - shift);
        streams.into_iter().filter(|(_, _, count)| *count >= 4).map(|(own, handle, _)| (own, handle)).collect()
    }

    /// The numbers that come now have nothing to do with those before.
    pub(crate) fn lose_place(&mut self) {
        self.shift = None;
    }

    /// When the first call began whose record may still come; calls that are older than `given_up_ns` have none.
    pub(crate) fn outstanding_ns(&mut self, given_up_ns: i64) -> Option<i64> {
        while self.calls.front().is_some_and(|call| call.done || call.start_ns < given_up_ns) {
            self.pop();
        }
        self.calls.front().map(|call| call.start_ns)
    }

    /// Nothing that was given before this time is recorded.
    pub(crate) fn forget_before(&mut self, ns: i64) {
        while self.calls.front().is_some_and(|call| call.start_ns < ns) {
            self.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start_ns: i64, what: What) -> Given {
        Given::new((start_ns, start_ns), start_ns * 10, what)
    }

    fn kernel(correlation: u32, grid: u64) -> Work {
        Work { kind: kind::KERNEL, correlation, grid, block: 1, ..Work::default() }
    }

    fn calls(grids: &[u64]) -> Calls {
        let mut calls = Calls::default();
        for (at, grid) in grids.iter().enumerate() {
            calls.add(call(1000 + at as i64, What::Kernel(*grid, 1)));
        }
        calls
    }

    fn all(calls: &mut Calls, records: &[Work]) -> Vec<Option<i64>> {
        records.iter().map(|work| calls.find(work, 5000, None, true).map(|given| given.start_ns - 1000)).collect()
    }

    #[test]
    fn records_find_their_calls_by_number_and_shape() {
        let mut calls = calls(&[9, 9, 1, 2, 1, 2, 3, 1]);
        // Numbering began at the third call.
        let records: Vec<Work> = [1, 2, 1, 2, 3, 1].into_iter().zip(70..).map(|(grid, n)| kernel(n, grid)).collect();
        let known: Vec<(Work, i64)> = records.iter().map(|work| (*work, 5000)).collect();
        assert!(calls.align(&known, 0));
        assert_eq!(all(&mut calls, &records), [2, 3, 4, 5, 6, 7].map(Some));
        // Each is taken once.
        assert_eq!(calls.find(&kernel(75, 1), 5000, None, true).map(|given| given.start_ns), None);
        assert_eq!(calls.outstanding_ns(0), Some(1000));
        assert_eq!(calls.outstanding_ns(1002), None);
    }

    #[test]
    fn what_cupti_counts_and_we_do_not_see_moves_the_rest() {
        let mut calls = calls(&[1, 2, 3, 4, 5, 6]);
        let numbers = [10, 11, 12, 15, 16, 17];
        let records: Vec<Work> = (1..=6).zip(numbers).map(|(grid, n)| kernel(n, grid)).collect();
        let known: Vec<(Work, i64)> = records.iter().map(|work| (*work, 5000)).collect();
        assert!(calls.align(&known, 0));
        assert_eq!(all(&mut calls, &records), [0, 1, 2, 3, 4, 5].map(Some));
    }

    #[test]
    fn a_call_that_comes_late_is_put_in_its_place() {
        let mut calls = calls(&[1, 2, 3]);
        let records: Vec<Work> = [1, 2, 3].into_iter().zip(5..).map(|(grid, n)| kernel(n, grid)).collect();
        let known: Vec<(Work, i64)> = records.iter().map(|work| (*work, 5000)).collect();
        assert!(calls.align(&known, 0));
        assert_eq!(all(&mut calls, &records), [0, 1, 2].map(Some));
        // Another thread's, which began before the last one, and one after it.
        calls.add(call(1003, What::Kernel(8, 1)));
        calls.add(Given::new((1001, 1009), 7, What::Copy(64)));
        let copy = Work { kind: kind::COPY, correlation: 8, amount: 64, ..Work::default() };
        assert_eq!(calls.find(&copy, 5000, None, true).map(|given| given.correlation_id), Some(7));
        assert_eq!(calls.find(&kernel(9, 8), 5000, None, true).map(|given| given.start_ns), Some(1003));
    }

    #[test]
    fn a_thread_that_is_stopped_in_a_call_has_a_later_number() {
        let mut calls = Calls::default();
        let given = |start: i64, end: i64, stream: i64| Given {
            stream,
            ..Given::new((start, end), start * 10 + stream, What::Kernel(1, 1))
        };
        // The second call is numbered after four of another thread, which has a stream of its own.
        calls.add(given(1000, 1001, 1));
        calls.add(given(1002, 1100, 2));
        (0..4).for_each(|n| calls.add(given(1010 + 10 * n, 1011 + 10 * n, 1)));
        calls.add(given(1200, 1201, 2));
        let known: Vec<(Work, i64)> = (0..7).map(|n| (kernel(20 + n, 1), 5000)).collect();
        assert!(calls.align(&known, 0));
        let streams = [1, 1, 1, 1, 1, 2, 2];
        let found: Vec<i64> = known
            .iter()
            .zip(streams)
            .filter_map(|((work, begin), stream)| calls.find(work, *begin, Some(stream), false))
            .map(|given| given.start_ns)
            .collect();
        assert_eq!(found, [1000, 1010, 1020, 1030, 1040, 1002, 1200]);
    }

    #[test]
    fn numbers_wrap_and_nodes_of_a_graph_have_one_call() {
        let mut calls = Calls::default();
        for at in 0..6 {
            calls.add(call(1000 + at, if at == 3 { What::Graph } else { What::Kernel(at as u64, 1) }));
        }
        let number = |at: u64| (u32::MAX - 2).wrapping_add(at as u32);
        let mut records: Vec<Work> = [0, 1, 2, 4, 5].map(|at| kernel(number(at), at)).to_vec();
        let node = |at| Work { graph: 1, node: at, ..kernel(number(3), at) };
        records.splice(3..3, [node(1), node(2)]);
        let known: Vec<(Work, i64)> = records.iter().map(|work| (*work, 5000)).collect();
        assert!(calls.align(&known, 0));
        assert_eq!(all(&mut calls, &records), [0, 1, 2, 3, 3, 4, 5].map(Some));
    }

    #[test]
    fn records_of_nothing_that_we_know_find_nothing() {
        let mut calls = calls(&[1, 2, 3]);
        let strange: Vec<(Work, i64)> = (0..9).map(|n| (kernel(n, 77), 5000)).collect();
        assert!(!calls.align(&strange, 0));
        assert_eq!(calls.find(&strange[0].0, 5000, None, true).map(|given| given.start_ns), None);
        // Work does not begin before its call.
        let known = [(kernel(1, 1), 5000)];
        assert!(calls.align(&known, 0));
        assert!(calls.find(&kernel(1, 1), -2_000_000, None, true).is_none());
    }
}
