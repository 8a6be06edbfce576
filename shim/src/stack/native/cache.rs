//! Rules that were found, by address: the second stack through the same calls costs a few nanoseconds a frame.
//!
//! Library code stays where it is until it is unloaded, and another library comes to its place by a dlopen; so entries
//! are scrambled with the number of dlopens. Each entry is two words, of which the first also tells whether they belong
//! together: threads write without a lock.

use core::sync::atomic::{AtomicU64, Ordering};

use super::rules::{Base, Rule};
use crate::stack::python;

const ENTRIES: usize = 4096;
static ENTRIES_OF: [[AtomicU64; 2]; ENTRIES] = [const { [const { AtomicU64::new(0) }; 2] }; ENTRIES];

/// What is known about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Rule(Rule),
    /// Nothing describes the code there.
    Undescribed,
    /// In a way that is not followed.
    Otherwise,
}

fn key(pc: usize) -> u64 {
    pc as u64 ^ u64::from(python::opened()) << 48
}

fn entry(pc: usize) -> Option<&'static [AtomicU64; 2]> {
    ENTRIES_OF.get((pc as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 20 & (ENTRIES - 1))
}

pub(super) fn get(pc: usize) -> Option<Known> {
    let [check, word] = entry(pc)?;
    let word = word.load(Ordering::Relaxed);
    (word != 0 && check.load(Ordering::Relaxed) ^ word == key(pc)).then(|| unpack(word))
}

pub(super) fn put(pc: usize, known: Known) {
    let (Some([check, word]), Some(packed)) = (entry(pc), pack(known)) else { return };
    word.store(packed, Ordering::Relaxed);
    check.store(key(pc) ^ packed, Ordering::Relaxed);
}

/// Two bits of what it is, 24 of the distance to the CFA, 19 each of the two places; the lowest value of these means
/// none. Never zero. None: a distance that is too large.
fn pack(known: Known) -> Option<u64> {
    let rule = match known {
        Known::Rule(rule) => rule,
        Known::Undescribed => return Some(UNDESCRIBED),
        Known::Otherwise => return Some(OTHERWISE),
    };
    let base = match rule.base {
        Base::Stack => STACK,
        Base::Frame => FRAME,
    };
    let place = |place: Option<i32>| match place {
        None => Some(NO_PLACE),
        Some(at) => (-(1 << 18) + 1..1 << 18).contains(&at).then_some(at as u64 & PLACE),
    };
    let cfa = (-(1 << 23)..1 << 23).contains(&rule.cfa).then_some(rule.cfa as u64 & 0xff_ffff)?;
    Some(base | cfa << 2 | place(rule.frame)? << 26 | place(rule.caller)? << 45)
}

const STACK: u64 = 1;
const FRAME: u64 = 2;
const UNDESCRIBED: u64 = 3;
const OTHERWISE: u64 = 3 | 1 << 2;
const PLACE: u64 = 0x7_ffff;
const NO_PLACE: u64 = 1 << 18;

fn unpack(word: u64) -> Known {
    let base = match word & 3 {
        STACK => Base::Stack,
        FRAME => Base::Frame,
        _ if word == UNDESCRIBED => return Known::Undescribed,
        _ => return Known::Otherwise,
    };
    let place = |word: u64| {
        let bits = word & PLACE;
        (bits != NO_PLACE).then_some((bits as i32) << 13 >> 13)
    };
    let cfa = (word >> 2 & 0xff_ffff) as i32;
    Known::Rule(Rule { base, cfa: cfa << 8 >> 8, frame: place(word >> 26), caller: place(word >> 45) })
}
