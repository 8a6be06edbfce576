//! Patches of functions as bytes: whether a jump can be written over the start of one, and what the instructions that it replaces are elsewhere.
//!
//! Two write patches: the engine in a process that was started so (`shim/inline`, by a library that moves instructions itself), and
//! `gputrace attach`, into another process's memory. What is asked before is the same. Nothing here touches a process.

mod examine;
mod relocate;

pub use examine::{FAR, NEAR, Trouble, start};
pub use relocate::{Moved, far_jump, is_near_jump, moved, near_jump, near_target};
