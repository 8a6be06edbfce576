//! Rows of every table, gathered into Arrow batches: the one place that knows the order of the columns.

mod columns;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use gputrace_abi::Class;

use crate::schema::TableId;
use crate::writer::{Message, Share, add};
use columns::{Coded, Column, Flags, Optional, Plain, Texts};

/// Rows of a batch: enough to make the cost of the hand-over small, and half a megabyte or so.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Texts of `syncs.kind`, by [`gputrace_abi::event::detail`].
const SYNC_KINDS: [&str; 6] = ["unknown", "context", "stream", "event", "query", "stream_wait"];
/// Texts of `transfers.kind`.
const TRANSFER_KINDS: [&str; 2] = ["copy", "set"];
/// Texts of `action`.
const ACTIONS: [&str; 2] = ["alloc", "free"];
/// Texts of `device_memory.kind`, by [`gputrace_abi::event::detail`].
const MEMORY_KINDS: [&str; 9] =
    ["unknown", "device", "async", "managed", "pinned", "registered", "virtual", "virtual", "array"];

/// Kind of one end of a copy: the place in [`End::NAMES`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Unknown = 0,
    Pageable = 1,
    Pinned = 2,
    Device = 3,
    Managed = 4,
    Array = 5,
}

impl End {
    const NAMES: [&'static str; 6] = ["unknown", "pageable", "pinned", "device", "managed", "array"];

    /// Host, device, array or not known.
    fn side(self) -> usize {
        match self {
            End::Pageable | End::Pinned => 0,
            End::Device | End::Managed => 1,
            End::Array => 2,
            End::Unknown => 3,
        }
    }
}

/// Texts of `transfers.direction`: three by three from source to destination, then the rest.
const DIRECTIONS: [&str; 14] =
    ["HtoH", "HtoD", "HtoA", "DtoH", "DtoD", "DtoA", "AtoH", "AtoD", "AtoA", "PtoP", "unknown", "H", "D", "A"];
const PEER: u8 = 9;
const UNKNOWN: u8 = 10;
const SETS: u8 = 11;

/// What every driver call has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) class: Class,
    pub(crate) start_ns: i64,
    pub(crate) api_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) correlation_id: i64,
    pub(crate) api_id: i64,
    pub(crate) context: i32,
    pub(crate) device: Option<i32>,
    pub(crate) stream: i64,
    pub(crate) captured: bool,
    pub(crate) result: i32,
}

/// Columns at the start of the tables of driver calls.
#[derive(Default)]
struct Front {
    start_ns: Plain<i64>,
    api_ns: Plain<i64>,
    process_id: Plain<i64>,
    pid: Plain<i32>,
    tid: Plain<i32>,
    correlation_id: Plain<i64>,
    api_id: Plain<i64>,
}

/// Columns about where a call went and how it ended.
#[derive(Default)]
struct Back {
    context: Plain<i32>,
    device: Optional<i32>,
    stream: Plain<i64>,
    captured: Flags,
    result: Plain<i32>,
}

/// Rows, whose they are, and the schema that their batches have.
#[derive(Default)]
struct Rows {
    count: usize,
    shares: Vec<Share>,
    schema: Option<SchemaRef>,
}

impl Rows {
    #[inline]
    fn add(&mut self, process_id: i64, class: Class) {
        self.count += 1;
        let class = class as u8;
        match self.shares.last_mut() {
            Some(last) if last.process_id == process_id && last.class == class => last.rows += 1,
            _ => add(&mut self.shares, Share { process_id, class, rows: 1 }),
        }
    }

    fn batch(&mut self, table: TableId, columns: Vec<ArrayRef>) -> Option<Message> {
        let schema = self.schema.get_or_insert_with(|| {
            let fields = table.table().columns.iter().zip(&columns);
            Arc::new(Schema::new(
                fields.map(|(c, a)| Field::new(c.name, a.data_type().clone(), c.nullable)).collect::<Vec<_>>(),
            ))
        });
        self.count = 0;
        let batch = RecordBatch::try_new(schema.clone(), columns);
        debug_assert!(batch.is_ok(), "{}: {batch:?}", table.table().name);
        Some(Message::Rows(table, batch.ok()?, std::mem::take(&mut self.shares)))
    }
}

macro_rules! take {
    ($($column:expr),* $(,)?) => { vec![$(Column::take(&mut $column)),*] };
}

/// A table of driver calls: common columns, and those of its own between them.
struct Calls<T> {
    rows: Rows,
    front: Front,
    own: T,
    back: Back,
}

impl<T> Calls<T> {
    fn new(own: T) -> Calls<T> {
        Calls { rows: Rows::default(), front: Front::default(), own, back: Back::default() }
    }

    #[inline]
    fn push(&mut self, call: &Call) -> &mut T {
        self.rows.add(call.process_id, call.class);
        let (front, back) = (&mut self.front, &mut self.back);
        front.start_ns.push(call.start_ns);
        front.api_ns.push(call.api_ns);
        front.process_id.push(call.process_id);
        front.pid.push(call.pid);
        front.tid.push(call.tid);
        front.correlation_id.push(call.correlation_id);
        front.api_id.push(call.api_id);
        back.context.push(call.context);
        back.device.push(call.device);
        back.stream.push(call.stream);
        back.captured.push(call.captured);
        back.result.push(call.result);
        &mut self.own
    }

    /// The common columns, and the own ones: those before the context, after the stream, after that.
    fn take(&mut self, table: TableId, own: impl Fn(&mut T) -> [Vec<ArrayRef>; 2]) -> Option<Message> {
        if self.rows.count == 0 {
            return None;
        }
        let (front, back) = (&mut self.front, &mut self.back);
        let [before, after] = own(&mut self.own);
        let mut columns = take![
            front.start_ns,
            front.api_ns,
            front.process_id,
            front.pid,
            front.tid,
            front.correlation_id,
            front.api_id
        ];
        columns.extend(before);
        columns.extend(take![back.context, back.device, back.stream]);
        columns.extend(after);
        columns.extend(take![back.captured, back.result]);
        self.rows.batch(table, columns)
    }
}

/// A launch's own values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) name_id: Option<i64>,
    pub(crate) function: i64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

#[derive(Default)]
struct LaunchColumns {
    name_id: Optional<i64>,
    function: Plain<i64>,
    grid: [Plain<i32>; 3],
    block: [Plain<i32>; 3],
    shared_bytes: Plain<i32>,
}

struct SyncColumns {
    kind: Coded,
    handle: Plain<i64>,
}

/// A transfer's own values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) set: bool,
    pub(crate) peer: bool,
    pub(crate) src_kind: End,
    pub(crate) dst_kind: End,
    pub(crate) bytes: i64,
    pub(crate) dst: i64,
    pub(crate) src: i64,
    pub(crate) is_async: bool,
}

impl Transfer {
    fn direction(&self) -> u8 {
        let (from, to) = (self.src_kind.side(), self.dst_kind.side());
        match (self.set, to) {
            (true, 3) => UNKNOWN,
            (true, to) => SETS + to as u8,
            _ if self.peer => PEER,
            _ if from == 3 || to == 3 => UNKNOWN,
            _ => (from * 3 + to) as u8,
        }
    }
}

struct TransferColumns {
    kind: Coded,
    direction: Coded,
    src_kind: Coded,
    dst_kind: Coded,
    bytes: Plain<i64>,
    dst: Plain<i64>,
    src: Plain<i64>,
    is_async: Flags,
}

struct MemoryColumns {
    action: Coded,
    kind: Coded,
    address: Plain<i64>,
    bytes: Plain<i64>,
}

struct ApiColumns {
    class: Coded,
    handle: Plain<i64>,
}

/// A row of `host_memory`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub(crate) class: Class,
    pub(crate) start_ns: i64,
    pub(crate) api_ns: Option<i64>,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) api_id: i64,
    pub(crate) address: i64,
    pub(crate) bytes: i64,
    pub(crate) weight_bytes: f64,
}

struct HostColumns {
    rows: Rows,
    start_ns: Plain<i64>,
    api_ns: Optional<i64>,
    process_id: Plain<i64>,
    pid: Plain<i32>,
    tid: Plain<i32>,
    api_id: Plain<i64>,
    action: Coded,
    address: Plain<i64>,
    bytes: Plain<i64>,
    weight_bytes: Plain<f64>,
}

/// A row of `processes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessRow {
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) parent_pid: i32,
    pub(crate) host: String,
    pub(crate) rank: Option<i32>,
    pub(crate) local_rank: Option<i32>,
    pub(crate) exe: String,
    pub(crate) command: String,
    pub(crate) origin: &'static str,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: Option<i64>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) exit_signal: Option<i32>,
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
    exe: Texts,
    command: Texts,
    origin: Texts,
    start_ns: Plain<i64>,
    end_ns: Optional<i64>,
    exit_code: Optional<i32>,
    exit_signal: Optional<i32>,
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

#[derive(Default)]
struct NameColumns {
    rows: Rows,
    name_id: Plain<i64>,
    kind: Texts,
    name: Texts,
}

/// The rows that are not yet in a batch.
pub(crate) struct Tables {
    launches: Calls<LaunchColumns>,
    syncs: Calls<SyncColumns>,
    transfers: Calls<TransferColumns>,
    device_memory: Calls<MemoryColumns>,
    api: Calls<ApiColumns>,
    host_memory: HostColumns,
    names: NameColumns,
    full: Vec<Message>,
}

impl Tables {
    pub(crate) fn new() -> Tables {
        let transfers = TransferColumns {
            kind: Coded::new(&TRANSFER_KINDS),
            direction: Coded::new(&DIRECTIONS),
            src_kind: Coded::new(&End::NAMES),
            dst_kind: Coded::new(&End::NAMES),
            bytes: Plain::default(),
            dst: Plain::default(),
            src: Plain::default(),
            is_async: Flags::default(),
        };
        let memory = MemoryColumns {
            action: Coded::new(&ACTIONS),
            kind: Coded::new(&MEMORY_KINDS),
            address: Plain::default(),
            bytes: Plain::default(),
        };
        let host_memory = HostColumns {
            rows: Rows::default(),
            start_ns: Plain::default(),
            api_ns: Optional::default(),
            process_id: Plain::default(),
            pid: Plain::default(),
            tid: Plain::default(),
            api_id: Plain::default(),
            action: Coded::new(&ACTIONS),
            address: Plain::default(),
            bytes: Plain::default(),
            weight_bytes: Plain::default(),
        };
        Tables {
            launches: Calls::new(LaunchColumns::default()),
            syncs: Calls::new(SyncColumns { kind: Coded::new(&SYNC_KINDS), handle: Plain::default() }),
            transfers: Calls::new(transfers),
            device_memory: Calls::new(memory),
            api: Calls::new(ApiColumns { class: Coded::new(&Class::ALL.map(Class::name)), handle: Plain::default() }),
            host_memory,
            names: NameColumns::default(),
            full: Vec::new(),
        }
    }

    /// Adds a row to `launches`.
    #[inline]
    pub(crate) fn launch(&mut self, call: &Call, launch: &Launch) {
        let own = self.launches.push(call);
        own.name_id.push(launch.name_id);
        own.function.push(launch.function);
        for n in 0..3 {
            own.grid[n].push(launch.grid[n] as i32);
            own.block[n].push(launch.block[n] as i32);
        }
        own.shared_bytes.push(launch.shared_bytes as i32);
    }

    /// Adds a row to `syncs`.
    #[inline]
    pub(crate) fn sync(&mut self, call: &Call, detail: u8, handle: i64) {
        let own = self.syncs.push(call);
        own.kind.push(if usize::from(detail) < SYNC_KINDS.len() { detail } else { 0 });
        own.handle.push(handle);
    }

    /// Adds a row to `transfers`.
    #[inline]
    pub(crate) fn transfer(&mut self, call: &Call, transfer: &Transfer) {
        let own = self.transfers.push(call);
        own.kind.push(u8::from(transfer.set));
        own.direction.push(transfer.direction());
        if transfer.set {
            own.src_kind.push_none()
        } else {
            own.src_kind.push(transfer.src_kind as u8)
        }
        own.dst_kind.push(transfer.dst_kind as u8);
        own.bytes.push(transfer.bytes);
        own.dst.push(transfer.dst);
        own.src.push(transfer.src);
        own.is_async.push(transfer.is_async);
    }

    /// Adds a row to `device_memory`.
    pub(crate) fn memory(&mut self, call: &Call, detail: u8, address: i64, bytes: i64) {
        let own = self.device_memory.push(call);
        own.action.push(u8::from(call.class == Class::Free));
        own.kind.push(if usize::from(detail) < MEMORY_KINDS.len() { detail } else { 0 });
        own.address.push(address);
        own.bytes.push(bytes);
    }

    /// Adds a row to `api`.
    #[inline]
    pub(crate) fn api(&mut self, call: &Call, handle: i64) {
        let own = self.api.push(call);
        own.class.push(call.class as u8);
        own.handle.push(handle);
    }

    /// Adds a row to `host_memory`.
    #[inline]
    pub(crate) fn host(&mut self, call: &HostCall) {
        let own = &mut self.host_memory;
        own.rows.add(call.process_id, call.class);
        own.start_ns.push(call.start_ns);
        own.api_ns.push(call.api_ns);
        own.process_id.push(call.process_id);
        own.pid.push(call.pid);
        own.tid.push(call.tid);
        own.api_id.push(call.api_id);
        own.action.push(u8::from(call.class == Class::HostFree));
        own.address.push(call.address);
        own.bytes.push(call.bytes);
        own.weight_bytes.push(call.weight_bytes);
    }

    /// Adds a row to `names`.
    pub(crate) fn name(&mut self, id: i64, kind: &str, name: &str) {
        self.names.rows.count += 1;
        self.names.name_id.push(id);
        self.names.kind.push(Some(kind));
        self.names.name.push(Some(name));
    }

    /// Batches of the tables that have at least `rows` rows; names first, so that a reader of a torn trace has them.
    pub(crate) fn take(&mut self, rows: usize) -> impl Iterator<Item = Message> {
        let rows = rows.max(1);
        let mut out = [const { None }; 7];
        if self.names.rows.count > 0 {
            let columns = take![self.names.name_id, self.names.kind, self.names.name];
            out[0] = self.names.rows.batch(TableId::Names, columns);
        }
        if self.launches.rows.count >= rows {
            out[1] = self.launches.take(TableId::Launches, |own| {
                let LaunchColumns { name_id, function, grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes } = own;
                [take![*name_id], take![*function, *gx, *gy, *gz, *bx, *by, *bz, *shared_bytes]]
            });
        }
        if self.syncs.rows.count >= rows {
            out[2] = self.syncs.take(TableId::Syncs, |own| [take![own.kind], take![own.handle]]);
        }
        if self.transfers.rows.count >= rows {
            out[3] = self.transfers.take(TableId::Transfers, |own| {
                let before = take![own.kind, own.direction, own.src_kind, own.dst_kind, own.bytes, own.dst, own.src];
                [before, take![own.is_async]]
            });
        }
        if self.device_memory.rows.count >= rows {
            out[4] = self
                .device_memory
                .take(TableId::DeviceMemory, |own| [take![own.action, own.kind, own.address, own.bytes], Vec::new()]);
        }
        if self.api.rows.count >= rows {
            out[5] = self.api.take(TableId::Api, |own| [take![own.class], take![own.handle]]);
        }
        if self.host_memory.rows.count >= rows {
            let own = &mut self.host_memory;
            let columns = take![
                own.start_ns,
                own.api_ns,
                own.process_id,
                own.pid,
                own.tid,
                own.api_id,
                own.action,
                own.address,
                own.bytes,
                own.weight_bytes
            ];
            out[6] = own.rows.batch(TableId::HostMemory, columns);
        }
        out.into_iter().flatten()
    }

    /// Whether a batch is full.
    #[inline]
    fn is_full(&self) -> bool {
        let calls = [&self.launches.rows, &self.syncs.rows, &self.transfers.rows];
        let others = [&self.device_memory.rows, &self.api.rows, &self.host_memory.rows];
        calls.into_iter().chain(others).any(|r| r.count >= BATCH_ROWS)
    }

    /// Sets batches aside that are full, so that none becomes much larger.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.is_full() {
            let full: Vec<Message> = self.take(BATCH_ROWS).collect();
            self.full.extend(full);
        }
    }

    /// The batches that were set aside.
    pub(crate) fn take_full(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.full)
    }
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
        c.exe.push(Some(&row.exe));
        c.command.push(Some(&row.command));
        c.origin.push(Some(row.origin));
        c.start_ns.push(row.start_ns);
        c.end_ns.push(row.end_ns);
        c.exit_code.push(row.exit_code);
        c.exit_signal.push(row.exit_signal);
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
        c.exe,
        c.command,
        c.origin,
        c.start_ns,
        c.end_ns,
        c.exit_code,
        c.exit_signal,
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

#[cfg(test)]
mod tests;
