//! Values over time: what was read from outside, and memory in use, summed up from its calls.
//!
//! Of a part of a trace memory in use has what was taken before, with which it begins, and what threads do that are not kept
//! themselves: it is a value of the process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::{Limited, Sample};
use crate::trace::{Filter, NOBODY, Parts, PartsOf, Rows, Trace, Want};

/// What is read beside the calls.
pub(super) const WANTS: &[Want] =
    &[Want { table: TableId::Counters, columns: &["device", "source", "name", "unit", "value"] }];

/// What is read from the begin of the trace on.
pub(super) const THROUGHOUT: &[Want] = &[
    Want { table: TableId::DeviceMemory, columns: &["action", "kind", "bytes", "result"] },
    Want { table: TableId::HostMemory, columns: &["action", "weight_bytes"] },
];

/// What may be in use.
const DEVICE: &str = "device memory in use";
const PINNED: &str = "pinned host memory in use";
const MALLOC: &str = "malloc in use";

/// A process, and what it is called.
type Of = (i64, &'static str);

/// Memory in use so far.
pub(super) struct Counts {
    /// By process and what it is called.
    bytes: FxHashMap<Of, f64>,
    parts: PartsOf,
    /// Those of what is in use: what it was when one began was told. Tables come a batch each, and so each value has its own.
    of: FxHashMap<Of, Parts>,
    /// When the next of each begins.
    next: BinaryHeap<Reverse<(i64, Of)>>,
    launcher: usize,
}

impl Counts {
    pub(super) fn new(trace: &Trace, filter: &Filter) -> Counts {
        Counts {
            bytes: FxHashMap::default(),
            parts: PartsOf::new(trace, filter),
            of: FxHashMap::default(),
            next: BinaryHeap::new(),
            launcher: 0,
        }
    }

    /// Whether memory is read from the begin of the trace on, apart from what is kept.
    pub(super) fn look_back(&self) -> bool {
        self.parts.look_back()
    }

    /// Writes with what parts begin that are reached by a batch, before anything that comes later than that.
    pub(super) fn begin(&mut self, rows: &Rows, to: &mut Limited<'_>) -> io::Result<()> {
        if self.launcher != rows.launcher {
            self.launcher = rows.launcher;
            self.end(to)?;
            (self.of, self.next) = Default::default();
        }
        match rows.i64("start_ns").first() {
            Some(first) if self.look_back() => self.until(*first, to),
            _ => Ok(()),
        }
    }

    /// The same with all others, once nothing more of their processes comes.
    pub(super) fn end(&mut self, to: &mut Limited<'_>) -> io::Result<()> {
        if self.look_back() { self.until(i64::MAX, to) } else { Ok(()) }
    }

    fn until(&mut self, at: i64, to: &mut Limited<'_>) -> io::Result<()> {
        while let Some(Reverse((begin, of))) = self.next.peek().copied().filter(|next| next.0.0 <= at) {
            self.next.pop();
            let Some(parts) = self.of.get_mut(&of) else { continue };
            // A change may have begun it.
            let begins = parts.begin(begin).is_some();
            self.next.extend(parts.next().map(|next| Reverse((next, of))));
            if begins {
                self.told(of, begin, to)?;
            }
        }
        Ok(())
    }

    /// Writes with how much a part begins, where anything was in use.
    fn told(&self, of: Of, at: i64, to: &mut Limited<'_>) -> io::Result<()> {
        self.bytes.get(&of).map_or(Ok(()), |bytes| to.held(&in_use(of, at, *bytes)))
    }

    /// Writes the values that a batch tells.
    pub(super) fn write(&mut self, rows: &Rows, to: &mut Limited<'_>) -> io::Result<()> {
        match rows.table {
            TableId::Counters => counters(rows, to),
            TableId::DeviceMemory => self.device_memory(rows, to),
            TableId::HostMemory => self.host_memory(rows, to),
            _ => Ok(()),
        }
    }

    fn device_memory(&mut self, rows: &Rows, to: &mut Limited<'_>) -> io::Result<()> {
        let (process, start, bytes) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("bytes"));
        let (action, kind, result) = (rows.texts("action"), rows.texts("kind"), rows.i32_or("result", 0));
        for row in (0..rows.len).filter(|row| result[*row] == 0) {
            let of = match kind.get(row) {
                "pinned" | "registered" => PINNED,
                _ => DEVICE,
            };
            let bytes = bytes[row] as f64;
            self.changed((process[row], of), if action.get(row) == "free" { -bytes } else { bytes }, start[row], to)?;
        }
        Ok(())
    }

    fn host_memory(&mut self, rows: &Rows, to: &mut Limited<'_>) -> io::Result<()> {
        let (process, start, bytes) = (rows.i64("process_id"), rows.i64("start_ns"), rows.f64("weight_bytes"));
        let action = rows.texts("action");
        for row in 0..rows.len {
            let change = match action.get(row) {
                "alloc" => bytes[row],
                "free" => -bytes[row],
                _ => continue,
            };
            self.changed((process[row], MALLOC), change, start[row], to)?;
        }
        Ok(())
    }

    fn changed(&mut self, of: Of, by: f64, at: i64, to: &mut Limited<'_>) -> io::Result<()> {
        if self.look_back() {
            if self.parts.is_gone(of.0) {
                return Ok(());
            }
            let parts = self.of.entry(of).or_insert_with(|| {
                let parts = self.parts.of(of.0);
                self.next.extend(parts.next().map(|next| Reverse((next, of))));
                parts
            });
            let begun: Vec<i64> = std::iter::from_fn(|| parts.begin(at)).collect();
            begun.into_iter().try_for_each(|begin| self.told(of, begin, to))?;
        }
        let held = self.of.get(&of).is_none_or(|parts| parts.hold(at));
        let bytes = self.bytes.entry(of).or_default();
        // What was taken before the trace is not known.
        *bytes = (*bytes + by).max(0.0);
        if !held {
            return Ok(());
        }
        to.sample(&in_use(of, at, *bytes))
    }
}

fn in_use((process_id, name): Of, start_ns: i64, bytes: f64) -> Sample<'static> {
    Sample { process: Some(process_id), name, unit: "bytes", start_ns, value: bytes.round() }
}

fn counters(rows: &Rows, to: &mut Limited<'_>) -> io::Result<()> {
    let (process, start, value) = (rows.i64_or("process_id", NOBODY), rows.i64("start_ns"), rows.f64("value"));
    let (device, source) = (rows.texts("device"), rows.texts("source"));
    let (name, unit) = (rows.texts("name"), rows.texts("unit"));
    for row in (0..rows.len).filter(|row| value[*row].is_finite()) {
        let device = device.get(row);
        let of = if device.is_empty() { String::new() } else { format!(" {device}") };
        to.sample(&Sample {
            process: Some(process[row]).filter(|process| *process != NOBODY),
            name: &format!("{} {}{of}", source.get(row), name.get(row)),
            unit: unit.get(row),
            start_ns: start[row],
            value: value[row],
        })?;
    }
    Ok(())
}
