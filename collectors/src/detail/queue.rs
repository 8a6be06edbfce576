//! Batches that wait for a moment worth keeping, bounded in time and in bytes.

use std::collections::VecDeque;

use arrow::array::RecordBatch;

use super::packed::{Packed, Packer};
use super::split::Part;
use crate::schema::TableId;
use crate::share::Share;

/// A batch that waits.
pub(super) struct Held {
    table: TableId,
    shares: Vec<Share>,
    span: (i64, i64),
    bytes: usize,
    rows: Rows,
}

enum Rows {
    Plain(RecordBatch),
    Packed(Packed),
}

impl Held {
    /// As it is, for a short while.
    pub(super) fn plain(part: Part) -> Held {
        let (span, bytes) = (part.span(), part.bytes());
        let (table, rows, shares) = part.into_parts();
        Held { table, shares, span, bytes, rows: Rows::Plain(rows) }
    }

    /// In as little room as it takes.
    fn packed(part: Part, packer: &mut Packer) -> Held {
        let mut held = Held::plain(part);
        let Rows::Plain(rows) = &held.rows else { return held };
        if let Some(packed) = packer.pack(rows) {
            held.bytes = packed.bytes() + size_of_val(held.shares.as_slice());
            held.rows = Rows::Packed(packed);
        }
        held
    }

    /// Begin of its first and of its last row.
    pub(super) fn span(&self) -> (i64, i64) {
        self.span
    }

    pub(super) fn shares(&self) -> &[Share] {
        &self.shares
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rows; where there is no memory for them, whose they were.
    pub(super) fn unpack(self) -> Result<Part, Vec<Share>> {
        let rows = match self.rows {
            Rows::Plain(rows) => Some(rows),
            Rows::Packed(packed) => packed.unpack(),
        };
        match rows {
            Some(rows) => Ok(Part::new(self.table, rows, self.shares)),
            None => Err(self.shares),
        }
    }
}

/// The batches in the order in which they came.
pub(super) struct Queue {
    held: VecDeque<Held>,
    bytes: usize,
    most_bytes: usize,
    /// Rows that began before were let go, some of them.
    complete_from_ns: i64,
    packer: Packer,
}

impl Queue {
    pub(super) fn new(most_bytes: usize) -> Queue {
        Queue { held: VecDeque::new(), bytes: 0, most_bytes, complete_from_ns: i64::MIN, packer: Packer::new() }
    }

    /// A batch that waits from now on.
    pub(super) fn push(&mut self, part: Part) {
        let held = Held::packed(part, &mut self.packer);
        self.put_back(held);
    }

    /// One that waited before.
    pub(super) fn put_back(&mut self, held: Held) {
        self.bytes += held.bytes;
        self.held.push_back(held);
    }

    /// The oldest batch, if all of it began before this moment, or if there are too many bytes: it will not come back.
    pub(super) fn pop(&mut self, oldest_ns: i64) -> Option<Held> {
        let too_many = self.bytes > self.most_bytes;
        let held = self.held.pop_front_if(|held| too_many || held.span.1 < oldest_ns)?;
        self.bytes -= held.bytes;
        self.complete_from_ns = self.complete_from_ns.max(held.span.1.saturating_add(1));
        Some(held)
    }

    /// All of it.
    pub(super) fn drain(&mut self) -> VecDeque<Held> {
        self.bytes = 0;
        std::mem::take(&mut self.held)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.iter()
    }

    /// No row that began since was let go.
    pub(super) fn complete_from_ns(&self) -> i64 {
        self.complete_from_ns
    }
}
