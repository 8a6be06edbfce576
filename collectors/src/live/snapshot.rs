//! What is answered to whoever asks a session how it is doing: all sums as they stand at one moment, with names and lines.
//!
//! Sums only grow, as long as one collector lives: who wants a rate asks twice. What is not known is missing, and never 0.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::rollups::Durations;

/// Number of this form; a reader of another one says so.
pub const VERSION: u32 = 1;

/// A session at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// The moment, ns since the Unix epoch.
    pub at_ns: i64,
    /// When the collector began.
    pub started_ns: i64,
    /// The traced command.
    pub command: Vec<String>,
    /// Its host.
    pub host: String,
    /// Folder of the trace.
    pub trace: String,
    /// Version of the tool that collects.
    pub tool_version: String,
    /// Processes that run and have sums of their own ([`super::MOST_PROCESSES`] at most), by their id.
    pub processes: Vec<Process>,
    /// The sums of all others together: of those that have ended, and of those beyond the bound.
    pub others: Sums,
    /// Processes that have ended.
    pub ended: u64,
    /// Processes that run, have no sums of their own, and count for the others.
    pub beyond: u64,
    /// Processes that could not be traced.
    pub untraced: u64,
    /// Calls that stood still for longer than `--hang-after`.
    pub hangs: u64,
    /// What GPUs did, of all processes together; only GPUs whose times are known.
    pub devices: Vec<Device>,
    /// The last reading of each counter of a device or a control group; those of a process are with it.
    pub counters: Vec<Reading>,
    /// What was hot in the last seconds; missing where nobody had asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<Hot>,
}

/// Sums of one process, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// By class of event (`launch`, `sync`, `transfer`, ...), and `kernel` and `device_copy` for the GPU's work; only those
    /// that came.
    pub kinds: BTreeMap<Cow<'static, str>, Kind>,
    /// Device memory that it has from the driver, bytes; of what was taken and given back while it was recorded.
    pub device_memory_bytes: i64,
    /// What tracing cost it, ns of its threads' time; missing where that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<f64>,
}

/// Sums of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    /// Calls that began, by the account of the process itself; 0 for the GPU's work, which has none.
    pub seen: u64,
    /// Events that were read. Those that were only counted come into it once a second.
    pub events: u64,
    /// Events of calls that failed.
    pub failed: u64,
    /// Bytes that they moved, took or gave back.
    pub bytes: i64,
    /// Events whose duration is known.
    pub timed: u64,
    /// Their time, ns: of all threads, or of all streams, together.
    pub total_ns: i64,
    /// How much of that was waiting for work before them, where they do not say that they wait: of copies and sets, allocations and
    /// frees.
    #[serde(default)]
    pub waited_ns: i64,
    /// Their durations.
    pub durations: Durations,
    /// Events that found no room, or were lost on their way.
    pub dropped: u64,
    /// Calls that sampling, or the budget, left out.
    pub sampled_out: u64,
    /// Calls that run at this moment.
    pub running: u64,
    /// How long these have run already, ns: not in `total_ns` yet.
    pub running_ns: i64,
}

/// A process that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// As in the trace's tables.
    pub process_id: i64,
    /// In the collector's pid namespace.
    pub pid: i32,
    /// Its rank, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<i32>,
    /// Its program.
    pub exe: String,
    /// Its command line, as the trace has it.
    pub command: String,
    /// When it began.
    pub start_ns: i64,
    /// Whether it records.
    pub recording: bool,
    /// Threads that made calls and live.
    pub threads: u64,
    /// Its sums.
    pub sums: Sums,
    /// What the GPU did for it; missing where the GPU's times are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// What is left out at this moment, to keep to the budget: `stacks`, and of malloc's samples and of launches one in so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shed: Option<Shed>,
    /// The last reading of each counter of the process.
    pub counters: Vec<Reading>,
}

/// What the GPU did for a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// For how long that is known, ns; with windows, the sum of them. Shares of busy time are shares of this.
    pub observed_ns: i64,
    /// By device that it used.
    pub devices: Vec<Device>,
}

/// Busy time of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its ordinal in the process; missing where it is of several processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<i32>,
    /// Its UUID, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Time in which at least one kernel, copy or set ran, ns.
    pub busy_ns: i64,
}

/// What is left out of a process at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shed {
    /// No stacks are taken.
    pub stacks: bool,
    /// Samples of malloc lie so many times as far apart; 1 is all.
    pub malloc_one_in: u64,
    /// One of so many launches is recorded; 1 is all.
    pub launches_one_in: u64,
}

/// The last reading of a counter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Source and name, as in [`crate::counters::COUNTERS`].
    pub source: Cow<'static, str>,
    /// The name.
    pub name: Cow<'static, str>,
    /// UUID of the device that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// When it was read.
    pub at_ns: i64,
    /// Its value; of what is added up by the kernel or the device, what was added since the reading before.
    pub value: f64,
    /// Sum of all values so far: what such a counter has added up.
    pub sum: f64,
}

/// What was hot in the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hot {
    /// How long that time is, ns.
    pub span_ns: i64,
    /// Kernels, hottest first: by what is known of their time, then by launches.
    pub kernels: Vec<HotKernel>,
    /// Lines that make calls, by their time, hottest first; waits for the operating system (`os_wait`) behind all others.
    pub sites: Vec<HotSite>,
    /// Some did not find room: there are more kernels, or lines, than are kept.
    pub cut: bool,
}

/// A kernel in the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotKernel {
    /// Its name, mangled as it is in the trace; missing where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Launches by calls; a graph's kernels have none of their own.
    pub launches: u64,
    /// Time in these calls, ns.
    pub launch_ns: i64,
    /// Runs whose time on the GPU is known; with windows and with events these are samples.
    pub timed: u64,
    /// Their time on the GPU, ns.
    pub gpu_ns: i64,
}

/// A line that made calls in the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotSite {
    /// Class of the calls.
    pub kind: Cow<'static, str>,
    /// The stack, innermost frame first, as far as it is kept; empty where it is not known.
    pub frames: Vec<Frame>,
    /// Calls.
    pub calls: u64,
    /// Of how many of them these numbers are an estimate: those that were drawn, each for as many as it stands for (launches). 0: each
    /// call was counted.
    #[serde(default)]
    pub drawn: u64,
    /// Their time, ns, of all threads.
    pub total_ns: i64,
    /// Bytes that they moved, took or gave back.
    pub bytes: i64,
}

/// A frame, as the table `stacks` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Of Python's code.
    pub python: bool,
    /// Function, mangled; empty when not known.
    pub function: String,
    /// Source file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<i32>,
    /// Program or library of native code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Address in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
}

impl Snapshot {
    /// A snapshot of its text; an error in the user's words.
    pub fn parse(text: &str) -> Result<Snapshot, String> {
        #[derive(Deserialize)]
        struct Form {
            version: u32,
        }
        let form = serde_json::from_str::<Form>(text).map_err(|error| format!("its answer cannot be read: {error}"))?;
        if form.version != VERSION {
            let version = form.version;
            return Err(format!(
                "it is of another version of gputrace: its answer has form {version}, known is {VERSION}"
            ));
        }
        serde_json::from_str(text).map_err(|error| format!("its answer cannot be read: {error}"))
    }
}

impl Sums {
    /// Adds all of another.
    pub(super) fn add(&mut self, other: &Sums) {
        for (kind, sums) in &other.kinds {
            self.kinds.entry(kind.clone()).or_default().add(sums);
        }
        self.device_memory_bytes += other.device_memory_bytes;
        self.cost_ns = match (self.cost_ns, other.cost_ns) {
            (Some(own), Some(more)) => Some(own + more),
            (own, more) => own.or(more),
        };
    }
}

impl Kind {
    pub(super) fn add(&mut self, other: &Kind) {
        self.seen = self.seen.saturating_add(other.seen);
        self.events = self.events.saturating_add(other.events);
        self.failed += other.failed;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.timed += other.timed;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.durations.merge(&other.durations);
        self.dropped += other.dropped;
        self.sampled_out = self.sampled_out.saturating_add(other.sampled_out);
        self.running += other.running;
        self.running_ns += other.running_ns;
    }
}
