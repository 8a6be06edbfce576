//! One traced process image: its segment, its threads, and its events on their way from the rings to the tables.
//!
//! A pass reads every ring to its end and holds the events back; the next pass takes in the bindings that came since
//! and resolves them. So a launch finds the name of its kernel although another thread, whose ring is read later,
//! loaded it.

mod communicators;
mod describe;
mod devices;
mod fetched;
mod gpu;
mod graphs;
mod intake;
mod metal;
mod named;
pub(crate) mod pending;
mod ranges;
mod resolve;
mod texts;
mod thread;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gputrace_abi::Class;
use gputrace_abi::clock::ClockKind;
use gputrace_abi::event::Event;
use gputrace_abi::layout::{self, THREADS_MAX, View, thread_state};
use gputrace_abi::ring::CHUNK_SLOTS;
use gputrace_abi::sync::Ordering;

use crate::accounting::{Books, Counters, Ending};
use crate::bindings::HostBlocks;
use crate::chain::{Chain, Item};
use crate::clock::{self, Clocks};
use crate::ending;
use crate::facts::{self, Facts};
use crate::manifest::ExitStatusInfo;
use crate::names::Written;
use crate::segment::Segment;
use crate::stacks::Stacks;
use crate::tables::{BATCH_ROWS, Tables, ThreadRow};
use communicators::Communicators;
use devices::Devices;
use fetched::Fetched;
use gpu::Gpu;
use intake::Intake;
use pending::Pending;
use ranges::Ranges;
use thread::{Stage, Thread};

/// Rows past the last used one that are looked at.
const LOOK_AHEAD: usize = 16;
/// New threads are looked for this often. Their events wait meanwhile.
const LOOK_FOR_THREADS: Duration = Duration::from_millis(20);
/// What has begun longer ago and is in no ring waits for something: others are not held back for it.
const UNWRITTEN_NS: i64 = 100_000_000;
/// A thread that ended is waited for this long when its chain does not end.
const LAST_WAIT: Duration = Duration::from_millis(1500);
/// The thread of events whose row nobody uses.
const NOBODY: usize = 0;

/// A process that is being read.
pub(crate) struct Process {
    pub(crate) id: i64,
    pub(crate) pid: i32,
    pub(crate) segment: Segment,
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) file: Option<PathBuf>,
    /// Its pid is a number of another namespace.
    pub(crate) foreign: bool,
    pub(crate) facts: Facts,
    pub(crate) clock: ClockKind,
    pub(crate) intake: Intake,
    communicators: Communicators,
    pub(crate) devices: Devices,
    gpu: Gpu,
    /// When names of threads were last looked at.
    named: Option<Instant>,
    held: Vec<Event>,
    pub(crate) threads: Vec<Thread>,
    /// Place of the thread that uses a row.
    rows: Vec<Option<usize>>,
    vacant: Vec<usize>,
    shared: Option<Chain>,
    pub(crate) host_blocks: HostBlocks,
    ranges: Ranges,
    pending: Pending,
    books: Books,
    fetched: Fetched,
    finished_threads: Vec<ThreadRow>,
    looked_for_threads: Option<Instant>,
    /// Where the pass begins.
    first_read: usize,
    broken: bool,
    /// Set when it is read for the last time.
    ended_ns: Option<i64>,
    /// How it ended, where that is known.
    ending: ExitStatusInfo,
    events: u64,
}

impl Process {
    pub(crate) fn new(id: i64, pid: i32, segment: Segment) -> Process {
        let facts = Facts::read(&segment);
        let intake = Intake::new(*segment.view(), Stacks::new(pid, &facts.exe));
        let started = segment.view().started().ticks;
        Process {
            id,
            pid,
            facts,
            clock: segment.clock(),
            segment,
            pidfd: None,
            file: None,
            foreign: false,
            intake,
            communicators: Communicators::default(),
            devices: Devices::default(),
            gpu: Gpu::new(id, pid),
            named: None,
            held: Vec::new(),
            threads: vec![Thread::new(usize::from(u16::MAX), 0, 0, started)],
            rows: Vec::new(),
            vacant: Vec::new(),
            shared: None,
            host_blocks: HostBlocks::default(),
            ranges: Ranges::default(),
            pending: Pending::default(),
            books: Books::default(),
            fetched: Fetched::default(),
            finished_threads: Vec::new(),
            looked_for_threads: None,
            first_read: 0,
            broken: false,
            ended_ns: None,
            ending: ExitStatusInfo::default(),
            events: 0,
        }
    }

    /// Slots of the whole pool.
    pub(crate) fn slots(&self) -> usize {
        self.segment.view().chunk_count() as usize * CHUNK_SLOTS
    }

    /// Reads the rings, and resolves the events that the last pass held back. Returns the events read.
    pub(crate) fn pass(
        &mut self,
        clocks: &mut Clocks,
        tables: &mut Tables,
        written: &mut Written,
        dead: bool,
    ) -> usize {
        // A process that makes no events has times, and hooks that cost, as well.
        clocks.tick();
        let horizon = clock::now(self.clock);
        self.segment.view().header().heartbeat.store(horizon, Ordering::Relaxed);
        self.intake.read_hooks();
        // One thread's commit and another's completion are told in order only if both threads are known.
        self.find_threads(dead || self.intake.metal.is_here);
        // Before the rings are read: what ends meanwhile is in them.
        let unwritten = if dead { u64::MAX } else { self.oldest_unwritten(horizon, clocks) };
        if !dead {
            self.name_threads();
        }
        self.read(dead);
        self.take_texts(clocks, tables, written);
        self.take_communicators(clocks, tables, written, false);
        self.intake.graphs.apply(horizon);
        if !self.held.is_empty() {
            self.intake.memory.apply(horizon);
            self.intake.stacks.attach_late(&mut self.held);
            self.resolve_held(clocks, tables, written);
        }
        self.settle_metal(horizon.min(unwritten), clocks, tables, written, false);
        self.gpu.settle(false, clocks.ns(self.clock, horizon), tables, written);
        let header = self.segment.view().header();
        let event_ns = clocks.cost_ns(self.clock, header.event_cost.load(Ordering::Relaxed));
        self.gpu.govern(header, clocks.now_ns(), self.events, event_ns);
        self.take_graphs(clocks, tables, false);
        self.intake.stacks.end_pass(&self.intake.fresh);
        self.let_threads_go(clocks, tables);
        std::mem::swap(&mut self.held, &mut self.intake.fresh);
        // A burst must not keep its memory for ever.
        if self.intake.fresh.capacity() > 1 << 16 && self.held.len() < 1 << 12 {
            self.intake.fresh = Vec::new();
        }
        self.events += self.held.len() as u64;
        self.held.len()
    }

    fn resolve_held(&mut self, clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        let mut held = std::mem::take(&mut self.held);
        for part in held.chunks(BATCH_ROWS) {
            self.resolve(part, clocks, tables, written);
            tables.settle();
        }
        self.pair_ranges(&held, clocks, tables, written);
        held.clear();
        self.held = held;
    }

    /// When the oldest of Metal's messages began that are not in a ring yet. A thread may be stopped between the end of a
    /// commit and its event, and others use the same command buffer's address meanwhile. Messages that wait are left out: no
    /// order hangs on them.
    fn oldest_unwritten(&self, horizon: u64, clocks: &Clocks) -> u64 {
        if !self.intake.metal.is_here {
            return u64::MAX;
        }
        let open = |row: &layout::ThreadRow| {
            let start = row.in_flight_start.load(Ordering::Acquire);
            let hook = self.intake.hooks.get(row.in_flight_hook.load(Ordering::Relaxed) as usize)?;
            let short = matches!(hook.class, Class::Commit | Class::Encode);
            (start != 0 && short && clocks.span_ns(self.clock, start, horizon) < UNWRITTEN_NS).then_some(start)
        };
        let live = self.threads.iter().filter(|thread| thread.is_live());
        live.filter_map(|thread| open(self.segment.view().thread(thread.row)?)).min().unwrap_or(u64::MAX)
    }

    /// Finds rows that threads have taken since.
    fn find_threads(&mut self, dead: bool) {
        if !dead && self.looked_for_threads.is_some_and(|at| at.elapsed() < LOOK_FOR_THREADS) {
            return;
        }
        self.looked_for_threads = Some(Instant::now());
        let mut row = 0;
        while row < (self.rows.len() + LOOK_AHEAD).min(THREADS_MAX) {
            self.adopt(row);
            row += 1;
        }
    }

    /// The place of the thread that uses a row, if one does.
    fn adopt(&mut self, number: usize) -> Option<usize> {
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
        if self.rows.len() <= number {
            self.rows.resize(number + 1, None);
        }
        self.rows[number] = Some(place);
        Some(place)
    }

    fn read(&mut self, dead: bool) {
        // Which threads have ended is asked before their rings are read: what is read then is everything.
        for thread in self.threads.iter_mut().filter(|t| t.exited.is_none() && t.is_live()) {
            let row = self.segment.view().thread(thread.row);
            if row.is_some_and(|r| r.state.load(Ordering::Acquire) == thread_state::EXITED) {
                thread.exited = Some(Instant::now());
            }
        }
        // All chains together are no longer than the pool, unless they are written faster than read, or lead in
        // circles. So a pass has an end, and the next one begins with another thread.
        let mut left = self.slots() * 2 + self.threads.len() + CHUNK_SLOTS;
        left = left.saturating_sub(self.read_shared(dead, left));
        let count = self.threads.len();
        self.first_read = (self.first_read + 1) % count;
        for n in 0..count {
            let place = (self.first_read + n) % count;
            left = left.saturating_sub(self.read_thread(place, dead, left));
        }
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
        let Some(since) = thread.exited else { return };
        let held_up = self.shared.as_ref().is_some_and(Chain::is_held_up);
        let own = thread.chain.as_ref().is_none_or(|c| c.has_ended() || c.is_broken());
        if (held_up || !own) && since.elapsed() < LAST_WAIT {
            return;
        }
        self.close_thread(place, view, Ending::Exited);
        let thread = &mut self.threads[place];
        let Some(row) = view.thread(thread.row) else { return };
        thread.ended = Some(row.ended.load(Ordering::Relaxed));
        if let Some(used) = self.rows.get_mut(thread.row) {
            *used = None;
        }
        Counters::clear(row);
        // SYNC POINT: row. Release, with the Acquire of the next thread: we are done with the counters.
        row.state.store(thread_state::FREE, Ordering::Release);
    }

    fn close_thread(&mut self, place: usize, view: &View, ending: Ending) {
        let thread = &mut self.threads[place];
        let Some(row) = view.thread(thread.row) else { return };
        let torn = thread.chain.as_ref().map_or(0, |c| c.torn);
        let class_of = |hook| facts::class_of(view, hook);
        self.books.enter(&Counters::read(row), &thread.recorded, torn, ending, class_of);
        thread.stage = Stage::Closed(1);
        thread.chain = None;
    }

    /// Threads whose last events have been resolved become rows.
    fn let_threads_go(&mut self, clocks: &Clocks, tables: &mut Tables) {
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

    fn thread_row(&self, place: usize, clocks: &Clocks) -> Option<ThreadRow> {
        let thread = self.threads.get(place)?;
        let ns = |ticks: u64| clocks.ns(self.clock, ticks);
        (thread.events() > 0).then(|| ThreadRow {
            process_id: self.id,
            pid: self.pid,
            tid: thread.tid,
            name: thread.name.clone().or_else(|| thread.named.name.clone()),
            start_ns: ns(thread.started),
            end_ns: thread.ended.map(ns),
            events: thread.events() as i64,
        })
    }

    /// Reads what is left and closes the books. `ended_ns`: when it ended, none if it runs on.
    pub(crate) fn finish(
        &mut self,
        clocks: &mut Clocks,
        tables: &mut Tables,
        written: &mut Written,
        ended_ns: Option<i64>,
    ) {
        // The second pass resolves what the first one read, and finds what a living process wrote meanwhile.
        for _ in 0..2 {
            self.looked_for_threads = None; // nobody looks later for one that has just begun
            self.pass(clocks, tables, written, ended_ns.is_some());
        }
        let view = *self.segment.view();
        for place in 1..self.threads.len() {
            if self.threads[place].is_live() {
                let exited = self.threads[place].exited.is_some();
                self.close_thread(place, &view, if exited { Ending::Exited } else { Ending::Cut });
                if let Some(row) = view.thread(self.threads[place].row).filter(|_| exited) {
                    self.threads[place].ended = Some(row.ended.load(Ordering::Relaxed));
                }
            }
        }
        self.intake.memory.apply(u64::MAX);
        self.intake.graphs.apply(u64::MAX);
        self.resolve_held(clocks, tables, written);
        self.settle_metal(u64::MAX, clocks, tables, written, true);
        self.gpu.finish(ended_ns.unwrap_or_else(|| clocks.now_ns()), tables, written);
        self.take_communicators(clocks, tables, written, true);
        self.take_graphs(clocks, tables, true);
        self.let_threads_go(clocks, tables);
        self.let_threads_go(clocks, tables);
        self.leave_numbered_open(tables);
        self.books.enter_recorded(&self.threads[NOBODY].recorded);
        self.books.enter_rowless(&view.header().rowless);
        self.ended_ns = ended_ns;
        if ended_ns.is_some() {
            let header = view.header();
            let (said, at) = (header.said_exit.load(Ordering::Relaxed), header.said_at.load(Ordering::Relaxed));
            let word = ending::word(said, at, self.intake.latest);
            self.ending = ending::of(self.pidfd.as_ref(), self.pid, word);
            // Its own word is nearer to its end than our notice of it.
            let said_ns = word.filter(|_| self.ending.signal.is_none()).map(|_| clocks.ns(self.clock, at));
            self.ended_ns = ended_ns.map(|noticed| said_ns.map_or(noticed, |said| said.min(noticed)));
        }
    }

    /// Rows of threads that have ended since the last call.
    pub(crate) fn finished_threads(&mut self) -> Vec<ThreadRow> {
        std::mem::take(&mut self.finished_threads)
    }

    /// Rows of threads that run.
    pub(crate) fn live_threads(&self, clocks: &Clocks) -> Vec<ThreadRow> {
        (1..self.threads.len())
            .filter(|p| self.threads[*p].is_live())
            .filter_map(|p| self.thread_row(p, clocks))
            .collect()
    }

    /// Says to writers that wait for room that somebody reads.
    pub(crate) fn beat(&self) {
        self.segment.view().header().heartbeat.store(clock::now(self.clock), Ordering::Relaxed);
    }

    /// Whether the process has ended.
    pub(crate) fn is_gone(&self) -> bool {
        match &self.pidfd {
            Some(fd) => {
                let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: the kernel reads and writes one entry.
                unsafe { libc::poll(&mut poll, 1, 0) == 1 }
            }
            // Nobody can tell: it is read until the collector ends.
            None if self.foreign => false,
            // SAFETY: signal 0 asks only.
            None => self.pid <= 0 || unsafe { libc::kill(self.pid, 0) } != 0,
        }
    }
}
