//! malloc by stack, as profilers of the heap write it: what was allocated, and what was in use at the end or at the peak.
//!
//! Values are estimates where malloc was sampled. Memory from the kernel (`--mmap`) is left out: malloc's own comes from it.

mod folded;
mod pprof;

use std::io;
use std::path::Path;

use super::Written;
use super::output::Output;
use crate::analysis::{Facts, Need};
use crate::trace::{Filter, Frame, NO_STACK, Trace};

/// When memory in use is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// At the end of each process, or of the trace.
    End,
    /// When each process had most of it.
    Peak,
}

/// Which value of a stack is meant: its place in [`Line::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Blocks allocated.
    AllocObjects = 0,
    /// Bytes allocated.
    AllocSpace = 1,
    /// Blocks in use.
    InuseObjects = 2,
    /// Bytes in use.
    InuseSpace = 3,
}

/// A process whose malloc was recorded.
struct Program {
    process_id: i64,
    pid: i32,
    /// Path of its program.
    exe: String,
    /// `python (rank 3)`, `python (pid 4711)`.
    name: String,
    /// Mean distance of samples in bytes, 1 where each allocation is there.
    sample_bytes: i64,
}

/// What one stack of a process allocated.
struct Line {
    /// Place of its process in the list.
    program: usize,
    stack_id: i64,
    /// Blocks and bytes allocated, blocks and bytes in use.
    values: [i64; 4],
}

/// Everything that is written.
struct Heap<'a> {
    facts: Facts<'a>,
    programs: Vec<Program>,
    lines: Vec<Line>,
}

/// Writes a gzipped profile of pprof's, of all processes.
pub(crate) fn pprof(trace: &Trace, filter: &Filter, file: &Path, at: At) -> io::Result<Written> {
    let heap = Heap::read(trace, filter, at);
    finish(Output::gzipped(file)?, heap.lines.len(), |output| pprof::write(&heap, at, output))
}

/// Writes folded stacks, a line each, of all processes.
pub(crate) fn folded(trace: &Trace, filter: &Filter, file: &Path, what: What, at: At) -> io::Result<Written> {
    let lines = folded::lines(&Heap::read(trace, filter, at), what);
    finish(Output::create(file)?, lines.len(), |output| folded::write(&lines, output))
}

fn finish(mut output: Output, stacks: usize, write: impl FnOnce(&mut Output) -> io::Result<()>) -> io::Result<Written> {
    if let Err(error) = write(&mut output) {
        output.remove();
        return Err(error);
    }
    let (path, _) = output.end()?;
    Ok(Written { files: vec![(path, stacks as u64)], ..Written::default() })
}

impl<'a> Heap<'a> {
    fn read(trace: &'a Trace, filter: &'a Filter, at: At) -> Heap<'a> {
        let facts = Facts::gather(trace, filter, &[Need::Allocations]);
        let mut programs: Vec<Program> =
            facts.allocations.processes.iter().map(|(id, _)| program(&facts, *id)).collect();
        programs.sort_by_key(|program| program.process_id);
        let place = |id: i64| programs.binary_search_by_key(&id, |program| program.process_id).ok();
        let mut lines: Vec<Line> = facts
            .allocations
            .stacks
            .iter()
            .filter_map(|((process_id, stack_id), stack)| {
                let inuse = match at {
                    At::End => stack.live,
                    At::Peak => stack.at_peak(facts.allocations.processes.get(process_id)?),
                };
                let all = stack.sums.all;
                // A sum of estimates may end a hair below nothing.
                let values =
                    [all.blocks, all.bytes, inuse.blocks, inuse.bytes].map(|value| value.round().max(0.0) as i64);
                let line = Line { program: place(*process_id)?, stack_id: *stack_id, values };
                values.iter().any(|value| *value > 0).then_some(line)
            })
            .collect();
        lines.sort_by_key(|line| (line.program, line.stack_id));
        Heap { facts, programs, lines }
    }

    /// The program that allocated most.
    fn main(&self) -> Option<&Program> {
        let mut bytes = vec![0i64; self.programs.len()];
        self.lines.iter().for_each(|line| bytes[line.program] += line.values[What::AllocSpace as usize]);
        self.programs.iter().zip(bytes).max_by_key(|(_, bytes)| *bytes).map(|(program, _)| program)
    }

    /// The frames of a line, innermost first.
    fn frames(&self, line: &Line) -> Vec<&Frame> {
        self.facts.stacks.frames(line.stack_id).collect()
    }
}

fn program(facts: &Facts<'_>, process_id: i64) -> Program {
    let process = facts.trace.process(process_id);
    let mode = process.map_or("", |process| process.malloc_mode.as_str());
    let name = facts.program(process_id).unwrap_or_else(|| "?".to_owned());
    Program {
        process_id,
        pid: process.map_or(0, |process| process.pid),
        exe: process.map_or_else(String::new, |process| process.exe.clone()),
        name: format!("{name} ({})", facts.label(process_id)),
        sample_bytes: mode.strip_prefix("sample:").and_then(|bytes| bytes.parse().ok()).unwrap_or(1),
    }
}

/// What stands for a function without a name: its library, or nothing that is known.
fn name_of(frame: &Frame) -> String {
    let module = frame.module.rsplit('/').next().unwrap_or_default();
    match (frame.function.as_str(), module) {
        ("", "") => "[unknown]".to_owned(),
        ("", module) => format!("[{module}{}]", frame.name()),
        (function, _) => function.to_owned(),
    }
}

/// What stands for a stack that is not in the trace.
fn no_frames(line: &Line) -> &'static str {
    if line.stack_id == NO_STACK { "[no stack]" } else { "[lost stack]" }
}

#[cfg(test)]
mod tests;
