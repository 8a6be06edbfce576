//! Bars and values as columns of small numbers, which deflate makes smaller still.
//!
//! A block is the length of its head (four bytes, least first), the head as JSON, and one stream of numbers, seven bits a byte, least first.
//! For each track of the head: of each bar its kind; when it begins, from the end of the bar before it; how long it is, from the last one of
//! its kind; in tracks of streams the bar of the call that caused it, from that of the bar before it; in tracks with runs
//! the bars beyond one of each, and how long a run's bars took. For each line: when each point is, from the one before it, and its value,
//! from that one's. Differences are folded: 0, -1, 1, -2, 2.
//!
//! Times are in units of a power of two ns: the smallest with which the page is no larger than it may be ([`Room`]). Begins and
//! ends are both rounded down, so that what nests and what follows stays so.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustc_hash::FxHashMap;

use super::super::timeline::{Done, Track};
use super::bars::{Bar, NO_CALL};
use super::values::Line;
use super::{Gathered, Of, head};

/// How large a page may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes for each bar or point of a line that it shows.
    pub(super) each: f64,
    /// But never less than these.
    pub(super) least: f64,
    /// Of all these for what is not the timeline: scripts, tables, flame graphs.
    pub(super) rest: f64,
}

/// That of a report.
pub(super) const PAGE: Room = Room { each: 2.0, least: 1_000_000.0, rest: 393_216.0 };
/// The coarsest unit: 4 us, or a sixteenth of the cell of runs.
const COARSEST: u32 = 12;
const OF_CELL: u32 = 4;
/// Steps of a line's height.
pub(super) const STEPS: f64 = 4095.0;

/// A timeline as the page has it.
#[derive(Default)]
pub(crate) struct Packed {
    /// Deflated.
    pub(crate) bytes: Vec<u8>,
    /// Bars and points that it shows.
    pub(crate) shown: u64,
}

/// Writes the block.
pub(super) fn pack(mut gathered: Gathered, done: &Done, of_page: Room) -> Packed {
    gathered.bars.sort();
    gathered.values.finish();
    rename(&mut gathered);
    let order = order(&gathered);
    let links = Links::of(&gathered, &order);
    let shown = (gathered.bars.len() + gathered.values.len()) as u64;
    // Four characters of the page hold three bytes.
    let room = ((shown as f64 * of_page.each).max(of_page.least) - of_page.rest) * 3.0 / 4.0;

    let head = |unit_ns: i64| head::head(&gathered, &order, done, unit_ns).to_string();
    let head_bytes = deflated(head(1).as_bytes(), Compression::default()).len() as f64;
    let coarsest = gathered.bars.cell_ns.max(1).ilog2().saturating_sub(OF_CELL).max(COARSEST);
    let mut shift = 0;
    let columns = loop {
        let columns = columns(&gathered, &order, &links, shift);
        let bytes = deflated(&columns, Compression::default()).len() as f64;
        if bytes + head_bytes <= room || shift >= coarsest {
            break columns;
        }
        // A bit less of each begin and each length is about two bits of a bar.
        let bits = (bytes + head_bytes - room) * 8.0 / shown.max(1) as f64;
        shift = (shift + ((bits / 2.0) as u32).max(1)).min(coarsest);
    };
    let head = head(1 << shift);
    drop((gathered, links));
    let mut block = (head.len() as u32).to_le_bytes().to_vec();
    block.extend_from_slice(head.as_bytes());
    block.extend_from_slice(&columns);
    Packed { bytes: deflated(&block, Compression::best()), shown }
}

/// Deflates, with zlib's head and sum, as browsers' DecompressionStream reads it.
pub(crate) fn deflated(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 3), level);
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes what is written")
}

/// Gives kinds new numbers, the most frequent the smallest.
fn rename(gathered: &mut Gathered) {
    let mut counts = vec![0u64; gathered.kinds.all.len()];
    gathered.bars.tracks.iter().flatten().for_each(|bar| counts[bar.kind as usize] += 1);
    let mut places: Vec<u32> = (0..counts.len() as u32).collect();
    places.sort_by_key(|old| std::cmp::Reverse(counts[*old as usize]));
    let mut new = vec![0; places.len()];
    places.iter().enumerate().for_each(|(number, old)| new[*old as usize] = number as u32);
    gathered.bars.tracks.iter_mut().flatten().for_each(|bar| bar.kind = new[bar.kind as usize]);
    let mut old = std::mem::take(&mut gathered.kinds.all);
    gathered.kinds.all = places.iter().map(|place| std::mem::take(&mut old[*place as usize])).collect();
}

/// The tracks as they stand below each other: of each process its threads, then its streams.
fn order(gathered: &Gathered) -> Vec<usize> {
    let place = |track: Track| match track {
        Track::Ranges(_, tid, domain) => (0, i64::from(tid), 0, domain),
        Track::Thread(_, tid) => (0, i64::from(tid), 1, 0),
        Track::Waits(_, tid) => (0, i64::from(tid), 2, 0),
        Track::Spans(_) => (1, 0, 0, 0),
        Track::Stream(_, device, stream) => (2, i64::from(device), 0, stream),
        Track::Recording(_) => (3, 0, 0, 0),
    };
    let mut order: Vec<usize> = (0..gathered.tracks.len()).collect();
    order.sort_by_cached_key(|at| {
        let track = gathered.tracks[*at].0;
        (of(gathered, track.process()), place(track))
    });
    order
}

/// What orders processes: those that have bars stand first.
pub(super) fn of(gathered: &Gathered, process: i64) -> (bool, Of) {
    let has_bars = gathered.tracks.iter().any(|(track, _)| track.process() == process);
    (!has_bars, gathered.shown.get(&process).copied().unwrap_or_default())
}

/// Which bar, counted through all tracks in their order, a call of a process is.
#[derive(Default)]
struct Links(FxHashMap<i64, Vec<(i64, u32)>>);

impl Links {
    pub(super) fn of(gathered: &Gathered, order: &[usize]) -> Links {
        let mut links = Links::default();
        let mut number = 0;
        for track in order {
            let (track, bars) = (gathered.tracks[*track].0, &gathered.bars.tracks[*track]);
            let causes = !matches!(track, Track::Stream(..));
            let calls = links.0.entry(track.process()).or_default();
            for bar in bars {
                if causes && !bar.is_run() && bar.call != NO_CALL {
                    calls.push((bar.call, number));
                }
                number += 1;
            }
        }
        links.0.values_mut().for_each(|calls| calls.sort_unstable());
        links
    }

    fn find(&self, process: i64, bar: &Bar) -> Option<u32> {
        let calls = self.0.get(&process).filter(|_| !bar.is_run() && bar.call != NO_CALL)?;
        calls.binary_search_by_key(&bar.call, |(call, _)| *call).ok().map(|at| calls[at].1)
    }
}

/// The stream of numbers.
fn columns(gathered: &Gathered, order: &[usize], links: &Links, shift: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut lengths = vec![0i64; gathered.kinds.all.len()];
    let unit = |ns: i64| ns.saturating_sub(gathered.base_ns) >> shift;
    for at in order {
        let (track, bars) = (gathered.tracks[*at].0, &gathered.bars.tracks[*at]);
        bars.iter().for_each(|bar| varint(&mut out, bar.kind.into()));
        let mut before = 0;
        for bar in bars {
            folded(&mut out, unit(bar.start_ns).wrapping_sub(before));
            before = unit(bar.end_ns());
        }
        lengths.fill(0);
        for bar in bars {
            let length = unit(bar.end_ns()).wrapping_sub(unit(bar.start_ns));
            folded(&mut out, length.wrapping_sub(lengths[bar.kind as usize]));
            lengths[bar.kind as usize] = length;
        }
        if let Track::Stream(process, ..) = track {
            let mut before = 0;
            for bar in bars {
                let Some(call) = links.find(process, bar) else {
                    varint(&mut out, 0);
                    continue;
                };
                varint(&mut out, fold(i64::from(call) - before) + 1);
                before = i64::from(call) + 1;
            }
        }
        if bars.iter().any(Bar::is_run) {
            bars.iter().for_each(|bar| varint(&mut out, u64::from(bar.count) - 1));
            bars.iter().filter(|bar| bar.is_run()).for_each(|run| varint(&mut out, run.call.max(0) as u64 >> shift));
        }
    }
    for line in &gathered.values.lines {
        let (mut at, mut height) = (0, 0);
        for (start_ns, _) in &line.points {
            folded(&mut out, unit(*start_ns).wrapping_sub(at));
            at = unit(*start_ns);
        }
        let most = most(line);
        for (_, value) in &line.points {
            let step = if most > 0.0 { (value / most * STEPS).round() as i64 } else { 0 };
            folded(&mut out, step - height);
            height = step;
        }
    }
    out
}

/// What a line's height stands for.
pub(super) fn most(line: &Line) -> f64 {
    line.points.iter().map(|(_, value)| value.abs()).fold(0.0, f64::max)
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn fold(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn folded(out: &mut Vec<u8>, value: i64) {
    varint(out, fold(value));
}
