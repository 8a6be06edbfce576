//! Signals are blocked, and read from a signalfd.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::Signal;

/// The signal by which the launcher is asked to keep what just happened. Programs have uses of their own for the classic ones;
/// this one nothing known uses.
pub(crate) fn dump_signal() -> i32 {
    libc::SIGRTMAX()
}

/// The signals that come, instead of acting on the launcher.
pub(crate) struct Signals {
    fd: OwnedFd,
    leader: bool,
}

impl Signals {
    /// Opens the signalfd for `set`, which is blocked.
    pub(crate) fn open(set: &libc::sigset_t) -> io::Result<Signals> {
        // SAFETY: the set is initialised; the new descriptor belongs to nobody else.
        let fd = unsafe {
            let fd = libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: the calls only ask.
        let leader = unsafe { libc::getsid(0) == libc::getpid() };
        Ok(Signals { fd, leader })
    }

    /// Whether the launcher leads its session.
    pub(crate) fn leader(&self) -> bool {
        self.leader
    }

    /// Waits for at least one signal, at most this long, and returns all that came.
    pub(crate) fn wait(&self, timeout: Duration) -> Vec<Signal> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up: a rest below a millisecond must not become a busy loop.
        let timeout = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        // SAFETY: one structure, as the call is told.
        unsafe { libc::poll(&mut poll, 1, timeout) };
        self.pending()
    }

    /// The signals that have come, without waiting.
    pub(crate) fn pending(&self) -> Vec<Signal> {
        const BYTES: usize = size_of::<libc::signalfd_siginfo>();
        let mut found = Vec::new();
        loop {
            // SAFETY: plain data, for which zeros are valid.
            let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
            // SAFETY: the buffer is as long as the call is told.
            let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), BYTES) };
            if got != BYTES as isize {
                return found;
            }
            found.push(Signal { number: info.ssi_signo as i32, code: info.ssi_code, sender: info.ssi_pid });
        }
    }
}
