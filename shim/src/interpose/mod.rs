//! How a line of a list becomes a hook: the exported symbols, the answers to dlsym, dlvsym and cuGetProcAddress, and
//! where originals are found.

#[cfg(target_os = "linux")]
pub(crate) mod copies;
#[cfg(target_os = "linux")]
pub(crate) mod driver;
#[cfg(target_os = "linux")]
pub(crate) mod elf;
#[cfg(target_os = "linux")]
pub(crate) mod inline;
#[cfg(target_os = "linux")]
pub(crate) mod lookup;
#[cfg(target_os = "macos")]
pub(crate) mod macho;
#[cfg(target_os = "linux")]
mod nccl;
#[cfg(target_os = "macos")]
pub(crate) mod objc;
#[cfg(target_os = "macos")]
pub(crate) mod owner;
#[cfg(target_os = "linux")]
pub(crate) mod procaddr;
#[cfg(target_os = "linux")]
pub(crate) mod scope;
#[cfg(target_os = "linux")]
pub(crate) mod slots;
#[cfg(target_os = "linux")]
pub(crate) mod variadic;
#[cfg(target_os = "linux")]
mod versions;
