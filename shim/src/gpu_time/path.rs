//! A path in a fixed place, ended by a zero byte.

use core::ffi::CStr;

const BYTES: usize = 1024;

/// What does not fit makes it empty.
#[derive(Clone, Copy)]
pub(super) struct Path {
    bytes: [u8; BYTES],
    length: usize,
    full: bool,
}

impl Path {
    pub(super) const fn new() -> Path {
        Path { bytes: [0; BYTES], length: 0, full: false }
    }

    pub(super) fn push(&mut self, more: &[u8]) {
        // A byte stays for the zero at the end.
        match self.bytes.get_mut(self.length..BYTES - 1).and_then(|rest| rest.get_mut(..more.len())) {
            Some(place) => {
                place.iter_mut().zip(more).for_each(|(place, byte)| *place = *byte);
                self.length += more.len();
            }
            None => self.full = true,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        if self.full { b"" } else { self.bytes.get(..self.length).unwrap_or(b"") }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    pub(super) fn c_str(&self) -> &CStr {
        if self.full { c"" } else { CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"") }
    }

    /// The folder of the file at this path, without a slash at its end.
    pub(super) fn folder(&self) -> Path {
        let end = self.bytes().iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let mut folder = Path::new();
        folder.push(self.bytes().get(..end).unwrap_or(b""));
        folder
    }
}
