//! The calling thread's native frames: who called the hook, and who called that.
//!
//! Each library describes how its functions' frames look, for exceptions; following that works in code without frame
//! pointers, as most is. The first frames are our own and are left out. Code that nothing describes (made at run time) is
//! passed by its frame pointer, if that leads back into a library.
//!
//! Every read lies between the stack pointer and the end of the thread's stack. Where that end is not known (a stack that
//! the program made itself) only the hook's caller is taken: its return address stands in our own frame.

mod bounds;
mod bytes;
mod cache;
mod find;
pub(super) mod remembered;
mod rules;
mod table;

use core::ops::Range;

use gputrace_abi::stack::{ADDRESS, DEPTH_MAX};

use super::memory::word;
use crate::thread::State;
use cache::Known;
use rules::{Base, Rule};

pub(crate) use bounds::{remember_main_stack, told_main_stack};
pub(super) use find::{is_lock_free, prepare};

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    pc: usize,
    stack: usize,
    frame: usize,
}

/// Tells the calling thread's frames, innermost first, until `each` says that it is enough: the address behind its call, and
/// from where to where the frame lies on the stack.
#[inline(always)]
pub(super) fn walk(mut each: impl FnMut(usize, Range<usize>) -> bool) {
    let mut place = here();
    let end = bounds::end_of_stack(place.stack);
    let limit = end.unwrap_or(place.stack + OWN_BYTES);
    let ours = find::ours();
    let mut inside = true;
    for _ in 0..FRAMES_MAX {
        let next = step(place, limit).map(|step| step.next);
        inside = inside && ours.contains(&place.pc);
        if !inside {
            let extent = place.stack..next.map_or(limit, |next| next.stack);
            if !each(place.pc, extent) || end.is_none() {
                return;
            }
        }
        let Some(next) = next else { return };
        place = next;
    }
}

/// Interpreters have several for each of the frames of Python that are taken in their place.
const FRAMES_MAX: usize = 4 * DEPTH_MAX;
/// No frame of ours is larger.
const OWN_BYTES: usize = 16 << 10;

/// Whether a call that may be made anywhere can have its stack taken: on a stack with room, and without a lock.
pub(super) fn is_on_own_stack() -> bool {
    let here = 0u8;
    bounds::is_own_stack(&raw const here as usize)
}

/// Whether an address surely lies on the thread's own stack.
pub(super) fn is_own(there: usize) -> bool {
    bounds::is_own_stack(there)
}

/// Whether the word at `there` lies above `here` on the thread's own stack.
pub(super) fn reaches(here: usize, there: usize) -> bool {
    bounds::is_own_stack(here) && bounds::end_of_stack(here).is_some_and(|end| (here..end).contains(&there))
}

/// Whether the word at `mark` lies in a frame of ours that stands above the innermost ones, which are ours too; None: frames cannot be
/// followed up to there.
#[inline(never)]
pub(super) fn is_in_frame_of_ours(mark: usize) -> Option<bool> {
    let ours = find::ours();
    let mut found = None;
    walk(|pc, extent| {
        // What nothing describes is passed by a guess, and behind the kernel's code for handlers a frame is left out: the one that was
        // interrupted.
        let sure = matches!(cache::get(pc - 1), Some(Known::Rule(_)))
            && find::object(pc - 1).is_some_and(|object| !object.is_kernels());
        if sure && extent.contains(&mark) {
            found = Some(ours.contains(&pc));
        }
        sure && extent.end <= mark
    });
    found
}

/// A place inside of the function that this is inlined into.
#[inline(always)]
fn here() -> Place {
    let (pc, stack, frame): (usize, usize, usize);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads registers.
    unsafe {
        core::arch::asm!(
            "lea {pc}, [rip]", "mov {stack}, rsp", "mov {frame}, rbp",
            pc = out(reg) pc, stack = out(reg) stack, frame = out(reg) frame, options(nomem, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads registers.
    unsafe {
        core::arch::asm!(
            "adr {pc}, .", "mov {stack}, sp", "mov {frame}, x29",
            pc = out(reg) pc, stack = out(reg) stack, frame = out(reg) frame, options(nomem, nostack, preserves_flags),
        );
    }
    Place { pc, stack, frame }
}

/// The way from a frame to its caller's.
struct Step {
    next: Place,
    /// Where the caller's address and frame pointer were read; 0: the frame pointer was not.
    caller_at: usize,
    frame_at: usize,
}

/// The address in a return address ([`ADDRESS`]).
#[inline(always)]
fn address(word: usize) -> usize {
    word & ADDRESS as usize
}

/// The frame that called this one. `end`: where the stack ends.
#[inline(always)]
fn step(place: Place, end: usize) -> Option<Step> {
    // A return address may stand behind the last instruction of a function that does not return: the call is before.
    let pc = place.pc - 1;
    let known = cache::get(pc).unwrap_or_else(|| learn(pc));
    let read = |at: usize| {
        // SAFETY: between the stack pointer and the end of the stack everything is mapped.
        (place.stack..end).contains(&at).then(|| unsafe { word(at) }).flatten()
    };
    let step = match known {
        Known::Rule(Rule { base, cfa, frame, caller }) => {
            let base = match base {
                Base::Stack => place.stack,
                Base::Frame => place.frame,
            };
            let cfa = base.checked_add_signed(cfa as isize)?;
            let at = |offset: i32| cfa.wrapping_add_signed(offset as isize);
            let (frame, frame_at) = match frame {
                Some(offset) => (read(at(offset))?, at(offset)),
                None => (place.frame, 0),
            };
            let caller_at = at(caller?);
            Step { next: Place { pc: address(read(caller_at)?), stack: cfa, frame }, caller_at, frame_at }
        }
        Known::Otherwise => return None,
        Known::Undescribed => {
            let caller_at = place.frame.checked_add(8)?;
            let pc = read(caller_at).map(address).filter(|pc| *pc > 1 && find::object(pc - 1).is_some())?;
            let next = Place { pc, stack: place.frame + 16, frame: read(place.frame)? };
            Step { next, caller_at, frame_at: place.frame }
        }
    };
    let Place { pc, stack, .. } = step.next;
    (stack > place.stack && stack <= end && pc > 1).then_some(step)
}

#[cold]
#[inline(never)]
fn learn(pc: usize) -> Known {
    let known = look_up(pc);
    cache::put(pc, known);
    known
}

fn look_up(pc: usize) -> Known {
    let Some(object) = find::object(pc).filter(|object| object.tables != 0) else { return Known::Undescribed };
    // SAFETY: the library is loaded: code of it is being executed.
    let Some(function) = (unsafe { table::function(object.tables, pc) }) else { return Known::Undescribed };
    rules::rule(&function, pc).map_or(Known::Otherwise, Known::Rule)
}

/// The code of the function that begins at this address, as far as it is described in one piece; empty where it is not.
pub(super) fn extent(function: usize) -> Range<usize> {
    let object = find::object(function).filter(|object| object.tables != 0);
    // SAFETY: the library is loaded; who asks found the function in it.
    let extent = object.and_then(|object| unsafe { table::extent(object.tables, function) });
    extent.unwrap_or(0..0)
}

/// Where the library lies that has this address; empty where none does.
pub(super) fn library(address: usize) -> Range<usize> {
    find::object(address).map_or(0..0, |object| object.range())
}

/// What a frame's address means outside of this process: its library's key, and the address in that library's file.
/// None: there was no room to describe the library, once under this number. Code in no library has the key 0.
pub(super) fn resolve(state: &State, pc: u64, since: u64) -> Option<(u64, u64)> {
    match find::object(pc as usize - 1) {
        Some(object) => Some((object.write(state, since)?, pc.wrapping_sub(object.base as u64))),
        None => Some((0, pc)),
    }
}
