//! Rows of `gpu_windows`.

use super::columns::{Coded, Plain, Rows, take};
use crate::schema::TableId;
use crate::writer::Message;

/// Texts of `kind`, and of `ended_by`, by [`gputrace_abi::gpu::reason`].
const REASONS: [&str; 10] =
    ["unknown", "full", "aside", "end", "window", "graphs", "shared", "version", "failed", "flush"];

/// A row of `gpu_windows`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuWindow {
    pub(crate) start_ns: i64,
    pub(crate) window_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    /// One of [`gputrace_abi::gpu::reason`].
    pub(crate) kind: u64,
    /// The same.
    pub(crate) ended_by: u64,
    pub(crate) lost: i64,
}

pub(super) struct GpuWindowColumns {
    rows: Rows,
    times: [Plain<i64>; 3],
    pid: Plain<i32>,
    reasons: [Coded; 2],
    lost: Plain<i64>,
}

impl Default for GpuWindowColumns {
    fn default() -> GpuWindowColumns {
        let reasons = [(); 2].map(|()| Coded::new(&REASONS));
        GpuWindowColumns {
            rows: Rows::default(),
            times: Default::default(),
            pid: Plain::default(),
            reasons,
            lost: Plain::default(),
        }
    }
}

impl GpuWindowColumns {
    pub(super) fn push(&mut self, row: &GpuWindow) {
        self.rows.count += 1;
        let times = [row.start_ns, row.window_ns, row.process_id];
        self.times.iter_mut().zip(times).for_each(|(column, value)| column.push(value));
        self.pid.push(row.pid);
        self.lost.push(row.lost);
        for (column, reason) in self.reasons.iter_mut().zip([row.kind, row.ended_by]) {
            column.push(if reason < REASONS.len() as u64 { reason as u8 } else { 0 });
        }
    }

    /// A batch of all rows: there are few.
    pub(super) fn take(&mut self) -> Option<Message> {
        if self.rows.count == 0 { None } else { self.batch() }
    }

    fn batch(&mut self) -> Option<Message> {
        let [start, length, process] = &mut self.times;
        let [kind, ended_by] = &mut self.reasons;
        let columns = take![*start, *length, *process, self.pid, *kind, *ended_by, self.lost];
        self.rows.batch(TableId::GpuWindows, columns)
    }
}

/// Rows of the windows that are open, for the journal: who reads a trace that is still written, or whose gputrace was killed, knows what
/// of them is told. Also of none, which takes the place of those before.
pub(crate) fn open_windows(open: impl IntoIterator<Item = GpuWindow>) -> Option<Message> {
    let mut columns = GpuWindowColumns::default();
    open.into_iter().for_each(|row| columns.push(&row));
    match columns.batch()? {
        Message::Rows(table, batch, _) => Some(Message::Live(table, batch)),
        _ => None,
    }
}
