//! How a line of a list becomes a hook: the exported symbols, the answers to dlsym, dlvsym and cuGetProcAddress, and
//! where originals are found.

pub(crate) mod copies;
pub(crate) mod driver;
pub(crate) mod elf;
pub(crate) mod inline;
pub(crate) mod lookup;
mod nccl;
pub(crate) mod procaddr;
pub(crate) mod scope;
pub(crate) mod variadic;
mod versions;
