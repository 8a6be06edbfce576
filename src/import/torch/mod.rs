//! Memory snapshots of PyTorch's caching allocator: `torch.cuda.memory._dump_snapshot`.
//!
//! A snapshot is a dict of what the allocator holds (`segments`, each with its blocks) and, where
//! `_record_memory_history` was on, of what it did (`device_traces`, a list a device). Both become rows of one table. The
//! history is a ring: what was dropped from its front is found out by the analysis, from what is left at its end. A list of
//! segments alone, as `memory_snapshot()` returns it, is read too.

mod pickle;

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};
use gputrace_collectors::archive::StackRow;
use rustc_hash::FxHashMap;

use super::events::TorchMemory;
use super::gathered::{Gathered, TIMES_NS};
use pickle::{Pickle, Ref, Value};

/// The first byte of a pickle of protocol 2 and newer.
pub(super) const MAGIC: &[u8] = &[0x80];

/// A petabyte: only a request that fails, or damage, is for more.
const MOST_BYTES: i64 = 1 << 50;

/// What the allocator does, as the table calls it too.
const ACTIONS: [&str; 9] = [
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
];

/// Reads a snapshot.
pub(super) fn read(file: &Path) -> Result<Gathered> {
    let name = file.display();
    let data = fs::read(file).with_context(|| format!("{name} cannot be read"))?;
    let written = fs::metadata(file).and_then(|about| about.modified()).ok();
    let written_ns =
        written.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(0, |since| since.as_nanos() as i64);
    let pickle = Pickle::read(&data).map_err(|error| anyhow::anyhow!("{name} {error}"))?;
    let (segments, traces) = match pickle.value(pickle.root) {
        Value::List(_) => (Some(pickle.root), None),
        _ => (pickle.get(pickle.root, "segments"), pickle.get(pickle.root, "device_traces")),
    };
    let is_one = |at: &Ref| pickle.int(*at, "total_size").is_some();
    if segments.is_none() || !pickle.list(segments).iter().all(is_one) {
        bail!("{name} is a pickle, and no memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot)");
    }
    let mut reader =
        Reader { pickle: &pickle, found: Gathered::new("PyTorch memory snapshot"), frames: FxHashMap::default() };
    let process = reader.found.process(0);
    reader.found.processes[process].name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let traces = pickle.list(traces);
    let last_us =
        traces.iter().flat_map(|trace| pickle.list(Some(*trace))).filter_map(|at| pickle.int(*at, "time_us")).max();
    let taken_ns = last_us.and_then(|us| us.checked_mul(1000)).filter(|ns| TIMES_NS.contains(ns)).unwrap_or(written_ns);
    for (device, trace) in (0..).zip(traces) {
        reader.history(device, pickle.list(Some(*trace)), taken_ns);
    }
    if reader.found.torch.is_empty() {
        let note =
            "it has no history (torch.cuda.memory._record_memory_history): only what was held at its end is known";
        reader.found.notes.push(note.to_owned());
    }
    reader.found.torch.sort_by_key(|row| row.start_ns);
    for segment in pickle.list(segments) {
        reader.segment(*segment, taken_ns);
    }
    Ok(reader.found)
}

struct Reader<'p, 'a> {
    pickle: &'p Pickle<'a>,
    found: Gathered,
    /// Numbers of frames, which stacks share; none for those of C++.
    frames: FxHashMap<Ref, Option<u32>>,
}

impl Reader<'_, '_> {
    /// Takes in what the allocator of a device did. Before PyTorch 2.1 it said no times: then they only keep the order.
    fn history(&mut self, device: i32, entries: &[Ref], taken_ns: i64) {
        let mut untimed = false;
        for (before_end, at) in (0..entries.len() as i64).rev().zip(entries) {
            let action = self.pickle.text(*at, "action").unwrap_or_default();
            let Some(action) = ACTIONS.iter().find(|known| **known == action) else {
                self.found.leave_out(&format!("memory action {action}"));
                continue;
            };
            let us = self
                .pickle
                .int(*at, "time_us")
                .and_then(|us| us.checked_mul(1000))
                .filter(|ns| *ns > 0 && TIMES_NS.contains(ns));
            untimed |= us.is_none();
            let row = TorchMemory {
                start_ns: us.unwrap_or(taken_ns - before_end * 1000),
                free_bytes: self.pickle.int(*at, "device_free").filter(|_| *action == "oom"),
                ..self.row(*at, device, action, "addr", "size")
            };
            self.found.torch.push(row);
        }
        if untimed {
            self.found.notes.push(format!("the history of device {device} has no times: they only keep its order"));
        }
    }

    /// Takes in a segment and its blocks. In old snapshots blocks have no address: they lie one after the other.
    fn segment(&mut self, at: Ref, taken_ns: i64) {
        let device = self.pickle.int(at, "device").unwrap_or(0) as i32;
        let segment = TorchMemory { start_ns: taken_ns, ..self.row(at, device, "segment", "address", "total_size") };
        let (address, stream) = (segment.address, segment.stream);
        self.found.torch.push(segment);
        let mut next = address;
        let pickle = self.pickle;
        for block in pickle.list(pickle.get(at, "blocks")) {
            let state = pickle.text(*block, "state").unwrap_or_default();
            let action = match state.as_ref() {
                "active_allocated" => "active",
                "active_awaiting_free" | "active_pending_free" => "pending_free",
                _ => "inactive",
            };
            let row = self.row(*block, device, action, "address", "size");
            let row = TorchMemory {
                start_ns: taken_ns,
                address: if row.address == 0 { next } else { row.address },
                stream,
                segment: Some(address),
                requested_bytes: Some(pickle.int(*block, "requested_size").unwrap_or(row.bytes)),
                ..row
            };
            next = row.address.saturating_add(row.bytes);
            self.found.torch.push(row);
        }
    }

    fn row(&mut self, at: Ref, device: i32, action: &'static str, address: &str, bytes: &str) -> TorchMemory {
        TorchMemory {
            device,
            stream: self.pickle.int(at, "stream").unwrap_or(0),
            action,
            address: self.pickle.int(at, address).unwrap_or(0),
            bytes: self.pickle.int(at, bytes).unwrap_or(0).clamp(0, MOST_BYTES),
            stack: self.pickle.get(at, "frames").and_then(|frames| self.stack(frames)),
            ..TorchMemory::default()
        }
    }

    /// The stack of a list of frames, the innermost first. Frames of C++ are PyTorch's own, and are left out.
    fn stack(&mut self, list: Ref) -> Option<NonZeroU32> {
        let pickle = self.pickle;
        let frames: Vec<u32> = pickle.list(Some(list)).iter().filter_map(|at| self.frame(*at)).collect();
        self.found.stacks.stack(&frames)
    }

    fn frame(&mut self, at: Ref) -> Option<u32> {
        if let Some(known) = self.frames.get(&at) {
            return *known;
        }
        let file = self.pickle.text(at, "filename").map(String::from);
        let file = file.filter(|file| file.ends_with(".py") || file.starts_with('<'));
        let line = self.pickle.int(at, "line").and_then(|line| i32::try_from(line).ok()).filter(|line| *line > 0);
        let function = self.pickle.text(at, "name").unwrap_or_default().into_owned();
        let row = file.map(|file| StackRow {
            language: "python",
            function: function.into(),
            file: Some(file.into()),
            line,
            ..StackRow::default()
        });
        let frame = row.map(|row| self.found.stacks.frame(row));
        self.frames.insert(at, frame);
        frame
    }
}
