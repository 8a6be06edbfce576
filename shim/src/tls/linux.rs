//! Initial-exec thread-local storage.
//!
//! Rust's own `thread_local!` may allocate and registers destructors, inside malloc; general-dynamic access costs a
//! call. A hidden symbol in `.tbss` and an offset from the thread register cost 0.6 ns and can do neither.

use core::sync::atomic::AtomicUsize;

use crate::sampling;
use crate::thread::State;

/// What the quick way of malloc's entries finds where there is no state for it: no row.
static WITHOUT_ROW: AtomicUsize = AtomicUsize::new(0);
const _: () = assert!(State::ROW_AT == 0);

core::arch::global_asm!(
    ".pushsection .tdata,\"awT\",@progbits",
    ".balign 32", // what a thread reads of it lies in one cache line
    ".hidden gputrace_thread_state",
    ".globl gputrace_thread_state",
    ".type gputrace_thread_state, @object",
    ".size gputrace_thread_state, 8",
    "gputrace_thread_state:",
    ".zero 8",
    // The same where malloc is sampled and the thread has a row, else the address of nothing but a null row: the quick way of malloc's
    // entries has one thing to ask.
    ".hidden gputrace_sampled",
    ".globl gputrace_sampled",
    ".type gputrace_sampled, @object",
    ".size gputrace_sampled, 8",
    "gputrace_sampled:",
    ".quad {without_row}",
    ".hidden gputrace_caller",
    ".globl gputrace_caller",
    ".type gputrace_caller, @object",
    ".size gputrace_caller, 8",
    "gputrace_caller:",
    ".zero 8",
    ".popsection",
    without_row = sym WITHOUT_ROW,
);

/// Address of the calling thread's pointer.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn place() -> *mut *const State {
    let at: *mut *const State;
    // SAFETY: reads the offset from the GOT and the thread's own base address; no side effect.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + gputrace_thread_state@GOTTPOFF]",
            "add {at}, qword ptr fs:[0]",
            at = out(reg) at, options(nostack, pure, readonly),
        );
    }
    at
}

/// Address of the calling thread's pointer.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn place() -> *mut *const State {
    let at: *mut *const State;
    // SAFETY: reads the offset from the GOT and the thread register; no side effect.
    unsafe {
        core::arch::asm!(
            "mrs {at}, tpidr_el0",
            "adrp {offset}, :gottprel:gputrace_thread_state",
            "ldr {offset}, [{offset}, :gottprel_lo12:gputrace_thread_state]",
            "add {at}, {at}, {offset}",
            at = out(reg) at, offset = out(reg) _, options(nostack, pure, readonly),
        );
    }
    at
}

/// The calling thread's state, if it has one. It may have been wiped by a fork: see [`State::row`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn get() -> Option<&'static State> {
    let state: *const State;
    // SAFETY: as in `place`, and reads the thread's own word.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + gputrace_thread_state@GOTTPOFF]",
            "mov {at}, qword ptr fs:[{at}]",
            at = out(reg) state, options(nostack, readonly, preserves_flags),
        );
    }
    // SAFETY: the word is null or the address of a state, and states are never unmapped.
    unsafe { state.as_ref() }
}

/// The calling thread's state, if it has one.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn get() -> Option<&'static State> {
    // SAFETY: the word is the thread's own; it is null or the address of a state, and states are never unmapped.
    unsafe { (*place()).as_ref() }
}

/// Sets the calling thread's state.
pub(crate) fn set(state: Option<&'static State>) {
    let sampled = state.filter(|state| sampling::is_sampling() && state.row().is_some());
    let without = WITHOUT_ROW.as_ptr().cast_const().cast();
    // SAFETY: the words are the thread's own, one behind the other.
    unsafe {
        *place() = state.map_or(core::ptr::null(), core::ptr::from_ref);
        *place().add(1) = sampled.map_or(without, core::ptr::from_ref);
    }
}

/// How far what the quick ways of malloc's entries ask lies from the thread register, the same for all threads: the state, and the same where
/// malloc is sampled.
#[cfg(target_arch = "x86_64")]
pub(crate) fn offsets() -> [isize; 2] {
    let own: isize;
    // SAFETY: reads the thread's own base address, which stands there.
    unsafe {
        core::arch::asm!("mov {own}, qword ptr fs:[0]", own = out(reg) own, options(nostack, pure, readonly, preserves_flags));
    }
    [0, 1].map(|word| (place().wrapping_add(word) as isize).wrapping_sub(own))
}

/// What the entry of the hook that is running noted about its caller: see [`entry`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn caller() -> usize {
    let caller;
    // SAFETY: reads the thread's own word.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + gputrace_caller@GOTTPOFF]",
            "mov {at}, qword ptr fs:[{at}]",
            at = out(reg) caller, options(nostack, readonly, preserves_flags),
        );
    }
    caller
}

/// What the entry of the hook that is running noted about its caller: see [`entry`].
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn caller() -> usize {
    let caller;
    // SAFETY: reads the thread's own word.
    unsafe {
        core::arch::asm!(
            "mrs {at}, tpidr_el0",
            "adrp {offset}, :gottprel:gputrace_caller",
            "ldr {offset}, [{offset}, :gottprel_lo12:gputrace_caller]",
            "ldr {at}, [{at}, {offset}]",
            at = out(reg) caller, offset = out(reg) _, options(nostack, readonly),
        );
    }
    caller
}

/// The body of a naked function that notes its return address, or the number that it is given, for [`caller`], and
/// jumps to the function that does the work: arguments, stack and return address are as the program left them.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($work:path) => {
        core::arch::naked_asm!(
            "endbr64",
            "mov r11, qword ptr [rip + gputrace_caller@GOTTPOFF]",
            "mov rax, qword ptr [rsp]",
            "mov qword ptr fs:[r11], rax",
            "jmp {work}",
            work = sym $work,
        )
    };
    ($work:path, $number:expr) => {
        core::arch::naked_asm!(
            "endbr64",
            "mov r11, qword ptr [rip + gputrace_caller@GOTTPOFF]",
            "mov qword ptr fs:[r11], {number}",
            "jmp {work}",
            work = sym $work,
            number = const $number,
        )
    };
}

/// The same for aarch64.
#[cfg(target_arch = "aarch64")]
macro_rules! entry {
    ($work:path) => {
        core::arch::naked_asm!(
            "mrs x16, tpidr_el0",
            "adrp x17, :gottprel:gputrace_caller",
            "ldr x17, [x17, :gottprel_lo12:gputrace_caller]",
            "str x30, [x16, x17]",
            "b {work}",
            work = sym $work,
        )
    };
    ($work:path, $number:expr) => {
        core::arch::naked_asm!(
            "mrs x16, tpidr_el0",
            "adrp x17, :gottprel:gputrace_caller",
            "ldr x17, [x17, :gottprel_lo12:gputrace_caller]",
            "add x16, x16, x17",
            "mov x17, {number}",
            "str x17, [x16]",
            "b {work}",
            work = sym $work,
            number = const $number,
        )
    };
}
pub(crate) use entry;
