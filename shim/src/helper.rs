//! Threads of our own, of which there are none unless somebody asked for what needs one.

use core::ffi::{c_int, c_void};
use core::ptr;

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
                detach(thread);
            }
        }
    });
}
