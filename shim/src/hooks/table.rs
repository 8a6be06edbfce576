//! The lists as one table, made when the shim is compiled: a hook by its number, and by its name.

use core::ffi::CStr;

use super::Hook;
use super::cuda;
use crate::names::hash;

const COUNT: usize = cuda::END as usize;
/// Places of the table of names: a power of two, at most half of it used.
const PLACES: usize = 2048;

const _: () = assert!(2 * COUNT <= PLACES);

/// Every driver hook, by number.
static TABLE: [Hook; COUNT] = cuda::all();

/// Numbers + 1 at the place that the hash of the name says, or after it.
static NAMES: [u16; PLACES] = names();

#[allow(clippy::indexing_slicing)] // evaluated at compile time only
const fn names() -> [u16; PLACES] {
    let all = cuda::all();
    let mut places = [0; PLACES];
    let mut number = 0;
    while number < COUNT {
        let mut place = hash(all[number].name.to_bytes()) as usize % PLACES;
        while places[place] != 0 {
            place = (place + 1) % PLACES;
        }
        number += 1;
        places[place] = number as u16;
    }
    places
}

/// The driver hook with this number.
pub(crate) fn by_number(number: u16) -> Option<&'static Hook> {
    TABLE.get(usize::from(number))
}

/// The driver hook with this name.
pub(crate) fn by_name(name: &CStr) -> Option<(&'static Hook, u16)> {
    let first = hash(name.to_bytes()) as usize;
    for probe in 0..PLACES {
        let number = NAMES.get(first.wrapping_add(probe) % PLACES)?.checked_sub(1)?;
        let hook = by_number(number)?;
        if hook.name == name {
            return Some((hook, number));
        }
    }
    None
}

/// Every driver hook with its number.
pub(crate) fn driver() -> impl DoubleEndedIterator<Item = (&'static Hook, u16)> {
    TABLE.iter().enumerate().map(|(number, hook)| (hook, number as u16))
}
