//! What a traced process and its collector agree on: the events, the layout of the shared segment, and its rings.
//!
//! The traced process (the shim) makes one segment and writes to it; the collector maps the same memory and reads.
//! Either side may die at any instruction, and the collector must assume that the other side wrote anything at all,
//! so every position that it reads is checked here, in [`ring::Cursor`] and [`layout::View`].
//!
//! **Version rule.** [`VERSION`] is bumped whenever anything here changes. A new field where there was none, which a reader that does not know it
//! may pass over, is no more than that. Where the meaning, size or offset of a field changes, [`NEEDS`] becomes that version
//! too: who reads less refuses the segment and says so; nothing is ever reinterpreted. [`READS`] is the oldest version whose
//! segments are still read: what was added since is zero there. So a collector and the processes that it finds may be of different
//! versions, either of them the newer, as long as [`is_readable`]. A new hook, class or text kind at the end of its list is not a
//! change of the layout and needs no bump. The magic, the version, what it needs and the hello keep their places for ever.
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

/// The oldest version whose readers read segments of this one rightly.
pub const NEEDS: u32 = 1;

/// The oldest version whose segments are read here.
pub const READS: u32 = 1;

/// Whether segments of a version that readers from version `needs` on read (0: none but its own) are read here.
pub const fn is_readable(version: u32, needs: u32) -> bool {
    let needs = if needs == 0 { version } else { needs };
    version >= READS && needs <= VERSION
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_oldest_that_is_known_to_the_newest_that_adds_to_it() {
        assert!(is_readable(VERSION, NEEDS) && is_readable(READS, READS));
        assert!(is_readable(VERSION + 6, VERSION), "it has more than is read");
        assert!(!is_readable(VERSION + 6, VERSION + 1) && !is_readable(VERSION + 6, 0), "it means other things");
        assert!(!is_readable(READS - 1, READS - 1), "nobody knows it any more");
    }
}
