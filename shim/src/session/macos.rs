//! The segment's way to the collector on macOS, and what else a session needs there.
//!
//! macOS has no memory without a name whose descriptor a message on a socket could carry in one piece
//! (SOCK_SEQPACKET): the segment is a file in the session's folder, at which the collector looks.

use gputrace_abi::hello::Refusal;
use gputrace_abi::layout::note;

use super::{Failure, complain_of, make_file};
use crate::hooks::spawn;
use crate::sys;

/// Whether our hooks work in this process: wherever the loader was told of us.
pub(super) fn is_in_place() -> bool {
    true
}

/// Reads what children are to be given.
pub(super) fn configure() {
    spawn::remember();
}

/// There is a segment now. malloc here has no arenas of glibc's to ask, which the trace says where somebody wanted that.
pub(super) fn started() {
    if sys::variable(b"GPUTRACE_MALLOC_ARENAS").is_some() {
        super::say(note::NO_ARENAS);
    }
}

/// The hooks of exit listen by themselves.
pub(super) fn listen() {}

/// Metal tells when the GPU ran what at no cost that could be shed.
pub(super) fn budget_ppm() -> u32 {
    0
}

/// Whether launches may be left out. Each of Metal's times is to find its own.
pub(super) fn spares_launches() -> bool {
    false
}

/// Whether the processor's counter may be used: that of arm64 is the one behind mach_absolute_time. On x86-64 the
/// kernel alone knows what it does to the counter when the machine wakes up.
pub(super) fn counter_is_good(wanted: Option<&[u8]>) -> bool {
    super::MAY_COUNT && wanted != Some(b"monotonic")
}

/// Makes the segment.
pub(super) fn make(bytes: u64, forked: bool, notes: u32) -> Result<(), Failure> {
    make_file(bytes, forked, notes).map(|_| ())
}

/// Says why there is no segment.
pub(super) fn refuse(why: Refusal) {
    complain_of(why);
}

/// Calls of mmap's family are not hooked here.
pub(super) fn configure_maps() {}
