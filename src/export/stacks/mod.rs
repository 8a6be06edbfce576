//! What the host did by stack, as profilers write it: malloc, waits, and driver calls at all.
//!
//! Each kind has its values ([`ExportValue`]), which are summed by process, stack and called function ([`Sums`]). The formats write these
//! sums and know no kind.

mod calls;
mod flames;
mod folded;
mod malloc;
mod pprof;
mod speedscope;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::output::Output;
use super::{Written, outside};
use crate::analysis::{Facts, Need};
use crate::cli::{ExportAt, ExportOf, ExportValue};
use crate::trace::{Filter, Frame, NO_STACK, OTHER_STACKS, Stacks, Trace};

pub(crate) use flames::flames;

/// What has a stack, in the order in which a file of several has it.
const ALL: [ExportOf; 4] = [ExportOf::Malloc, ExportOf::Waits, ExportOf::OsWaits, ExportOf::Calls];

/// A process that did some of it.
struct Program {
    process_id: i64,
    pid: i32,
    /// Path of its program.
    exe: String,
    /// `python (rank 3)`, `python (pid 4711)`.
    name: String,
    /// Mean distance of malloc's samples in bytes, 1 where each allocation is there.
    sample_bytes: i64,
}

/// The values of one stack of a process.
struct Line {
    /// Place of its process in the list.
    program: usize,
    /// The function that the stack called, where the stack itself ends with its caller.
    api_id: Option<i64>,
    stack_id: i64,
    /// In the order of [`ExportOf::values`].
    values: Vec<i64>,
}

/// Everything of one kind.
struct Sums<'f, 't> {
    facts: &'f Facts<'t>,
    /// Where frames are read; none: the facts have those of all stacks.
    frames: Option<&'f Stacks>,
    of: ExportOf,
    programs: Vec<Program>,
    lines: Vec<Line>,
}

/// What is summed up, and all stacks beside it: there may be more than have room in memory.
fn gathered<'t>(trace: &'t Trace, filter: &'t Filter, needs: &[Need]) -> io::Result<(Facts<'t>, Stacks)> {
    Ok((Facts::gather_without_lines(trace, filter, needs), trace.every_stack()?))
}

/// Writes a gzipped profile of pprof's, of all processes.
pub(crate) fn pprof(trace: &Trace, filter: &Filter, file: &Path, of: ExportOf, at: ExportAt) -> io::Result<Written> {
    let (facts, frames) = gathered(trace, filter, &[need(of)])?;
    let sums = Sums { frames: Some(&frames), ..Sums::of(&facts, of, at) };
    let outside = outside::of_rows(trace, filter, outside::EVENTS);
    let write = |output: &mut Output| pprof::write(&sums, at, outside.as_deref(), output).map(|()| sums.lines.len());
    Ok(Written { outside: outside.clone(), ..finish(Output::gzipped(file)?, write)? })
}

/// Writes folded stacks, a line each, of all processes.
pub(crate) fn folded(
    trace: &Trace,
    filter: &Filter,
    file: &Path,
    value: ExportValue,
    at: ExportAt,
) -> io::Result<Written> {
    let (facts, frames) = gathered(trace, filter, &[need(value.of())])?;
    let sums = Sums { frames: Some(&frames), ..Sums::of(&facts, value.of(), at) };
    let outside = outside::of_rows(trace, filter, outside::EVENTS);
    Ok(Written { outside, ..finish(Output::create(file)?, |output| folded::write(&sums, value, output))? })
}

/// Writes a file of speedscope's: a profile for each of these values and each process, of those that have some.
pub(crate) fn speedscope(
    trace: &Trace,
    filter: &Filter,
    file: &Path,
    values: &[ExportValue],
    at: ExportAt,
) -> io::Result<Written> {
    let wanted = || ALL.into_iter().filter(|of| values.iter().any(|value| value.of() == *of));
    let (facts, frames) = gathered(trace, filter, &wanted().map(need).collect::<Vec<_>>())?;
    let sums = |of| Sums { frames: Some(&frames), ..Sums::of(&facts, of, at) };
    let sums: Vec<Sums<'_, '_>> = wanted().map(sums).collect();
    let outside = outside::of_rows(trace, filter, outside::EVENTS);
    Ok(Written { outside, ..finish(Output::create(file)?, |output| speedscope::write(&sums, values, output))? })
}

/// The values that speedscope's file has unless told: bytes and times, of one kind or of all.
pub(crate) fn weights(of: Option<ExportOf>) -> Vec<ExportValue> {
    let kinds = ALL.into_iter().filter(|kind| of.is_none_or(|of| of == *kind));
    kinds.flat_map(|kind| kind.values().iter().copied()).filter(|value| value.unit() != "count").collect()
}

/// Writes a file; `write` tells how many stacks it has.
fn finish(mut output: Output, write: impl FnOnce(&mut Output) -> io::Result<usize>) -> io::Result<Written> {
    let stacks = write(&mut output)?;
    let (path, _) = output.end()?;
    Ok(Written { files: vec![(path, stacks as u64)], ..Written::default() })
}

/// The pass that knows a kind's sums.
fn need(of: ExportOf) -> Need {
    match of {
        ExportOf::Malloc => Need::Allocations,
        ExportOf::Waits | ExportOf::OsWaits => Need::Sites,
        ExportOf::Calls => Need::Calls,
    }
}

/// A sum as the passes have it.
struct Found {
    process_id: i64,
    api_id: Option<i64>,
    stack_id: i64,
    values: Vec<i64>,
}

impl<'f, 't> Sums<'f, 't> {
    fn of(facts: &'f Facts<'t>, of: ExportOf, at: ExportAt) -> Sums<'f, 't> {
        let found = match of {
            ExportOf::Malloc => malloc::found(facts, at),
            ExportOf::Waits => calls::waits(facts),
            ExportOf::OsWaits => calls::os_waits(facts),
            ExportOf::Calls => calls::all(facts),
        };
        let processes: BTreeSet<i64> = found.iter().map(|found| found.process_id).collect();
        let programs: Vec<Program> = processes.into_iter().map(|process_id| program(facts, process_id)).collect();
        let place = |id: i64| programs.binary_search_by_key(&id, |program| program.process_id).ok();
        let line = |found: Found| {
            let Found { process_id, api_id, stack_id, values } = found;
            let any = values.iter().any(|value| *value > 0);
            any.then_some(Line { program: place(process_id)?, api_id, stack_id, values })
        };
        let mut lines: Vec<Line> = found.into_iter().filter_map(line).collect();
        lines.sort_by_key(|line| (line.program, line.stack_id, line.api_id));
        Sums { facts, frames: None, of, programs, lines }
    }

    /// The program with most of a value, by its place among the kind's.
    fn main(&self, value: usize) -> Option<&Program> {
        let mut sums = vec![0i64; self.programs.len()];
        self.lines.iter().for_each(|line| sums[line.program] = sums[line.program].saturating_add(line.values[value]));
        self.programs.iter().zip(sums).max_by_key(|(_, sum)| *sum).map(|(program, _)| program)
    }

    /// The frames of a line, innermost first: at least one.
    fn frames(&self, line: &Line) -> io::Result<Vec<Frame>> {
        let named = |function: String| Frame { function, ..Frame::default() };
        let mut frames: Vec<Frame> =
            line.api_id.map(|api_id| named(self.facts.names.full(api_id))).into_iter().collect();
        let called = frames.len();
        match self.frames {
            Some(known) => frames.extend(known.frames(line.stack_id)?),
            None => frames.extend(self.facts.stacks.frames(line.stack_id)),
        }
        if frames.len() == called {
            let unknown = match line.stack_id {
                NO_STACK => "[no stack]",
                OTHER_STACKS => "[other stacks]",
                _ => "[lost stack]",
            };
            frames.push(named(unknown.to_owned()));
        }
        Ok(frames)
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

#[cfg(test)]
mod tests;
