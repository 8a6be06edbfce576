//! A code object into the ring, once: its name, its file, and its line table as it is; the collector reads it.

use core::ffi::c_void;

use gputrace_abi::event::{self, text_kind};
use gputrace_abi::stack::{PythonCode, TOO_LONG};

use super::find::{self, Python, Search};
use crate::session;
use crate::stack::known::Known;
use crate::stack::memory::{number, word};
use crate::thread::State;

static WRITTEN: Known = Known::new();

/// Longest name and path that are written, and longest line table, in bytes. Most line tables have under 1,000.
const NAME_BYTES: usize = 1000;
const FILE_BYTES: usize = 4000;
const LINES_BYTES: usize = 64 << 10;
/// Bytes of a line table in one text.
const PART_BYTES: usize = event::TEXT_MAX_BYTES / event::TEXT_SLOT_BYTES * event::TEXT_SLOT_BYTES;

/// Writes what the collector needs of a code object, once under this number; false where there was no room.
pub(in crate::stack) fn write(state: &State, key: u64, code: usize, since: u64) -> bool {
    if WRITTEN.has(key, since) {
        return true;
    }
    let Search::Found(python) = find::python() else { return false };
    // SAFETY: a frame of the calling thread holds the code object.
    let written = unsafe { write_code(python, state, key, code) };
    if written {
        WRITTEN.insert(key, since);
    }
    written
}

/// # Safety
/// A frame of the calling thread holds the code object.
unsafe fn write_code(python: &Python, state: &State, key: u64, code: usize) -> bool {
    let layout = &python.layout;
    let at = |field: u16| code + usize::from(field);
    let now = session::now();
    // SAFETY: the caller's promise; the code object holds its texts and its line table, and they never change.
    let (name, file, lines, first) = unsafe {
        (
            text(python, at(layout.name), NAME_BYTES),
            text(python, at(layout.file), FILE_BYTES),
            bytes(python, at(layout.lines)),
            number(at(layout.first_line)).unwrap_or(0),
        )
    };
    let (lines, lines_bytes) = match lines {
        Some(lines) if lines.len() <= LINES_BYTES => (lines, lines.len() as u32),
        _ => (&[][..], TOO_LONG),
    };
    for (nth, part) in lines.chunks(PART_BYTES).enumerate() {
        let place = (nth * PART_BYTES) as u64;
        if !state.write_texts(text_kind::PYTHON_LINES, key, place, [part, &[], &[]], now) {
            return false;
        }
    }
    let head = PythonCode {
        minor: python.minor,
        name_unit: name.unit,
        file_unit: file.unit,
        name_bytes: name.bytes.len() as u16,
        first_line: first as u32,
        lines_bytes,
    };
    state.write_texts(text_kind::PYTHON_CODE, key, 0, [&head.to_bytes(), name.bytes, file.bytes], now)
}

/// A text as CPython keeps it.
struct Text {
    /// Bytes of a character; 0 for ASCII.
    unit: u8,
    bytes: &'static [u8],
}

/// # Safety
/// At `place` stands a reference to an object that stays alive and unchanged while the result is used.
unsafe fn text(python: &Python, place: usize, most: usize) -> Text {
    // SAFETY: the caller's promise.
    unsafe { read_text(python, place, most) }.unwrap_or(Text { unit: 0, bytes: &[] })
}

unsafe fn read_text(python: &Python, place: usize, most: usize) -> Option<Text> {
    let layout = &python.layout;
    // SAFETY: the caller's promise.
    unsafe {
        let text = word(place)?;
        if word(text + usize::from(layout.kind))? != python.text_type {
            return None;
        }
        let length = word(text + usize::from(layout.text_length))?;
        // Three bits of bytes per character, then: one block of memory, and ASCII only.
        let bits = number(text + usize::from(layout.text_state))? as u32 >> layout.text_shift;
        let (unit, compact, ascii) = (bits & 7, bits >> 3 & 1 == 1, bits >> 4 & 1 == 1);
        if !compact || !matches!(unit, 1 | 2 | 4) {
            return None;
        }
        let data = text + usize::from(if ascii { layout.text_ascii } else { layout.text_other });
        let bytes = length.min(most / unit as usize) * unit as usize;
        Some(Text { unit: if ascii { 0 } else { unit as u8 }, bytes: slice(data, bytes) })
    }
}

/// # Safety
/// As for [`text`].
unsafe fn bytes(python: &Python, place: usize) -> Option<&'static [u8]> {
    let layout = &python.layout;
    // SAFETY: the caller's promise.
    unsafe {
        let object = word(place)?;
        if word(object + usize::from(layout.kind))? != python.bytes_type {
            return None;
        }
        let length = word(object + usize::from(layout.bytes_length))?;
        Some(slice(object + usize::from(layout.bytes_data), length.min(isize::MAX as usize)))
    }
}

/// # Safety
/// So many bytes stand there, and do not change while the slice is used.
unsafe fn slice(at: usize, bytes: usize) -> &'static [u8] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts((at as *const c_void).cast(), bytes) }
}
