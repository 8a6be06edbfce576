//! Operations of the GPU in the order of their begin.
//!
//! Each table's rows come nearly in that order: streams run beside each other, and their rows come when each one ends. So a
//! row finds its place near the end of a queue, and the two tables' queues are merged as they are read.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::trace::{NO_NAME, Rows};

/// What an operation is to the device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A kernel that computes.
    Kernel,
    /// A kernel of NCCL.
    Communication,
    /// A copy or set.
    Copy,
}

/// One operation of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) process_id: i64,
    /// Ordinal in the process.
    pub(crate) device: i32,
    pub(crate) stream: i64,
    /// Correlation id of the call.
    pub(crate) cause: i64,
    /// Kernel.
    pub(crate) name_id: i64,
    pub(crate) work: Work,
    /// Of a copy its direction, a number of [`super::Copies::texts`].
    pub(crate) direction: u16,
}

impl Operation {
    /// Stands for none at a time.
    pub(super) fn nothing(process_id: i64, device: i32, at: i64) -> Operation {
        let (cause, name_id) = (NO_CAUSE, NO_NAME);
        Operation {
            start: at,
            end: at,
            process_id,
            device,
            stream: 0,
            cause,
            name_id,
            work: Work::Kernel,
            direction: 0,
        }
    }
}

/// The columns that both tables of operations have.
pub(in crate::analysis::passes) struct Columns<'a> {
    start: Cow<'a, [i64]>,
    length: Cow<'a, [i64]>,
    process: Cow<'a, [i64]>,
    device: Cow<'a, [i32]>,
    stream: Cow<'a, [i64]>,
    cause: Cow<'a, [i64]>,
}

/// Stands for a row without a correlation id.
const NO_CAUSE: i64 = i64::MIN;

impl<'a> Columns<'a> {
    pub(in crate::analysis::passes) fn of(rows: &'a Rows) -> Columns<'a> {
        Columns {
            start: rows.i64("start_ns"),
            length: rows.i64("gpu_ns"),
            process: rows.i64("process_id"),
            device: rows.i32_or("device", -1),
            stream: rows.i64("stream"),
            cause: rows.i64_or("correlation_id", NO_CAUSE),
        }
    }

    /// The operation of a row; none where it ends before it begins.
    #[inline]
    pub(in crate::analysis::passes) fn operation(&self, row: usize, name_id: i64, work: Work) -> Option<Operation> {
        let (start, length) = (self.start[row], self.length[row]);
        (length >= 0).then(|| Operation {
            start,
            end: start.saturating_add(length),
            process_id: self.process[row],
            device: self.device[row],
            stream: self.stream[row],
            cause: self.cause[row],
            name_id,
            work,
            direction: 0,
        })
    }
}

/// Operations that have not been settled.
#[derive(Debug, Default)]
pub(in crate::analysis::passes) struct Order {
    tables: [VecDeque<Operation>; 2],
    /// Begin of the last one that was handed out.
    last: Option<i64>,
}

impl Order {
    /// Adds an operation. False: later ones were handed out already.
    #[inline]
    pub(in crate::analysis::passes) fn push(&mut self, table: usize, of: Operation) -> bool {
        let in_time = self.last.is_none_or(|last| last <= of.start);
        let queue = &mut self.tables[table];
        if queue.back().is_none_or(|last| last.start <= of.start) {
            queue.push_back(of);
        } else {
            let later = queue.iter().rev().take_while(|other| other.start > of.start).count();
            queue.insert(queue.len() - later, of);
        }
        in_time
    }

    /// Time begins anew.
    pub(in crate::analysis::passes) fn restart(&mut self) {
        self.last = None;
    }

    #[inline]
    fn begins(&self) -> [i64; 2] {
        [0, 1].map(|table| self.tables[table].front().map_or(i64::MAX, |of: &Operation| of.start))
    }

    /// Begin of the earliest one; the end of all time without any.
    #[inline]
    pub(super) fn begin(&self) -> i64 {
        let [first, second] = self.begins();
        first.min(second)
    }

    /// The earliest one, if it began before this time.
    #[inline]
    pub(in crate::analysis::passes) fn next(&mut self, before: i64) -> Option<Operation> {
        let [first, second] = self.begins();
        let table = usize::from(second < first);
        if first.min(second) >= before {
            return None;
        }
        self.last = Some(first.min(second));
        self.tables[table].pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_both_tables_come_by_their_begin() {
        let mut order = Order::default();
        let of = |start| Operation {
            start,
            end: start + 1,
            process_id: 1,
            device: 0,
            stream: 7,
            cause: 0,
            name_id: 0,
            work: Work::Kernel,
            direction: 0,
        };
        for (table, start) in [(0, 10), (0, 30), (0, 20), (0, 5), (1, 15), (1, 40), (1, 1)] {
            assert!(order.push(table, of(start)));
        }
        let mut seen = Vec::new();
        while let Some(of) = order.next(40) {
            seen.push(of.start);
        }
        assert_eq!(seen, [1, 5, 10, 15, 20, 30]);
        assert_eq!(order.next(41).map(|of| of.start), Some(40));
        assert!(!order.push(0, of(39)), "40 was handed out");
    }
}
