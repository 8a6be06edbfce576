//! The quick way of malloc, calloc and free where short lives are summed up: puts a word into the table, or takes it out and counts it.
//! Everything else is left to [`culled`], as if nothing had been done.
//!
//! In assembly for the same reason as [`super::quick`]: what a compiler makes of [`culled`] is a third longer. A fork by a signal handler
//! in the middle leaves a thread without counts, which is asked after the call of the next definition. Between the few instructions that
//! take a word and count it nothing is asked: a handler that forks there, and lets its child go on, has the pair counted twice.
//!
//! Blocks lie below 2^48 here, as the kernel gives memory to who does not ask for more.

use gputrace_abi::pending::{BEATS, CALLOC, MALLOC, MOST_BYTES, SIZES, fixed, owner, sized, stamp};

use super::{culled, entry, straight};
use crate::culling;
use crate::thread::State;

const COUNTS: usize = State::COUNTDOWN_AT;

/// An allocation whose size is in `$bytes` once `$before` has run, which may go to 2, the long way.
macro_rules! allocation {
    ($name:ident, $function:ident, $bytes:literal $(, $before:literal)*) => {
        /// As the program calls it.
        #[unsafe(naked)]
        #[unsafe(link_section = ".text.gputrace_short")]
        pub(super) unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $($before,)*
                "mov rcx, qword ptr [rip + gputrace_thread_state@GOTTPOFF]",
                "mov rcx, qword ptr fs:[rcx]",
                "test rcx, rcx",
                "je 2f",
                "mov r8, qword ptr [rcx + {counts}]",
                "test r8, r8",
                "je 2f",
                concat!("cmp ", $bytes, ", {most}"),
                "jae 2f",
                "test byte ptr [rcx + {held}], {paused}",
                "jne 2f",
                "mov r9, qword ptr [r8 + {known}]",
                "test r9, r9",
                "js 2f", // UNKNOWN
                concat!("lea r9, [r9 + ", $bytes, " + {sized}]"),
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {next} + {at}]",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "pop r9",
                ".cfi_adjust_cfa_offset -8",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                "test rax, rax",
                "je 3f",
                // That state: a child that a signal handler forked meanwhile may have another one, of which what is known is not true.
                "cmp qword ptr [rcx + {counts}], 0",
                "je 3f",
                // The place: see `Place::of`.
                "test al, 15",
                "jne 4f",
                "mov rdx, rax",
                "shr rdx, {slot_bits} + 5",
                "imul esi, edx, {spread}",
                "shr esi, 32 - {slot_bits}",
                "mov edi, eax",
                "shr edi, 5",
                "and edi, (1 << {slot_bits}) - 1",
                "xor esi, edi",
                "shl rdx, {tag_at} + 1",
                "mov r8d, eax",
                "and r8d, 16",
                "shl r8, {tag_at} - 4",
                "or rdx, r8",
                "or rdx, r9",
                "mov r8, qword ptr [rip + {table}]",
                "mov rdi, rax",
                "xor eax, eax",
                "lock cmpxchg qword ptr [r8 + 8 * rsi + {slots}], rdx",
                "mov rax, rdi",
                "jne 4f",
                "3: ret",
                "4: mov rdi, rax",
                "mov rsi, r9",
                "jmp {late}",
                "2: jmp {long}",
                ".cfi_endproc",
                ".p2align 8",
                counts = const COUNTS,
                held = const State::HELD_AT,
                paused = const State::PAUSED,
                most = const MOST_BYTES,
                table = sym culling::TABLE,
                known = const fixed::KNOWN,
                sized = const sized($function, 0),
                next = sym entry::NEXT,
                at = const entry::$name::AT,
                slot_bits = const fixed::SLOT_BITS,
                spread = const fixed::SPREAD as i32,
                tag_at = const fixed::TAG_AT,
                slots = const fixed::SLOTS,
                late = sym culled::put_late,
                long = sym culled::$name,
            )
        }
    };
}

/// These, where the functions that they pass calls on to are known: [`straight`] writes what they read into them, too.
pub(super) fn entries() -> [Option<straight::Entry>; 3] {
    let of = |known: Option<straight::Entry>, code: usize| {
        known.map(|entry| straight::Entry { code, bytes: straight::SHORT_BYTES, target: None, ..entry })
    };
    [
        of(entry::malloc::known(), malloc as *const () as usize),
        of(entry::calloc::known(), calloc as *const () as usize),
        of(entry::free::known(), free as *const () as usize),
    ]
}

allocation!(malloc, MALLOC, "rdi");
// The product's upper half replaces no argument: rdx is the third, and calloc has two.
allocation!(calloc, CALLOC, "rax", "mov rax, rdi", "mul rsi", "jo 2f");

/// As the program calls it.
#[unsafe(naked)]
#[unsafe(link_section = ".text.gputrace_short")]
pub(super) unsafe extern "C" fn free() {
    core::arch::naked_asm!(
        "mov rax, qword ptr [rip + gputrace_thread_state@GOTTPOFF]",
        "mov rax, qword ptr fs:[rax]",
        "test rax, rax",
        "je 2f",
        "mov rdx, qword ptr [rax + {counts}]",
        "test rdx, rdx",
        "je 2f",
        // The place: see `Place::of`.
        "test dil, 15",
        "jne 2f",
        "mov rcx, rdi",
        "shr rcx, {slot_bits} + 5",
        "imul r8d, ecx, {spread}",
        "shr r8d, 32 - {slot_bits}",
        "mov esi, edi",
        "shr esi, 5",
        "and esi, (1 << {slot_bits}) - 1",
        "xor esi, r8d",
        "mov r9, qword ptr [rip + {table}]",
        "mov rax, qword ptr [r9 + 8 * rsi + {slots}]",
        // What they differ in: see `Word::against`.
        "shl rcx, {tag_at} + 1",
        "mov r10d, edi",
        "and r10d, 16",
        "shl r10, {tag_at} - 4",
        "or rcx, r10",
        "xor rcx, rax",
        "xor rcx, qword ptr [rdx + {known}]",
        "cmp rcx, {sizes}",
        "jae 3f",
        "xor r8d, r8d",
        "lock cmpxchg qword ptr [r9 + 8 * rsi + {slots}], r8",
        "jne 2f",
        "inc qword ptr [rdx + 8 * rcx + {pairs}]",
        "jmp qword ptr [rip + {next} + {at}]",
        // Of an earlier beat: as `culling::counts_old` does, by the beat that the thread itself knows, and not where the numbers have gone round.
        "3: cmp rcx, 1 << {owner_at}",
        "jae 2f",
        "test rax, rax", // an empty place looks like an old block at 0
        "je 2f",
        "mov ecx, dword ptr [rdx + {known}]",
        "and ecx, {beats}",
        "mov r8d, eax",
        "and r8d, {beats}",
        "sub ecx, r8d",
        "jbe 2f",
        "shr rcx, {stamp_at}",
        "cmp ecx, dword ptr [r9 + {limit}]",
        "ja 2f",
        "xor r8d, r8d",
        "lock cmpxchg qword ptr [r9 + 8 * rsi + {slots}], r8",
        "jne 2f",
        "add qword ptr [rdx + {aged}], rcx",
        "and eax, {sizes} - 1",
        "inc qword ptr [rdx + 8 * rax + {pairs}]",
        "jmp qword ptr [rip + {next} + {at}]",
        "2: jmp {long}",
        ".p2align 8",
        counts = const COUNTS,
        slot_bits = const fixed::SLOT_BITS,
        spread = const fixed::SPREAD as i32,
        table = sym culling::TABLE,
        slots = const fixed::SLOTS,
        tag_at = const fixed::TAG_AT,
        known = const fixed::KNOWN,
        sizes = const SIZES,
        owner_at = const owner(1).trailing_zeros(),
        stamp_at = const stamp(1).trailing_zeros(),
        beats = const stamp(BEATS),
        limit = const fixed::LIMIT,
        aged = const fixed::AGED,
        pairs = const fixed::PAIRS,
        next = sym entry::NEXT,
        at = const entry::free::AT,
        long = sym culled::free,
    )
}
