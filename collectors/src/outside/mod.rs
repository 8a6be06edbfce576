//! What can be seen of a running process without stopping it: what the kernel says of its threads, and its memory.
//!
//! The launcher is an ancestor of what it traces, so Yama's usual rule lets it read; where it may not, who asks is told so.
//! What is read may change meanwhile: nothing here believes it.

#[cfg(all(any(test, fuzzing), target_os = "linux"))]
pub(crate) mod fuzzed;
#[cfg(target_os = "linux")]
mod libraries;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "linux")]
mod native;
#[cfg(target_os = "linux")]
mod python;
#[cfg(target_os = "linux")]
mod syscalls;

use std::collections::BTreeMap;

#[cfg(target_os = "linux")]
pub(crate) use linux::{is_on_processor, is_stopped, look};
#[cfg(target_os = "linux")]
pub use native::Unwinder;

#[cfg(target_os = "macos")]
pub(crate) use macos::{is_on_processor, is_stopped, look};

use crate::tables::StackRow;

/// A process, as it was found.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    /// By the number that the process itself has for a thread.
    pub(crate) threads: BTreeMap<i32, Seen>,
    /// Why frames are missing, where they cannot be read.
    pub(crate) limit: Option<String>,
}

/// A thread, as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its name in the kernel.
    pub(crate) name: String,
    /// What the kernel says of it: state, system call, what it waits for.
    pub(crate) kernel: String,
    /// Its frames, innermost first: Python's, or native ones where it runs none.
    pub(crate) frames: Vec<StackRow>,
}
