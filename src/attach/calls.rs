//! A stopped thread makes system calls and calls of functions for us, and goes on as if it had not.
//!
//! It runs on a stack of ours, and blocks all signals but those of faults: what comes meanwhile waits in the kernel and is delivered
//! when the thread goes on. A system call that was interrupted is one that returned "to be restarted": the kernel does so where it has
//! delivered the signal that interrupted it, or found that there is none. So all registers are put back at such a place: not at the end of our call, but
//! where the thread stops next as if it were interrupted once more.

use std::io;
use std::time::{Duration, Instant};

use super::ptrace::{self, Stop};
use super::registers::{self, Registers, STUB_END};
use super::threads::Thread;

/// Signals of faults are not blocked: the kernel would take the process's handlers away.
const FAULTS: [i32; 6] = [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS];
/// Time for a call of ours; and for one that does something and is late.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_PATIENCE: Duration = Duration::from_secs(60);

/// Why a call was not made to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("it ended meanwhile")]
    Ended,
    #[error("a function that it was made to call met signal {0}")]
    Fault(i32),
    #[error("a function that it was made to call waits for another thread of it")]
    Late,
    #[error("{0}")]
    Kernel(#[from] io::Error),
}

/// A thread that works for us. Its own state is put back when this is dropped.
pub(super) struct Borrowed {
    thread: Thread,
    own: Registers,
    others: (i32, Vec<u8>),
    mask: u64,
    /// It is where registers may be put back.
    at_rest: bool,
    over: bool,
}

impl Borrowed {
    /// Borrows a thread that was just stopped.
    pub(super) fn new(thread: Thread) -> Result<Borrowed, CallError> {
        let tid = thread.tid;
        let (own, others, mask) = (Registers::of(tid)?, registers::others(tid)?, ptrace::mask(tid)?);
        let faults = FAULTS.iter().fold(0u64, |set, signal| set | 1 << (signal - 1));
        let borrowed = Borrowed { thread, own, others, mask, at_rest: true, over: false };
        ptrace::set_mask(tid, !faults)?;
        Ok(borrowed)
    }

    /// Makes a system call, by the instruction at `at`: what it returned.
    pub(super) fn system_call(&mut self, at: u64, number: i64, arguments: [u64; 6]) -> Result<u64, CallError> {
        let tid = self.thread.tid;
        self.own.for_syscall(at, number, arguments).set(tid)?;
        self.at_rest = false;
        let until = Instant::now() + PATIENCE;
        for _ in 0..2 {
            ptrace::to_next_syscall(tid, 0)?;
            self.next_syscall(until)?;
        }
        match Registers::of(tid)?.of_syscall() {
            error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32).into()),
            value => Ok(value as u64),
        }
    }

    /// Calls a function, by the stub at `stub`, on a stack that ends at `stack`: what it returned.
    pub(super) fn call(&mut self, stub: u64, stack: u64, function: u64, arguments: [u64; 4]) -> Result<u64, CallError> {
        let tid = self.thread.tid;
        self.own.for_call(stub, stack, function, arguments).set(tid)?;
        self.at_rest = false;
        let begin = Instant::now();
        ptrace::to_next_syscall(tid, 0)?;
        let (mut entering, mut number) = (false, 0);
        loop {
            match self.next_syscall(begin + PATIENCE) {
                Ok(()) => {}
                // It waits for a lock: whoever has that waits for this thread, or takes his time.
                Err(CallError::Late) if entering && number == libc::SYS_futex => return Err(CallError::Late),
                Err(CallError::Late) if begin.elapsed() < MOST_PATIENCE => continue,
                Err(error) => return Err(error),
            }
            entering = !entering;
            let now = Registers::of(tid)?;
            if entering && now.counter() == stub + STUB_END as u64 {
                registers::leave_out(tid)?;
                ptrace::to_next_syscall(tid, 0)?;
                self.next_syscall(Instant::now() + PATIENCE)?;
                return Ok(now.returned());
            }
            number = now.number();
            ptrace::to_next_syscall(tid, 0)?;
        }
    }

    fn next_syscall(&mut self, until: Instant) -> Result<(), CallError> {
        let tid = self.thread.tid;
        loop {
            match ptrace::wait(tid, until)? {
                Some(Stop::Syscall) => return Ok(()),
                // Somebody stops the whole process: our call goes on, and the thread stops when it is let go.
                Some(Stop::Interrupted) => ptrace::to_next_syscall(tid, 0)?,
                Some(Stop::Signal(signal)) if FAULTS.contains(&signal) => return Err(CallError::Fault(signal)),
                // One that nobody can block.
                Some(Stop::Signal(signal)) => ptrace::to_next_syscall(tid, signal)?,
                Some(Stop::Ended) => return Err(CallError::Ended),
                None => return Err(CallError::Late),
            }
        }
    }

    /// Puts the thread's own state back, and lets it go.
    pub(super) fn give_back(mut self) -> Result<(), CallError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), CallError> {
        let tid = self.thread.tid;
        self.over = true;
        if !self.at_rest {
            // From where it is it comes to a place where signals are looked for, before it executes anything.
            ptrace::interrupt(tid)?;
            let _ = ptrace::go_on(tid, 0);
            loop {
                match ptrace::wait(tid, Instant::now() + PATIENCE)? {
                    Some(Stop::Interrupted) => break,
                    Some(Stop::Signal(signal)) if !FAULTS.contains(&signal) => ptrace::go_on(tid, signal)?,
                    Some(Stop::Syscall | Stop::Signal(_)) => ptrace::go_on(tid, 0)?,
                    Some(Stop::Ended) => return Err(CallError::Ended),
                    None => return Err(CallError::Late),
                }
            }
        }
        ptrace::set_registers(tid, self.others.0, &self.others.1)?;
        self.own.set(tid)?;
        ptrace::set_mask(tid, self.mask)?;
        Ok(())
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if !self.over {
            // Why it is dropped is said already.
            let _ = self.put_back();
        }
    }
}
