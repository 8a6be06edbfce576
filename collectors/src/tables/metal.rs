//! The tables of Metal: command buffers and dispatches.

use gputrace_abi::Class;
use gputrace_abi::event::{unpack_block, unpack_grid};

use super::columns::{Coded, Flags, Optional, Plain, Rows, take};
use crate::schema::TableId;
use crate::writer::Message;

/// Texts of `status`.
const STATUS: [&str; 2] = ["completed", "error"];
/// Texts of `dispatches.kind`, by [`DispatchKind`].
const DISPATCH_KINDS: [&str; 4] = ["threads", "groups", "indirect", "commands"];

/// What a dispatch's size counts.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DispatchKind {
    Threads = 0,
    Groups = 1,
    Indirect = 2,
    Commands = 3,
}

/// A row of `command_buffers`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandBuffer {
    pub(crate) start_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) correlation_id: i64,
    pub(crate) device: Option<i32>,
    pub(crate) queue: i64,
    pub(crate) queue_name_id: Option<i64>,
    pub(crate) name_id: Option<i64>,
    pub(crate) labelled: bool,
    pub(crate) command_buffers: i32,
    pub(crate) dispatches: i32,
    /// Compute, blit, render, other.
    pub(crate) encoders: [i32; 4],
    pub(crate) encode_ns: i64,
    pub(crate) schedule_ns: Option<i64>,
    /// Begin and length.
    pub(crate) gpu: Option<(i64, i64)>,
    /// Whether it completed; none where that was not seen.
    pub(crate) completed: Option<bool>,
    /// Events that the row stands for.
    pub(crate) events: u64,
}

/// A row of `dispatches`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatch {
    pub(crate) start_ns: i64,
    pub(crate) api_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) api_id: i64,
    pub(crate) device: Option<i32>,
    pub(crate) name_id: Option<i64>,
    pub(crate) encoder_id: Option<i64>,
    pub(crate) kind: DispatchKind,
    pub(crate) size: [u32; 3],
    pub(crate) group: [u32; 3],
    /// Its command buffer went without a commit.
    pub(crate) discarded: bool,
}

impl Dispatch {
    /// Kernels that it runs.
    pub(crate) fn kernels(&self) -> u32 {
        if self.kind == DispatchKind::Commands { self.size[0] } else { 1 }
    }

    /// Its groups, as a launch of CUDA has its grid.
    pub(crate) fn grid(&self) -> [u32; 3] {
        match self.kind {
            DispatchKind::Groups => self.size,
            DispatchKind::Threads => std::array::from_fn(|n| self.size[n].div_ceil(self.group[n].max(1))),
            DispatchKind::Indirect | DispatchKind::Commands => [0; 3],
        }
    }

    /// Its threads; none where one of its sizes is the most that an event holds, which may stand for more.
    pub(super) fn threads(&self) -> Option<i64> {
        let most = unpack_grid(u64::MAX).into_iter().chain(unpack_block(u64::MAX).0);
        if self.size.into_iter().chain(self.group).zip(most).any(|(size, most)| size == most) {
            return None;
        }
        let product = |of: [u32; 3]| of.iter().try_fold(1_i64, |all, n| all.checked_mul(i64::from(*n)));
        match self.kind {
            DispatchKind::Threads => product(self.size),
            DispatchKind::Groups => product(self.size)?.checked_mul(product(self.group)?),
            DispatchKind::Indirect | DispatchKind::Commands => None,
        }
    }
}

pub(super) struct BufferColumns {
    pub(super) rows: Rows,
    numbers: [Plain<i64>; 4],
    pid: Plain<i32>,
    device: Optional<i32>,
    queue_name_id: Optional<i64>,
    name_id: Optional<i64>,
    labelled: Flags,
    counts: [Plain<i32>; 6],
    encode_ns: Plain<i64>,
    times: [Optional<i64>; 3],
    status: Coded,
}

impl Default for BufferColumns {
    fn default() -> BufferColumns {
        BufferColumns {
            rows: Rows::default(),
            numbers: Default::default(),
            pid: Plain::default(),
            device: Optional::default(),
            queue_name_id: Optional::default(),
            name_id: Optional::default(),
            labelled: Flags::default(),
            counts: Default::default(),
            encode_ns: Plain::default(),
            times: Default::default(),
            status: Coded::new(&STATUS),
        }
    }
}

impl BufferColumns {
    pub(super) fn push(&mut self, row: &CommandBuffer) {
        self.rows.add_apart(row.process_id, Class::Encode, row.events);
        let numbers = [row.start_ns, row.process_id, row.correlation_id, row.queue];
        self.numbers.iter_mut().zip(numbers).for_each(|(column, value)| column.push(value));
        self.pid.push(row.pid);
        self.device.push(row.device);
        self.queue_name_id.push(row.queue_name_id);
        self.name_id.push(row.name_id);
        self.labelled.push(row.labelled);
        let counts = [row.command_buffers, row.dispatches].into_iter().chain(row.encoders);
        self.counts.iter_mut().zip(counts).for_each(|(column, value)| column.push(value));
        self.encode_ns.push(row.encode_ns);
        let times = [row.schedule_ns, row.gpu.map(|gpu| gpu.0), row.gpu.map(|gpu| gpu.1)];
        self.times.iter_mut().zip(times).for_each(|(column, value)| column.push(value));
        match row.completed {
            Some(completed) => self.status.push(u8::from(!completed)),
            None => self.status.push_none(),
        }
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.rows.count < rows {
            return None;
        }
        let [start, process, correlation, queue] = &mut self.numbers;
        let mut columns = take![*start, *process, self.pid, *correlation, self.device, *queue];
        columns.extend(take![self.queue_name_id, self.name_id, self.labelled]);
        self.counts.iter_mut().for_each(|column| columns.extend(take![*column]));
        columns.extend(take![self.encode_ns]);
        self.times.iter_mut().for_each(|column| columns.extend(take![*column]));
        columns.extend(take![self.status]);
        self.rows.batch(TableId::CommandBuffers, columns)
    }
}

pub(super) struct DispatchColumns {
    pub(super) rows: Rows,
    front: [Plain<i64>; 3],
    pid: Plain<i32>,
    tid: Plain<i32>,
    correlation_id: Optional<i64>,
    api_id: Plain<i64>,
    device: Optional<i32>,
    name_id: Optional<i64>,
    encoder_id: Optional<i64>,
    kind: Coded,
    size: [Plain<i32>; 3],
    group: [Plain<i32>; 3],
    threads: Optional<i64>,
    discarded: Flags,
}

impl Default for DispatchColumns {
    fn default() -> DispatchColumns {
        DispatchColumns {
            rows: Rows::default(),
            front: Default::default(),
            pid: Plain::default(),
            tid: Plain::default(),
            correlation_id: Optional::default(),
            api_id: Plain::default(),
            device: Optional::default(),
            name_id: Optional::default(),
            encoder_id: Optional::default(),
            kind: Coded::new(&DISPATCH_KINDS),
            size: Default::default(),
            group: Default::default(),
            threads: Optional::default(),
            discarded: Flags::default(),
        }
    }
}

impl DispatchColumns {
    #[inline]
    pub(super) fn push(&mut self, row: &Dispatch, correlation_id: Option<i64>) {
        self.rows.add(row.process_id, Class::Encode);
        let front = [row.start_ns, row.api_ns, row.process_id];
        self.front.iter_mut().zip(front).for_each(|(column, value)| column.push(value));
        self.pid.push(row.pid);
        self.tid.push(row.tid);
        self.correlation_id.push(correlation_id);
        self.api_id.push(row.api_id);
        self.device.push(row.device);
        self.name_id.push(row.name_id);
        self.encoder_id.push(row.encoder_id);
        self.kind.push(row.kind as u8);
        for n in 0..3 {
            self.size[n].push(row.size[n].min(i32::MAX as u32) as i32);
            self.group[n].push(row.group[n] as i32);
        }
        self.threads.push(row.threads());
        self.discarded.push(row.discarded);
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.rows.count < rows {
            return None;
        }
        let [start, api, process] = &mut self.front;
        let mut columns = take![*start, *api, *process, self.pid, self.tid, self.correlation_id, self.api_id];
        columns.extend(take![self.device, self.name_id, self.encoder_id, self.kind]);
        self.size.iter_mut().chain(&mut self.group).for_each(|column| columns.extend(take![*column]));
        columns.extend(take![self.threads, self.discarded]);
        self.rows.batch(TableId::Dispatches, columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_not_known_where_a_size_may_stand_for_more() {
        let of = |kind, size, group| {
            let (name_id, encoder_id, device) = (None, None, None);
            let (start_ns, api_ns, process_id, pid, tid, api_id) = (0, 0, 1, 1, 1, 1);
            let row = Dispatch {
                start_ns,
                api_ns,
                process_id,
                pid,
                tid,
                api_id,
                device,
                name_id,
                encoder_id,
                kind,
                size,
                group,
                discarded: false,
            };
            row.threads()
        };
        assert_eq!(of(DispatchKind::Groups, [70_000, 65_534, 2], [1_024, 1, 1]), Some(70_000 * 65_534 * 2 * 1_024));
        assert_eq!(of(DispatchKind::Groups, [70_000, 65_535, 1], [1_024, 1, 1]), None);
        assert_eq!(of(DispatchKind::Groups, [1, 1, 1], [2_047, 1, 1]), None);
        assert_eq!(of(DispatchKind::Threads, [3_000_000_000, 1, 1], [64, 1, 1]), Some(3_000_000_000));
        assert_eq!(of(DispatchKind::Indirect, [0; 3], [64, 1, 1]), None);
    }
}
