//! What a profiler tells beside calls, ranges and the GPU's work, for the table `profiler_events`: nothing here reads it again but an export.

use std::io;
use std::num::NonZeroI64;

use arrow::array::RecordBatch;
use gputrace_collectors::archive::Columns;
use gputrace_collectors::schema::{IMPORTED_ONLY, TableId};

use super::events::{Beside, Function};
use super::gathered::Gathered;
use super::write::Ids;

impl Gathered {
    /// Whose is what the format tells of a GPU alone: the process that called it.
    fn caller(&self) -> usize {
        let calls = self.calls.first().map(|call| self.callers.get(call.caller).process);
        calls.or(self.ranges.first().map(|range| self.named.get(range.named).process)).unwrap_or(0)
    }
}

impl Ids<'_> {
    pub(super) fn functions(&self, rows: &[Function]) -> io::Result<RecordBatch> {
        let number = |nth: usize| rows.iter().map(move |row| row.numbers[nth]);
        Columns::new(TableId::ProfilerEvents, rows.len())
            .i64("start_ns", rows.iter().map(|row| row.start_ns))
            .i64("event_ns", rows.iter().map(|row| row.end_ns - row.start_ns))
            .i64("process_id", rows.iter().map(|row| self.process_id(row.process)))
            .i32("pid", rows.iter().map(|row| self.pid(row.process)))
            .i32("tid", rows.iter().map(|row| row.tid))
            .text("kind", rows.iter().map(|_| "function"))
            .i64("name_id", rows.iter().map(|row| row.name_id))
            .i64("stream", rows.iter().map(|_| -1))
            .i32("function", number(0))
            .i32("caller", number(1))
            .i32("module", number(2))
            .batch()
    }

    pub(super) fn beside(&self, rows: &[Beside]) -> io::Result<RecordBatch> {
        let caller = self.found.caller();
        let waits_for = |nth: usize| rows.iter().map(move |row| row.waits_for[nth]);
        Columns::new(TableId::ProfilerEvents, rows.len())
            .i64("start_ns", rows.iter().map(|row| row.start_ns))
            .i64("event_ns", rows.iter().map(|row| row.event_ns))
            .i64("process_id", rows.iter().map(|_| self.process_id(caller)))
            .i32("pid", rows.iter().map(|_| self.pid(caller)))
            .text("kind", rows.iter().map(|row| row.kind))
            .i64("name_id", rows.iter().map(|row| row.name_id))
            .i32("device", rows.iter().map(|row| row.lane.device))
            .i32("context", rows.iter().map(|row| row.lane.context))
            .i64("stream", rows.iter().map(|row| row.lane.stream))
            .i64("correlation_id", rows.iter().map(|row| row.correlation))
            .i64("waits_for_stream", waits_for(0))
            .i64("event", waits_for(1))
            .i64("event_call", waits_for(2))
            .i64(IMPORTED_ONLY, rows.iter().map(|row| row.external.map(NonZeroI64::get)))
            .batch()
    }
}
