//! The child shares this process's memory until its exec (CLONE_VFORK), as posix_spawn's does: copying the page tables
//! took 0.5 ms of a short run.

use std::io;

use super::Program;
use crate::launch::inherited::Inherited;

impl Program {
    /// Starts the program as a child and returns its pid once its exec has succeeded.
    pub(crate) fn spawn(&self, inherited: &Inherited) -> io::Result<u32> {
        // SAFETY: an anonymous mapping at a place of the kernel's choice.
        let stack = unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), STACK_BYTES, protection, flags, -1, 0)
        };
        if stack == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut birth = Birth { program: self, inherited, error: 0 };
        // SAFETY: the child runs `become_program` on the fresh stack while this thread stands still, so that what
        // `birth` refers to outlives it; that function neither allocates nor locks.
        let pid = unsafe {
            let top = stack.byte_add(STACK_BYTES);
            libc::clone(
                become_program,
                top,
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut birth).cast(),
            )
        };
        let failed = io::Error::last_os_error();
        // SAFETY: the child has a memory of its own by now, or has ended. The error was written by the child, behind
        // the compiler's back.
        let error = unsafe {
            libc::munmap(stack, STACK_BYTES);
            (&raw const birth.error).read_volatile()
        };
        if pid < 0 {
            return Err(failed);
        }
        if error != 0 {
            // SAFETY: the child is ours and has ended or is about to.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(pid as u32)
    }
}

/// What the child needs while it still shares this process's memory.
struct Birth<'a> {
    program: &'a Program,
    inherited: &'a Inherited,
    /// errno of a failed exec.
    error: i32,
}

/// More than enough for a few system calls.
const STACK_BYTES: usize = 64 << 10;

extern "C" fn become_program(birth: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` gave the address of its own variable and waits; only this child touches it meanwhile.
    let birth = unsafe { &mut *birth.cast::<Birth<'_>>() };
    birth.inherited.restore();
    birth.error = birth.program.exec().raw_os_error().unwrap_or(libc::EIO);
    // SAFETY: _exit runs nothing of ours.
    unsafe { libc::_exit(127) }
}
