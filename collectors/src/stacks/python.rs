//! A Python code object: its name, its file, and the lines of its instructions.

use std::sync::Arc;

use gputrace_abi::stack::{PYTHON_CODE_BYTES, PythonCode};

use super::lines;
use crate::tables::StackRow;

/// A code object, as the process described it.
pub(crate) struct Code {
    name: Arc<str>,
    file: Arc<str>,
    minor: u8,
    first_line: u32,
    /// None where it did not come in whole.
    table: Option<Vec<u8>>,
}

impl Code {
    /// Out of its text and the line table that came before.
    pub(crate) fn read(bytes: &[u8], table: Vec<u8>) -> Option<Code> {
        let (head, texts) = bytes.split_first_chunk::<PYTHON_CODE_BYTES>()?;
        let head = PythonCode::from_bytes(*head);
        let (name, file) = texts.split_at_checked(head.name_bytes.into())?;
        let whole = table.len() as u64 == u64::from(head.lines_bytes);
        Some(Code {
            name: decode(name, head.name_unit).into(),
            file: decode(file, head.file_unit).into(),
            minor: head.minor,
            first_line: head.first_line,
            table: whole.then_some(table),
        })
    }

    /// The frame that executes what stands at this offset.
    pub(crate) fn row(&self, offset: u64) -> StackRow {
        let line = self.table.as_ref().and_then(|table| lines::line(self.minor, table, self.first_line, offset));
        StackRow {
            language: "python",
            function: self.name.clone(),
            file: Some(self.file.clone()),
            line: line.and_then(|line| i32::try_from(line).ok()),
            ..StackRow::default()
        }
    }
}

/// A text as CPython keeps it: so many bytes a character, 0 for ASCII. What is no character is replaced.
fn decode(bytes: &[u8], unit: u8) -> String {
    let character = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    match unit {
        1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        2 => bytes.as_chunks::<2>().0.iter().map(|pair| character(u16::from_le_bytes(*pair).into())).collect(),
        4 => bytes.as_chunks::<4>().0.iter().map(|four| character(u32::from_le_bytes(*four))).collect(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(head: PythonCode, texts: &[u8], table: &[u8]) -> Option<Code> {
        Code::read(&[&head.to_bytes(), texts].concat(), table.to_vec())
    }

    #[test]
    fn texts_of_every_width_are_read() {
        assert_eq!(decode(b"f", 0), "f");
        assert_eq!(decode(&[0xe9], 1), "\u{e9}");
        assert_eq!(decode(&[0x3a, 0x04, 0x00, 0xd8], 2), "\u{43a}\u{fffd}");
        assert_eq!(decode(&[0x00, 0xf4, 0x01, 0x00, 0xff], 4), "\u{1f400}");
    }

    #[test]
    fn a_line_table_with_a_hole_gives_no_lines() {
        let head = PythonCode { minor: 9, name_bytes: 1, first_line: 7, lines_bytes: 2, ..PythonCode::default() };
        let whole = code(head, b"fa.py", &[0, 1]).unwrap().row(0);
        assert_eq!((&*whole.function, whole.file.as_deref(), whole.line), ("f", Some("a.py"), Some(8)));
        assert_eq!(code(head, b"fa.py", &[0]).unwrap().row(0).line, None);
        assert!(Code::read(b"short", Vec::new()).is_none());
        assert!(code(PythonCode { name_bytes: 9, ..head }, b"fa.py", &[]).is_none());
    }
}
