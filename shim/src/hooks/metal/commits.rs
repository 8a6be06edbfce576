//! Command buffers on their way to their commit: which were seen made, and which have our handler.
//!
//! A commit adds one handler, once: it may be left by an exception and tried again. It asks its command buffer for nothing
//! (its label was told as it was set). Both are known by address from a small table, where a new command buffer takes the place of
//! an old one. One that is not in it (another has its place, or it was made while recording was paused, or nobody saw it made) is
//! asked.

use core::hint::cold_path;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::metal::AGAIN;

use super::command_buffer::{self, queue};
use super::{completed, names};
use crate::interpose::objc::{Id, send};
use crate::record::At;
use crate::thread::State;

/// In an address of the table: a message returned the command buffer, so the collector knows its queue.
const SEEN: usize = 1;
/// Its end will be told.
const HEARD: usize = 2;
/// Its commit was left by an exception, and has no event; Metal may have taken the work before.
const LEFT: usize = 4;

/// MTLCommandBufferStatus: nothing was committed yet up to this one (enqueued).
const ENQUEUED: usize = 1;

/// Places are [`BITS`] of a product: objects of one size stand at addresses of which few bits differ.
const BITS: u32 = 13;
static BUFFERS: [AtomicUsize; 1 << BITS] = [const { AtomicUsize::new(0) }; 1 << BITS];
/// When the commits began that were left, by the same places.
static STARTS: [AtomicU64; 1 << BITS] = [const { AtomicU64::new(0) }; 1 << BITS];
static NOWHERE: AtomicUsize = AtomicUsize::new(0);

#[inline(always)]
fn index(buffer: Id) -> usize {
    // Fibonacci hashing: 2 to the 64 over the golden ratio.
    ((buffer as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)) as usize
}

#[inline(always)]
fn place(buffer: Id) -> &'static AtomicUsize {
    // So many bits keep the index inside; `get` with a fallback costs nothing and cannot panic.
    BUFFERS.get(index(buffer)).unwrap_or(&NOWHERE)
}

/// A message returned a new command buffer, and was recorded or not. What was known of its address was of one that is gone.
#[inline(always)]
pub(super) fn made(buffer: Id, is_told: bool) {
    if !buffer.is_null() {
        place(buffer).store(if is_told { buffer as usize | SEEN } else { 0 }, Ordering::Relaxed);
    }
}

/// A command buffer is about to be committed: its end will be told. Returns its queue and the key of that one's label, zeros where
/// the collector knows them, and how many command buffers these are: one, or [`AGAIN`].
#[inline(always)]
pub(super) fn begin<const SLOT: usize>(buffer: Id, state: &State) -> [u64; 3] {
    state.notice_pause();
    let (place, address) = (place(buffer), buffer as usize);
    if place.load(Ordering::Relaxed) == address | SEEN {
        place.store(address | SEEN | HEARD, Ordering::Relaxed);
        completed::listen::<SLOT>(buffer);
        return [0, 0, 1];
    }
    cold_path();
    begin_unseen(buffer, completed::listen::<SLOT>)
}

/// The same of one that nobody saw made, or that was committed before.
#[cold]
#[inline(never)]
fn begin_unseen(buffer: Id, listen: fn(Id)) -> [u64; 3] {
    let (place, address) = (place(buffer), buffer as usize);
    let known = place.load(Ordering::Relaxed);
    let is_heard = known & !(SEEN | LEFT) == address | HEARD;
    let [is_seen, is_left] = [SEEN, LEFT].map(|bit| is_heard && known & bit != 0);
    let is_committed = command_buffer::status(buffer) > ENQUEUED;
    // What was left before is tried again, whether Metal had taken its work then or not: it has no event yet.
    let count = if is_committed && !is_left { AGAIN } else { 1 };
    // One that was committed before takes no handlers, and its program is about to hear of it. It may complete meanwhile, so nothing
    // more is remembered of it.
    if count != AGAIN {
        place.store(address | HEARD | if is_seen { SEEN } else { 0 }, Ordering::Relaxed);
    }
    if !is_heard && !is_committed {
        listen(buffer);
    }
    let [queue, label] = if is_seen { [0; 2] } else { whose(buffer) };
    [queue, label, count]
}

/// What the messages before this one did not tell: they were sent while recording was paused, or nobody saw them.
fn whose(buffer: Id) -> [u64; 2] {
    let queue = queue(buffer);
    [queue, names::label(send!(queue as Id, "label"; Id), At::UNKNOWN)]
}

/// Its commit, which began then, was left. Whether Metal has the work its end tells, which may be over.
pub(super) fn left(buffer: Id, start: u64) {
    let place = place(buffer);
    let known = place.load(Ordering::Relaxed);
    if known & !(SEEN | LEFT) == buffer as usize | HEARD && start != 0 {
        STARTS.get(index(buffer)).into_iter().for_each(|place| place.store(start, Ordering::Relaxed));
        // SYNC POINT: left. Release, with the Acquire of `ended`: the start is there. Its end may come at the same time.
        let _ = place.compare_exchange(known, known | LEFT, Ordering::Release, Ordering::Relaxed);
    }
}

/// Its handlers run: its address is about to be another one's. When its commit began, if that was left.
pub(super) fn ended(buffer: Id) -> Option<u64> {
    let place = place(buffer);
    let known = place.load(Ordering::Acquire);
    if known & !(SEEN | HEARD | LEFT) != buffer as usize {
        return None;
    }
    place.store(0, Ordering::Relaxed);
    let start = STARTS.get(index(buffer)).filter(|_| known & LEFT != 0);
    start.map(|start| start.load(Ordering::Relaxed))
}
