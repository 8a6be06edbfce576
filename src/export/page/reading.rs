//! A reader of a page's columns, for tests, that shares nothing with who writes them; and what a timeline tells everybody.

use std::io::{self, Read};

use serde_json::Value;

use super::Packed;
use crate::export::timeline::{self, Sample, Sink, Slice};
use crate::trace::{Filter, Trace};

/// A bar as the page has it.
#[derive(Debug)]
pub(super) struct ReadBar {
    /// Name of its track.
    pub(super) track: String,
    pub(super) name: String,
    /// From when to when, ns after the begin.
    pub(super) time: (i64, i64),
    /// Bars that it stands for.
    pub(super) count: u64,
    /// Number of the bar that caused it.
    pub(super) cause: Option<usize>,
}

/// A timeline that was read back.
pub(super) struct Back {
    pub(super) head: Value,
    pub(super) bars: Vec<ReadBar>,
    /// Name, and times with values.
    pub(super) lines: Vec<(String, Vec<(i64, f64)>)>,
}

/// The stream of numbers.
struct Numbers<'a>(std::slice::Iter<'a, u8>);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = *self.0.next().expect("a number");
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    fn folded(&mut self) -> i64 {
        unfolded(self.next())
    }
}

fn unfolded(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads a timeline.
pub(super) fn back(packed: &Packed) -> Back {
    let mut block = Vec::new();
    flate2::read::ZlibDecoder::new(packed.bytes.as_slice()).read_to_end(&mut block).expect("zlib's");
    let length = u32::from_le_bytes(block[..4].try_into().unwrap()) as usize;
    let head: Value = serde_json::from_slice(&block[4..4 + length]).expect("JSON");
    let mut numbers = Numbers(block[4 + length..].iter());
    let unit = head["unit_ns"].as_i64().unwrap();
    let size = |of: &Value, key: &str| of[key].as_u64().unwrap() as usize;
    let kinds = head["kinds"].as_array().unwrap();
    let name =
        |kind: u64| head["texts"][kinds[kind as usize][0].as_u64().unwrap() as usize].as_str().unwrap().to_owned();
    let mut bars: Vec<ReadBar> = Vec::new();
    for track in head["tracks"].as_array().unwrap() {
        let count = size(track, "bars");
        let of_kind: Vec<u64> = (0..count).map(|_| numbers.next()).collect();
        let gaps: Vec<i64> = (0..count).map(|_| numbers.folded()).collect();
        let (mut before, mut lengths, first) = (0, vec![0; kinds.len()], bars.len());
        for (kind, gap) in of_kind.iter().zip(gaps) {
            lengths[*kind as usize] += numbers.folded();
            let start = before + gap;
            before = start + lengths[*kind as usize];
            let of = track["name"].as_str().unwrap().to_owned();
            let time = (start * unit, before * unit);
            bars.push(ReadBar { track: of, name: name(*kind), time, count: 1, cause: None });
        }
        if track["what"] == "stream" {
            let mut before = 0;
            for bar in &mut bars[first..] {
                let Some(folded) = numbers.next().checked_sub(1) else { continue };
                let cause = before + unfolded(folded);
                bar.cause = Some(cause as usize);
                before = cause + 1;
            }
        }
        if track["runs"] == true {
            bars[first..].iter_mut().for_each(|bar| bar.count += numbers.next());
            let runs = bars[first..].iter().filter(|bar| bar.count > 1).count();
            for _ in 0..runs {
                numbers.next();
            }
        }
    }
    let mut lines = Vec::new();
    for line in head["lines"].as_array().unwrap() {
        let (count, most) = (size(line, "points"), line["most"].as_f64().unwrap());
        let (mut at, mut height) = (0, 0);
        let times: Vec<i64> = (0..count)
            .map(|_| {
                at += numbers.folded();
                at * unit
            })
            .collect();
        let value = |_: &i64| {
            height += numbers.folded();
            height as f64 / 4095.0 * most
        };
        let values: Vec<f64> = times.iter().map(value).collect();
        lines.push((line["name"].as_str().unwrap().to_owned(), times.into_iter().zip(values).collect()));
    }
    assert_eq!(numbers.0.len(), 0, "everything was read");
    Back { head, bars, lines }
}

/// Everything that a timeline tells of a trace.
#[derive(Default)]
pub(super) struct Seen {
    /// Name, from when to when, ns since the epoch.
    pub(super) slices: Vec<(String, i64, i64)>,
    /// Name, when, and what.
    pub(super) samples: Vec<(String, i64, f64)>,
}

impl Sink for Seen {
    fn reached(&mut self, _start_ns: i64) -> io::Result<()> {
        Ok(())
    }

    fn slice(&mut self, of: &Slice<'_>) -> io::Result<()> {
        self.slices.push((of.name.to_owned(), of.start_ns, of.start_ns + of.length_ns.unwrap_or(0)));
        Ok(())
    }

    fn sample(&mut self, of: &Sample<'_>) -> io::Result<()> {
        self.samples.push((of.name.to_owned(), of.start_ns, of.value));
        Ok(())
    }
}

/// What a timeline's other formats are told of the same trace, in the order of the bars' begin.
pub(super) fn told(trace: &Trace) -> Seen {
    let mut seen = Seen::default();
    timeline::write(trace, &Filter::default(), None, &mut seen).unwrap();
    seen
}
