//! Tables of few rows: processes and threads.

use arrow::array::{ArrayRef, RecordBatch};

use super::columns::{Flags, Optional, Plain, Rows, Texts, take};
use crate::schema::TableId;
use crate::writer::Message;

/// A row of `processes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessRow {
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) parent_pid: i32,
    pub(crate) host: String,
    pub(crate) rank: Option<i32>,
    pub(crate) local_rank: Option<i32>,
    pub(crate) world_size: Option<i32>,
    pub(crate) visible_devices: Option<String>,
    pub(crate) exe: String,
    pub(crate) command: String,
    pub(crate) origin: &'static str,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: Option<i64>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) exit_signal: Option<i32>,
    pub(crate) driver_version: Option<i32>,
    pub(crate) runtime_version: Option<i32>,
    pub(crate) routes: Option<String>,
    pub(crate) uncovered: Option<String>,
    pub(crate) past_symbols: Option<String>,
    pub(crate) traced: bool,
    pub(crate) reason: Option<String>,
    pub(crate) events: i64,
    pub(crate) malloc_mode: String,
    pub(crate) event_cost_ns: Option<f64>,
}

#[derive(Default)]
struct ProcessColumns {
    process_id: Plain<i64>,
    pid: Plain<i32>,
    parent_pid: Plain<i32>,
    host: Texts,
    rank: Optional<i32>,
    local_rank: Optional<i32>,
    world_size: Optional<i32>,
    visible_devices: Texts,
    exe: Texts,
    command: Texts,
    origin: Texts,
    start_ns: Plain<i64>,
    end_ns: Optional<i64>,
    exit_code: Optional<i32>,
    exit_signal: Optional<i32>,
    driver_version: Optional<i32>,
    runtime_version: Optional<i32>,
    routes: Texts,
    uncovered: Texts,
    past_symbols: Texts,
    traced: Flags,
    reason: Texts,
    events: Plain<i64>,
    malloc_mode: Texts,
    event_cost_ns: Optional<f64>,
}

/// A row of `threads`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadRow {
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) name: Option<String>,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: Option<i64>,
    pub(crate) events: i64,
}

#[derive(Default)]
struct ThreadColumns {
    process_id: Plain<i64>,
    pid: Plain<i32>,
    tid: Plain<i32>,
    name: Texts,
    start_ns: Plain<i64>,
    end_ns: Optional<i64>,
    events: Plain<i64>,
}

fn plain_batch(table: TableId, columns: Vec<ArrayRef>) -> Option<RecordBatch> {
    match Rows::default().batch(table, columns)? {
        Message::Rows(_, batch, _) => Some(batch),
        _ => None,
    }
}

/// A batch of `processes`.
pub(crate) fn processes<'a>(rows: impl IntoIterator<Item = &'a ProcessRow>) -> Option<RecordBatch> {
    let mut c = ProcessColumns::default();
    for row in rows {
        c.process_id.push(row.process_id);
        c.pid.push(row.pid);
        c.parent_pid.push(row.parent_pid);
        c.host.push(Some(&row.host));
        c.rank.push(row.rank);
        c.local_rank.push(row.local_rank);
        c.world_size.push(row.world_size);
        c.visible_devices.push(row.visible_devices.as_deref());
        c.exe.push(Some(&row.exe));
        c.command.push(Some(&row.command));
        c.origin.push(Some(row.origin));
        c.start_ns.push(row.start_ns);
        c.end_ns.push(row.end_ns);
        c.exit_code.push(row.exit_code);
        c.exit_signal.push(row.exit_signal);
        c.driver_version.push(row.driver_version);
        c.runtime_version.push(row.runtime_version);
        c.routes.push(row.routes.as_deref());
        c.uncovered.push(row.uncovered.as_deref());
        c.past_symbols.push(row.past_symbols.as_deref());
        c.traced.push(row.traced);
        c.reason.push(row.reason.as_deref());
        c.events.push(row.events);
        c.malloc_mode.push(Some(&row.malloc_mode));
        c.event_cost_ns.push(row.event_cost_ns);
    }
    let columns = take![
        c.process_id,
        c.pid,
        c.parent_pid,
        c.host,
        c.rank,
        c.local_rank,
        c.world_size,
        c.visible_devices,
        c.exe,
        c.command,
        c.origin,
        c.start_ns,
        c.end_ns,
        c.exit_code,
        c.exit_signal,
        c.driver_version,
        c.runtime_version,
        c.routes,
        c.uncovered,
        c.past_symbols,
        c.traced,
        c.reason,
        c.events,
        c.malloc_mode,
        c.event_cost_ns
    ];
    plain_batch(TableId::Processes, columns)
}

/// A batch of `threads`.
pub(crate) fn threads<'a>(rows: impl IntoIterator<Item = &'a ThreadRow>) -> Option<RecordBatch> {
    let mut c = ThreadColumns::default();
    for row in rows {
        c.process_id.push(row.process_id);
        c.pid.push(row.pid);
        c.tid.push(row.tid);
        c.name.push(row.name.as_deref());
        c.start_ns.push(row.start_ns);
        c.end_ns.push(row.end_ns);
        c.events.push(row.events);
    }
    plain_batch(TableId::Threads, take![c.process_id, c.pid, c.tid, c.name, c.start_ns, c.end_ns, c.events])
}
