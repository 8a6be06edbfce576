//! Marks in frames of ours: whether a piece of work is still under way, or was left by siglongjmp or a cancellation.
//!
//! A flag that says so would stay set for ever. So the thread's state holds the address of a word in the frame itself, and
//! that word holds its own address, scrambled. A frame that was left lies below the stack pointer, or has been overwritten, or
//! lies in a hole of another function's frame ([`is_surely_running`]).

use core::ptr;

use crate::stack;

/// Two frames further apart than this are not on one stack, or not in one call of the driver.
const NESTING_BYTES: usize = 256 << 10;
const SCRAMBLE: usize = 0x9e37_79b9_7f4a_7c15;

/// Makes a word of the caller's own frame a mark.
#[inline(always)]
pub(crate) fn stamp(mark: *mut usize) {
    // SAFETY: the word is a local of the caller.
    unsafe { ptr::write_volatile(mark, mark as usize ^ SCRAMBLE) };
}

/// Whether the frame with the mark at `mark` seems to be there, above the frame of `here` on one stack.
#[cold]
#[inline(never)]
pub(crate) fn is_running(mark: usize, here: usize) -> bool {
    if mark <= here || mark - here > NESTING_BYTES || !stack::reaches(here, mark) {
        return false;
    }
    // SAFETY: the address lies above the stack pointer on the same page, or on the thread's own stack.
    unsafe { is_stamped(mark) }
}

/// The same, and what was left in a hole of another function's frame is told from what is running: by the stack's frames, where they
/// can be followed. Takes longer, the first time in a place above all.
#[cold]
#[inline(never)]
pub(crate) fn is_surely_running(mark: usize, here: usize) -> bool {
    is_running(mark, here) && stack::is_in_frame_of_ours(mark) != Some(false)
}

/// Whether the frame with the mark at `mark` may be there, on this stack or below a signal handler on another one.
///
/// A thread is on its own stack only when no handler on an alternate one is under way. Of two places on stacks that are
/// not known, nothing can be told unless they are close to each other: then the work is taken for running.
#[cold]
#[inline(never)]
pub(crate) fn may_run(mark: usize, here: usize) -> bool {
    match (stack::is_own(mark), stack::is_own(here)) {
        (true, true) if mark <= here => false,
        // SAFETY: the thread's own stack stays mapped, also below the stack pointer, as deep as it ever was.
        (true, _) => unsafe { is_stamped(mark) },
        (false, true) => false,
        // SAFETY: on a page with the stack pointer.
        (false, false) if mark >> 12 == here >> 12 => mark > here && unsafe { is_stamped(mark) },
        (false, false) => mark > here || here - mark > NESTING_BYTES,
    }
}

/// # Safety
/// The word is mapped.
unsafe fn is_stamped(mark: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ptr::read_volatile(mark as *const usize) == mark ^ SCRAMBLE }
}
