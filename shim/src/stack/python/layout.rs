//! Where the fields of CPython's structures are, by version: facts, a row each.
//!
//! Python 3.13 and newer publish most of it at the start of their runtime ([`super::published`]), which also covers
//! builds with other options; the rows below hold for the release builds of 3.8 to 3.12, and are the start for newer
//! ones. `tests/stacks/` compares what comes of them with what each interpreter says about itself.

/// Offsets in bytes; [`NONE`] where a version has no such field.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// PyThreadState: the thread's pthread_t.
    pub(super) thread_id: u16,
    /// PyThreadState: the innermost frame, or what points to it.
    pub(super) frame: u16,
    /// In what `frame` points to: the innermost frame (3.11 and 3.12).
    pub(super) through: u16,
    /// Frame: the next outer one.
    pub(super) previous: u16,
    /// Frame: its code object. The lowest bits may be a tag.
    pub(super) code: u16,
    /// Frame: what it executes, see [`Instruction`].
    pub(super) instruction: u16,
    pub(super) unit: Instruction,
    /// Frame: who owns it, a byte; from [`OWNED_BY_INTERPRETER`] on it belongs to no function.
    pub(super) owner: u16,
    /// Frame: whether C called the function, a byte (3.11); newer versions have a frame that no function owns there.
    pub(super) entry: u16,
    /// Frame and code object: which copy of the bytecode runs, and the copies (free-threaded 3.14).
    pub(super) copy: u16,
    pub(super) copies: u16,
    /// Code object: its bytecode, where instructions are pointers; the number of the first that is a line of the
    /// function's own.
    pub(super) bytecode: u16,
    pub(super) first_traceable: u16,
    /// Code object: texts, first line, line table, and a number that no other code object gets.
    pub(super) name: u16,
    pub(super) file: u16,
    pub(super) first_line: u16,
    pub(super) lines: u16,
    pub(super) version: u16,
    /// Any object: its type.
    pub(super) kind: u16,
    /// Bytes: length and data.
    pub(super) bytes_length: u16,
    pub(super) bytes_data: u16,
    /// Text: length, state bits and how far to shift them, data of ASCII and of other texts.
    pub(super) text_length: u16,
    pub(super) text_state: u16,
    pub(super) text_shift: u16,
    pub(super) text_ascii: u16,
    pub(super) text_other: u16,
}

/// What a frame says about where it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Number of the last byte of bytecode (to 3.9).
    Byte,
    /// Number of the last instruction of two bytes (3.10).
    Pair,
    /// Address of the instruction (from 3.11).
    Address,
}

pub(super) const NONE: u16 = u16::MAX;
pub(super) const OWNED_BY_INTERPRETER: u8 = 3;

const PYTHON_3_8: Layout = Layout {
    thread_id: 176,
    frame: 24,
    through: NONE,
    previous: 24,
    code: 32,
    instruction: 104,
    unit: Instruction::Byte,
    owner: NONE,
    entry: NONE,
    copy: NONE,
    copies: NONE,
    bytecode: NONE,
    first_traceable: NONE,
    name: 112,
    file: 104,
    first_line: 40,
    lines: 120,
    version: NONE,
    kind: 8,
    bytes_length: 16,
    bytes_data: 32,
    text_length: 16,
    text_state: 32,
    text_shift: 2,
    text_ascii: 48,
    text_other: 72,
};

const PYTHON_3_10: Layout = Layout { instruction: 96, unit: Instruction::Pair, ..PYTHON_3_8 };

const PYTHON_3_11: Layout = Layout {
    thread_id: 152,
    frame: 56,
    through: 8,
    previous: 48,
    code: 32,
    instruction: 56,
    unit: Instruction::Address,
    owner: 69,
    entry: 68,
    bytecode: 184,
    first_traceable: 168,
    name: 128,
    file: 112,
    first_line: 72,
    lines: 136,
    ..PYTHON_3_8
};

const PYTHON_3_12: Layout = Layout {
    thread_id: 136,
    through: 0,
    previous: 8,
    code: 0,
    owner: 70,
    entry: NONE,
    bytecode: 192,
    first_traceable: 176,
    first_line: 68,
    version: 92,
    text_ascii: 40,
    text_other: 56,
    ..PYTHON_3_11
};

const PYTHON_3_13: Layout =
    Layout { thread_id: 152, frame: 72, through: NONE, bytecode: 200, first_traceable: 184, ..PYTHON_3_12 };

const PYTHON_3_14: Layout = Layout { owner: 74, bytecode: 208, first_traceable: 192, ..PYTHON_3_13 };

/// The layout of Python 3.`minor`, as far as it is known.
pub(super) fn of(minor: u8) -> Option<Layout> {
    const KNOWN: [Layout; 7] =
        [PYTHON_3_8, PYTHON_3_8, PYTHON_3_10, PYTHON_3_11, PYTHON_3_12, PYTHON_3_13, PYTHON_3_14];
    KNOWN.get(usize::from(minor.checked_sub(8)?)).copied()
}
