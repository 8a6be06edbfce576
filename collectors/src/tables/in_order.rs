//! What the GPU did for several processes, brought into one order of time.
//!
//! Each process is told of its work in bursts, when a buffer is full or its records are asked for, so that the rows of one come
//! a quarter of a second after those of another that shares its GPU. Readers go through a table from its begin to its end, and
//! take time in which nothing ran for idle time. So rows wait here until no process can have earlier ones.

use std::collections::{BTreeMap, VecDeque};

use super::{BATCH_ROWS, OnGpu, Tables, Worked};

/// Rows that wait at most, of all processes (some 400 MB).
const MOST_HELD: usize = 1 << 21;

/// The rows of each process, in the order of their begin.
#[derive(Default)]
pub(super) struct InOrder {
    queues: BTreeMap<i64, VecDeque<(OnGpu, Worked)>>,
    held: usize,
}

impl InOrder {
    fn push(&mut self, of: OnGpu, worked: Worked) {
        self.queues.entry(of.process_id).or_default().push_back((of, worked));
        self.held += 1;
    }

    /// The earliest row, if it began before this time.
    fn next(&mut self, before_ns: i64) -> Option<(OnGpu, Worked)> {
        let begin = |queue: &VecDeque<(OnGpu, Worked)>| queue.front().map_or(i64::MAX, |(of, _)| of.start_ns);
        let (_, earliest) = self.queues.iter_mut().min_by_key(|(_, queue)| begin(queue))?;
        if begin(earliest) >= before_ns {
            return None;
        }
        self.held -= 1;
        earliest.pop_front()
    }
}

impl Tables {
    /// Adds a row of a process, whose earlier ones are there, to `kernels` or to `device_copies`, once it is its turn.
    pub(crate) fn worked(&mut self, of: OnGpu, worked: Worked) {
        self.in_order.push(of, worked);
    }

    /// Writes what began before this time: no process has earlier rows to come.
    pub(crate) fn write_worked(&mut self, before_ns: i64) {
        let too_many = self.in_order.held.saturating_sub(MOST_HELD);
        for written in 0.. {
            let before_ns = if written < too_many { i64::MAX } else { before_ns };
            let Some((of, worked)) = self.in_order.next(before_ns) else { break };
            self.on_gpu(&of, &worked);
            if written % BATCH_ROWS == 0 {
                self.settle();
            }
        }
        if self.in_order.held == 0 {
            // Those of processes that have ended, and what a burst took.
            self.in_order.queues.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Kernel;

    #[test]
    fn rows_of_processes_come_in_one_order_as_far_as_all_are_known() {
        let mut order = InOrder::default();
        let rows = [(1, 10), (1, 30), (1, 50), (2, 20), (2, 40), (2, 60)];
        for (process_id, start_ns) in rows {
            let of = OnGpu { process_id, start_ns, ..OnGpu::default() };
            order.push(of, Worked::Kernel(Kernel::default()));
        }
        let mut until = |before_ns| std::iter::from_fn(|| order.next(before_ns)).map(|(of, _)| of.start_ns).collect();
        let parts: [Vec<i64>; 3] = [until(40), until(40), until(i64::MAX)];
        assert_eq!(parts, [vec![10, 20, 30], vec![], vec![40, 50, 60]]);
        assert_eq!(order.held, 0);
    }
}
