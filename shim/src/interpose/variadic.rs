//! Functions with a variable number of arguments of which one use waits: `syscall` for a futex, `fcntl` for a lock.
//!
//! Variable arguments that are integers or pointers travel as fixed ones do on x86-64 and aarch64, so `fcntl` is
//! declared with the one argument it may have. `syscall` has up to seven words, the last of them on the stack on
//! x86-64, and may come back twice (vfork) or never: its stub looks at the number and *jumps*, with everything as it was,
//! to our function for a futex and to libc's for anything else.

use core::ffi::{c_int, c_long};

use crate::hooks;
use crate::hooks::os::{self, Index};
use crate::wait::{self, Mark, Target};

type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// `long syscall(long number, ...)`
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp rdi, {futex}",
        "je {measured}",
        "mov rax, qword ptr [rip + {originals} + {offset}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        // The first call of all: seven words are kept and the stack aligned.
        "2: push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        futex = const libc::SYS_futex,
        measured = sym futex,
        originals = sym hooks::ORIGINALS,
        offset = const 8 * SYSCALL as usize,
        find = sym find,
    )
}

/// `long syscall(long number, ...)`
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "hint #34", // bti c
        "cmp x0, #{futex}",
        "b.eq {measured}",
        "adrp x16, {originals} + {offset}",
        "ldr x16, [x16, :lo12:{originals} + {offset}]",
        "cbz x16, 2f",
        "br x16",
        "2: stp x29, x30, [sp, #-80]!",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "str x6, [sp, #64]",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldr x6, [sp, #64]",
        "ldp x29, x30, [sp], #80",
        "br x16",
        futex = const libc::SYS_futex,
        measured = sym futex,
        originals = sym hooks::ORIGINALS,
        offset = const 8 * SYSCALL as usize,
        find = sym find,
    )
}

const SYSCALL: u16 = os::number(Index::syscall);

extern "C" fn find() -> usize {
    let found = wait::original(SYSCALL, c"syscall");
    if found == 0 {
        // SAFETY: ends the process, which called what it does not have.
        unsafe { libc::abort() }
    }
    found
}

/// A futex call. The words that the caller did not pass are whatever stood in their places, and are passed on.
unsafe extern "C" fn futex(
    number: c_long,
    word: usize,
    operation: usize,
    value: usize,
    time: usize,
    other: usize,
    more: usize,
) -> c_long {
    // SAFETY: the address is that of libc's syscall, and no argument of a futex call is a floating point number.
    let original: Syscall = unsafe { core::mem::transmute(find()) };
    // SAFETY: the program's own arguments, passed on.
    let call = || unsafe { original(number, word, operation, value, time, other, more) };
    let command = operation as c_int & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let waits = [
        libc::FUTEX_WAIT,
        libc::FUTEX_WAIT_BITSET,
        libc::FUTEX_WAIT_REQUEUE_PI,
        libc::FUTEX_LOCK_PI,
        libc::FUTEX_LOCK_PI2,
    ];
    if !waits.contains(&command) || !wait::is_on() {
        return call();
    }
    let mut mark = Mark::new(SYSCALL);
    wait::begin(&mut mark);
    let result = call();
    wait::end(&mut mark, result, Target::at(word));
    result
}

macro_rules! fcntl {
    ($name:ident, $symbol:literal) => {
        /// `int fcntl(int file, int command, ...)`: looked at where it waits for a lock.
        pub(crate) unsafe extern "C" fn $name(file: c_int, command: c_int, argument: usize) -> c_int {
            const NUMBER: u16 = os::number(Index::$name);
            let address = wait::original(NUMBER, $symbol);
            if address == 0 {
                return wait::missing(NUMBER) as c_int;
            }
            // SAFETY: the address is that of libc's function of this name; see the module about its arguments.
            let original: unsafe extern "C" fn(c_int, c_int, usize) -> c_int = unsafe { core::mem::transmute(address) };
            // SAFETY: the program's own arguments, passed on.
            let call = || unsafe { original(file, command, argument) };
            if !matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW) || !wait::is_on() {
                return call();
            }
            let mut mark = Mark::new(NUMBER);
            wait::begin(&mut mark);
            let result = call();
            wait::end(&mut mark, i64::from(result), Target::fd(file));
            result
        }
    };
}

fcntl!(fcntl, c"fcntl");
fcntl!(fcntl64, c"fcntl64");
