//! Metal's memory: buffers, heaps and textures that live, by address.
//!
//! Messages come in the order of their time, an allocation by its end and the end of an object by its begin; so what stands
//! at an address is what lives there at that time, and nothing that is gone need be remembered.

use std::collections::VecDeque;

use gputrace_abi::Class;
use gputrace_abi::event::detail;
use gputrace_abi::metal::storage;

use super::{Around, Message, Metal};
use crate::bindings::ByHandle;
use crate::process::resolve::size;
use crate::tables::Call;

/// Objects that are followed at a time; a hostile process could make them without end.
const MOST: usize = 1 << 20;
/// Rows between looks whether a batch is full.
const BATCH: u64 = 1 << 10;
/// Result of what Metal refused: it gives nil, and says no more.
const REFUSED: i32 = 1;

/// What lives at an address.
#[derive(Clone, Copy, Debug)]
struct Block {
    kind: u8,
    bytes: i64,
    label: Option<i64>,
    /// Which row its allocation is.
    nth: u64,
}

/// A row that waits for its block's label, which the program sets when it has the block.
#[derive(Debug)]
struct Row {
    call: Call,
    kind: u8,
    object: u64,
    bytes: i64,
    label: Option<i64>,
}

/// What lives.
#[derive(Debug, Default)]
pub(super) struct Memory {
    by_address: ByHandle<Block>,
    /// Rows in their order, and how many were written before them.
    rows: VecDeque<Row>,
    written: u64,
    /// Objects that there was no room for.
    beyond: u64,
}

impl Memory {
    fn take(&mut self, object: u64, block: Block) {
        if self.by_address.len() < MOST || self.by_address.contains_key(&object) {
            self.by_address.insert(object, block);
        } else {
            self.beyond += 1;
        }
    }

    /// What it is, one of [`gputrace_abi::event::detail`] of class Alloc.
    pub(super) fn kind(&self, object: u64) -> Option<u8> {
        self.by_address.get(&object).map(|block| block.kind)
    }

    /// A block is called so from now on: its allocation too, if its row is still here.
    pub(super) fn label(&mut self, object: u64, label: Option<i64>) {
        let Some(block) = self.by_address.get_mut(&object) else { return };
        block.label = label;
        let place = block.nth.checked_sub(self.written).and_then(|place| usize::try_from(place).ok());
        let row = place.and_then(|place| self.rows.get_mut(place));
        row.into_iter().for_each(|row| row.label = label);
    }

    /// Rows that are not written yet.
    pub(super) fn unwritten(&self) -> usize {
        self.rows.len()
    }

    /// Writes the first so many of them.
    pub(super) fn write(&mut self, rows: usize, around: &mut Around<'_>) {
        for Row { call, kind, object, bytes, label } in self.rows.drain(..rows.min(self.rows.len())) {
            self.written += 1;
            around.tables.memory(&call, kind, object as i64, bytes, label);
            if self.written.is_multiple_of(BATCH) {
                around.tables.settle();
            }
        }
    }

    /// What the manifest says of frees that are missing.
    pub(super) fn note(&self) -> Option<String> {
        let many = "Metal buffers, heaps and textures beyond the first";
        (self.beyond > 0).then(|| format!("{} {many} {MOST} that lived: their frees are not known", self.beyond))
    }
}

impl Metal {
    /// The row of memory that was taken or given back. A buffer of which no one was seen to take memory is part of a heap.
    pub(super) fn memory(&mut self, mut message: Message, around: &mut Around<'_>) {
        let [object, _, options, bytes] = message.payload;
        let taken = message.call.class == Class::Alloc;
        let block = match taken {
            true => {
                let nth = self.memory.written + self.memory.rows.len() as u64;
                Some(Block { kind: kind(options, message.detail), bytes: size(bytes), label: None, nth })
            }
            false => self.memory.by_address.remove(&object),
        };
        let Some(block) = block else {
            return around.tables.api(&message.call, object as i64, false);
        };
        match (taken, object) {
            (true, 0) => message.call.result = REFUSED,
            (true, _) => self.memory.take(object, block),
            (false, _) => {}
        }
        let Block { kind, bytes, label, .. } = block;
        self.memory.rows.push_back(Row { call: message.call, kind, object, bytes, label });
    }
}

/// Kind of memory that was taken: by the storage mode in its options, but for the program's own memory.
fn kind(options: u64, said: u8) -> u8 {
    match (said, storage::mode(options)) {
        (detail::REGISTERED | detail::PINNED | detail::MANAGED, _) => said,
        (_, storage::SHARED | storage::MANAGED) => detail::MANAGED,
        _ => detail::DEVICE,
    }
}
