//! Values over time: what was read from outside, and memory in use, summed up from its calls.

use std::io;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::{Limited, Sample};
use crate::trace::{NOBODY, Rows, Want};

/// What is read beside the calls.
pub(super) const WANTS: &[Want] = &[
    Want { table: TableId::Counters, columns: &["device", "source", "name", "unit", "value"] },
    Want { table: TableId::HostMemory, columns: &["action", "weight_bytes"] },
];

/// Memory in use so far.
#[derive(Default)]
pub(super) struct Counts {
    /// By process and what it is called.
    bytes: FxHashMap<(i64, &'static str), f64>,
}

impl Counts {
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
                "pinned" | "registered" => "pinned host memory in use",
                _ => "device memory in use",
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
            self.changed((process[row], "malloc in use"), change, start[row], to)?;
        }
        Ok(())
    }

    fn changed(&mut self, of: (i64, &'static str), by: f64, at: i64, to: &mut Limited<'_>) -> io::Result<()> {
        let bytes = self.bytes.entry(of).or_default();
        // What was taken before the trace, or before the span that is kept, is not known.
        *bytes = (*bytes + by).max(0.0);
        to.sample(&Sample { process: Some(of.0), name: of.1, unit: "bytes", start_ns: at, value: bytes.round() })
    }
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
