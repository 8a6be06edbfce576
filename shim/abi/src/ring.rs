//! The ring of one thread: a chain of chunks with one writer and one reader.
//!
//! A chunk is 32 KiB: a header and 511 slots of one event each, filled once from the first slot on. A full chunk is
//! closed and linked to the next one, which came from the segment's pool; the reader gives chunks back that it has
//! read. So an idle thread holds 32 KiB, a busy one as much as the collector lags behind, and nothing wraps around.
//!
//! **Write.** *Reserve*: add to the count of reserved slots; one instruction, so a signal handler that records in the
//! middle gets another slot. *Fill* the words 1 to 7. *Commit*: store word 0, whose commit word names the chunk's
//! generation and the slot's index. No other word tells the reader how far the writer is, so what is committed is
//! readable even if the writer is killed at the next instruction.
//!
//! **Read.** A slot is an event when its commit word is the one that this generation writes there. Left-overs of an
//! earlier use have another generation (23 bits: a left-over would have to survive 8 million uses of its chunk).
//! A reserved slot that was never committed (its writer was thrown out of a signal handler) is a *hole*: it is seen
//! when the chunk is closed or the writer is dead, and skipped by the reader's decision.
//!
//! **Shared chunks.** When the pool is empty, threads share one chain: the same slots, reserved by an exchange of
//! to one word that holds generation and index, so that a thread that slept through a whole use of the chunk reserves
//! in the present use or, where the chunk belongs to a thread now, nowhere. The one that finds no room says so in that
//! word with the same step; the chunk is closed by the thread that links the next one, which holds a lock.
//!
//! **Thrown out.** A signal handler may leave by siglongjmp, and what it interrupted never goes on. A thread that took
//! a chunk notes it, and the next attempt goes on with that one: it links it unless that was done. Whether it was, the
//! old chunk says, even when it has been read and is used by another thread ([`Chunk::is_unlinked`]).
//!
//! Invariants: only the owner writes a chunk's slots, `closed` and `next`; only the reader writes `consumed`; a chunk
//! is in exactly one place: the pool's free bits, one thread's chain, or the shared chain.

use crate::local;
pub use crate::slot::Slot;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Slots in a chunk.
pub const CHUNK_SLOTS: usize = 511;
/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = 64 * (CHUNK_SLOTS + 1);
/// `next` of the last chunk of a chain whose thread has ended.
pub const END: u32 = u32::MAX;
/// `owner` of a chunk of the shared chain.
pub const SHARED: u32 = u32::MAX;
/// `owner` of a chunk that holds no events.
pub const NO_CHAIN: u32 = u32::MAX - 1;

const GENERATION_BITS: u32 = 23;
const INDEX_BITS: u32 = 32 - GENERATION_BITS;

/// The word whose presence says that the slot `index` holds an event of the chunk's use number `generation`.
#[inline(always)]
pub const fn commit_word(generation: u32, index: u32) -> u32 {
    generation << INDEX_BITS | index
}

/// The index of the slot that has this commit word.
pub const fn index_of(commit: u32) -> u32 {
    commit & ((1 << INDEX_BITS) - 1)
}

/// The generation after this one; never 0, which is what fresh memory holds.
pub const fn next_generation(generation: u32) -> u32 {
    let next = (generation + 1) & ((1 << GENERATION_BITS) - 1);
    if next == 0 { 1 } else { next }
}

/// The first 64 bytes of a chunk.
///
/// | offset | size | field | who writes |
/// |---|---|---|---|
/// | 0 | 4 | `generation` | taker |
/// | 4 | 4 | `owner`: row of the thread table or [`SHARED`] | taker |
/// | 8 | 4 | `next`: number of the next chunk + 1, 0 not yet, [`END`] | owner |
/// | 12 | 4 | `closed`: slots reserved + 1, 0 while open | owner |
/// | 16 | 8 | `reserved`: generation << 32, slots reserved; all slots + 1 + those used where there is no room for anybody but an owner | any thread |
/// | 24 | 4 | `consumed`: slots read | reader |
#[repr(C, align(64))]
pub struct ChunkHeader {
    generation: AtomicU32,
    owner: AtomicU32,
    next: AtomicU32,
    closed: AtomicU32,
    reserved: AtomicU64,
    consumed: AtomicU32,
}

/// A header and `N` slots.
#[repr(C)]
pub struct Chunk<const N: usize = CHUNK_SLOTS> {
    header: ChunkHeader,
    slots: [Slot; N],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Slot>() == 64);
    assert!(size_of::<ChunkHeader>() == 64);
    assert!(size_of::<Chunk>() == CHUNK_BYTES);
    assert!(CHUNK_BYTES == 32768);
    assert!(CHUNK_SLOTS < 1 << INDEX_BITS);
    assert!(core::mem::offset_of!(ChunkHeader, reserved) == 16);
    assert!(core::mem::offset_of!(ChunkHeader, consumed) == 24);
};

impl<const N: usize> Default for Chunk<N> {
    /// A chunk as it is in fresh memory: zeros.
    fn default() -> Chunk<N> {
        let [generation, owner, next, closed, consumed] = core::array::from_fn(|_| AtomicU32::new(0));
        let header = ChunkHeader { generation, owner, next, closed, reserved: AtomicU64::new(0), consumed };
        let slot = |_| Slot::empty();
        Chunk { header, slots: core::array::from_fn(slot) }
    }
}

impl<const N: usize> Chunk<N> {
    /// Makes the chunk ready for a new owner, who must have taken it from the pool, and returns its generation.
    pub fn open(&self, owner: u32) -> u32 {
        let generation = next_generation(self.header.generation.load(Ordering::Relaxed));
        self.header.generation.store(generation, Ordering::Relaxed);
        self.header.owner.store(owner, Ordering::Relaxed);
        // SYNC POINT: relink. Release, with the Acquire in `is_unlinked`: who sees this use's empty link sees its generation.
        self.header.next.store(0, Ordering::Release);
        self.header.closed.store(0, Ordering::Relaxed);
        self.header.consumed.store(0, Ordering::Relaxed);
        let reserved = if owner == SHARED { 0 } else { N as u64 + 1 }; // full, none used
        // SYNC POINT: reopen. Release, with the Acquire in `reserve_shared`: a thread that still knows the chunk from an
        // earlier use writes its slots after those of that use.
        self.header.reserved.store(u64::from(generation) << 32 | reserved, Ordering::Release);
        generation
    }

    /// Taker: nothing that stands in the chunk is an event.
    pub fn lend(&self) {
        self.header.owner.store(NO_CHAIN, Ordering::Relaxed);
    }

    /// The generation of the present use.
    pub fn generation(&self) -> u32 {
        self.header.generation.load(Ordering::Relaxed)
    }

    /// Row of the thread table of the owner, or [`SHARED`].
    pub fn owner(&self) -> u32 {
        self.header.owner.load(Ordering::Relaxed)
    }

    /// The slot with this index.
    #[inline(always)]
    pub fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize)
    }

    /// Owner: no slot at or after `used` will be written.
    pub fn close(&self, used: u32) {
        // SYNC POINT: close. Release, with the Acquire in `Cursor::step`: the slots before it are committed.
        self.header.closed.store(used.min(N as u32) + 1, Ordering::Release);
    }

    /// Owner: the chain goes on in chunk `next`, which is open.
    pub fn link(&self, next: u32) {
        // SYNC POINT: link. Release, with the Acquire in `Cursor::step`: the next chunk's header is written.
        self.header.next.store(next + 1, Ordering::Release);
    }

    /// Owner: the chain ends here.
    pub fn link_end(&self) {
        // SYNC POINT: link, as in `link`.
        self.header.next.store(END, Ordering::Release);
    }

    /// Owner: whether the use number `generation` of the chunk still ends its chain; not once it was linked, whatever it is since.
    pub fn is_unlinked(&self, generation: u32) -> bool {
        // SYNC POINT: relink. Acquire, with the Release in `open`.
        self.header.next.load(Ordering::Acquire) == 0 && self.generation() == generation
    }

    /// Any thread, on a chunk that is or was of the shared chain: reserves `n` slots; returns the commit word and the
    /// index of the first. None: there is no room, nor will there be.
    pub fn reserve_shared(&self, n: u32) -> Option<(u32, u32)> {
        let full = N as u32;
        let mut word = self.header.reserved.load(Ordering::Relaxed);
        loop {
            let (generation, first) = ((word >> 32) as u32, word as u32);
            if first > full {
                return None;
            }
            let fits = first + n <= full;
            let next = u64::from(generation) << 32 | u64::from(if fits { first + n } else { full + 1 + first });
            // SYNC POINT: reopen. Acquire, with the Release in `open`.
            match self.header.reserved.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return fits.then_some((commit_word(generation, first), first)),
                Err(now) => word = now,
            }
        }
    }

    /// The thread that reserved the slot with this commit word: whether it has still to write it, whatever the chunk is used for since.
    pub fn awaits(&self, commit: u32) -> bool {
        // The slot first: while it is not written its chunk stays in the use that reserved it, and a later use shows its generation.
        self.slot(index_of(commit)).is_some_and(|slot| slot.committed(commit).is_none())
            && commit_word(self.generation(), index_of(commit)) == commit
    }

    /// How many slots of a shared chunk are used, once there is no room in it.
    pub fn full_at(&self) -> Option<u32> {
        (self.header.reserved.load(Ordering::Relaxed) as u32).checked_sub(N as u32 + 1)
    }

    /// Reader: whether this place of a shared chunk was reserved, or one behind it.
    pub fn is_reserved_from(&self, index: u32) -> bool {
        let reserved = self.header.reserved.load(Ordering::Relaxed) as u32;
        self.owner() == SHARED && self.full_at().unwrap_or(reserved) > index
    }

    /// The chunk with which the chain goes on; none: that is not known yet, or it ends here.
    pub fn next(&self) -> Option<u32> {
        // SYNC POINT: link. Acquire, with the Release in `link`.
        match self.header.next.load(Ordering::Acquire) {
            0 | END => None,
            next => Some(next - 1),
        }
    }

    /// Whether its first slot was written in the present use.
    pub fn is_begun(&self) -> bool {
        self.slot(0).is_some_and(|slot| slot.committed(commit_word(self.generation(), 0)).is_some())
    }

    /// Whether somebody closed it.
    pub fn is_closed(&self) -> bool {
        self.header.closed.load(Ordering::Acquire) != 0
    }

    /// Reader: slots up to here were read, for a reader that takes over.
    pub fn set_consumed(&self, count: u32) {
        self.header.consumed.store(count, Ordering::Relaxed);
    }

    /// Slots that an earlier reader had read.
    pub fn consumed(&self) -> u32 {
        self.header.consumed.load(Ordering::Relaxed).min(N as u32)
    }
}

/// Where a thread writes next: chunk, generation and index in one word, so that one addition reserves all three.
///
/// Were they three words, a signal handler that switches chunks between two reads would make its thread write with
/// the index of one chunk into another.
pub struct Tail(AtomicU64);

/// A place that was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the chunk.
    pub chunk: u32,
    /// Commit word of the slot; of the next slot, add 1.
    pub commit: u32,
    /// Index of the slot. Past the end of the chunk nothing was reserved.
    pub index: u32,
}

const TAIL_INDEX_BITS: u32 = 25;

impl Tail {
    /// A tail without a chunk: whatever is reserved lies past the end.
    #[cfg(not(loom))]
    pub const fn none() -> Tail {
        Tail(AtomicU64::new(CHUNK_SLOTS as u64))
    }

    /// A tail without a chunk; loom's atomics cannot be made in constants.
    #[cfg(loom)]
    pub fn none() -> Tail {
        Tail(AtomicU64::new(CHUNK_SLOTS as u64))
    }

    /// Owner: goes on at the first slot of an opened chunk.
    pub fn set(&self, chunk: u32, generation: u32) {
        let word = u64::from(chunk) << 48 | u64::from(generation) << TAIL_INDEX_BITS;
        self.0.store(word, Ordering::Relaxed);
    }

    /// Owner: has no chunk any more.
    pub fn clear(&self) {
        self.0.store(CHUNK_SLOTS as u64, Ordering::Relaxed);
    }

    /// Owner: whether it stands in a chunk, full or not.
    pub fn has_chunk(&self) -> bool {
        self.0.load(Ordering::Relaxed) >> TAIL_INDEX_BITS != 0
    }

    /// The generation of the chunk that it stands in.
    pub fn generation(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) >> TAIL_INDEX_BITS) as u32 & ((1 << GENERATION_BITS) - 1)
    }

    /// Owner: sets the index back to the chunk's end when failed reservations have made it grow.
    pub fn park(&self, index: u32) {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(word >> TAIL_INDEX_BITS << TAIL_INDEX_BITS | u64::from(index), Ordering::Relaxed);
    }

    /// Reserves `n` slots. Safe against signal handlers of the owning thread, which alone may call it.
    #[inline(always)]
    pub fn reserve(&self, n: u32) -> Place {
        Self::place(local::fetch_add(&self.0, u64::from(n)))
    }

    /// The next place, without reserving it.
    pub fn peek(&self) -> Place {
        Self::place(self.0.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn place(word: u64) -> Place {
        let index = word as u32 & ((1 << TAIL_INDEX_BITS) - 1);
        Place { chunk: (word >> 48) as u32, commit: commit_word((word >> TAIL_INDEX_BITS) as u32, 0) | index, index }
    }
}

/// Where chunks are found by number.
pub trait Chunks<const N: usize> {
    /// The chunk with this number; none for a number out of range, which a hostile writer may have stored.
    fn chunk(&self, number: u32) -> Option<&Chunk<N>>;
}

/// What a reader finds at its cursor.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The next event; the cursor moved past it.
    Words([u64; 8]),
    /// Nothing yet.
    Empty,
    /// A reserved slot that is not committed although its chunk is closed or its writer dead. Wait or [`Cursor::skip`].
    Hole,
    /// This chunk is read to its end and the cursor moved on: give it back to the pool.
    Finished(u32),
    /// This chunk is read to its end and the chain ends: give it back.
    Ended(u32),
    /// The chain leads out of the pool: stop reading it.
    Broken,
}

/// A reader's place in one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Number of the chunk.
    pub chunk: u32,
    /// Index of the next slot.
    pub index: u32,
    generation: u32,
}

impl Cursor {
    /// A cursor at the first slot of `chunk` that no earlier reader has read.
    pub fn new<const N: usize>(chunks: &impl Chunks<N>, chunk: u32) -> Option<Cursor> {
        let at = chunks.chunk(chunk)?;
        Some(Cursor { chunk, index: at.consumed(), generation: at.generation() })
    }

    /// Reads the next event. `dead`: the writer will write no more, so what is missing is a hole or the end.
    #[inline]
    pub fn step<const N: usize>(&mut self, chunks: &impl Chunks<N>, dead: bool) -> Step {
        let Some(chunk) = chunks.chunk(self.chunk) else { return Step::Broken };
        if let Some(words) = self.read(chunk) {
            return Step::Words(words);
        }
        // SYNC POINT: close. Acquire, with the Release in `Chunk::close`: a slot before it that was committed by the
        // closing thread is visible now, so it is read once more before it is called a hole.
        let closed = chunk.header.closed.load(Ordering::Acquire);
        if closed == 0 {
            return self.at_open_end(chunk, dead);
        }
        if closed - 1 > self.index && self.index < N as u32 {
            return self.read(chunk).map_or(Step::Hole, Step::Words);
        }
        // SYNC POINT: link. Acquire, with the Release in `Chunk::link`: the next chunk's header is visible.
        match chunk.header.next.load(Ordering::Acquire) {
            0 => Step::Empty,
            END => Step::Ended(self.chunk),
            next => match Cursor::new(chunks, next - 1) {
                Some(cursor) if next - 1 != self.chunk => {
                    let finished = self.chunk;
                    *self = cursor;
                    Step::Finished(finished)
                }
                _ => Step::Broken,
            },
        }
    }

    /// The commit word of the next slot.
    pub fn commit(&self) -> u32 {
        commit_word(self.generation, self.index)
    }

    /// Passes over a hole.
    ///
    /// While the process lives, the thread that reserved the slot may only be descheduled, and would write into
    /// whatever the chunk is used for next: a chunk with a skipped hole of a living process must not be given back.
    pub fn skip(&mut self) {
        self.index += 1;
    }

    #[inline(always)]
    fn read<const N: usize>(&mut self, chunk: &Chunk<N>) -> Option<[u64; 8]> {
        let words = chunk.slot(self.index)?.committed(commit_word(self.generation, self.index))?;
        self.index += 1;
        Some(words)
    }

    /// An open chunk of a dead writer may hold committed slots after a hole.
    fn at_open_end<const N: usize>(&self, chunk: &Chunk<N>, dead: bool) -> Step {
        let later = |i: u32| chunk.slot(i).and_then(|s| s.committed(commit_word(self.generation, i))).is_some();
        if dead && (self.index..N as u32).any(later) { Step::Hole } else { Step::Empty }
    }
}
