//! The atomics of the shared memory: `core`'s, or loom's where the ring is model-checked.
//!
//! Nothing else in the crate names an atomic type, so that a model run sees every access.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
