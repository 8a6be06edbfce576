//! What stands before a hook: while recording is off, the call goes straight to its original.
//!
//! A program may be paused for days. A hook that finds that out itself has saved the registers that it needs for recording
//! already, keeps a frame, and passes the arguments of a launch through it: two to three times the cost of what is here.
//!
//! What is looked at is what [`State::is_paused`](crate::thread::State::is_paused) looks at. Where it is not plain that recording is
//! off (a thread or a process that has no state yet, a mark that is to be taken back, an original that is not known), the hook does
//! what it always does.

/// The body of a naked function that jumps to the original of this number while recording is off, else to the hook. With
/// `captured`, to the hook while a stream is captured as well.
#[cfg(target_arch = "x86_64")]
macro_rules! off {
    ($hook:path, $number:expr) => { $crate::record::off!(@body $hook, $number, [], []) };
    ($hook:path, $number:expr, captured) => {
        $crate::record::off!(
            @body $hook, $number,
            ["test dword ptr [rip + {attention}], {captures}", "jnz {hook}"],
            [attention = sym $crate::capture::ATTENTION, captures = const !$crate::capture::NAMES]
        )
    };
    (@body $hook:path, $number:expr, [$($look:literal),*], [$($word:tt)*]) => {
        core::arch::naked_asm!(
            "endbr64",
            "mov r11, qword ptr [rip + gputrace_thread_state@GOTTPOFF]",
            "mov r11, qword ptr fs:[r11]",
            "test r11, r11",
            "jz {hook}",
            "test byte ptr [r11 + {held}], {paused}",
            "jz {hook}",
            // The collector switches recording on by the segment's word alone.
            "mov rax, qword ptr [r11 + {segment}]",
            "test rax, rax",
            "jz {hook}",
            "cmp dword ptr [rax + {word}], 0",
            "je {hook}",
            $($look,)*
            "mov rax, qword ptr [rip + {originals} + {at}]",
            "test rax, rax",
            "jz {hook}",
            "jmp rax",
            hook = sym $hook,
            held = const $crate::thread::State::HELD_AT,
            paused = const $crate::thread::State::PAUSED,
            segment = const $crate::thread::State::SEGMENT_AT,
            word = const core::mem::offset_of!(gputrace_abi::layout::Header, paused),
            originals = sym $crate::hooks::ORIGINALS,
            at = const 8 * ($number) as usize,
            $($word)*
        )
    };
}

/// The same for aarch64.
#[cfg(target_arch = "aarch64")]
macro_rules! off {
    ($hook:path, $number:expr) => { $crate::record::off!(@body $hook, $number, [], []) };
    ($hook:path, $number:expr, captured) => {
        $crate::record::off!(
            @body $hook, $number,
            [
                "adrp x16, {attention}", "ldr w17, [x16, :lo12:{attention}]", "tst w17, {captures}", "b.ne 2f"
            ],
            [attention = sym $crate::capture::ATTENTION, captures = const !$crate::capture::NAMES]
        )
    };
    (@body $hook:path, $number:expr, [$($look:literal),*], [$($word:tt)*]) => {
        core::arch::naked_asm!(
            "mrs x16, tpidr_el0",
            "adrp x17, :gottprel:gputrace_thread_state",
            "ldr x17, [x17, :gottprel_lo12:gputrace_thread_state]",
            "ldr x16, [x16, x17]",
            "cbz x16, 2f",
            "ldrb w17, [x16, {held}]",
            "tbz w17, {paused}, 2f",
            // The collector switches recording on by the segment's word alone.
            "ldr x16, [x16, {segment}]",
            "cbz x16, 2f",
            "ldr w17, [x16, {word}]",
            "cbz w17, 2f",
            $($look,)*
            "adrp x16, {originals}",
            "add x16, x16, :lo12:{originals}",
            "ldr x16, [x16, {at}]",
            "cbz x16, 2f",
            "br x16",
            "2: b {hook}",
            hook = sym $hook,
            held = const $crate::thread::State::HELD_AT,
            paused = const $crate::thread::State::PAUSED.trailing_zeros(),
            segment = const $crate::thread::State::SEGMENT_AT,
            word = const core::mem::offset_of!(gputrace_abi::layout::Header, paused),
            originals = sym $crate::hooks::ORIGINALS,
            at = const 8 * ($number) as usize,
            $($word)*
        )
    };
}
pub(crate) use off;
