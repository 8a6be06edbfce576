//! Perfetto's protobuf (perfetto.dev): processes with their threads, ranges, waits and streams as tracks, arrows from a call to
//! what it caused, counters, and stacks among an event's arguments.
//!
//! All packets are one sequence with one state: names are interned and times are told as differences from the packet before.
//! What comes late tells its time in full. Times are ns since 1970, as the trace's own; the viewer's clock is set so.

mod intern;
mod order;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::path::Path;

use rustc_hash::FxHashMap;

use super::output::Output;
use super::protobuf::Message;
use super::timeline::{Arg, Done, First, Flow, Places, Sample, Sink, Slice, Track};
use super::{Written, outside, timeline};
use crate::trace::{Filter, Trace};
use intern::{Interned, Kind};
use order::{Lanes, Order};

/// The one sequence.
const SEQUENCE: i64 = 1;
/// Builtin clocks, and the sequence's own, which counts from one packet to the next.
const REALTIME: i64 = 1;
const BOOTTIME: i64 = 6;
const STEPS: i64 = 64;
/// Kinds of events.
const BEGIN: i64 = 1;
const END: i64 = 2;
const INSTANT: i64 = 3;
const COUNTER: i64 = 4;

/// Fields of a TracePacket, by their names there.
mod packet {
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const CLOCK_ID: u32 = 58;
    pub(super) const DEFAULTS: u32 = 59;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// Fields of a TrackEvent.
mod event {
    pub(super) const CATEGORY: u32 = 3;
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const KIND: u32 = 9;
    pub(super) const NAME: u32 = 10;
    pub(super) const TRACK: u32 = 11;
    pub(super) const DOUBLE: u32 = 44;
    pub(super) const FLOW: u32 = 47;
}

/// Writes the file.
pub(crate) fn write(trace: &Trace, filter: &Filter, most: Option<u64>, file: &Path) -> io::Result<Written> {
    let mut perfetto = Perfetto {
        output: Output::create(file)?,
        places: Places::of(trace),
        tracks: FxHashMap::default(),
        interned: Interned::default(),
        order: Order::default(),
        lanes: Lanes::default(),
        ends: BinaryHeap::new(),
        now_ns: filter.from_ns.unwrap_or_else(|| trace.began_ns()),
    };
    let first = timeline::first(trace, filter, most);
    let left_out = first.as_ref().map(|first| (first.left_out_from_ns, first.text(trace.began_ns())));
    let begin = filter.begin_ns().unwrap_or_else(|| trace.began_ns());
    let outside = outside::of_timeline(trace, filter).map(|text| (begin, text));
    let said: Vec<&(i64, String)> = outside.iter().chain(&left_out).collect();
    let done = perfetto.whole(trace, filter, first.as_ref(), &said)?;
    let (path, _) = perfetto.output.end()?;
    Ok(Written::timeline(path, done, left_out.map(|(_, text)| text), outside.map(|(_, text)| text)))
}

/// What has a number among the tracks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Known {
    Process(i64),
    Machine,
    Lane(Track, usize),
    Counter(Option<i64>, Box<str>),
}

struct Perfetto {
    output: Output,
    places: Places,
    tracks: FxHashMap<Known, i64>,
    interned: Interned,
    order: Order,
    lanes: Lanes,
    /// Ends of bars that are open, with their tracks.
    ends: BinaryHeap<Reverse<(i64, i64)>>,
    /// The time of the packet before.
    now_ns: i64,
}

impl Perfetto {
    fn whole(
        &mut self,
        trace: &Trace,
        filter: &Filter,
        first: Option<&First>,
        said: &[&(i64, String)],
    ) -> io::Result<Done> {
        self.head()?;
        let done = timeline::write(trace, filter, first, self)?;
        self.reached(i64::MAX)?;
        for (from_ns, text) in said {
            self.remark(*from_ns, text)?;
        }
        Ok(done)
    }

    /// Says something beside the devices, at a moment.
    fn remark(&mut self, at_ns: i64, text: &str) -> io::Result<()> {
        let track = self.track(Known::Machine)?;
        let mut event = Message::default();
        event.number(event::KIND, INSTANT);
        event.number(event::CATEGORY, self.interned.number(Kind::Category, "export")?);
        event.number(event::NAME, self.interned.number(Kind::Event, text)?);
        self.at(at_ns, track, event.bytes())
    }

    /// The clocks, and what holds for all packets.
    fn head(&mut self) -> io::Result<()> {
        let mut clocks = Message::default();
        for clock in [REALTIME, BOOTTIME, STEPS] {
            let mut one = Message::default();
            one.number(1, clock);
            one.number(2, self.now_ns);
            one.number(3, i64::from(clock == STEPS));
            clocks.part(1, one.bytes());
        }
        clocks.number(2, BOOTTIME);
        let mut packet = Message::default();
        packet.part(packet::CLOCK_SNAPSHOT, clocks.bytes());
        let mut defaults = Message::default();
        defaults.number(packet::CLOCK_ID, STEPS);
        packet.part(packet::DEFAULTS, defaults.bytes());
        // The state begins here, and what follows needs it.
        packet.number(packet::SEQUENCE_FLAGS, 3);
        self.packet(packet)
    }

    /// Writes a packet.
    fn packet(&mut self, mut packet: Message) -> io::Result<()> {
        packet.number(packet::SEQUENCE_ID, SEQUENCE);
        let mut whole = Message::default();
        whole.part(1, packet.bytes());
        self.output.write_all(whole.bytes())
    }

    /// The next event in order of time.
    fn next(&mut self, at_ns: i64, track: i64, body: &[u8]) -> io::Result<()> {
        if at_ns < self.now_ns {
            return self.at(at_ns, track, body);
        }
        let mut packet = Message::default();
        packet.stated(packet::TIMESTAMP, at_ns - self.now_ns);
        self.now_ns = at_ns;
        self.event(packet, track, body)
    }

    /// An event out of order.
    fn at(&mut self, at_ns: i64, track: i64, body: &[u8]) -> io::Result<()> {
        let mut packet = Message::default();
        packet.number(packet::TIMESTAMP, at_ns);
        packet.number(packet::CLOCK_ID, BOOTTIME);
        self.event(packet, track, body)
    }

    fn event(&mut self, mut packet: Message, track: i64, body: &[u8]) -> io::Result<()> {
        if let Some(new) = self.interned.take() {
            packet.part(packet::INTERNED_DATA, &new);
        }
        packet.number(packet::SEQUENCE_FLAGS, 2);
        let mut event = Message::default();
        event.number(event::TRACK, track);
        let mut event = event.into_bytes();
        event.extend_from_slice(body);
        packet.part(packet::TRACK_EVENT, &event);
        self.packet(packet)
    }

    /// The number of a track, which is described when it is first asked for.
    fn track(&mut self, known: Known) -> io::Result<i64> {
        if let Some(number) = self.tracks.get(&known) {
            return Ok(*number);
        }
        let number = self.tracks.len() as i64 + 1;
        self.tracks.insert(known.clone(), number);
        let mut about = Message::default();
        about.number(1, number);
        match known {
            Known::Process(process) => {
                let (pid, name) = self.places.process(process);
                let mut of = Message::default();
                of.number(1, pid.into());
                of.part(6, name.as_bytes());
                about.part(3, of.bytes());
            }
            Known::Machine => about.part(2, b"devices and machine"),
            Known::Lane(track, lane) => {
                let process = self.track(Known::Process(track.process()))?;
                match (track, lane) {
                    (Track::Thread(process, tid), 0) => {
                        let mut of = Message::default();
                        of.number(1, self.places.process(process).0.into());
                        of.stated(2, tid.into());
                        of.part(5, self.places.thread(process, tid).as_bytes());
                        about.part(4, of.bytes());
                    }
                    _ => {
                        let more = if lane == 0 { String::new() } else { format!(" (at the same time, {lane})") };
                        about.part(2, format!("{}{more}", self.places.track(track, None)).as_bytes());
                        about.number(5, process);
                    }
                }
            }
            Known::Counter(process, name) => {
                let parent = self.track(process.map_or(Known::Machine, Known::Process))?;
                let (name, unit) = name.split_once('\n').unwrap_or((&name, ""));
                let mut counter = Message::default();
                counter.part(6, unit.as_bytes());
                about.part(2, name.as_bytes());
                about.number(5, parent);
                about.part(8, counter.bytes());
            }
        }
        let mut packet = Message::default();
        packet.part(packet::TRACK_DESCRIPTOR, about.bytes());
        self.packet(packet)?;
        Ok(number)
    }

    /// The event of a bar without time and track.
    fn body(&mut self, slice: &Slice<'_>) -> io::Result<Vec<u8>> {
        let mut event = Message::default();
        event.number(event::KIND, if slice.length_ns.is_some() { BEGIN } else { INSTANT });
        event.number(event::CATEGORY, self.interned.number(Kind::Category, slice.category)?);
        event.number(event::NAME, self.interned.number(Kind::Event, slice.name)?);
        for (key, value) in &slice.args {
            let mut annotation = Message::default();
            annotation.number(1, self.interned.number(Kind::Key, key)?);
            match value {
                Arg::Int(value) => annotation.stated(4, *value),
                Arg::Text(text) => annotation.number(17, self.interned.number(Kind::Text, text)?),
            }
            event.part(event::ANNOTATION, annotation.bytes());
        }
        match slice.flow {
            Flow::None => {}
            // None of them ends the flow: a graph's works all belong to one call.
            Flow::Begins(process, call) | Flow::Ends(process, call) => event.fixed(event::FLOW, flow(process, call)),
        }
        Ok(event.into_bytes())
    }

    /// Ends what ended until then.
    fn end_until(&mut self, time_ns: i64) -> io::Result<()> {
        while let Some(Reverse((end_ns, track))) = self.ends.peek().copied().filter(|end| end.0.0 <= time_ns) {
            self.ends.pop();
            let mut event = Message::default();
            event.number(event::KIND, END);
            self.next(end_ns, track, event.bytes())?;
        }
        Ok(())
    }
}

/// One number for a call of a process.
fn flow(process: i64, call: i64) -> u64 {
    (process as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ call as u64
}

impl Sink for Perfetto {
    fn reached(&mut self, start_ns: i64) -> io::Result<()> {
        while let Some(bar) = self.order.pop_before(start_ns) {
            self.end_until(bar.start_ns)?;
            let lane = self.lanes.place(bar.track, bar.start_ns, bar.end_ns.0);
            let track = self.track(Known::Lane(bar.track, lane))?;
            self.next(bar.start_ns, track, &bar.body)?;
            self.ends.push(Reverse((bar.end_ns.0, track)));
        }
        self.end_until(start_ns)
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let body = self.body(slice)?;
        let ends = slice.length_ns.map(|length| slice.start_ns.saturating_add(length));
        match (slice.track, ends) {
            // They come in the order of their ends, each after those inside of it, and need no order: a track has one domain.
            (Track::Ranges(..) | Track::Spans(_), Some(end_ns)) => {
                let lane = match slice.track {
                    Track::Spans(_) => self.lanes.place(slice.track, slice.start_ns, end_ns),
                    _ => 0,
                };
                let track = self.track(Known::Lane(slice.track, lane))?;
                self.at(slice.start_ns, track, &body)?;
                let mut end = Message::default();
                end.number(event::KIND, END);
                self.at(end_ns, track, end.bytes())
            }
            (_, Some(end_ns)) => {
                self.order.push(slice.start_ns, end_ns, slice.track, body);
                Ok(())
            }
            (_, None) => {
                let track = self.track(Known::Lane(slice.track, 0))?;
                self.at(slice.start_ns, track, &body)
            }
        }
    }

    fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        let name = format!("{}\n{}", sample.name, sample.unit);
        let track = self.track(Known::Counter(sample.process, name.into()))?;
        let mut event = Message::default();
        event.number(event::KIND, COUNTER);
        event.fixed(event::DOUBLE, sample.value.to_bits());
        self.at(sample.start_ns, track, event.bytes())
    }
}
