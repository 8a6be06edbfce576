//! pprof's profile.proto (github.com/google/pprof): of malloc with the four sample types of Go's heap profiles, of calls with count and time.
//!
//! One profile holds all processes: each sample has its process as a label, so that `-tagroot process` shows them apart and
//! `-tagfocus pid=4711` one of them. A location is a frame without its address: everything is symbolised already, and
//! mappings only name libraries.

use std::io::{self, Write};

use super::super::protobuf::Message;
use super::{Sums, name_of};
use crate::cli::{ExportAt, ExportOf};
use crate::spilled::Numbers;
use crate::trace::Frame;

/// Fields of the messages, by their names in profile.proto.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// What a profile refers to by number, each of which is written when it is first referred to: fields of a message come in any order.
struct Tables<'a, W> {
    output: &'a mut W,
    texts: Numbers,
    mappings: Numbers,
    functions: Numbers,
    locations: Numbers,
}

/// Writes the profile.
pub(super) fn write(
    sums: &Sums<'_, '_>,
    at: ExportAt,
    outside: Option<&str>,
    output: &mut impl Write,
) -> io::Result<()> {
    let mut tables = Tables {
        output,
        texts: Numbers::default(),
        mappings: Numbers::default(),
        functions: Numbers::default(),
        locations: Numbers::default(),
    };
    tables.text("")?;
    for value in sums.of.values() {
        let value = tables.value_type(value.name(), value.unit())?;
        tables.part(field::SAMPLE_TYPE, value.bytes())?;
    }
    // The first library is what a profile is said to be of.
    if let Some(main) = sums.main(1) {
        tables.mapping(&main.exe)?;
    }
    for line in &sums.lines {
        let frames = sums.frames(line)?.iter().map(|frame| tables.location(frame)).collect::<io::Result<Vec<i64>>>()?;
        let program = &sums.programs[line.program];
        let mut sample = Message::default();
        sample.numbers(1, frames);
        sample.numbers(2, line.values.iter().copied());
        sample.part(3, tables.label("process", Err(&program.name))?.bytes());
        sample.part(3, tables.label("pid", Ok(program.pid.into()))?.bytes());
        tables.part(field::SAMPLE, sample.bytes())?;
    }
    let (trace, mut rest) = (sums.facts.trace, Message::default());
    rest.number(field::TIME_NANOS, trace.began_ns());
    let duration = trace.ended_ns().map_or(0, |ended| ended.saturating_sub(trace.began_ns()));
    rest.number(field::DURATION_NANOS, duration);
    let (what, unit, period) = match sums.of {
        ExportOf::Malloc => ("space", "bytes", sums.programs.iter().map(|program| program.sample_bytes).max()),
        _ => (sums.of.main_value().name(), sums.of.main_value().unit(), None),
    };
    rest.part(field::PERIOD_TYPE, tables.value_type(what, unit)?.bytes());
    rest.number(field::PERIOD, period.unwrap_or(1));
    let comments = [comment(sums.of, at)].into_iter().chain(outside);
    let comments: Vec<i64> = comments.map(|text| tables.text(text)).collect::<io::Result<_>>()?;
    rest.numbers(field::COMMENT, comments);
    rest.number(field::DEFAULT_SAMPLE_TYPE, tables.text(sums.of.main_value().name())?);
    tables.output.write_all(rest.bytes())
}

/// What whoever reads the profile must know of its values.
fn comment(of: ExportOf, at: ExportAt) -> &'static str {
    match (of, at) {
        (ExportOf::Malloc, ExportAt::End) => "in use: at the end of each process",
        (ExportOf::Malloc, ExportAt::Peak) => "in use: when each process had most",
        (ExportOf::Waits, _) => "of copies, sets, frees and allocations the waiting alone; short waits have no stack",
        (ExportOf::OsWaits, _) => "of all threads, those that have nothing to do among them",
        (ExportOf::Calls, _) => "calls that have a stack; launches are estimates where these were drawn",
    }
}

impl<W: Write> Tables<'_, W> {
    /// Writes a message or a text of the profile.
    fn part(&mut self, field: u32, bytes: &[u8]) -> io::Result<()> {
        let mut whole = Message::default();
        whole.part(field, bytes);
        self.output.write_all(whole.bytes())
    }

    /// The number of a text; that of the first, which is the empty one, is 0.
    fn text(&mut self, text: &str) -> io::Result<i64> {
        let (number, is_new) = self.texts.of(text)?;
        if is_new {
            self.part(field::STRING_TABLE, text.as_bytes())?;
        }
        Ok(number - 1)
    }

    fn value_type(&mut self, what: &str, unit: &str) -> io::Result<Message> {
        let mut message = Message::default();
        message.number(1, self.text(what)?);
        message.number(2, self.text(unit)?);
        Ok(message)
    }

    fn label(&mut self, key: &str, value: Result<i64, &str>) -> io::Result<Message> {
        let mut label = Message::default();
        label.number(1, self.text(key)?);
        match value {
            Ok(number) => label.number(3, number),
            Err(text) => label.number(2, self.text(text)?),
        }
        Ok(label)
    }

    fn location(&mut self, frame: &Frame) -> io::Result<i64> {
        let (id, is_new) = self.locations.of(frame)?;
        if is_new {
            let mut line = Message::default();
            line.number(1, self.function(frame)?);
            line.number(2, frame.line.unwrap_or(0).into());
            let mut location = Message::default();
            location.number(1, id);
            location.number(2, self.mapping(&frame.module)?);
            location.part(4, line.bytes());
            self.part(field::LOCATION, location.bytes())?;
        }
        Ok(id)
    }

    fn function(&mut self, frame: &Frame) -> io::Result<i64> {
        let name = name_of(frame);
        let (id, is_new) = self.functions.of(&(&name, &frame.file))?;
        if is_new {
            let (name, file) = (self.text(&name)?, self.text(&frame.file)?);
            let mut function = Message::default();
            // Its name as people read it, and as the linker does, of which only the first is in a trace.
            for (field, value) in [(1, id), (2, name), (3, name), (4, file)] {
                function.number(field, value);
            }
            self.part(field::FUNCTION, function.bytes())?;
        }
        Ok(id)
    }

    /// The number of a library; 0 for Python and for code that lies in none.
    fn mapping(&mut self, module: &str) -> io::Result<i64> {
        if module.is_empty() {
            return Ok(0);
        }
        let (id, is_new) = self.mappings.of(module)?;
        if is_new {
            let mut mapping = Message::default();
            mapping.number(1, id);
            mapping.number(5, self.text(module)?);
            // Functions, files, lines and inlined frames are there: pprof need not look for the library.
            (7..=10).for_each(|field| mapping.number(field, 1));
            self.part(field::MAPPING, mapping.bytes())?;
        }
        Ok(id)
    }
}
