//! A trace in the formats of other tools.

pub(crate) mod chrome;
mod collectives;
mod counters;
mod kineto;
mod on_gpu;
mod output;
mod outside;
pub(crate) mod page;
pub(crate) mod perfetto;
mod profiler;
mod protobuf;
mod runtime;
pub(crate) mod sqlite;
pub(crate) mod stacks;
pub(crate) mod tables;
mod timeline;
mod told;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::GpuTime;
use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use crate::new_file::{NewFile, is_direct};
use crate::trace::{Filter, Process, Texts, Trace, Want, full_name};
use output::Output;

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Each file with its events, or stacks.
    pub(crate) files: Vec<(PathBuf, u64)>,
    /// Ranges that have no end.
    pub(crate) open_ranges: u64,
    /// Those that are told to end with their process.
    pub(crate) ended_ranges: u64,
    /// What was more than asked for, in words.
    pub(crate) left_out: Option<String>,
    /// What lies outside of the span that was named, in words.
    pub(crate) outside: Option<String>,
}

impl Written {
    fn timeline(file: PathBuf, done: timeline::Done, left_out: Option<String>, outside: Option<String>) -> Written {
        let files = vec![(file, done.written)];
        Written { files, open_ranges: done.open_ranges, ended_ranges: 0, left_out, outside }
    }
}

/// The files of all ranks.
#[derive(Default)]
struct Files {
    by_rank: BTreeMap<Option<i32>, Output>,
    /// Ranks of the processes.
    ranks: FxHashMap<i64, Option<i32>>,
}

impl Files {
    /// The file of a process.
    fn of(&mut self, process_id: i64) -> Option<&mut Output> {
        self.by_rank.get_mut(self.ranks.get(&process_id)?)
    }
}

/// Writes Kineto JSON, for Holistic Trace Analysis and whatever else reads torch.profiler's traces.
pub(crate) fn kineto(trace: &Trace, filter: &Filter, file: &Path) -> io::Result<Written> {
    let mut files = Files::default();
    let outside = outside::of_rows(trace, filter, wants().into_iter().map(|want| want.table));
    let ended_ranges = write(trace, filter, file, &mut files, outside.as_deref())?;
    let mut done = Written { ended_ranges, outside, ..Written::default() };
    let mut whole = Vec::new();
    for output in files.by_rank.into_values() {
        let (file, path, events) = kineto::end(output)?;
        done.files.push((path, events));
        whole.push(file);
    }
    NewFile::end_all(whole)?;
    Ok(done)
}

/// What Kineto's files are made of.
fn wants() -> Vec<Want> {
    kineto::WANTS.iter().chain(&told::WANTS).chain([&profiler::WANT]).copied().collect()
}

/// Writes all events. How many ranges have no end.
fn write(trace: &Trace, filter: &Filter, file: &Path, files: &mut Files, outside: Option<&str>) -> io::Result<u64> {
    let ranks = ranks(trace, filter);
    if ranks.len() > 1 && is_direct(file) {
        return Err(io::Error::other("it is no regular file and takes one rank's events: choose it with --rank"));
    }
    for (rank, processes) in &ranks {
        let path = if ranks.len() == 1 { file.to_owned() } else { of_rank(file, *rank) };
        let output = files.by_rank.entry(*rank).or_insert(Output::create(&path)?);
        kineto::head(output, trace, processes, outside)?;
        files.ranks.extend(processes.iter().map(|process| (process.process_id, *rank)));
    }
    thread_names(trace, |process_id, tid, name| match files.of(process_id).zip(trace.process(process_id)) {
        Some((output, process)) => kineto::thread_name(output, process.pid, tid, name),
        None => Ok(()),
    })?;
    let mut events = kineto::Events::new(names(trace)?, host_only(trace), trace)?;
    let devices = counters::Devices::of(trace);
    let mut done = Ok(());
    trace.scan(&wants(), filter, &mut |rows| {
        if done.is_ok() {
            done = match rows.table {
                TableId::Counters => counters::write(rows, &devices, files),
                TableId::ProfilerEvents => profiler::write(rows, events.names(), files),
                table if told::is_told(table) => told::write(rows, events.names(), files),
                _ => events.write(rows, files),
            };
        }
    });
    done?;
    Ok(events.open_ranges)
}

/// The processes with events, by rank; those without one share a file.
fn ranks<'a>(trace: &'a Trace, filter: &Filter) -> BTreeMap<Option<i32>, Vec<&'a Process>> {
    let mut ranks: BTreeMap<Option<i32>, Vec<&Process>> = BTreeMap::new();
    // What a killed launcher recorded is not counted.
    let counted = trace.processes.iter().any(|process| process.events > 0);
    let kept = |process: &&Process| filter.processes.as_ref().is_none_or(|kept| kept.contains(&process.process_id));
    let has = |process: &&Process| process.summed == 0 && (process.events > 0 || !counted);
    for process in trace.processes.iter().filter(kept).filter(has) {
        ranks.entry(process.rank).or_default().push(process);
    }
    ranks
}

/// `trace.json.gz` as `trace-rank3.json.gz`.
fn of_rank(file: &Path, rank: Option<i32>) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let at = [".json.gz", ".json", ".gz"].iter().find_map(|end| Some(name.strip_suffix(end)?.len()));
    let (stem, end) = name.split_at(at.unwrap_or(name.len()));
    let rank = rank.map_or("-other".to_owned(), |rank| format!("-rank{rank}"));
    file.with_file_name(format!("{stem}{rank}{end}"))
}

/// Every name, demangled and as JSON has it.
fn names(trace: &Trace) -> io::Result<Texts> {
    trace.every_name(|name| output::quoted(&full_name(name)))
}

/// Whether the kernel of some launch is told by the launch alone: nothing is known of what the GPU did, or only in windows.
fn host_only(trace: &Trace) -> bool {
    let in_windows = |gpu: &GpuTime| gpu.budget.is_some();
    let mut about = trace.manifests().flat_map(Manifest::accounts).filter_map(|of| of.gpu_time.as_ref());
    about.any(in_windows) || !trace.holds(TableId::Kernels)
}

/// Hands every name of a thread to `each`.
fn thread_names(trace: &Trace, mut each: impl FnMut(i64, i32, &str) -> io::Result<()>) -> io::Result<()> {
    let mut done = Ok(());
    let want = [Want { table: TableId::Threads, columns: &["tid", "name"] }];
    trace.scan(&want, &Filter::default(), &mut |rows| {
        let (process, tid, name) = (rows.i64("process_id"), rows.i32_or("tid", 0), rows.texts("name"));
        for row in 0..rows.len {
            if let (Ok(()), Some(name)) = (&done, name.known(row)) {
                done = each(process[row], tid[row], name);
            }
        }
    });
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ranks_file_keeps_the_ending() {
        let name = |file: &str, rank| of_rank(Path::new(file), rank).display().to_string();
        assert_eq!(name("a/trace.json.gz", Some(3)), "a/trace-rank3.json.gz");
        assert_eq!(name("trace.json", None), "trace-other.json");
        assert_eq!(name("trace", Some(0)), "trace-rank0");
    }
}
