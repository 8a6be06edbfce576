//! Where the calling thread's stack ends, without asking anybody.
//!
//! The main thread's ends below the environment that the kernel put there. glibc keeps a thread's own block, to which the
//! thread register points, at the end of the stack that it runs on. Code that runs on a stack of its own making
//! (coroutines, alternative signal stacks) lies outside of both.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sys;

static MAIN_END: AtomicUsize = AtomicUsize::new(0);
static MAIN_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The main thread's block, which lies elsewhere.
static MAIN_BLOCK: AtomicUsize = AtomicUsize::new(0);

/// A main stack without a limit is taken for so large: nothing is mapped so close to it.
const MAIN_MOST: u64 = 128 << 20;
/// No thread's stack is taken for larger.
const THREAD_MOST: usize = 256 << 20;

/// For the constructor, which runs on the main thread's stack: where its environment begins.
pub(crate) fn remember_main_stack(environment: usize) {
    let here = 0u8;
    let here = &raw const here as usize;
    MAIN_BLOCK.store(thread_register(), Ordering::Relaxed);
    let bytes = sys::limit(libc::RLIMIT_STACK).min(MAIN_MOST) as usize;
    // Somebody may have moved the environment before us.
    if environment > here && environment - here < bytes {
        MAIN_BYTES.store(bytes, Ordering::Relaxed);
        MAIN_END.store(environment & !7, Ordering::Relaxed);
    }
}

/// The same in a process that was attached to, by what is known from outside: where the main thread's stack ends, and its block (0: not
/// known).
#[cfg(target_os = "linux")]
pub(crate) fn told_main_stack(end: usize, block: usize) {
    let bytes = sys::limit(libc::RLIMIT_STACK).min(MAIN_MOST) as usize;
    MAIN_BLOCK.store(block, Ordering::Relaxed);
    MAIN_BYTES.store(bytes, Ordering::Relaxed);
    MAIN_END.store(end & !7, Ordering::Relaxed);
}

/// The end of the stack on which `here` lies; none where that is not known.
pub(super) fn end_of_stack(here: usize) -> Option<usize> {
    let below = |end: usize, most: usize| here < end && end - here <= most;
    let main = MAIN_END.load(Ordering::Relaxed);
    if below(main, MAIN_BYTES.load(Ordering::Relaxed)) {
        return Some(main);
    }
    let block = thread_register();
    (block != MAIN_BLOCK.load(Ordering::Relaxed) && below(block, THREAD_MOST)).then_some(block & !7)
}

/// Whether `here` surely lies on the thread's own stack. A signal handler's stack may hold two frames more and be full, and
/// is mapped anywhere below a thread's stack; few stacks are smaller than this, and few calls deeper.
pub(super) fn is_own_stack(here: usize) -> bool {
    const SMALLEST: usize = 1 << 20;
    let main = MAIN_END.load(Ordering::Relaxed);
    end_of_stack(here).is_some_and(|end| end == main || end - here <= SMALLEST)
}

#[cfg(target_arch = "x86_64")]
fn thread_register() -> usize {
    let at: usize;
    // SAFETY: the thread block's first word is its own address.
    unsafe { core::arch::asm!("mov {at}, fs:[0]", at = out(reg) at, options(nostack, readonly, preserves_flags)) };
    at
}

#[cfg(target_arch = "aarch64")]
fn thread_register() -> usize {
    let at: usize;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mrs {at}, tpidr_el0", at = out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}
