//! What the kernel says of traced processes, beside what they say themselves.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub use linux::processes;
#[cfg(target_os = "linux")]
pub(crate) use linux::{executable, mapped, stat_fields, thread_name};
#[cfg(target_os = "macos")]
pub(crate) use macos::{executable, mapped, processes, task, thread_name};
