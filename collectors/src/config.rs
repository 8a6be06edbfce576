//! What a collector is told.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::writer::Limits;
use crate::{Capture, counters, detail, heir, manifest, redact, summed};

/// What a collector is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Folder of the trace. Made if missing; other launchers may write into it at the same time.
    #[serde(with = "heir::path")]
    pub trace: PathBuf,
    /// Folder of the session, which exists; the socket and the segments of processes without a socket stand in it.
    #[serde(with = "heir::path")]
    pub session: PathBuf,
    /// Name of this host, as it shall stand in file names and columns.
    pub host: String,
    /// Number of this launcher, unique over hosts and runs; the lowest 39 bits count. See [`crate::new_launcher_id`].
    pub launcher_id: u64,
    /// The traced command and its arguments.
    pub command: Vec<String>,
    /// Bytes of sealed files that this collector may keep; the oldest go first.
    pub max_size: u64,
    /// What is older goes, sums as well.
    pub max_age: Option<Duration>,
    /// Single events that are older go; their sums stay.
    pub keep_detail: Option<Duration>,
    /// Version of the tool.
    pub tool_version: String,
    /// A Parquet file is sealed when it has this many bytes ...
    pub file_bytes: u64,
    /// ... or is this old.
    pub file_age: Duration,
    /// What is read of devices and processes from outside; nothing unless it is set.
    pub counters: Option<counters::Asked>,
    /// A call that stands still for so long hangs, and is reported; none: nothing is.
    pub hang_after: Option<Duration>,
    /// What is asked for of host memory: the shim was told of it apart.
    pub host_memory: manifest::HostMemory,
    /// Debugging information that is not here is asked of the user's servers.
    pub debuginfod: bool,
    /// Length of the periods whose events are summed up; none: no sums are made.
    pub rollup: Option<Duration>,
    /// Which single events are kept.
    pub detail: detail::Detail,
    /// What of command lines is not written.
    pub redact: redact::Redact,
    /// When recording is on; none: from the start to the end, unless it is switched otherwise.
    pub capture: Option<Capture>,
    /// What is to switch it on, as a sentence that says that it did not come; none: nothing, or it is not known.
    #[serde(default)]
    pub awaited: Option<String>,
    /// The session outlives its collectors: segments are files, and each collector leaves what the next one needs in the session's folder.
    #[serde(default)]
    pub standing: bool,
    /// It is one of `gputrace collect`, whose programs start without us and which a next collector goes on with.
    #[serde(default)]
    pub collected: bool,
    /// Programs are started with recording off. Those that run already stay as they are, and where that is otherwise it is said.
    #[serde(default)]
    pub begin_paused: bool,
    /// A file that, while it is there, switches recording off.
    pub disable_file: Option<PathBuf>,
    /// Ended processes that the manifest names; the accounts of more are summed up.
    #[serde(default = "most_named")]
    pub most_named: usize,
    /// How many times as fast as it does time shall pass, for whoever tries weeks in minutes. 1 unless set; more only for segments
    /// whose clock is CLOCK_MONOTONIC.
    #[serde(skip, default = "real_time")]
    pub speed: u32,
    /// What the account of the session's earlier trace, which is another one, has of each process, by class.
    #[serde(skip)]
    pub accounts_before: BTreeMap<i64, BTreeMap<String, manifest::Count>>,
    /// When that trace ended, ns since the Unix epoch.
    #[serde(skip)]
    pub ended_before_ns: Option<i64>,
    /// The end of a pair ([`heir::pair`]) at whose other end somebody waits to go on, should this collector be killed.
    #[serde(skip)]
    pub heir: Option<Arc<OwnedFd>>,
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
            max_age: None,
            keep_detail: None,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            file_bytes: 64 << 20,
            file_age: Duration::from_secs(600),
            counters: None,
            hang_after: None,
            host_memory: manifest::HostMemory::default(),
            debuginfod: false,
            rollup: Some(Duration::from_secs(1)),
            detail: detail::Detail::Full,
            redact: redact::Redact::default(),
            capture: None,
            awaited: None,
            standing: false,
            collected: false,
            begin_paused: false,
            disable_file: None,
            most_named: most_named(),
            speed: real_time(),
            accounts_before: BTreeMap::new(),
            ended_before_ns: None,
            heir: None,
        }
    }

    /// The folder of a session of `gputrace collect`.
    pub(crate) fn standing_root(&self) -> Option<String> {
        let root = self.session.parent().filter(|_| self.collected)?;
        Some(root.to_string_lossy().into_owned())
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { max_size: self.max_size, max_age: self.max_age, keep_detail: self.keep_detail, rollup: self.rollup }
    }
}

/// [`Config::most_named`] unless it is set.
fn most_named() -> usize {
    summed::MOST_NAMED
}

/// [`Config::speed`] unless it is set.
fn real_time() -> u32 {
    1
}
