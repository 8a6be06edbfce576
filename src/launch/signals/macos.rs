//! A handler writes each signal into a pipe, with its sender: the kernel of macOS has no descriptor that says who sent one.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use super::Signal;

/// The writing end of the pipe, for the handler; it stays open as long as the process.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// Signals have numbers below this.
const SIGNALS: i32 = 32;
/// Number and sender of a signal, as the handler writes them.
const BYTES: usize = 8;

/// The signal by which the launcher is asked to keep what just happened: there are none in real time here.
pub(crate) fn dump_signal() -> i32 {
    libc::SIGINFO
}

/// The signals that come, instead of acting on the launcher.
pub(crate) struct Signals {
    pipe: PipeReader,
    leader: bool,
}

impl Signals {
    /// Has the signals of `set`, which is blocked, written into a pipe from now on.
    pub(crate) fn open(set: &libc::sigset_t) -> io::Result<Signals> {
        let (pipe, writer) = io::pipe()?;
        let writer = OwnedFd::from(writer);
        for end in [pipe.as_raw_fd(), writer.as_raw_fd()] {
            // SAFETY: a descriptor of ours and numbers. A handler must not wait, nor must who looks for signals.
            unsafe { libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK) };
        }
        PIPE.store(writer.into_raw_fd(), Ordering::Relaxed);
        // SAFETY: the structures are plain data, for which zeros are valid, and live through the calls. The handler keeps
        // to what handlers may do. An exec gives the target the default where we have a handler.
        let leader = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigfillset(&mut action.sa_mask);
            for signal in (1..SIGNALS).filter(|signal| libc::sigismember(set, *signal) == 1) {
                let mut old: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut old);
                // What is ignored stays so in the target, too.
                if old.sa_sigaction != libc::SIG_IGN {
                    libc::sigaction(signal, &action, std::ptr::null_mut());
                }
            }
            libc::pthread_sigmask(libc::SIG_UNBLOCK, set, std::ptr::null_mut());
            libc::getsid(0) == libc::getpid()
        };
        Ok(Signals { pipe, leader })
    }

    /// Whether the launcher leads its session.
    pub(crate) fn leader(&self) -> bool {
        self.leader
    }

    /// Waits for at least one signal, at most this long, and returns all that came.
    pub(crate) fn wait(&self, timeout: Duration) -> Vec<Signal> {
        let mut poll = libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up: a rest below a millisecond must not become a busy loop.
        let timeout = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        // SAFETY: one structure, as the call is told.
        unsafe { libc::poll(&mut poll, 1, timeout) };
        self.pending()
    }

    /// The signals that have come, without waiting.
    pub(crate) fn pending(&self) -> Vec<Signal> {
        let mut found = Vec::new();
        let mut came = [0u8; BYTES];
        while (&self.pipe).read(&mut came).is_ok_and(|bytes| bytes == BYTES) {
            let both = u64::from_ne_bytes(came);
            let (number, sender) = (both as u32 as i32, (both >> 32) as u32);
            // What the terminal sends has no sender.
            found.push(Signal { number, code: i32::from(sender == 0), sender });
        }
        found
    }
}

extern "C" fn note(number: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure; the write is of a local, and errno stays what it was.
    unsafe {
        let errno = *libc::__error();
        let sender = (*info).si_pid as u32;
        let both = u64::from(number as u32) | u64::from(sender) << 32;
        libc::write(PIPE.load(Ordering::Relaxed), (&raw const both).cast(), BYTES);
        *libc::__error() = errno;
    }
}
