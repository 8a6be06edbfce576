//! The quick way of the functions that programs call all the time, where a sample is recorded: most allocations are counted and go on
//! to the next definition, most frees go on, and everything else comes to where the entry leads, as if nothing had been done.
//!
//! In assembly, because each instruction shows: a program of small objects calls these every 20 ns. A compiler saves
//! registers for the rare way before it knows that it is not taken.
//!
//! What an allocation takes off its thread's distance to the next sample is one instruction, so that a signal handler that
//! samples, or forks, in the middle leaves nothing that is not true any more: a state that a fork wiped has the distance 0,
//! and its row was looked up before. Registers that are changed are ones that hold no argument and that nobody expects to find
//! as they were.

use core::mem::offset_of;

use gputrace_abi::Class;
use gputrace_abi::layout::ThreadRow;

use crate::thread::State;

pub(super) const ROW: usize = State::ROW_AT;
pub(super) const COUNTDOWN: usize = State::COUNTDOWN_AT;
pub(super) const SEEN_ALLOC: usize = offset_of!(ThreadRow, seen) + 8 * Class::HostAlloc as usize;

/// The whole entry of an allocation: `$bytes` holds its size once `$before` has run, which may go to 2, the long way. `$next` and `$long`
/// are where the two ways jump to, in words of `$operand`.
macro_rules! allocation {
    ($bytes:literal, [$($before:literal),*], $next:literal, $long:literal, $($operand:tt)*) => {
        core::arch::naked_asm!(
            $($before,)*
            "mov rcx, qword ptr [rip + gputrace_sampled@GOTTPOFF]",
            "mov rcx, qword ptr fs:[rcx]",
            "mov r8, qword ptr [rcx + {row}]",
            "test r8, r8",
            "je 2f",
            concat!("sub qword ptr [rcx + {countdown}], ", $bytes),
            "jbe 3f", // unsigned: half of all memory and more is longer than any distance, too
            "inc qword ptr [r8 + {seen}]",
            concat!("jmp ", $next),
            concat!("3: add qword ptr [rcx + {countdown}], ", $bytes),
            concat!("2: jmp ", $long),
            quick::whole_lines!(),
            row = const quick::ROW,
            countdown = const quick::COUNTDOWN,
            seen = const quick::SEEN_ALLOC,
            $($operand)*
        )
    };
}
pub(super) use allocation;

/// The whole entry of free: [`crate::tracked::may_be`] says whether the block may have been recorded. One that was not is nobody's business: its
/// free is not counted, and needs no state.
macro_rules! free {
    ($next:literal, $long:literal, $($operand:tt)*) => {
        core::arch::naked_asm!(
            "mov rcx, qword ptr [rip + {filter}]",
            "test rcx, rcx",
            "je 2f",
            "mov eax, edi",
            "shr eax, {cell_bits}",
            "cmp byte ptr [rcx + rax], 0",
            "jne 2f",
            concat!("jmp ", $next),
            concat!("2: jmp ", $long),
            quick::whole_lines!(),
            cell_bits = const tracked::CELL_BITS,
            filter = sym tracked::FILTER,
            $($operand)*
        )
    };
}
pub(super) use free;

/// The next function begins with a cache line, as this one does where all of a section say so.
macro_rules! whole_lines {
    () => {
        ".p2align 6"
    };
}
pub(super) use whole_lines;

/// What an entry does.
macro_rules! entry {
    (malloc) => {
        quick::entry!(malloc, allocation!("rdi", []))
    };
    // The product's upper half replaces no argument that the long way needs: rdx is calloc's third, and it has two.
    (calloc) => {
        quick::entry!(calloc, allocation!("rax", ["mov rax, rdi", "mul rsi", "jo 2f"]))
    };
    (free) => {
        quick::entry!(free, free!())
    };
    ($entry:ident, $way:ident!($($what:tt),*)) => {
        quick::$way!(
            $($what,)*
            "qword ptr [rip + {next} + {at}]",
            "qword ptr [rip + {target} + {at}]",
            next = sym NEXT,
            target = sym TARGET,
            at = const $entry::AT,
        )
    };
    ($other:ident) => {
        core::arch::naked_asm!(
            "endbr64",
            "jmp qword ptr [rip + {target} + {at}]",
            quick::whole_lines!(),
            target = sym TARGET,
            at = const $other::AT,
        )
    };
}
pub(super) use entry;
