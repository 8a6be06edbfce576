//! aarch64: `struct user_pt_regs`, and the procedure call standard.

use std::io;

use super::super::ptrace;
use super::Registers;

/// X0 to X30, the stack pointer, the program counter, the processor's state.
pub(super) const COUNT: usize = 34;
const X8: usize = 8;
const X19: usize = 19;
const X29: usize = 29;
pub(super) const STACK: usize = 31;
pub(super) const COUNTER: usize = 32;

/// DWARF's numbers are the registers'.
pub(super) const BY_NUMBER: &[(u16, usize)] = &{
    let mut all = [(0, 0); 32];
    let mut n = 0;
    while n < all.len() {
        all[n] = (n as u16, n);
        n += 1;
    }
    all
};

/// The vector registers: those of SVE, with their predicates, of which the plain ones are the lower parts; and where there is none the plain ones.
/// A thread that computes with SVE and gets only these back computes on with zeros.
pub(super) const OTHERS: &[i32] = &[SVE, 2];
const SVE: i32 = 0x405;

/// How many bytes the set has of which these were read into so much room; none: there may be more.
pub(super) fn whole(set: i32, bytes: &[u8], room: usize) -> Option<usize> {
    if set != SVE {
        return Some(bytes.len()).filter(|length| *length < room);
    }
    // What the kernel says that it wrote is as much as the longest vectors of all would need; the set itself says how long it is. What is
    // written back has to be of so many whole vectors of the shortest kind.
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    Some(length.next_multiple_of(16)).filter(|length| *length <= bytes.len())
}
/// The number of the system call that a thread is in.
const SYSTEM_CALL: i32 = 0x404;
/// The thread register.
const TLS: i32 = 0x401;

/// The instruction that makes a system call: svc #0.
pub(in crate::attach) const SYSCALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];

/// Calls X19, and then waits for nothing, for ever, in ppoll: nobody lets it come so far.
pub(in crate::attach) const STUB: &[u8] = &[
    0x60, 0x02, 0x3f, 0xd6, // blr x19
    0xf3, 0x03, 0x00, 0xaa, // mov x19, x0
    0x00, 0x00, 0x80, 0xd2, // mov x0, #0
    0x01, 0x00, 0x80, 0xd2, // mov x1, #0
    0x02, 0x00, 0x80, 0xd2, // mov x2, #0
    0x03, 0x00, 0x80, 0xd2, // mov x3, #0
    0x28, 0x09, 0x80, 0xd2, // mov x8, #73
    0x01, 0x00, 0x00, 0xd4, // svc #0
    0xfa, 0xff, 0xff, 0x17, // back to the mov of x0
];
/// Where a thread is that makes the system call at its end.
pub(in crate::attach) const STUB_END: usize = STUB.len() - 4;

impl Registers {
    /// Those with which the thread makes a system call, by the instruction at `at`.
    pub(in crate::attach) fn for_syscall(&self, at: u64, number: i64, arguments: [u64; 6]) -> Registers {
        let mut all = *self;
        all.go_on_at(at);
        all.0[X8] = number as u64;
        all.0.iter_mut().zip(arguments).for_each(|(place, value)| *place = value);
        all
    }

    /// Those with which it calls a function, by the [`STUB`] at `stub`.
    pub(in crate::attach) fn for_call(&self, stub: u64, stack: u64, function: u64, arguments: [u64; 4]) -> Registers {
        let mut all = *self;
        all.go_on_at(stub);
        (all.0[STACK], all.0[X19], all.0[X29]) = (stack & !15, function, 0);
        all.0.iter_mut().zip(arguments).for_each(|(place, value)| *place = value);
        all
    }

    /// What the system call returned.
    pub(in crate::attach) fn of_syscall(&self) -> i64 {
        self.0[0] as i64
    }

    /// The number of the system call that the thread is in.
    pub(in crate::attach) fn number(&self) -> i64 {
        self.0[X8] as i64
    }

    /// What the function returned.
    pub(in crate::attach) fn returned(&self) -> u64 {
        self.0[X19]
    }

    /// The address of the thread's block.
    pub(in crate::attach) fn block(&self, tid: i32) -> io::Result<u64> {
        let mut bytes = [0; 8];
        ptrace::registers(tid, TLS, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Has the kernel leave out the system call that the thread is about to make.
pub(in crate::attach) fn leave_out(tid: i32) -> io::Result<()> {
    ptrace::set_registers(tid, SYSTEM_CALL, &(-1i32).to_le_bytes())
}
