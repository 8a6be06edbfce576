//! Whether a jump can be written over the start of a function: asked before anything is changed, since a function that
//! is patched wrongly ends the program sooner or later.
//!
//! The engine moves the first instructions elsewhere and puts a jump in their place. That is right only if they all
//! belong to the function, can be moved, and nothing in the function leads into their middle.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::start;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::start;

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The function ends before the jump would.
    TooShort,
    /// Its first instructions cannot be moved, or it holds something that is no instruction.
    UnknownStart,
    /// It jumps back to its first instructions.
    JumpsBack,
}
