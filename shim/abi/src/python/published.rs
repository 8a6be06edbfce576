//! What Python 3.13 and newer say themselves about their structures, for debuggers, at the start of `_PyRuntime`.
//!
//! A list of offsets behind a cookie and the version; where in the list a field stands changed between 3.13 and 3.14.
//! It covers builds whose structures differ from the release's: free-threaded ones, and those with reference tracing.

use super::layout::{Layout, NONE};

/// `xdebugpy`
const COOKIE: usize = usize::from_le_bytes(*b"xdebugpy");

/// Places in the list, in words, of what we read.
struct Places {
    runtime: usize,          // interpreters_head
    interpreter: [usize; 2], // next, threads_head
    thread: [usize; 2],      // next, native_thread_id
    thread_frame: usize,
    thread_id: usize,
    frame: [usize; 4], // previous, executable, instr_ptr, owner
    copy: Option<[usize; 2]>,
    code: [usize; 5], // filename, qualname, linetable, firstlineno, co_code_adaptive
    kind: usize,
    bytes: [usize; 2], // ob_size, ob_sval
    text: [usize; 3],  // state, length, asciiobject_size
}

const PYTHON_3_13: Places = Places {
    runtime: 5,
    interpreter: [8, 9],
    thread: [21, 25],
    thread_frame: 23,
    thread_id: 24,
    frame: [29, 30, 31, 33],
    copy: None,
    code: [35, 37, 38, 39, 43],
    kind: 45,
    bytes: [65, 66],
    text: [68, 69, 70],
};

const PYTHON_3_14: Places = Places {
    runtime: 5,
    interpreter: [8, 9],
    thread: [24, 28],
    thread_frame: 26,
    thread_id: 27,
    frame: [32, 33, 34, 36],
    copy: Some([38, 49]),
    code: [40, 42, 43, 44, 48],
    kind: 51,
    bytes: [75, 76],
    text: [78, 79, 80],
};

/// The layout that a runtime of Python 3.`minor` publishes, whose words `at` reads; none where it publishes none.
pub fn published(table: Layout, minor: u8, at: impl Fn(usize) -> Option<usize>) -> Option<Layout> {
    let places = match minor {
        13 => PYTHON_3_13,
        14 => PYTHON_3_14,
        _ => return None,
    };
    let small = |place: usize| at(place).and_then(|offset| u16::try_from(offset).ok()).filter(|o| *o < NONE / 2);
    if at(0)? != COOKIE || at(1)? >> 16 != 0x300 | usize::from(minor) {
        return None;
    }
    let free_threaded = at(2)? != 0;
    let [previous, code, instruction, owner] = places.frame;
    let [file, name, lines, first_line, bytecode] = places.code;
    let [bytes_length, bytes_data] = places.bytes;
    let [text_state, text_length, text_ascii] = places.text;
    let first_line = small(first_line)?;
    let text_ascii = small(text_ascii)?;
    let (copy, copies) = match places.copy.filter(|_| free_threaded) {
        Some([copy, copies]) => (small(copy)?, small(copies)?),
        None => (NONE, NONE),
    };
    // Only who looks from outside needs these: an offset beyond 16 bits is none, and the rest is known all the same.
    let [next_interpreter, threads] = places.interpreter.map(|place| small(place).unwrap_or(NONE));
    let [next_thread, native_id] = places.thread.map(|place| small(place).unwrap_or(NONE));
    Some(Layout {
        interpreters: small(places.runtime).unwrap_or(NONE),
        next_interpreter,
        threads,
        next_thread,
        native_id,
        thread_id: small(places.thread_id)?,
        frame: small(places.thread_frame)?,
        previous: small(previous)?,
        code: small(code)?,
        instruction: small(instruction)?,
        owner: small(owner)?,
        copy,
        copies,
        bytecode: small(bytecode)?,
        // These two are not published. The first stands before fields that only some builds have, the other always
        // as far behind the first line.
        first_traceable: if free_threaded { NONE } else { small(bytecode)? - 16 },
        version: first_line + 24,
        name: small(name)?,
        file: small(file)?,
        first_line,
        lines: small(lines)?,
        kind: small(places.kind)?,
        bytes_length: small(bytes_length)?,
        bytes_data: small(bytes_data)?,
        text_length: small(text_length)?,
        text_state: small(text_state)?,
        // Where another thread may intern a text, that state has a byte of its own.
        text_shift: if free_threaded && minor >= 14 { 8 } else { table.text_shift },
        text_ascii,
        text_other: text_ascii + 16,
        ..table
    })
}
