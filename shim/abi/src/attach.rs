//! What `gputrace attach` and the shim in a process that it attached to tell each other.
//!
//! The shim is loaded by a dlopen that the process is made to call, and does nothing then. [`ENTRY`] starts it: `gputrace` calls it in one
//! of the process's own threads, with what would stand in the environment of a program that is started with it. Beside that `gputrace`
//! reads and writes the variable [`SYMBOL`] in the process's memory, so that whoever attaches later finds what an earlier one made.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The shim's variable, an [`Attachment`].
pub const SYMBOL: &str = "gputrace_attachment";

/// The shim's function: `u64 gputrace_attach(const char *const *environment, uintptr_t stack, uintptr_t block)`.
///
/// `environment` is ended by a null pointer and stays where it is; the main thread's stack ends at `stack`, and its thread block is at
/// `block` (0: not known). Returns 0, or the address of a C string that says why nothing is recorded. Called again it begins a new account in the
/// segment that is there.
pub const ENTRY: &str = "gputrace_attach";

/// Bytes of the text that [`ENTRY`] may return.
pub const REASON_BYTES: usize = 160;

/// What an attached process holds. Zero where it was not attached to.
#[repr(C)]
pub struct Attachment {
    /// [`crate::VERSION`] of the shim, once it is loaded.
    pub version: AtomicU32,
    /// 1: it was started by [`ENTRY`].
    pub started: AtomicU32,
    /// Memory for code near the driver, made by `gputrace`: its address and bytes.
    pub code: [AtomicU64; 2],
    /// Memory for a stack and for texts, made by `gputrace`: its address and bytes.
    pub data: [AtomicU64; 2],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Attachment>() == 40);
    assert!(offset_of!(Attachment, code) == 8);
    assert!(offset_of!(Attachment, data) == 24);
};

impl Attachment {
    /// That of a shim which was just loaded.
    #[allow(clippy::new_without_default, reason = "it is a variable")]
    pub const fn new() -> Attachment {
        Attachment {
            version: AtomicU32::new(crate::VERSION),
            started: AtomicU32::new(0),
            code: [const { AtomicU64::new(0) }; 2],
            data: [const { AtomicU64::new(0) }; 2],
        }
    }
}
