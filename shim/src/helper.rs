//! Threads of our own, of which there are none unless somebody asked for what needs one.
//!
//! A process whose first thread has ended by pthread_exit ends with its last thread, and libc counts ours among them. So one of
//! ours looks now and then whether nobody else is there, and ends then. Those of `--gpu-time` need not: CUDA's driver has threads of its
//! own, which keep such a process without us too.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::interpose::elf;
use crate::sys;

/// Makes a thread of ours, with every signal blocked.
pub(crate) fn spawn(work: unsafe extern "C" fn(*mut c_void) -> *mut c_void) {
    static PTHREAD_CREATE: elf::Function = elf::Function::anywhere(c"pthread_create");
    static PTHREAD_DETACH: elf::Function = elf::Function::anywhere(c"pthread_detach");
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const c_void,
        unsafe extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    let (create, detach) = (PTHREAD_CREATE.address(), PTHREAD_DETACH.address());
    if create == 0 || detach == 0 {
        return;
    }
    type Detach = unsafe extern "C" fn(libc::pthread_t) -> c_int;
    // SAFETY: the addresses are those of the C library's functions of these names, whose signatures these are.
    let (create, detach) =
        unsafe { (core::mem::transmute::<usize, Create>(create), core::mem::transmute::<usize, Detach>(detach)) };
    // A thread begins with the signals blocked that its maker has blocked.
    sys::without_signals(|| {
        let mut thread: libc::pthread_t = 0;
        // SAFETY: the function takes no argument and never unwinds; the thread's number is written before it is read.
        unsafe {
            if create(&raw mut thread, ptr::null(), work, ptr::null_mut()) == 0 {
                count(|living| living + 1);
                detach(thread);
            }
        }
    });
}

/// How many threads of ours live, below the pid of their process: a fork leaves them behind.
static LIVING: AtomicU64 = AtomicU64::new(0);

fn count(change: impl Fn(u64) -> u64) -> u64 {
    let own = u64::from(sys::getpid()) << 32;
    let mut before = LIVING.load(Ordering::Relaxed);
    loop {
        let living = if before >> 32 == own >> 32 { before & u64::from(u32::MAX) } else { 0 };
        let after = change(living);
        match LIVING.compare_exchange_weak(before, own | after, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return after,
            Err(other) => before = other,
        }
    }
}

/// A thread of ours is about to end.
pub(crate) fn ends() {
    count(|living| living.saturating_sub(1));
}

/// Whether no thread of the program is left. The first one stays to be seen until all others have ended, without an executable.
/// A thread of ours that is just beginning or ending makes the answer no: it is asked again.
pub(crate) fn is_alone() -> bool {
    sys::threads() == count(|living| living) + 1 && !sys::exists(c"/proc/self/exe")
}
