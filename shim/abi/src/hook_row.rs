//! A row of the segment's hook table: which function, what it is about, how the program came to it.

use crate::event::Class;
use crate::sync::{AtomicU64, Ordering};

/// Bits of [`HookInfo::flags`], of which there are four.
pub mod hook_flag {
    /// Calls are counted ([`View::counters`](crate::layout::View::counters)) and leave no events.
    pub const COUNTED: u8 = 1;
    /// No hook's row, but more of the name of one: see [`HookRow::write_more`](super::HookRow::write_more).
    pub const MORE: u8 = 2;
}

/// Bytes of a name that a row holds.
pub const NAME_BYTES: usize = 56;

/// One row of the hook table: 56 bytes of name, then class, detail, name length, flags, inline outcome and the routes.
///
/// Metal's selectors are longer. What a name has beyond the 56 stands in rows of their own after those of all hooks, in the
/// order of the names' parts; a reader takes them in until a row is none of these.
#[repr(C)]
pub struct HookRow {
    words: [AtomicU64; 8],
}

/// A hook's row, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookInfo {
    /// Name, zero padded.
    pub name: [u8; NAME_BYTES],
    /// Bytes of the name.
    pub name_bytes: u8,
    /// Number of the [`Class`]; may be one that this version does not know.
    pub class: u8,
    /// One of [`crate::event::detail`].
    pub detail: u8,
    /// Bits of [`hook_flag`].
    pub flags: u8,
    /// What came of inline patching: 0 where there was none, else one of [`why`](crate::patches::why).
    pub inline: u8,
    /// Bits of [`route`]; of a row with [`hook_flag::MORE`] the number of the hook.
    pub routes: u32,
}

/// How the program came to a hook.
pub mod route {
    /// By the exported symbol: linked, or looked up in the global scope.
    pub const EXPORT: u32 = 1;
    /// Answered to dlsym.
    pub const DLSYM: u32 = 2;
    /// Answered to dlvsym.
    pub const DLVSYM: u32 = 4;
    /// Answered by cuGetProcAddress.
    pub const PROC_ADDRESS: u32 = 8;
    /// Put into the table of a client of NVTX.
    pub const INJECTION: u32 = 16;
    /// The function itself was patched, so that every call of it comes to the hook.
    pub const INLINE: u32 = 32;
    /// Every route with its name.
    pub const ALL: [(u32, &str); 6] = [
        (EXPORT, "export"),
        (DLSYM, "dlsym"),
        (DLVSYM, "dlvsym"),
        (PROC_ADDRESS, "procaddr"),
        (INJECTION, "injection"),
        (INLINE, "inline"),
    ];
}

impl HookRow {
    /// Writes the row, with the first 56 bytes of the name (the driver's longest is 53).
    pub fn write(&self, name: &[u8], class: Class, detail: u8, flags: u8) {
        let length = self.put(name);
        let last = class as u64 | u64::from(detail) << 8 | length << 16 | u64::from(flags & 15) << 24;
        self.words[7].store(last, Ordering::Relaxed);
    }

    /// Writes a row with more of the name of hook `of`: its next 56 bytes.
    pub fn write_more(&self, of: u16, part: &[u8]) {
        let length = self.put(part);
        let last = length << 16 | u64::from(hook_flag::MORE) << 24 | u64::from(of) << 32;
        self.words[7].store(last, Ordering::Relaxed);
    }

    /// Puts as much of a text there as there is room for; returns how much that is.
    fn put(&self, text: &[u8]) -> u64 {
        let mut padded = [0; NAME_BYTES];
        for (place, byte) in padded.iter_mut().zip(text) {
            *place = *byte;
        }
        for (word, bytes) in self.words.iter().zip(padded.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        text.len().min(NAME_BYTES) as u64
    }

    /// Notes what came of inline patching, once: one of [`why`](crate::patches::why).
    pub fn set_inline(&self, outcome: u8) {
        self.words[7].fetch_or(u64::from(outcome & 15) << 28, Ordering::Relaxed);
    }

    /// Notes that the program reached the hook by this route.
    #[inline]
    pub fn add_route(&self, route: u32) {
        let bit = u64::from(route) << 32;
        if self.words[7].load(Ordering::Relaxed) & bit == 0 {
            self.words[7].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// A copy of the row.
    pub fn read(&self) -> HookInfo {
        let mut name = [0; NAME_BYTES];
        for (bytes, word) in name.chunks_exact_mut(8).zip(&self.words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let last = self.words[7].load(Ordering::Relaxed);
        HookInfo {
            name,
            class: last as u8,
            detail: (last >> 8) as u8,
            name_bytes: ((last >> 16) as u8).min(NAME_BYTES as u8),
            flags: (last >> 24) as u8 & 15,
            inline: (last >> 28) as u8 & 15,
            routes: (last >> 32) as u32,
        }
    }
}

impl HookInfo {
    /// The name; empty when the bytes are not text.
    pub fn name(&self) -> &str {
        core::str::from_utf8(self.name.get(..usize::from(self.name_bytes)).unwrap_or(&[])).unwrap_or("")
    }
}
