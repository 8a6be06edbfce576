//! The GPUs' side of one process: which operation had to wait for what.
//!
//! An operation begins when its call has reached the device and the operation before it on the stream has ended. One that
//! begins later than both explain waited for another stream's, if one ended just then: so an event looks from outside.
//! Operations that ran at once ran as long as they would have alone: what they take from each other is not known.

use rustc_hash::FxHashMap;

use super::host::Call;
use super::lanes::{CLASSES, Class, Lanes, Since};
use super::path::{Node, Nodes, Piece};
use crate::analysis::passes::gpu::order::{Operation, Work};

/// From the begin of a call to the begin of its kernel on a device that has nothing else to do (docs/benchmarks.md).
const LAUNCH_NS: i64 = 5_000;
/// From the end of an operation to the begin of the next one of its stream, when that is queued, at most. Where the trace does
/// not show how long it would have been, none is assumed: a gain is an upper bound.
const NEXT_NS: i64 = 1_000;
/// An operation that begins within this time after the end of another stream's may have waited for it.
const EVENT_NS: i64 = 10_000;
/// Operations that are kept.
const RECENT: usize = 64;
/// Streams that are kept.
const STREAMS: usize = 4096;

/// An operation that was there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Begin of its call.
    pub(super) call: i64,
    stream: (i32, i64),
    pub(super) node: u64,
}

/// The call that caused an operation, as far as it counts here.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) at: i64,
    pub(super) lanes: Since,
    pub(super) node: u64,
    /// It caused one operation: nothing else of it will come.
    pub(super) single: bool,
}

/// The GPUs.
#[derive(Debug)]
pub(super) struct Device {
    streams: FxHashMap<(i32, i64), (Ended, Lanes)>,
    /// The last operations, in a ring.
    recent: Vec<(Ended, Lanes)>,
    oldest: usize,
    /// When the last operation ends, in every lane; and which that is.
    pub(super) front: Lanes,
    pub(super) last: Option<Ended>,
    /// Time by class.
    pub(super) spent_ns: [i64; CLASSES.len()],
}

impl Device {
    pub(super) fn new() -> Device {
        Device {
            streams: FxHashMap::default(),
            recent: Vec::with_capacity(RECENT),
            oldest: 0,
            front: Lanes::at(0.0),
            last: None,
            spent_ns: Default::default(),
        }
    }

    /// The operation that ended last before a time, of those that were called before this call or by it: of the call's stream,
    /// if it waits for one and any of that ended while it did.
    pub(super) fn last_before(&self, at: i64, call: &Call) -> Option<(Ended, &Lanes)> {
        let known = || self.recent.iter().filter(|(op, _)| op.end <= at && op.call <= call.start);
        let own = call.stream().and_then(|stream| {
            let of_stream = known().filter(|(op, _)| op.stream.1 == stream && op.end > call.start);
            of_stream.max_by_key(|(op, _)| op.end)
        });
        own.or_else(|| known().max_by_key(|(op, _)| op.end)).map(|(op, lanes)| (*op, lanes))
    }

    /// Joins the last operations of all streams that ended before a time, of those called before this call.
    pub(super) fn all_before(&self, at: i64, call: &Call, lanes: &mut Lanes) {
        let ended = self.streams.values().filter(|(op, _)| op.end <= at && op.call <= call.start);
        ended.for_each(|(_, last)| lanes.join(last, 0.0));
    }

    /// What ended last on an operation's stream before it began.
    fn before_on_stream(&self, of: &Operation) -> Option<(Ended, &Lanes)> {
        let stream = (of.device, of.stream);
        let last = self.streams.get(&stream).filter(|(op, _)| op.end <= of.start);
        let last = last.or_else(|| {
            // Kernels of a graph may run beside each other on one stream.
            let same = self.recent.iter().filter(|(op, _)| op.stream == stream && op.end <= of.start);
            same.max_by_key(|(op, _)| op.end)
        });
        last.map(|(op, lanes)| (*op, lanes))
    }

    /// The operation of another stream that an operation waited for, when nothing else explains how late it began: `due`.
    fn before_elsewhere(&self, of: &Operation, due: i64) -> Option<(Ended, &Lanes)> {
        if of.start - due <= NEXT_NS {
            return None;
        }
        let from = (due - NEXT_NS).max(of.start - EVENT_NS);
        let others = self.recent.iter().filter(|(op, _)| op.stream != (of.device, of.stream));
        let others = others.filter(|(op, _)| op.end <= of.start && op.end > from);
        others.max_by_key(|(op, _)| op.end).map(|(op, lanes)| (*op, lanes))
    }

    /// Adds the next operation in the order of their begin.
    pub(super) fn add(&mut self, of: &Operation, call: &Begun, nodes: &mut Nodes) {
        let (class, piece) = match of.work {
            Work::Kernel => (None, Piece::Compute),
            Work::Communication => (Some(Class::Communication), Piece::Communication),
            Work::Copy => (Some(Class::Copy), Piece::Copy),
        };
        let stream = self.before_on_stream(of);
        let stream_due = stream.map_or(i64::MIN, |(op, _)| op.end + NEXT_NS);
        let call_due = call.at + LAUNCH_NS;
        let elsewhere = self.before_elsewhere(of, stream_due.max(call_due));
        let stream_last = elsewhere.is_none() && stream_due > call_due;
        let call_last = elsewhere.is_none() && !stream_last;

        let took = |since: i64, least: i64, was_last: bool| {
            let ns = of.start - since;
            if was_last { ns } else { ns.min(least) }
        };
        let (called, lasts_ns) = (call.lanes.lanes(), (of.end - of.start) as f64);
        let call_ns = took(call.at, LAUNCH_NS, call_last) as f64;
        let earlier = stream.map_or(&called, |(_, lanes)| lanes);
        let stream_ns = stream.map_or(call_ns, |(op, _)| took(op.end, 0, stream_last) as f64);
        let mut lanes = Lanes::after(&called, call_ns, earlier, stream_ns, lasts_ns);
        if let Some((op, before)) = elsewhere {
            lanes.join(before, (of.start - op.end) as f64 + lasts_ns);
        }
        if class.is_some() {
            // Without its class it takes no time, and nothing waits for its call.
            let mut gone = earlier.clone();
            gone.join_with(&lanes, 0.0, class);
            lanes = gone;
        }

        let (after, before) = match (elsewhere, stream) {
            (Some((op, _)), _) => (op.node, Piece::Between),
            (None, Some((op, _))) if stream_last => (op.node, Piece::Between),
            _ => (call.node, Piece::Latency),
        };
        let node = nodes.add(Node { start: of.start, end: of.end, after, piece, before, name_id: of.name_id });
        let ended = Ended { start: of.start, end: of.end, call: call.at, stream: (of.device, of.stream), node };
        if let Some(class) = class {
            self.spent_ns[class as usize] += of.end - of.start;
        }
        self.keep(ended, lanes);
    }

    fn keep(&mut self, ended: Ended, lanes: Lanes) {
        self.front.join(&lanes, 0.0);
        if self.last.is_none_or(|last| last.end <= ended.end) {
            self.last = Some(ended);
        }
        let more = self.streams.len() < STREAMS;
        match self.streams.get_mut(&ended.stream) {
            Some((last, _)) if last.end > ended.end => {}
            Some(last) => *last = (ended, lanes.clone()),
            None if more => drop(self.streams.insert(ended.stream, (ended, lanes.clone()))),
            None => {}
        }
        match self.recent.get_mut(self.oldest) {
            Some(oldest) => *oldest = (ended, lanes),
            None => self.recent.push((ended, lanes)),
        }
        self.oldest = (self.oldest + 1) % RECENT;
    }

    /// The node of the operation that ends last, when that is after some time.
    pub(super) fn beyond(&self, at: i64) -> Option<(i64, u64)> {
        self.last.filter(|last| last.end > at).map(|last| (last.end, last.node))
    }
}
