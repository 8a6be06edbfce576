//! Stacks as they travel through a ring.
//!
//! After the event of a call comes [`KIND_STACK`](crate::event::KIND_STACK) with the stack's key; that of an allocation holds
//! it itself. What the key stands
//! for is written before its first use in a process, as texts of the same rings: a
//! [`STACK`](crate::event::text_kind::STACK), and before that each code object or module that its frames name.
//!
//! Stacks have most of their frames in common, and a frame with all that called it is told once: each has a number of its own, by
//! which the stacks that go on from there name it. What native code does that Python called, from the interpreter to malloc, is mostly the
//! same wherever it is called, so these frames have numbers of their own, as if nobody had called them, and those from Python's outwards are
//! a stack that was told before.
//!
//! The text of a stack is [`Callers`] and the frames that they called, innermost first ([`FRAME_BYTES`] each). Where none follow, the stack is
//! that of the frame that the callers name. What is too much for one text comes in several, the outermost frames first: all but the last are
//! of no stack, and have the key 0. Keys and numbers are hashes that mean nothing outside the process.

/// The address in a return address as it lies on a stack: on aarch64 libraries sign theirs, in the bits above (as most distributions'
/// do, on processors that can: Graviton 3, Grace). No code lies so high.
pub const ADDRESS: u64 = if cfg!(target_arch = "aarch64") { (1 << 48) - 1 } else { u64::MAX };

/// Set in the offset of a frame of Python.
pub const PYTHON: u64 = 1 << 63;
/// Number of a stack's text: there were more frames than were taken, outside of the outermost that it tells of.
pub const CUT: u64 = 1;

/// Most frames of an allocation's stack: imports of Python modules, which allocate at each depth, are some hundred deep. Where all of them
/// are taken two stacks have all that called them in common; where they are cut, nothing.
pub const DEPTH_MAX: usize = 1024;
/// Most frames of a call's, which are kept on the program's own stack meanwhile.
pub const DEPTH_OF_CALLS: usize = 128;

/// What stands before the frames in a stack's text; 0: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    /// Key of the stack that called the outermost of all frames that are told here and behind `inner`: of Python. It has no such key itself.
    pub outer: u64,
    /// Number of the frame that called the outermost of the frames that follow.
    pub inner: u64,
}

/// Bytes of [`Callers`].
pub const CALLERS_BYTES: usize = 16;

impl Callers {
    /// As they stand in the text.
    pub fn to_bytes(self) -> [u8; CALLERS_BYTES] {
        (u128::from(self.outer) | u128::from(self.inner) << 64).to_le_bytes()
    }

    /// The numbers in these bytes.
    pub fn from_bytes(bytes: [u8; CALLERS_BYTES]) -> Callers {
        let both = u128::from_le_bytes(bytes);
        Callers { outer: both as u64, inner: (both >> 64) as u64 }
    }
}

/// One frame, as it stands in a stack's text.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its number: a hash of it and of all frames outside of it; never 0.
    pub number: u64,
    /// Of Python the key of the [`PythonCode`], of native code that of the module; 0 for code in no file.
    pub key: u64,
    /// Of Python the bytes of bytecode before what it executes, with [`PYTHON`]; of native code the address in the module's file,
    /// behind the call.
    pub offset: u64,
}

/// Bytes of a [`Frame`].
pub const FRAME_BYTES: usize = 24;

impl Frame {
    /// As it stands in the text.
    pub fn to_bytes(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip([self.number, self.key, self.offset]) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// The frame in these bytes.
    pub fn from_bytes(bytes: &[u8; FRAME_BYTES]) -> Frame {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or(0);
        Frame { number: next(), key: next(), offset: next() }
    }
}

/// What stands before name and file in the text of a code object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonCode {
    /// The second number of Python's version, which gives the form of the line table.
    pub minor: u8,
    /// Bytes of a character of the name: 1 (Latin-1), 2 or 4; 0 for ASCII.
    pub name_unit: u8,
    /// The same for the file.
    pub file_unit: u8,
    /// Bytes of the name; the rest of the text is the file.
    pub name_bytes: u16,
    /// First line of the function.
    pub first_line: u32,
    /// Bytes of the line table, which came before in texts of their own; [`TOO_LONG`] where it did not.
    pub lines_bytes: u32,
}

/// Stands for the size of a line table that was too long to be written.
pub const TOO_LONG: u32 = u32::MAX;

/// Bytes of a [`PythonCode`].
pub const PYTHON_CODE_BYTES: usize = 16;

impl PythonCode {
    /// As it stands in the text.
    pub fn to_bytes(&self) -> [u8; PYTHON_CODE_BYTES] {
        let head = u64::from(self.minor)
            | u64::from(self.name_unit) << 8
            | u64::from(self.file_unit) << 16
            | u64::from(self.name_bytes) << 32;
        let lines = u64::from(self.first_line) | u64::from(self.lines_bytes) << 32;
        (u128::from(head) | u128::from(lines) << 64).to_le_bytes()
    }

    /// The head in these bytes; none of it is trusted.
    pub fn from_bytes(bytes: [u8; PYTHON_CODE_BYTES]) -> PythonCode {
        let both = u128::from_le_bytes(bytes);
        PythonCode {
            minor: both as u8,
            name_unit: (both >> 8) as u8,
            file_unit: (both >> 16) as u8,
            name_bytes: (both >> 32) as u16,
            first_line: (both >> 64) as u32,
            lines_bytes: (both >> 96) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_a_text_comes_out_of_it() {
        let frame = Frame { number: 7 << 50, key: u64::MAX - 1, offset: 1 << 63 };
        assert_eq!(Frame::from_bytes(&frame.to_bytes()), frame);
        let callers = Callers { outer: 3 << 60, inner: u64::MAX - 5 };
        assert_eq!(Callers::from_bytes(callers.to_bytes()), callers);
        let code = PythonCode {
            minor: 14,
            name_unit: 2,
            file_unit: 4,
            name_bytes: 65_535,
            first_line: u32::MAX,
            lines_bytes: 1 << 31,
        };
        assert_eq!(PythonCode::from_bytes(code.to_bytes()), code);
    }
}
