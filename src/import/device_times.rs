//! Device times of a process that ran on the simulated driver, added to the trace that was recorded of it.
//!
//! The simulated driver writes what its device did to the file that FAKE_CUDA_TRUTH names: each operation with the time and
//! the thread of its call. The call is the one of that thread in the trace that was under way then; both clocks are the
//! machine's own. So the trace gets `kernels` and `device_copies` as a recorder of GPU times would have written them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gputrace_collectors::archive::{Archive, Columns};
use gputrace_collectors::names::NameKind;
use gputrace_collectors::schema::TableId;
use gputrace_collectors::{Manifest, manifest};
use rustc_hash::FxHashMap;
use serde::Deserialize;

use crate::trace::{Filter, Launcher, NO_NAME, Process, Trace, Want};

/// The file, as far as it is read.
#[derive(Deserialize)]
struct Truth {
    pid: i32,
    device: Vec<Operation>,
}

#[derive(Deserialize)]
struct Operation {
    kind: String,
    name: String,
    stream: u64,
    device: i32,
    start_ns: i64,
    end_ns: i64,
    bytes: i64,
    issued_ns: i64,
    tid: i32,
    #[serde(default)]
    grid: [i32; 3],
    #[serde(default)]
    block: [i32; 3],
    #[serde(default)]
    shared_bytes: i32,
}

/// A call that may have caused operations.
#[derive(Clone, Copy)]
struct Call {
    start: i64,
    end: i64,
    correlation_id: i64,
    context: i32,
    name_id: i64,
    /// Kinds of memory, of a copy.
    memory: [Option<Memory>; 2],
}

type Memory = &'static str;

/// What `src_kind` and `dst_kind` may say.
const MEMORIES: [Memory; 6] = ["pageable", "pinned", "device", "managed", "array", "unknown"];

/// What was added.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added {
    /// Operations.
    pub(crate) operations: usize,
    /// Of them without a call in the trace.
    pub(crate) without_call: usize,
}

/// An operation's call may lie so far beside it: the two clocks are read at different times.
const SLACK_NS: i64 = 20_000;

/// Whether a file looks like such an account.
pub(crate) fn is_one(file: &Path) -> bool {
    let mut head = [0; 256];
    let read = fs::File::open(file).and_then(|mut file| std::io::Read::read(&mut file, &mut head));
    let text = String::from_utf8_lossy(&head[..read.unwrap_or(0)]).into_owned();
    text.starts_with("{\"pid\":") && text.contains("\"calls\":")
}

/// Adds those of every `.json` file in a folder.
pub(crate) fn add_all(trace: &Path, folder: &Path) -> Result<Added> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}: cannot be read", folder.display()))?;
    let files =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json"));
    add(trace, &files.collect::<Vec<_>>())
}

/// Adds the operations of these files, each of one process, to a trace.
pub(crate) fn add(folder: &Path, files: &[PathBuf]) -> Result<Added> {
    let mut added = Added::default();
    for file in files {
        let text = fs::read(file).with_context(|| format!("{}: cannot be read", file.display()))?;
        let truth: Truth = serde_json::from_slice(&text)
            .with_context(|| format!("{}: no account of a simulated driver", file.display()))?;
        let trace = Trace::open(&[folder.to_owned()])?;
        let Some((launcher, process)) = process_of(&trace, &truth) else {
            bail!("{}: process {} is not in the trace {}", file.display(), truth.pid, folder.display());
        };
        let calls = calls(&trace, process.process_id);
        let own = write(folder, launcher, process, truth.device, &calls)?;
        added.operations += own.operations;
        added.without_call += own.without_call;
    }
    Ok(added)
}

/// The process image of that pid that was there when its device worked, and its launcher.
fn process_of<'a>(trace: &'a Trace, truth: &Truth) -> Option<(&'a Launcher, &'a Process)> {
    let first = truth.device.first().map_or(0, |of| of.issued_ns);
    let here = |p: &&Process| p.pid == truth.pid && p.start_ns <= first && p.end_ns.is_none_or(|end| end >= first);
    let same_pid = || trace.processes.iter().filter(|p| p.pid == truth.pid);
    let process = same_pid().rfind(here).or_else(|| same_pid().next_back())?;
    let knows = |manifest: &Manifest| manifest.processes.iter().any(|p| p.process_id == process.process_id);
    let launcher = trace.launchers.iter().find(|launcher| launcher.manifest.as_ref().is_some_and(knows))?;
    Some((launcher, process))
}

/// The launches, copies and sets of a process by thread, in the order of time.
fn calls(trace: &Trace, process_id: i64) -> FxHashMap<i32, Vec<Call>> {
    let filter = Filter { processes: Some([process_id].into_iter().collect()), ..Filter::default() };
    let wants = [
        Want {
            table: TableId::Launches,
            columns: &["api_ns", "tid", "correlation_id", "context", "name_id", "captured"],
        },
        Want {
            table: TableId::Transfers,
            columns: &["api_ns", "tid", "correlation_id", "context", "captured", "src_kind", "dst_kind"],
        },
    ];
    let mut calls: FxHashMap<i32, Vec<Call>> = FxHashMap::default();
    trace.scan(&wants, &filter, &mut |rows| {
        let (start, length, tid) = (rows.i64("start_ns"), rows.i64("api_ns"), rows.i32_or("tid", 0));
        let (correlation, context) = (rows.i64("correlation_id"), rows.i32_or("context", 0));
        let (name, captured) = (rows.i64_or("name_id", NO_NAME), rows.flags("captured"));
        let memory = [rows.texts("src_kind"), rows.texts("dst_kind")];
        for row in (0..rows.len).filter(|row| !captured.get(*row)) {
            let kind = |of: usize| MEMORIES.into_iter().find(|known| *known == memory[of].get(row));
            calls.entry(tid[row]).or_default().push(Call {
                start: start[row],
                end: start[row].saturating_add(length[row]),
                correlation_id: correlation[row],
                context: context[row],
                name_id: name[row],
                memory: [kind(0), kind(1)],
            });
        }
    });
    calls.values_mut().for_each(|own| own.sort_by_key(|call| call.start));
    calls
}

/// The call of a thread that was under way at a time, or the nearest one.
fn call_at(calls: &[Call], at: i64) -> Option<Call> {
    let after = calls.partition_point(|call| call.start <= at);
    let beside = |call: &&Call| (at - call.end).max(call.start - at).max(0);
    let candidates = calls[after.saturating_sub(1)..].iter().take(2);
    candidates.min_by_key(beside).filter(|call| beside(call) <= SLACK_NS).copied()
}

fn write(
    folder: &Path,
    launcher: &Launcher,
    process: &Process,
    mut operations: Vec<Operation>,
    calls: &FxHashMap<i32, Vec<Call>>,
) -> Result<Added> {
    let account = launcher.manifest.as_ref().context("the trace has no manifest")?;
    let mut archive = Archive::add_to(folder, &account.host, account.launcher_id)?;
    operations.sort_by_key(|of| (of.start_ns, of.end_ns));
    let call = |of: &Operation| calls.get(&of.tid).and_then(|own| call_at(own, of.issued_ns));
    let mut joined: Vec<(Operation, Option<Call>)> =
        operations.into_iter().map(|of| (call(&of), of)).map(|(c, of)| (of, c)).collect();
    let without_call = joined.iter().filter(|(_, call)| call.is_none()).count();
    let added = Added { operations: joined.len(), without_call };
    let copies: Vec<(Operation, Option<Call>)> = joined.extract_if(.., |(of, _)| of.kind != "kernel").collect();
    let kernels = joined;
    let mut names = Vec::with_capacity(kernels.len());
    for (of, call) in &kernels {
        // The call knows the name as the driver gave it; a graph's does not know which of its kernels this is.
        let known = call.map(|call| call.name_id).filter(|id| *id != NO_NAME);
        names.push(known.map_or_else(|| archive.name(NameKind::Kernel, &of.name), Ok)?);
    }
    let front = |table: TableId, rows: &[(Operation, Option<Call>)]| {
        Columns::new(table, rows.len())
            .i64("start_ns", rows.iter().map(|(of, _)| of.start_ns))
            .i64("gpu_ns", rows.iter().map(|(of, _)| of.end_ns - of.start_ns))
            .i64("process_id", rows.iter().map(|_| process.process_id))
            .i32("pid", rows.iter().map(|_| process.pid))
            .i32("device", rows.iter().map(|(of, _)| of.device))
            .i32("context", rows.iter().map(|(_, call)| call.map_or(0, |call| call.context)))
            .i64("stream", rows.iter().map(|(of, _)| of.stream as i64))
            .i64("correlation_id", rows.iter().map(|(_, call)| call.map(|call| call.correlation_id)))
    };
    let grid = |axis: usize| kernels.iter().map(move |(of, _)| of.grid[axis]);
    let block = |axis: usize| kernels.iter().map(move |(of, _)| of.block[axis]);
    let batch = front(TableId::Kernels, &kernels)
        .i64("name_id", names)
        .i32("grid_x", grid(0))
        .i32("grid_y", grid(1))
        .i32("grid_z", grid(2))
        .i32("block_x", block(0))
        .i32("block_y", block(1))
        .i32("block_z", block(2))
        .i32("shared_bytes", kernels.iter().map(|(of, _)| of.shared_bytes));
    archive.append(TableId::Kernels, &batch.batch()?)?;
    let memory = |side: usize| copies.iter().map(move |(_, call)| call.and_then(|call| call.memory[side]));
    let batch = front(TableId::DeviceCopies, &copies)
        .text("kind", copies.iter().map(|(of, _)| of.kind.as_str()))
        .text("direction", copies.iter().map(|(of, _)| if of.name.is_empty() { "unknown" } else { of.name.as_str() }))
        .text("src_kind", memory(0))
        .text("dst_kind", memory(1))
        .i64("bytes", copies.iter().map(|(of, _)| of.bytes));
    archive.append(TableId::DeviceCopies, &batch.batch()?)?;
    // As it stands in the folder: the one that was read may have been completed in memory.
    let at = manifest::path(folder, &account.host, account.launcher_id);
    archive.finish(&Manifest::read(&at)?)?;
    Ok(added)
}
