//! What a traced process and its collector agree on: the events, the layout of the shared segment, and its rings.
//!
//! The traced process (the shim) makes one segment and writes to it; the collector maps the same memory and reads.
//! Either side may die at any instruction, and the collector must assume that the other side wrote anything at all,
//! so every position that it reads is checked here, in [`ring::Cursor`] and [`layout::View`].
//!
//! **Version rule.** [`VERSION`] is bumped whenever the meaning, size or offset of any field changes. A collector
//! refuses a segment of another version and says so; nothing is ever reinterpreted. A new hook, class or text kind
//! at the end of its list is not a change of the layout and needs no bump.
#![no_std]

#[cfg(any(test, loom))]
extern crate std;

pub mod activity;
pub mod arenas;
pub mod attach;
pub mod brake;
pub mod clock;
pub mod collective;
pub mod device;
pub mod event;
pub mod gpu;
pub mod graph;
pub mod hello;
mod hook_row;
pub mod layout;
pub mod local;
pub mod metal;
pub mod note;
pub mod patches;
pub mod pending;
pub mod pool;
pub mod python;
pub mod ring;
pub mod sample;
pub mod shed;
mod slot;
pub mod stack;
pub mod steps;
pub mod sync;
pub mod text;
pub mod windows;

pub use event::{Class, Event};

/// First eight bytes of every segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gputrace");

/// Version of everything in this crate. See the rule in the crate's documentation.
pub const VERSION: u32 = 1;
