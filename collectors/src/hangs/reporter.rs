//! The thread that looks at processes in which calls hang, and reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::{Case, text};
use crate::folder::write_text;
use crate::outside::{self, Outside};
use crate::symbols::{Deadline, Symbols};
use crate::tables::StackRow;
use crate::writer::Shared;

/// Frames that the manifest gets.
const MOST_FRAMES: usize = 16;
/// Files that are written, in all.
const MOST_FILES: usize = 64;
/// At the end of the trace a report that is on its way is waited for this long.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// What was found of a hang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its number among all.
    pub(crate) number: usize,
    pub(crate) line: Option<String>,
    pub(crate) stack: Vec<String>,
    /// See [`super::Hang::earlier`].
    pub(crate) earlier: bool,
    /// File of the report, relative to the trace.
    pub(crate) report: Option<String>,
}

/// The thread, made for the first hang.
pub(crate) struct Reporter {
    trace: PathBuf,
    host: String,
    shared: Shared,
    running: Option<(Sender<Case>, Receiver<Found>)>,
}

impl Reporter {
    /// Reports go into this trace.
    pub(crate) fn new(trace: PathBuf, host: String, shared: Shared) -> Reporter {
        Reporter { trace, host, shared, running: None }
    }

    /// Has a process looked at.
    pub(crate) fn report(&mut self, case: Case) {
        if self.running.is_none() {
            let (cases, coming) = crossbeam_channel::unbounded();
            let (tell, found) = crossbeam_channel::unbounded();
            let (trace, host, shared) = (self.trace.clone(), self.host.clone(), self.shared.clone());
            let work = move || run(&coming, &tell, &trace, &host, &shared);
            // Without room for a thread there is the manifest's entry, and the next hang tries again.
            if std::thread::Builder::new().name("gputrace-hangs".to_owned()).spawn(work).is_ok() {
                self.running = Some((cases, found));
            }
        }
        if let Some((cases, _)) = &self.running {
            let _ = cases.send(case);
        }
    }

    /// What was found since the last call.
    pub(crate) fn found(&self) -> Vec<Found> {
        self.running.iter().flat_map(|(_, found)| found.try_iter()).collect()
    }

    /// What is still found at the end of the trace.
    pub(crate) fn finish(&mut self) -> Vec<Found> {
        let Some((cases, found)) = self.running.take() else { return Vec::new() };
        drop(cases);
        let until = Instant::now() + LAST_WAIT;
        std::iter::from_fn(|| found.recv_deadline(until).ok()).collect()
    }
}

fn run(cases: &Receiver<Case>, tell: &Sender<Found>, trace: &Path, host: &str, shared: &Shared) {
    let mut symbols = Symbols::new(&Deadline::default());
    let mut files = 0;
    for mut case in cases {
        let pid = case.hangs.first().map_or(0, |hang| hang.pid);
        let mut outside = if case.foreign { Outside::default() } else { outside::look(pid) };
        for seen in outside.threads.values_mut() {
            seen.frames = symbols.resolve(pid, std::mem::take(&mut seen.frames));
            seen.frames.retain(|row| !is_ours(row));
        }
        for thread in &mut case.threads {
            thread.last_stack = symbols.resolve(pid, std::mem::take(&mut thread.last_stack));
        }
        for at in 0..case.hangs.len() {
            let (frames, earlier) = stack(&case, case.hangs[at].tid, &outside);
            let line = frames.iter().find(|row| row.language == "python").map(text::frame);
            let stack = programs_own(frames).iter().take(MOST_FRAMES).map(text::frame).collect();
            (case.hangs[at].line, case.hangs[at].stack, case.hangs[at].earlier) = (line, stack, earlier);
        }
        let name = format!("hangs/{}-{host}-{pid}.txt", utc(case.now_ns));
        let report = (files < MOST_FILES && write(trace, &name, &text::whole(&case, &outside))).then_some(name);
        files += usize::from(report.is_some());
        if case.is_said {
            let path = report.as_ref().map(|name| trace.join(name).display().to_string());
            let lines = text::said(&case, path.as_deref());
            shared.lock().unwrap_or_else(PoisonError::into_inner).warnings.extend(lines);
        }
        for (number, hang) in (case.first..).zip(case.hangs) {
            let (line, stack, earlier) = (hang.line, hang.stack, hang.earlier);
            let found = Found { number, line, stack, earlier, report: report.clone() };
            if tell.send(found).is_err() {
                return;
            }
        }
    }
}

/// Whether it is a frame of a library whose file's name begins so.
fn is_in(row: &StackRow, library: &str) -> bool {
    let name = row.module.as_deref().and_then(|module| module.rsplit('/').next());
    name.is_some_and(|name| name.starts_with(library))
}

/// Whether it is a frame of the shim, through which the call goes.
fn is_ours(row: &StackRow) -> bool {
    is_in(row, "libgputrace")
}

/// Libraries inside of which a call waits.
const BELOW: [&str; 7] =
    ["libcuda.so", "libcudart.so", "libnccl.so", "libc.so", "libpthread.so", "ld-linux", "libcuda-"];

/// The frames from the first on that is the program's: what the driver does in its call says nothing of who made it. The whole report has
/// them all.
fn programs_own(frames: &[StackRow]) -> &[StackRow] {
    let first = frames.iter().position(|row| !BELOW.iter().any(|library| is_in(row, library))).unwrap_or(0);
    frames.get(first..).unwrap_or(frames)
}

/// The frames of a thread, and whether they are those that were last seen from inside, and not how it stands.
fn stack<'a>(case: &'a Case, tid: i32, outside: &'a Outside) -> (&'a [StackRow], bool) {
    match outside.threads.get(&tid).filter(|seen| !seen.frames.is_empty()) {
        Some(seen) => (&seen.frames, false),
        None => {
            let row = case.threads.iter().find(|thread| thread.tid == tid);
            let last = row.map_or(&[][..], |thread| &thread.last_stack);
            (last, !last.is_empty())
        }
    }
}

fn write(trace: &Path, name: &str, text: &str) -> bool {
    write_text(trace, name, text).inspect_err(|_| drop(fs::remove_file(trace.join(name)))).is_ok()
}

/// A time as it stands in names of files: `20260131T235959.123Z`.
fn utc(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000) as libc::time_t;
    // SAFETY: an all-zero value of this plain struct is valid; the call fills it.
    let time = unsafe {
        let mut time: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&seconds, &mut time);
        time
    };
    let (year, month, day) = (time.tm_year + 1900, time.tm_mon + 1, time.tm_mday);
    let (hour, minute, second) = (time.tm_hour, time.tm_min, time.tm_sec);
    let millis = ns.rem_euclid(1_000_000_000) / 1_000_000;
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shims_own_frames_are_left_out() {
        let of = |module: &str| StackRow { module: Some(module.into()), ..StackRow::default() };
        assert!(is_ours(&of("/opt/gputrace/lib/libgputrace_shim.so")));
        assert!(!is_ours(&of("/home/libgputrace/train")) && !is_ours(&StackRow::default()));
    }

    #[test]
    fn what_is_said_begins_with_the_programs_own_frame() {
        let of = |module: &str| StackRow { module: Some(module.into()), ..StackRow::default() };
        let frames =
            [of("/usr/lib/libc.so.6"), of("/usr/lib/libcuda.so.1"), of("/home/me/train"), of("/usr/lib/libc.so.6")];
        assert_eq!(programs_own(&frames), &frames[2..]);
        assert_eq!(programs_own(&frames[..2]), &frames[..2], "better than nothing");
    }

    #[test]
    fn files_sort_by_the_time_in_their_names() {
        assert_eq!(utc(0), "19700101T000000.000Z");
        assert_eq!(utc(1_769_903_999_123_456_789), "20260131T235959.123Z");
    }
}
