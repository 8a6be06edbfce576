//! Rows of every table, gathered into Arrow batches: the one place that knows the order of the columns.

mod calls;
mod collectives;
mod columns;
mod counters;
mod folding;
mod gpu_activity;
mod gpu_samples;
mod gpu_windows;
mod graphs;
mod host_memory;
mod in_order;
mod metal;
mod on_gpu;
mod os_waits;
mod own;
mod ranges;
mod rollups;
mod rows;
mod stacks;

use crate::live::Live;
use crate::names::NameKind;
use crate::rollups::Rollups;
use crate::schema::TableId;
use crate::symbols::Native;
use crate::waiting;
use crate::writer::Message;
pub(crate) use calls::Call;
use calls::Calls;
pub(crate) use collectives::{Collective, Communicator};
use collectives::{CollectiveColumns, CommunicatorColumns};
use columns::{Plain, Rows, Texts, take};
use counters::CounterColumns;
pub(crate) use counters::CounterRow;
use gpu_activity::GpuActivityColumns;
pub(crate) use gpu_activity::{GpuActivity, KINDS as GPU_ACTIVITY_KINDS};
pub(crate) use gpu_samples::GpuSample;
use gpu_samples::GpuSampleColumns;
use gpu_windows::GpuWindowColumns;
pub(crate) use gpu_windows::{GpuWindow, open_windows};
pub(crate) use graphs::{Graph, GraphKernel};
use graphs::{GraphColumns, GraphKernelColumns};
use host_memory::HostColumns;
pub(crate) use host_memory::{HostAction, HostCall};
use in_order::InOrder;
use metal::{BufferColumns, DispatchColumns};
pub(crate) use metal::{CommandBuffer, Dispatch, DispatchKind};
pub(crate) use on_gpu::{Copies, Kernel, OnGpu, Worked};
use on_gpu::{CopyColumns, KernelColumns};
pub(crate) use os_waits::OsWait;
use os_waits::OsWaitColumns;
use own::{ApiColumns, LaunchColumns, MemoryColumns, SyncColumns, TransferColumns};
pub(crate) use own::{End, Launch, Transfer};
use ranges::RangeColumns;
pub(crate) use ranges::{Range, RangeKind};
pub(crate) use rows::{ProcessRow, ThreadRow, processes, threads};
pub(crate) use stacks::StackColumns;
pub use stacks::StackRow;
pub(crate) use stacks::{Joined, Stacked};

/// Texts of `device_memory.action`.
const ACTIONS: [&str; 2] = ["alloc", "free"];

/// Rows of a batch: enough to make the cost of the hand-over small, and half a megabyte or so.
pub(crate) const BATCH_ROWS: usize = 8192;

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
    collectives: Calls<CollectiveColumns>,
    communicators: CommunicatorColumns,
    graphs: GraphColumns,
    graph_kernels: GraphKernelColumns,
    host_memory: HostColumns,
    names: NameColumns,
    ranges: RangeColumns,
    stacks: StackColumns,
    natives: Vec<Native>,
    os_waits: OsWaitColumns,
    command_buffers: BufferColumns,
    dispatches: DispatchColumns,
    kernels: KernelColumns,
    copies: CopyColumns,
    gpu_windows: GpuWindowColumns,
    counters: CounterColumns,
    gpu_samples: GpuSampleColumns,
    gpu_activity: GpuActivityColumns,
    in_order: InOrder,
    /// Sums of what goes through here, where they are asked for.
    rollups: Option<Rollups>,
    /// Sums for whoever watches.
    pub(crate) live: Live,
    full: Vec<Message>,
}

impl Tables {
    pub(crate) fn new() -> Tables {
        Tables {
            launches: Calls::default(),
            syncs: Calls::default(),
            transfers: Calls::default(),
            device_memory: Calls::default(),
            api: Calls::default(),
            collectives: Calls::default(),
            communicators: CommunicatorColumns::default(),
            graphs: GraphColumns::default(),
            graph_kernels: GraphKernelColumns::default(),
            host_memory: HostColumns::default(),
            names: NameColumns::default(),
            ranges: RangeColumns::default(),
            stacks: StackColumns::default(),
            natives: Vec::new(),
            os_waits: OsWaitColumns::default(),
            command_buffers: BufferColumns::default(),
            dispatches: DispatchColumns::default(),
            kernels: KernelColumns::default(),
            copies: CopyColumns::default(),
            gpu_windows: GpuWindowColumns::default(),
            counters: CounterColumns::default(),
            gpu_samples: GpuSampleColumns::default(),
            gpu_activity: GpuActivityColumns::default(),
            in_order: InOrder::default(),
            rollups: None,
            live: Live::default(),
            full: Vec::new(),
        }
    }

    /// Adds a row to `launches`.
    #[inline]
    pub(crate) fn launch(&mut self, call: &Call, launch: &Launch) {
        self.fold_call(call, launch.name_id, 0);
        self.live.launched(call.stack_id, launch.stack_launches, call.api_ns);
        self.launches.push(call).push(launch);
    }

    /// Adds a row to `syncs`.
    #[inline]
    pub(crate) fn sync(&mut self, call: &Call, detail: u8, handle: i64) {
        self.fold_call(call, None, 0);
        self.syncs.push(call).push(detail, handle);
    }

    /// Adds a row to `transfers`.
    #[inline]
    pub(crate) fn transfer(&mut self, call: &Call, transfer: &Transfer) {
        self.fold_call(call, None, transfer.bytes);
        if call.ahead.streams > 0 {
            let need_ns = waiting::copy_ns(transfer.bytes);
            self.live.waited(call.process_id, call.class, waiting::beyond(need_ns, call.api_ns, || transfer.blocks()));
        }
        self.transfers.push(call).push(transfer);
    }

    /// Adds a row to `device_memory`. `label`: id of what the program calls it.
    pub(crate) fn memory(&mut self, call: &Call, detail: u8, address: i64, bytes: i64, label: Option<i64>) {
        self.fold_call(call, None, bytes);
        self.hold(call, detail, bytes);
        if call.result == 0 {
            let (class, took_ns, pending) = (call.class, call.api_ns, call.ahead.streams > 0);
            self.live.managed(call.process_id, &waiting::Memory { class, detail, bytes, took_ns, pending });
        }
        self.device_memory.push(call).push(call.class, detail, address, bytes, label);
    }

    /// Adds a row to `api`.
    #[inline]
    pub(crate) fn api(&mut self, call: &Call, handle: i64, jit: bool) {
        self.fold_call(call, None, 0);
        self.api.push(call).push(call.class, handle, jit);
    }

    /// Adds a row to `ranges`.
    pub(crate) fn range(&mut self, range: &Range) {
        self.fold_range(range);
        self.ranges.push(range);
    }

    /// Adds a row to `collectives`.
    pub(crate) fn collective(&mut self, call: &Call, collective: &Collective) {
        self.fold_call(call, None, collective.bytes() as i64);
        self.collectives.push(call).push(collective);
    }

    /// Adds a row to `communicators`.
    pub(crate) fn communicator(&mut self, row: &Communicator) {
        self.communicators.push(row);
    }

    /// Adds a row to `graphs`.
    pub(crate) fn graph(&mut self, row: &Graph) {
        self.graphs.push(row);
    }

    /// Adds a row to `graph_kernels`.
    pub(crate) fn graph_kernel(&mut self, row: &GraphKernel) {
        self.graph_kernels.push(row);
    }

    /// Adds a row to `host_memory`.
    #[inline]
    pub(crate) fn host(&mut self, call: &HostCall) {
        self.fold_host(call);
        self.host_memory.push(call);
    }

    /// Adds a row to `os_waits`.
    pub(crate) fn os_wait(&mut self, wait: &OsWait) {
        self.fold_wait(wait);
        self.os_waits.push(wait);
    }

    /// Adds a row to `command_buffers`.
    pub(crate) fn command_buffer(&mut self, row: &CommandBuffer) {
        self.command_buffers.push(row);
    }

    /// Adds a row to `dispatches`; without an id its command buffer was not seen committed.
    #[inline]
    pub(crate) fn dispatch(&mut self, row: &Dispatch, correlation_id: Option<i64>) {
        self.dispatches.push(row, correlation_id);
    }

    /// Adds a row to `kernels`, or to `device_copies`.
    pub(crate) fn on_gpu(&mut self, of: &OnGpu, worked: &Worked) {
        self.fold_worked(of, worked);
        match worked {
            Worked::Copies(copies) => self.copies.push(of, copies),
            Worked::Kernel(kernel) => self.kernels.push(of, kernel),
        }
    }

    /// Adds a row to `gpu_windows`.
    pub(crate) fn gpu_window(&mut self, row: &GpuWindow) {
        self.gpu_windows.push(row);
    }

    /// Adds a row to `counters`.
    pub(crate) fn counter(&mut self, row: &CounterRow<'_>) {
        self.counters.push(row);
    }

    /// Adds a row to `gpu_samples`.
    pub(crate) fn gpu_sample(&mut self, row: &GpuSample) {
        self.live.sampled(row);
        self.gpu_samples.push(row);
    }

    /// Adds a row to `gpu_activity`.
    pub(crate) fn gpu_activity(&mut self, row: &GpuActivity) {
        self.gpu_activity.push(row);
    }

    /// Adds a row to `names`.
    pub(crate) fn name(&mut self, id: i64, kind: &str, name: &str) {
        if kind == NameKind::Kernel.name() {
            self.live.name(id, name);
        }
        self.names.rows.count += 1;
        self.names.name_id.push(id);
        self.names.kind.push(Some(kind));
        self.names.name.push(Some(name));
    }

    /// Adds a row to `stacks`.
    pub(crate) fn stack(&mut self, stack: Stacked) {
        self.stacks.push(&stack);
        self.live.stack(stack);
    }

    /// Adds stacks of native frames, which need their symbols before their rows can be written.
    pub(crate) fn native(&mut self, pid: i32, stack: Stacked) {
        match self.natives.last_mut() {
            Some(last) if last.pid == pid => last.stacks.push(stack),
            _ => self.natives.push(Native { pid, stacks: vec![stack] }),
        }
    }

    /// The native stacks since the last call.
    pub(crate) fn take_natives(&mut self) -> Vec<Native> {
        std::mem::take(&mut self.natives)
    }

    /// Batches of the tables that have at least `rows` rows; what others refer to comes first, so that a reader of a torn
    /// trace has it.
    pub(crate) fn take(&mut self, rows: usize) -> impl Iterator<Item = Message> {
        let rows = rows.max(1);
        let mut out = Vec::new();
        if self.names.rows.count > 0 {
            let columns = take![self.names.name_id, self.names.kind, self.names.name];
            out.extend(self.names.rows.batch(TableId::Names, columns));
        }
        out.extend(self.stacks.take());
        out.extend(self.graphs.take());
        out.extend(self.graph_kernels.take());
        out.extend(self.launches.take(rows));
        out.extend(self.syncs.take(rows));
        out.extend(self.transfers.take(rows));
        out.extend(self.device_memory.take(rows));
        out.extend(self.api.take(rows));
        out.extend(self.host_memory.take(rows));
        out.extend(self.ranges.take(rows));
        out.extend(self.communicators.take());
        out.extend(self.collectives.take(rows));
        out.extend(self.os_waits.take(rows));
        out.extend(self.command_buffers.take(rows));
        out.extend(self.dispatches.take(rows));
        out.extend(self.kernels.take(rows));
        out.extend(self.copies.take(rows));
        out.extend(self.gpu_windows.take());
        out.extend(self.counters.take());
        out.extend(self.gpu_samples.take(rows));
        out.extend(self.gpu_activity.take(rows));
        out.extend(self.take_rollups());
        out.into_iter()
    }

    /// Whether a batch is full.
    #[inline]
    fn is_full(&self) -> bool {
        let calls = [&self.launches.rows, &self.syncs.rows, &self.transfers.rows];
        let others = [&self.device_memory.rows, &self.api.rows, &self.host_memory.rows];
        let libraries = [&self.collectives.rows, &self.os_waits.rows];
        let metal = [&self.command_buffers.rows, &self.dispatches.rows];
        let on_gpu = [self.kernels.rows(), self.copies.rows(), self.gpu_activity.rows()];
        let mut all = calls.into_iter().chain(others).chain(libraries).chain(metal).chain(on_gpu);
        all.any(|r| r.count >= BATCH_ROWS)
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

#[cfg(test)]
mod tests;
