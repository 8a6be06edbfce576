//! Brendan Gregg's folded stacks, which flamegraph.pl, inferno and speedscope read: `outermost;...;innermost VALUE`.
//!
//! The process is the outermost frame. A frame is a function with its file and line, where they are known.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{Sums, name_of};
use crate::cli::ExportValue;
use crate::trace::Frame;

/// The stacks with some of a value, each once.
pub(super) fn lines(sums: &Sums<'_, '_>, value: ExportValue) -> BTreeMap<String, i64> {
    let place = value.place();
    let mut lines = BTreeMap::new();
    for line in sums.lines.iter().filter(|line| line.values[place] > 0) {
        let mut text = plain(&sums.programs[line.program].name);
        for frame in sums.frames(line).iter().rev() {
            text.push(';');
            text.push_str(&plain(&frame_text(frame)));
        }
        *lines.entry(text).or_default() += line.values[place];
    }
    lines
}

/// Writes them.
pub(super) fn write(lines: &BTreeMap<String, i64>, output: &mut impl Write) -> io::Result<()> {
    lines.iter().try_for_each(|(stack, value)| writeln!(output, "{stack} {value}"))
}

pub(super) fn frame_text(frame: &Frame) -> String {
    let file = frame.file.rsplit('/').next().unwrap_or_default();
    match frame.line {
        Some(line) if !file.is_empty() => format!("{} ({file}:{line})", name_of(frame)),
        _ => name_of(frame),
    }
}

/// A frame without what separates frames and lines.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_holds_nothing_that_separates() {
        let frame = Frame { function: "a;b\nc".into(), file: "/u/x.py".into(), line: Some(3), ..Frame::default() };
        assert_eq!(plain(&frame_text(&frame)), "a:b c (x.py:3)");
        let library = Frame { module: "/lib/libx.so".into(), ..Frame::default() };
        assert_eq!((frame_text(&library).as_str(), frame_text(&Frame::default()).as_str()), ("[libx.so]", "[unknown]"));
    }
}
