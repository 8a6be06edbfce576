//! The calling thread's Python frames, read from the interpreter's memory.
//!
//! No call into Python that could take its lock, allocate or run anything: two functions that look and return, then plain
//! reads. They are safe because the frames are the calling thread's own and the thread is inside a C function that the
//! innermost of them called: nobody else changes or frees them, with or without the GIL. The one exception is an
//! interpreter that is being finalised while this thread still runs: it frees the states of other threads. It says so
//! first (`Py_IsInitialized`), and that is asked before each frame.
//!
//! A version that is not in the table, or memory that does not look as the table says, means no Python stack, counted.

mod code;
mod find;
mod layout;
mod published;

use super::memory::{number, word};
use super::{Frames, known, memory};
use find::Python;
use layout::{Instruction, Layout, NONE, OWNED_BY_INTERPRETER};

pub(super) use code::write;
pub(crate) use find::library_opens;
pub(super) use find::{is_known, opened, prepare};

/// What came of looking for Python frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// There are some.
    Found,
    /// This thread runs no Python.
    None,
    /// It may, but of a version or in a form that is not known here.
    Unread,
}

/// Fills in the calling thread's frames, innermost first.
pub(super) fn walk(frames: &mut Frames) -> Looked {
    let python = match find::python() {
        find::Search::Found(python) => python,
        find::Search::None => return Looked::None,
        find::Search::Unknown => return Looked::Unread,
    };
    let thread = python.this_thread();
    if thread == 0 || !python.is_initialized() {
        return Looked::None;
    }
    // SAFETY: the calling thread's state, which the interpreter frees when the thread ends, and when it is finalised
    // itself: see above. Frames and code objects that it leads to are alive while the frames are.
    match unsafe { walk_thread(&python, thread, frames) } {
        _ if frames.count > 0 => Looked::Found,
        Some(()) => Looked::None,
        None => Looked::Unread,
    }
}

/// # Safety
/// `thread` is the state of the calling thread.
unsafe fn walk_thread(python: &Python, thread: usize, frames: &mut Frames) -> Option<()> {
    let layout = &python.layout;
    // SAFETY: the caller's promise, for all reads below.
    unsafe {
        if word(thread + usize::from(layout.thread_id))? != libc::pthread_self() as usize {
            return None;
        }
        let mut frame = word(thread + usize::from(layout.frame))?;
        if layout.through != NONE {
            frame = word(frame + usize::from(layout.through))?;
        }
        while frame != 0 {
            if !python.is_initialized() {
                return None;
            }
            let next = word(frame + usize::from(layout.previous))?;
            if !is_shim(layout, frame) {
                let (code, offset) = position(python, frame)?;
                if let Some(offset) = offset
                    && !frames.push(identity(layout, code)?, offset as u64, code)
                {
                    return Some(());
                }
            }
            frame = next;
        }
    }
    Some(())
}

/// Whether the frame only marks where C called Python.
unsafe fn is_shim(layout: &Layout, frame: usize) -> bool {
    // SAFETY: a frame of the calling thread.
    layout.owner != NONE
        && unsafe { memory::byte(frame + usize::from(layout.owner)) }.is_some_and(|o| o >= OWNED_BY_INTERPRETER)
}

/// The frame's code object, and how many bytes of bytecode lie before what it executes; none where the function has
/// not begun.
unsafe fn position(python: &Python, frame: usize) -> Option<(usize, Option<u32>)> {
    let layout = &python.layout;
    // SAFETY: a frame of the calling thread, and the code object that it holds.
    unsafe {
        let code = word(frame + usize::from(layout.code))? & !7;
        if word(code + usize::from(layout.kind))? != python.code_type {
            return None;
        }
        let at = frame + usize::from(layout.instruction);
        let offset = match layout.unit {
            Instruction::Byte => number(at)?,
            Instruction::Pair => number(at)?.checked_mul(2)?,
            Instruction::Address => {
                let mut start = code + usize::from(layout.bytecode);
                if layout.copy != NONE {
                    let copies = word(code + usize::from(layout.copies))?;
                    let copy = usize::try_from(number(frame + usize::from(layout.copy))?).ok()?;
                    // A length, then the copies.
                    if copy >= word(copies)? {
                        return None;
                    }
                    start = word(copies + 8 * (copy + 1))?;
                }
                let instruction = core::ptr::read_volatile(at as *const usize);
                i32::try_from(instruction.wrapping_sub(start) as isize).ok()?
            }
        };
        // A frame that is just being made stands before the first instruction; what it stands at is no line yet.
        let mut first = 0;
        if layout.first_traceable != NONE {
            first = number(code + usize::from(layout.first_traceable))?.checked_mul(2)?;
        }
        let owner = if layout.owner == NONE { None } else { memory::byte(frame + usize::from(layout.owner)) };
        const GENERATOR: u8 = 1;
        let begun = offset >= 0 && (offset >= first || owner == Some(GENERATOR));
        Some((code, begun.then_some(offset as u32)))
    }
}

/// A number that tells code objects apart, also those that come after another one at its address.
unsafe fn identity(layout: &Layout, code: usize) -> Option<u64> {
    let at = |field: u16| code + usize::from(field);
    // SAFETY: a code object that a frame of the calling thread holds.
    unsafe {
        let lines = word(at(layout.lines))?;
        let words = [code, word(at(layout.name))?, word(at(layout.file))?, lines];
        let mut hash = words.iter().fold(0u64, |h, w| h.wrapping_add(known::mix(*w as u64, h >> 7)));
        hash = known::mix(hash, number(at(layout.first_line))? as u64);
        if layout.version != NONE {
            return Some(known::mix(hash, number(at(layout.version))? as u64));
        }
        // Before 3.12 nothing counts code objects: what its lines look like tells most successors apart.
        hash = known::mix(hash, word(lines + usize::from(layout.bytes_length))? as u64);
        Some(known::mix(hash, word(lines + usize::from(layout.bytes_data))? as u64))
    }
}
