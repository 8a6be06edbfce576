//! x86-64: `struct user_regs_struct`, and System V's calls.

use std::io;

use super::Registers;

/// General registers, with those that the kernel adds.
pub(super) const COUNT: usize = 27;
const RBX: usize = 5;
const RAX: usize = 10;
const ORIGINAL_RAX: usize = 15;
pub(super) const COUNTER: usize = 16;
const FLAGS: usize = 18;
pub(super) const STACK: usize = 19;
const FS_BASE: usize = 21;
/// RDI, RSI, RDX, R10, R8, R9.
const OF_SYSCALL: [usize; 6] = [14, 13, 12, 7, 9, 8];
/// RDI, RSI, RDX, RCX.
const OF_CALL: [usize; 4] = [14, 13, 12, 11];
/// Single steps, and the direction of strings, are the thread's own.
const TRAP_AND_DIRECTION: u64 = 0x100 | 0x400;

/// DWARF's numbers: RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8 to R15.
pub(super) const BY_NUMBER: &[(u16, usize)] = &[
    (0, RAX),
    (1, 12),
    (2, 11),
    (3, RBX),
    (4, 13),
    (5, 14),
    (6, 4),
    (7, STACK),
    (8, 9),
    (9, 8),
    (10, 7),
    (11, 6),
    (12, 3),
    (13, 2),
    (14, 1),
    (15, 0),
];

/// All that XSAVE saves; and where there is none the registers of x87 and SSE.
pub(super) const OTHERS: &[i32] = &[0x202, 2];

/// How many bytes the set has of which these were read into so much room; none: there may be more.
pub(super) fn whole(_: i32, bytes: &[u8], room: usize) -> Option<usize> {
    Some(bytes.len()).filter(|length| *length < room)
}

/// The instruction that makes a system call.
pub(in crate::attach) const SYSCALL: &[u8] = &[0x0f, 0x05];

/// Calls RBX, and then waits for nothing, for ever, in ppoll: nobody lets it come so far.
pub(in crate::attach) const STUB: &[u8] = &[
    0xff, 0xd3, // call *%rbx
    0x48, 0x89, 0xc3, // mov %rax, %rbx
    0x31, 0xff, 0x31, 0xf6, 0x31, 0xd2, 0x45, 0x31, 0xd2, // xor of edi, esi, edx, r10d
    0xb8, 0x0f, 0x01, 0x00, 0x00, // mov $271, %eax
    0x0f, 0x05, // syscall
    0xeb, 0xee, // back to the xor of edi
];
/// Where a thread is that makes the system call at its end.
pub(in crate::attach) const STUB_END: usize = STUB.len() - 2;

impl Registers {
    /// Those with which the thread makes a system call, by the instruction at `at`.
    pub(in crate::attach) fn for_syscall(&self, at: u64, number: i64, arguments: [u64; 6]) -> Registers {
        let mut all = *self;
        all.go_on_at(at);
        all.0[RAX] = number as u64;
        all.0[ORIGINAL_RAX] = u64::MAX;
        all.0[FLAGS] &= !TRAP_AND_DIRECTION;
        OF_SYSCALL.iter().zip(arguments).for_each(|(place, value)| all.0[*place] = value);
        all
    }

    /// Those with which it calls a function, by the [`STUB`] at `stub`.
    pub(in crate::attach) fn for_call(&self, stub: u64, stack: u64, function: u64, arguments: [u64; 4]) -> Registers {
        let mut all = *self;
        all.go_on_at(stub);
        all.0[STACK] = stack & !15;
        all.0[RBX] = function;
        all.0[RAX] = 0;
        all.0[ORIGINAL_RAX] = u64::MAX;
        all.0[FLAGS] &= !TRAP_AND_DIRECTION;
        OF_CALL.iter().zip(arguments).for_each(|(place, value)| all.0[*place] = value);
        all
    }

    /// What the system call returned.
    pub(in crate::attach) fn of_syscall(&self) -> i64 {
        self.0[RAX] as i64
    }

    /// The number of the system call that the thread is in.
    pub(in crate::attach) fn number(&self) -> i64 {
        self.0[ORIGINAL_RAX] as i64
    }

    /// What the function returned.
    pub(in crate::attach) fn returned(&self) -> u64 {
        self.0[RBX]
    }

    /// The address of the thread's block.
    pub(in crate::attach) fn block(&self, _: i32) -> io::Result<u64> {
        Ok(self.0[FS_BASE])
    }
}

/// Has the kernel leave out the system call that the thread is about to make.
pub(in crate::attach) fn leave_out(tid: i32) -> io::Result<()> {
    let mut all = Registers::of(tid)?;
    all.0[ORIGINAL_RAX] = u64::MAX;
    all.set(tid)
}
