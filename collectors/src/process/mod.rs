//! One traced process image: its segment, its threads, and its events on their way from the rings to the tables.
//!
//! A pass reads every ring to its end and holds the events back; the next pass takes in the bindings that came since
//! and resolves them. So a launch finds the name of its kernel although another thread, whose ring is read later,
//! loaded it.

mod arenas;
pub(crate) mod communicators;
mod describe;
mod devices;
mod elsewhere;
mod fetched;
mod go_on;
mod gpu;
mod graphs;
mod host;
pub(crate) mod in_flight;
mod intake;
mod live;
mod metal;
mod named;
pub(crate) mod pending;
mod ranges;
mod read;
mod recording;
mod resolve;
mod shed;
mod texts;
mod thread;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use gputrace_abi::clock::ClockKind;
use gputrace_abi::event::Event;
use gputrace_abi::ring::CHUNK_SLOTS;
use gputrace_abi::sync::Ordering;

use crate::accounting::{Books, Ending};
use crate::chain::Chain;
use crate::clock::{self, Clocks};
use crate::drain::Fault;
use crate::ending;
use crate::facts::Facts;
use crate::heir::told::Told;
use crate::manifest::ExitStatusInfo;
use crate::names::Written;
use crate::redact::Redact;
use crate::segment::Segment;
use crate::stacks::Stacks;
use crate::tables::{BATCH_ROWS, Tables, ThreadRow};
use communicators::Communicators;
use devices::Devices;
use elsewhere::Elsewhere;
use fetched::Fetched;
use gpu::Gpu;
use host::HostMemory;
use in_flight::Reported;
use intake::Intake;
use pending::Pending;
use ranges::Ranges;
pub(crate) use recording::Recording;
use shed::Shedding;
use thread::Thread;

/// The thread of events whose row nobody uses.
const NOBODY: usize = 0;

/// A process that is being read.
pub(crate) struct Process {
    pub(crate) id: i64,
    pub(crate) pid: i32,
    pub(crate) segment: Segment,
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) file: Option<PathBuf>,
    /// The segment's memory, where an heir is to have it.
    pub(crate) memory: Option<OwnedFd>,
    /// Somebody is told what a collector needs that goes on with it.
    pub(crate) has_heir: bool,
    /// What it told once, for that one; and its descriptor, until it is handed on.
    told: Option<Told>,
    heirs: Option<OwnedFd>,
    /// Events summed by the rows of an earlier collector.
    culled_before: u64,
    /// What it did before this trace.
    elsewhere: Elsewhere,
    /// The file in which that is kept, where one is to.
    pub(crate) kept: Option<PathBuf>,
    /// Known to have ended, whoever has its pid.
    pub(crate) gone: bool,
    /// Its pid is a number of another namespace.
    pub(crate) foreign: bool,
    pub(crate) facts: Facts,
    pub(crate) clock: ClockKind,
    pub(crate) intake: Intake,
    pub(crate) communicators: Communicators,
    pub(crate) devices: Devices,
    gpu: Gpu,
    shedding: Shedding,
    pub(crate) recording: Recording,
    /// When names of threads were last looked at.
    named: Option<Instant>,
    held: Vec<Event>,
    /// Every event up to this time, of new threads too, was read in the pass that holds events back, or before.
    held_up_to: u64,
    /// Up to here the last pass had read all rings; what stood there has its rows with the end of this one.
    read_up_to: u64,
    pub(crate) threads: Vec<Thread>,
    /// Place of the thread that uses a row.
    rows: Vec<Option<usize>>,
    vacant: Vec<usize>,
    shared: Option<Chain>,
    shared_read_to: u64,
    host: HostMemory,
    ranges: Ranges,
    pub(crate) pending: Pending,
    books: Books,
    fetched: Fetched,
    /// Calls that stood still and were reported.
    reported: Vec<Reported>,
    finished_threads: Vec<ThreadRow>,
    looked_for_threads: Option<Instant>,
    /// Where the pass begins.
    first_read: usize,
    broken: bool,
    /// Set when it is read for the last time.
    pub(crate) ended_ns: Option<i64>,
    /// How it ended, where that is known.
    ending: ExitStatusInfo,
    events: u64,
    /// Number of the last look at malloc's arenas that was read.
    arenas_read: u64,
}

impl Process {
    pub(crate) fn new(id: i64, pid: i32, segment: Segment, redact: &Redact) -> Process {
        let facts = Facts::read(&segment, redact);
        let intake = Intake::new(*segment.view(), Stacks::new(id, pid, &facts.exe));
        let started = segment.view().started().ticks;
        Process {
            id,
            pid,
            facts,
            clock: segment.clock(),
            segment,
            pidfd: None,
            file: None,
            memory: None,
            has_heir: false,
            told: None,
            heirs: None,
            kept: None,
            gone: false,
            culled_before: 0,
            elsewhere: Elsewhere::default(),
            foreign: false,
            intake,
            communicators: Communicators::default(),
            devices: Devices::default(),
            gpu: Gpu::new(id, pid),
            shedding: Shedding::default(),
            recording: Recording::default(),
            named: None,
            held: Vec::new(),
            held_up_to: 0,
            read_up_to: 0,
            threads: vec![Thread::new(usize::from(u16::MAX), 0, 0, started)],
            rows: Vec::new(),
            vacant: Vec::new(),
            shared: None,
            shared_read_to: 0,
            host: HostMemory::default(),
            ranges: Ranges::default(),
            pending: Pending::default(),
            books: Books::default(),
            fetched: Fetched::default(),
            reported: Vec::new(),
            finished_threads: Vec::new(),
            looked_for_threads: None,
            first_read: 0,
            broken: false,
            ended_ns: None,
            ending: ExitStatusInfo::default(),
            events: 0,
            arenas_read: 0,
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
        self.tend_pending(horizon, clocks, dead);
        // One thread's commit and another's completion are told in order only if both threads are known, as are one's allocation and
        // another's free, and CUPTI numbers the calls of all threads. That CUPTI is asked must be known before the first launch is looked at.
        let in_order =
            self.intake.metal.is_here || self.host.is_here() || self.gpu.is_asked() || self.devices.are_new();
        let looked = self.find_threads(dead || in_order);
        // Before the rings are read: what ends meanwhile is in them.
        let unwritten = if dead { u64::MAX } else { self.oldest_unwritten(horizon, clocks) };
        let given_to = if self.gpu.is_asked() { self.oldest_giving() } else { u64::MAX };
        if !dead {
            self.name_threads();
        }
        let read_to = self.read(horizon, dead);
        self.see_elsewhere();
        self.take_texts(clocks, tables, written);
        self.take_communicators(clocks, tables, written, false);
        self.intake.graphs.apply(horizon);
        if !self.held.is_empty() {
            self.intake.memory.apply(horizon);
            self.intake.stacks.attach_late(&mut self.held);
            self.resolve_held(clocks, tables, written);
        }
        self.settle_host(self.held_up_to, clocks, tables, written);
        self.settle_metal(read_to.min(unwritten), clocks, tables, written, false);
        self.gpu.settle(false, clocks.ns(self.clock, horizon), tables, written);
        self.gpu.tell(clocks.ns(self.clock, read_to.min(given_to)), clocks.now_ns(), self.segment.view().header());
        self.govern(clocks);
        if !dead {
            self.shed(clocks);
        }
        let forgotten = self.intake.stacks.make_room(horizon, self.read_up_to);
        self.segment.view().header().stacks_forgotten.store(forgotten, Ordering::Relaxed);
        self.read_up_to = read_to;
        self.take_arenas(clocks, tables);
        self.take_graphs(clocks, tables, false);
        self.intake.stacks.end_pass(&self.intake.fresh);
        self.let_threads_go(clocks, tables);
        std::mem::swap(&mut self.held, &mut self.intake.fresh);
        if self.intake.memory.remembers_many() {
            // The next pass resolves what this one read.
            let oldest = self.held.iter().map(|event| event.start).min();
            self.intake.memory.forget(oldest.unwrap_or(horizon).min(horizon));
        }
        if looked {
            self.held_up_to = read_to;
        }
        // A burst must not keep its memory for ever.
        if self.intake.fresh.capacity() > 1 << 16 && self.held.len() < 1 << 12 {
            self.intake.fresh = Vec::new();
        }
        self.events += self.held.len() as u64;
        self.held.len()
    }

    /// Whether it waits for a word of what has been read: the rings are to be looked at soon again.
    pub(crate) fn is_waiting(&self, clocks: &Clocks) -> bool {
        self.gpu.is_waited_for(clocks.now_ns())
    }

    /// When the earliest row of what the GPU did may begin that is still to come; none: it holds nobody up.
    pub(crate) fn unwritten_work_ns(&mut self, clocks: &Clocks) -> Option<i64> {
        self.gpu.unwritten_ns(clocks.now_ns())
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

    /// Has all that is read by now in rows: another collector reads on.
    pub(crate) fn give_out(&mut self, clocks: &mut Clocks, tables: &mut Tables, written: &mut Written) {
        self.looked_for_threads = None;
        self.pass(clocks, tables, written, false);
        // Nobody makes beats until then.
        self.end_pending();
        self.resolve_all(clocks.now_ns(), clocks, tables, written);
    }

    /// Makes rows of all that was read and waits for something that comes later.
    fn resolve_all(&mut self, now_ns: i64, clocks: &mut Clocks, tables: &mut Tables, written: &mut Written) {
        self.intake.memory.apply(u64::MAX);
        self.intake.graphs.apply(u64::MAX);
        self.resolve_held(clocks, tables, written);
        self.finish_host(now_ns, clocks, tables, written);
        self.settle_metal(u64::MAX, clocks, tables, written, true);
        self.gpu.finish(now_ns, tables, written);
        self.take_communicators(clocks, tables, written, true);
        self.take_graphs(clocks, tables, true);
        self.let_threads_go(clocks, tables);
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
        self.end_pending();
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
        self.resolve_all(ended_ns.unwrap_or_else(|| clocks.now_ns()), clocks, tables, written);
        self.let_threads_go(clocks, tables);
        self.leave_numbered_open(tables);
        self.books.enter_recorded(&self.threads[NOBODY].recorded);
        if !self.segment.is_damaged() {
            self.books.enter_rowless(&view.header().rowless);
        }
        self.books.settle();
        let (work, prices) = (self.work(clocks, &self.accounting()), self.prices(clocks));
        self.shedding.finish(ended_ns.unwrap_or_else(|| clocks.now_ns()), prices, work);
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

    /// How it ended, and how long after a moment; none: it runs on, or nobody knows.
    pub(crate) fn ending(&self, started_ns: i64) -> Option<ExitStatusInfo> {
        let wall_ns = self.ended_ns?.saturating_sub(started_ns).max(0) as u64;
        let known = self.ending.code.is_some() || self.ending.signal.is_some();
        known.then_some(ExitStatusInfo { wall_ns: Some(wall_ns), ..self.ending })
    }

    /// The signal that ended it, and when; none: it exited, or that is not known.
    pub(crate) fn killed_by(&self) -> Option<(i32, i64)> {
        self.ending.signal.zip(self.ended_ns)
    }

    /// The program that it was, where a signal ended it.
    pub(crate) fn fault(&self, clocks: &Clocks) -> Option<Fault> {
        let (signal, end_ns) = self.killed_by().filter(|_| !self.facts.forked)?;
        Some(Fault {
            exe: self.facts.exe.clone(),
            first_word: self.facts.first_word.clone(),
            program: self.facts.program,
            signal,
            start_ns: self.start_ns(clocks),
            end_ns,
        })
    }

    /// When it began.
    pub(crate) fn start_ns(&self, clocks: &Clocks) -> i64 {
        clocks.ns(self.clock, self.segment.view().started().ticks)
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
            _ if self.gone => true,
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
