//! Where a library says how a function's frame looks: `.eh_frame_hdr`, a sorted list of functions, and `.eh_frame`,
//! which has a description (FDE) of each and what many have in common (CIE).
//!
//! The format is the Linux Standard Base's, after DWARF. What no linker of today writes is not read: such a function has
//! no description.

use core::ops::Range;

use super::bytes::{Bytes, encoding};

/// What a library says about one function.
pub(super) struct Function {
    /// Its first address.
    pub(super) start: usize,
    /// Instructions that all functions of its kind begin with, and its own.
    pub(super) programs: [Bytes; 2],
    /// Factors of distances in code and on the stack.
    pub(super) code_unit: u64,
    pub(super) data_unit: i64,
    /// The register that stands for the return address.
    pub(super) return_register: u64,
}

/// The description of the function that holds `pc`.
///
/// # Safety
/// `header` is the `.eh_frame_hdr` of a library that stays loaded, in a segment with its `.eh_frame`.
pub(super) unsafe fn function(header: usize, pc: usize) -> Option<Function> {
    // SAFETY: the caller's promise.
    unsafe { find(header, pc) }.map(|(function, _)| function)
}

/// The code of the function that holds `pc`.
///
/// # Safety
/// As for [`function`].
pub(super) unsafe fn extent(header: usize, pc: usize) -> Option<Range<usize>> {
    // SAFETY: the caller's promise.
    let (function, bytes) = unsafe { find(header, pc)? };
    Some(function.start..function.start.checked_add(bytes)?)
}

/// The description of the function that holds `pc`, and its length.
///
/// # Safety
/// `header` is the `.eh_frame_hdr` of a library that stays loaded, in a segment with its `.eh_frame`.
unsafe fn find(header: usize, pc: usize) -> Option<(Function, usize)> {
    // SAFETY: the caller's promise; a header has 12 bytes before its list.
    let mut bytes = unsafe { Bytes::new(header, 12) };
    let [version, pointer, count, table] = bytes.u32()?.to_le_bytes();
    if (version, pointer, count, table) != (1, encoding::POINTER, encoding::COUNT, encoding::TABLE) {
        return None;
    }
    bytes.i32()?;
    let count = bytes.u32()? as usize;
    let list = header + 12;
    let entry = |n: usize| {
        // SAFETY: the list has so many entries of two numbers.
        let mut bytes = unsafe { Bytes::new(list + 8 * n, 8) };
        Some((header.wrapping_add_signed(bytes.i32()? as isize), header.wrapping_add_signed(bytes.i32()? as isize)))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if entry(middle)?.0 <= pc { low = middle + 1 } else { high = middle }
    }
    let (start, description) = entry(low.checked_sub(1)?)?;
    // SAFETY: the list leads to a description.
    let function = unsafe { describe(description)? };
    (function.0.start == start && pc - start < function.1).then_some(function)
}

/// One entry of `.eh_frame`, without its length.
///
/// # Safety
/// An entry stands there.
unsafe fn entry(at: usize) -> Option<Bytes> {
    // SAFETY: the caller's promise.
    let length = unsafe { Bytes::new(at, 4) }.u32()?;
    const EXTENDED: u32 = u32::MAX;
    // SAFETY: an entry has the length that it states.
    (length != 0 && length != EXTENDED).then(|| unsafe { Bytes::new(at + 4, length as usize) })
}

/// The function of a description, and its length in bytes.
///
/// # Safety
/// A description stands there.
unsafe fn describe(at: usize) -> Option<(Function, usize)> {
    // SAFETY: the caller's promise.
    let mut own = unsafe { entry(at)? };
    let here = own.at();
    let back = own.u32()? as usize;
    // SAFETY: a description begins with its distance to what it has in common with others.
    let mut common = unsafe { entry(here.checked_sub(back).filter(|_| back != 0)?)? };
    if common.u32()? != 0 {
        return None;
    }
    let version = common.u8()?;
    let mut letters = [0u8; 8];
    let mut count = 0;
    loop {
        let letter = common.u8()?;
        if letter == 0 {
            break;
        }
        *letters.get_mut(count)? = letter;
        count += 1;
    }
    let code_unit = common.unsigned()?;
    let data_unit = common.signed()?;
    let return_register = if version == 1 { u64::from(common.u8()?) } else { common.unsigned()? };
    let augmented = letters.first() == Some(&b'z');
    if augmented {
        let length = common.unsigned()? as usize;
        let mut data = common.split(length)?;
        for letter in letters.iter().skip(1).take_while(|letter| **letter != 0) {
            match letter {
                b'R' if data.u8()? == encoding::POINTER => {}
                b'R' => return None,
                b'L' => _ = data.u8()?,
                b'P' => {
                    // An encoded address; of four bytes in all code that is position independent.
                    let bytes = match data.u8()? & 0x0f {
                        0x02 | 0x0a => 2,
                        0x03 | 0x0b => 4,
                        0x00 | 0x04 | 0x0c => 8,
                        _ => return None,
                    };
                    data.split(bytes)?;
                }
                b'S' | b'B' => {}
                _ => return None,
            }
        }
    } else if count > 0 {
        return None;
    }
    let place = own.at();
    let start = place.wrapping_add_signed(own.i32()? as isize);
    let length = own.u32()? as usize;
    if augmented {
        let bytes = own.unsigned()? as usize;
        own.split(bytes)?;
    }
    Some((Function { start, programs: [common, own], code_unit, data_unit, return_register }, length))
}
