//! What the GPU did: rows of `kernels`, and of `device_copies`.

use arrow::array::ArrayRef;

use super::columns::{Coded, Optional, Plain, Rows, take};
use super::own::{DIRECTIONS, End};
use crate::occupancy::{Fit, Limiter};
use crate::schema::{MOST_BYTES, TableId};
use crate::writer::Message;

/// A copy or set; or copies and sets of a Metal command buffer that holds nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    /// All of them are sets.
    pub(crate) sets: bool,
    /// Place of their direction, where they have one in common.
    pub(crate) direction: Option<u8>,
    pub(crate) src_kind: Option<End>,
    pub(crate) dst_kind: Option<End>,
    pub(crate) bytes: i64,
}

impl Copies {
    /// A copy, or a set, between these kinds of memory.
    pub(crate) fn one(sets: bool, peer: bool, ends: [End; 2], bytes: i64) -> Copies {
        let direction = Some(super::own::direction(sets, peer, ends));
        let [src_kind, dst_kind] = ends.map(|end| Some(end).filter(|end| *end != End::Unknown));
        Copies { sets, direction, src_kind: src_kind.filter(|_| !sets), dst_kind, bytes }
    }

    /// Both.
    pub(crate) fn with(self, more: Copies) -> Copies {
        Copies {
            sets: self.sets && more.sets,
            direction: self.direction.filter(|of| Some(*of) == more.direction),
            src_kind: self.src_kind.filter(|of| Some(*of) == more.src_kind),
            dst_kind: self.dst_kind.filter(|of| Some(*of) == more.dst_kind),
            bytes: self.bytes.saturating_add(more.bytes).min(MOST_BYTES),
        }
    }
}

/// What the GPU did: what rows of `kernels` and of `device_copies` have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnGpu {
    pub(crate) start_ns: i64,
    pub(crate) gpu_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) device: Option<i32>,
    pub(crate) context: i32,
    pub(crate) stream: i64,
    pub(crate) correlation_id: Option<i64>,
    pub(crate) graph_node: Option<i64>,
}

/// A kernel's own values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) name_id: Option<i64>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Registers of a thread, static shared memory, dynamic shared memory.
    pub(crate) resources: Option<[u32; 3]>,
    /// From the end of its call to its begin, where that is later.
    pub(crate) queue_ns: Option<i64>,
    /// How many of its blocks fit a multiprocessor.
    pub(crate) fit: Option<Fit>,
}

/// What it was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Worked {
    Kernel(Kernel),
    Copies(Copies),
}

/// Columns that both tables of the GPU's work begin with.
#[derive(Default)]
struct WorkColumns {
    rows: Rows,
    front: [Plain<i64>; 3],
    pid: Plain<i32>,
    device: Optional<i32>,
    context: Plain<i32>,
    stream: Plain<i64>,
    correlation_id: Optional<i64>,
}

impl WorkColumns {
    fn push(&mut self, of: &OnGpu) {
        // The call that caused it has a row, and an event, of its own.
        self.rows.count += 1;
        let front = [of.start_ns, of.gpu_ns, of.process_id];
        self.front.iter_mut().zip(front).for_each(|(column, value)| column.push(value));
        self.pid.push(of.pid);
        self.device.push(of.device);
        self.context.push(of.context);
        self.stream.push(of.stream);
        self.correlation_id.push(of.correlation_id);
    }

    fn take(&mut self) -> Vec<ArrayRef> {
        let [start, gpu, process] = &mut self.front;
        take![*start, *gpu, *process, self.pid, self.device, self.context, self.stream, self.correlation_id]
    }
}

pub(super) struct KernelColumns {
    work: WorkColumns,
    name_id: Optional<i64>,
    dimensions: [Plain<i32>; 6],
    resources: [Optional<i32>; 3],
    graph_node: Optional<i64>,
    queue_ns: Optional<i64>,
    occupancy: Optional<f64>,
    limiter: Coded,
}

impl Default for KernelColumns {
    fn default() -> KernelColumns {
        let texts = Limiter::texts();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        KernelColumns {
            work: WorkColumns::default(),
            name_id: Optional::default(),
            dimensions: Default::default(),
            resources: Default::default(),
            graph_node: Optional::default(),
            queue_ns: Optional::default(),
            occupancy: Optional::default(),
            limiter: Coded::new(&texts),
        }
    }
}

impl KernelColumns {
    pub(super) fn push(&mut self, of: &OnGpu, kernel: &Kernel) {
        self.work.push(of);
        self.name_id.push(kernel.name_id);
        let dimensions = kernel.grid.into_iter().chain(kernel.block);
        self.dimensions.iter_mut().zip(dimensions).for_each(|(column, value)| column.push(value as i32));
        for (nth, column) in self.resources.iter_mut().enumerate() {
            column.push(kernel.resources.map(|resources| resources[nth].min(i32::MAX as u32) as i32));
        }
        self.graph_node.push(of.graph_node);
        self.queue_ns.push(kernel.queue_ns);
        self.occupancy.push(kernel.fit.map(|fit| fit.percent));
        self.limiter.push_some(kernel.fit.and_then(|fit| fit.limiter).map(Limiter::number));
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.work.rows
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.work.rows.count < rows {
            return None;
        }
        let mut columns = self.work.take();
        columns.extend(take![self.name_id]);
        self.dimensions.iter_mut().for_each(|column| columns.extend(take![*column]));
        self.resources.iter_mut().for_each(|column| columns.extend(take![*column]));
        columns.extend(take![self.graph_node, self.queue_ns, self.occupancy, self.limiter]);
        self.work.rows.batch(TableId::Kernels, columns)
    }
}

pub(super) struct CopyColumns {
    work: WorkColumns,
    /// Kind, direction, memory of the source and of the destination.
    coded: [Coded; 4],
    bytes: Plain<i64>,
    graph_node: Optional<i64>,
}

impl Default for CopyColumns {
    fn default() -> CopyColumns {
        let texts: [&[&str]; 4] = [&["copy", "set"], &DIRECTIONS, &End::NAMES, &End::NAMES];
        let coded = texts.map(Coded::new);
        CopyColumns { work: WorkColumns::default(), coded, bytes: Plain::default(), graph_node: Optional::default() }
    }
}

impl CopyColumns {
    pub(super) fn push(&mut self, of: &OnGpu, copies: &Copies) {
        self.work.push(of);
        let unknown = DIRECTIONS.iter().position(|text| *text == "unknown").unwrap_or_default() as u8;
        let values = [
            Some(u8::from(copies.sets)),
            copies.direction.or(Some(unknown)),
            copies.src_kind.map(|kind| kind as u8),
            copies.dst_kind.map(|kind| kind as u8),
        ];
        self.coded.iter_mut().zip(values).for_each(|(column, value)| column.push_some(value));
        self.bytes.push(copies.bytes);
        self.graph_node.push(of.graph_node);
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.work.rows
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.work.rows.count < rows {
            return None;
        }
        let mut columns = self.work.take();
        self.coded.iter_mut().for_each(|column| columns.extend(take![*column]));
        columns.extend(take![self.bytes, self.graph_node]);
        self.work.rows.batch(TableId::DeviceCopies, columns)
    }
}
