//! Writes what was found into the files of a launcher of its own.

use std::collections::BTreeMap;
use std::io;
use std::num::{NonZeroI64, NonZeroU32};
use std::path::Path;

use arrow::array::RecordBatch;
use gputrace_collectors::archive::{Archive, Columns};
use gputrace_collectors::manifest::{self, Count};
use gputrace_collectors::schema::{IMPORTED_ONLY, SCHEMA_VERSION, TableId};
use gputrace_collectors::{MOST_NAMED, Manifest};
use rustc_hash::FxHashMap;

use super::callers;
use super::calls::Kind;
use super::events::{Call, Copy, Kernel, Lane, Range};
use super::gathered::Gathered;
use super::join::{Joined, join};
use crate::progress::{self, Unit};

/// Rows of a batch: they are in memory a second time while it is made.
const ROWS: usize = 8_192;

/// Where the rows go, and whose they are.
pub(super) struct Place<'a> {
    pub(super) trace: &'a Path,
    pub(super) host: &'a str,
    pub(super) launcher_id: u64,
    /// The file that was read, for the manifest.
    pub(super) source: &'a str,
}

/// Writes everything. After an error nothing is left of it.
pub(super) fn write(mut found: Gathered, place: &Place<'_>) -> io::Result<Manifest> {
    let joined = join(&mut found);
    callers::name(&mut found);
    found.beside.sort_by_key(|beside| beside.start_ns);
    let mut archive = Archive::create(place.trace, place.host, place.launcher_id)?;
    for (kind, name) in found.names.values() {
        archive.name(*kind, name)?;
    }
    let stack_ids =
        found.stacks.rows().map(|frames| archive.stack(&frames)).collect::<io::Result<Vec<Option<i64>>>>()?;
    let ids = Ids { launcher_id: place.launcher_id, found: &found, stack_ids };
    progress::stage(
        &format!("writing {}", place.source),
        Some(((found.rows() + found.more_rows()) as u64, Unit::Number)),
    );
    let mut put = |table: TableId, classes: &[&str], more: &dyn Fn(Columns, Rows<'_>) -> Columns| {
        let class = |call: &Call| found.callers.get(call.caller).kind.class();
        let mut calls = found.calls.iter().zip(&joined).filter(|(call, _)| classes.contains(&class(call)));
        loop {
            let rows: Vec<(&Call, &Joined)> = calls.by_ref().take(ROWS).collect();
            if rows.is_empty() {
                return io::Result::Ok(());
            }
            archive.append(table, &more(ids.call_columns(table, &rows), &rows).batch()?)?;
            progress::step(rows.len() as u64);
        }
    };
    put(TableId::Launches, &["launch"], &|columns, rows| ids.launches(columns, rows))?;
    put(TableId::Syncs, &["sync"], &|columns, rows| {
        let kind = |call: &Call| if let Kind::Sync(kind) = ids.kind(call) { kind } else { "unknown" };
        // A query without a stream is one of an event whose handle the format does not say.
        let name = |call: &Call| found.name_of(found.callers.get(call.caller).api_id);
        let of_event = |call: &Call| ["query", "event"].contains(&kind(call)) && name(call).contains("Event");
        columns
            .text("kind", rows.iter().map(|(call, _)| kind(call)))
            .i64("handle", rows.iter().map(|(call, _)| if of_event(call) { -1 } else { 0 }))
    })?;
    put(TableId::Transfers, &["transfer"], &|columns, rows| ids.transfers(columns, rows))?;
    put(TableId::DeviceMemory, &["alloc", "free"], &|columns, rows| {
        let memory = |call: &Call| match ids.kind(call) {
            Kind::Alloc(kind) | Kind::Free(kind) => kind,
            _ => "unknown",
        };
        columns
            .text("action", rows.iter().map(|(call, _)| ids.kind(call).class()))
            .text("kind", rows.iter().map(|(call, _)| memory(call)))
    })?;
    put(TableId::Api, &["api", "module"], &|columns, rows| {
        columns.text("class", rows.iter().map(|(call, _)| ids.kind(call).class()))
    })?;
    for rows in found.kernels.chunks(ROWS) {
        archive.append(TableId::Kernels, &ids.kernels(rows)?)?;
        progress::step(rows.len() as u64);
    }
    for rows in found.copies.chunks(ROWS) {
        archive.append(TableId::DeviceCopies, &ids.copies(rows)?)?;
        progress::step(rows.len() as u64);
    }
    for (part, rows) in found.collectives.chunks(ROWS).enumerate() {
        archive.append(TableId::Collectives, &ids.collectives(rows, part * ROWS)?)?;
        progress::step(rows.len() as u64);
    }
    archive.append(TableId::Communicators, &ids.communicators()?)?;
    for rows in found.torch.chunks(ROWS) {
        archive.append(TableId::TorchMemory, &ids.torch(rows)?)?;
        progress::step(rows.len() as u64);
    }
    for (part, rows) in found.ranges.chunks(ROWS).enumerate() {
        archive.append(TableId::Ranges, &ids.ranges(rows, part * ROWS)?)?;
        progress::step(rows.len() as u64);
    }
    for rows in found.functions.chunks(ROWS) {
        archive.append(TableId::ProfilerEvents, &ids.functions(rows)?)?;
        progress::step(rows.len() as u64);
    }
    for rows in found.beside.chunks(ROWS) {
        archive.append(TableId::ProfilerEvents, &ids.beside(rows)?)?;
        progress::step(rows.len() as u64);
    }
    let threads = found.threads();
    archive.append(TableId::Threads, &ids.threads(&threads)?)?;
    archive.append(TableId::Processes, &ids.processes(place.host)?)?;
    let manifest = ids.manifest(place);
    archive.finish(&manifest)?;
    Ok(manifest)
}

type Rows<'a> = &'a [(&'a Call, &'a Joined)];

/// Rows of what was found, with the ids of a launcher.
pub(super) struct Ids<'a> {
    pub(super) launcher_id: u64,
    pub(super) found: &'a Gathered,
    /// By the numbers of [`Gathered::stacks`].
    stack_ids: Vec<Option<i64>>,
}

impl Ids<'_> {
    pub(super) fn process_id(&self, process: usize) -> i64 {
        gputrace_collectors::process_id(self.launcher_id, process as i64)
    }

    pub(super) fn stack_id(&self, stack: Option<NonZeroU32>) -> Option<i64> {
        self.stack_ids.get(stack?.get() as usize - 1).copied().flatten()
    }

    pub(super) fn pid(&self, process: usize) -> i32 {
        self.found.processes.get(process).map_or(0, |process| process.pid as i32)
    }

    fn kind(&self, call: &Call) -> Kind {
        self.found.callers.get(call.caller).kind
    }

    /// The first kernel that a call caused.
    fn kernel(&self, joined: &Joined) -> Option<&Kernel> {
        joined.kernel(self.found).map(|work| self.found.kernel_kinds.get(work.what))
    }

    /// The first copy.
    fn copy(&self, joined: &Joined) -> Option<&Copy> {
        joined.copy(self.found).map(|work| self.found.copy_kinds.get(work.what))
    }

    /// Where the GPU did what a call caused.
    fn lane(&self, joined: &Joined) -> Option<Lane> {
        self.kernel(joined).map(|kernel| kernel.lane).or(self.copy(joined).map(|copy| copy.lane))
    }

    /// The columns that all tables of calls have.
    fn call_columns(&self, table: TableId, rows: Rows<'_>) -> Columns {
        // A wait's stream is known by its correlation, any other call's by the work that it caused.
        let stream = |call: &Call, joined: &Joined| {
            self.found.sync_stream(call).or(self.lane(joined).map(|lane| (lane.stream, lane.context)))
        };
        let caller = |call: &Call| self.found.callers.get(call.caller);
        Columns::new(table, rows.len())
            .i64("start_ns", rows.iter().map(|(call, _)| call.start_ns))
            .i64("api_ns", rows.iter().map(|(call, _)| call.api_ns))
            .i64("process_id", rows.iter().map(|(call, _)| self.process_id(caller(call).process)))
            .i32("pid", rows.iter().map(|(call, _)| self.pid(caller(call).process)))
            .i32("tid", rows.iter().map(|(call, _)| caller(call).tid))
            .i64("correlation_id", rows.iter().map(|(call, _)| call.correlation.map_or(0, NonZeroI64::get)))
            .i64("api_id", rows.iter().map(|(call, _)| caller(call).api_id))
            .i32("context", rows.iter().map(|(call, joined)| stream(call, joined).map_or(0, |(_, context)| context)))
            .i32("device", rows.iter().map(|(_, joined)| self.lane(joined).and_then(|lane| lane.device)))
            .i64("stream", rows.iter().map(|(call, joined)| stream(call, joined).map_or(0, |(stream, _)| stream)))
            .i32("pending_streams", rows.iter().map(|(_, joined)| joined.pending))
            .i32("result", rows.iter().map(|(call, _)| caller(call).result))
            .i64("stack_id", rows.iter().map(|(call, _)| self.stack_id(call.stack)))
            .i64(IMPORTED_ONLY, rows.iter().map(|(call, _)| call.external.map(NonZeroI64::get)))
    }

    fn launches(&self, columns: Columns, rows: Rows<'_>) -> Columns {
        // A graph's kernels are not the launch's own.
        let kernel = |row: &(&Call, &Joined)| self.kernel(row.1).filter(|_| self.kind(row.0) == Kind::Launch);
        let told = |row: &(&Call, &Joined)| self.found.callers.get(row.0.caller).kernel_id;
        let kernels = |row: &(&Call, &Joined)| match self.kind(row.0) {
            Kind::Launch if row.1.captured || self.found.callers.get(row.0.caller).result != 0 => Some(0),
            Kind::Launch => Some(1),
            Kind::HostFunction => Some(0),
            _ => Some(row.1.kernels).filter(|kernels| *kernels > 0),
        };
        let mut columns = columns
            .i64("name_id", rows.iter().map(|row| kernel(row).and_then(|kernel| kernel.name_id).or(told(row))))
            .i32("shared_bytes", rows.iter().map(|row| kernel(row).and_then(|kernel| kernel.shared_bytes).unwrap_or(0)))
            .i32("kernels", rows.iter().map(kernels))
            .bool("captured", rows.iter().map(|row| row.1.captured))
            .i64("graph_exec_id", rows.iter().map(|row| Some(i64::from(row.1.graph)).filter(|graph| *graph > 0)))
            .i64("stack_launches", rows.iter().map(|row| row.0.stack.map(|_| 1)));
        for (axis, [grid, block]) in
            [["grid_x", "block_x"], ["grid_y", "block_y"], ["grid_z", "block_z"]].iter().enumerate()
        {
            columns = columns
                .i32(grid, rows.iter().map(|row| kernel(row).map_or(0, |kernel| kernel.grid[axis])))
                .i32(block, rows.iter().map(|row| kernel(row).map_or(0, |kernel| kernel.block[axis])));
        }
        columns
    }

    fn transfers(&self, columns: Columns, rows: Rows<'_>) -> Columns {
        let copy = |row: &(&Call, &Joined)| self.copy(row.1);
        let set = |row: &(&Call, &Joined)| matches!(self.kind(row.0), Kind::Set { .. });
        let queued = |row: &(&Call, &Joined)| {
            matches!(self.kind(row.0), Kind::Copy { queued: true } | Kind::Set { queued: true })
        };
        let end = |row: &(&Call, &Joined), kind: Option<&'static str>| (!set(row)).then_some(kind.unwrap_or("unknown"));
        columns
            .text("kind", rows.iter().map(|row| if set(row) { "set" } else { "copy" }))
            .text("direction", rows.iter().map(|row| copy(row).map_or("unknown", |copy| copy.direction)))
            .text("src_kind", rows.iter().map(|row| end(row, copy(row).and_then(|copy| copy.src_kind))))
            .text("dst_kind", rows.iter().map(|row| copy(row).and_then(|copy| copy.dst_kind).unwrap_or("unknown")))
            .i64("bytes", rows.iter().map(|row| copy(row).map(|copy| copy.bytes)))
            .bool("async", rows.iter().map(queued))
    }

    fn ranges(&self, rows: &[Range], first: usize) -> io::Result<RecordBatch> {
        let numbers = first..first + rows.len();
        let named = || rows.iter().map(|range| self.found.named.get(range.named));
        Columns::new(TableId::Ranges, rows.len())
            .i64("start_ns", rows.iter().map(|range| range.start_ns))
            .i64("end_ns", rows.iter().zip(named()).map(|(range, named)| (!named.open).then_some(range.end_ns)))
            .i64("process_id", named().map(|named| self.process_id(named.process)))
            .i32("pid", named().map(|named| self.pid(named.process)))
            .i32("tid", named().map(|named| named.tid))
            .i64("correlation_id", numbers.map(|n| (1 << 41) + n as i64))
            .text("kind", named().map(|named| named.kind))
            .i64("name_id", named().map(|named| named.name_id))
            .i64("domain_id", named().map(|named| named.domain_id))
            .i32("level", rows.iter().map(|range| Some(range.level).filter(|level| *level >= 0)))
            .i64(IMPORTED_ONLY, rows.iter().map(|range| range.external.map(NonZeroI64::get)))
            .batch()
    }

    fn manifest(&self, place: &Place<'_>) -> Manifest {
        let found = self.found;
        let mut processes: Vec<manifest::Process> = Vec::new();
        let mut counts: FxHashMap<(usize, &str), u64> = FxHashMap::default();
        let calls = found.calls.iter().map(|call| found.callers.get(call.caller));
        let calls = calls.map(|caller| (caller.process, caller.kind.class(), 1));
        // A range is two events, its beginning and its end.
        let ranges = found.ranges.iter().map(|range| found.named.get(range.named));
        let ranges = ranges.map(|named| (named.process, "range", 1 + u64::from(named.kind != "mark")));
        let collectives = found.collectives.iter().map(|collective| (collective.process, "collective", 1));
        for (process, class, more) in calls.chain(ranges).chain(collectives) {
            *counts.entry((process, class)).or_default() += more;
        }
        let mut events: FxHashMap<usize, BTreeMap<String, Count>> = FxHashMap::default();
        for ((process, class), n) in counts {
            let count = Count { seen: n, recorded: n, ..Count::default() };
            events.entry(process).or_default().insert(class.to_owned(), count);
        }
        for (at, process) in found.with_rows() {
            processes.push(manifest::Process {
                process_id: self.process_id(at),
                pid: process.pid as i32,
                rank: found.rank,
                exe: process.name.clone(),
                traced: true,
                balanced: true,
                accounting: events.remove(&at).unwrap_or_default(),
                devices: self.devices().into_iter().map(|device| device.uuid).collect(),
                ..manifest::Process::default()
            });
        }
        let (started_ns, ended_ns) = found.span_ns().unwrap_or_default();
        let mut manifest = Manifest {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: vec!["gputrace".to_owned(), "import".to_owned(), place.source.to_owned()],
            host: place.host.to_owned(),
            launcher_id: place.launcher_id,
            started_ns,
            ended_ns: Some(ended_ns),
            complete: true,
            clock: manifest::Clock {
                kind: manifest::IMPORTED.to_owned(),
                pauses: found.pauses.clone(),
                back_ns: found.back_ns,
                ..manifest::Clock::default()
            },
            processes,
            devices: self.devices(),
            notes: found.all_notes(place.source),
            ..Manifest::default()
        };
        // As of recorded processes that have ended: readers hold each account that is named in memory.
        manifest.sum_up(MOST_NAMED, None);
        manifest
    }

    /// The devices with an identity: where the format gives none, that of this import.
    fn devices(&self) -> Vec<manifest::Device> {
        let with_id = |(ordinal, device): (&i32, &manifest::Device)| {
            let own = || format!("imported-{}-{ordinal}", manifest::launcher_text(self.launcher_id));
            let uuid = if device.uuid.is_empty() { own() } else { device.uuid.clone() };
            manifest::Device { uuid, ..device.clone() }
        };
        self.found.devices.iter().map(with_id).collect()
    }
}
