//! Reading: the threads of a process, their rings and the shared one, and what becomes of a thread that has ended.

use std::time::{Duration, Instant};

use gputrace_abi::Class;
use gputrace_abi::event::Event;
use gputrace_abi::layout::{self, THREADS_MAX, View, thread_state};
use gputrace_abi::ring::CHUNK_SLOTS;
use gputrace_abi::sync::Ordering;

use super::host::pending::release_counts;
use super::thread::{Stage, Thread};
use super::{NOBODY, Process};
use crate::accounting::{Counters, Ending};
use crate::chain::{Chain, Item};
use crate::clock::Clocks;
use crate::facts;
use crate::tables::{Tables, ThreadRow};

/// Rows past the last used one that are looked at.
const LOOK_AHEAD: usize = 16;
/// New threads are looked for this often. Their events wait meanwhile.
const LOOK_FOR_THREADS: Duration = Duration::from_millis(20);
/// What has begun longer ago and is in no ring waits for something other than room in one: others are not held back for it.
const UNWRITTEN_NS: i64 = 1_000_000_000;
/// A thread that ended is waited for this long when its chain does not end.
const LAST_WAIT: Duration = Duration::from_millis(1500);

/// How far a thread's chain was read, of which these events are new: to the horizon, else to the last of them.
fn reached(before: u64, chain: Option<&Chain>, fresh: &[Event], horizon: u64) -> u64 {
    match chain {
        Some(chain) if !chain.is_whole() => fresh.last().map_or(before, |event| before.max(event.start)),
        _ => horizon,
    }
}

/// The same for the chain that threads share, whose events do not come in the order of their begins.
fn reached_by_all(before: u64, chain: Option<&Chain>, horizon: u64) -> u64 {
    if chain.is_none_or(Chain::is_whole) { horizon } else { before }
}

impl Process {
    /// When the oldest of Metal's messages began that are not in a ring yet. A thread may be stopped between the end of a
    /// commit and its event, and others use the same command buffer's address meanwhile. Messages that wait are left out: no
    /// order hangs on them.
    pub(super) fn oldest_unwritten(&self, horizon: u64, clocks: &Clocks) -> u64 {
        if !self.intake.metal.is_here {
            return u64::MAX;
        }
        self.oldest_in_flight(|start, class| {
            matches!(class, Some(Class::Commit | Class::Encode))
                && clocks.span_ns(self.clock, start, horizon) < UNWRITTEN_NS
        })
    }

    /// When the oldest of the driver's calls began that run, and may give the GPU work.
    pub(super) fn oldest_giving(&self) -> u64 {
        self.oldest_in_flight(|_, class| class != Some(Class::Sync))
    }

    /// When the oldest call began that runs and counts, by its begin in ticks and its class, if that is known.
    fn oldest_in_flight(&self, counts: impl Fn(u64, Option<Class>) -> bool) -> u64 {
        let open = |row: &layout::ThreadRow| {
            let start = row.in_flight_start.load(Ordering::Acquire);
            let hook = self.intake.hooks.get(row.in_flight_hook.load(Ordering::Relaxed) as usize);
            (start != 0 && counts(start, hook.map(|hook| hook.class))).then_some(start)
        };
        let live = self.threads.iter().filter(|thread| thread.is_live());
        live.filter_map(|thread| open(self.segment.view().thread(thread.row)?)).min().unwrap_or(u64::MAX)
    }

    /// Finds rows that threads have taken since; whether it looked for them, as it does not each time unless it must.
    pub(super) fn find_threads(&mut self, must: bool) -> bool {
        if !must && self.looked_for_threads.is_some_and(|at| at.elapsed() < LOOK_FOR_THREADS) {
            return false;
        }
        self.looked_for_threads = Some(Instant::now());
        let mut row = 0;
        while row < (self.rows.len() + LOOK_AHEAD).min(THREADS_MAX) {
            self.adopt(row);
            row += 1;
        }
        true
    }

    /// The place of the thread that uses a row, if one does.
    pub(super) fn adopt(&mut self, number: usize) -> Option<usize> {
        if let Some(Some(known)) = self.rows.get(number) {
            return Some(*known);
        }
        let row = self.segment.view().thread(number)?;
        // SYNC POINT: live, and exited. Acquire, with the Releases of the thread: the row's fields are written.
        if !matches!(row.state.load(Ordering::Acquire), thread_state::LIVE | thread_state::EXITED) {
            return None;
        }
        let generation = row.generation.load(Ordering::Relaxed);
        let tid = row.tid.load(Ordering::Relaxed) as i32;
        let thread = Thread::new(number, generation, tid, row.started.load(Ordering::Relaxed));
        let place = match self.vacant.pop() {
            Some(place) => {
                self.threads[place] = thread;
                place
            }
            None => {
                self.threads.push(thread);
                self.threads.len() - 1
            }
        };
        self.intake.stacks.forget_thread(place as u32);
        if self.rows.len() <= number {
            self.rows.resize(number + 1, None);
        }
        self.rows[number] = Some(place);
        Some(place)
    }

    /// Reads all rings, of which everything up to `horizon` is written. Gives the time up to which all of it was read: an earlier
    /// one where so much is written that a ring could not be read to its end.
    pub(super) fn read(&mut self, horizon: u64, dead: bool) -> u64 {
        // Which threads have ended is asked before their rings are read: what is read then is everything.
        let mut have_ended = false;
        for thread in self.threads.iter_mut().filter(|t| t.exited.is_none() && t.is_live()) {
            let row = self.segment.view().thread(thread.row);
            if let Some(row) = row.filter(|r| r.state.load(Ordering::Acquire) == thread_state::EXITED) {
                thread.exited = Some(Instant::now());
                thread.shared_at_exit = self.shared.as_ref().map_or(0, |chain| chain.passed);
                thread.is_swept = row.counts.load(Ordering::Relaxed) == 0;
                have_ended |= !thread.is_swept;
            }
        }
        self.take_of_ended(have_ended);
        // All chains together are no longer than the pool, unless they are written faster than read, or lead in
        // circles. So a pass has an end, and the next one begins with another thread.
        let mut left = self.slots() * 2 + self.threads.len() + CHUNK_SLOTS;
        left = left.saturating_sub(self.read_shared(dead, left));
        self.shared_read_to = reached_by_all(self.shared_read_to, self.shared.as_ref(), horizon);
        let mut all_read_to = self.shared_read_to;
        let count = self.threads.len();
        self.first_read = (self.first_read + 1) % count;
        for n in 0..count {
            let place = (self.first_read + n) % count;
            let before = self.intake.fresh.len();
            left = left.saturating_sub(self.read_thread(place, dead, left));
            let (thread, fresh) = (&mut self.threads[place], &self.intake.fresh[before..]);
            thread.read_to = reached(thread.read_to, thread.chain.as_ref(), fresh, horizon);
            all_read_to = all_read_to.min(thread.read_to);
        }
        all_read_to
    }

    fn read_shared(&mut self, dead: bool, most: usize) -> usize {
        let view = *self.segment.view();
        if self.shared.is_none() {
            let first = view.header().shared_first.load(Ordering::Acquire);
            self.shared = first.checked_sub(1).and_then(|first| Chain::new(&view, first));
        }
        let Some(mut chain) = self.shared.take() else { return 0 };
        let torn = chain.torn;
        // The row of an event's thread may not have been seen yet, so items are taken in one by one outside.
        let mut items = Vec::new();
        let steps = chain.read(&view, dead, most, |item| items.push(item));
        for item in items {
            let place = match &item {
                Item::Event(event) | Item::Stack(event) | Item::Communicator(event) => {
                    self.adopt(usize::from(event.thread)).unwrap_or(NOBODY)
                }
                _ => NOBODY,
            };
            let thread = &mut self.threads[place];
            self.intake.take(item, &mut thread.recorded, place);
        }
        self.books.torn_shared += chain.torn - torn;
        self.broken |= chain.is_broken();
        self.shared = Some(chain);
        steps
    }

    fn read_thread(&mut self, place: usize, dead: bool, most: usize) -> usize {
        let view = *self.segment.view();
        let thread = &mut self.threads[place];
        if !thread.is_live() || place == NOBODY {
            return 0;
        }
        let Some(row) = view.thread(thread.row) else { return 0 };
        if thread.chain.is_none() {
            // SYNC POINT: first chunk. Acquire, with the Release of the thread: the chunk is open.
            let first = row.first_chunk.load(Ordering::Acquire);
            thread.chain = first.checked_sub(1).and_then(|first| Chain::new(&view, first));
        }
        let mut steps = 0;
        if let Some(chain) = &mut thread.chain {
            let (intake, recorded) = (&mut self.intake, &mut thread.recorded);
            steps = chain.read(&view, dead, most, |item| intake.take(item, recorded, place));
            self.broken |= chain.is_broken();
        }
        if !dead {
            self.retire(place, &view);
        }
        steps
    }

    /// Frees the row of a thread that has ended, when everything it wrote has been read.
    fn retire(&mut self, place: usize, view: &View) {
        let thread = &self.threads[place];
        let Some(since) = thread.exited.filter(|_| thread.is_swept) else { return };
        // What it left in the shared chain is found by its row's number, which the next thread gets: two holes that hold that chain
        // up for longer than this one is waited for made its last events another's. It is whole in the end, or so much was read that
        // nothing is left of what stood in it then.
        let all = self.slots() as u64;
        let shared = |chain: &Chain| chain.is_whole() || chain.passed.saturating_sub(thread.shared_at_exit) >= all;
        if !self.shared.as_ref().is_none_or(shared) {
            return;
        }
        let own = thread.chain.as_ref().is_none_or(|c| c.has_ended() || c.is_broken());
        if !own && since.elapsed() < LAST_WAIT {
            return;
        }
        self.close_thread(place, view, Ending::Exited);
        let thread = &mut self.threads[place];
        let Some(row) = view.thread(thread.row) else { return };
        thread.ended = Some(row.ended.load(Ordering::Relaxed));
        let row_number = thread.row;
        if let Some(used) = self.rows.get_mut(row_number) {
            *used = None;
        }
        // Its counters go: whoever goes on with the process must know them all the same.
        self.leave_account();
        let Some(row) = view.thread(row_number) else { return };
        Counters::clear(row);
        release_counts(view, row);
        // SYNC POINT: row. Release, with the Acquire of the next thread: we are done with the counters.
        row.state.store(thread_state::FREE, Ordering::Release);
    }

    pub(super) fn close_thread(&mut self, place: usize, view: &View, ending: Ending) {
        let thread = &mut self.threads[place];
        let Some(row) = view.thread(thread.row) else { return };
        let torn = thread.chain.as_ref().map_or(0, |c| c.torn);
        let class_of = |hook| facts::class_of(view, hook);
        self.books.enter(&thread.counters(row), &thread.recorded, torn, ending, class_of);
        thread.stage = Stage::Closed(1);
        thread.chain = None;
    }

    /// Threads whose last events have been resolved become rows.
    pub(super) fn let_threads_go(&mut self, clocks: &Clocks, tables: &mut Tables) {
        for place in 1..self.threads.len() {
            match self.threads[place].stage {
                Stage::Live | Stage::Left => {}
                Stage::Closed(0) => {
                    self.leave_open(place, tables);
                    let row = self.thread_row(place, clocks);
                    self.finished_threads.extend(row);
                    self.threads[place].stage = Stage::Left;
                    self.vacant.push(place);
                }
                Stage::Closed(passes) => self.threads[place].stage = Stage::Closed(passes - 1),
            }
        }
    }

    pub(super) fn thread_row(&self, place: usize, clocks: &Clocks) -> Option<ThreadRow> {
        let thread = self.threads.get(place)?;
        let ns = |ticks: u64| clocks.ns(self.clock, ticks);
        let events = thread.events().max(thread.earlier.min(self.events));
        (events > 0 || thread.earlier > 0).then(|| ThreadRow {
            process_id: self.id,
            pid: self.pid,
            tid: thread.tid,
            name: thread.name.clone().or_else(|| thread.named.name.clone()),
            start_ns: ns(thread.started),
            end_ns: thread.ended.map(ns),
            events: events as i64,
        })
    }
}

#[cfg(test)]
mod tests {
    use gputrace_abi::layout::malloc_mode;

    use super::*;
    use crate::chain::Item;
    use crate::support::{Memory, Thread as Writer, hook};

    #[test]
    fn a_ring_that_is_not_read_to_its_end_is_read_to_its_last_event() {
        let memory = Memory::new(16 << 20, malloc_mode::FULL);
        let mut writer = Writer::new(memory.view, 1);
        for start in 100..110 {
            writer.event(Event { hook: hook("malloc"), start, end: start, ..Event::default() });
        }
        let first = memory.view.thread(0).unwrap().first_chunk.load(Ordering::Acquire) - 1;
        let mut chain = Chain::new(&memory.view, first).unwrap();
        let (mut fresh, mut read_to, mut seen) = (Vec::new(), 0, Vec::new());
        for most in [4, 0, 3, 100] {
            fresh.clear();
            chain.read(&memory.view, false, most, |item| {
                if let Item::Event(event) = item {
                    fresh.push(event);
                }
            });
            read_to = reached(read_to, Some(&chain), &fresh, 500);
            seen.push(read_to);
        }
        assert_eq!(seen, [103, 103, 106, 500]);
        assert_eq!(reached(7, None, &[], 500), 500);
    }
}
