//! Counters of devices, processes and control groups, read from outside the traced processes by a thread of the collector.
//!
//! The drain tells the thread which processes there are and which devices they see; the thread looks at them so many times a second
//! and hands rows back, which the drain writes. It asks NVML for nothing before a traced process has a CUDA device, since NVML may
//! wake a device up, and it may be slow or hang in the driver: nobody waits for it, but for a moment at the end. What could not be
//! read, and why, is said once, in the manifest.

#[cfg(target_os = "linux")]
mod linux;
mod list;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(any(target_os = "macos", test))]
mod task;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;

pub(crate) use list::Id;
pub use list::{COUNTERS, Counter};
#[cfg(target_os = "macos")]
pub(crate) use task::Task;

use crate::manifest::Device;

/// The most readings per second: a GPM metric needs some time between its two samples.
pub const MOST_HZ: f64 = 10.0;
/// So long the end waits for the last readings. Only a driver that does not answer takes more than a moment.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// What can be read of devices here, or why nothing can. Loads NVML, which may wake a device up.
pub fn probe() -> Result<String, String> {
    system::probe()
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Readings per second, at most [`MOST_HZ`].
    pub hz: f64,
    /// Counters of the processors by perf_event_open as well. They cost the traced threads something at each switch.
    pub cpu: bool,
}

/// What was read from outside, as the manifest has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Readings per second that were asked for.
    pub hz: f64,
    /// Readings that were made.
    pub readings: u64,
    /// Processor time that they took, ns, in the collector.
    pub cpu_ns: u64,
    /// Readings after which the next one was put off, for what it had cost.
    #[serde(default)]
    pub put_off: u64,
    /// UUIDs of devices that fell off the bus, or needed a reset, while it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// What was read where.
    pub sources: Vec<Source>,
}

/// One source of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// `nvml`, `gpm`, `proc`, `cgroup` or `perf`.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// What of it could not be read, and why, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Counters {
    fn new(hz: f64) -> Counters {
        let mut sources: Vec<Source> = Vec::new();
        // What a process tells of itself is no reading from outside.
        for counter in COUNTERS.iter().filter(|counter| counter.source != "malloc") {
            if sources.last().is_none_or(|last| last.name != counter.source) {
                sources.push(Source { name: counter.source.to_owned(), ..Source::default() });
            }
        }
        Counters { hz, sources, ..Counters::default() }
    }

    fn source(&mut self, name: &str) -> Option<&mut Source> {
        self.sources.iter_mut().find(|source| source.name == name)
    }
}

/// What the drain tells the thread.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
enum Told {
    /// A process image began.
    Began { process_id: i64, pid: i32 },
    /// It sees these devices: UUID and PCI address.
    Sees { process_id: i64, devices: Vec<(String, String)> },
    /// It has ended.
    Ended { process_id: i64 },
}

/// A value that was read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// CLOCK_MONOTONIC when it was read, or when the stretch began, ns.
    pub(crate) monotonic_ns: u64,
    pub(crate) interval_ns: Option<u64>,
    /// Process id of the trace, and pid.
    pub(crate) process: Option<(i64, i32)>,
    pub(crate) device: Option<Arc<str>>,
    pub(crate) id: Id,
    pub(crate) value: f64,
}

/// The drain's end of it.
pub(crate) struct Sampler {
    told: Option<Sender<Told>>,
    read: Receiver<Vec<Reading>>,
    about: Arc<Mutex<Counters>>,
}

impl Sampler {
    /// Starts the thread, where anything is asked for.
    pub(crate) fn start(asked: Option<Asked>) -> io::Result<Option<Sampler>> {
        let Some(asked) = asked else { return Ok(None) };
        let (told, heard) = crossbeam_channel::unbounded();
        let (out, read) = crossbeam_channel::unbounded();
        let about = Arc::new(Mutex::new(Counters::new(asked.hz)));
        let shared = Arc::clone(&about);
        let run = move || system::run(asked, &heard, &out, &shared);
        std::thread::Builder::new().name("gputrace-count".to_owned()).spawn(run)?;
        Ok(Some(Sampler { told: Some(told), read, about }))
    }

    fn tell(&self, what: Told) {
        if let Some(told) = &self.told {
            // It ends only after this end of the channel.
            let _ = told.send(what);
        }
    }

    /// A process image began.
    pub(crate) fn began(&self, process_id: i64, pid: i32) {
        self.tell(Told::Began { process_id, pid });
    }

    /// It sees these devices.
    pub(crate) fn sees<'a>(&self, process_id: i64, devices: impl Iterator<Item = &'a Device>) {
        let devices = devices.map(|device| (device.uuid.clone(), device.pci_bus_id.clone())).collect();
        self.tell(Told::Sees { process_id, devices });
    }

    /// It has ended.
    pub(crate) fn ended(&self, process_id: i64) {
        self.tell(Told::Ended { process_id });
    }

    /// What was read since the last call.
    pub(crate) fn take(&self) -> impl Iterator<Item = Reading> {
        self.read.try_iter().flatten()
    }

    /// Ends the thread, and takes what it read last, if it is not slow.
    pub(crate) fn finish(&mut self) -> Vec<Reading> {
        self.told = None;
        let deadline = Instant::now() + LAST_WAIT;
        std::iter::from_fn(|| self.read.recv_deadline(deadline).ok()).flatten().collect()
    }

    /// What the manifest says.
    pub(crate) fn describe(&self) -> Counters {
        self.about.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
