//! Batches that wait for a moment worth keeping, bounded in time and in bytes.

use std::collections::VecDeque;

use super::split::Part;

/// A batch that waits.
pub(super) struct Held {
    pub(super) part: Part,
    /// Begin of its last row.
    pub(super) last_ns: i64,
    bytes: usize,
}

impl Held {
    pub(super) fn new(part: Part) -> Held {
        Held { last_ns: part.span().1, bytes: part.bytes(), part }
    }
}

/// The batches in the order in which they came.
pub(super) struct Queue {
    held: VecDeque<Held>,
    bytes: usize,
    most_bytes: usize,
    /// Rows that began before were let go, some of them.
    complete_from_ns: i64,
}

impl Queue {
    pub(super) fn new(most_bytes: usize) -> Queue {
        Queue { held: VecDeque::new(), bytes: 0, most_bytes, complete_from_ns: i64::MIN }
    }

    pub(super) fn push(&mut self, held: Held) {
        self.bytes += held.bytes;
        self.held.push_back(held);
    }

    /// The oldest batch, if all of it began before this moment, or if there are too many bytes: it will not come back.
    pub(super) fn pop(&mut self, oldest_ns: i64) -> Option<Held> {
        let too_many = self.bytes > self.most_bytes;
        let held = self.held.pop_front_if(|held| too_many || held.last_ns < oldest_ns)?;
        self.bytes -= held.bytes;
        self.complete_from_ns = self.complete_from_ns.max(held.last_ns.saturating_add(1));
        Some(held)
    }

    /// All of it.
    pub(super) fn drain(&mut self) -> Vec<Held> {
        self.bytes = 0;
        self.held.drain(..).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.iter()
    }

    /// No row that began since was let go.
    pub(super) fn complete_from_ns(&self) -> i64 {
        self.complete_from_ns
    }
}
