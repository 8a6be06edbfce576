//! Metal's memory: buffers, heaps and textures that live, by address.
//!
//! Messages come in the order of their time, an allocation by its end and the end of an object by its begin; so what stands
//! at an address is what lives there at that time, and nothing that is gone need be remembered.

use gputrace_abi::Class;
use gputrace_abi::event::detail;
use gputrace_abi::metal::storage;

use super::{Around, Message, Metal};
use crate::bindings::ByHandle;
use crate::process::resolve::size;

/// Objects that are followed at a time; a hostile process could make them without end.
const MOST: usize = 1 << 20;
/// Result of what Metal refused: it gives nil, and says no more.
const REFUSED: i32 = 1;

/// Its kind and size.
type Block = (u8, i64);

/// What lives.
#[derive(Debug, Default)]
pub(super) struct Memory {
    by_address: ByHandle<Block>,
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
        self.by_address.get(&object).map(|(kind, _)| *kind)
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
            true => Some((kind(options, message.detail), size(bytes))),
            false => self.memory.by_address.remove(&object),
        };
        let Some((kind, bytes)) = block else {
            return around.tables.api(&message.call, object as i64, false);
        };
        match (taken, object) {
            (true, 0) => message.call.result = REFUSED,
            (true, _) => self.memory.take(object, (kind, bytes)),
            (false, _) => {}
        }
        around.tables.memory(&message.call, kind, object as i64, bytes);
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
