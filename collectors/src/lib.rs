//! The collector: takes over the segments of traced processes, reads their rings and writes the trace.
//!
//! An event flows ring -> `drain` (`chain`, `process`) -> `resolve` -> batch of a table (`tables`) -> channel ->
//! `writer` -> journal and Parquet file (`encode`, `file`). Two threads: the drain reads rings and never waits for
//! anything; the writer encodes and writes. Between them stands a bounded channel.
//!
//! The collector takes everything in a segment for the work of an enemy: positions are copied, indexes checked, chains
//! bounded. It promises the traced process that it never blocks it, and the reader that every call is accounted for.

mod account;
mod accounting;
pub mod archive;
mod arrivals;
mod bindings;
mod budget;
mod capture;
mod chain;
mod clock;
mod config;
mod control;
pub mod counters;
pub mod demangle;
pub mod detail;
mod drain;
mod encode;
mod ending;
mod facts;
mod file;
mod folder;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;
mod gpu_time;
mod hangs;
pub mod heir;
mod host_memory;
#[cfg(test)]
mod hostile_tests;
pub mod journal;
mod kernel;
pub mod live;
pub mod manifest;
pub mod names;
mod node;
pub mod occupancy;
mod outside;
mod process;
pub mod recover;
pub mod redact;
pub mod results;
pub mod rollups;
pub mod schema;
mod segment;
pub mod serve;
mod share;
mod stacks;
pub mod step_names;
mod stored;
mod summed;
#[cfg(any(test, fuzzing))]
#[path = "../tests/support/mod.rs"]
mod support;
mod symbols;
mod tables;
pub mod waiting;
mod writer;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use arrivals::Arrivals;
use drain::{Bell, Command, Drain};
use writer::{Shared, Writer};

pub use capture::Capture;
pub use config::Config;
pub use control::{Setting, control_path};
pub use drain::Fault;
pub use facts::quote;
pub use folder::write_text;
#[cfg(target_os = "linux")]
pub use kernel::processes;
pub use manifest::{ExitStatusInfo, Manifest, Untraced};
#[cfg(target_os = "linux")]
pub use outside::Unwinder;
pub use summed::MOST_NAMED;
pub use symbols::CLIENT as DEBUGINFOD_CLIENT;
pub use writer::was_killed;

/// A number for a launcher: 39 random bits.
pub fn new_launcher_id() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is as long as the call is told.
    let failed = unsafe { libc::getentropy(bytes.as_mut_ptr().cast(), bytes.len()) } != 0;
    let mut id = u64::from_le_bytes(bytes);
    if failed {
        // A kernel without the call, or a filter against it: pid and time differ between launchers as well.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        id = (now as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id()) << 20;
    }
    id & LAUNCHER_MASK
}

const LAUNCHER_MASK: u64 = (1 << 39) - 1;
/// Bits of a process's id in which its number stands.
const PROCESS_BITS: u32 = 24;

/// The id of a launcher's process: unique in a trace, however many launchers write it.
pub fn process_id(launcher_id: u64, number: i64) -> i64 {
    ((launcher_id & LAUNCHER_MASK) as i64) << PROCESS_BITS | number & ((1 << PROCESS_BITS) - 1)
}

/// What the ids of all processes of one launcher have in common.
pub fn launcher_of(process_id: i64) -> i64 {
    process_id >> PROCESS_BITS
}

/// Where the collector of a session listens.
pub fn socket_path(session: &Path) -> PathBuf {
    session.join("sock")
}

/// Why a collector could not start, or could not finish its trace.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The trace cannot be written there.
    #[error("cannot write the trace at {path}: {source}")]
    Trace {
        /// What could not be made or written.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The last manifest cannot be written: what it would have said is here.
    #[error("cannot write the account of the trace at {path}: {source}")]
    Account {
        /// The manifest's file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
        /// The account.
        manifest: Box<Manifest>,
    },
    /// The session's socket cannot be made.
    #[error("cannot listen at {path}: {source}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A thread of the collector could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A thread of the collector ended early; what it had sealed is readable.
    #[error("the collector stopped early; what it had written is readable")]
    Stopped,
}

/// A collector at work.
pub struct Running {
    config: Config,
    shared: Shared,
    commands: Sender<Command>,
    bell: Arc<Bell>,
    drain: JoinHandle<Manifest>,
    /// Closed when the writer has ended.
    writing: Receiver<()>,
}

/// Messages between drain and writer: half a megabyte each at most.
const CHANNEL: usize = 8;

/// Starts a collector: makes the trace's folders and the first manifest, listens on the session's socket.
///
/// When it returns, processes may be started: whatever they send waits until the drain takes it.
pub fn start(config: Config) -> Result<Running, CollectError> {
    start_with(config, None)
}

/// Goes on with the processes of a collector that was killed, or that left them ([`Running::leave`]): its trace is made whole first.
/// `config` is that collector's.
pub fn take_over(config: Config, left: heir::Inheritance) -> Result<Running, recover::TakeOverError> {
    let launcher = recover::Launcher { host: config.host.clone(), id: config.launcher_id };
    let before = recover::before(&config.trace, &launcher, left)?;
    Ok(start_with(config, Some(before))?)
}

fn start_with(mut config: Config, mut before: Option<recover::Before>) -> Result<Running, CollectError> {
    config.command = config.redact.words(&config.command);
    (config.file_bytes, config.file_age) = config.limits().of_files(config.file_bytes, config.file_age);
    let at = manifest::path(&config.trace, &config.host, config.launcher_id);
    let failed = |source| CollectError::Trace { path: at.clone(), source };
    std::fs::create_dir_all(&config.trace).and_then(|()| folder::refuse_links(&config.trace)).map_err(failed)?;
    folder::of_file(&at).map_err(failed)?;
    let socket = |source| CollectError::Socket { path: socket_path(&config.session), source };
    let door = before.as_mut().and_then(|before| before.left.door.take());
    let arrivals = Arrivals::listen(&config.session, door).map_err(socket)?;
    let shared = Shared::default();
    let bell = Bell::new().map_err(CollectError::Thread)?;
    let (commands, orders) = crossbeam_channel::unbounded();
    let (sender, messages) = crossbeam_channel::bounded(CHANNEL);
    let (symbols, stacks) = crossbeam_channel::unbounded();
    let resolved = sender.clone();
    let hearing = bell.try_clone().map_err(CollectError::Thread)?;
    let drain = Drain::new(config.clone(), shared.clone(), arrivals, hearing, orders, sender, symbols);
    let mut drain = drain.map_err(CollectError::Thread)?;
    let (mut written, goes_on) = (None, before.is_some());
    if let Some(mut before) = before {
        written = before.written.take();
        drain.go_on(before);
    }
    match drain.first_manifest().write(&at) {
        // The one of the collector before stands there, and the writer tries it again.
        Err(_) if goes_on => {}
        written => written.map_err(failed)?,
    }
    let writer = Writer::new(config.clone(), shared.clone(), written)?;
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let (working, writing) = crossbeam_channel::bounded(0);
    let write = move || {
        writer.run(&messages);
        drop(working);
    };
    spawn("gputrace-write").spawn(write).map_err(CollectError::Thread)?;
    let (deadline, live, debuginfod) = (drain.deadline(), drain.resolved(), config.debuginfod);
    spawn("gputrace-symbols")
        .spawn(move || symbols::run(&stacks, &resolved, &live, &deadline, debuginfod))
        .map_err(CollectError::Thread)?;
    let drain = spawn("gputrace-drain").spawn(move || drain.run()).map_err(CollectError::Thread)?;
    Ok(Running { config, shared, commands, bell: Arc::new(bell), drain, writing })
}

/// Lines about trouble (disk full, say), for the launcher to print.
pub struct Warnings(Shared);

impl Warnings {
    /// One that was not returned before.
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).warnings.pop_front()
    }
}

/// Programs of a session that outlives its collectors which a signal ended.
pub struct Faults(Shared);

impl Faults {
    /// One that was not returned before.
    pub fn take(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).faults.pop_front()
    }
}

impl Running {
    fn tell(&self, command: Command) {
        // The drain ends only when it is told to.
        let _ = self.commands.send(command);
        self.bell.ring();
    }

    /// The launcher found a process that cannot be traced.
    pub fn untraced(&self, process: Untraced) {
        self.tell(Command::Untraced(process));
    }

    /// The pid of the command itself, whose row gets the exit status.
    pub fn root(&self, pid: u32) {
        self.tell(Command::Root(pid));
    }

    /// Somebody asks for what just happened to be kept.
    pub fn dump(&self, why: &str) {
        self.tell(Command::Dump(why.to_owned()));
    }

    /// Recording goes on, or ends where any process records.
    pub fn switch(&self) {
        self.tell(Command::Switch);
    }

    /// Somebody else waits to go on, at the other end of this one.
    pub fn heir(&self, heir: Arc<OwnedFd>) {
        self.tell(Command::Heir(heir));
    }

    /// Where others ask how the session is doing.
    pub fn live(&self) -> live::Source {
        live::Source { commands: self.commands.clone(), bell: self.bell.clone() }
    }

    /// Lines about trouble for the launcher to print, also those that come while the collector finishes.
    pub fn warnings(&self) -> Warnings {
        Warnings(self.shared.clone())
    }

    /// Programs that a signal ended, of a session that outlives its collectors.
    pub fn faults(&self) -> Faults {
        Faults(self.shared.clone())
    }

    /// Brings to disk what there is, and reads no more: processes record on into their rings. For a session that outlives its collectors;
    /// the next one goes on where this one was, once this process has ended. Returns how many processes run on; none: not all of it is on
    /// the disk.
    pub fn leave(&self, deadline: Instant) -> Option<usize> {
        let (answer, left) = crossbeam_channel::bounded(1);
        self.tell(Command::Leave { deadline, answer });
        left.recv_deadline(deadline).ok().flatten()
    }

    /// Reads the rings to their end, seals the files, writes the last manifest.
    ///
    /// Processes that still run are marked so, and record no more. After `deadline` what is still on its way to the
    /// disk is given up.
    pub fn finish(self, root: Option<ExitStatusInfo>, deadline: Instant) -> Result<Manifest, CollectError> {
        self.tell(Command::Finish { root, deadline });
        let mut manifest = self.drain.join().map_err(|_| CollectError::Stopped)?;
        let late = self.writing.recv_deadline(deadline) == Err(RecvTimeoutError::Timeout);
        let mut report = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        report.complete(&mut manifest);
        manifest.complete = !late && !report.left_unfinished;
        if report.left_unfinished {
            manifest.note("the disk failed before the last files were whole: once it works, gputrace recover makes them of the journal, which may lack what came last");
        }
        if late {
            manifest.note("the last rows were still being written when the time was up: read the journal too");
        }
        let at = manifest::path(&self.config.trace, &self.config.host, self.config.launcher_id);
        match manifest.write(&at) {
            Ok(()) => Ok(manifest),
            Err(source) => Err(CollectError::Account { path: at, source, manifest: Box::new(manifest) }),
        }
    }
}
