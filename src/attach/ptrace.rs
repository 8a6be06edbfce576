//! The kernel's interface for debuggers, call by call. It is the calling thread's: what one thread seized no other may ask about.

use std::io;
use std::time::{Duration, Instant};

use libc::{c_int, c_uint, c_void};

const GETSIGMASK: c_uint = 0x420a;
const SETSIGMASK: c_uint = 0x420b;
/// Bytes of a set of signals, as the kernel has it.
const SET_BYTES: usize = 8;

/// What became of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is no more.
    Ended,
    /// It was told to stop, or its whole process was.
    Interrupted,
    /// It enters a system call, or leaves it.
    Syscall,
    /// This signal is about to be delivered to it.
    Signal(c_int),
}

fn request(what: c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the callers pass numbers, or memory that is as large as the request says; the kernel checks the thread.
    let done = unsafe { libc::ptrace(what as _, tid, address as *mut c_void, data as *mut c_void) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes this thread the thread's tracer. It runs on, and its signals go on coming.
pub(super) fn seize(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as usize)
}

/// Asks it to stop.
pub(super) fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets it go on, with a signal (0: none).
pub(super) fn go_on(tid: i32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Lets it go on to the next begin or end of a system call, with a signal (0: none).
pub(super) fn to_next_syscall(tid: i32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize)
}

/// Lets it go for good.
pub(super) fn let_go(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, 0)
}

/// Reads a set of its registers; returns how many bytes that has.
pub(super) fn registers(tid: i32, set: c_int, bytes: &mut [u8]) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    request(libc::PTRACE_GETREGSET, tid, set as usize, &raw mut part as usize)?;
    Ok(part.iov_len)
}

/// Writes a set of its registers.
pub(super) fn set_registers(tid: i32, set: c_int, bytes: &[u8]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    request(libc::PTRACE_SETREGSET, tid, set as usize, &raw mut part as usize)
}

/// The signals that it blocks.
pub(super) fn mask(tid: i32) -> io::Result<u64> {
    let mut set = 0u64;
    request(GETSIGMASK, tid, SET_BYTES, &raw mut set as usize)?;
    Ok(set)
}

/// Has it block these signals.
pub(super) fn set_mask(tid: i32, set: u64) -> io::Result<()> {
    request(SETSIGMASK, tid, SET_BYTES, &raw const set as usize)
}

/// What became of it, if anything did.
fn look(tid: i32) -> io::Result<Option<Stop>> {
    let mut status = 0;
    // SAFETY: the kernel writes one number.
    match unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) } {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            gone if gone.raw_os_error() == Some(libc::ECHILD) => Ok(Some(Stop::Ended)),
            error => Err(error),
        },
        _ if !libc::WIFSTOPPED(status) => Ok(Some(Stop::Ended)),
        _ if status >> 16 == libc::PTRACE_EVENT_STOP => Ok(Some(Stop::Interrupted)),
        _ if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 => Ok(Some(Stop::Syscall)),
        _ => Ok(Some(Stop::Signal(libc::WSTOPSIG(status)))),
    }
}

/// Waits until something becomes of it, at most until then.
pub(super) fn wait(tid: i32, until: Instant) -> io::Result<Option<Stop>> {
    let mut pause = Duration::from_micros(20);
    loop {
        if let Some(stop) = look(tid)? {
            return Ok(Some(stop));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
}
