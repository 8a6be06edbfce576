//! By libc's on_exit, and by functions before libc's `_exit` and `_Exit`.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::say;
use crate::interpose::elf;
use crate::sys;

/// The function that ours stands before: libc's, or that of a library which was preloaded too.
static EXIT: AtomicUsize = AtomicUsize::new(0);

/// Finds it, for a process that is not traced as well. For the constructor.
pub(crate) fn prepare() {
    EXIT.store(elf::next_definition(c"_exit"), Ordering::Relaxed);
}

/// Has libc say when the program calls exit, or returns from main. For the constructor: what was registered first is
/// called last, and so knows the number that counts.
pub(crate) fn listen() {
    on_exit(at_exit);
}

/// What libc calls at the end, with the status and a null pointer.
pub(crate) type AtExit = unsafe extern "C" fn(c_int, *mut c_void);

/// Has libc call this function of ours when the program calls exit, or returns from main: before all that were registered earlier.
pub(crate) fn on_exit(function: AtExit) {
    static ON_EXIT: elf::Function = elf::Function::of_libc(c"on_exit");
    type OnExit = unsafe extern "C" fn(AtExit, *mut c_void) -> c_int;
    let address = ON_EXIT.address();
    if address != 0 {
        // SAFETY: the address is libc's on_exit, whose signature this is.
        let on_exit: OnExit = unsafe { core::mem::transmute(address) };
        // SAFETY: the function is never unloaded (see build.rs), and its argument is null.
        unsafe { on_exit(function, core::ptr::null_mut()) };
    }
}

unsafe extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    say(status);
}

/// `void _exit(int status)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    say(status);
    match EXIT.load(Ordering::Relaxed) {
        0 => sys::exit_group(status),
        address => {
            // SAFETY: the address is a function of this name, whose signature this is.
            let exit: unsafe extern "C" fn(c_int) -> ! = unsafe { core::mem::transmute(address) };
            // SAFETY: the program's own argument.
            unsafe { exit(status) }
        }
    }
}

/// `void _Exit(int status)`, the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the program's own argument.
    unsafe { _exit(status) }
}
