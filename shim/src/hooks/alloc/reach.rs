//! Whose malloc this program has.

use gputrace_abi::layout::note;

use super::operators;
use crate::interpose::elf;
use crate::{attach, session};

/// Why this program's malloc is not to be recorded, as a bit of [`note`]; 0 when it is.
///
/// A sanitizer's reports name the callers of malloc, and its leak check looks for addresses in our memory too; they
/// alone define the function that is looked for. Where the program itself defines malloc, nobody calls ours.
pub(crate) fn out_of_reach() -> u32 {
    if elf::anywhere(c"__sanitizer_get_heap_size") != 0 {
        note::SANITIZER
    } else if elf::earlier_definition(c"malloc") != 0 {
        note::OWN_MALLOC
    } else {
        0
    }
}

/// Notes in the segment whether another allocator stands between us and libc. What C++ has of it past its malloc is led to us.
pub(crate) fn note_allocator() {
    let malloc = elf::next_definition(c"malloc");
    // Nothing comes after us in a process that was attached to, and its malloc does not come to us.
    if attach::is_attached() || malloc == elf::in_library(c"libc.so.6", c"malloc") {
        return;
    }
    session::say(note::OTHER_MALLOC);
    operators::lead(malloc);
}
