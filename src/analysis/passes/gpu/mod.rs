//! What the GPU did, and why it did nothing: the tables `kernels` and `device_copies` joined with the calls that caused
//! their rows.
//!
//! Operations of all streams are brought into the order of their begin ([`order`]); a device's time is then covered from
//! the left to the right ([`cover`]), and what lies between two operations is a gap whose cause is looked for in what the
//! launching thread did meanwhile ([`gaps`], [`calls`]). Everything is a sum, a histogram or a bounded list: the memory
//! does not grow with the trace.
//!
//! Rows of several tables come in step with time to within a batch. When a batch begins at some time, everything that began
//! earlier has been seen, but for what its source delivered late: so operations are settled [`SLACK_NS`] behind.

mod allocated;
mod beside;
mod calls;
pub(crate) mod communication;
mod copies;
mod cover;
mod device;
mod devices;
mod executions;
mod gaps;
mod launched;
pub(super) mod order;
mod queue;
mod span;

use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::steps::{Cursor, Steps};
use crate::trace::{Filter, NO_NAME, Reach, Rows, Trace, Want};
pub(crate) use allocated::Allocated;
pub(crate) use calls::Did;
use calls::{Calls, PATIENCE_NS};
pub(crate) use copies::{Copies, Key as CopyKey, Sum as CopySum};
pub(crate) use device::{Device, InSteps};
use devices::Devices;
pub(crate) use executions::Executions;
pub(crate) use gaps::{CAUSES, Cause, GapKey, Longest};
pub(crate) use launched::{Launched, OfLaunch};
use order::{Operation, Order, Work};
pub(crate) use queue::{FULL, Queue, Queues};

/// Rows may be delivered so much later than others that began at the same time.
pub(super) const SLACK_NS: i64 = 50_000_000;

/// What is asked of the pass beside sums of kernels and copies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Asked {
    /// Kernels by their shapes too.
    pub(crate) shapes: bool,
    /// What the devices were busy with, which needs the order of their operations.
    pub(crate) busy: bool,
    /// That, and the causes of gaps, which need all that the operations' threads called.
    pub(crate) gaps: bool,
    /// That, and what was allocated in gaps.
    pub(crate) allocations: bool,
    /// What the devices were busy with, without the causes of gaps: queues, and all times of launches, which need the operations' own calls.
    pub(crate) launched: bool,
}

impl Asked {
    /// Whether operations are brought into their order.
    fn order(self) -> bool {
        self.busy || self.joins()
    }

    /// Whether they are joined with their calls.
    fn joins(self) -> bool {
        self.gaps || self.launched
    }
}

/// The pass.
#[derive(Debug, Default)]
pub(crate) struct Gpu {
    /// By device.
    pub(crate) devices: Devices,
    /// Kernels by name, and by name and shape.
    pub(crate) executions: Executions,
    /// Copies and sets by direction.
    pub(crate) copies: Copies,
    /// Launches joined with what they launched.
    pub(crate) launched: Launched,
    /// Work that was launched and had not begun.
    pub(crate) queues: Queues,
    /// Operations whose call is not in the trace.
    pub(crate) without_call: u64,
    /// Operations that ended before they began: their source has no times for them. They are in no sum.
    pub(crate) without_time: u64,
    /// Operations that came so late that their time could not be put in its place.
    pub(crate) late: u64,
    asked: Asked,
    communication: Arc<FxHashSet<i64>>,
    order: Order,
    /// Work that lies beside the ranges reported.
    beside: Order,
    calls: Calls,
    cursor: Cursor,
    launcher: usize,
    /// Begin of the calls of what the user chose; 0: of all.
    begin_ns: i64,
}

impl Gpu {
    /// For a trace with rows of these tables; `communication`: the names of NCCL's kernels.
    pub(crate) fn new(
        trace: &Trace,
        communication: Arc<FxHashSet<i64>>,
        asked: Asked,
        filter: &Filter,
        steps: &Steps,
    ) -> Gpu {
        let copies = Copies { origin_ns: trace.began_ns(), ..Copies::default() };
        let mut gpu = Gpu { devices: Devices::new(trace, filter), communication, asked, copies, ..Gpu::default() };
        if asked.order() {
            gpu.devices.look_at_span(trace, filter, &gpu.communication, steps, &mut gpu.cursor);
        }
        if asked.joins() && filter.is_stretch() {
            gpu.look_before(trace, filter);
        }
        gpu
    }

    /// Knows the calls of the last while before what the user chose: the work in there may be theirs, and the GPU's first idle
    /// time there may have begun in one of them.
    fn look_before(&mut self, trace: &Trace, filter: &Filter) {
        let Some(begin) = filter.begin_ns().filter(|begin| *begin > i64::MIN) else { return };
        let around = filter.around_steps();
        let earliest = begin.saturating_sub(PATIENCE_NS);
        let from_ns = Some(around.from_ns.map_or(earliest, |from| from.max(earliest)));
        let before = Filter { from_ns, to_ns: Some(begin), ..around };
        let last = if self.asked.gaps { ALLOCATIONS } else { OTHER_CALLS };
        trace.scan(&WANTS[OWN_CALLS..last], &before, &mut |rows| {
            self.calls.add(rows, self.asked.gaps);
            self.calls.forget(begin, rows.i64("start_ns").first().copied().unwrap_or(begin));
        });
        self.begin_ns = begin;
    }

    /// Kernels of NCCL by name, and their times.
    pub(crate) fn communication(&self) -> impl Iterator<Item = (i64, &super::stats::Stats)> {
        let kernels = self.executions.kernels.iter().map(|(id, stats)| (*id, stats));
        kernels.filter(|(id, _)| self.communication.contains(id))
    }

    /// Whether any operation was seen.
    pub(crate) fn any(&self) -> bool {
        self.executions.kernels.iter().next().is_some() || self.copies.sums.iter().next().is_some()
    }

    fn kernels(&mut self, rows: &Rows) {
        let (columns, name) = (order::Columns::of(rows), rows.i64_or("name_id", NO_NAME));
        let [grid, block] = ["grid", "block"].map(|of| rows.axes(of));
        for row in 0..rows.len {
            let work = match self.communication.contains(&name[row]) {
                true => Work::Communication,
                false => Work::Kernel,
            };
            let of = columns.operation(row, name[row], work);
            if let Some(of) = &of {
                self.executions.add(of);
                if self.asked.shapes {
                    self.executions.add_shape(of, (grid.get(row), block.get(row)));
                }
            }
            self.take(0, of);
        }
    }

    fn copies(&mut self, rows: &Rows) {
        let (columns, bytes) = (order::Columns::of(rows), rows.i64("bytes"));
        let (kind, direction) = (rows.texts("kind"), rows.texts("direction"));
        let (src, dst) = (rows.texts("src_kind"), rows.texts("dst_kind"));
        for row in 0..rows.len {
            let mut of = columns.operation(row, NO_NAME, Work::Copy);
            if let Some(of) = &mut of {
                let memory = [src.get(row), dst.get(row)];
                self.copies.add(of, kind.get(row), direction.get(row), memory, bytes[row]);
            }
            self.take(1, of);
        }
    }

    fn take(&mut self, table: usize, of: Option<Operation>) {
        match of {
            Some(_) if !self.asked.order() => {}
            Some(of) => self.late += u64::from(!self.order.push(table, of)),
            None => self.without_time += 1,
        }
    }

    /// Work beside the ranges reported only tells when the device was not idle.
    fn other_work(&mut self, rows: &Rows) {
        let columns = order::Columns::of(rows);
        for of in (0..rows.len).filter_map(|row| columns.operation(row, NO_NAME, Work::Kernel)) {
            self.beside.push(usize::from(rows.table == TableId::DeviceCopies), of);
        }
    }

    /// Settles every operation that began before this time.
    fn settle(&mut self, before: i64, steps: &Steps) {
        loop {
            let Some(of) = self.order.next(before.min(self.beside.begin())) else {
                let Some(of) = self.beside.next(before) else { break };
                let calls = Some(&self.calls).filter(|_| self.asked.gaps);
                self.devices.beside(self.launcher, &of, calls, steps, &mut self.cursor);
                continue;
            };
            if !self.asked.joins() {
                self.devices.add(self.launcher, &of, None, steps, &mut self.cursor);
                continue;
            }
            let cause = self.calls.cause_of(of.process_id, of.cause);
            let call = self.calls.at(cause);
            self.without_call += u64::from(call.is_none());
            if let Some(call) = call {
                // Of a launch before what was chosen only the kernel is told.
                match call.start >= self.begin_ns {
                    true => self.launched.add(&of, call, self.asked.launched),
                    false => self.launched.add_alone(&of),
                }
                if self.asked.launched {
                    self.queues.add(&of, call);
                }
            } else {
                self.launched.add_alone(&of);
            }
            let joined = self.asked.gaps.then_some((call, &self.calls));
            self.devices.add(self.launcher, &of, joined, steps, &mut self.cursor);
            self.calls.joined(cause);
        }
        let settled = self.devices.settled_ns().unwrap_or(before);
        self.calls.forget(settled, before);
        self.devices.allocated.forget(settled.min(before));
    }
}

/// The shapes of kernels come first, then the tables of operations, then those of calls.
const WANTS: &[Want] = &[
    Want { table: TableId::Kernels, columns: &["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"] },
    Want { table: TableId::Kernels, columns: &["gpu_ns", "device", "stream", "correlation_id", "name_id"] },
    Want {
        table: TableId::DeviceCopies,
        columns: &[
            "gpu_ns",
            "device",
            "stream",
            "correlation_id",
            "kind",
            "direction",
            "src_kind",
            "dst_kind",
            "bytes",
        ],
    },
    Want { table: TableId::Launches, columns: &["api_ns", "tid", "correlation_id", "api_id", "stack_id", "kernels"] },
    Want { table: TableId::Transfers, columns: &["api_ns", "tid", "correlation_id", "api_id", "stack_id"] },
    Want { table: TableId::Syncs, columns: &["api_ns", "tid", "api_id", "stack_id", "kind"] },
    Want { table: TableId::DeviceMemory, columns: &["api_ns", "tid", "api_id", "stack_id"] },
    Want { table: TableId::Api, columns: &["api_ns", "tid", "api_id", "stack_id", "class"] },
    Want { table: TableId::Collectives, columns: &["api_ns", "tid", "api_id", "stack_id"] },
    Want { table: TableId::OsWaits, columns: &["wait_ns", "tid", "api_id", "stack_id"] },
    Want { table: TableId::HostMemory, columns: &["tid", "action", "bytes", "weight_bytes", "stack_id", "calls"] },
];
/// Where those of operations begin, where those of the calls that cause them, those of other calls, and that of malloc.
const OPERATIONS: usize = 1;
const OWN_CALLS: usize = 3;
const OTHER_CALLS: usize = 5;
const ALLOCATIONS: usize = 10;
/// Of work beside the ranges reported.
const BESIDE: &[Want] = &[
    Want { table: TableId::Kernels, columns: &["gpu_ns", "device"] },
    Want { table: TableId::DeviceCopies, columns: &["gpu_ns", "device"] },
];

impl Pass for Gpu {
    fn wants(&self) -> &'static [Want] {
        let first = if self.asked.shapes { 0 } else { OPERATIONS };
        let end = match self.asked {
            Asked { allocations: true, .. } => WANTS.len(),
            Asked { gaps: true, .. } => ALLOCATIONS,
            Asked { launched: true, .. } => OTHER_CALLS,
            _ => OWN_CALLS,
        };
        &WANTS[first..end]
    }

    fn beside(&self) -> &'static [Want] {
        if self.asked.order() { BESIDE } else { &[] }
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        if rows.launcher != self.launcher {
            // Another collector's files: they begin from the start of the run again.
            self.settle(i64::MAX, steps);
            self.order.restart();
            self.beside.restart();
            self.devices.allocated.forget(i64::MAX);
            self.launcher = rows.launcher;
        }
        let begin = rows.i64("start_ns").first().copied().unwrap_or(i64::MIN);
        match rows.table {
            _ if rows.reach == Reach::Beside => self.other_work(rows),
            // What was allocated settles nothing: sums of culled blocks are out of order.
            TableId::HostMemory => return self.devices.allocated.add(rows),
            TableId::Kernels => self.kernels(rows),
            TableId::DeviceCopies => self.copies(rows),
            _ => self.calls.add(rows, self.asked.gaps),
        }
        self.settle(begin.saturating_sub(SLACK_NS), steps);
    }

    fn end(&mut self, steps: &Steps) {
        self.settle(i64::MAX, steps);
        self.queues.end();
        let calls = self.asked.gaps.then_some(&self.calls);
        self.devices.end(calls, steps, &mut self.cursor);
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        self.executions.names(ids);
        self.launched.names(ids);
        self.devices.names(ids);
    }
}

#[cfg(test)]
mod tests;
