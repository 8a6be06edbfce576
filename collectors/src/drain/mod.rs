//! The drain thread: takes segments over, reads their rings, hands batches on, and notices when processes end.
//!
//! It sleeps on the session's socket, on a descriptor for every process, and on the launcher's commands; a
//! timer makes it read the rings: every few milliseconds under load, twenty times a second when little happens. It
//! never waits for the writer: when the channel is full the rings hold what comes, and drop and count beyond that.

mod bell;
mod describe;
mod hangs;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use gputrace_abi::clock::{COUNTER, ClockKind};

pub(crate) use bell::Bell;
use hangs::Hangs;
use watch::Watch;

use crate::Config;
use crate::arrivals::{Arrival, Arrivals};
use crate::clock::Clocks;
use crate::counters::Sampler;
use crate::kernel;
use crate::manifest::{ExitStatusInfo, Manifest, Node, Untraced};
use crate::names::Written;
use crate::process::Process;
use crate::schema::{SCHEMA_VERSION, TableId};
use crate::symbols::{Deadline, Native};
use crate::tables::{self, ProcessRow, Tables, ThreadRow};
use crate::writer::{Message, Shared};

/// The longest sleep while a process is traced: the pool holds 200,000 events, which takes a busy process 0.2 s.
const IDLE: Duration = Duration::from_millis(50);
/// The shortest sleep.
const BUSY: Duration = Duration::from_millis(1);
/// Events of a pass that are worth waking up for.
const WORTH: usize = 2048;
/// Segments that come as files are looked for this often.
const LOOK_FOR_FILES: Duration = Duration::from_millis(250);
/// Rows wait this long for their batch to fill.
const BATCH_AGE: Duration = Duration::from_millis(200);
/// What the launcher tells the drain.
pub(crate) enum Command {
    Untraced(Untraced),
    Root(u32),
    Finish { root: Option<ExitStatusInfo>, deadline: Instant },
}

const SOCKET: u64 = 0;
const BELL: u64 = 1;
/// Tokens from here on are processes.
const PROCESSES: u64 = 2;

/// The drain.
pub(crate) struct Drain {
    config: Config,
    shared: Shared,
    arrivals: Arrivals,
    watched: Watch,
    bell: Bell,
    commands: Receiver<Command>,
    writer: Sender<Message>,
    symbols: Sender<Native>,
    /// Until when symbols may be looked up, once the end has come.
    deadline: Deadline,
    /// Batches that the writer had no room for.
    unsent: Vec<Message>,
    clocks: Clocks,
    /// Reads counters from outside, where it is asked for.
    sampler: Option<Sampler>,
    tables: Tables,
    written: Written,
    processes: BTreeMap<u64, Process>,
    hangs: Hangs,
    /// Processes by token whose end was noticed.
    ended: Vec<u64>,
    next: u64,
    sequence: i64,
    manifest: Manifest,
    clock: Option<ClockKind>,
    root: Option<u32>,
    rows: Vec<ProcessRow>,
    thread_rows: Vec<ThreadRow>,
    interval: Duration,
    looked_for_files: Instant,
    batched: Instant,
    described: Instant,
    describing_takes: Duration,
    changed: bool,
}

impl Drain {
    pub(crate) fn new(
        config: Config,
        shared: Shared,
        arrivals: Arrivals,
        bell: Bell,
        commands: Receiver<Command>,
        writer: Sender<Message>,
        symbols: Sender<Native>,
    ) -> io::Result<Drain> {
        let watched = Watch::new()?;
        let sampler = Sampler::start(config.counters)?;
        let clocks = Clocks::start();
        let manifest = Manifest {
            schema_version: SCHEMA_VERSION,
            tool_version: config.tool_version.clone(),
            command: config.command.clone(),
            host: config.host.clone(),
            launcher_id: config.launcher_id,
            started_ns: clocks.now_ns(),
            clock: clocks.describe(COUNTER),
            node: Node::here(),
            host_memory: config.host_memory,
            ..Manifest::default()
        };
        let now = Instant::now();
        let drain = Drain {
            hangs: Hangs::new(&config, shared.clone()),
            config,
            shared,
            arrivals,
            watched,
            bell,
            commands,
            writer,
            symbols,
            deadline: Deadline::default(),
            unsent: Vec::new(),
            clocks,
            sampler,
            tables: Tables::new(),
            written: Written::default(),
            processes: BTreeMap::new(),
            ended: Vec::new(),
            next: PROCESSES,
            sequence: 0,
            manifest,
            clock: None,
            root: None,
            rows: Vec::new(),
            thread_rows: Vec::new(),
            interval: IDLE,
            looked_for_files: now,
            batched: now,
            described: now,
            describing_takes: Duration::ZERO,
            changed: false,
        };
        if let Some(socket) = drain.arrivals.descriptor() {
            drain.watch(socket, SOCKET)?;
        }
        drain.watch(drain.bell.descriptor(), BELL)?;
        Ok(drain)
    }

    /// Where it will say when the end has come.
    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline.clone()
    }

    /// The manifest of the start.
    pub(crate) fn first_manifest(&self) -> Manifest {
        self.manifest.clone()
    }

    fn watch(&self, fd: RawFd, token: u64) -> io::Result<()> {
        // A process ends once; while the writer is behind, its end must not wake us again and again.
        self.watched.add(fd, token, token >= PROCESSES)
    }

    /// Works until it is told to finish; returns the manifest, but for what only the writer knows.
    pub(crate) fn run(mut self) -> Manifest {
        let (root, deadline) = loop {
            self.sleep();
            if let Some(finish) = self.obey() {
                break finish;
            }
            self.welcome();
            self.pass();
            self.send_batches(false);
            self.describe_in_time();
        };
        self.finish(root, deadline)
    }

    /// Sleeps until something happens or the rings are due.
    fn sleep(&mut self) {
        let wait = match (self.processes.is_empty(), self.unsent.is_empty() && !self.arrivals.is_waiting()) {
            (_, false) => Duration::from_millis(2),
            (false, true) => self.interval,
            (true, true) => LOOK_FOR_FILES,
        };
        let (bell, ended) = (&self.bell, &mut self.ended);
        self.watched.sleep(wait, |token| match token {
            SOCKET => {}
            BELL => bell.quiet(),
            token => ended.push(token),
        });
    }

    /// Does what the launcher says. Some: it is time to finish.
    fn obey(&mut self) -> Option<(Option<ExitStatusInfo>, Instant)> {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Untraced(process)) => self.note_untraced(process),
                Ok(Command::Root(pid)) => self.root = Some(pid),
                Ok(Command::Finish { root, deadline }) => return Some((root, deadline)),
                Err(crossbeam_channel::TryRecvError::Empty) => return None,
                // The launcher is gone without a word.
                Err(crossbeam_channel::TryRecvError::Disconnected) => return Some((None, Instant::now())),
            }
        }
    }

    fn next_process_id(&mut self) -> i64 {
        let id = crate::process_id(self.config.launcher_id, self.sequence);
        self.sequence += 1;
        id
    }

    /// Takes over the segments that have come.
    fn welcome(&mut self) {
        let mut came = Vec::new();
        self.arrivals.accept(|arrival| came.push(arrival));
        if self.looked_for_files.elapsed() >= LOOK_FOR_FILES {
            self.looked_for_files = Instant::now();
            self.arrivals.adopt_files(|arrival| came.push(arrival));
        }
        for arrival in came {
            self.take_over(arrival);
        }
    }

    fn take_over(&mut self, arrival: Arrival) {
        self.changed = true;
        // An exec: the image that had the pid is no more. A file may belong to any of a pid's images.
        let same = |p: &&Process| p.pid == arrival.pid && arrival.file.is_none() && !p.foreign && !arrival.foreign;
        if let Some(token) = self.processes.iter().find(|(_, p)| same(p)).map(|(token, _)| *token) {
            self.end(token);
        }
        let id = self.next_process_id();
        let segment = match arrival.segment {
            Ok(segment) => segment,
            Err(refused) => {
                self.sequence -= 1;
                self.refuse(Untraced {
                    pid: arrival.pid,
                    exe: arrival.exe.unwrap_or_else(|| kernel::executable(arrival.pid)),
                    reason: refused.to_string(),
                });
                return;
            }
        };
        let mut process = Process::new(id, arrival.pid, segment);
        (process.file, process.foreign) = (arrival.file, arrival.foreign);
        if let Some(within_ns) = self.config.host_memory.cull_ns {
            process.cull(within_ns);
        }
        self.clock = self.clock.or(Some(process.clock));
        let token = self.next;
        self.next += 1;
        match arrival.pidfd {
            Some(pidfd) if self.watch(pidfd.as_raw_fd(), token).is_ok() => process.pidfd = Some(pidfd),
            _ if process.is_gone() => self.ended.push(token),
            _ => {}
        }
        if let Some(sampler) = self.sampler.as_ref().filter(|_| !process.foreign) {
            sampler.began(id, process.pid);
        }
        self.processes.insert(token, process);
        // It is busy starting: what it does next is worth seeing soon.
        self.interval = self.interval.min(Duration::from_millis(10));
    }

    /// Reads all rings.
    fn pass(&mut self) {
        if !self.flush_unsent() {
            // The writer is behind. Writers of rings that block must see that somebody is there.
            for process in self.processes.values() {
                process.beat();
            }
            return;
        }
        let (mut events, mut full) = (0, false);
        for process in self.processes.values_mut() {
            let read = process.pass(&mut self.clocks, &mut self.tables, &mut self.written, false);
            events += read;
            full |= read * 8 > process.slots();
            self.unsent.extend(self.tables.take_full());
            if let (Some(sampler), Some(devices)) = (&self.sampler, process.devices.news()) {
                sampler.sees(process.id, devices);
            }
        }
        self.look_for_hangs();
        self.take_readings(false);
        for token in std::mem::take(&mut self.ended) {
            self.end(token);
        }
        self.end_unwatched();
        self.write_worked();
        self.changed |= events > 0;
        self.interval = if full || events > 4 * WORTH {
            self.interval / 2
        } else if events < WORTH {
            self.interval * 3 / 2
        } else {
            self.interval
        }
        .clamp(BUSY, IDLE);
    }

    /// Processes without a descriptor (there was none left) are asked whether they live.
    fn end_unwatched(&mut self) {
        let unwatched = self.processes.iter().filter(|(_, p)| p.pidfd.is_none());
        let gone: Vec<u64> = unwatched.filter(|(_, p)| p.is_gone()).map(|(token, _)| *token).collect();
        for token in gone {
            self.end(token);
        }
    }

    /// A process image has ended.
    fn end(&mut self, token: u64) {
        let Some(mut process) = self.processes.remove(&token) else { return };
        self.changed = true;
        let now = self.clocks.now_ns();
        process.finish(&mut self.clocks, &mut self.tables, &mut self.written, Some(now));
        self.close_hangs(&mut process, Some(now));
        self.close(process);
    }

    fn close(&mut self, mut process: Process) {
        if let Some(sampler) = &self.sampler {
            sampler.ended(process.id);
        }
        self.unsent.extend(self.tables.take_full());
        self.thread_rows.extend(process.finished_threads());
        self.rows.push(process.row(&self.clocks, &self.config.host));
        self.manifest.processes.push(process.describe(&self.clocks));
        self.manifest.add_devices(process.devices.all());
        if let Some(file) = &process.file {
            self.arrivals.forget(file);
        }
    }

    /// Hands on full batches, and when it is time the others.
    fn send_batches(&mut self, all: bool) {
        for stack in self.tables.take_natives() {
            // Its thread ends after this one.
            let _ = self.symbols.send(stack);
        }
        let due = all || self.batched.elapsed() >= BATCH_AGE;
        if due {
            self.batched = Instant::now();
            self.take_names_again();
            self.unsent.extend(self.tables.take(1));
            self.send_rows(all);
        }
        self.flush_unsent();
    }

    /// Names that the writer could not store must be written once more.
    fn take_names_again(&mut self) {
        let mut report = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut report.names_lost) {
            self.written.forget();
            for process in self.processes.values_mut() {
                process.announce_again();
            }
        }
    }

    /// Rows of processes and threads that have ended. The root's last image waits for its exit status.
    fn send_rows(&mut self, all: bool) {
        let is_root = |row: &ProcessRow| self.root.is_none_or(|root| row.pid as u32 == root);
        let last_root = self.rows.iter().rposition(is_root).filter(|_| !all);
        let kept = last_root.map(|at| self.rows.remove(at));
        let (rows, threads) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.thread_rows));
        self.rows.extend(kept);
        let some = !rows.is_empty() || !threads.is_empty();
        if !rows.is_empty() {
            let batch = tables::processes(&rows).map(|b| Message::Rows(TableId::Processes, b, Vec::new()));
            self.unsent.extend(batch);
        }
        if !threads.is_empty() {
            let batch = tables::threads(&threads).map(|b| Message::Rows(TableId::Threads, b, Vec::new()));
            self.unsent.extend(batch);
        }
        if some && !all {
            self.send_live();
        }
    }

    /// Rows of everything that still runs, for the journal.
    fn send_live(&mut self) {
        let host = &self.config.host;
        let mut rows: Vec<ProcessRow> = self.processes.values().map(|p| p.row(&self.clocks, host)).collect();
        rows.extend(self.rows.iter().cloned());
        let threads: Vec<ThreadRow> = self.processes.values().flat_map(|p| p.live_threads(&self.clocks)).collect();
        self.unsent.extend(tables::processes(&rows).map(|b| Message::Live(TableId::Processes, b)));
        self.unsent.extend(tables::threads(&threads).map(|b| Message::Live(TableId::Threads, b)));
    }

    /// Sends what the writer has room for. True: nothing is left.
    fn flush_unsent(&mut self) -> bool {
        let mut unsent = std::mem::take(&mut self.unsent).into_iter();
        for message in unsent.by_ref() {
            match self.writer.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => {
                    self.unsent.push(message);
                    break;
                }
                // The writer is gone, which only a defect of ours can bring about; the rings must still be emptied.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
        self.unsent.extend(unsent);
        self.unsent.is_empty()
    }
}
