//! CPython's structures, as the shim reads them inside a process and the collector from outside.

mod layout;
mod published;

pub use layout::{Instruction, Layout, NONE, OWNED_BY_INTERPRETER, of};
pub use published::published;
