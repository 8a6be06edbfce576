//! Python's threads and their frames, read from the memory of another process that runs on meanwhile.
//!
//! The structures are those that the shim reads from inside (`gputrace_abi::python`); the runtime is found by the symbols
//! that the program or libpython exports. A frame may be freed while it is read: each code object is told by its type, every
//! walk is bounded, and a stack whose innermost frame changed is read again.

use gputrace_abi::python::{self, Instruction, Layout, NONE, OWNED_BY_INTERPRETER};
use gputrace_abi::stack::{DEPTH_OF_CALLS, PythonCode};

use super::libraries;
use super::linux::Memory;
use crate::stacks::Code;
use crate::tables::StackRow;

/// Interpreters, and threads of each, that are looked at.
const MOST_INTERPRETERS: usize = 64;
const MOST_THREADS: usize = 4096;
/// Longer names, files and line tables are not read.
const MOST_TEXT: usize = 4096;
const MOST_LINES: usize = 64 << 10;
/// How often a stack is read that changes meanwhile.
const TRIES: usize = 3;
/// Where glibc keeps the kernel's number of a thread, behind its pthread_t: looked at only before 3.11, and believed only if
/// the process has such a thread.
#[cfg(target_arch = "x86_64")]
const GLIBC_TID: usize = 720;
#[cfg(target_arch = "aarch64")]
const GLIBC_TID: usize = 208;

/// The Python of a process.
pub(super) struct Python {
    layout: Layout,
    minor: u8,
    runtime: usize,
    code_type: usize,
    text_type: usize,
    bytes_type: usize,
}

impl Python {
    /// The process's Python; none where it has none. Err: there is one that cannot be read, and why.
    pub(super) fn find(pid: i32, memory: &Memory) -> Result<Option<Python>, String> {
        const NAMES: [&str; 7] = [
            "_PyRuntime",
            "PyCode_Type",
            "PyUnicode_Type",
            "PyBytes_Type",
            "Py_Version",
            "Py_NewRef",
            "PyCode_NewWithPosOnlyArgs",
        ];
        let found = libraries::find(pid, |name| name.contains("python"), NAMES);
        let [runtime, code_type, text_type, bytes_type, version, since_10, since_8] = found;
        if [runtime, code_type, text_type, bytes_type].contains(&0) {
            return Ok(None);
        }
        let unknown = || "its Python is of a version or a build that this gputrace does not know".to_owned();
        // The version is a number since 3.11; what 3.8 and 3.9 keep is the same.
        let minor = match (version, since_10, since_8) {
            (0, 0, 0) => None,
            (0, 0, _) => Some(9),
            (0, ..) => Some(10),
            _ => memory.word(version).filter(|version| version >> 24 == 3).map(|version| (version >> 16) as u8),
        };
        let minor = minor.ok_or_else(unknown)?;
        let table = python::of(minor).ok_or_else(unknown)?;
        let published = python::published(table, minor, |place| memory.word(runtime.wrapping_add(8 * place)));
        // From 3.13 on only what the runtime says itself leads to its threads.
        let layout = if minor < 13 { table } else { published.ok_or_else(unknown)? };
        Ok(Some(Python { layout, minor, runtime, code_type, text_type, bytes_type }))
    }

    /// Its threads: the kernel's number, of which `is_one` knows those that there are, and where the state lies.
    pub(super) fn threads(&self, memory: &Memory, is_one: impl Fn(i32) -> bool) -> Vec<(i32, usize)> {
        let mut threads = Vec::new();
        let mut interpreter = field(memory, self.runtime, self.layout.interpreters);
        for _ in 0..MOST_INTERPRETERS {
            let Some(at) = interpreter else { break };
            let mut state = field(memory, at, self.layout.threads);
            for _ in 0..MOST_THREADS {
                let Some(at) = state else { break };
                threads.extend(self.kernel_number(memory, at).filter(|tid| is_one(*tid)).map(|tid| (tid, at)));
                state = field(memory, at, self.layout.next_thread);
            }
            interpreter = field(memory, at, self.layout.next_interpreter);
        }
        threads
    }

    fn kernel_number(&self, memory: &Memory, state: usize) -> Option<i32> {
        if self.layout.native_id != NONE {
            return field(memory, state, self.layout.native_id).and_then(|tid| i32::try_from(tid).ok());
        }
        let pthread = field(memory, state, self.layout.thread_id)?;
        memory.number(pthread.wrapping_add(GLIBC_TID))
    }

    /// The frames of a thread, innermost first.
    pub(super) fn frames(&self, memory: &Memory, state: usize) -> Vec<StackRow> {
        let mut rows = Vec::new();
        for _ in 0..TRIES {
            let innermost = self.innermost(memory, state);
            rows = innermost.map_or_else(Vec::new, |frame| self.walk(memory, frame));
            if self.innermost(memory, state) == innermost {
                break;
            }
        }
        rows
    }

    fn innermost(&self, memory: &Memory, state: usize) -> Option<usize> {
        let frame = field(memory, state, self.layout.frame)?;
        if self.layout.through == NONE { Some(frame) } else { field(memory, frame, self.layout.through) }
    }

    fn walk(&self, memory: &Memory, innermost: usize) -> Vec<StackRow> {
        let (mut rows, mut frame) = (Vec::new(), Some(innermost));
        // Frames that only mark where C called Python are none of the stack's.
        for _ in 0..2 * DEPTH_OF_CALLS {
            let Some(at) = frame else { return rows };
            if rows.len() == DEPTH_OF_CALLS {
                break;
            }
            rows.extend(self.row(memory, at));
            frame = field(memory, at, self.layout.previous);
        }
        if let Some(last) = rows.last_mut() {
            last.cut = true;
        }
        rows
    }

    fn row(&self, memory: &Memory, frame: usize) -> Option<StackRow> {
        let layout = &self.layout;
        let owner = |owner: u16| memory.byte(frame.wrapping_add(owner.into()));
        if layout.owner != NONE && owner(layout.owner)? >= OWNED_BY_INTERPRETER {
            return None;
        }
        let code = field(memory, frame, layout.code)? & !7;
        if field(memory, code, layout.kind)? != self.code_type {
            return None;
        }
        let at = frame.wrapping_add(layout.instruction.into());
        let offset = match layout.unit {
            Instruction::Byte => i64::from(memory.number(at)?),
            Instruction::Pair => i64::from(memory.number(at)?) * 2,
            Instruction::Address => {
                let mut start = code.wrapping_add(layout.bytecode.into());
                if layout.copy != NONE {
                    let copies = field(memory, code, layout.copies)?;
                    let copy = usize::try_from(memory.number(frame.wrapping_add(layout.copy.into()))?).ok()?;
                    // A length, then the copies.
                    if copy >= memory.word(copies)? {
                        return None;
                    }
                    start = memory.word(copies.wrapping_add(8 * (copy + 1)))?;
                }
                memory.word(at)?.wrapping_sub(start) as i64
            }
        };
        Some(self.code(memory, code)?.row(offset.max(0) as u64))
    }

    fn code(&self, memory: &Memory, code: usize) -> Option<Code> {
        let layout = &self.layout;
        let (name_unit, name) = self.text(memory, field(memory, code, layout.name)?)?;
        let (file_unit, file) = self.text(memory, field(memory, code, layout.file)?)?;
        let lines = self.line_table(memory, field(memory, code, layout.lines)?).unwrap_or_default();
        let head = PythonCode {
            minor: self.minor,
            name_unit,
            file_unit,
            name_bytes: name.len() as u16,
            first_line: memory.number(code.wrapping_add(layout.first_line.into()))? as u32,
            lines_bytes: lines.len() as u32,
        };
        Code::read(&[&head.to_bytes()[..], &name, &file].concat(), lines)
    }

    /// Bytes of a character, 0 for ASCII, and the bytes.
    fn text(&self, memory: &Memory, text: usize) -> Option<(u8, Vec<u8>)> {
        let layout = &self.layout;
        if field(memory, text, layout.kind)? != self.text_type {
            return None;
        }
        let length = memory.word(text.wrapping_add(layout.text_length.into()))?;
        // Three bits of bytes per character, then: one block of memory, and ASCII only.
        let bits = memory.number(text.wrapping_add(layout.text_state.into()))? as u32 >> layout.text_shift;
        let (unit, compact, ascii) = (bits & 7, bits >> 3 & 1 == 1, bits >> 4 & 1 == 1);
        if !compact || !matches!(unit, 1 | 2 | 4) {
            return None;
        }
        let data = text.wrapping_add(usize::from(if ascii { layout.text_ascii } else { layout.text_other }));
        let bytes = length.min(MOST_TEXT / unit as usize) * unit as usize;
        Some((if ascii { 0 } else { unit as u8 }, memory.bytes(data, bytes)?))
    }

    fn line_table(&self, memory: &Memory, object: usize) -> Option<Vec<u8>> {
        let layout = &self.layout;
        if field(memory, object, layout.kind)? != self.bytes_type {
            return None;
        }
        let length = memory.word(object.wrapping_add(layout.bytes_length.into()))?;
        if length > MOST_LINES {
            return None;
        }
        memory.bytes(object.wrapping_add(layout.bytes_data.into()), length)
    }
}

/// The word at a field of a structure; none where it is null, or the version has no such field.
fn field(memory: &Memory, at: usize, field: u16) -> Option<usize> {
    if field == NONE { None } else { memory.word(at.wrapping_add(field.into())).filter(|word| *word != 0) }
}
