//! What Metal's command buffers were on the GPU: rows of `kernels`, and of `device_copies`.

use arrow::array::ArrayRef;

use super::columns::{Coded, Optional, Plain, Rows, take};
use super::metal::CommandBuffer;
use super::own::{DIRECTIONS, End};
use crate::schema::TableId;
use crate::writer::Message;

/// Copies and sets of a command buffer that holds nothing else.
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
    /// Both.
    pub(crate) fn with(self, more: Copies) -> Copies {
        Copies {
            sets: self.sets && more.sets,
            direction: self.direction.filter(|of| Some(*of) == more.direction),
            src_kind: self.src_kind.filter(|of| Some(*of) == more.src_kind),
            dst_kind: self.dst_kind.filter(|of| Some(*of) == more.dst_kind),
            bytes: self.bytes.saturating_add(more.bytes),
        }
    }
}

/// What a command buffer was on the GPU: a row of `kernels`, or of `device_copies`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) row: CommandBuffer,
    pub(crate) context: i32,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
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
    fn push(&mut self, ran: &Ran, (start_ns, gpu_ns): (i64, i64)) {
        let row = &ran.row;
        // Its events have rows of their own.
        self.rows.count += 1;
        self.front.iter_mut().zip([start_ns, gpu_ns, row.process_id]).for_each(|(column, value)| column.push(value));
        self.pid.push(row.pid);
        self.device.push(row.device);
        self.context.push(ran.context);
        self.stream.push(row.queue);
        self.correlation_id.push(Some(row.correlation_id));
    }

    fn take(&mut self) -> Vec<ArrayRef> {
        let [start, gpu, process] = &mut self.front;
        take![*start, *gpu, *process, self.pid, self.device, self.context, self.stream, self.correlation_id]
    }
}

#[derive(Default)]
pub(super) struct KernelColumns {
    work: WorkColumns,
    name_id: Optional<i64>,
    dimensions: [Plain<i32>; 6],
    unknown: [Optional<i32>; 3],
    graph_node: Optional<i64>,
}

impl KernelColumns {
    pub(super) fn push(&mut self, ran: &Ran, gpu: (i64, i64)) {
        self.work.push(ran, gpu);
        self.name_id.push(ran.row.name_id);
        let dimensions = ran.grid.into_iter().chain(ran.block);
        self.dimensions.iter_mut().zip(dimensions).for_each(|(column, value)| column.push(value as i32));
        self.unknown.iter_mut().for_each(|column| column.push(None));
        self.graph_node.push(None);
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.work.rows.count < rows {
            return None;
        }
        let mut columns = self.work.take();
        columns.extend(take![self.name_id]);
        self.dimensions.iter_mut().for_each(|column| columns.extend(take![*column]));
        self.unknown.iter_mut().for_each(|column| columns.extend(take![*column]));
        columns.extend(take![self.graph_node]);
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
    pub(super) fn push(&mut self, ran: &Ran, copies: &Copies, gpu: (i64, i64)) {
        self.work.push(ran, gpu);
        let unknown = DIRECTIONS.iter().position(|text| *text == "unknown").unwrap_or_default() as u8;
        let values = [
            Some(u8::from(copies.sets)),
            copies.direction.or(Some(unknown)),
            copies.src_kind.map(|kind| kind as u8),
            copies.dst_kind.map(|kind| kind as u8),
        ];
        for (column, value) in self.coded.iter_mut().zip(values) {
            match value {
                Some(value) => column.push(value),
                None => column.push_none(),
            }
        }
        self.bytes.push(copies.bytes);
        self.graph_node.push(None);
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
