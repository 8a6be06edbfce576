//! Command buffers on their way to their commit: which were seen made, and which have our handler.
//!
//! A commit adds one handler, once: it may be left by an exception and tried again. It asks its command buffer for nothing
//! (its label was told as it was set). Both are known by address from a small table, where a new command buffer takes the place of
//! an old one. One that is not in it (another has its place, or it was made while recording was paused, or nobody saw it made) is
//! asked.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::command_buffer::queue;
use super::{completed, names};
use crate::interpose::objc::{self, Id, send};

/// In an address of the table: a message returned the command buffer, so the collector knows its queue.
const SEEN: usize = 1;
/// Its end will be told.
const HEARD: usize = 2;

/// MTLCommandBufferStatus: nothing was committed yet up to this one (enqueued).
const ENQUEUED: usize = 1;

static BUFFERS: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
static NOWHERE: AtomicUsize = AtomicUsize::new(0);

#[inline(always)]
fn place(buffer: Id) -> &'static AtomicUsize {
    let address = buffer as usize;
    // The mask keeps the index inside; `get` with a fallback costs nothing and cannot panic.
    BUFFERS.get((address >> 4 ^ address >> 14) & 1023).unwrap_or(&NOWHERE)
}

/// A message returned a new command buffer, and was recorded or not. What was known of its address was of one that is gone.
#[inline(always)]
pub(super) fn made(buffer: Id, is_told: bool) {
    if !buffer.is_null() {
        place(buffer).store(if is_told { buffer as usize | SEEN } else { 0 }, Ordering::Relaxed);
    }
}

/// A command buffer is about to be committed: its end will be told. Returns its queue and the key of that one's label; zeros where
/// the collector knows them.
#[inline(always)]
pub(super) fn begin<const SLOT: usize>(buffer: Id) -> [u64; 2] {
    let (place, address) = (place(buffer), buffer as usize);
    let known = place.load(Ordering::Relaxed);
    let is_seen = known & !HEARD == address | SEEN;
    if known & !SEEN != address | HEARD {
        place.store(address | HEARD | if is_seen { SEEN } else { 0 }, Ordering::Relaxed);
        // One that was committed before takes no handlers, and its program is about to hear of it.
        if is_seen || send!(buffer, "status"; usize) <= ENQUEUED {
            completed::listen::<SLOT>(buffer);
        }
    }
    if is_seen { [0; 2] } else { whose(buffer) }
}

/// What the messages before this one did not tell: they were sent while recording was paused, or nobody saw them.
#[cold]
#[inline(never)]
fn whose(buffer: Id) -> [u64; 2] {
    let queue = queue(buffer);
    let of = queue as Id;
    [queue, if objc::responds(of, c"label") { names::label(send!(of, "label"; Id)) } else { 0 }]
}

/// Its handlers run: its address is about to be another one's.
pub(super) fn ended(buffer: Id) {
    let place = place(buffer);
    if place.load(Ordering::Relaxed) & !(SEEN | HEARD) == buffer as usize {
        place.store(0, Ordering::Relaxed);
    }
}
