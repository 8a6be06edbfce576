//! Events of Metal's objects: what their payload words hold beyond [`crate::Class`].
//!
//! Objects are told apart by address and time: an address is used again when its object is gone. The collector puts
//! encoders, pipelines and command buffers together; the shim remembers none of them.
//!
//! | class, detail | 0 | 1 | 2 | 3 |
//! |---|---|---|---|---|
//! | Encode [`ENCODER`](crate::event::detail::ENCODER) | new encoder | command buffer | 0 | kind, see [`encoder`] |
//! | Encode [`PIPELINE`](crate::event::detail::PIPELINE) | encoder | 0 | pipeline, whose name a text of kind FUNCTION tells | 0 |
//! | Encode [`THREADS`](crate::event::detail::THREADS) | encoder | 0 | threads in all ([`crate::event::pack_grid`]) | threads of a group ([`crate::event::pack_block`]) |
//! | Encode [`GROUPS`](crate::event::detail::GROUPS) | encoder | 0 | groups, the same | the same |
//! | Encode [`INDIRECT`](crate::event::detail::INDIRECT) | encoder | 0 | 0: they stand in a buffer | the same |
//! | Encode [`COMMANDS`](crate::event::detail::COMMANDS) | encoder | 0 | commands of an indirect command buffer; 1 where their number stands in memory | 0 |
//! | Encode [`END_ENCODER`](crate::event::detail::END_ENCODER) | encoder | 0 | 0 | 0 |
//! | Encode [`COMMITTED`](crate::event::detail::COMMITTED) | 0 | command buffer of Metal 4's | number of its commit | 0 |
//! | Commit | command buffer, or number of the commit with [`FLAG_NUMBERED`] | queue; 0: that of the [`ROOM`](crate::event::detail::ROOM) that returned the command buffer | key of the queue's label, where word 1 has the queue; 0: none, or none that is new | command buffers; [`AGAIN`] |
//! | Sync STREAM, [`SCHEDULE`](crate::event::detail::SCHEDULE) | command buffer | queue | 0 | 0 |
//! | Sync [`ROOM`](crate::event::detail::ROOM) | new command buffer | queue | 0 | 0 |
//! | Sync EVENT | shared event | 0 | value | milliseconds at most |
//! | Sync STREAM_WAIT | event | queue | value | command buffer |
//! | Transfer | destination | encoder | source, or value of a set | bytes, or [`levels`] of the source |
//! | Transfer COPY, by the host | destination | [`HOST_IS_SOURCE`], or another number: it is the destination | source | bytes |
//! | Alloc | buffer, heap or texture | 0 | options ([`storage`]), or address of the program's own memory | bytes |
//! | Free | buffer, heap or texture | 0 | 0 | 0 |
//!
//! A message `setLabel:` (class Api) has the object in word 0 and the key of its label (a text of kind LABEL; 0 none) in word 2; [`BEHIND`]:
//! it is the text right before it in the ring, which has the same key and the time of the event's end. (Where they could not be written side
//! by side the text has that key and the event its own.) A message `newCommandQueue...` (class Api) has the queue in word 0, the key of its label in word 2, and how many command buffers
//! of it may be uncompleted in word 3. A buffer or texture that ends and was not seen to begin was one of a heap's, or a view.
//!
//! A message that answers nil or NO has the result 1.
//!
//! An event's context is the number of its device, as [`crate::event::KIND_CONTEXT`] tells it.
//! [`crate::event::KIND_GPU_TIMES`] tells when the GPU ran a command buffer.

pub mod levels;
pub mod pixels;

/// In the place of a label's key: the text and the event behind it belong together. A long label is cheaper written than looked up.
pub const BEHIND: u64 = u64::MAX;

/// Commit: word 0 is no object but a number of its own (Metal 4, where feedback names no command buffer).
pub const FLAG_NUMBERED: u16 = 1 << 8;

/// Commit, word 3: the command buffer had been committed already, and its queue takes no work of it anew.
pub const AGAIN: u64 = 0;

/// What [`crate::event::KIND_GPU_TIMES`] says of scheduling of which nothing is known.
pub const UNSCHEDULED: u64 = u64::MAX;

/// Why objects of a class are not seen in full, in the key of a text [`METAL_CLASS`](crate::event::text_kind::METAL_CLASS).
pub mod unseen {
    /// As many classes of its kind are hooked as can be. The text: kind, a space, class.
    pub const FULL: u64 = 1;
    /// It lacks what its kind has. The text: the same.
    pub const LACKS: u64 = 2;
    /// A method of it has another signature than known, and is left alone. The text: class, a space, selector.
    pub const SIGNATURE: u64 = 3;
    /// No message returned an object of it before one was committed or waited for. The text: as for [`FULL`].
    pub const LATE: u64 = 4;
}

/// Transfer COPY, word 1: the source is the host's memory, and the destination a texture.
pub const HOST_IS_SOURCE: u64 = 1;

/// What an encoder encodes.
pub mod encoder {
    /// Kernels.
    pub const COMPUTE: u64 = 1;
    /// Copies and sets.
    pub const BLIT: u64 = 2;
    /// Draws.
    pub const RENDER: u64 = 3;
    /// Anything else: acceleration structures, sparse resources.
    pub const OTHER: u64 = 4;
}

/// Storage modes of Metal's resource options.
pub mod storage {
    /// The host and the GPU have the same memory.
    pub const SHARED: u64 = 0;
    /// Each has a copy, which the program keeps alike.
    pub const MANAGED: u64 = 1;
    /// Only the GPU has it.
    pub const PRIVATE: u64 = 2;
    /// The GPU's tiles have it.
    pub const MEMORYLESS: u64 = 3;

    /// The mode that stands in resource options.
    pub const fn mode(options: u64) -> u64 {
        options >> 4 & 0xf
    }
}

/// How a command buffer ended, in `result` of [`crate::event::KIND_GPU_TIMES`]: numbers of MTLCommandBufferStatus.
pub mod status {
    /// All of it ran.
    pub const COMPLETED: u16 = 4;
    /// The GPU gave it up.
    pub const ERROR: u16 = 5;
}
