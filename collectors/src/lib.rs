//! The collector: takes over the segments of traced processes, reads their rings and writes the trace.
//!
//! An event flows ring -> [drain] -> batch of a table -> channel -> [writer] -> journal and Parquet file.
mod arrivals;
mod bindings;
mod clock;
mod encode;
pub mod manifest;
pub mod names;
pub mod schema;
mod segment;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use manifest::{ExitStatusInfo, Manifest, Untraced};

/// What a collector is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of the trace. Made if missing; other launchers may write into it at the same time.
    pub trace: PathBuf,
    /// Folder of the session, which exists; the socket and the segments of processes without a socket stand in it.
    pub session: PathBuf,
    /// Name of this host, as it shall stand in file names and columns.
    pub host: String,
    /// Number of this launcher, unique over hosts and runs; the lowest 39 bits count. See [`new_launcher_id`].
    pub launcher_id: u64,
    /// The traced command and its arguments.
    pub command: Vec<String>,
    /// Bytes of sealed files that this collector may keep; the oldest go first.
    pub max_size: u64,
    /// Version of the tool.
    pub tool_version: String,
    /// A Parquet file is sealed when it has this many bytes ...
    pub file_bytes: u64,
    /// ... or is this old.
    pub file_age: Duration,
}

impl Config {
    /// A configuration with the usual limits: 2 GiB in all, files of 64 MiB or 10 minutes.
    pub fn new(trace: PathBuf, session: PathBuf, host: String, launcher_id: u64) -> Config {
        Config {
            trace,
            session,
            host,
            launcher_id,
            command: Vec::new(),
            max_size: 2 << 30,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            file_bytes: 64 << 20,
            file_age: Duration::from_secs(600),
        }
    }
}

/// A number for a launcher: 39 random bits.
pub fn new_launcher_id() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is as long as the call is told.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    let mut id = u64::from_le_bytes(bytes);
    if got != 8 {
        // A kernel without the call, or a filter against it: pid and time differ between launchers as well.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        id = (now as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id()) << 20;
    }
    id & LAUNCHER_MASK
}

const LAUNCHER_MASK: u64 = (1 << 39) - 1;

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
}

/// Starts a collector: makes the trace's folders and the first manifest, listens on the session's socket.
pub fn start(config: Config) -> Result<Running, CollectError> {
    Ok(Running { config })
}

impl Running {
    /// The launcher found a process that cannot be traced.
    pub fn untraced(&self, process: Untraced) {
        let _ = process;
    }

    /// The pid of the command itself, whose row gets the exit status.
    pub fn root(&self, pid: u32) {
        let _ = pid;
    }

    /// One line about trouble since the last call (disk full, say), for the launcher to print.
    pub fn warning(&self) -> Option<String> {
        None
    }

    /// Reads the rings to their end, seals the files, writes the last manifest. After `deadline` it stops waiting for
    /// processes that are being read and writes what it has.
    pub fn finish(self, root: Option<ExitStatusInfo>, deadline: Instant) -> Result<Manifest, CollectError> {
        let _ = (root, deadline, self.config);
        Ok(Manifest::default())
    }
}
