//! Rows of `gpu_samples`.

use gputrace_abi::sample::kind;

use super::columns::{Coded, Optional, Plain, Rows, take};
use crate::schema::TableId;
use crate::writer::Message;

/// Texts of `kind`, by [`gputrace_abi::sample::kind`] - 1.
const KINDS: [&str; 3] = ["kernel", "graph", "collective"];

/// A row of `gpu_samples`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GpuSample {
    pub(crate) start_ns: i64,
    pub(crate) gpu_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) device: Option<i32>,
    pub(crate) context: i32,
    pub(crate) stream: i64,
    pub(crate) correlation_id: i64,
    /// One of [`gputrace_abi::sample::kind`].
    pub(crate) kind: u8,
    pub(crate) name_id: Option<i64>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) weight: u32,
    pub(crate) pair_ns: i64,
}

pub(super) struct GpuSampleColumns {
    rows: Rows,
    times: [Plain<i64>; 3],
    pid: Plain<i32>,
    device: Optional<i32>,
    context: Plain<i32>,
    call: [Plain<i64>; 2],
    kind: Coded,
    name_id: Optional<i64>,
    dimensions: [Plain<i32>; 6],
    weight: Plain<i32>,
    pair_ns: Plain<i64>,
}

impl Default for GpuSampleColumns {
    fn default() -> GpuSampleColumns {
        GpuSampleColumns {
            rows: Rows::default(),
            times: Default::default(),
            pid: Plain::default(),
            device: Optional::default(),
            context: Plain::default(),
            call: Default::default(),
            kind: Coded::new(&KINDS),
            name_id: Optional::default(),
            dimensions: Default::default(),
            weight: Plain::default(),
            pair_ns: Plain::default(),
        }
    }
}

impl GpuSampleColumns {
    pub(super) fn push(&mut self, row: &GpuSample) {
        // The call has a row, and an event, of its own.
        self.rows.count += 1;
        let times = [row.start_ns, row.gpu_ns, row.process_id];
        self.times.iter_mut().zip(times).for_each(|(column, value)| column.push(value));
        self.pid.push(row.pid);
        self.device.push(row.device);
        self.context.push(row.context);
        self.call.iter_mut().zip([row.stream, row.correlation_id]).for_each(|(column, value)| column.push(value));
        self.kind.push(row.kind.clamp(kind::KERNEL, kind::COLLECTIVE) - 1);
        self.name_id.push(row.name_id);
        let dimensions = row.grid.into_iter().chain(row.block);
        self.dimensions.iter_mut().zip(dimensions).for_each(|(column, value)| column.push(value as i32));
        self.weight.push(row.weight.min(i32::MAX as u32) as i32);
        self.pair_ns.push(row.pair_ns);
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.rows.count < rows {
            return None;
        }
        let ([start, gpu, process], [stream, call]) = (&mut self.times, &mut self.call);
        let mut columns = take![*start, *gpu, *process, self.pid, self.device, self.context, *stream, *call, self.kind];
        columns.extend(take![self.name_id]);
        self.dimensions.iter_mut().for_each(|column| columns.extend(take![*column]));
        columns.extend(take![self.weight, self.pair_ns]);
        self.rows.batch(TableId::GpuSamples, columns)
    }
}
