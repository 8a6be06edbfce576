//! Native stacks on their way to the table: addresses in files become functions and lines.
//!
//! That reads files, some of them large, so it has a thread of its own between drain and writer, which nobody waits for.
//! At the end of the trace what is left is written as module and address alone when the time is up.

mod debug_file;
mod debuginfod;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;
mod perf_map;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use crate::live::Resolved;
use crate::stacks::around;
use crate::tables::{StackColumns, StackRow, Stacked};
use crate::writer::Message;
#[cfg(target_os = "linux")]
pub(crate) use debug_file::open;
pub use debuginfod::CLIENT;
use debuginfod::Debuginfod;
use file::File;
use perf_map::PerfMaps;

/// Files whose symbols are kept in memory.
const MOST_FILES: usize = 64;
/// So long before the end of the trace no more files are read.
const RESERVE: Duration = Duration::from_millis(300);

/// Stacks with native frames, callers first, whose rows have modules and addresses, and no functions yet.
pub(crate) struct Native {
    /// Whose they are, in the collector's pid namespace.
    pub(crate) pid: i32,
    pub(crate) stacks: Vec<Stacked>,
}

/// Set when the trace ends: until when files may be read.
pub(crate) type Deadline = Arc<OnceLock<Instant>>;

/// The thread's work: until nobody sends any more.
pub(crate) fn run(
    stacks: &Receiver<Native>,
    writer: &Sender<Message>,
    live: &Resolved,
    deadline: &Deadline,
    debuginfod: bool,
) {
    let mut files = Files::new(deadline, debuginfod);
    let mut columns = StackColumns::default();
    while let Ok(first) = stacks.recv() {
        let mut next = Some(first);
        while let Some(come) = next {
            let known: Vec<Stacked> = come.stacks.iter().flat_map(|stack| files.resolve(come.pid, stack)).collect();
            known.iter().for_each(|stack| columns.push(stack));
            live.tell(known);
            let full = columns.len() >= crate::tables::BATCH_ROWS;
            next = if full { None } else { stacks.try_recv().ok() };
        }
        if let Some(batch) = columns.take()
            && writer.send(batch).is_err()
        {
            return;
        }
    }
}

/// Symbols for whoever has a stack without them.
pub(crate) struct Symbols(Files);

impl Symbols {
    /// Files may be read until then; of this machine alone.
    pub(crate) fn new(deadline: &Deadline) -> Symbols {
        Symbols(Files::new(deadline, false))
    }

    /// The stack of a process with functions and lines; Python's frames as they are.
    pub(crate) fn resolve(&mut self, pid: i32, rows: Vec<StackRow>) -> Vec<StackRow> {
        rows.iter().flat_map(|row| self.0.frames(pid, row)).collect()
    }
}

struct Files {
    /// By path; the paths of frames are mostly the same texts in memory.
    open: Vec<(Arc<str>, Option<File>)>,
    maps: PerfMaps,
    deadline: Deadline,
    debuginfod: Debuginfod,
}

impl Files {
    fn new(deadline: &Deadline, debuginfod: bool) -> Files {
        Files {
            open: Vec::new(),
            maps: PerfMaps::new(Path::new("/proc")),
            deadline: deadline.clone(),
            debuginfod: Debuginfod::new(debuginfod),
        }
    }

    /// The stack with its function and line. Where that is inlined, the functions around it are stacks of their own, which come first; of
    /// a stack of two they are those of the inner one, and came with that.
    fn resolve(&mut self, pid: i32, stack: &Stacked) -> Vec<Stacked> {
        let mut caller = stack.caller;
        let frames = self.frames(pid, &stack.frame);
        if let (Some(joined), [frame, inlined @ ..]) = (stack.joined, &frames[..]) {
            let caller = if inlined.is_empty() { stack.caller } else { Some(around(joined.inner, 1)) };
            return vec![Stacked { caller, frame: frame.clone(), ..*stack }];
        }
        let stacks = frames.into_iter().enumerate().rev().map(|(inlined, frame)| {
            let id = if inlined == 0 { stack.id } else { around(stack.id, inlined) };
            Stacked { id, caller: caller.replace(id), joined: None, frame }
        });
        stacks.collect()
    }

    /// The frame's functions and lines, those of inlined ones first; Python's as it is.
    fn frames(&mut self, pid: i32, row: &StackRow) -> Vec<StackRow> {
        let (Some(module), Some(offset)) = (&row.module, row.offset) else {
            return vec![self.made_at_run_time(pid, row)];
        };
        // What was pushed is the address after the call.
        let sites = self.file(pid, module).map_or(&[][..], |file| file.find((offset as u64).wrapping_sub(1)));
        let frame = |(nth, site): (usize, &file::Site)| StackRow {
            function: site.function.clone(),
            file: site.file.clone(),
            line: site.line.and_then(|line| i32::try_from(line).ok()),
            cut: row.cut && nth + 1 == sites.len(),
            ..row.clone()
        };
        if sites.is_empty() { vec![row.clone()] } else { sites.iter().enumerate().map(frame).collect() }
    }

    /// A frame in no file.
    fn made_at_run_time(&mut self, pid: i32, row: &StackRow) -> StackRow {
        let may_read = self.may_read();
        // What was pushed is the address after the call.
        let address = row.offset.filter(|_| row.module.is_none()).map(|address| (address as u64).wrapping_sub(1));
        let function = address.and_then(|address| self.maps.find(pid, address, may_read));
        match function {
            Some(function) => StackRow { function: function.into(), ..row.clone() },
            None => row.clone(),
        }
    }

    fn may_read(&self) -> bool {
        may_read(&self.deadline)
    }

    fn file(&mut self, pid: i32, module: &Arc<str>) -> Option<&mut File> {
        let same = |(path, _): &(Arc<str>, _)| Arc::ptr_eq(path, module);
        let known = self.open.iter().position(same).or_else(|| self.open.iter().position(|(path, _)| path == module));
        let place = match known {
            Some(place) => place,
            None => {
                let path = Path::new(&**module);
                if !path.is_absolute() || !self.may_read() {
                    return None;
                }
                if self.open.len() >= MOST_FILES {
                    self.open.clear();
                }
                // The process may see another file of this name than we do.
                let root = PathBuf::from(format!("/proc/{pid}/root"));
                let mut ask = |id: &[u8]| self.debuginfod.find(id, || may_read(&self.deadline));
                let file = File::read(&root, path, &mut ask).or_else(|| File::read(Path::new("/"), path, &mut ask));
                self.open.push((module.clone(), file));
                self.open.len() - 1
            }
        };
        self.open.get_mut(place)?.1.as_mut()
    }
}

fn may_read(deadline: &Deadline) -> bool {
    deadline.get().is_none_or(|end| Instant::now() + RESERVE <= *end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_stack_is_left_out_where_more_come_than_a_batch_holds() {
        let (stacks, resolved) = crossbeam_channel::unbounded();
        let (writer, written) = crossbeam_channel::unbounded();
        let frames = 50;
        let wanted = 3 * crate::tables::BATCH_ROWS / frames;
        for _ in 0..wanted {
            let frame = StackRow { language: "native", ..StackRow::default() };
            stacks
                .send(Native { pid: 0, stacks: vec![Stacked { id: 1, caller: None, joined: None, frame }; frames] })
                .unwrap();
        }
        drop(stacks);
        run(&resolved, &writer, &Resolved::default(), &Deadline::default(), false);
        drop(writer);
        let rows: usize =
            written.iter().map(|m| if let Message::Rows(_, batch, _) = m { batch.num_rows() } else { 0 }).sum();
        assert_eq!(rows, wanted * frames);
    }
}
