//! Paths in a buffer, without an allocation.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use super::{FOLDER, FOLDER_BYTES};

/// A path in a buffer, always ended by a zero byte.
pub(super) struct Path {
    text: [u8; 192],
    length: usize,
}

impl Path {
    pub(super) fn empty() -> Path {
        Path { text: [0; 192], length: 0 }
    }

    pub(super) fn folder() -> Path {
        let mut path = Path::empty();
        for i in 0..FOLDER_BYTES.load(Ordering::Relaxed) {
            let word = FOLDER.get(i / 8).map_or(0, |w| w.load(Ordering::Relaxed));
            path.push(&[(word >> (8 * (i % 8))) as u8]);
        }
        path
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.length + 1 < self.text.len()
                && let Some(place) = self.text.get_mut(self.length)
            {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn push_hex(&mut self, number: u64) {
        for nibble in (0..16).rev().map(|place| (number >> (4 * place)) as u8 & 15) {
            self.push(&[if nibble < 10 { b'0' + nibble } else { b'a' - 10 + nibble }]);
        }
    }

    pub(super) fn push_number(&mut self, mut number: u64) {
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
            first = at;
            if number == 0 {
                break;
            }
        }
        self.push(digits.get(first..).unwrap_or(&[]));
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or(&[])
    }

    pub(super) fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or(c"")
    }
}
