//! Which of the driver's functions are led to the shim's, and the code by which they are: planned and written while the process runs,
//! put in place and taken back while all its threads are stopped.
//!
//! | bytes of a slot | what |
//! |---|---|
//! | 0 to 15 | a jump to the hook: where the jump in the function leads |
//! | 16 to 95 | the function's first instructions and the way back behind them: the hook's original |
//! | 96 | how many bytes of the function these were |
//! | 97 to 127 | those bytes |
//!
//! Slots are never taken away: a thread that is in one, or in a hook, finds its way back whenever it goes on. So a later attach finds
//! everything here again, and what gputrace forgot when it was killed.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use gputrace_abi::patches::{Driver, MOST, Outcome, Patches, why};
use gputrace_patch::{NEAR, Trouble, far_jump, moved, near_jump, start};

use super::image::Image;
use super::memory::Memory;
use super::registers::{Registers, STUB};
use super::threads::Thread;

const SLOT: u64 = 128;
const ORIGINAL: u64 = 16;
const LENGTH: u64 = 96;
/// How far a thread's stack is looked through for what a signal interrupted.
const MOST_STACK: u64 = 1 << 20;
/// Larger functions are no entries of the driver's.
const MOST_FUNCTION: u64 = 1 << 20;

/// A function that is led to its hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    function: u64,
    at: u64,
    /// What its first bytes were.
    before: Vec<u8>,
    /// What stands over the first of them.
    jump: [u8; NEAR],
    /// From their starts in the function to their places in the slot.
    places: Vec<(usize, usize)>,
}

/// All of them, in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Vec<Slot>);

/// What could not be done now, and may be done a moment later.
#[derive(Debug)]
pub(super) enum NotNow {
    /// This thread is in the first instructions of a function.
    Inside(i32),
    Kernel(io::Error),
}

impl From<io::Error> for NotNow {
    fn from(error: io::Error) -> NotNow {
        NotNow::Kernel(error)
    }
}

/// Bytes of code that so many functions need.
pub(super) fn room(driver: &Image) -> u64 {
    (SLOT * (2 + driver.functions().count() as u64)).next_multiple_of(4096)
}

/// Writes the slots of all functions of the driver for which the shim has one of the same name, into memory at `code`; the first slot is the stub of our calls. Returns what the
/// shim is to know of it.
pub(super) fn prepare(memory: &Memory, driver: &Image, shim: &Image, code: Range<u64>) -> io::Result<Box<Patches>> {
    let hooks: HashMap<&str, u64> = shim.functions().map(|hook| (hook.name.as_str(), hook.address)).collect();
    let table = Box::new(Patches::new());
    let mut next = code.start + SLOT;
    for function in driver.functions().filter(|function| function.name.starts_with("cu")) {
        let Some(hook) = hooks.get(function.name.as_str()) else { continue };
        // Two names of one function: the first one's hook gets the calls of both.
        if table.outcome(function.address as usize).is_some() {
            continue;
        }
        let here = next + SLOT <= code.end && table.all().count() < MOST;
        let bytes = memory.bytes(function.address, function.bytes.min(MOST_FUNCTION) as usize)?;
        let made = if here { slot(&bytes, function.address, next, *hook) } else { Err(why::REFUSED) };
        let outcome = match made {
            Ok(bytes) => {
                memory.write(next, &bytes)?;
                next += SLOT;
                Outcome::Patched((next - SLOT + ORIGINAL) as usize)
            }
            Err(why) => Outcome::Left(why),
        };
        table.enter(function.address as usize, outcome);
    }
    let (base, dynamic) = (driver.base as usize, driver.dynamic as usize);
    table.publish(Driver { base, dynamic, namespace: 0, path: 0 });
    Ok(table)
}

/// The stub of our calls, for the first slot.
pub(super) fn stub() -> &'static [u8] {
    STUB
}

fn slot(code: &[u8], function: u64, at: u64, hook: u64) -> Result<Vec<u8>, u8> {
    let length = start(code, function as usize, NEAR).map_err(|trouble| match trouble {
        Trouble::TooShort => why::TOO_SHORT,
        Trouble::UnknownStart => why::UNKNOWN_START,
        Trouble::JumpsBack => why::JUMPS_BACK,
    })?;
    let moved = moved(code, function as usize, length, (at + ORIGINAL) as usize).ok_or(why::UNKNOWN_START)?;
    near_jump(function as usize, at as usize).ok_or(why::REFUSED)?;
    let mut bytes = far_jump(hook as usize);
    bytes.resize(ORIGINAL as usize, 0);
    bytes.extend(&moved.code);
    if bytes.len() > LENGTH as usize || LENGTH as usize + 1 + length > SLOT as usize {
        return Err(why::UNKNOWN_START);
    }
    bytes.resize(LENGTH as usize, 0);
    bytes.push(length as u8);
    bytes.extend(code.get(..length).unwrap_or_default());
    Ok(bytes)
}

impl Slots {
    /// Those that the shim's table names.
    pub(super) fn read(memory: &Memory, table: &Patches) -> io::Result<Slots> {
        let mut all = Vec::new();
        for (function, outcome) in table.all() {
            let Outcome::Patched(original) = outcome else { continue };
            let (function, at) = (function as u64, original as u64 - ORIGINAL);
            let bytes = memory.bytes(at + LENGTH, (SLOT - LENGTH) as usize)?;
            let odd = || io::Error::other("what an earlier attach wrote into it is not there any more");
            let length = usize::from(bytes[0]);
            let before = bytes.get(1..=length).filter(|before| before.len() >= NEAR).ok_or_else(odd)?.to_vec();
            let jump = near_jump(function as usize, at as usize).ok_or_else(odd)?;
            let places = moved(&before, function as usize, length, original).ok_or_else(odd)?.places;
            all.push(Slot { function, at, before, jump, places });
        }
        all.sort_by_key(|slot| slot.function);
        Ok(Slots(all))
    }

    /// How many functions are led to their hooks.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The function of which this address is one of the bytes that move, but for the first.
    fn inside(&self, address: u64) -> Option<&Slot> {
        let after = self.0.partition_point(|slot| slot.function < address);
        let slot = self.0.get(after.checked_sub(1)?)?;
        (slot.function + slot.before.len() as u64 > address).then_some(slot)
    }

    /// Puts the jumps in place. All threads are stopped; one that is between the instructions that a jump replaces goes on with them in the slot.
    /// Returns how many functions are not as they were, and left so.
    pub(super) fn put(&self, memory: &Memory, threads: &[Thread]) -> Result<usize, NotNow> {
        let mut moves = Vec::new();
        for thread in threads {
            let registers = Registers::of(thread.tid)?;
            if let Some(slot) = self.inside(registers.counter()) {
                let start = (registers.counter() - slot.function) as usize;
                let place = slot.places.iter().find(|place| place.0 == start).ok_or(NotNow::Inside(thread.tid))?;
                moves.push((thread.tid, registers, slot.at + ORIGINAL + place.1 as u64));
            }
            // A signal may have interrupted it there, and its handler runs: it goes back by what stands on the stack.
            if self.is_named(memory, registers.stack()) {
                return Err(NotNow::Inside(thread.tid));
            }
        }
        let mut left = 0;
        for slot in &self.0 {
            let now = memory.bytes(slot.function, slot.before.len())?;
            if now == slot.before {
                memory.write(slot.function, &slot.jump)?;
            } else if !now.starts_with(&slot.jump) {
                // Somebody else has patched it, or it is another library by now.
                left += 1;
            }
        }
        for (tid, mut registers, to) in moves {
            registers.go_on_at(to);
            registers.set(tid)?;
        }
        Ok(left)
    }

    /// Whether a word of the stack from here on is an address of a byte that moves.
    fn is_named(&self, memory: &Memory, stack: u64) -> bool {
        const PIECE: u64 = 4096;
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return false };
        let around = first.function..last.function + SLOT;
        let mut at = stack & !7;
        while at < stack + MOST_STACK {
            let end = (at + PIECE) & !(PIECE - 1);
            let Ok(bytes) = memory.bytes(at, (end - at) as usize) else { return false };
            let words = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            if words.filter(|word| around.contains(word)).any(|word| self.inside(word).is_some()) {
                return true;
            }
            at = end;
        }
        false
    }

    /// Takes the jumps back. All threads are stopped. Returns how many functions are not as they were before.
    pub(super) fn take_back(&self, memory: &Memory) -> io::Result<usize> {
        let mut odd = 0;
        for slot in &self.0 {
            // What is not ours (the driver was unloaded, and something else is there) is left alone.
            match memory.bytes(slot.function, slot.before.len()) {
                Ok(now) if now.starts_with(&slot.jump) => memory.write(slot.function, &slot.before[..NEAR])?,
                Ok(now) if now == slot.before => {}
                Ok(_) | Err(_) => odd += 1,
            }
        }
        Ok(odd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where no word of a test's own memory is an address.
    const FAR: u64 = 0x5a5a_1234_0000;

    fn slots() -> Slots {
        let slot = |function: u64, length: usize| Slot {
            function: FAR + function,
            at: FAR + 0x9000,
            before: vec![0x90; length],
            jump: near_jump((FAR + function) as usize, (FAR + 0x9000) as usize).unwrap(),
            places: vec![(0, 0)],
        };
        Slots(vec![slot(0x1000, 5), slot(0x1010, 8), slot(0x2000, 7)])
    }

    #[test]
    fn only_bytes_between_the_first_and_the_last_that_move_are_inside() {
        let slots = slots();
        let inside = |address| slots.inside(FAR + address).map(|slot| slot.function - FAR);
        assert_eq!([0xfff, 0x1000, 0x1005, 0x1010, 0x1018, 0x2007].map(inside), [None; 6]);
        assert_eq!([0x1001, 0x1004, 0x1017, 0x2006].map(inside), [0x1000, 0x1000, 0x1010, 0x2000].map(Some));
    }

    #[test]
    fn a_stack_that_names_such_a_byte_is_found() {
        let memory = Memory::open(std::process::id() as i32).unwrap();
        let slots = slots();
        let mut words = vec![0u64; 4096];
        let at = |words: &[u64]| words.as_ptr() as u64;
        words[3000] = FAR + 0x1000;
        let clear = (0..=3000).all(|from| from % 500 != 0 || !slots.is_named(&memory, at(&words[from..])));
        words[3000] = FAR + 0x1013;
        assert!(clear && slots.is_named(&memory, at(&words)) && slots.is_named(&memory, at(&words[3000..])));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_slot_holds_the_way_to_the_hook_the_original_and_what_was_there() {
        // push %rbp; mov %rsp,%rbp; push %rbx; sub $24,%rsp; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 0x18, 0xc3];
        let bytes = slot(&code, 0x40_0000, 0x41_0000, 0x7000_0000_1000).unwrap();
        assert_eq!((bytes[0], bytes[1], &bytes[16..21]), (0xff, 0x25, &code[..5]));
        assert_eq!((bytes[96], &bytes[97..]), (5, &code[..5]));
        assert_eq!(slot(&code, 0x40_0000, 0x40_0000 + (4 << 30), 0x1000), Err(why::REFUSED));
        assert_eq!(slot(&[0xc3], 0x40_0000, 0x41_0000, 0x1000), Err(why::TOO_SHORT));
    }
}
