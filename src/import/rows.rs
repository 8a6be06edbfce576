//! Rows of what the GPU did, and of processes and threads.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroI64;

use arrow::array::RecordBatch;
use gputrace_collectors::archive::Columns;
use gputrace_collectors::names::{NameKind, id};
use gputrace_collectors::schema::{IMPORTED_ONLY, TableId};

use super::events::{Collective, Copy, Kernel, Lane, TorchMemory, Work};
use super::gathered::{Gathered, Process};
use super::write::Ids;

/// A thread: its first event, and how many it has.
pub(super) type Threads = BTreeMap<(usize, i32), (i64, i64)>;

impl Gathered {
    /// The text behind an id.
    pub(super) fn name_of(&self, id: i64) -> &str {
        self.names.get(&id).map_or("", |(_, name)| name)
    }

    /// Every thread with rows.
    pub(super) fn threads(&self) -> Threads {
        let mut threads = Threads::new();
        let calls = self.calls.iter().map(|call| (self.callers.get(call.caller), call.start_ns));
        let calls = calls.map(|(caller, start_ns)| (caller.process, caller.tid, start_ns));
        let ranges = self.ranges.iter().map(|range| (self.named.get(range.named), range.start_ns));
        let ranges = ranges.map(|(named, start_ns)| (named.process, named.tid, start_ns));
        for (process, tid, start_ns) in calls.chain(ranges) {
            let (first, events) = threads.entry((process, tid)).or_insert((start_ns, 0));
            (*first, *events) = (start_ns.min(*first), *events + 1);
        }
        threads
    }

    /// Begin, end and events of each process with rows. Others have only a name, such as that of a GPU.
    fn spans(&self) -> BTreeMap<usize, (i64, i64, i64)> {
        let mut spans: BTreeMap<usize, (i64, i64, i64)> = BTreeMap::new();
        let calls = self.calls.iter().map(|call| (self.callers.get(call.caller).process, call));
        let calls = calls.map(|(process, call)| (Some(process), call.start_ns, call.start_ns + call.api_ns));
        let works = self.kernels.iter().chain(&self.copies);
        let works = works.map(|work| (work.process(), work.start_ns, work.start_ns + work.gpu_ns));
        let ranges = self.ranges.iter().map(|range| (self.named.get(range.named).process, range));
        let ranges = ranges.map(|(process, range)| (Some(process), range.start_ns, range.end_ns));
        let torch = self.torch.iter().map(|row| (Some(row.process), row.start_ns, row.start_ns));
        for (process, start, end) in calls.chain(works).chain(ranges).chain(torch) {
            let span = spans.entry(process.unwrap_or(0)).or_insert((start, end, 0));
            *span = (start.min(span.0), end.max(span.1), span.2 + 1);
        }
        spans
    }

    /// Processes with rows, by their place.
    pub(super) fn with_rows(&self) -> Vec<(usize, &Process)> {
        self.spans().keys().filter_map(|at| Some((*at, self.processes.get(*at)?))).collect()
    }

    /// What the manifest says of the file.
    pub(super) fn all_notes(&self, source: &str) -> Vec<String> {
        let mut notes = vec![format!("imported from {source} ({})", self.format)];
        notes.extend(self.notes.iter().cloned());
        if self.negative > 0 {
            notes.push(format!("{} events end before they begin: they are taken to have taken no time", self.negative));
        }
        notes.extend(self.left_out_text());
        if self.shapes > 0 {
            notes.push(format!(
                "{} operators say which inputs they had (Input Dims and the like): these are left out",
                self.shapes
            ));
        }
        if self.broken > 0 {
            notes.push(format!("{} events could not be read and are left out", self.broken));
        }
        notes
    }

    /// Which events have no place, in one line; none when all have.
    pub(super) fn left_out_text(&self) -> Option<String> {
        let mut counts: Vec<(&String, &u64)> = self.left_out.iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let all: u64 = self.left_out.values().sum();
        let named: Vec<String> = counts.iter().take(12).map(|(what, count)| format!("{what} {count}")).collect();
        (all > 0).then(|| format!("{all} events have no place in the tables: {}", named.join(", ")))
    }
}

impl Ids<'_> {
    fn work_columns(&self, table: TableId, rows: &[Work], lane: impl Fn(&Work) -> Lane) -> Columns {
        let process = |work: &Work| work.process().unwrap_or(0);
        Columns::new(table, rows.len())
            .i64("start_ns", rows.iter().map(|work| work.start_ns))
            .i64("gpu_ns", rows.iter().map(|work| work.gpu_ns))
            .i64("process_id", rows.iter().map(|work| self.process_id(process(work))))
            .i32("pid", rows.iter().map(|work| self.pid(process(work))))
            .i32("device", rows.iter().map(|work| lane(work).device))
            .i32("context", rows.iter().map(|work| lane(work).context))
            .i64("stream", rows.iter().map(|work| lane(work).stream))
            .i64("correlation_id", rows.iter().map(|work| work.correlation.map(NonZeroI64::get)))
            .i64("graph_node", rows.iter().map(|work| lane(work).graph_node))
            .i64(IMPORTED_ONLY, rows.iter().map(|work| work.external.map(NonZeroI64::get)))
    }

    pub(super) fn kernels(&self, rows: &[Work]) -> io::Result<RecordBatch> {
        let kernel = |work: &Work| self.found.kernel_kinds.get(work.what);
        let kernels = || rows.iter().map(kernel);
        let mut columns = self
            .work_columns(TableId::Kernels, rows, |work| kernel(work).lane)
            .i64("name_id", kernels().map(|kernel: &Kernel| kernel.name_id))
            .i32("registers", kernels().map(|kernel| kernel.registers))
            .i32("static_shared_bytes", kernels().map(|kernel| kernel.static_shared_bytes))
            .i32("shared_bytes", kernels().map(|kernel| kernel.shared_bytes));
        for (axis, [grid, block]) in
            [["grid_x", "block_x"], ["grid_y", "block_y"], ["grid_z", "block_z"]].iter().enumerate()
        {
            columns = columns
                .i32(grid, kernels().map(|kernel| kernel.grid[axis]))
                .i32(block, kernels().map(|kernel| kernel.block[axis]));
        }
        columns.batch()
    }

    pub(super) fn copies(&self, rows: &[Work]) -> io::Result<RecordBatch> {
        let copy = |work: &Work| self.found.copy_kinds.get(work.what);
        let copies = || rows.iter().map(copy);
        self.work_columns(TableId::DeviceCopies, rows, |work| copy(work).lane)
            .text("kind", copies().map(|copy: &Copy| if copy.set { "set" } else { "copy" }))
            .text("direction", copies().map(|copy| copy.direction))
            .text("src_kind", copies().map(|copy| copy.src_kind))
            .text("dst_kind", copies().map(|copy| copy.dst_kind))
            .i64("bytes", copies().map(|copy| copy.bytes))
            .batch()
    }

    pub(super) fn collectives(&self, rows: &[Collective], first: usize) -> io::Result<RecordBatch> {
        Columns::new(TableId::Collectives, rows.len())
            .i64("start_ns", rows.iter().map(|row| row.start_ns))
            .i64("api_ns", rows.iter().map(|row| row.api_ns))
            .i64("process_id", rows.iter().map(|row| self.process_id(row.process)))
            .i32("pid", rows.iter().map(|row| self.pid(row.process)))
            .i32("tid", rows.iter().map(|row| row.tid))
            .i64("correlation_id", (first..first + rows.len()).map(|n| (1 << 42) + n as i64))
            .i64("api_id", rows.iter().map(|row| row.api_id))
            .text("kind", rows.iter().map(|row| row.kind))
            .i32("communicator", rows.iter().map(|row| row.group))
            .i64("count", rows.iter().map(|row| row.count))
            .text("data_type", rows.iter().map(|row| row.data_type))
            .i64("bytes", rows.iter().map(|row| row.bytes))
            .i64("stack_id", rows.iter().map(|row| self.stack_id(row.stack)))
            .i64(IMPORTED_ONLY, rows.iter().map(|row| row.external.map(NonZeroI64::get)))
            .batch()
    }

    pub(super) fn communicators(&self) -> io::Result<RecordBatch> {
        let groups = &self.found.groups;
        // Its place among the group's ranks is its rank in it.
        let rank = |members: &str| {
            let members = members.trim_matches(['[', ']']).split(',');
            let own = self.found.rank?;
            members
                .map(|rank| rank.trim().parse().ok())
                .position(|rank: Option<i32>| rank == Some(own))
                .map(|at| at as i32)
        };
        let unique = |name: &str, members: &str| id(NameKind::Symbol, &format!("{name} {members}"));
        Columns::new(TableId::Communicators, groups.len())
            .i64("start_ns", groups.iter().map(|group| group.start_ns))
            .i64("process_id", groups.iter().map(|group| self.process_id(group.process)))
            .i32("pid", groups.iter().map(|group| self.pid(group.process)))
            .i32("tid", groups.iter().map(|group| group.tid))
            .i32("communicator", 1..=groups.len() as i32)
            .i64(
                "unique_id",
                groups.iter().map(|group| group.unique_id.unwrap_or_else(|| unique(&group.name, &group.members))),
            )
            .i32("rank", groups.iter().map(|group| group.rank.or(rank(&group.members))))
            .i32("ranks", groups.iter().map(|group| group.ranks))
            .i64("api_id", groups.iter().map(|group| group.api_id))
            .batch()
    }

    pub(super) fn torch(&self, rows: &[TorchMemory]) -> io::Result<RecordBatch> {
        Columns::new(TableId::TorchMemory, rows.len())
            .i64("start_ns", rows.iter().map(|row| row.start_ns))
            .i64("process_id", rows.iter().map(|row| self.process_id(row.process)))
            .i32("device", rows.iter().map(|row| row.device))
            .i64("stream", rows.iter().map(|row| row.stream))
            .text("action", rows.iter().map(|row| row.action))
            .i64("address", rows.iter().map(|row| row.address))
            .i64("segment", rows.iter().map(|row| row.segment))
            .i64("bytes", rows.iter().map(|row| row.bytes))
            .i64("requested_bytes", rows.iter().map(|row| row.requested_bytes))
            .i64("free_bytes", rows.iter().map(|row| row.free_bytes))
            .i64("stack_id", rows.iter().map(|row| self.stack_id(row.stack)))
            .batch()
    }

    pub(super) fn threads(&self, threads: &Threads) -> io::Result<RecordBatch> {
        let name = |process: usize, tid: i32| self.found.processes.get(process)?.threads.get(&tid).map(String::as_str);
        let pid = |process: usize| self.found.processes.get(process).map_or(0, |process| process.pid as i32);
        Columns::new(TableId::Threads, threads.len())
            .i64("process_id", threads.keys().map(|(process, _)| self.process_id(*process)))
            .i32("pid", threads.keys().map(|(process, _)| pid(*process)))
            .i32("tid", threads.keys().map(|(_, tid)| *tid))
            .text("name", threads.keys().map(|(process, tid)| name(*process, *tid)))
            .i64("start_ns", threads.values().map(|(first, _)| *first))
            .i64("events", threads.values().map(|(_, events)| *events))
            .batch()
    }

    pub(super) fn processes(&self, host: &str) -> io::Result<RecordBatch> {
        let spans = self.found.spans();
        let nobody = Process::default();
        let process = |at: &usize| self.found.processes.get(*at).unwrap_or(&nobody);
        let rows = spans.len();
        Columns::new(TableId::Processes, rows)
            .i64("process_id", spans.keys().map(|at| self.process_id(*at)))
            .i32("pid", spans.keys().map(|at| process(at).pid as i32))
            .text("host", (0..rows).map(|_| host))
            .i32("rank", (0..rows).map(|_| self.found.rank))
            .i32("world_size", (0..rows).map(|_| self.found.world_size))
            .text("exe", spans.keys().map(|at| process(at).name.as_str()))
            .text("command", spans.keys().map(|at| process(at).name.as_str()))
            .text("origin", (0..rows).map(|_| "exec"))
            .i64("start_ns", spans.values().map(|(start, ..)| *start))
            .i64("end_ns", spans.values().map(|(_, end, _)| *end))
            .bool("traced", (0..rows).map(|_| true))
            .i64("events", spans.values().map(|(.., events)| *events))
            .text("malloc_mode", (0..rows).map(|_| "off"))
            .batch()
    }
}
