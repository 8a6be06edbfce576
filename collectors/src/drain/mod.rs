//! The drain thread: takes segments over, reads their rings, hands batches on, and notices when processes end.
//!
//! It sleeps on the session's socket, on a descriptor for every process, and on the launcher's commands; a
//! timer makes it read the rings: every few milliseconds under load, twenty times a second when little happens. It
//! never waits for the writer: when the channel is full the rings hold what comes, and drop and count beyond that.

mod bell;
mod counted;
mod describe;
mod disabled;
mod dumps;
mod faults;
mod go_on;
mod hangs;
mod leave;
mod live;
mod parting;
mod scheduled;
mod send;
mod set;
mod switch;
mod watch;
mod welcome;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use gputrace_abi::clock::{COUNTER, ClockKind};

pub(crate) use bell::Bell;
use counted::Counted;
use disabled::Disabled;
use dumps::Dump;
pub use faults::Fault;
use hangs::Hangs;
use live::Watched;
use parting::Parting;
use scheduled::Schedule;
use switch::Switch;
use watch::Watch;

use crate::Config;
use crate::arrivals::{Arrivals, LOOK_FOR_FILES};
use crate::clock::Clocks;
use crate::control::Control;
use crate::counters::Sampler;
use crate::detail::{self, Stage};
use crate::heir::Will;
use crate::live::{Resolved, Snapshot};
use crate::manifest::{ExitStatusInfo, Manifest, Node, Untraced};
use crate::names::Written;
use crate::process::Process;
use crate::rollups::Rollups;
use crate::schema::SCHEMA_VERSION;
use crate::symbols::{Deadline, Native};
use crate::tables::{ProcessRow, Tables, ThreadRow};
use crate::writer::{Message, Shared};

/// The longest sleep while a process is traced: the pool holds 200,000 events, which takes a busy process 0.2 s.
const IDLE: Duration = Duration::from_millis(50);
/// The shortest sleep.
const BUSY: Duration = Duration::from_millis(1);
/// As long at most where a process tells time by passes ([`gputrace_abi::pending`]).
const BEAT: Duration = Duration::from_millis(5);
/// Events of a pass that are worth waking up for.
const WORTH: usize = 2048;
/// Rows wait this long for their batch to fill.
const BATCH_AGE: Duration = Duration::from_millis(200);
/// What the launcher tells the drain.
pub(crate) enum Command {
    Untraced(Untraced),
    Root(u32),
    Dump(String),
    Switch,
    Heir(Arc<OwnedFd>),
    Live { hot: bool, answer: Sender<Arc<Snapshot>> },
    Finish { root: Option<ExitStatusInfo>, deadline: Instant },
    Leave { deadline: Instant, answer: Sender<Option<usize>> },
}

const SOCKET: u64 = 0;
const BELL: u64 = 1;
const CONTROL: u64 = 2;
/// Tokens from here on are processes.
const PROCESSES: u64 = 3;

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
    /// What holds single events back, where not all are kept.
    stage: Option<Stage>,
    /// Where others ask for something; none where it could not be made.
    control: Option<Control>,
    /// What was asked to be kept, and is not on the disk yet.
    dumps: Vec<Dump>,
    watched_by: Watched,
    switch: Switch,
    schedule: Schedule,
    disabled: Disabled,
    /// When the earliest row of what GPUs did may begin that is still to come.
    unwritten_ns: i64,
    clocks: Clocks,
    /// Reads counters from outside, where it is asked for.
    sampler: Option<Sampler>,
    tables: Tables,
    counted: Counted,
    written: Written,
    processes: BTreeMap<u64, Process>,
    /// What is left to who goes on, should this collector be killed.
    will: Will,
    hangs: Hangs,
    /// Processes by token whose end was noticed.
    ended: Vec<u64>,
    next: u64,
    sequence: i64,
    manifest: Manifest,
    clock: Option<ClockKind>,
    root: Option<u32>,
    /// How its last image ended, where that is known.
    root_ended: Option<ExitStatusInfo>,
    rows: Vec<ProcessRow>,
    thread_rows: Vec<ThreadRow>,
    /// The journal was told of windows of GPU times that were open.
    has_windows: bool,
    interval: Duration,
    looked_for_files: Instant,
    batched: Instant,
    described: Instant,
    describing_takes: Duration,
    changed: bool,
    parting: Parting,
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
        let clocks = Clocks::at_speed(config.speed);
        let mut manifest = Manifest {
            schema_version: SCHEMA_VERSION,
            tool_version: config.tool_version.clone(),
            command: config.command.clone(),
            host: config.host.clone(),
            launcher_id: config.launcher_id,
            started_ns: clocks.now_ns(),
            clock: clocks.describe(COUNTER),
            node: Node::here(),
            host_memory: config.host_memory,
            standing: config.standing_root(),
            ..Manifest::default()
        };
        let mut tables = Tables::new();
        tables.sum_up(config.rollup.map(Rollups::new));
        let control = Control::listen(&config.session);
        if let Err(error) = &control {
            manifest
                .note(&format!("nobody can ask this session for anything: its control socket cannot be made: {error}"));
        }
        let stage = Stage::new(config.detail, manifest.started_ns);
        manifest.detail = stage.as_ref().map(Stage::describe);
        let now = Instant::now();
        let mut drain = Drain {
            hangs: Hangs::new(&config, shared.clone()),
            will: Will::new(config.heir.clone()),
            schedule: Schedule::of(config.capture),
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
            stage,
            control: control.ok(),
            dumps: Vec::new(),
            watched_by: Watched::default(),
            switch: Switch::new(manifest.started_ns),
            disabled: Disabled::default(),
            unwritten_ns: i64::MAX,
            clocks,
            sampler,
            tables,
            counted: Counted::default(),
            written: Written::default(),
            processes: BTreeMap::new(),
            ended: Vec::new(),
            next: PROCESSES,
            sequence: 0,
            manifest,
            clock: None,
            root: None,
            root_ended: None,
            rows: Vec::new(),
            thread_rows: Vec::new(),
            has_windows: false,
            interval: IDLE,
            looked_for_files: now,
            batched: now,
            described: now,
            describing_takes: Duration::ZERO,
            changed: false,
            parting: Parting::default(),
        };
        if let Some(socket) = drain.arrivals.descriptor() {
            drain.leave_door();
            drain.watch(socket, SOCKET)?;
        }
        if let Some(control) = &drain.control {
            drain.watch(control.descriptor(), CONTROL)?;
        }
        drain.watch(drain.bell.descriptor(), BELL)?;
        Ok(drain)
    }

    /// Where it will say when the end has come.
    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline.clone()
    }

    /// Where native stacks are told of once they have symbols.
    pub(crate) fn resolved(&self) -> Resolved {
        self.tables.live.resolved()
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
            self.answer();
            self.see_switches();
            self.see_disable_file();
            self.follow_schedule();
            self.describe_in_time();
        };
        self.finish(root, deadline)
    }

    /// Sleeps until something happens or the rings are due.
    fn sleep(&mut self) {
        let wait = match (self.processes.is_empty(), !self.is_behind() && !self.arrivals.is_waiting()) {
            (_, false) => Duration::from_millis(2),
            (false, true) => self.interval,
            (true, true) => LOOK_FOR_FILES,
        };
        let wait = wait.min(self.until_switched());
        let (bell, ended) = (&self.bell, &mut self.ended);
        self.watched.sleep(wait, |token| match token {
            SOCKET | CONTROL => {}
            BELL => bell.quiet(),
            token => ended.push(token),
        });
    }

    /// Does what the launcher says. Some: it is time to finish.
    fn obey(&mut self) -> Option<(Option<ExitStatusInfo>, Instant)> {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Untraced(process)) => self.note_untraced(process),
                Ok(Command::Root(pid)) => {
                    self.root = Some(pid);
                    self.will.root(pid);
                }
                Ok(Command::Dump(why)) => self.dump(None, &why),
                Ok(Command::Switch) => self.switch_over(),
                Ok(Command::Heir(heir)) => self.leave_to(heir),
                Ok(Command::Live { hot, answer }) => self.show(hot, &answer),
                Ok(Command::Finish { root, deadline }) => return Some((root, deadline)),
                Ok(Command::Leave { deadline, answer }) => self.leave(deadline, &answer),
                Err(crossbeam_channel::TryRecvError::Empty) => return None,
                // The launcher is gone without a word.
                Err(crossbeam_channel::TryRecvError::Disconnected) => return Some((None, Instant::now())),
            }
        }
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
        let (mut events, mut full, mut waits) = (0, false, false);
        self.tables.live.tick(self.clocks.now_ns());
        for process in self.processes.values_mut() {
            let read = process.pass(&mut self.clocks, &mut self.tables, &mut self.written, false);
            events += read;
            full |= read * 8 > process.slots();
            waits |= process.is_waiting(&self.clocks);
            detail::hand_on(&mut self.stage, self.tables.take_full(), &mut self.unsent);
            if let Some(told) = process.leave() {
                self.will.told(process.id, told);
            }
            if process.devices.are_more() {
                self.tables.live.sees(process.id, process.devices.all().map(|device| device.uuid.as_str()));
                if let Some(sampler) = &self.sampler {
                    sampler.sees(process.id, process.devices.all());
                }
            }
        }
        self.will.flush();
        self.look_for_hangs();
        self.take_readings(false);
        for token in std::mem::take(&mut self.ended) {
            self.end(token);
        }
        self.end_unwatched();
        self.write_worked();
        self.changed |= events > 0;
        self.interval = if waits {
            BUSY
        } else if full || events > 4 * WORTH {
            self.interval / 2
        } else if events < WORTH {
            self.interval * 3 / 2
        } else {
            self.interval
        }
        .clamp(BUSY, if self.processes.values().any(Process::has_pending) { BEAT } else { IDLE });
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
        self.end_at(token, self.clocks.now_ns());
    }

    /// The same, where it is known when.
    fn end_at(&mut self, token: u64, end_ns: i64) {
        let Some(mut process) = self.processes.remove(&token) else { return };
        self.changed = true;
        process.finish(&mut self.clocks, &mut self.tables, &mut self.written, Some(end_ns));
        self.note_death(&process);
        self.note_fault(&process);
        self.close_hangs(&mut process, Some(end_ns));
        self.close(process);
    }

    fn close(&mut self, mut process: Process) {
        process.see_switches(&self.clocks);
        self.switch.ended(&process.recording, process.ended_ns.unwrap_or_else(|| self.clocks.now_ns()));
        if let Some(sampler) = &self.sampler {
            sampler.ended(process.id);
        }
        detail::hand_on(&mut self.stage, self.tables.take_full(), &mut self.unsent);
        self.thread_rows.extend(process.finished_threads());
        self.rows.push(process.row(&self.clocks, &self.config.host));
        let described = process.describe(&self.clocks);
        self.note_damage(&process, &described.exe);
        self.counted.ended(&described, self.clocks.now_ns(), &mut self.tables);
        self.tables.live.ended(&described);
        self.manifest.processes.push(described);
        self.sum_up();
        if self.root.is_some_and(|root| root == process.pid as u32 && !process.foreign) {
            self.root_ended = process.ending(self.manifest.started_ns);
        }
        if let Some(recovered) = &mut self.manifest.recovered {
            recovered.lost += process.lost();
        }
        self.manifest.add_devices(process.devices.all());
        self.part_from(process);
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
            self.tables.settle_rollups(self.clocks.now_ns(), all);
            detail::hand_on(&mut self.stage, self.tables.take(1), &mut self.unsent);
            self.send_rows(all);
        }
        self.flush_unsent();
    }
}
