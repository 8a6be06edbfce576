//! speedscope's own format (www.speedscope.app/file-format-schema.json): sampled profiles, which share their frames.
//!
//! A profile is of one value and one process, and each of its samples is a stack with all that it has of the value; of a value the process with most comes first. Frames are numbered as
//! they come, and stand at the end of the file.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::rc::Rc;

use serde_json::json;

use super::super::output::quoted;
use super::{Line, Program, Sums, name_of};
use crate::cli::ExportValue;
use crate::spilled::{Numbers, Spilled};
use crate::trace::Frame;

/// Frames by number, as the file has them.
#[derive(Default)]
struct Frames {
    numbers: Numbers,
    all: Spilled<Rc<str>>,
}

/// Writes the profiles that have something. How many stacks they have.
pub(super) fn write(all: &[Sums<'_, '_>], values: &[ExportValue], output: &mut impl Write) -> io::Result<usize> {
    let (mut frames, mut stacks, mut profiles) = (Frames::default(), 0, 0);
    let exporter = format!("gputrace {}", env!("CARGO_PKG_VERSION"));
    write!(
        output,
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":{},\"profiles\":[",
        quoted(&exporter)
    )?;
    for sums in all {
        for (place, value) in sums.of.values().iter().enumerate().filter(|(_, value)| values.contains(value)) {
            let mut of_programs: Vec<(i64, &Program, Vec<&Line>)> =
                sums.programs.iter().enumerate().map(|(number, program)| own(sums, number, program, place)).collect();
            of_programs.retain(|(_, _, lines)| !lines.is_empty());
            // What is shown first is the first profile.
            of_programs.sort_by_key(|(total, ..)| Reverse(*total));
            for (total, program, lines) in of_programs {
                output.write_all(if profiles == 0 { b"\n" } else { b",\n" })?;
                let name = quoted(&format!("{} of {}", value.name(), program.name));
                let unit = if value.unit() == "count" { "none" } else { value.unit() };
                write!(
                    output,
                    "{{\"type\":\"sampled\",\"name\":{name},\"unit\":\"{unit}\",\"startValue\":0,\"endValue\":{total},"
                )?;
                samples(sums, &lines, place, &mut frames, output)?;
                (stacks, profiles) = (stacks + lines.len(), profiles + 1);
            }
        }
    }
    if profiles == 0 {
        // It opens no file without a profile.
        output.write_all(b"\n{\"type\":\"sampled\",\"name\":\"nothing is known by stack\",\"unit\":\"none\",\"startValue\":0,\"endValue\":0,\"samples\":[],\"weights\":[]}")?;
    }
    output.write_all(b"],\n\"shared\":{\"frames\":[")?;
    for number in 1..=frames.numbers.count() {
        output.write_all(if number == 1 { b"" } else { b"," })?;
        output.write_all(frames.all.get(number)?.as_deref().unwrap_or("{}").as_bytes())?;
    }
    output.write_all(b"]}}\n")?;
    Ok(stacks)
}

/// What a program has of the value at a place: all, and its stacks with some.
fn own<'s>(
    sums: &'s Sums<'_, '_>,
    number: usize,
    program: &'s Program,
    place: usize,
) -> (i64, &'s Program, Vec<&'s Line>) {
    let lines = sums.lines.iter().filter(|line| line.program == number && line.values[place] > 0).collect::<Vec<_>>();
    let total = lines.iter().fold(0i64, |sum, line| sum.saturating_add(line.values[place]));
    (total, program, lines)
}

/// The end of a profile: its stacks, outermost frame first, and their values.
fn samples(
    sums: &Sums<'_, '_>,
    lines: &[&Line],
    place: usize,
    frames: &mut Frames,
    output: &mut impl Write,
) -> io::Result<()> {
    output.write_all(b"\"samples\":[")?;
    for (n, line) in lines.iter().enumerate() {
        let stack =
            sums.frames(line)?.iter().rev().map(|frame| frames.number(frame)).collect::<io::Result<Vec<i64>>>()?;
        output.write_all(if n == 0 { b"" } else { b"," })?;
        serde_json::to_writer(&mut *output, &stack)?;
    }
    output.write_all(b"],\"weights\":")?;
    serde_json::to_writer(&mut *output, &lines.iter().map(|line| line.values[place]).collect::<Vec<_>>())?;
    output.write_all(b"}")
}

impl Frames {
    /// From 0 on.
    fn number(&mut self, frame: &Frame) -> io::Result<i64> {
        let (number, is_new) = self.numbers.of(frame)?;
        if is_new {
            // A library stands for a source that is not known.
            let file = frame.place();
            let mut object = json!({ "name": name_of(frame) });
            if !file.is_empty() {
                object["file"] = file.into();
            }
            if let Some(line) = frame.line {
                object["line"] = line.into();
            }
            self.all.insert(number, object.to_string().into())?;
        }
        Ok(number - 1)
    }
}
