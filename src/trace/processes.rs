//! The process images of a trace: the table `processes` joined with the manifests.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use gputrace_collectors::{Manifest, manifest};
use rustc_hash::FxHashMap;

use super::{Filter, Trace, Want};
use crate::render::number;

/// One process image.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// Unique over hosts and execs.
    pub(crate) process_id: i64,
    /// Process id on its host.
    pub(crate) pid: i32,
    /// Host.
    pub(crate) host: String,
    /// Rank in a distributed run.
    pub(crate) rank: Option<i32>,
    /// Rank among the processes of its host.
    pub(crate) local_rank: Option<i32>,
    /// Number of ranks.
    pub(crate) world_size: Option<i32>,
    /// CUDA_VISIBLE_DEVICES, where it was set.
    pub(crate) visible_devices: Option<String>,
    /// Version of the driver, 13000 for CUDA 13.0.
    pub(crate) driver_version: Option<i32>,
    /// Version that the newest client of the driver was built for.
    pub(crate) runtime_version: Option<i32>,
    /// Path of the executable.
    pub(crate) exe: String,
    /// Arguments, quoted as for a shell.
    pub(crate) command: String,
    /// Start, ns since the epoch; 0 when not known.
    pub(crate) start_ns: i64,
    /// End; missing when it was still running.
    pub(crate) end_ns: Option<i64>,
    /// Exit code.
    pub(crate) exit_code: Option<i32>,
    /// Signal that ended it.
    pub(crate) exit_signal: Option<i32>,
    /// Whether its events are here.
    pub(crate) traced: bool,
    /// Why not.
    pub(crate) reason: Option<String>,
    /// Events recorded.
    pub(crate) events: i64,
    /// How malloc was traced: off, sample:BYTES, full.
    pub(crate) malloc_mode: String,
    /// Whose rows tell of it: a place in [`Trace::launchers`].
    pub(crate) launcher: usize,
    /// What the manifest says of it.
    pub(crate) manifest: Option<Arc<manifest::Process>>,
    /// It is no process: the manifest has one account for so many that have ended, each of which has an entry of its own without one.
    pub(crate) summed: u64,
    /// What tells it from another process that gives a GPU work and has its rank: `pid 4711`, with the host where that is needed.
    pub(crate) apart: Option<String>,
}

impl Process {
    /// Whether it sent messages to objects of Metal, as far as the manifest tells.
    pub(crate) fn is_metal(&self) -> bool {
        self.manifest.as_deref().is_some_and(uses_metal)
    }

    /// `rank 3`, or `pid 4711` where there are no ranks; `rank 3 (pid 4711)` where several processes have that one.
    pub(crate) fn label(&self) -> String {
        if self.summed > 0 {
            return format!("{} processes that ended", number(self.summed as f64));
        }
        let Some(rank) = self.rank else { return format!("pid {}", self.pid) };
        let apart = self.apart.as_ref().map_or(String::new(), |apart| format!(" ({apart})"));
        format!("rank {rank}{apart}")
    }

    /// Whether it gave a GPU work or called NCCL; a rank's helpers inherit its variables, and do neither.
    fn works(&self) -> bool {
        const WORK: [&str; 4] = ["launch", "commit", "transfer", "collective"];
        let accounting = self.manifest.as_ref().map(|known| &known.accounting);
        accounting.is_some_and(|of| WORK.iter().any(|class| of.get(*class).is_some_and(|count| count.seen > 0)))
    }
}

/// Whether a process of a manifest asked for a device of Metal, or sent messages to its objects.
pub(crate) fn uses_metal(process: &manifest::Process) -> bool {
    process.coverage.hooks.iter().any(|hook| hook.name.starts_with("[MTL") || hook.name.starts_with("MTL"))
}

const COLUMNS: &[&str] = &[
    "process_id",
    "pid",
    "host",
    "rank",
    "local_rank",
    "world_size",
    "visible_devices",
    "driver_version",
    "runtime_version",
    "exe",
    "command",
    "start_ns",
    "end_ns",
    "exit_code",
    "exit_signal",
    "traced",
    "reason",
    "events",
    "malloc_mode",
];

/// Reads the table and adds what only the manifests know. A later row of a process replaces an earlier one.
pub(crate) fn read(trace: &Trace) -> Vec<Process> {
    let (mut all, mut places) = (Vec::<Process>::new(), FxHashMap::<i64, usize>::default());
    let some = |v: i32| (v != i32::MIN).then_some(v);
    trace.scan(&[Want { table: TableId::Processes, columns: COLUMNS }], &Filter::default(), &mut |rows| {
        let id = rows.i64("process_id");
        let (pid, rank) = (rows.i32_or("pid", 0), rows.i32_or("rank", i32::MIN));
        let (start, end) = (rows.i64("start_ns"), rows.i64_or("end_ns", i64::MIN));
        let (code, signal) = (rows.i32_or("exit_code", i32::MIN), rows.i32_or("exit_signal", i32::MIN));
        let (host, exe, command) = (rows.texts("host"), rows.texts("exe"), rows.texts("command"));
        let (traced, reason, mode) = (rows.flags("traced"), rows.texts("reason"), rows.texts("malloc_mode"));
        let events = rows.i64("events");
        let [local, world, driver, runtime] = ["local_rank", "world_size", "driver_version", "runtime_version"]
            .map(|column| rows.i32_or(column, i32::MIN));
        let visible = rows.texts("visible_devices");
        for row in 0..rows.len {
            let process = Process {
                process_id: id[row],
                pid: pid[row],
                host: host.get(row).to_owned(),
                rank: some(rank[row]),
                local_rank: some(local[row]),
                world_size: some(world[row]),
                visible_devices: visible.known(row).map(str::to_owned),
                driver_version: some(driver[row]),
                runtime_version: some(runtime[row]),
                exe: exe.get(row).to_owned(),
                command: command.get(row).to_owned(),
                start_ns: start[row],
                end_ns: (end[row] != i64::MIN).then_some(end[row]),
                exit_code: some(code[row]),
                exit_signal: some(signal[row]),
                traced: traced.get(row),
                reason: Some(reason.get(row).to_owned()).filter(|r| !r.is_empty()),
                events: events[row],
                malloc_mode: mode.get(row).to_owned(),
                launcher: rows.launcher,
                manifest: None,
                summed: 0,
                apart: None,
            };
            match places.entry(process.process_id) {
                Entry::Occupied(known) => all[*known.get()] = process,
                Entry::Vacant(new) => {
                    new.insert(all.len());
                    all.push(process);
                }
            }
        }
    });
    for (launcher, manifest) in trace.launchers.iter().enumerate() {
        let Some(manifest) = &manifest.manifest else { continue };
        for known in &manifest.processes {
            let place = *places.entry(known.process_id).or_insert_with(|| {
                all.push(Process {
                    process_id: known.process_id,
                    pid: known.pid,
                    host: manifest.host.clone(),
                    rank: known.rank,
                    exe: known.exe.clone(),
                    launcher,
                    traced: known.traced,
                    reason: known.reason.clone(),
                    events: known.accounting.values().map(|c| c.kept() as i64).sum(),
                    ..Process::default()
                });
                all.len() - 1
            });
            all[place].manifest = Some(Arc::new(known.clone()));
        }
        let summed = manifest.summed.iter().filter(|summed| summed.processes > 0);
        let together = |summed: &manifest::Summed| Process { launcher, ..together(manifest, summed) };
        all.extend(summed.map(|summed| together(summed)));
    }
    drop(places);
    for (launcher, manifest) in trace.launchers.iter().enumerate() {
        let import = manifest.manifest.as_ref().filter(|manifest| manifest.is_imported() && manifest.summed.is_some());
        let Some(import) = import else { continue };
        let devices = import.devices.iter().map(|device| device.uuid.clone()).collect();
        // Each process of a profile sees all devices in it, also those whose accounts are summed up.
        let about = Arc::new(manifest::Process { traced: true, balanced: true, devices, ..Default::default() });
        let of_import = all.iter_mut().filter(|process| process.launcher == launcher);
        of_import.filter(|p| p.manifest.is_none()).for_each(|p| p.manifest = Some(Arc::clone(&about)));
    }
    all.sort_unstable_by_key(|p| (p.summed > 0, p.rank, p.start_ns, p.pid, p.process_id));
    tell_apart(&mut all);
    all
}

/// What stands for processes whose accounts are one. Sums over all processes are exact by it.
fn together(manifest: &Manifest, summed: &manifest::Summed) -> Process {
    Process {
        process_id: summed.account.process_id,
        host: manifest.host.clone(),
        traced: true,
        manifest: Some(Arc::new(summed.account.clone())),
        summed: summed.processes,
        ..Process::default()
    }
}

/// Gives the processes of a rank that work what tells them apart, where they are several: their launcher gave them the same number.
fn tell_apart(processes: &mut [Process]) {
    for of_rank in processes.chunk_by_mut(|one, next| one.rank.is_some() && one.rank == next.rank) {
        let known: Vec<(i32, String)> = of_rank.iter().filter(|p| p.works()).map(|p| (p.pid, p.host.clone())).collect();
        if known.len() < 2 {
            continue;
        }
        for process in of_rank.iter_mut().filter(|process| process.works()) {
            let elsewhere = known.iter().any(|(pid, host)| *pid == process.pid && *host != process.host);
            let host = if elsewhere { format!(", {}", process.host) } else { String::new() };
            process.apart = Some(format!("pid {}{host}", process.pid));
        }
    }
}
