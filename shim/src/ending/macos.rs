//! By functions in place of libSystem's `exit`, `_exit` and `_Exit`, where the program's own libraries call them.
//!
//! A program that returns from main says nothing: what calls exit then lies in the shared cache.

use core::ffi::c_int;

use super::say;
use crate::interpose::macho::interpose;

interpose! {
    /// `void exit(int status)`
    fn exit(status: c_int) -> ! {
        say(status);
        // SAFETY: the program's own argument.
        unsafe { libc::exit(status) }
    }

    /// `void _exit(int status)`
    fn _exit(status: c_int) -> ! {
        say(status);
        // SAFETY: the program's own argument.
        unsafe { libc::_exit(status) }
    }

    /// `void _Exit(int status)`
    fn _Exit(status: c_int) -> ! {
        say(status);
        // SAFETY: the program's own argument; it is the same function.
        unsafe { libc::_exit(status) }
    }
}
