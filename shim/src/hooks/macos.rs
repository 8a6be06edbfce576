//! The lists of macOS together: numbers, classes, the segment's hook table.

use gputrace_abi::Class;
use gputrace_abi::layout::View;

use super::{alloc, metal};

/// Number of the first allocation function.
pub(super) const FIRST_OF_ALLOC: u16 = 0;

/// The class of a hook's events.
pub(crate) fn class_of(number: u16) -> Class {
    let function = number.checked_sub(alloc::FIRST).and_then(|n| alloc::LIST.get(usize::from(n)));
    let message = || metal::by_number(number).map_or(Class::Api, |message| message.class);
    function.map_or_else(message, |function| function.class)
}

/// Writes the segment's hook table; returns the number of rows.
pub(crate) fn describe(view: &View) -> u32 {
    for (number, function) in (alloc::FIRST..).zip(&alloc::LIST) {
        if let Some(row) = view.hook(usize::from(number)) {
            row.write(function.name.as_bytes(), function.class, function.detail, 0);
        }
    }
    metal::describe(view);
    u32::from(metal::END)
}
