//! A thread's state, its row in the segment, and how it gets room in a ring.
//!
//! States live in one private mapping that the kernel wipes in a forked child (MADV_WIPEONFORK), because `_Fork` and
//! raw clone run no handler, and a child that wrote to its parent's ring would corrupt it. A wiped state has no row,
//! so the child's first hooked call takes the slow path and makes a segment of its own.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::layout::{CHUNKS_AT, CHUNKS_FOR_SHARED, CLASSES, Header, THREADS_MAX, ThreadRow, View, thread_state};
use gputrace_abi::ring::{CHUNK_BYTES, CHUNK_SLOTS, Chunks, Place, SHARED, Slot, Tail};
use gputrace_abi::{Class, Event, clock, event};

use crate::interpose::elf;
use crate::{sampling, session, sys, tls};

/// What a hook needs of its thread, in two cache lines. Private to the thread and its signal handlers.
#[repr(C, align(128))]
pub(crate) struct State {
    /// Row in the segment; null: wiped by a fork, or given up at thread exit.
    row: Cell<*const ThreadRow>,
    /// Start of the segment.
    segment: Cell<*const u8>,
    /// Where the next event goes.
    tail: Tail,
    /// Address of the guard of the hooked call that is running; see [`crate::record`].
    pub(crate) guard: Cell<usize>,
    /// Bytes until the next sampled allocation. 0 and below: take the slow path.
    pub(crate) countdown: Cell<i64>,
    /// Number of the current context, [`crate::contexts::UNKNOWN`] when it must be asked for.
    pub(crate) context: Cell<u16>,
    /// Number of the row.
    number: Cell<u16>,
    /// Stack address while the slow path runs, so that a signal handler does not enter it again.
    busy: Cell<usize>,
    /// State of the thread's random numbers.
    pub(crate) random: Cell<u64>,
    /// Rounds of destructors that the ending thread has run.
    rounds: Cell<u8>,
    /// Not 0: nothing is recorded. Set by any thread of the process; here, and not in the segment, for its cache line.
    paused: AtomicU8,
    /// Not 0: ticks are the processor's counter.
    counter: Cell<u8>,
}

const _: () = assert!(size_of::<State>() == 128);

impl State {
    /// A state that no thread owns, for measuring: writes go to `segment`'s first chunk.
    pub(crate) fn detached(row: &ThreadRow, segment: *const u8) -> State {
        State {
            row: Cell::new(row),
            segment: Cell::new(segment),
            tail: Tail::none(),
            guard: Cell::new(0),
            countdown: Cell::new(i64::MAX),
            context: Cell::new(1),
            number: Cell::new(0),
            busy: Cell::new(0),
            random: Cell::new(1),
            rounds: Cell::new(0),
            paused: AtomicU8::new(0),
            counter: Cell::new(u8::from(session::uses_counter())),
        }
    }

    /// Whether recording is switched off.
    #[inline(always)]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed) != 0
    }

    /// The time in the segment's ticks.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        if self.counter.get() != 0 { clock::counter() } else { session::now() }
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

    /// A counter of the row.
    ///
    /// # Safety
    /// The state has a row.
    #[inline(always)]
    pub(crate) unsafe fn seen_unchecked<const CLASS: usize>(&self) -> &AtomicU64 {
        // SAFETY: the caller's promise; the index is a constant inside the array.
        unsafe { (*self.row.get()).seen.get_unchecked(CLASS) }
    }

    #[inline(always)]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: set together with `row`, which the caller found set; the header stands at the segment's start.
        unsafe { &*self.segment.get().cast::<Header>() }
    }

    /// The slot of a place that lies inside its chunk.
    #[inline(always)]
    fn slot(&self, place: Place) -> &Slot {
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
            self.write_slow(event, class);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_slow(&self, event: Event, class: Class) {
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

    /// Writes a text and what it is about; false when there was no room.
    pub(crate) fn write_text(&self, kind: u64, key: u64, number: u64, text: &[u8], now: u64) -> bool {
        let text = text.get(..text.len().min(event::TEXT_MAX_BYTES)).unwrap_or(&[]);
        let more = text.len().div_ceil(event::TEXT_SLOT_BYTES) as u32;
        let head = Event {
            hook: event::KIND_TEXT,
            thread: self.number.get(),
            start: now,
            end: now,
            payload: [key, kind, text.len() as u64, number],
            ..Event::default()
        };
        self.with_places(1 + more, |slot, commit, nth| {
            if nth == 0 {
                return slot.write(&Event { commit, ..head });
            }
            let mut words = [0u64; 7];
            let from = (nth as usize - 1) * event::TEXT_SLOT_BYTES;
            for (i, byte) in text.iter().skip(from).take(event::TEXT_SLOT_BYTES).enumerate() {
                if let Some(word) = words.get_mut(i / 8) {
                    *word |= u64::from(*byte) << (8 * (i % 8));
                }
            }
            let first = Event { commit, hook: event::KIND_TEXT_MORE, thread: head.thread, ..Event::default() };
            slot.write_text(first.words()[0], words);
        })
    }

    /// Reserves `n` places next to each other, in this thread's chunk, a new one, or the shared chain.
    fn with_places(&self, n: u32, mut write: impl FnMut(&Slot, u32, u32)) -> bool {
        let mut patience = Patience::default();
        loop {
            if self.with_own_places(n, &mut write) || self.with_shared_places(n, &mut write) {
                return true;
            }
            if !self.waits(&mut patience) {
                return false;
            }
        }
    }

    fn with_own_places(&self, n: u32, write: &mut impl FnMut(&Slot, u32, u32)) -> bool {
        for _ in 0..3 {
            let place = self.tail.reserve(n);
            if place.index + n <= CHUNK_SLOTS as u32 {
                for nth in 0..n {
                    let place = Place { index: place.index + nth, ..place };
                    write(self.slot(place), place.commit + nth, nth);
                }
                return true;
            }
            self.pad(place);
            if !self.next_chunk(place) {
                break;
            }
        }
        false
    }

    /// `--on-full block`: yields and says whether to try again, as long as the collector's heartbeat moves. It tries
    /// both the pool and the shared chain: threads that sleep may hold every chunk of the pool, for ever.
    #[cold]
    fn waits(&self, patience: &mut Patience) -> bool {
        let header = self.header();
        let frame = 0u8;
        // A signal handler inside the slow path would wait for what it interrupted.
        if header.block_when_full.load(Ordering::Relaxed) == 0 || self.busy.get() > &raw const frame as usize {
            return false;
        }
        sys::sched_yield();
        let beat = header.heartbeat.load(Ordering::Relaxed);
        let now = sys::clock_ns(libc::CLOCK_MONOTONIC);
        if beat != patience.heartbeat || patience.since == 0 {
            *patience = Patience { heartbeat: beat, since: now };
        }
        now.saturating_sub(patience.since) < 1_000_000_000
    }

    /// Commits the slots that a reservation took but did not fit into, so that the reader sees no hole.
    fn pad(&self, place: Place) {
        for index in place.index..CHUNK_SLOTS as u32 {
            let padding = Event {
                commit: place.commit + (index - place.index),
                hook: event::KIND_PADDING,
                thread: self.number.get(),
                ..Event::default()
            };
            self.slot(Place { index, ..place }).write(&padding);
        }
    }

    /// Takes a chunk from the pool and links it after the full one. False: none is free, or this is a signal handler
    /// inside the same work.
    fn next_chunk(&self, full: Place) -> bool {
        self.alone(|| self.next_chunk_guarded(full))
    }

    /// Does work that a signal handler of this thread must not enter again; false there.
    fn alone(&self, work: impl FnOnce() -> bool) -> bool {
        let frame = 0u8;
        let here = &raw const frame as usize;
        if self.busy.get() > here {
            return false;
        }
        self.busy.set(here);
        let done = work();
        self.busy.set(0);
        done
    }

    fn next_chunk_guarded(&self, full: Place) -> bool {
        if self.tail.peek().index < CHUNK_SLOTS as u32 {
            return true; // a signal handler was here in between
        }
        // SAFETY: the segment is mapped as long as this state has a row.
        let Some(view) = (unsafe { session::view_at(self.segment.get()) }) else { return false };
        let limit = view.chunk_count().saturating_sub(CHUNKS_FOR_SHARED as u32);
        let Some(taken) = view.take_chunk(limit) else {
            // Keeps the count of what was reserved beyond the end from reaching the generation's bits.
            if full.index > 1 << 20 {
                self.tail.park(CHUNK_SLOTS as u32);
            }
            return false;
        };
        let Some(new) = view.chunk(taken) else { return false };
        let generation = new.open(u32::from(self.number.get()));
        let had_chunk = self.tail.has_chunk();
        match view.chunk(full.chunk).filter(|_| had_chunk) {
            Some(old) => {
                old.close(CHUNK_SLOTS as u32);
                old.link(taken);
            }
            None => {
                if let Some(row) = self.row() {
                    // SYNC POINT: first chunk. Release, with the collector's Acquire: the chunk is open.
                    row.first_chunk.store(taken + 1, Ordering::Release);
                }
            }
        }
        self.tail.set(taken, generation);
        true
    }

    fn with_shared_places(&self, n: u32, write: &mut impl FnMut(&Slot, u32, u32)) -> bool {
        // SAFETY: the segment is mapped as long as this state has a row.
        let Some(view) = (unsafe { session::view_at(self.segment.get()) }) else { return false };
        for _ in 0..2 {
            let current = view.header().shared.load(Ordering::Acquire);
            if let Some(chunk) = current.checked_sub(1).and_then(|c| view.chunk(c))
                && let Ok((commit, first)) = chunk.reserve_shared(n)
            {
                for nth in 0..n {
                    if let Some(slot) = chunk.slot(first + nth) {
                        write(slot, commit + nth, nth);
                    }
                }
                return true;
            }
            if !self.alone(|| next_shared_chunk(&view, current)) {
                return false;
            }
        }
        false
    }

    /// Ends the thread's chain, so that the collector can free the row. At thread exit.
    fn close(&self) {
        let Some(row) = self.row() else { return };
        let end = self.tail.peek();
        // SAFETY: the segment is mapped as long as this state has a row.
        if let Some(view) = unsafe { session::view_at(self.segment.get()) }
            && self.tail.has_chunk()
            && let Some(chunk) = view.chunk(end.chunk)
        {
            chunk.close(end.index);
            chunk.link_end();
        }
        self.tail.clear();
        row.ended.store(session::now(), Ordering::Relaxed);
        self.row.set(ptr::null());
        // SYNC POINT: exited. Release, with the collector's Acquire: everything the thread wrote is visible.
        row.state.store(thread_state::EXITED, Ordering::Release);
    }
}

/// Since when the collector's heartbeat has not moved.
#[derive(Default)]
struct Patience {
    heartbeat: u64,
    since: u64,
}

/// Puts a new chunk at the end of the shared chain. One thread does it; the others find the lock held and drop.
fn next_shared_chunk(view: &View, current: u32) -> bool {
    let header = view.header();
    if header.shared_lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return false;
    }
    let end = current.checked_sub(1).and_then(|c| view.chunk(c));
    // Numbers come back: the chunk may be the end of the chain again, in a later use that still has room.
    let mut ready = header.shared.load(Ordering::Relaxed) != current || end.is_some_and(|chunk| !chunk.is_closed());
    if !ready
        && let Some(taken) = view.take_chunk(view.chunk_count())
        && let Some(new) = view.chunk(taken)
    {
        new.open(SHARED);
        match end {
            Some(old) => old.link(taken),
            None => header.shared_first.store(taken + 1, Ordering::Release),
        }
        // SYNC POINT: shared chunk. Release, with the Acquire in `with_shared_places`: the chunk is open.
        header.shared.store(taken + 1, Ordering::Release);
        ready = true;
    }
    header.shared_lock.store(0, Ordering::Release);
    ready
}

/// All states of the process, one per row of the thread table, after the process's own words.
static STATES: AtomicUsize = AtomicUsize::new(0);
/// The highest row that was ever used.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Switches recording of all threads. The segment's header, which new threads read, is set before.
pub(crate) fn pause(paused: bool) {
    let states = STATES.load(Ordering::Acquire) as *const State;
    if states.is_null() {
        return;
    }
    for number in 0..=HIGHEST.load(Ordering::Relaxed) {
        // SAFETY: `prepare` mapped one state more than there are rows; the field is an atomic.
        unsafe { &(*states.add(number + 1)).paused }.store(u8::from(paused), Ordering::SeqCst);
    }
}

/// Where the search for a free row begins.
static NEXT_ROW: AtomicU32 = AtomicU32::new(0);
/// The key whose destructor ends a thread's chain; -1 when there is none.
static EXIT_KEY: AtomicU64 = AtomicU64::new(u64::MAX);
static SET_SPECIFIC: AtomicUsize = AtomicUsize::new(0);

/// Makes the states' memory and the exit key. Once, in the constructor.
pub(crate) fn prepare() -> Result<(), &'static [u8]> {
    let bytes = size_of::<State>() * (THREADS_MAX + 2);
    let at = sys::map(bytes, None).map_err(|_| &b"no address space for its thread states"[..])?;
    STATES.store(at as usize, Ordering::Release);
    if sys::wipe_on_fork(at, bytes).is_err() && !wipe_by_handler() {
        return Err(b"the kernel has no MADV_WIPEONFORK (Linux 4.14)");
    }
    let create = elf::next_definition(c"pthread_key_create");
    let set = elf::next_definition(c"pthread_setspecific");
    if create != 0 && set != 0 {
        type Create = unsafe extern "C" fn(*mut u32, unsafe extern "C" fn(*mut core::ffi::c_void)) -> i32;
        // SAFETY: the address is libc's pthread_key_create, whose signature this is.
        let create: Create = unsafe { core::mem::transmute(create) };
        let mut key = 0;
        // SAFETY: the key is written to a local; the destructor is never unloaded (nodelete).
        // Keys from 32 on would make pthread_setspecific allocate, inside malloc.
        if unsafe { create(&mut key, at_thread_exit) } == 0 && key < 32 {
            SET_SPECIFIC.store(set, Ordering::Relaxed);
            EXIT_KEY.store(u64::from(key), Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Where the kernel cannot wipe (gVisor): a handler that fork runs in the child. `_Fork` and raw clone do not run it.
fn wipe_by_handler() -> bool {
    unsafe extern "C" fn wipe() {
        let at = STATES.load(Ordering::Acquire) as *mut u8;
        // SAFETY: the child has one thread, which is here; the mapping has this size, and all zeros is a valid state.
        unsafe { ptr::write_bytes(at, 0, size_of::<State>() * (THREADS_MAX + 2)) };
    }
    let register = elf::next_definition(c"__register_atfork");
    if register == 0 {
        return false;
    }
    type Handler = Option<unsafe extern "C" fn()>;
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const core::ffi::c_void) -> i32;
    // SAFETY: the address is libc's __register_atfork, whose signature this is.
    let register: Register = unsafe { core::mem::transmute(register) };
    // SAFETY: the handler is never unloaded (nodelete).
    unsafe { register(None, None, Some(wipe), ptr::null()) == 0 }
}

/// The first words of the states' memory: what else must be wiped by a fork.
pub(crate) fn process_word() -> Option<&'static AtomicU32> {
    let at = STATES.load(Ordering::Acquire) as *const AtomicU32;
    // SAFETY: null, or the start of the mapping, which is never unmapped.
    unsafe { at.as_ref() }
}

/// Destructors of other keys and libc's own clean-up still allocate and free after ours has run. So the chain ends in
/// the last round that libc makes, and what comes later finds the state of an ended thread: passed on, only counted.
unsafe extern "C" fn at_thread_exit(_: *mut core::ffi::c_void) {
    const ROUNDS: u8 = 4; // PTHREAD_DESTRUCTOR_ITERATIONS
    let Some(state) = tls::get().filter(|s| s.row().is_some()) else { return };
    state.rounds.set(state.rounds.get() + 1);
    if state.rounds.get() < ROUNDS {
        arm_exit();
        return;
    }
    state.close();
    tls::set(ended());
}

/// The state of every thread that has ended.
fn ended() -> Option<&'static State> {
    let states = STATES.load(Ordering::Acquire) as *const State;
    // SAFETY: null, or the mapping made by `prepare`, which has two states more than rows.
    unsafe { states.as_ref().map(|first| &*(&raw const *first).add(THREADS_MAX + 1)) }
}

fn arm_exit() {
    let key = EXIT_KEY.load(Ordering::Relaxed);
    if key == u64::MAX {
        return;
    }
    type Set = unsafe extern "C" fn(u32, *const core::ffi::c_void) -> i32;
    // SAFETY: stored together with the key; the address is libc's pthread_setspecific.
    let set: Set = unsafe { core::mem::transmute(SET_SPECIFIC.load(Ordering::Relaxed)) };
    // SAFETY: the key exists; the value is never dereferenced.
    unsafe { set(key as u32, ptr::without_provenance(1)) };
}

/// The calling thread's state, registered if it is not yet. None: not recording in this process, or no row is free.
#[cold]
#[inline(never)]
pub(crate) fn state_slow() -> Option<&'static State> {
    if let Some(state) = tls::get().filter(|s| s.row().is_some()) {
        return Some(state);
    }
    if tls::get().is_some_and(|s| ended().is_some_and(|e| ptr::eq(s, e))) {
        return None;
    }
    let view = session::live()?;
    let frame = 0u8;
    register(&view, &raw const frame as usize)
}

fn claim(row: &ThreadRow) -> bool {
    use thread_state::{CLAIMED, FREE};
    // SYNC POINT: row. Acquire, with the collector's Release of FREE: it is done with the counters.
    row.state.load(Ordering::Relaxed) == FREE
        && row.state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

fn register(view: &View, here: usize) -> Option<&'static State> {
    let states = STATES.load(Ordering::Acquire) as *const State;
    let first = NEXT_ROW.fetch_add(1, Ordering::Relaxed) as usize;
    let claimed = (0..THREADS_MAX).map(|i| (first + i) % THREADS_MAX).find_map(|number| {
        let row = view.thread(number)?;
        claim(row).then_some((number, row))
    });
    let Some((number, row)) = claimed else {
        // No row is free: this thread stays unrecorded, and is not to search again at each of its calls.
        tls::set(ended());
        return None;
    };
    // SAFETY: `prepare` mapped one state more than there are rows; this one belongs to the row just claimed.
    let state = unsafe { &*states.add(number + 1) };
    row.tid.store(sys::gettid(), Ordering::Relaxed);
    row.started.store(session::now(), Ordering::Relaxed);
    row.ended.store(0, Ordering::Relaxed);
    row.in_flight_start.store(0, Ordering::Relaxed);
    row.first_chunk.store(0, Ordering::Relaxed);
    row.generation.fetch_add(1, Ordering::Relaxed);
    for class in 0..CLASSES {
        for counter in [row.seen.get(class), row.chosen.get(class)].into_iter().flatten() {
            counter.store(0, Ordering::Relaxed);
        }
        for counter in [row.dropped.get(class), row.abandoned.get(class)].into_iter().flatten() {
            counter.store(0, Ordering::Relaxed);
        }
    }
    state.segment.set(view.base());
    state.tail.clear();
    state.guard.set(0);
    state.context.set(crate::contexts::UNKNOWN);
    state.number.set(number as u16);
    state.busy.set(0);
    state.rounds.set(0);
    state
        .random
        .set(session::now() ^ (here as u64).rotate_left(32) ^ (u64::from(row.tid.load(Ordering::Relaxed)) << 17) | 1);
    sampling::reset(state);
    state.counter.set(u8::from(session::uses_counter()));
    HIGHEST.fetch_max(number, Ordering::Relaxed);
    state.row.set(row);
    state.paused.store((view.header().paused.load(Ordering::SeqCst) != 0) as u8, Ordering::SeqCst);
    // The first chunk now, in the constructor for the main thread: a hook may have no system call left to it later.
    state.next_chunk(Place { chunk: 0, commit: 0, index: 0 });
    // SYNC POINT: live. Release, with the collector's Acquire: the row's fields are written.
    row.state.store(thread_state::LIVE, Ordering::Release);
    tls::set(Some(state));
    arm_exit();
    Some(state)
}
