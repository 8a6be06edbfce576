//! The calling thread's Python frames, read from the interpreter's memory.
//!
//! No call into Python that could take its lock, allocate or run anything: two functions that look and return, then plain
//! reads. They are safe because the frames are the calling thread's own and the thread is inside a C function that the
//! innermost of them called: nobody else changes or frees them, with or without the GIL. The one exception is an
//! interpreter that is being finalised while this thread still runs: it frees the states of other threads. It says so
//! first (`Py_IsInitialized`), and that is asked before each frame.
//!
//! A version that is not in the table, or memory that does not look as the table says, means no Python stack, counted.

use core::ops::Range;

mod code;
mod find;

use super::frames::{Frames, Sink};
use super::memory::{number, word};
use super::{known, memory, native};
use find::Python;
use gputrace_abi::python::{Instruction, Layout, NONE, OWNED_BY_INTERPRETER};
use gputrace_abi::stack::DEPTH_MAX;

pub(super) use code::write;
pub(crate) use find::library_opens;
pub(super) use find::{begin, is_known, opened, prepare};

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

/// Tells the calling thread's frames, innermost first.
pub(super) fn walk<const MOST: usize>(frames: &mut Frames<MOST>) -> Looked {
    let python = match find::python() {
        find::Search::Found(python) => python,
        find::Search::None => return Looked::None,
        find::Search::Unknown => return Looked::Unread,
    };
    let mut walk = match Activations::of(python) {
        Begun::Nothing => return Looked::None,
        Begun::Unread => return Looked::Unread,
        Begun::At(walk) => walk,
    };
    // Where groups end is of no use here, and is not looked for.
    while !walk.is_over() && walk.tell(frames) {}
    match walk.unread {
        _ if frames.key.count > 0 => Looked::Found,
        false => Looked::None,
        true => Looked::Unread,
    }
}

/// The calling thread's Python frames, in groups: the functions that one call of the interpreter's evaluation runs, which calls
/// itself only where C stands between two functions (before 3.11: for each function).
pub(super) struct Activations {
    python: &'static Python,
    frame: usize,
    /// Where the mark of the group's end stands on C's stack; 0: nowhere.
    mark: usize,
    unread: bool,
}

enum Begun {
    At(Activations),
    Nothing,
    Unread,
}

impl Activations {
    /// Those of an interpreter that was found before; none where there is none, or the thread runs no Python.
    pub(super) fn of_this_thread() -> Option<Activations> {
        if !find::is_known() {
            return None;
        }
        let find::Search::Found(python) = find::python() else { return None };
        match Activations::of(python) {
            Begun::At(mut walk) => {
                walk.mark = walk.find_mark();
                Some(walk)
            }
            _ => None,
        }
    }

    fn of(python: &'static Python) -> Begun {
        let thread = python.this_thread();
        if thread == 0 || !python.is_initialized() {
            return Begun::Nothing;
        }
        // SAFETY: the calling thread's state, which the interpreter frees when the thread ends, and when it is finalised
        // itself: see above.
        match unsafe { innermost(&python.layout, thread) } {
            Some(0) => Begun::Nothing,
            Some(frame) => Begun::At(Activations { python, frame, mark: 0, unread: false }),
            None => Begun::Unread,
        }
    }

    /// No frame is left.
    pub(super) fn is_over(&self) -> bool {
        self.frame == 0
    }

    /// Whether this frame of C's runs the next group.
    pub(super) fn runs(&self, pc: usize, extent: &Range<usize>) -> bool {
        self.frame != 0 && (extent.contains(&self.mark) || self.mark == 0 && self.python.evaluation.contains(&pc))
    }

    /// Whether this is the interpreter's own code, between functions of Python.
    pub(super) fn is_between(&self, pc: usize) -> bool {
        self.frame != 0 && self.python.code.contains(&pc)
    }

    /// Tells the next group's frames, and finds where the one after it ends. False: no more are taken.
    pub(super) fn next(&mut self, sink: &mut impl Sink) -> bool {
        let room = self.tell(sink);
        self.mark = self.find_mark();
        room
    }

    /// Tells the next group's frames; without a mark, those up to the next frame that could be one. False: no more are taken.
    fn tell(&mut self, sink: &mut impl Sink) -> bool {
        // SAFETY: frames of the calling thread, and what they hold: alive while the frames are.
        unsafe { self.group(sink) }.unwrap_or_else(|| {
            (self.frame, self.unread) = (0, true);
            true
        })
    }

    /// # Safety
    /// `frame` is one of the calling thread's.
    unsafe fn group(&mut self, sink: &mut impl Sink) -> Option<bool> {
        let layout = &self.python.layout;
        while self.frame != 0 {
            if !self.python.is_initialized() {
                return None;
            }
            let frame = self.frame;
            // SAFETY: the caller's promise.
            unsafe {
                self.frame = word(frame + usize::from(layout.previous))?;
                let mark = is_shim(layout, frame);
                if !mark {
                    let (code, offset) = position(self.python, frame)?;
                    if let Some(offset) = offset
                        && !sink.python(identity(layout, code)?, offset as u64, code)
                    {
                        return Some(false);
                    }
                }
                // Where the mark is not known, any will do.
                if frame == self.mark || self.mark == 0 && (mark || is_entry(layout, frame)) {
                    return Some(true);
                }
            }
        }
        Some(true)
    }

    /// Where the next group's mark stands: since 3.12 it is a variable of the function that runs the group, on C's stack. Other
    /// frames that no function owns are no marks.
    fn find_mark(&self) -> usize {
        let layout = &self.python.layout;
        if layout.owner == NONE || layout.entry != NONE {
            return 0;
        }
        let here = 0u8;
        let mut frame = self.frame;
        for _ in 0..MOST_IN_GROUP {
            // SAFETY: frames of the calling thread.
            if frame != 0 && unsafe { is_shim(layout, frame) } && native::reaches(&raw const here as usize, frame) {
                return frame;
            }
            // SAFETY: as above; a null pointer is no frame.
            frame = match unsafe { word(frame + usize::from(layout.previous)) } {
                Some(frame) if frame != 0 => frame,
                _ => break,
            };
        }
        0
    }
}

/// A hash of the calling thread's frames, of an interpreter that was found before; none where the thread runs no Python, or none
/// that can be read.
pub(super) fn hash() -> Option<u64> {
    if !find::is_known() {
        return None;
    }
    let find::Search::Found(python) = find::python() else { return None };
    let Begun::At(Activations { mut frame, .. }) = Activations::of(python) else { return None };
    let layout = &python.layout;
    let mut hash = 0;
    for _ in 0..DEPTH_MAX {
        if frame == 0 || !python.is_initialized() {
            break;
        }
        // SAFETY: frames of the calling thread, and what they hold: alive while the frames are.
        unsafe {
            let Some(next) = word(frame + usize::from(layout.previous)) else { break };
            if is_shim(layout, frame) {
                hash = known::mix(hash, 1);
            } else {
                let Some((code, offset)) = position(python, frame) else { break };
                let version = match layout.version {
                    NONE => identity(layout, code),
                    version => number(code + usize::from(version)).map(|version| version as u64),
                };
                let Some(version) = version else { break };
                // What does not wait for the frame before is no part of the chain.
                let own = known::mix(code as u64 ^ version.rotate_left(32), offset.map_or(u64::MAX, u64::from));
                hash = known::mix(hash, own);
            }
            frame = next;
        }
    }
    Some(hash)
}

/// Longer groups are looked for by the code that runs them.
const MOST_IN_GROUP: usize = 10_000;

/// The thread's innermost frame; 0 where it has none.
///
/// # Safety
/// `thread` is the state of the calling thread.
unsafe fn innermost(layout: &Layout, thread: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    unsafe {
        if word(thread + usize::from(layout.thread_id))? != libc::pthread_self() as usize {
            return None;
        }
        let frame = word(thread + usize::from(layout.frame))?;
        if layout.through == NONE { Some(frame) } else { word(frame + usize::from(layout.through)) }
    }
}

/// Whether C called the function of this frame, as far as the frame itself says (3.11); before each was called so.
unsafe fn is_entry(layout: &Layout, frame: usize) -> bool {
    match layout.entry {
        NONE => layout.owner == NONE,
        // SAFETY: a frame of the calling thread.
        entry => unsafe { memory::byte(frame + usize::from(entry)) }.is_none_or(|entry| entry != 0),
    }
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
        let (name, file) = (word(at(layout.name))?, word(at(layout.file))?);
        let first_line = number(at(layout.first_line))? as usize;
        let [which, more] = if layout.version != NONE {
            [number(at(layout.version))? as usize, 0]
        } else {
            // Before 3.12 nothing counts code objects: what its lines look like tells most successors apart.
            [word(lines + usize::from(layout.bytes_length))?, word(lines + usize::from(layout.bytes_data))?]
        };
        Some(folded([code, name, file, lines, first_line, which, more]))
    }
}

/// A hash of words, each multiplied by a number of its own: the products do not wait for each other.
fn folded(words: [usize; 7]) -> u64 {
    const BY: [u64; 7] = [
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0xd6e8_feb8_6659_fd93,
        0xa076_1d64_78bd_642f,
        0xe703_7ed1_a0b4_28db,
        0x8ebc_6af0_9c88_c6e3,
    ];
    let sum = words.iter().zip(BY).fold(0u64, |sum, (word, by)| sum.wrapping_add((*word as u64).wrapping_mul(by)));
    // The lowest bits of a sum of products depend on the lowest bits of the words alone.
    sum ^ sum >> 32
}
