//! Chrome's JSON of trace events, which chrome://tracing, Perfetto's viewer and speedscope open: one file of all processes.
//!
//! Ranges and waits stand on the thread that had them, where they nest; streams are threads of their process with numbers that
//! no thread has; ranges that may overlap are asynchronous. Arrows lead from a call to what it caused, and on through what a
//! graph held.

use std::io::{self, Write};
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};

use super::kineto::Us;
use super::output::{Output, quoted};
use super::timeline::{Arg, Done, First, Flow, Places, Sample, Sink, Slice, Track};
use super::{Written, outside, timeline};
use crate::trace::{Filter, Trace};

/// Threads that are none have numbers from here on.
const STREAMS: i32 = 1 << 29;
/// The process of values that are no process's.
const MACHINE: i32 = 0;

/// Writes the file.
pub(crate) fn write(trace: &Trace, filter: &Filter, most: Option<u64>, file: &Path) -> io::Result<Written> {
    let mut output = Output::create(file)?;
    output.base_ns = filter.from_ns.unwrap_or_else(|| trace.began_ns());
    let mut chrome = Chrome {
        output,
        places: Places::of(trace),
        tracks: FxHashMap::default(),
        named: FxHashSet::default(),
        spans: 0,
    };
    let first = timeline::first(trace, filter, most);
    let left_out = first.as_ref().map(|first| first.text(trace.began_ns()));
    let outside = outside::of_timeline(trace, filter);
    let said: Vec<&str> = outside.iter().chain(&left_out).map(String::as_str).collect();
    let done = chrome.whole(trace, filter, first.as_ref(), &said.join("; "))?;
    let (path, _) = chrome.output.end()?;
    Ok(Written::timeline(path, done, left_out, outside))
}

struct Chrome {
    output: Output,
    places: Places,
    /// Process and thread of each track so far.
    tracks: FxHashMap<Track, (i32, i32)>,
    /// Processes that have their name.
    named: FxHashSet<i64>,
    /// Asynchronous ranges so far.
    spans: u64,
}

impl Chrome {
    fn whole(&mut self, trace: &Trace, filter: &Filter, first: Option<&First>, left_out: &str) -> io::Result<Done> {
        let begin_ns = self.output.base_ns;
        let left_out = match left_out {
            "" => String::new(),
            text => format!(", \"left_out\": {}", quoted(text)),
        };
        write!(
            self.output,
            "{{\n\"displayTimeUnit\": \"ms\",\n\"otherData\": {{\"version\": \"gputrace {}\", \"begin_ns\": \"{}\"{left_out}}},\n\"traceEvents\": [",
            env!("CARGO_PKG_VERSION"),
            begin_ns
        )?;
        let done = timeline::write(trace, filter, first, self)?;
        write!(self.output, "\n]\n}}\n")?;
        Ok(done)
    }

    /// Process and thread of a track, which are named when they are first seen.
    fn place(&mut self, track: Track) -> io::Result<(i32, i32)> {
        // On the thread itself.
        let track = match track {
            Track::Ranges(process, tid, _) | Track::Waits(process, tid) => Track::Thread(process, tid),
            other => other,
        };
        if let Some(place) = self.tracks.get(&track) {
            return Ok(*place);
        }
        let process = track.process();
        let (pid, name) = self.places.process(process);
        if self.named.insert(process) {
            self.output.named("process_name", pid, 0, &quoted(name))?;
        }
        let tid = match track {
            Track::Thread(_, tid) => tid,
            _ => STREAMS + self.tracks.len() as i32,
        };
        self.output.named("thread_name", pid, tid, &quoted(&self.places.track(track, None)))?;
        self.tracks.insert(track, (pid, tid));
        Ok((pid, tid))
    }
}

impl Output {
    fn named(&mut self, what: &str, pid: i32, tid: i32, name: &str) -> io::Result<()> {
        write!(self.event()?, r#"{{"ph":"M","name":"{what}","ts":0,"pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#)
    }
}

impl Sink for Chrome {
    fn reached(&mut self, _start_ns: i64) -> io::Result<()> {
        Ok(())
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let (pid, tid) = self.place(slice.track)?;
        let (name, cat, ts) = (quoted(slice.name), quoted(slice.category), Us(slice.start_ns - self.output.base_ns));
        let output = &mut self.output;
        let place = format!(r#""pid":{pid},"tid":{tid}"#);
        match (slice.track, slice.length_ns) {
            (Track::Spans(_), Some(length)) => {
                self.spans += 1;
                let end = Us(slice.start_ns + length - output.base_ns);
                let id = format!(r#""id":"{pid}.{}""#, self.spans);
                write!(output.event()?, r#"{{"ph":"e","cat":{cat},"name":{name},{id},{place},"ts":{end}}}"#)?;
                write!(output.event()?, r#"{{"ph":"b","cat":{cat},"name":{name},{id},{place},"ts":{ts}"#)?;
            }
            (_, Some(length)) => {
                let dur = Us(length);
                write!(output.event()?, r#"{{"ph":"X","cat":{cat},"name":{name},{place},"ts":{ts},"dur":{dur}"#)?;
            }
            (_, None) => write!(output.event()?, r#"{{"ph":"i","s":"t","cat":{cat},"name":{name},{place},"ts":{ts}"#)?,
        }
        for (number, (key, value)) in slice.args.iter().enumerate() {
            let before = if number == 0 { ",\"args\":{" } else { "," };
            match value {
                Arg::Int(value) => write!(output, "{before}\"{key}\":{value}")?,
                Arg::Text(text) => write!(output, "{before}\"{key}\":{}", quoted(text))?,
            }
        }
        output.write_all(if slice.args.is_empty() { b"}" } else { b"}}" })?;
        let (step, call) = match slice.flow {
            Flow::None => return Ok(()),
            Flow::Begins(_, call) => (r#""ph":"s""#, call),
            Flow::Ends(_, call) => (r#""ph":"t","bp":"e""#, call),
        };
        write!(output.event()?, r#"{{{step},"cat":"flow","name":"caused","id":"{pid}.{call}",{place},"ts":{ts}}}"#)
    }

    fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        let pid = match sample.process {
            Some(process) => self.place(Track::Recording(process))?.0,
            None => MACHINE,
        };
        let unit = if sample.unit.is_empty() { String::new() } else { format!(" ({})", sample.unit) };
        let (name, ts) = (quoted(&format!("{}{unit}", sample.name)), Us(sample.start_ns - self.output.base_ns));
        let value = sample.value;
        write!(
            self.output.event()?,
            r#"{{"ph":"C","name":{name},"pid":{pid},"tid":0,"ts":{ts},"args":{{"value":{value}}}}}"#
        )
    }
}
