//! What the page of `report --format html` shows of time: bars, values, and the kernels' way through the queue, in bounded memory.
//!
//! The timeline's rows are gathered as they are read ([`bars`], [`values`], [`delays`]), thinned out where there are more than a page can
//! hold, and written as columns ([`columns`]). What the columns mean to the page is in `src/render/html/unpack.js`.

mod bars;
mod columns;
mod delays;
mod head;
mod kinds;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod tests;
mod values;

use std::io;

use rustc_hash::{FxHashMap, FxHashSet};

use super::timeline::{self, Flow, Places, Sample, Sink, Slice, Track};
use crate::trace::{Filter, Process, Trace};
use bars::{Bar, Bars, NO_CALL};
use columns::Room;
pub(crate) use columns::{Packed, deflated};
use delays::Delays;
use kinds::Kinds;
use values::Values;

/// Processes that are shown: those with most events.
const PROCESSES: usize = 64;
/// Tracks of bars that are shown: the first to have one.
const TRACKS: usize = 1024;
/// Bars that a page holds.
const BARS: usize = 1 << 20;

/// What is known of a process.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Of {
    /// Ranks stand first, in their order.
    rank: (bool, Option<i32>),
    /// Place among all, by their start.
    place: usize,
    pid: i32,
}

/// What is gathered.
struct Gathered {
    base_ns: i64,
    places: Places,
    kinds: Kinds,
    /// Place of each track in the list.
    numbers: FxHashMap<Track, u32>,
    tracks: Vec<(Track, Option<String>)>,
    bars: Bars,
    values: Values,
    delays: Delays,
    /// Processes that are shown.
    shown: FxHashMap<i64, Of>,
    /// Processes that are not, though they have something.
    others: FxHashSet<i64>,
    /// Hosts of the processes that are shown.
    hosts: usize,
    /// There are more tracks than are shown.
    more_tracks: bool,
}

/// Reads what the filter keeps of a trace.
pub(crate) fn gather(trace: &Trace, filter: &Filter) -> Packed {
    gather_at_most(BARS, columns::PAGE, trace, filter)
}

fn gather_at_most(most: usize, room: Room, trace: &Trace, filter: &Filter) -> Packed {
    let base_ns = filter.from_ns.unwrap_or_else(|| trace.began_ns());
    let shown = shown(trace, filter);
    let hosts = trace.processes.iter().filter(|process| shown.contains_key(&process.process_id));
    let hosts: FxHashSet<&str> = hosts.map(|process| process.host.as_str()).collect();
    let mut gathered = Gathered {
        base_ns,
        places: Places::of(trace),
        kinds: Kinds::default(),
        numbers: FxHashMap::default(),
        tracks: Vec::new(),
        bars: Bars::new(most),
        values: Values::default(),
        delays: Delays::default(),
        shown,
        others: FxHashSet::default(),
        hosts: hosts.len(),
        more_tracks: false,
    };
    let done = timeline::write(trace, filter, None, &mut gathered).expect("nothing here fails to be written");
    columns::pack(gathered, &done, room)
}

/// The processes with most events; what a killed launcher recorded is not counted.
fn shown(trace: &Trace, filter: &Filter) -> FxHashMap<i64, Of> {
    let kept = |id: i64| filter.processes.as_ref().is_none_or(|kept| kept.contains(&id));
    let mut all: Vec<_> = trace
        .processes
        .iter()
        .enumerate()
        .filter(|(_, process)| process.summed == 0 && kept(process.process_id))
        .collect();
    all.sort_by_key(|(_, process)| std::cmp::Reverse(process.events));
    let of = |(place, process): (usize, &Process)| {
        let rank = (process.rank.is_none(), process.rank);
        (process.process_id, Of { rank, place, pid: process.pid })
    };
    all.into_iter().take(PROCESSES).map(of).collect()
}

impl Gathered {
    fn is_shown(&mut self, process: i64) -> bool {
        let shown = self.shown.contains_key(&process);
        if !shown {
            self.others.insert(process);
        }
        shown
    }

    /// The number of a track; none where there are too many.
    fn number(&mut self, slice: &Slice<'_>) -> Option<u32> {
        if let Some(number) = self.numbers.get(&slice.track) {
            return Some(*number);
        }
        if self.tracks.len() >= TRACKS {
            self.more_tracks = true;
            return None;
        }
        let number = self.tracks.len() as u32;
        let domain = slice.args.iter().find_map(|(key, value)| match value {
            timeline::Arg::Text(text) if *key == "domain" => Some((*text).to_owned()),
            _ => None,
        });
        self.tracks.push((slice.track, domain));
        self.numbers.insert(slice.track, number);
        Some(number)
    }
}

impl Sink for Gathered {
    fn reached(&mut self, _start_ns: i64) -> io::Result<()> {
        Ok(())
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        self.delays.slice(slice);
        if !self.is_shown(slice.track.process()) {
            return Ok(());
        }
        let Some(number) = self.number(slice) else { return Ok(()) };
        let call = match slice.flow {
            Flow::None => NO_CALL,
            Flow::Begins(_, call) | Flow::Ends(_, call) => call,
        };
        let (start_ns, length_ns) = (slice.start_ns, slice.length_ns.unwrap_or(0));
        self.bars.add(number as usize, Bar { start_ns, length_ns, call, kind: self.kinds.of(slice), count: 1 });
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        if sample.process.is_none_or(|process| self.is_shown(process)) {
            self.values.add(sample);
        }
        Ok(())
    }
}
