//! Where the calling thread's stack is, and whose frames lie on it; calls get no stack of frames on macOS yet.

use core::ops::Range;

use crate::thread::State;

/// No stacks are taken.
pub(crate) fn is_on() -> bool {
    false
}

/// Nor do allocations.
#[inline(always)]
pub(crate) fn wants_allocations() -> bool {
    false
}

/// The key of an allocation's stack: there is none.
pub(crate) fn of_allocation(_: &State, _: Option<u64>) -> u64 {
    0
}

/// The thread ends.
pub(crate) fn forget(_: &State) {}

/// A thread's first time: there are no thresholds.
pub(crate) fn reset(_: &State) {}

/// A segment begins: no stack is known in it.
pub(crate) fn begin_segment(_: u64) {}

/// Bits of an address inside its page.
const PAGE_BITS: u32 = if cfg!(target_arch = "aarch64") { 14 } else { 12 };

/// Whether the memory from `here` up to the word at `there` is the calling thread's own stack, and so mapped.
pub(crate) fn reaches(here: usize, there: usize) -> bool {
    here >> PAGE_BITS == there >> PAGE_BITS || are_own(here, there)
}

/// Asked once for both. Apart: each message inside another one asks whether both are on one page, which takes no registers.
#[cold]
#[inline(never)]
fn are_own(here: usize, there: usize) -> bool {
    let own = own();
    own.contains(&here) && own.contains(&there)
}

/// Whether an address lies on the calling thread's own stack.
pub(crate) fn is_own(there: usize) -> bool {
    own().contains(&there)
}

/// Whether the word at `mark` lies in a live frame of a function of ours; None: the frames cannot be followed up to there.
/// From the stack pointer up to it everything is mapped.
///
/// Frames are followed by their pointers, which macOS's calling conventions want in each function that calls another. Code
/// without them leaves its caller's in the register, or something else: what leads nowhere upwards ends the search.
#[inline(never)]
pub(crate) fn is_in_frame_of_ours(mark: usize) -> Option<bool> {
    const MOST: usize = 1024;
    /// What is not the address in a return address that is signed, as those of the system's libraries are.
    const ADDRESS: usize = if cfg!(target_arch = "aarch64") { (1 << 47) - 1 } else { usize::MAX };
    let mut frame: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {frame}, rbp", frame = out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {frame}, x29", frame = out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    // Whose frame it is: who called the one below.
    let mut code = None;
    for _ in 0..MOST {
        if frame > mark {
            return code.map(|code| text().contains(&code));
        }
        // Its two words lie below the mark.
        if frame & 7 != 0 || frame + 16 > mark {
            return None;
        }
        // SAFETY: on the stack, between the stack pointer and the mark.
        let [next, back] = unsafe { core::ptr::read_volatile(frame as *const [usize; 2]) };
        if next <= frame {
            return None;
        }
        code = Some(back & ADDRESS);
        frame = next;
    }
    None
}

/// The code of this library.
fn text() -> Range<usize> {
    unsafe extern "C" {
        #[link_name = "\x01section$start$__TEXT$__text"]
        static BEGIN: u8;
        #[link_name = "\x01section$end$__TEXT$__text"]
        static END: u8;
    }
    // The linker's, and never read.
    (&raw const BEGIN as usize)..(&raw const END as usize)
}

/// The calling thread's own stack.
fn own() -> Range<usize> {
    // SAFETY: the calling thread's own description, which libSystem reads without a lock.
    unsafe {
        let thread = libc::pthread_self();
        let end = libc::pthread_get_stackaddr_np(thread) as usize;
        end.saturating_sub(libc::pthread_get_stacksize_np(thread))..end
    }
}
