//! What a program says about a range or a mark.

use core::ffi::{c_char, c_void};

use gputrace_abi::event::{range, text_kind};

use super::previous;
use super::texts::{self, Text};
use crate::ranges;

/// `nvtxEventAttributes_t`, the same in every version of the interface.
#[repr(C)]
pub(crate) struct Attributes {
    version: u16,
    bytes: u16,
    category: u32,
    color_type: i32,
    color: u32,
    number_type: i32,
    reserved: i32,
    number: u64,
    message_type: i32,
    message: *const c_void,
}

const _: () = assert!(size_of::<Attributes>() == 48);

/// `NVTX_COLOR_ARGB`.
const ARGB: i32 = 1;
/// `NVTX_MESSAGE_TYPE_*`.
mod message {
    pub(super) const NARROW: i32 = 1;
    pub(super) const WIDE: i32 = 2;
    pub(super) const REGISTERED: i32 = 3;
}
/// `NVTX_PAYLOAD_TYPE_*`. Those of extensions point to data with a schema and are not looked at.
mod number {
    pub(super) const U64: i32 = 1;
    pub(super) const I64: i32 = 2;
    pub(super) const F64: i32 = 3;
    pub(super) const U32: i32 = 4;
    pub(super) const I32: i32 = 5;
    pub(super) const F32: i32 = 6;
}

/// A range's name, category, colour and number, as they stand in an event.
#[derive(Clone, Copy, Default)]
pub(super) struct Said {
    /// Key of the name; 0 for none.
    pub(super) name: u64,
    /// Of [`range`].
    pub(super) flags: u16,
    pub(super) number: u64,
    /// Category, and above it the colour.
    pub(super) category: u64,
    /// Recording is switched by ranges of this name.
    pub(super) switches: bool,
}

impl Said {
    /// Only a name.
    #[inline(always)]
    pub(super) fn named(text: impl Text) -> Said {
        Said { name: texts::key(text_kind::RANGE, text), switches: texts::switches(text), ..Said::default() }
    }

    /// All that the attributes say; nothing where they are not there or of another kind.
    #[inline(always)]
    pub(super) fn read(attributes: *const Attributes) -> Said {
        // SAFETY: the program's own argument of a function that takes attributes; their size comes first and is looked
        // at before the rest.
        let Some(said) = (unsafe { attributes.as_ref() }) else { return Said::default() };
        if usize::from(said.bytes) < size_of::<Attributes>() {
            return Said::default();
        }
        let named = match said.message_type {
            message::NARROW => Said::named(said.message.cast::<c_char>()),
            message::WIDE => Said::named(said.message.cast::<u32>()),
            message::REGISTERED => {
                let name = previous::key_of(said.message as usize);
                Said { name, switches: ranges::is_on() && ranges::is_registered(name), ..Said::default() }
            }
            _ => Said::default(),
        };
        let (number, kind) = match said.number_type {
            number::U64 | number::I64 => (said.number, range::INTEGER),
            number::U32 => (u64::from(said.number as u32), range::INTEGER),
            number::I32 => (said.number as i32 as i64 as u64, range::INTEGER),
            number::F64 => (said.number, range::FLOAT),
            number::F32 => (f64::from(f32::from_bits(said.number as u32)).to_bits(), range::FLOAT),
            _ => (0, 0),
        };
        let (color, has_color) = if said.color_type == ARGB { (said.color, range::COLOR) } else { (0, 0) };
        let category = u64::from(said.category) | u64::from(color) << 32;
        Said { flags: kind | has_color, number, category, ..named }
    }
}
