//! Whether a jump can be written over the start of a function: asked before anything is changed, since a function that
//! is patched wrongly ends the program sooner or later.
//!
//! The first instructions move elsewhere, and a jump stands in their place. That is right only if they all
//! belong to the function, can be moved, and nothing in the function leads into their middle.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::{FAR, NEAR, start};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{FAR, NEAR, start};

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The function ends before the jump would.
    TooShort,
    /// Its first instructions cannot be moved, or it holds something that is no instruction.
    UnknownStart,
    /// It jumps back to its first instructions.
    JumpsBack,
}
