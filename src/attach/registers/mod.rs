//! A thread's registers, and those with which it makes a call of ours.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::io;

use super::ptrace;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

pub(super) use processor::{STUB, STUB_END, SYSCALL, leave_out};

/// The kernel's numbers of sets of registers.
const GENERAL: i32 = 1;
const ROOM: usize = 16 << 10;

/// The general registers, in the kernel's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers([u64; processor::COUNT]);

impl Registers {
    /// Those of a stopped thread.
    pub(super) fn of(tid: i32) -> io::Result<Registers> {
        let mut bytes = [0; 8 * processor::COUNT];
        if ptrace::registers(tid, GENERAL, &mut bytes)? != bytes.len() {
            return Err(io::Error::other("the thread is not of this processor"));
        }
        let mut all = Registers([0; processor::COUNT]);
        for (place, word) in all.0.iter_mut().zip(bytes.as_chunks().0) {
            *place = u64::from_le_bytes(*word);
        }
        Ok(all)
    }

    /// Sets them.
    pub(super) fn set(&self, tid: i32) -> io::Result<()> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        ptrace::set_registers(tid, GENERAL, &bytes)
    }

    /// Where it goes on.
    pub(super) fn counter(&self) -> u64 {
        self.0[processor::COUNTER]
    }

    /// Has it go on elsewhere.
    pub(super) fn go_on_at(&mut self, address: u64) {
        self.0[processor::COUNTER] = address;
    }

    /// The stack pointer.
    pub(super) fn stack(&self) -> u64 {
        self.0[processor::STACK]
    }

    /// By DWARF's numbers.
    pub(super) fn by_number(&self) -> Vec<(u16, u64)> {
        processor::BY_NUMBER.iter().map(|(number, place)| (*number, self.0[*place])).collect()
    }
}

/// The registers that are not general ones, whatever this processor has of them.
pub(super) fn others(tid: i32) -> io::Result<(i32, Vec<u8>)> {
    let mut last = None;
    for set in processor::OTHERS {
        let mut bytes = vec![0; ROOM];
        match ptrace::registers(tid, *set, &mut bytes) {
            Ok(length) => {
                if let Some(length) = processor::whole(*set, bytes.get(..length).unwrap_or(&bytes), ROOM) {
                    bytes.truncate(length);
                    return Ok((*set, bytes));
                }
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("the thread has more registers than are known")))
}
