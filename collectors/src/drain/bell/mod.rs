//! How the launcher's thread wakes the drain: a descriptor at which the drain sleeps.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub(crate) use linux::Bell;
#[cfg(target_os = "macos")]
pub(crate) use macos::Bell;
