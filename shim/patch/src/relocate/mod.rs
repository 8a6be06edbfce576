//! The instructions that a jump replaces, for another place: what they do there is what they did where they were.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::{far_jump, is_near_jump, moved, near_jump, near_target};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{far_jump, is_near_jump, moved, near_jump, near_target};

/// Instructions at their new place, with the jump back behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The code.
    pub code: Vec<u8>,
    /// Where instructions began, from the function's start, and where they begin now, from the code's. One that became several is missing.
    pub places: Vec<(usize, usize)>,
}
