//! The segment: one block of memory that a traced process shares with the collector.
//!
//! | offset | size | part |
//! |---|---|---|
//! | 0 | 4,096 | [`Header`] |
//! | 4,096 | 12,288 | information texts: (tag u16, bytes u16, text)*, ended by tag 0 ([`info`]) |
//! | 16,384 | 65,536 | hook table: 1,024 rows of 64 bytes ([`HookRow`]) |
//! | 81,920 | 2,097,152 | thread table: 4,096 rows of 512 bytes ([`ThreadRow`]) |
//! | 2,179,072 | 524,288 | counters of calls: 64 blocks of 1,024 words, a word for each hook ([`View::counters`]) |
//! | 2,703,360 | 32,768 each | chunks ([`crate::ring::Chunk`]), at most 1,024 |
//! | behind them | 1,048,640 | blocks of malloc that nothing was told of yet ([`crate::pending`]), where short lives are summed up |
//!
//! Memory that nobody touches costs nothing: a process without events has seven pages.
//! Every field is an atomic, so that a writer who breaks the rules can spoil values but not the reader.

use crate::arenas::Arenas;
use crate::clock::ClockPair;
pub use crate::hook_row::{HookInfo, HookRow, NAME_BYTES, hook_flag, route};
pub use crate::note;
use crate::pool;
use crate::ring::{CHUNK_BYTES, Chunk, Chunks};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Offset of the information texts.
pub const INFO_AT: usize = 4096;
/// Bytes of the information texts.
pub const INFO_BYTES: usize = 12288;
/// Offset of the hook table.
pub const HOOKS_AT: usize = INFO_AT + INFO_BYTES;
/// Rows of the hook table.
pub const HOOKS_MAX: usize = 1024;
/// Offset of the thread table.
pub const THREADS_AT: usize = HOOKS_AT + HOOKS_MAX * 64;
/// Rows of the thread table. A thread beyond them is counted, not recorded.
pub const THREADS_MAX: usize = 4096;
/// Offset of the counters.
pub const COUNTERS_AT: usize = THREADS_AT + THREADS_MAX * 512;
/// Blocks of counters. The first is everybody's, and added to atomically; a thread has another one to itself.
pub const COUNTER_BLOCKS: usize = 64;
/// The block that is everybody's.
pub const SHARED_COUNTERS: u32 = 0;
/// Offset of the first chunk.
pub const CHUNKS_AT: usize = COUNTERS_AT + COUNTER_BLOCKS * HOOKS_MAX * 8;
/// The smallest segment that a process starts with: 32 chunks.
pub const SMALLEST_BYTES: u64 = (CHUNKS_AT + 32 * crate::ring::CHUNK_BYTES) as u64;
/// A process's segment takes at most this part of RLIMIT_AS.
pub const ADDRESS_SPACE_SHARE: u64 = 8;
/// Most chunks that a segment can have.
pub const CHUNKS_MAX: usize = 1024;
/// Chunks at the end of the pool that only the shared chain may take, so that threads without one still record.
pub const CHUNKS_FOR_SHARED: usize = 16;
/// Set in [`Header::said_exit`] when it holds a number.
pub const SAID_EXIT: u32 = 0x100;
/// Room for counters by class.
pub const CLASSES: usize = 16;

/// Calls of each hook whose calls are counted only. Nobody ever sets one back: the next thread goes on counting.
pub type Counters = [AtomicU64; HOOKS_MAX];

/// Chunks in a segment of this size; 0 when it is too small to be one.
pub const fn chunks_in(segment_bytes: u64) -> u32 {
    let n = (segment_bytes.saturating_sub(CHUNKS_AT as u64) / CHUNK_BYTES as u64) as usize;
    if n > CHUNKS_MAX { CHUNKS_MAX as u32 } else { n as u32 }
}

/// Tags of the information texts.
pub mod info {
    /// End of the texts.
    pub const END: u16 = 0;
    /// Path of the executable.
    pub const EXE: u16 = 1;
    /// Arguments, each ended by a zero byte.
    pub const COMMAND: u16 = 2;
    /// `NAME=value` of one of the variables by which launchers tell a rank, how many there are, and which devices to see.
    pub const VARIABLE: u16 = 3;
    /// Shared library path of the shim itself.
    pub const SHIM: u16 = 4;
}

/// How malloc is recorded, in [`Header::malloc_mode`].
pub mod malloc_mode {
    /// Not at all.
    pub const OFF: u32 = 0;
    /// One allocation in so many bytes, by a Poisson process.
    pub const SAMPLE: u32 = 1;
    /// Every call.
    pub const FULL: u32 = 2;
}

/// Places in [`Header::stacks`]: what came of looking for a stack.
pub mod stacks {
    /// Python frames.
    pub const PYTHON: usize = 0;
    /// Native frames.
    pub const NATIVE: usize = 1;
    /// Nothing that could be read.
    pub const NONE: usize = 2;
    /// The thread may run Python, but of a version or in a form that is not known; one of the others as well.
    pub const UNREAD: usize = 3;
    /// How many kinds there are.
    pub const COUNT: usize = 4;
}

/// Length of [`Header::switched`].
pub const SWITCHES_KEPT: usize = 64;

/// The first page of the segment. Fields above `paused` are written once, before the segment is handed over.
#[repr(C)]
pub struct Header {
    /// [`crate::MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::VERSION`].
    pub version: AtomicU32,
    /// [`crate::clock::ClockKind`].
    pub clock: AtomicU32,
    /// Size of the whole segment.
    pub segment_bytes: AtomicU64,
    /// The process's own view of its pid.
    pub pid: AtomicU32,
    /// Its parent's pid.
    pub parent_pid: AtomicU32,
    /// 1 when the process was forked from a traced one and has not called exec.
    pub forked: AtomicU32,
    /// One of [`malloc_mode`].
    pub malloc_mode: AtomicU32,
    /// Mean distance of samples in bytes.
    pub sample_bytes: AtomicU64,
    /// A moment on three clocks when the segment was made: ticks, monotonic ns, realtime ns.
    pub started: [AtomicU64; 3],
    /// Rows of the hook table in use.
    pub hook_count: AtomicU32,
    /// Chunks in the pool.
    pub chunk_count: AtomicU32,
    /// 1: a thread that finds the pool empty waits for the collector; 0: it drops.
    pub block_when_full: AtomicU32,
    /// Bits of [`note`].
    pub notes: AtomicU32,
    /// Not 0: nothing is recorded. Set by the program itself or by a collector.
    pub paused: AtomicU32,
    /// Last chunk of the shared chain + 1; 0 when there is none.
    pub shared: AtomicU32,
    /// First chunk of the shared chain + 1.
    pub shared_first: AtomicU32,
    /// Row + 1 of the thread that links a new shared chunk; others drop meanwhile. 0: none does.
    pub shared_lock: AtomicU32,
    /// Measured cost of recording one driver event, in 1/256 ticks; 0 when not measured.
    pub event_cost: AtomicU64,
    /// Measured cost of one sampled-out malloc with its free, or of each of the two where short lives are summed up, in 1/256 ticks.
    pub malloc_cost: AtomicU64,
    /// Ticks when the collector last looked.
    pub heartbeat: AtomicU64,
    /// Calls made inside another hooked call, by the driver itself or by a signal handler: not counted as seen.
    pub nested: AtomicU64,
    /// Stacks that were looked for, by [`stacks`].
    pub stacks: [AtomicU64; stacks::COUNT],
    /// Calls of threads that found no row in the thread table, by class: seen and dropped.
    pub rowless: [AtomicU64; CLASSES],
    /// Free chunks, a bit each.
    pub free_chunks: [AtomicU64; CHUNKS_MAX / 64],
    /// Blocks of counters that were ever used: the rest is zero.
    pub counter_blocks: AtomicU32,
    /// [`SAID_EXIT`] and the number that the process gave to exit or _exit; 0: it called neither.
    pub said_exit: AtomicU32,
    /// Blocks of counters that no thread has, a bit each.
    pub free_counters: [AtomicU64; COUNTER_BLOCKS / 64],
    /// What cuDriverGetVersion said after the first cuInit that succeeded; 0 before.
    pub driver_version: AtomicU32,
    /// The highest CUDA version with which anybody asked cuGetProcAddress for a function; 0: nobody did.
    pub asked_version: AtomicU32,
    /// Ticks when [`Header::said_exit`] was written.
    pub said_at: AtomicU64,
    /// The heartbeat + 1 at which a thread that waited for room gave up: none waits until it moves again.
    pub gave_up: AtomicU64,
    /// The collector's process as this one sees it; 0 where it does not.
    pub listener: AtomicU32,
    /// The chunk + 1 that is to be linked to the shared chain, and [`SHARED_OPEN`]; 0: none is. Of who holds the lock.
    pub shared_taken: AtomicU32,
    /// Generation of the chunk to which it is to be linked.
    pub shared_end: AtomicU32,
    /// Ticks that went into reading graphs.
    pub graph_ticks: AtomicU64,
    /// What windows of GPU times may cost, in millionths of the wall time, + 1; 0: nobody has said. The collector's.
    pub windows_ppm: AtomicU32,
    /// What such a record was measured to cost, ns, + 1; 0: it was not yet. The collector's.
    pub record_ns: AtomicU32,
    /// What recording may cost, in millionths of the wall time; 0: nobody asked for windows.
    pub budget_ppm: AtomicU32,
    /// What is left out, as [`crate::shed::Shed`] has it. The collector's.
    pub shed: AtomicU32,
    /// What recording may cost, in millionths of the wall time, where something may be left out for it; else 0.
    pub shed_ppm: AtomicU32,
    /// What may be left out: bits of [`crate::shed::may`].
    pub may_shed: AtomicU32,
    /// Ticks that went into taking stacks.
    pub stack_ticks: AtomicU64,
    /// Measured cost of a launch that is only counted, in 1/256 ticks; 0 when not measured.
    pub counted_cost: AtomicU64,
    /// Stacks that were not looked for, since they are left out.
    pub stacks_shed: AtomicU64,
    /// Ticks that threads waited for room in their rings.
    pub waited_ticks: AtomicU64,
    /// Sampled blocks that found no place where they are remembered: their frees are not recorded.
    pub unfollowed: AtomicU64,
    /// How often the process itself has switched its recording.
    pub switches: AtomicU64,
    /// The last of these, each at its number modulo the length: ticks << 1, and 1 where it was switched on.
    pub switched: [AtomicU64; SWITCHES_KEPT],
    /// What malloc holds for itself, where it is asked.
    pub arenas: Arenas,
    /// Ticks when the last window of GPU times closed of which the collector knows that all its work has been told.
    pub told_window: AtomicU64,
    /// 1: the table of [`crate::pending`] stands behind the chunks.
    pub pending: AtomicU32,
    /// [`crate::NEEDS`].
    pub needs: AtomicU32,
    /// How often the collector has begun to forget what was told of stacks: at another number than before, all are told again. The collector's.
    pub stacks_forgotten: AtomicU32,
}

/// Set in [`Header::shared_taken`] when the chunk is open.
pub const SHARED_OPEN: u32 = 1 << 31;

/// States of a thread's row.
pub mod thread_state {
    /// Free for any thread to claim.
    pub const FREE: u32 = 0;
    /// Being filled in by a thread.
    pub const CLAIMED: u32 = 1;
    /// In use.
    pub const LIVE: u32 = 2;
    /// The thread has ended; the collector reads the rest and frees the row.
    pub const EXITED: u32 = 3;
}

/// One thread: what it is doing, and its counters by class. Written by that thread alone while LIVE.
///
/// What a driver call writes (`in_flight_*` and the first four counters) shares the first cache line.
#[repr(C, align(64))]
pub struct ThreadRow {
    /// One of [`thread_state`].
    pub state: AtomicU32,
    /// Kernel thread id as the process sees it.
    pub tid: AtomicU32,
    /// First chunk of the thread's chain + 1; 0 when it uses the shared chain.
    pub first_chunk: AtomicU32,
    /// Counts the uses of the row.
    pub generation: AtomicU32,
    /// Hook of the call that is running.
    pub in_flight_hook: AtomicU64,
    /// Ticks when it began; 0 when none is running.
    pub in_flight_start: AtomicU64,
    /// Calls that began, by class. seen = recorded + dropped + sampled out + in flight + abandoned.
    pub seen: [AtomicU64; CLASSES],
    /// Calls of sampled classes that were chosen to be recorded; the rest was sampled out.
    pub chosen: [AtomicU64; CLASSES],
    /// Events that found no room.
    pub dropped: [AtomicU32; CLASSES],
    /// Calls that may never have returned to the hook (longjmp, cancellation): as many as are missing of them did not.
    pub abandoned: [AtomicU32; CLASSES],
    /// Ticks when the thread first recorded.
    pub started: AtomicU64,
    /// Ticks when it ended.
    pub ended: AtomicU64,
    /// The same as `in_flight_*` for a call of a library above the driver, which may call the driver itself.
    pub library_hook: AtomicU64,
    /// Ticks when that one began; 0 when none is running.
    pub library_start: AtomicU64,
    /// The same for a call that may wait for the operating system. Such calls are counted when they return: this one
    /// is not among those seen.
    pub wait_hook: AtomicU64,
    /// Ticks when that one began; 0 when none is running.
    pub wait_start: AtomicU64,
    /// Slots of the shared chain that the thread has reserved and not yet written: how many << 48, chunk << 32, commit word of
    /// the first. 0: none.
    pub sharing: AtomicU64,
    /// What the driver call that is running waits for: a stream's or an event's handle. Only of calls that wait for one.
    pub in_flight_about: AtomicU64,
    /// Number of the communicator that the library's call is about; 0: none that is known.
    pub library_about: AtomicU64,
    /// The chunk + 1 that holds what the thread counts of short lives ([`crate::pending::Counts`]); 0: none.
    pub counts: AtomicU32,
    padding: AtomicU32,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Header>() <= INFO_AT);
    assert!(offset_of!(Header, version) == 8);
    assert!(offset_of!(Header, segment_bytes) == 16);
    assert!(offset_of!(Header, pid) == 24);
    assert!(offset_of!(Header, started) == 48);
    assert!(offset_of!(Header, hook_count) == 72);
    assert!(offset_of!(Header, paused) == 88);
    assert!(offset_of!(Header, event_cost) == 104);
    assert!(offset_of!(Header, rowless) == 168);
    assert!(offset_of!(Header, free_chunks) == 296);
    assert!(offset_of!(Header, counter_blocks) == 424);
    assert!(offset_of!(Header, free_counters) == 432);
    assert!(offset_of!(Header, driver_version) == 440);
    assert!(offset_of!(Header, listener) == 464);
    assert!(offset_of!(Header, graph_ticks) == 480);
    assert!(offset_of!(Header, windows_ppm) == 488);
    assert!(offset_of!(Header, shed) == 500);
    assert!(offset_of!(Header, stack_ticks) == 512);
    assert!(offset_of!(Header, needs) == 1140);
    assert!(size_of::<HookRow>() == 64);
    assert!(size_of::<ThreadRow>() == 512);
    assert!(offset_of!(ThreadRow, in_flight_hook) == 16);
    assert!(offset_of!(ThreadRow, seen) == 32);
    assert!(offset_of!(ThreadRow, chosen) == 160);
    assert!(offset_of!(ThreadRow, dropped) == 288);
    assert!(offset_of!(ThreadRow, abandoned) == 352);
    assert!(offset_of!(ThreadRow, started) == 416);
    assert!(offset_of!(ThreadRow, library_hook) == 432);
    assert!(COUNTERS_AT == 2_179_072);
    assert!(CHUNKS_AT == 2_703_360);
    assert!(CHUNKS_AT.is_multiple_of(4096));
};

/// A mapped segment: typed access with every index checked.
#[derive(Clone, Copy)]
pub struct View {
    base: *const u8,
    bytes: usize,
}

// SAFETY: everything behind the pointer is an atomic; the creator of the view keeps the mapping alive.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// A view of `bytes` bytes at `base`; none when that is too small for a segment with one chunk.
    ///
    /// # Safety
    /// `base` is page aligned, and the memory stays mapped, readable and writable as long as the view or a reference
    /// from it is used. Other processes may change it at any time.
    pub unsafe fn new(base: *const u8, bytes: usize) -> Option<View> {
        (bytes >= CHUNKS_AT + CHUNK_BYTES).then_some(View { base, bytes })
    }

    /// Start of the memory.
    pub fn base(&self) -> *const u8 {
        self.base
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    pub(crate) fn at<T>(&self, offset: usize) -> &T {
        debug_assert!(offset + size_of::<T>() <= self.bytes);
        // SAFETY: callers pass offsets of parts that `new` checked to lie inside, aligned to the part's type;
        // the parts consist of atomics, for which any bytes are valid.
        unsafe { &*self.base.add(offset).cast::<T>() }
    }

    /// The header.
    #[inline(always)]
    pub fn header(&self) -> &Header {
        self.at(0)
    }

    /// The information texts as words.
    pub fn info(&self) -> &[AtomicU64; INFO_BYTES / 8] {
        self.at(INFO_AT)
    }

    /// A row of the hook table.
    #[inline(always)]
    pub fn hook(&self, n: usize) -> Option<&HookRow> {
        (n < HOOKS_MAX).then(|| self.at(HOOKS_AT + n * 64))
    }

    /// A row of the thread table.
    #[inline(always)]
    pub fn thread(&self, n: usize) -> Option<&ThreadRow> {
        (n < THREADS_MAX).then(|| self.at(THREADS_AT + n * 512))
    }

    /// A block of counters, a word for each row of the hook table.
    pub fn counters(&self, block: u32) -> Option<&Counters> {
        let block = block as usize;
        (block < COUNTER_BLOCKS).then(|| self.at(COUNTERS_AT + block * HOOKS_MAX * 8))
    }

    /// Takes a block of counters that no thread has. What stands in it was counted by threads before.
    pub fn take_counters(&self) -> Option<u32> {
        let taken = pool::take(&self.header().free_counters, COUNTER_BLOCKS as u32)?;
        self.header().counter_blocks.fetch_max(taken + 1, Ordering::Relaxed);
        Some(taken)
    }

    /// The block that is everybody's, to be added to atomically.
    pub fn shared_counters(&self) -> Option<&Counters> {
        self.header().counter_blocks.fetch_max(SHARED_COUNTERS + 1, Ordering::Relaxed);
        self.counters(SHARED_COUNTERS)
    }

    /// Gives a block of counters back.
    pub fn give_counters(&self, block: u32) {
        pool::give(&self.header().free_counters, block);
    }

    /// Chunks that lie inside the memory, whatever the header claims.
    pub fn chunk_count(&self) -> u32 {
        self.header().chunk_count.load(Ordering::Relaxed).min(chunks_in(self.bytes as u64))
    }

    /// The moment on three clocks when the segment was made.
    pub fn started(&self) -> ClockPair {
        let [ticks, monotonic_ns, realtime_ns] = [0, 1, 2].map(|i| self.header().started[i].load(Ordering::Relaxed));
        ClockPair { ticks, monotonic_ns, realtime_ns }
    }

    /// Takes the lowest free chunk (which was most likely used last and is still in the cache), below `limit`.
    pub fn take_chunk(&self, limit: u32) -> Option<u32> {
        pool::take(&self.header().free_chunks, limit)
    }

    /// Takes the highest free chunk, if it is no lower than this.
    pub fn take_last_chunk(&self, lowest: u32) -> Option<u32> {
        pool::take_last(&self.header().free_chunks, lowest)
    }

    /// How many chunks nobody has.
    pub fn free_chunks(&self) -> u32 {
        pool::count(&self.header().free_chunks)
    }

    /// Gives a chunk back to the pool.
    pub fn give_chunk(&self, chunk: u32) {
        pool::give(&self.header().free_chunks, chunk);
    }
}

impl Chunks<{ crate::ring::CHUNK_SLOTS }> for View {
    #[inline(always)]
    fn chunk(&self, number: u32) -> Option<&Chunk> {
        (number < chunks_in(self.bytes as u64)).then(|| self.at(CHUNKS_AT + number as usize * CHUNK_BYTES))
    }
}
