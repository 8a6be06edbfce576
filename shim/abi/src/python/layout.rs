//! Where the fields of CPython's structures are, by version: facts, a row each.
//!
//! Python 3.13 and newer publish most of it at the start of their runtime (`published.rs`), which also covers
//! builds with other options; the rows below hold for the release builds of 3.8 to 3.12, and are the start for newer
//! ones. `tests/stacks.rs` compares what comes of them with what each interpreter says about itself.

/// Offsets in bytes; [`NONE`] where a version has no such field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Runtime: the first interpreter. This and the next four are for who looks from outside.
    pub interpreters: u16,
    /// PyInterpreterState: the next one.
    pub next_interpreter: u16,
    /// PyInterpreterState: its youngest thread state.
    pub threads: u16,
    /// PyThreadState: the next one of its interpreter.
    pub next_thread: u16,
    /// PyThreadState: the number that the kernel has for the thread (since 3.11).
    pub native_id: u16,
    /// PyThreadState: the thread's pthread_t.
    pub thread_id: u16,
    /// PyThreadState: the innermost frame, or what points to it.
    pub frame: u16,
    /// In what `frame` points to: the innermost frame (3.11 and 3.12).
    pub through: u16,
    /// Frame: the next outer one.
    pub previous: u16,
    /// Frame: its code object. The lowest bits may be a tag.
    pub code: u16,
    /// Frame: what it executes, see [`Instruction`].
    pub instruction: u16,
    /// In which form it says so.
    pub unit: Instruction,
    /// Frame: who owns it, a byte; from [`OWNED_BY_INTERPRETER`] on it belongs to no function.
    pub owner: u16,
    /// Frame: whether C called the function, a byte (3.11); newer versions have a frame that no function owns there.
    pub entry: u16,
    /// Frame: which copy of the bytecode runs (free-threaded 3.14).
    pub copy: u16,
    /// Code object: those copies.
    pub copies: u16,
    /// Code object: its bytecode, where instructions are pointers.
    pub bytecode: u16,
    /// Code object: the number of the first instruction that is a line of the function's own.
    pub first_traceable: u16,
    /// Code object: its name, a text.
    pub name: u16,
    /// Code object: its file, a text.
    pub file: u16,
    /// Code object: its first line.
    pub first_line: u16,
    /// Code object: its line table, bytes.
    pub lines: u16,
    /// Code object: a number that no other one gets.
    pub version: u16,
    /// Any object: its type.
    pub kind: u16,
    /// Bytes: length.
    pub bytes_length: u16,
    /// Bytes: data.
    pub bytes_data: u16,
    /// Text: length in characters.
    pub text_length: u16,
    /// Text: state bits.
    pub text_state: u16,
    /// Text: how far to shift those.
    pub text_shift: u16,
    /// Text: data of one in ASCII.
    pub text_ascii: u16,
    /// Text: data of another.
    pub text_other: u16,
}

/// What a frame says about where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Number of the last byte of bytecode (to 3.9).
    Byte,
    /// Number of the last instruction of two bytes (3.10).
    Pair,
    /// Address of the instruction (from 3.11).
    Address,
}

/// No such field.
pub const NONE: u16 = u16::MAX;
/// See [`Layout::owner`].
pub const OWNED_BY_INTERPRETER: u8 = 3;

const PYTHON_3_8: Layout = Layout {
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    native_id: NONE,
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
    interpreters: 40,
    threads: 16,
    native_id: 160,
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
    threads: 72,
    native_id: 144,
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
pub fn of(minor: u8) -> Option<Layout> {
    const KNOWN: [Layout; 7] =
        [PYTHON_3_8, PYTHON_3_8, PYTHON_3_10, PYTHON_3_11, PYTHON_3_12, PYTHON_3_13, PYTHON_3_14];
    KNOWN.get(usize::from(minor.checked_sub(8)?)).copied()
}
