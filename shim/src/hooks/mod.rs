//! The lists: one line per hooked function, one file per theme. Everything else derives from them.
//!
//! A line names its function (and the variants that share its signature), its arguments with the driver's own types,
//! and what goes into the event's four payload words ([`gputrace_abi::Class`] says what they mean). The macro
//! ([`line`]) makes the exported symbol, the wrapper, the row for dlsym and cuGetProcAddress and the row of the
//! segment's hook table. A function that only questions something, or sets a word, is *counted*: two reads of the clock
//! would take longer than it does.

pub(crate) mod alloc;
#[cfg(target_os = "linux")]
pub(crate) mod cuda;
#[cfg(target_os = "linux")]
pub(crate) mod cupti;
#[cfg(target_os = "macos")]
mod kept;
#[cfg(target_os = "linux")]
mod line;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
pub(crate) mod metal;
#[cfg(target_os = "linux")]
pub(crate) mod nccl;
#[cfg(target_os = "linux")]
pub(crate) mod nvtx;
#[cfg(target_os = "linux")]
pub(crate) mod os;
#[cfg(target_os = "macos")]
pub(crate) mod spawn;
#[cfg(target_os = "linux")]
mod table;

use core::ffi::CStr;

use gputrace_abi::Class;
use gputrace_abi::event::memory_flags;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "macos")]
pub(crate) use macos::*;

/// One hooked function.
#[derive(Clone, Copy)]
pub(crate) struct Hook {
    /// The exported name.
    pub(crate) name: &'static CStr,
    /// What it is about.
    pub(crate) class: Class,
    /// One of [`gputrace_abi::event::detail`].
    pub(crate) detail: u8,
    /// Stream 0 means the thread's own stream.
    pub(crate) per_thread: bool,
    /// Flags of each of its events: the kinds of memory of a copy; that a commit is told by its number.
    pub(crate) flags: u16,
    /// Its calls are counted and leave no events.
    pub(crate) counted: bool,
    /// Our function.
    pub(crate) wrapper: *const (),
}

// SAFETY: the only pointer is the address of a function.
unsafe impl Sync for Hook {}

impl Hook {
    pub(crate) const fn new(name: &'static CStr, class: Class, detail: u8, counted: bool, wrapper: *const ()) -> Hook {
        let per_thread = find(name, b"_ptsz") || find(name, b"_ptds");
        let flags = match class {
            Class::Transfer => memory_kinds(name),
            Class::Commit if find(name, b"[MTL4") => gputrace_abi::metal::FLAG_NUMBERED,
            _ => 0,
        };
        Hook { name, class, detail, per_thread, flags, counted, wrapper }
    }
}

/// The kinds of memory that a copy's or set's name states.
#[allow(clippy::indexing_slicing)] // evaluated at compile time only
const fn memory_kinds(name: &CStr) -> u16 {
    use gputrace_abi::event::MemoryKind::{Array, Device, Host, Unknown};
    let kinds = [(b'H', Host), (b'D', Device), (b'A', Array)];
    let (mut i, mut j) = (0, 0);
    while i < 9 {
        let ((from, source), (to, destination)) = (kinds[i / 3], kinds[j]);
        if find(name, &[from, b't', b'o', to]) {
            return memory_flags(source, destination);
        }
        i += 1;
        j = i % 3;
    }
    if find(name, b"Memset") {
        return memory_flags(Unknown, Device);
    }
    if find(name, b"MemcpyPeer") { memory_flags(Device, Device) } else { 0 }
}

/// Whether the part stands in the name.
#[allow(clippy::indexing_slicing)] // evaluated at compile time only
const fn find(name: &CStr, part: &[u8]) -> bool {
    let name = name.to_bytes();
    let mut at = 0;
    while at + part.len() <= name.len() {
        let mut i = 0;
        while i < part.len() && name[at + i] == part[i] {
            i += 1;
        }
        if i == part.len() {
            return true;
        }
        at += 1;
    }
    false
}
