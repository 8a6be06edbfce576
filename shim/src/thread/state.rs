//! What a hook needs of its thread, and how an event is written.

use core::cell::Cell;
use core::hint::cold_path;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use gputrace_abi::layout::{CHUNKS_AT, COUNTERS_AT, Counters, Header, ThreadRow};
use gputrace_abi::pending::Counts;
use gputrace_abi::ring::{CHUNK_BYTES, CHUNK_SLOTS, Place, Slot, Tail};
use gputrace_abi::shed::Shed;
use gputrace_abi::{Class, Event, clock};

use crate::session;

/// What a hook needs of its thread, in two cache lines. Private to the thread and its signal handlers.
#[repr(C, align(128))]
pub(crate) struct State {
    /// Row in the segment; null: wiped by a fork, or given up at thread exit.
    pub(super) row: Cell<*const ThreadRow>,
    /// Start of the segment.
    pub(super) segment: Cell<*const u8>,
    /// Where the next event goes.
    pub(super) tail: Tail,
    /// Address of the guard of the hooked call that is running; see [`crate::record`].
    pub(crate) guard: Cell<usize>,
    /// Number of the current context, [`super::UNKNOWN_CONTEXT`] when it must be asked for.
    pub(crate) context: Cell<u16>,
    /// Number of the row.
    pub(super) number: Cell<u16>,
    /// Why calls are not simply recorded: [`State::PAUSED`], [`State::THINNED`]; 0: they are. Set by any thread of the process;
    /// here, and not in the segment, for its cache line.
    pub(super) held: AtomicU8,
    /// Not 0: ticks are the processor's counter.
    pub(super) counter: Cell<u8>,
    /// Range events so far, recorded or not; wraps.
    pub(super) ranges: Cell<u16>,
    /// Calls that take so many ticks get a stack; this and the next two belong to [`crate::stack`].
    pub(crate) long_ticks: Cell<u64>,
    /// End of the thread's last driver call, in ticks.
    #[cfg(target_os = "linux")]
    pub(crate) last_end: Cell<u64>,
    /// The object of the message to Metal that is under way, or was left.
    #[cfg(target_os = "macos")]
    pub(crate) about: Cell<usize>,
    /// Launches to pass before the next one that gets a stack.
    pub(crate) launches_left: Cell<i64>,
    /// The same as `guard` for the call of a library above the driver: the driver's calls inside it are the program's.
    pub(crate) library_guard: Cell<usize>,
    /// Groups of NCCL calls that are open, one in the other.
    pub(crate) group_depth: Cell<u32>,
    /// A chunk + 1 that was taken from the pool, until it stands in the chain; 0: there is none.
    pub(super) taken: Cell<u32>,
    /// Address of the mark of the wait that the thread is in; see [`crate::wait`].
    pub(crate) wait: Cell<usize>,
    /// Bytes until the next sampled allocation, above 0 where there is a row; see [`crate::sampling`]. Where each allocation is recorded, the
    /// address of the thread's counts of short lives, 0 where it has none; see [`crate::culling`].
    pub(crate) countdown: AtomicU64,
    /// The thread's block of counters in the segment; null: it has none yet. See [`crate::count`].
    pub(crate) counters: Cell<*const Counters>,
    /// Number of that block.
    pub(super) block: Cell<u32>,
    /// Rounds of destructors that the ending thread has run.
    pub(super) rounds: Cell<u8>,
    /// By how many powers of two `countdown` was drawn longer than was asked for; see [`crate::sampling`].
    pub(crate) rarer: Cell<u8>,
    /// Launches up to and with the next one that is timed; see [`crate::gpu_time::events`].
    pub(crate) untimed: Cell<u16>,
    /// Address of the mark of the slow path while it runs, so that a signal handler does not enter it again.
    pub(super) busy: Cell<usize>,
    /// State of the thread's random numbers.
    pub(crate) random: Cell<u64>,
}

const _: () = assert!(size_of::<State>() == 128);
// What every event needs is in one line.
const _: () = assert!(core::mem::offset_of!(State, launches_left) < 64);

impl State {
    /// A state that no thread owns, for measuring: writes go to `segment`'s first chunk, counts to its first block.
    pub(crate) fn detached(row: &ThreadRow, segment: *const u8) -> State {
        State {
            row: Cell::new(row),
            segment: Cell::new(segment),
            tail: Tail::none(),
            guard: Cell::new(0),
            library_guard: Cell::new(0),
            group_depth: Cell::new(0),
            taken: Cell::new(0),
            wait: Cell::new(0),
            countdown: AtomicU64::new(0),
            context: Cell::new(1),
            number: Cell::new(0),
            busy: Cell::new(0),
            random: Cell::new(1),
            rounds: Cell::new(0),
            rarer: Cell::new(0),
            untimed: Cell::new(0),
            held: AtomicU8::new(0),
            counter: Cell::new(u8::from(session::uses_counter())),
            ranges: Cell::new(0),
            long_ticks: Cell::new(u64::MAX),
            #[cfg(target_os = "linux")]
            last_end: Cell::new(0),
            #[cfg(target_os = "macos")]
            about: Cell::new(0),
            launches_left: Cell::new(i64::MAX),
            counters: Cell::new(segment.wrapping_add(COUNTERS_AT).cast()),
            block: Cell::new(0),
        }
    }

    /// Where the address of the row stands, for code that no compiler writes.
    #[cfg(target_os = "linux")]
    pub(crate) const ROW_AT: usize = core::mem::offset_of!(State, row);

    /// Where the distance to the next sample, or the address of the counts, stands, for such code.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) const COUNTDOWN_AT: usize = core::mem::offset_of!(State, countdown);

    /// Where the reasons stand, for such code.
    #[cfg(target_os = "linux")]
    pub(crate) const HELD_AT: usize = core::mem::offset_of!(State, held);

    /// Where the address of the segment stands, for such code.
    #[cfg(target_os = "linux")]
    pub(crate) const SEGMENT_AT: usize = core::mem::offset_of!(State, segment);

    /// Nothing is recorded.
    pub(crate) const PAUSED: u8 = 1;
    /// Not all launches are.
    pub(crate) const THINNED: u8 = 2;

    /// Whether calls are not simply recorded.
    #[inline(always)]
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// Whether recording was switched off when the thread looked last: see [`State::is_paused`].
    #[inline(always)]
    pub(crate) fn is_marked_paused(&self) -> bool {
        self.held.load(Ordering::Relaxed) & State::PAUSED != 0
    }

    /// Whether not all launches are recorded.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_thinned(&self) -> bool {
        self.held.load(Ordering::Relaxed) & State::THINNED != 0
    }

    /// Whether recording is switched off.
    #[inline(always)]
    pub(crate) fn is_paused(&self) -> bool {
        // The collector switches recording on by the segment's word alone, which a thread that records does not read.
        self.held.load(Ordering::Relaxed) & State::PAUSED != 0
            && (self.header().paused.load(Ordering::Relaxed) != 0 || self.goes_on_pausing())
    }

    /// Recording is on again: takes the mark back.
    #[cold]
    #[inline(never)]
    fn goes_on_pausing(&self) -> bool {
        self.hold(State::PAUSED, false);
        // Whoever pauses sets the word first and each thread's mark then: one that was taken back in between is set again.
        let anew = self.header().paused.load(Ordering::SeqCst) != 0;
        if anew {
            self.hold(State::PAUSED, true);
        }
        anew
    }

    /// Sets one of the reasons, or takes it back.
    pub(crate) fn hold(&self, why: u8, on: bool) {
        if on {
            self.held.fetch_or(why, Ordering::SeqCst);
        } else {
            self.held.fetch_and(!why, Ordering::SeqCst);
        }
    }

    /// Sees whether the collector wants launches to be left out, or nothing to be recorded.
    pub(crate) fn notice(&self) {
        if self.header().paused.load(Ordering::SeqCst) != 0 {
            self.hold(State::PAUSED, true);
        }
        if Shed::of(self.header().shed.load(Ordering::Relaxed)).launches != 0 {
            self.hold(State::THINNED, true);
        }
    }

    /// Sees at a commit whether nothing is to be recorded any more: a program that waits for each of its commits fills no chunk for
    /// minutes. The commit itself is recorded.
    #[cfg(target_os = "macos")]
    #[inline(always)]
    pub(crate) fn notice_pause(&self) {
        if self.header().paused.load(Ordering::Relaxed) != 0 {
            cold_path();
            self.notice();
        }
    }

    /// The time in the segment's ticks.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        if session::MAY_COUNT && self.counter.get() != 0 { clock::counter() } else { session::now_slow() }
    }

    /// The thread's counts of short lives. Asked where each allocation is recorded.
    #[inline(always)]
    pub(crate) fn counts(&self) -> Option<&Counts> {
        let at = self.countdown.load(Ordering::Relaxed) as usize as *const Counts;
        // SAFETY: in full mode only `set_counts` writes the word: counts in the mapped segment, which is unmapped only after every
        // state was wiped; or null, as in a wiped state.
        unsafe { at.as_ref() }
    }

    /// Sets them. Called where each allocation is recorded.
    pub(crate) fn set_counts(&self, counts: Option<&Counts>) {
        self.countdown.store(counts.map_or(0, |counts| (&raw const *counts) as usize as u64), Ordering::Relaxed);
    }

    /// Start of its segment.
    pub(crate) fn segment(&self) -> *const u8 {
        self.segment.get()
    }

    /// Number of its row.
    #[inline(always)]
    pub(crate) fn number(&self) -> u16 {
        self.number.get()
    }

    /// Counts a range event; returns those before it.
    #[inline(always)]
    pub(crate) fn count_range(&self) -> u16 {
        self.ranges.replace(self.ranges.get().wrapping_add(1))
    }

    /// Sends writes to the first slot of a chunk again.
    pub(crate) fn rewind(&self) {
        self.tail.set(0, 1);
    }

    /// The row, unless a fork wiped the state.
    #[inline(always)]
    pub(crate) fn row(&self) -> Option<&ThreadRow> {
        // SAFETY: null or a row of the mapped segment, which is unmapped only after every state was wiped.
        unsafe { self.row.get().as_ref() }
    }

    #[inline(always)]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: set together with `row`, which the caller found set; the header stands at the segment's start.
        unsafe { &*self.segment.get().cast::<Header>() }
    }

    /// The slot of a place that lies inside its chunk.
    #[inline(always)]
    pub(super) fn slot(&self, place: Place) -> &Slot {
        let at = CHUNKS_AT + place.chunk as usize * CHUNK_BYTES + 64 * (place.index as usize + 1);
        // SAFETY: the tail holds chunks that were taken from the pool, and the caller checked the index.
        unsafe { &*self.segment.get().add(at).cast::<Slot>() }
    }

    /// Writes an event; counts it as dropped when there is no room.
    #[inline(always)]
    pub(crate) fn write(&self, mut event: Event, class: Class) {
        let place = self.tail.reserve(1);
        event.thread = self.number.get();
        if place.index < CHUNK_SLOTS as u32 {
            event.commit = place.commit;
            // Asking for the next slot's line here was tried: 1 ns less hot, 10 ns more cold.
            self.slot(place).write(&event);
        } else {
            cold_path();
            self.write_slow(event, class);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_slow(&self, event: Event, class: Class) {
        self.notice();
        if !self.write_apart(event) {
            self.count_dropped(class);
        }
    }

    /// Writes an event that is no call of the program, and is in no account; false when there was no room.
    pub(crate) fn write_apart(&self, mut event: Event) -> bool {
        event.thread = self.number.get();
        self.with_places(1, |slot, commit, _| {
            event.commit = commit;
            slot.write(&event);
        })
    }

    pub(crate) fn count_dropped(&self, class: Class) {
        if let Some(dropped) = self.row().and_then(|row| row.dropped.get(class as usize)) {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
