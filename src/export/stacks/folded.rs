//! Brendan Gregg's folded stacks, which flamegraph.pl, inferno and speedscope read: `outermost;...;innermost VALUE`.
//!
//! The process is the outermost frame. A frame is a function with its file and line, where they are known.

use std::io::{self, Write};

use super::{Line, Sums, name_of};
use crate::cli::ExportValue;
use crate::spilled::Numbers;
use crate::trace::{Frame, shown_file};

/// Writes the stacks with some of a value, each once, and says how many they are. Stacks of one text, which differ in what is not shown,
/// are one: the sums are known before the first is written, and no text is kept.
pub(super) fn write(sums: &Sums<'_, '_>, value: ExportValue, output: &mut impl Write) -> io::Result<usize> {
    let place = value.place();
    let (mut texts, mut all) = (Numbers::default(), Vec::<i64>::new());
    let lines = || sums.lines.iter().filter(|line| line.values[place] > 0);
    for line in lines() {
        match texts.of(text(sums, line)?.as_str())? {
            (_, true) => all.push(line.values[place]),
            (number, false) => all[number as usize - 1] += line.values[place],
        }
    }
    let mut written = 0;
    for line in lines() {
        let text = text(sums, line)?;
        // They have their numbers in the order in which they come.
        if texts.of(text.as_str())?.0 as usize == written + 1 {
            writeln!(output, "{text} {}", all[written])?;
            written += 1;
        }
    }
    Ok(written)
}

/// A stack from the process inwards.
fn text(sums: &Sums<'_, '_>, line: &Line) -> io::Result<String> {
    let mut text = plain(&sums.programs[line.program].name);
    for frame in sums.frames(line)?.iter().rev() {
        text.push(';');
        text.push_str(&plain(&frame_text(frame)));
    }
    Ok(text)
}

pub(super) fn frame_text(frame: &Frame) -> String {
    let file = shown_file(&frame.file);
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
        let package = Frame { file: "/u/jax/__init__.py".into(), ..frame };
        assert_eq!(frame_text(&package), "a;b\nc (jax/__init__.py:3)");
        let library = Frame { module: "/lib/libx.so".into(), ..Frame::default() };
        assert_eq!((frame_text(&library).as_str(), frame_text(&Frame::default()).as_str()), ("[libx.so]", "[unknown]"));
    }
}
