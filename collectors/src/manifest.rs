//! What a collector knows about its own trace: which processes, what was lost, what was covered, what it cost.
//!
//! One JSON file per launcher in `TRACE/manifest/`, replaced as a whole: at the start, every few seconds, at the end.
//! The promise "nothing is lost in silence" is kept here: for each process and class
//! `seen = recorded + culled + left_out + dropped + sampled_out + in_flight + abandoned`, and `balanced` says whether that holds.

mod clock;
mod coverage;
mod gpu_clock;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use self::clock::{Clock, Pair};
pub use self::coverage::{Coverage, ExportTable, Hook, Inline, Left, Past, Symbol};
pub use self::gpu_clock::GpuClock;
pub use crate::account::Count;
pub use crate::budget::{HookBudget, ShedPart};
pub use crate::counters::{Counters, Source};
pub use crate::detail::{Earlier, Interval, KeptDetail, Windows};
pub use crate::gpu_time::{Aside, Budget, GpuTime, TimedLaunches};
pub use crate::hangs::Hang;
use gputrace_abi::Class;
use serde::{Deserialize, Serialize};

use crate::file::own_file;
use crate::folder;
pub use crate::host_memory::HostMemory;
pub use crate::node::{Attached, Device, Node};
pub use crate::recover::Recovered;
use crate::share::Share;
pub use crate::stored::{Stored, StoredTables};
pub use crate::summed::{MOST_NAMED, Summed};

/// The manifest, as it stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`crate::schema::SCHEMA_VERSION`] of the tables beside it.
    pub schema_version: u32,
    /// Version of gputrace that wrote it.
    pub tool_version: String,
    /// The traced command and its arguments.
    pub command: Vec<String>,
    /// Host of the collector, as in `host=` of the file names.
    pub host: String,
    /// The launcher: [`launcher_text`] of this number is in the file names.
    pub launcher_id: u64,
    /// Start of the collector, ns since the Unix epoch.
    pub started_ns: i64,
    /// End of the collector; missing while it runs, and for ever when it was killed.
    pub ended_ns: Option<i64>,
    /// The collector ended by itself: everything that it read stands in sealed files. Else read the journal too.
    pub complete: bool,
    /// How ticks became nanoseconds.
    pub clock: Clock,
    /// The command itself.
    pub root: Option<Root>,
    /// Every process image that gave us a segment; of many that have ended, so many.
    pub processes: Vec<Process>,
    /// The others, in one account; missing where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summed: Option<Box<Summed>>,
    /// What the machine gives the command.
    #[serde(default)]
    pub node: Node,
    /// Devices that traced processes could see, each once.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// What was read from outside of devices and processes; missing where nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// What was asked for of host memory.
    #[serde(default)]
    pub host_memory: HostMemory,
    /// Of which time single events were kept; missing where all were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<KeptDetail>,
    /// Calls that stood still for longer than `--hang-after`, in the order in which they were noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hangs: Vec<Hang>,
    /// Processes that could not be traced, and why; of very many the first, and one for each reason.
    pub untraced: Vec<Untraced>,
    /// What the tables have, once that is the last word.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stored: StoredTables,
    /// Sealed files that were removed to stay within limits of size and age, oldest first, relative to the trace: the last ones.
    pub removed_files: Vec<String>,
    /// How many were removed before these.
    #[serde(default, skip_serializing_if = "coverage::is_zero")]
    pub removed_before: u64,
    /// What stood in them: the oldest detail. The counts of the processes still have it.
    #[serde(default)]
    pub removed: Vec<Removed>,
    /// Whose events these were, `PROCESS:CLASS:EVENTS:SUMMED` each: for the account, should the collector be killed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub removed_events: String,
    /// What became of the trace after the collector was killed; missing where it was not, or nobody has looked at it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Recovered>,
    /// About when collectors were killed for which others went on, ns since the Unix epoch: the last ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kills: Vec<i64>,
    /// Folder of the session, where it is one of `gputrace collect`: `command` is the collector's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<String>,
    /// When the collector was stopped, ns since the Unix epoch, of a session that goes on; missing while one is at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_ns: Option<i64>,
    /// What else a reader must know, a sentence each.
    pub notes: Vec<String>,
}

/// Rows of one table that were removed to stay within a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// The table.
    pub table: String,
    /// The limit: `--max-size`, `--max-age` or `--keep-detail`.
    pub limit: String,
    /// Rows.
    pub rows: u64,
    /// Begin of the first one, ns since the Unix epoch.
    pub from_ns: i64,
    /// Begin of the last one.
    pub to_ns: i64,
}

/// The command itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Its last process image; missing when it could not be traced.
    pub process_id: Option<i64>,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub exit_signal: Option<i32>,
    /// How long it ran, as the launcher saw it, ns: without what comes after its end.
    pub wall_ns: Option<u64>,
}

/// How a process ended, as the launcher knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitStatusInfo {
    /// Exit code, when it exited.
    pub code: Option<i32>,
    /// Signal, when one ended it.
    pub signal: Option<i32>,
    /// Time from its start to its end, ns.
    pub wall_ns: Option<u64>,
}

/// One process image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Unique over all hosts and execs.
    pub process_id: i64,
    /// Process id in the collector's pid namespace.
    pub pid: i32,
    /// Rank in a distributed run.
    pub rank: Option<i32>,
    /// Path of the executable.
    pub exe: String,
    /// Whether its events are in the trace.
    pub traced: bool,
    /// Why not, or what of it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Still running when the collector ended: what it did afterwards is not in the trace.
    pub running: bool,
    /// It is a process of macOS: what it may use of a GPU it uses by Metal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metal: bool,
    /// It runs a Python that gives out small objects from pools of its own, which malloc does not see.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub python_pools: bool,
    /// Counts by class name; classes without calls are left out.
    pub accounting: BTreeMap<String, Count>,
    /// `seen` is the sum of the rest in every class. Only a process that has ended must be balanced.
    pub balanced: bool,
    /// Calls made inside another hooked call, by the driver itself or by a signal handler: not counted as seen.
    pub nested: u64,
    /// Stacks that were looked for.
    #[serde(default)]
    pub stacks: Stacks,
    /// Hooks that were reached, and driver symbols that no hook covers.
    pub coverage: Coverage,
    /// UUIDs of the devices that it could see, in the order of their ordinals; known after its cuInit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// What came of asking CUPTI what the GPU did; missing where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_time: Option<GpuTime>,
    /// Clocks of the devices on which Metal ran command buffers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_clocks: Vec<GpuClock>,
    /// What recording may cost, and what was left out to keep to it; missing where nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<HookBudget>,
    /// What tracing cost this process.
    pub cost: Cost,
    /// What its shim or its reader noticed, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What came of looking for stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// Calls with a stack of Python frames.
    pub python: u64,
    /// Calls with a stack of native frames.
    pub native: u64,
    /// Calls of which no stack could be taken.
    pub none: u64,
    /// Among all of these, calls whose thread may run a Python that could not be read.
    pub unread: u64,
    /// Stacks whose description found no room: their calls have none.
    pub lost: u64,
}

/// What tracing cost a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Time to record one driver event, measured when the process started, ns.
    pub event_ns: Option<f64>,
    /// Time that a malloc takes longer which is sampled out, with its free, or that each of the two does where they are summed up in the process, ns.
    pub malloc_ns: Option<f64>,
    /// Time that a launch takes which is only counted, ns; missing where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_ns: Option<f64>,
    /// Driver events recorded or dropped.
    pub events: u64,
    /// Time that went into reading graphs when they were instantiated or updated, ns; missing when none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graphs_ns: Option<f64>,
    /// Time that went into taking stacks, ns; missing when none was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks_ns: Option<f64>,
    /// Time that threads waited for room in their rings (`--on-full block`), ns; missing when none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<f64>,
    /// events x event_ns + sampled out or summed up calls of malloc's family x malloc_ns + launches only counted x counted_ns + graphs_ns + stacks_ns + waited_ns, ns; missing when neither of the
    /// first two was measured.
    pub total_ns: Option<f64>,
}

/// A process that could not be traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untraced {
    /// Process id.
    pub pid: i32,
    /// Path of its executable.
    pub exe: String,
    /// Why: static, musl, 32-bit, setuid, AddressSanitizer ...
    pub reason: String,
}

/// [`Clock::kind`] of an import: another profiler gave the times.
pub const IMPORTED: &str = "imported";

/// The launcher's number as file names have it.
pub fn launcher_text(launcher_id: u64) -> String {
    format!("{launcher_id:x}")
}

/// Where the manifest of a launcher stands.
pub fn path(trace: &Path, host: &str, launcher_id: u64) -> PathBuf {
    trace.join("manifest").join(format!("{host}-{}.json", launcher_text(launcher_id)))
}

impl Manifest {
    /// Whether it is of a trace that was imported, and not recorded.
    pub fn is_imported(&self) -> bool {
        self.clock.kind == IMPORTED
    }

    /// Whether it is the account of a collector that was killed, or is still at work: not the last word about its processes. One that was
    /// stopped had written all that it had read.
    pub fn is_cut_short(&self) -> bool {
        !self.complete && self.stopped_ns.is_none() || self.recovered.is_some_and(|recovered| !recovered.taken_over)
    }

    /// Whether single events are not to be kept, only their sums.
    pub(crate) fn keeps_only_sums(&self) -> bool {
        self.detail.as_ref().is_some_and(KeptDetail::is_sums)
    }

    /// Adds devices that are not known yet.
    pub(crate) fn add_devices<'a>(&mut self, devices: impl Iterator<Item = &'a Device>) {
        for device in devices {
            if !self.devices.iter().any(|known| known.uuid == device.uuid) {
                self.devices.push(device.clone());
            }
        }
    }

    /// Writes the manifest in place of an older one. A reader sees the one or the other, never a half.
    pub fn write(&self, to: &Path) -> io::Result<()> {
        // A shell script may run a hundred thousand programs; then the file is for machines only.
        let small = self.processes.len() < 100;
        let text = |pretty: bool| -> io::Result<Vec<u8>> {
            let mut text = if pretty { serde_json::to_vec_pretty(self)? } else { serde_json::to_vec(self)? };
            text.push(b'\n');
            Ok(text)
        };
        let written = replace(to, &text(small)?);
        if !written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            return written;
        }
        // Without its spaces it needs less room, and the last one may take the place of the one before.
        let text = text(false)?;
        replace(to, &text).or_else(|error| if self.complete { take_place(to, &text) } else { Err(error) })
    }

    /// Reads a manifest.
    pub fn read(from: &Path) -> io::Result<Manifest> {
        Ok(serde_json::from_slice(&std::fs::read(from)?)?)
    }

    /// Moves events that were read but could not be stored from `recorded` and `culled` to `dropped`.
    pub(crate) fn lose(&mut self, share: &Share) {
        let process = self.accounts_mut().find(|p| p.process_id == share.process_id);
        let class = Class::from_u8(share.class).map_or("", Class::name);
        if let Some(count) = process.and_then(|p| p.accounting.get_mut(class)) {
            let (rows, culled) = (share.rows.min(count.recorded), share.culled.min(count.culled));
            count.recorded -= rows;
            count.culled -= culled;
            count.dropped += rows + culled;
        }
    }

    /// Adds a note, once.
    pub(crate) fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|n| n == text) {
            self.notes.push(text.to_owned());
        }
    }
}

/// Writes a file beside the old one, which it then replaces.
fn replace(to: &Path, text: &[u8]) -> io::Result<()> {
    // The name does not end in .json, so that a reader of the folder never takes it for a manifest.
    let folder = folder::of_file(to)?;
    let young = folder.at(&to.with_extension("json.new"));
    let renamed = || std::fs::rename(&young, folder.at(to));
    let written = own_file(&young).and_then(|mut file| file.write_all(text)).and_then(|()| renamed());
    written.inspect_err(|_| {
        // Half a file is worth nothing, and takes room.
        let _ = std::fs::remove_file(&young);
    })
}

/// Writes a file in the old one's room. Where that is too small the old one stays.
fn take_place(to: &Path, text: &[u8]) -> io::Result<()> {
    let old = std::fs::read(to);
    let folder = folder::of_file(to)?;
    let write = |text: &[u8]| own_file(&folder.at(to)).and_then(|mut file| file.write_all(text));
    write(text).inspect_err(|_| {
        let _ = old.map(|old| write(&old));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_survives_its_file() {
        let folder = std::env::temp_dir().join(format!("gputrace-manifest-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let count = Count { seen: 3, recorded: 1, dropped: 1, in_flight: 1, ..Count::default() };
        let process = Process { accounting: [("launch".to_owned(), count)].into(), ..Process::default() };
        let manifest = Manifest { processes: vec![process], launcher_id: 0xabc, ..Manifest::default() };
        let at = folder.join("h-abc.json");
        manifest.write(&at).unwrap();
        assert_eq!(Manifest::read(&at).unwrap(), manifest);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
