//! The GPUs' side of one process: which operation had to wait for what.
//!
//! An operation begins when its call has reached the device and the operation before it on the stream has ended. One that
//! begins later than both explain waited for another stream's, if one ended just then: so an event looks from outside.
//! Operations that ran at once ran as long as they would have alone: what they take from each other is not known.

use rustc_hash::FxHashMap;

use super::host::Call;
use super::lanes::{CLASSES, Class, Lanes, Since, Without};
use super::path::{Node, Nodes, Piece};
use super::recent::Recent;
use crate::analysis::passes::gpu::order::{Operation, Work};

/// From the begin of a call to the begin of its kernel on a device that has nothing else to do (docs/benchmarks.md).
const LAUNCH_NS: i64 = 5_000;
/// The same at most, with the call itself: what begins later waited for something else.
const LATEST_NS: i64 = 15_000;
/// From the end of an operation to the begin of the next one of its stream, when that is queued, at most. Where the trace does
/// not show how long it would have been, none is assumed: a gain is an upper bound.
const NEXT_NS: i64 = 1_000;
/// An operation that begins within this time after the end of another stream's may have waited for it.
const EVENT_NS: i64 = 10_000;
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
    /// That waited for another stream's, if for any, because of the legacy default stream.
    pub(super) legacy: bool,
}

/// The GPUs.
#[derive(Debug)]
pub(super) struct Device {
    /// The last operation of each stream, and where the streams are.
    streams: Vec<Kept>,
    index: FxHashMap<(i32, i64), usize>,
    /// The stream of the last operation.
    latest: usize,
    recent: Recent<Kept>,
    slots: Slots,
    /// When those operations are over, in every lane, that no stream's last one came after.
    others: Lanes,
    /// The operation that ends last.
    pub(super) last: Option<Ended>,
    /// Time by class.
    pub(super) spent_ns: [i64; CLASSES.len()],
}

/// An operation, and where its lanes are.
#[derive(Clone, Copy, Debug)]
struct Kept {
    op: Ended,
    slot: usize,
}

/// Lanes of operations: they are large, and each operation is held as one of the last and as its stream's last.
#[derive(Debug, Default)]
struct Slots {
    lanes: Vec<Lanes>,
    holders: Vec<u32>,
    free: Vec<usize>,
}

impl Slots {
    /// A place that one holder has; one that is new has lanes like these.
    fn take(&mut self, like: &Lanes) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.lanes.push(like.clone());
            self.holders.push(0);
            self.lanes.len() - 1
        });
        self.holders[slot] = 1;
        slot
    }

    fn hold(&mut self, slot: usize) {
        self.holders[slot] += 1;
    }

    fn release(&mut self, slot: usize) {
        self.holders[slot] -= 1;
        if self.holders[slot] == 0 {
            self.free.push(slot);
        }
    }

    /// The lanes of a place that was just taken, and of another.
    fn new_and(&mut self, new: usize, other: Option<usize>) -> (&mut Lanes, Option<&Lanes>) {
        let (before, rest) = self.lanes.split_at_mut(new);
        let (new, after) = rest.split_at_mut(1);
        let other =
            other.map(|other| if other < before.len() { &before[other] } else { &after[other - before.len() - 1] });
        (&mut new[0], other)
    }
}

impl Device {
    pub(super) fn new(classes: Without) -> Device {
        Device {
            streams: Vec::new(),
            index: FxHashMap::default(),
            latest: 0,
            recent: Recent::default(),
            slots: Slots::default(),
            others: Lanes::at(0.0, classes),
            last: None,
            spent_ns: Default::default(),
        }
    }

    fn known(&self, kept: &Kept) -> (Ended, &Lanes) {
        (kept.op, &self.slots.lanes[kept.slot])
    }

    /// The operation that ended last before a time, of those that were called before this call or by it: of the call's stream,
    /// if it waits for one and any of that ended while it did.
    pub(super) fn last_before(&self, at: i64, call: &Call) -> Option<(Ended, &Lanes)> {
        let known = || self.recent.ended_by(at).filter(|Kept { op, .. }| op.call <= call.start);
        let own = call.stream().and_then(|stream| {
            known().take_while(|kept| kept.op.end > call.start).find(|kept| kept.op.stream.1 == stream)
        });
        own.or_else(|| known().next()).map(|kept| self.known(kept))
    }

    /// Joins the last operations of all streams that ended before a time, of those called before this call.
    pub(super) fn all_before(&self, at: i64, call: &Call, lanes: &mut Lanes) {
        let ended = self.streams.iter().filter(|Kept { op, .. }| op.end <= at && op.call <= call.start);
        ended.for_each(|kept| lanes.join(self.known(kept).1, 0.0));
    }

    /// Joins all operations.
    pub(super) fn all_over(&self, lanes: &mut Lanes) {
        lanes.join(&self.others, 0.0);
        self.streams.iter().for_each(|kept| lanes.join(self.known(kept).1, 0.0));
    }

    /// The place of a stream, if it is known.
    #[inline]
    fn stream(&mut self, stream: (i32, i64)) -> Option<usize> {
        if self.streams.get(self.latest).is_none_or(|kept| kept.op.stream != stream) {
            self.latest = *self.index.get(&stream)?;
        }
        Some(self.latest)
    }

    /// What ended last on an operation's stream before it began.
    fn before_on_stream(&self, of: &Operation, place: Option<usize>) -> Option<Kept> {
        let last = place.map(|place| self.streams[place]).filter(|kept| kept.op.end <= of.start);
        last.or_else(|| {
            // Kernels of a graph may run beside each other on one stream.
            let stream = (of.device, of.stream);
            self.recent.ended_by(of.start).find(|kept| kept.op.stream == stream).copied()
        })
    }

    /// The operation of another stream that an operation waited for, when nothing else explains how late it began: `due`.
    fn before_elsewhere(&self, of: &Operation, due: i64) -> Option<Kept> {
        if of.start - due <= NEXT_NS || self.streams.iter().take(2).all(|kept| kept.op.stream == (of.device, of.stream))
        {
            return None;
        }
        let from = (due - NEXT_NS).max(of.start - EVENT_NS);
        let mut late = self.recent.ended_by(of.start).take_while(|kept| kept.op.end > from);
        late.find(|kept| kept.op.stream != (of.device, of.stream)).copied()
    }

    /// Adds the next operation in the order of their begin.
    pub(super) fn add(&mut self, of: &Operation, call: &Begun, nodes: &mut Nodes) {
        let (class, piece) = match of.work {
            Work::Kernel => (None, Piece::Compute),
            Work::Communication => (Some(Class::Communication), Piece::Communication),
            Work::Copy => (Some(Class::Copy), Piece::Copy),
        };
        let place = self.stream((of.device, of.stream));
        let stream = self.before_on_stream(of, place);
        let stream_due = stream.map_or(i64::MIN, |kept| kept.op.end + NEXT_NS);
        let call_due = call.at + LAUNCH_NS;
        let elsewhere = self.before_elsewhere(of, stream_due.max(call_due));
        // What begins soon after its call, and not at once after the operation before it, was launched as late as that.
        let just_launched = of.start - call.at <= LATEST_NS && of.start > stream_due;
        let stream_last = elsewhere.is_none() && stream_due > call_due && !just_launched;
        let call_last = elsewhere.is_none() && !stream_last;

        let took = |since: i64, least: i64, was_last: bool| {
            let ns = of.start - since;
            if was_last { ns } else { ns.min(least) }
        };
        let lasts_ns = (of.end - of.start) as f64;
        let call_ns = took(call.at, LAUNCH_NS, call_last) as f64;
        let stream_ns = stream.map_or(0, |kept| took(kept.op.end, 0, stream_last)) as f64;
        let slot = self.slots.take(&self.others);
        let (lanes, earlier) = self.slots.new_and(slot, stream.map(|kept| kept.slot));
        call.lanes.then(call_ns, earlier.map(|lanes| (lanes, stream_ns)), lasts_ns, lanes);
        if let Some(kept) = elsewhere {
            let (lanes, other) = self.slots.new_and(slot, Some(kept.slot));
            let order = call.legacy.then_some(Class::Streams);
            other.iter().for_each(|other| lanes.join_with(other, (of.start - kept.op.end) as f64 + lasts_ns, order));
            if call.legacy {
                self.spent_ns[Class::Streams as usize] += of.start - stream_due.max(call_due);
            }
        }
        if class.is_some() {
            // Without its class it takes no time, and nothing waits for its call.
            let (lanes, earlier) = self.slots.new_and(slot, stream.map(|kept| kept.slot));
            let mut gone = earlier.map_or_else(|| call.lanes.lanes(), Lanes::clone);
            gone.join_with(lanes, 0.0, class);
            *lanes = gone;
        }

        let (after, before) = match (elsewhere, stream) {
            (Some(kept), _) => (kept.op.node, Piece::Between),
            (None, Some(kept)) if stream_last => (kept.op.node, Piece::Between),
            _ => (call.node, Piece::Latency),
        };
        let node = nodes.add(Node { start: of.start, end: of.end, after, piece, before, name_id: of.name_id });
        let ended = Ended { start: of.start, end: of.end, call: call.at, stream: (of.device, of.stream), node };
        if let Some(class) = class {
            self.spent_ns[class as usize] += of.end - of.start;
        }
        self.keep(Kept { op: ended, slot }, place);
    }

    /// Keeps an operation, whose lanes are held once, as one of the last; and as its stream's last if it is.
    fn keep(&mut self, kept: Kept, place: Option<usize>) {
        let op = kept.op;
        if self.last.is_none_or(|last| last.end <= op.end) {
            self.last = Some(op);
        }
        match place {
            Some(place) if self.streams[place].op.end <= op.end => {
                self.slots.hold(kept.slot);
                let before = std::mem::replace(&mut self.streams[place], kept);
                if before.op.end > op.start {
                    // They ran beside each other: in some lane it may be over later.
                    self.others.join(&self.slots.lanes[before.slot], 0.0);
                }
                self.slots.release(before.slot);
            }
            None if self.streams.len() < STREAMS => {
                self.slots.hold(kept.slot);
                self.index.insert(op.stream, self.streams.len());
                self.streams.push(kept);
            }
            _ => self.others.join(&self.slots.lanes[kept.slot], 0.0),
        }
        if let Some(oldest) = self.recent.push(op.end, kept) {
            self.slots.release(oldest.slot);
        }
    }

    /// The node of the operation that ends last, when that is after some time.
    pub(super) fn beyond(&self, at: i64) -> Option<(i64, u64)> {
        self.last.filter(|last| last.end > at).map(|last| (last.end, last.node))
    }
}
