//! Writes what was found into the files of a launcher of its own.

use std::io;
use std::path::Path;

use arrow::array::RecordBatch;
use gputrace_collectors::Manifest;
use gputrace_collectors::archive::{Archive, Columns};
use gputrace_collectors::manifest::{self, Count};
use gputrace_collectors::schema::{SCHEMA_VERSION, TableId};
use rustc_hash::FxHashMap;

use super::callers;
use super::calls::Kind;
use super::gathered::{Call, Gathered, Work};
use super::join::{Joined, join};

/// Rows of a batch.
const ROWS: usize = 65_536;

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
    let mut archive = Archive::create(place.trace, place.host, place.launcher_id)?;
    for (kind, name) in found.names.values() {
        archive.name(*kind, name)?;
    }
    let stack_ids = found.stacks.rows().map(|frames| archive.stack(&frames)).collect::<io::Result<Vec<i64>>>()?;
    let ids = Ids { launcher_id: place.launcher_id, found: &found, stack_ids };
    let calls: Vec<(&Call, &Joined)> = found.calls.iter().zip(&joined).collect();
    let of = |wanted: &[&str]| -> Vec<(&Call, &Joined)> {
        calls.iter().filter(|(call, _)| wanted.contains(&call.kind.class())).copied().collect()
    };
    let mut put = |table: TableId, rows: &[(&Call, &Joined)], more: &dyn Fn(Columns, Rows<'_>) -> Columns| {
        for rows in rows.chunks(ROWS) {
            archive.append(table, &more(ids.call_columns(table, rows), rows).batch()?)?;
        }
        io::Result::Ok(())
    };
    put(TableId::Launches, &of(&["launch"]), &|columns, rows| ids.launches(columns, rows))?;
    put(TableId::Syncs, &of(&["sync"]), &|columns, rows| {
        let kind = |call: &Call| if let Kind::Sync(kind) = call.kind { kind } else { "unknown" };
        // A query without a stream is one of an event whose handle the format does not say.
        let of_event =
            |call: &Call| ["query", "event"].contains(&kind(call)) && found.name_of(call.api_id).contains("Event");
        columns
            .text("kind", rows.iter().map(|(call, _)| kind(call)))
            .i64("handle", rows.iter().map(|(call, _)| if of_event(call) { -1 } else { 0 }))
    })?;
    put(TableId::Transfers, &of(&["transfer"]), &|columns, rows| ids.transfers(columns, rows))?;
    put(TableId::DeviceMemory, &of(&["alloc", "free"]), &|columns, rows| {
        let memory = |call: &Call| match call.kind {
            Kind::Alloc(kind) | Kind::Free(kind) => kind,
            _ => "unknown",
        };
        columns
            .text("action", rows.iter().map(|(call, _)| call.kind.class()))
            .text("kind", rows.iter().map(|(call, _)| memory(call)))
    })?;
    put(TableId::Api, &of(&["api", "module"]), &|columns, rows| {
        columns.text("class", rows.iter().map(|(call, _)| call.kind.class()))
    })?;
    for rows in found.kernels.chunks(ROWS) {
        archive.append(TableId::Kernels, &ids.kernels(rows)?)?;
    }
    for rows in found.copies.chunks(ROWS) {
        archive.append(TableId::DeviceCopies, &ids.copies(rows)?)?;
    }
    for (part, rows) in found.collectives.chunks(ROWS).enumerate() {
        archive.append(TableId::Collectives, &ids.collectives(rows, part * ROWS)?)?;
    }
    archive.append(TableId::Communicators, &ids.communicators()?)?;
    for rows in found.torch.chunks(ROWS) {
        archive.append(TableId::TorchMemory, &ids.torch(rows)?)?;
    }
    let levels = levels(&found);
    for (part, rows) in found.ranges.chunks(ROWS).enumerate() {
        archive.append(TableId::Ranges, &ids.ranges(rows, &levels, part * ROWS)?)?;
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
    stack_ids: Vec<i64>,
}

impl Ids<'_> {
    pub(super) fn process_id(&self, process: usize) -> i64 {
        ((self.launcher_id & ((1 << 39) - 1)) as i64) << 24 | process as i64 & 0xff_ffff
    }

    pub(super) fn stack_id(&self, stack: Option<u32>) -> Option<i64> {
        self.stack_ids.get(stack? as usize).copied()
    }

    pub(super) fn pid(&self, process: usize) -> i32 {
        self.found.processes.get(process).map_or(0, |process| process.pid as i32)
    }

    /// What the GPU did because of a call.
    fn work(&self, joined: &Joined) -> Option<&Work> {
        let kernel = joined.kernel.map(|at| &self.found.kernels[at].work);
        kernel.or(joined.copy.map(|at| &self.found.copies[at].work))
    }

    /// The columns that all tables of calls have.
    fn call_columns(&self, table: TableId, rows: Rows<'_>) -> Columns {
        // A wait's stream is known by its correlation, any other call's by the work that it caused.
        let stream = |joined: &Joined| self.found.sync_streams.get(&joined.correlation).copied();
        let stream = |joined: &Joined| stream(joined).or(self.work(joined).map(|work| (work.stream, work.context)));
        Columns::new(table, rows.len())
            .i64("start_ns", rows.iter().map(|(call, _)| call.start_ns))
            .i64("api_ns", rows.iter().map(|(call, _)| call.api_ns))
            .i64("process_id", rows.iter().map(|(call, _)| self.process_id(call.process)))
            .i32("pid", rows.iter().map(|(call, _)| self.pid(call.process)))
            .i32("tid", rows.iter().map(|(call, _)| call.tid))
            .i64("correlation_id", rows.iter().map(|(_, joined)| joined.correlation))
            .i64("api_id", rows.iter().map(|(call, _)| call.api_id))
            .i32("context", rows.iter().map(|(_, joined)| stream(joined).map_or(0, |(_, context)| context)))
            .i32("device", rows.iter().map(|(_, joined)| self.work(joined).and_then(|work| work.device)))
            .i64("stream", rows.iter().map(|(_, joined)| stream(joined).map_or(0, |(stream, _)| stream)))
            .i32("pending_streams", rows.iter().map(|(_, joined)| joined.pending))
            .i32("result", rows.iter().map(|(call, _)| call.result))
            .i64("stack_id", rows.iter().map(|(call, _)| self.stack_id(call.stack)))
    }

    fn launches(&self, columns: Columns, rows: Rows<'_>) -> Columns {
        // A graph's kernels are not the launch's own.
        let kernel = |row: &(&Call, &Joined)| {
            row.1.kernel.filter(|_| row.0.kind == Kind::Launch).map(|at| &self.found.kernels[at])
        };
        let kernels = |row: &(&Call, &Joined)| match row.0.kind {
            Kind::Launch => Some(1),
            Kind::HostFunction => Some(0),
            _ => Some(row.1.kernels).filter(|kernels| *kernels > 0),
        };
        let mut columns = columns
            .i64("name_id", rows.iter().map(|row| kernel(row).and_then(|kernel| kernel.name_id).or(row.0.kernel_id)))
            .i32("shared_bytes", rows.iter().map(|row| kernel(row).and_then(|kernel| kernel.shared_bytes).unwrap_or(0)))
            .i32("kernels", rows.iter().map(kernels))
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
        let copy = |row: &(&Call, &Joined)| row.1.copy.map(|at| &self.found.copies[at]);
        let set = |row: &(&Call, &Joined)| matches!(row.0.kind, Kind::Set { .. });
        let queued =
            |row: &(&Call, &Joined)| matches!(row.0.kind, Kind::Copy { queued: true } | Kind::Set { queued: true });
        let end = |row: &(&Call, &Joined), kind: Option<&'static str>| (!set(row)).then_some(kind.unwrap_or("unknown"));
        columns
            .text("kind", rows.iter().map(|row| if set(row) { "set" } else { "copy" }))
            .text("direction", rows.iter().map(|row| copy(row).map_or("unknown", |copy| copy.direction)))
            .text("src_kind", rows.iter().map(|row| end(row, copy(row).and_then(|copy| copy.src_kind))))
            .text("dst_kind", rows.iter().map(|row| copy(row).and_then(|copy| copy.dst_kind).unwrap_or("unknown")))
            .i64("bytes", rows.iter().map(|row| copy(row).map_or(0, |copy| copy.bytes)))
            .bool("async", rows.iter().map(queued))
    }

    fn ranges(&self, rows: &[super::gathered::Range], levels: &[i32], first: usize) -> io::Result<RecordBatch> {
        let numbers = first..first + rows.len();
        Columns::new(TableId::Ranges, rows.len())
            .i64("start_ns", rows.iter().map(|range| range.start_ns))
            .i64("end_ns", rows.iter().map(|range| range.end_ns))
            .i64("process_id", rows.iter().map(|range| self.process_id(range.process)))
            .i32("pid", rows.iter().map(|range| self.pid(range.process)))
            .i32("tid", rows.iter().map(|range| range.tid))
            .i64("correlation_id", numbers.clone().map(|n| (1 << 41) + n as i64))
            .text("kind", rows.iter().map(|range| range.kind))
            .i64("name_id", rows.iter().map(|range| range.name_id))
            .i64("domain_id", rows.iter().map(|range| range.domain_id))
            .i32("level", numbers.map(|n| levels.get(n).copied().filter(|level| *level >= 0)))
            .batch()
    }

    fn manifest(&self, place: &Place<'_>) -> Manifest {
        let found = self.found;
        let mut processes: Vec<manifest::Process> = Vec::new();
        let mut events: FxHashMap<usize, std::collections::BTreeMap<String, Count>> = FxHashMap::default();
        let calls = found.calls.iter().map(|call| (call.process, call.kind.class(), 1));
        // A range is two events, its beginning and its end.
        let ranges = found.ranges.iter().map(|range| (range.process, "range", 1 + u64::from(range.kind != "mark")));
        let collectives = found.collectives.iter().map(|collective| (collective.process, "collective", 1));
        for (process, class, more) in calls.chain(ranges).chain(collectives) {
            let count = events.entry(process).or_default().entry(class.to_owned()).or_default();
            (count.seen, count.recorded) = (count.seen + more, count.recorded + more);
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
        Manifest {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: vec!["gputrace".to_owned(), "import".to_owned(), place.source.to_owned()],
            host: place.host.to_owned(),
            launcher_id: place.launcher_id,
            started_ns,
            ended_ns: Some(ended_ns),
            complete: true,
            processes,
            devices: self.devices(),
            notes: found.all_notes(place.source),
            ..Manifest::default()
        }
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

/// How many push_pop ranges of its thread and domain are open around each range; -1 for others.
fn levels(found: &Gathered) -> Vec<i32> {
    let mut by_start: Vec<usize> = (0..found.ranges.len()).collect();
    by_start.sort_by_key(|at| (found.ranges[*at].start_ns, std::cmp::Reverse(found.ranges[*at].end_ns)));
    let mut open: FxHashMap<(usize, i32, Option<i64>), Vec<i64>> = FxHashMap::default();
    let mut levels = vec![-1; found.ranges.len()];
    for at in by_start {
        let range = &found.ranges[at];
        if range.kind == "push_pop" {
            let ends = open.entry((range.process, range.tid, range.domain_id)).or_default();
            ends.retain(|end| *end > range.start_ns);
            levels[at] = ends.len() as i32;
            ends.push(range.end_ns);
        }
    }
    levels
}
