//! The only reader of a trace's files: opens folders, merges manifests, streams rows.
//!
//! A trace is one or several `TRACE` folders; in each, every launcher left a manifest, sealed Parquet files per table
//! and perhaps a journal of young rows. [`Trace::open`] finds them all; [`Trace::scan`] streams chosen columns of
//! chosen tables in bounded memory.
//!
//! **Invariant:** whatever stands in the files, reading them ends with rows, with a [`Problem`] that names the file,
//! or with a [`TraceError`], never with a panic. What could be read is reported even when something else could not.

mod apart;
mod contain;
mod copied;
mod counted;
mod decode;
mod devices;
mod ends;
mod error;
mod files;
mod filter;
mod intervals;
mod missing;
mod names;
mod parts;
mod processes;
mod rows;
mod scan;
mod spans;
mod stacks;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod threads;
mod whole;
mod wide;
mod windows;

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use gputrace_collectors::Manifest;
use gputrace_collectors::journal;
use gputrace_collectors::manifest::Device;
use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

pub(crate) use apart::shortened_apart;
pub(crate) use devices::{DeviceNames, Identity, sharing};
pub(crate) use error::{Missing, Problem, TraceError};
pub(crate) use files::Launcher;
pub(crate) use filter::{Filter, NOBODY};
pub(crate) use intervals::Interval;
pub(crate) use names::{ALL_OTHERS, NO_NAME, Names, copy_name, full_name, printable, shortened};
pub(crate) use parts::{Parts, PartsOf};
pub(crate) use processes::{Process, uses_metal};
pub(crate) use rows::{Axes, Ints, Rows};
pub(crate) use scan::{Reach, Want};
pub(crate) use spans::Spans;
pub(crate) use stacks::{Frame, NO_STACK, OTHER_STACKS, Site, SiteFinder, Sites, shown_file};
pub(crate) use whole::{Stacks, Texts};
pub(crate) use wide::{columns_of, front};

/// One trace, made of all folders that were named.
pub(crate) struct Trace {
    /// The folders, as the user named them.
    pub(crate) folders: Vec<PathBuf>,
    /// What each launcher left, in the order of the lowest rank, start, host and launcher.
    pub(crate) launchers: Vec<Launcher>,
    /// Every process image, by start.
    pub(crate) processes: Vec<Process>,
    /// Bytes of all files.
    pub(crate) bytes: u64,
    by_id: FxHashMap<i64, usize>,
    problems: Mutex<Vec<Problem>>,
    // Asked of each process: a trace may have a hundred thousand.
    ended_ns: OnceLock<Option<i64>>,
    gave_cupti_up: OnceLock<bool>,
    has_gpu_times: OnceLock<bool>,
    without_sources: OnceLock<()>,
}

impl Trace {
    /// Lines of the program are named by their functions from now on, and not by what stands there: of two traces one may be of a source
    /// that has changed since.
    pub(crate) fn leave_sources_out(&self) {
        let _ = self.without_sources.set(());
    }

    /// Opens the folders. Fails when one of them is no trace, or when all that is there has another version.
    pub(crate) fn open(folders: &[PathBuf]) -> Result<Trace, TraceError> {
        Trace::open_with(folders, None)
    }

    /// Opens the folders and makes something of them: anew where rows moved meanwhile. Where who wrote there has ended, or another one goes
    /// on for it, what stood in its journal is in files by then that were not there before.
    pub(crate) fn read<T, E: From<TraceError>>(
        folders: &[PathBuf],
        mut make: impl FnMut(&Trace) -> Result<T, E>,
    ) -> Result<T, E> {
        /// Who writes ends once; of several launchers each may.
        const MOST: usize = 4;
        for _ in 1..MOST {
            let trace = Trace::open(folders)?;
            let young = files::young(&trace.launchers);
            let made = make(&trace);
            if young.is_empty() || young.iter().all(files::Young::is_as_it_was) {
                return made;
            }
        }
        make(&Trace::open(folders)?)
    }

    /// The same, where one launcher's account is known better than its file says it.
    pub(crate) fn open_with(folders: &[PathBuf], own: Option<Manifest>) -> Result<Trace, TraceError> {
        let mut trace = Trace {
            folders: folders.to_vec(),
            launchers: Vec::new(),
            processes: Vec::new(),
            bytes: 0,
            by_id: FxHashMap::default(),
            problems: Mutex::new(Vec::new()),
            ended_ns: OnceLock::new(),
            gave_cupti_up: OnceLock::new(),
            has_gpu_times: OnceLock::new(),
            without_sources: OnceLock::new(),
        };
        let (mut seen, mut copied) = (Vec::new(), copied::Seen::default());
        for folder in folders {
            // The same trace twice would be counted twice.
            let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
            if seen.contains(&real) {
                continue;
            }
            seen.push(real);
            let mut found = files::find(folder, &|p| trace.problem(p))?;
            own.iter().for_each(|own| found.know(own));
            copied.leave_out(folder, &mut found.launchers, &|p| trace.problem(p));
            for launcher in &found.launchers {
                missing::name(folder, launcher, &|p| trace.problem(p));
            }
            trace.bytes += found.bytes;
            trace.launchers.extend(found.launchers);
        }
        // In which order folders were named says nothing: the launcher of the lowest rank stands first.
        trace.launchers.sort_by_cached_key(|launcher| {
            let about = launcher.manifest.as_ref();
            let rank = about.and_then(|about| about.processes.iter().filter_map(|process| process.rank).min());
            let began = about.map_or(i64::MAX, |about| about.started_ns);
            (rank.unwrap_or(i32::MAX), began, launcher.host.clone(), launcher.id.clone())
        });
        trace.processes = processes::read(&trace);
        trace.by_id = trace.processes.iter().enumerate().map(|(index, p)| (p.process_id, index)).collect();
        Ok(trace)
    }

    /// The manifests of all launchers that left one.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        self.launchers.iter().filter_map(|l| l.manifest.as_ref())
    }

    /// What a manifest says of the device with this UUID.
    pub(crate) fn device(&self, uuid: &str) -> Option<&Device> {
        self.manifests().flat_map(|manifest| &manifest.devices).find(|device| device.uuid == uuid)
    }

    /// Whether any time of a GPU is in it.
    pub(crate) fn has_gpu_times(&self) -> bool {
        *self
            .has_gpu_times
            .get_or_init(|| [TableId::Kernels, TableId::DeviceCopies].iter().any(|table| self.holds(*table)))
    }

    /// Whether recording the GPU's times was given up for timing launches, in some process.
    pub(crate) fn gave_cupti_up(&self) -> bool {
        *self.gave_cupti_up.get_or_init(|| {
            let mut about = self.manifests().flat_map(Manifest::accounts).filter_map(|p| p.gpu_time.as_ref());
            about.any(|gpu_time| gpu_time.given_up.is_some())
        })
    }

    /// Whether what PyTorch's allocator held is in it.
    pub(crate) fn has_torch_memory(&self) -> bool {
        self.holds(TableId::TorchMemory)
    }

    /// Whether there are rows of a table, in files or in a journal.
    pub(crate) fn holds(&self, table: TableId) -> bool {
        let journaled = |journal: &PathBuf| {
            journal::read(journal)
                .is_ok_and(|journal| journal.of(table).flatten().any(|(_, batch)| batch.num_rows() > 0))
        };
        self.launchers
            .iter()
            .any(|launcher| !launcher.sealed(table).is_empty() || launcher.journal.as_ref().is_some_and(journaled))
    }

    /// Whether there may be rows of a table: a journal may hold some of any.
    pub(crate) fn may_hold(&self, table: TableId) -> bool {
        self.launchers.iter().any(|launcher| launcher.journal.is_some() || !launcher.sealed(table).is_empty())
    }

    /// The process image with this id.
    pub(crate) fn process(&self, process_id: i64) -> Option<&Process> {
        self.by_id.get(&process_id).map(|index| &self.processes[*index])
    }

    /// Where a process stands in [`Trace::processes`]; behind all where it is not known.
    pub(crate) fn place(&self, process_id: i64) -> usize {
        self.by_id.get(&process_id).copied().unwrap_or(usize::MAX)
    }

    /// The manifest of the launcher that tells of a process.
    pub(crate) fn manifest_of(&self, process_id: i64) -> Option<&Manifest> {
        self.launchers.get(self.process(process_id)?.launcher)?.manifest.as_ref()
    }

    /// Whether what is known of a process comes from another profiler's file.
    pub(crate) fn is_imported(&self, process_id: i64) -> bool {
        self.manifest_of(process_id).is_some_and(Manifest::is_imported)
    }

    /// When the trace began, ns since the epoch: what `--from` and `--to` count from.
    pub(crate) fn began_ns(&self) -> i64 {
        let launchers = self.manifests().map(|m| m.started_ns);
        launchers.chain(self.processes.iter().map(|p| p.start_ns)).filter(|t| *t > 0).min().unwrap_or(0)
    }

    /// When the trace ended, ns since the epoch; none where a launcher does not say, because it was killed or still runs. Of a session that
    /// goes on and has no collector it is when that was stopped.
    pub(crate) fn ended_ns(&self) -> Option<i64> {
        *self.ended_ns.get_or_init(|| {
            let end = |manifest: &Manifest| manifest.ended_ns.or(manifest.stopped_ns);
            let ends = self.launchers.iter().map(|launcher| launcher.manifest.as_ref().and_then(end));
            let last = ends.collect::<Option<Vec<i64>>>()?.into_iter().max()?;
            Some(self.processes.iter().filter_map(|process| process.end_ns).fold(last, i64::max))
        })
    }

    /// Notes what could not be read; the same thing is noted once, however often it is read.
    pub(crate) fn problem(&self, problem: Problem) {
        let mut problems = self.problems.lock().unwrap_or_else(|e| e.into_inner());
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// What could not be read so far.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.problems.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}
