//! Sleeping until one of several descriptors has something to say.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub(super) use linux::Watch;
#[cfg(target_os = "macos")]
pub(super) use macos::Watch;
