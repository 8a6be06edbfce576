//! A trace as a timeline: bars and values on tracks, for formats that show time.
//!
//! Rows become [`Slice`]s and [`Sample`]s as they are read, in bounded memory, and a [`Sink`] writes them down. They come
//! in the order of their starts, launcher by launcher, to within a batch; ranges come when they ended.

mod counts;
mod first;
mod gpu;
mod host;
mod places;
#[cfg(test)]
mod tests;

use std::io;
use std::rc::Rc;

use gputrace_collectors::schema::TableId;

use crate::trace::{self, Filter, NO_NAME, Reach, Rows, Stacks, Trace, Want, full_name};
use counts::Counts;
pub(super) use first::First;
pub(super) use places::Places;

/// Where a bar stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Track {
    /// Calls of a thread: process, thread.
    Thread(i64, i32),
    /// Its nested ranges, of one domain.
    Ranges(i64, i32, i64),
    /// Its waits for the operating system.
    Waits(i64, i32),
    /// Ranges of a process that may overlap.
    Spans(i64),
    /// A stream of a device: process, ordinal, stream.
    Stream(i64, i32, i64),
    /// What is told of recording itself: process.
    Recording(i64),
}

/// A value beside a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arg<'a> {
    /// A number.
    Int(i64),
    /// A text.
    Text(&'a str),
}

/// What a bar has to do with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Nothing.
    None,
    /// It caused work: process and number of the call.
    Begins(i64, i64),
    /// It was caused by that call.
    Ends(i64, i64),
}

/// A bar, or a moment.
#[derive(Debug)]
pub(super) struct Slice<'a> {
    /// Where.
    pub(super) track: Track,
    /// From when, ns since the epoch.
    pub(super) start_ns: i64,
    /// How long; none for a moment.
    pub(super) length_ns: Option<i64>,
    /// What it is called.
    pub(super) name: &'a str,
    /// What it is: launch, sync, kernel.
    pub(super) category: &'a str,
    /// What caused it, or what it caused.
    pub(super) flow: Flow,
    /// What else is known of it.
    pub(super) args: Vec<(&'static str, Arg<'a>)>,
}

/// A value that holds from a moment on.
#[derive(Debug)]
pub(super) struct Sample<'a> {
    /// Its process; none: a device's, or the machine's.
    pub(super) process: Option<i64>,
    /// What it is called.
    pub(super) name: &'a str,
    /// Its unit; empty for none.
    pub(super) unit: &'a str,
    /// Since when, ns since the epoch.
    pub(super) start_ns: i64,
    /// The value.
    pub(super) value: f64,
}

/// What writes a timeline down.
pub(super) trait Sink {
    /// What follows begins at this time or later, but for ranges.
    fn reached(&mut self, start_ns: i64) -> io::Result<()>;
    /// A bar.
    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()>;
    /// A value.
    fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()>;
    /// A value with which a part begins: of one that was told before it. It is none of the events.
    fn held(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        self.sample(sample)
    }
}

/// What became of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Bars and values that were written.
    pub(super) written: u64,
    /// Ranges that have no end.
    pub(super) open_ranges: u64,
}

/// Names and stacks behind ids.
#[derive(Default)]
struct Texts {
    names: trace::Texts,
    stacks: Stacks,
}

impl Texts {
    fn read(trace: &Trace) -> io::Result<Texts> {
        Ok(Texts { names: trace.every_name(full_name)?, stacks: trace.every_stack()? })
    }

    fn name(&self, id: i64) -> io::Result<Rc<str>> {
        Ok(self.names.get(id)?.unwrap_or_else(|| "(name not known)".into()))
    }

    fn known(&self, id: i64) -> io::Result<Option<Rc<str>>> {
        if id == NO_NAME { Ok(None) } else { self.names.get(id) }
    }
}

/// The bars and values of a trace that began first, at most so many; none where there are no more.
pub(super) fn first(trace: &Trace, filter: &Filter, most: Option<u64>) -> Option<First> {
    let mut finder = first::Finder::new(most?);
    // Nobody looks at names.
    scanned(trace, filter, &Texts::default(), None, &mut finder).expect("nothing here fails to be written");
    finder.found()
}

/// How many bars and values a timeline of it has.
pub(super) fn count(trace: &Trace, filter: &Filter) -> u64 {
    // Nobody looks at names.
    let done = scanned(trace, filter, &Texts::default(), None, &mut first::Nobody);
    done.expect("nothing here fails to be written").written
}

/// Writes what the filter keeps of a trace, of that what is among the first ones where these are given.
pub(super) fn write(trace: &Trace, filter: &Filter, first: Option<&First>, sink: &mut dyn Sink) -> io::Result<Done> {
    scanned(trace, filter, &Texts::read(trace)?, first, sink)
}

fn scanned(
    trace: &Trace,
    filter: &Filter,
    texts: &Texts,
    first: Option<&First>,
    sink: &mut dyn Sink,
) -> io::Result<Done> {
    let mut counts = Counts::new(trace, filter);
    let (before, beside) =
        if counts.look_back() { (counts::THROUGHOUT, &[][..]) } else { (&[][..], counts::THROUGHOUT) };
    let wants: Vec<Want> = host::WANTS.iter().chain(gpu::WANTS).chain(counts::WANTS).chain(beside).copied().collect();
    let mut to = Limited { sink, first, place: 0, done: Done::default() };
    let mut result = Ok(());
    trace.scan_shared(&[(&wants, Reach::Kept), (before, Reach::Throughout)], filter, &mut |rows| {
        if result.is_ok() {
            result = batch(&rows, texts, &mut counts, &mut to);
        }
    });
    result.and_then(|()| counts.end(&mut to)).map(|()| to.done)
}

fn batch(rows: &Rows, texts: &Texts, counts: &mut Counts, to: &mut Limited<'_>) -> io::Result<()> {
    counts.begin(rows, to)?;
    if rows.reach == Reach::Throughout {
        return counts.write(rows, to);
    }
    if let (Some(first), false) = (rows.i64("start_ns").first(), rows.table == TableId::Ranges) {
        to.sink.reached(*first)?;
    }
    if !counts.look_back() || rows.table == TableId::Counters {
        counts.write(rows, to)?;
    }
    match rows.table {
        TableId::Kernels => gpu::kernels(rows, texts, to),
        TableId::DeviceCopies => gpu::copies(rows, to),
        TableId::GpuWindows => gpu::windows(rows, to),
        TableId::Ranges => host::ranges(rows, texts, to),
        TableId::OsWaits => host::waits(rows, texts, to),
        TableId::Counters | TableId::HostMemory => Ok(()),
        _ => host::calls(rows, texts, to),
    }
}

/// The sink, up to so many bars and values.
struct Limited<'a> {
    sink: &'a mut dyn Sink,
    first: Option<&'a First>,
    /// Bars and values so far.
    place: u64,
    done: Done,
}

impl Limited<'_> {
    fn slice(&mut self, mut slice: Slice<'_>) -> io::Result<()> {
        if !self.takes(slice.start_ns) {
            return Ok(());
        }
        slice.flow = self.first.map_or(slice.flow, |first| first.flow(slice.flow));
        self.sink.slice(&slice)
    }

    fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        if self.takes(sample.start_ns) { self.sink.sample(sample) } else { Ok(()) }
    }

    fn held(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        self.sink.held(sample)
    }

    fn takes(&mut self, start_ns: i64) -> bool {
        let takes = self.first.is_none_or(|first| first.has(start_ns, self.place));
        self.place += 1;
        self.done.written += u64::from(takes);
        takes
    }
}
