//! Queue length: operations of a stream whose call has begun and that have not begun themselves (HTA).
//!
//! Streams are queues: calls begin in the order in which their operations do. So when an operation comes, every earlier one
//! that began before this one's call has left the queue.

use std::collections::VecDeque;

use super::calls::Call;
use super::order::Operation;
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::stats::Stats;
use crate::analysis::passes::timeline::Timeline;

/// A stream with so many operations takes no more: the next launch call blocks.
pub(crate) const FULL: usize = 1024;
/// Streams that are kept apart.
const STREAMS: usize = 4096;

/// One stream's queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Operations that came.
    pub(crate) operations: u64,
    /// The length after each call and each begin, as HTA's series has it.
    pub(crate) lengths: Stats,
    /// Time at each length, times the length; and all time.
    pub(crate) weighted: (f64, i64),
    /// Time with [`FULL`] operations or more.
    pub(crate) full_ns: i64,
    /// Begins of operations that were called and, as far as is known, have not begun.
    waiting: VecDeque<i64>,
    at: Option<i64>,
    /// The length over time.
    pub(crate) over_time: Timeline,
}

impl Queue {
    fn pass(&mut self, to: i64) {
        let ns = self.at.map_or(0, |at| (to - at).max(0));
        let length = self.waiting.len();
        self.weighted = (self.weighted.0 + length as f64 * ns as f64, self.weighted.1 + ns);
        if length >= FULL {
            self.full_ns += ns;
        }
        self.at = Some(self.at.map_or(to, |at| at.max(to)));
    }

    fn leave(&mut self, until: i64) {
        while let Some(begin) = self.waiting.front().copied().filter(|begin| *begin <= until) {
            self.pass(begin);
            self.waiting.pop_front();
            self.changed(begin);
        }
    }

    #[inline]
    fn add(&mut self, call: i64, begin: i64) {
        self.operations += 1;
        // At the same time a call counts before a begin, as HTA has it: clocks of whole us have many such.
        self.leave(call - 1);
        self.pass(call);
        // A clock that lags may let an operation begin before its call.
        self.waiting.push_back(begin.max(call));
        self.changed(call);
    }

    #[inline]
    fn changed(&mut self, at: i64) {
        let length = self.waiting.len() as i64;
        self.lengths.add(length);
        self.over_time.set(at, length);
    }

    /// The mean length over time.
    pub(crate) fn mean(&self) -> f64 {
        if self.weighted.1 > 0 { self.weighted.0 / self.weighted.1 as f64 } else { 0.0 }
    }
}

/// The queues of all streams, by process, device and stream.
#[derive(Debug)]
pub(crate) struct Queues(pub(crate) Groups<(i64, i32, i64), Queue>);

impl Default for Queues {
    fn default() -> Queues {
        Queues(Groups::new(STREAMS, (OTHER, 0, OTHER)))
    }
}

impl Queues {
    #[inline]
    pub(super) fn add(&mut self, of: &Operation, call: &Call) {
        self.0.at((of.process_id, of.device, of.stream)).add(call.start, of.start);
    }

    pub(super) fn end(&mut self) {
        self.0.values_mut().for_each(|queue| queue.leave(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_counts_calls_that_have_not_begun_to_run() {
        let mut queue = Queue::default();
        // Three calls at 0, 10, 20; their operations begin at 100, 110, 200.
        for (call, begin) in [(0, 100), (10, 110), (20, 200)] {
            queue.add(call, begin);
        }
        queue.leave(i64::MAX);
        assert_eq!((queue.lengths.max, queue.lengths.count), (3, 6));
        // 1 from 0, 2 from 10, 3 from 20, 2 from 100, 1 from 110, 0 from 200.
        assert_eq!(queue.weighted, (10.0 + 20.0 + 240.0 + 20.0 + 90.0, 200));
        assert_eq!(queue.full_ns, 0);
    }

    #[test]
    fn at_the_same_time_a_call_counts_before_a_begin() {
        let mut queue = Queue::default();
        for call in [0, 10, 20] {
            queue.add(call, call + 10);
        }
        queue.leave(i64::MAX);
        // 1, then 2 and 1 at 10 and at 20, then 0: what HTA makes of +1, +1, -1, +1, -1, -1.
        assert_eq!((queue.lengths.max, queue.lengths.count, queue.lengths.sum), (2, 6, 7));
        assert_eq!(queue.weighted, (30.0, 30));
    }

    #[test]
    fn a_full_queue_is_timed() {
        let mut queue = Queue::default();
        for call in 0..FULL as i64 + 1 {
            queue.add(call, 10_000 + call);
        }
        queue.leave(i64::MAX);
        assert_eq!(queue.full_ns, 10_001 - (FULL as i64 - 1));
    }
}
