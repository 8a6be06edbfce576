//! Blocks of a short life, where `--malloc full --cull` sums them up: from malloc to free a word in a table, then a count.
//!
//! How that works, and why nothing is counted or told twice, stands in [`gputrace_abi::pending`]. Here is what a thread does: the few
//! instructions of most calls ([`Thread`]), and what becomes of a block that has no short life, or of which nobody can say so ([`tell`]).
//! Allocations with stacks do not come here: a stack is to be walked while it is there, and is most of what such an event costs.
//!
//! What an exchange costs was tried on a pair of malloc and free that takes 18 ns: 3.0 ns where its instruction is not locked, 4.1
//! where it is. For that nanosecond any thread finds any block.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use gputrace_abi::layout::{View, malloc_mode};
use gputrace_abi::pending::{self, Counts, MOST_BYTES, Pending, Place, SIZES, UNKNOWN, Word};
use gputrace_abi::ring::Chunks;
use gputrace_abi::{Class, clock, local};

use crate::thread::State;
use crate::{hooks, record, sampling, session, stack, sys, tls};

static WANTED: AtomicBool = AtomicBool::new(false);
/// The table of the present segment; null: there is none.
pub(crate) static TABLE: AtomicPtr<Pending> = AtomicPtr::new(core::ptr::null_mut());

/// `GPUTRACE_CULL`, after it is known how malloc is recorded, and whether with stacks. For the constructor.
pub(crate) fn configure() {
    let asked = sys::variable(b"GPUTRACE_CULL").is_some() && sampling::mode() == malloc_mode::FULL;
    WANTED.store(asked && !stack::wants_allocations(), Ordering::Relaxed);
}

/// Whether short lives are summed up in this process.
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Chunks that a new segment with so many leaves to the table; 0: it has none.
pub(crate) fn chunks(of: u32) -> u32 {
    if is_wanted() && of >= 4 * pending::CHUNKS { pending::CHUNKS } else { 0 }
}

/// A new segment has its table, if it was left room. Nobody uses it yet.
pub(crate) fn begin_segment(view: &View, has_room: bool) {
    view.header().pending.store(has_room.into(), Ordering::Release);
    if let Some(table) = view.pending() {
        let hooks = [pending::MALLOC, pending::CALLOC].map(hooks::alloc::number_of);
        table.hooks.iter().zip(hooks).for_each(|(place, hook)| place.store(hook.into(), Ordering::Relaxed));
    }
    TABLE
        .store(view.pending().map_or(core::ptr::null_mut(), |table| (&raw const *table).cast_mut()), Ordering::Release);
}

/// The segment goes.
pub(crate) fn end_segment() {
    TABLE.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// The present table. Asked by threads with a row alone: a forked child has its parent's until it has a segment of its own.
#[inline(always)]
fn table() -> Option<&'static Pending> {
    // SAFETY: null, or in the present segment, which is unmapped only after every state was wiped.
    unsafe { TABLE.load(Ordering::Relaxed).as_ref() }
}

/// A thread that sums up short lives: it has counts, and its segment a table.
#[derive(Clone, Copy)]
pub(crate) struct Thread(&'static State);

impl Thread {
    /// The calling thread, if it does.
    #[inline(always)]
    pub(crate) fn own() -> Option<Thread> {
        tls::get().filter(|state| state.counts().is_some()).map(Thread)
    }

    /// The same thread after a call in the middle of which a signal handler may have forked.
    #[inline(always)]
    pub(crate) fn again(self) -> Option<Thread> {
        self.0.counts().is_some().then_some(self)
    }

    #[inline(always)]
    fn table(self) -> &'static Pending {
        // SAFETY: a thread gets counts only where there is a table, which a fork takes from it together with the segment.
        unsafe { &*TABLE.load(Ordering::Relaxed) }
    }

    /// Before a block of this size is allocated: what its word will say of it but for its address. None: it is to be recorded.
    #[inline(always)]
    pub(crate) fn knows(self, function: u64, bytes: usize) -> Option<u64> {
        let known = self.0.counts()?.known.load(Ordering::Relaxed);
        // Who is paused asks in the long way whether it still is.
        if bytes >= MOST_BYTES || self.0.is_marked_paused() {
            return None;
        }
        if known & UNKNOWN != 0 {
            core::hint::cold_path();
            see_what_is_new(self);
            return None;
        }
        Some(known | pending::sized(function, bytes))
    }

    /// Puts a block into the table that was just allocated.
    #[inline(always)]
    pub(crate) fn put(self, block: usize, known: u64) {
        let Some(place) = Place::of(block) else { return tell_at_once(self.0, block, Word(known)) };
        let (table, word) = (self.table(), place.word(known));
        if table.at(place.index()) != Word::NONE || !table.exchange(place.index(), Word::NONE, word) {
            core::hint::cold_path();
            displace(self, place.index(), word);
        }
    }

    /// Before a block, which is not null, is freed: takes it out of the table and counts it, if it had a short life. False: its free is to be
    /// recorded.
    #[inline(always)]
    pub(crate) fn counts_free(self, block: usize) -> bool {
        let (Some(place), Some(counts), table) = (Place::of(block), self.0.counts(), self.table()) else {
            return false;
        };
        let word = table.at(place.index());
        let against = word.against(place, counts.known.load(Ordering::Relaxed));
        if against < SIZES as u64 && table.exchange(place.index(), word, Word::NONE) {
            self.count(word);
            return true;
        }
        word.is_of(place) && counts_old(self, place, word)
    }

    #[inline(always)]
    fn count(self, word: Word) {
        if let Some(pairs) = self.0.counts().and_then(|counts| counts.pairs.get(word.sized())) {
            local::increment(pairs);
        }
    }
}

/// Once in a beat a thread that writes no events sees what it would see then. Its call becomes an event as well, so that some are timed. At each
/// call where it rests, or there is no beat.
#[cold]
#[inline(never)]
fn see_what_is_new(thread: Thread) {
    let stamp = thread.table().stamp.load(Ordering::Relaxed);
    if let Some(counts) = thread.0.counts() {
        // As long as there is no beat nothing is put into the table.
        let rests = counts.rests.load(Ordering::Relaxed);
        counts.rests.store(rests.saturating_sub(1), Ordering::Relaxed);
        let known = if stamp == 0 || rests > 0 { UNKNOWN } else { pending::owner(thread.0.number()) | stamp };
        counts.known.store(known, Ordering::Relaxed);
    }
    thread.0.notice();
}

/// Puts a word where another block has the place.
#[cold]
#[inline(never)]
fn displace(thread: Thread, index: usize, word: Word) {
    let table = thread.table();
    loop {
        let old = table.at(index);
        let put =
            if old == Word::NONE { table.exchange(index, old, word) } else { tell(thread.0, table, index, old, word) };
        // A child of a fork that a signal handler made meanwhile has no table.
        if put || thread.again().is_none() {
            break;
        }
    }
    if let Some(counts) = thread.0.counts()
        && local::fetch_add(&counts.displaced, 1) % LOOK == LOOK - 1
    {
        look_whether_it_is_worth_it(counts);
    }
}

/// So many blocks lose their places between two looks of a thread.
const LOOK: u64 = 256;

/// So many allocations a thread puts none into the table then. Not for a beat: the events of a rest make that longer.
const REST: u64 = 16 * LOOK;

/// Where blocks live so long that more of them lose their places to others than short lives are counted, each of them costs twice what an event does:
/// the thread rests.
#[cold]
#[inline(never)]
fn look_whether_it_is_worth_it(counts: &Counts) {
    let sum = counts.sum();
    if sum.wrapping_sub(counts.gained.load(Ordering::Relaxed)) < LOOK {
        counts.rests.store(REST, Ordering::Relaxed);
        counts.known.store(UNKNOWN, Ordering::Relaxed);
    }
    counts.gained.store(sum, Ordering::Relaxed);
}

/// Before a block is freed that is of an earlier beat, or another thread's: takes and counts it, if it had a short life.
#[cold]
#[inline(never)]
fn counts_old(thread: Thread, place: Place, word: Word) -> bool {
    let table = thread.table();
    let beats = pending::beats_between(word.beat(), table.beat());
    let short = word.thread() == thread.0.number().into()
        && beats <= table.limit.load(Ordering::Relaxed).into()
        && table.exchange(place.index(), word, Word::NONE);
    if short {
        thread.count(word);
        if let Some(counts) = thread.0.counts() {
            local::fetch_add(&counts.aged, beats);
        }
    }
    short
}

/// Something begins or ends with this address that is an event of its own: what is known of a block there is told before.
#[inline(always)]
pub(crate) fn tell_before(state: &State, address: usize) {
    let (Some(table), Some(place)) = (table(), Place::of(address)) else { return };
    let word = table.at(place.index());
    if word.is_of(place) {
        // Where the collector was faster it is told.
        tell(state, table, place.index(), word, Word::NONE);
    }
    // The clock that is read next is read after that look.
    clock::in_order();
}

/// Exchanges a word of the table, and tells of its block. False: another one was faster, who tells of it.
#[cold]
#[inline(never)]
fn tell(state: &State, table: &Pending, index: usize, word: Word, new: Word) -> bool {
    // SAFETY: the segment is mapped as long as this state has a row.
    let Some(view) = (unsafe { session::view_at(state.segment()) }) else { return false };
    // Asked before, as long as the word keeps the row from being another thread's.
    let tid = view.thread(word.thread()).map_or(0, |row| row.tid.load(Ordering::Relaxed));
    // After the look that found it.
    clock::in_order();
    let now = state.now();
    clock::in_order();
    if !table.exchange(index, word, new) {
        return false;
    }
    let start = table.began(word, now);
    if word.thread() != state.number().into() {
        knows_the_time(state, table, now);
    }
    let payload = [pending::address(index, word), pending::late(tid), 0, word.bytes()];
    write(state, table, word.function(), [start, now], payload);
    true
}

/// A thread that had to look at the clock for another one's block puts its own next ones into the table by that: others may free those as well,
/// and tell when they began. Not where it is to see what is new.
fn knows_the_time(state: &State, table: &Pending, now: u64) {
    let (Some(counts), Some(beat)) = (state.counts(), table.beat_at(now)) else { return };
    let known = counts.known.load(Ordering::Relaxed);
    let new = pending::owner(state.number()) | pending::stamp(beat);
    if known & UNKNOWN == 0 && known != new {
        // The collector may be setting it meanwhile.
        _ = counts.known.compare_exchange(known, new, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Tells of a block that was just allocated and has no place in the table.
#[cold]
#[inline(never)]
fn tell_at_once(state: &State, block: usize, word: Word) {
    if let Some(table) = table() {
        let now = state.now();
        write(state, table, word.function(), [now, now], [block as u64, 0, 0, word.bytes()]);
    }
}

fn write(state: &State, table: &Pending, function: usize, [start, end]: [u64; 2], payload: [u64; 4]) {
    const ALLOC: usize = Class::HostAlloc as usize;
    let Some(row) = state.row() else { return };
    for count in [row.seen.get(ALLOC), row.chosen.get(ALLOC)].into_iter().flatten() {
        local::increment(count);
    }
    let hook = table.hooks.get(function).map_or(0, |hook| hook.load(Ordering::Relaxed) as u16);
    record::write(state, hook, Class::HostAlloc, start, end, payload);
}

/// What a block of a short life costs, for measuring: on a table of its own.
#[derive(Default)]
pub(crate) struct Pair(Pending<1>);

impl Pair {
    /// The work of such a block's malloc and free.
    #[inline(always)]
    pub(crate) fn work(&self, count: &AtomicU64) {
        const KNOWN: u64 = pending::owner(1) | pending::stamp(1);
        let block = core::hint::black_box(0x5000);
        let put = Place::of(block).map(|place| self.0.exchange(place.index(), Word::NONE, place.word(KNOWN)));
        let word = self.0.at(core::hint::black_box(0));
        let Some(place) = Place::of(block).filter(|place| word.against(*place, KNOWN) < SIZES as u64) else { return };
        if put.is_some() && self.0.exchange(place.index(), word, Word::NONE) {
            local::increment(core::hint::black_box(count));
        }
    }
}

/// Gives a new thread its counts. Without a chunk for them each of its calls is an event.
pub(crate) fn begin_thread(state: &State, view: &View) {
    if !is_wanted() {
        return;
    }
    let Some(row) = state.row().filter(|_| view.pending().is_some()) else { return state.set_counts(None) };
    // A quarter of the pool at most, from its end: the rest is for events, which take the first.
    let taken = view.take_last_chunk(view.chunk_count() / 4 * 3);
    let counts = taken.and_then(|chunk| {
        view.chunk(chunk)?.lend();
        row.counts.store(chunk + 1, Ordering::Relaxed);
        view.counts(chunk)
    });
    if let Some(counts) = counts {
        counts.clear();
        counts.known.store(UNKNOWN, Ordering::Relaxed);
    }
    state.set_counts(counts);
}

/// The thread ends: what it has in the table the collector tells of, before another thread gets the row.
pub(crate) fn end_thread(state: &State) {
    if is_wanted() {
        state.set_counts(None);
    }
}
