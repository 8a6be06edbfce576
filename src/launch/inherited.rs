//! What this process was given at its start and the target must be given in turn.
//!
//! Rust's start-up code opens /dev/null in place of closed standard descriptors and ignores SIGPIPE before `main`; the
//! launcher itself blocks signals. The target must see none of that, so the state is noted before `main` runs and put
//! back between fork and exec.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Disposition of SIGPIPE before Rust's start-up code.
static SIGPIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// Bit n: standard descriptor n was closed.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// The loader runs this before `main`.
// SAFETY: the section holds addresses of functions, and this is one.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func,mod_init_funcs"))]
#[used]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    SIGPIPE.store(disposition(libc::SIGPIPE), Ordering::Relaxed);
    for fd in 0..3 {
        // SAFETY: F_GETFD only asks; a closed descriptor is an answer, not a fault.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

fn disposition(signal: i32) -> usize {
    // SAFETY: sigaction is plain data, for which zeros are valid; a null new action only asks.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old);
        old.sa_sigaction
    }
}

/// Whether a signal does nothing to us.
pub(crate) fn is_ignored(signal: i32) -> bool {
    disposition(signal) == libc::SIG_IGN
}

fn set_disposition(signal: i32, to: usize) {
    // SAFETY: as above; the only handlers that pass through here are SIG_DFL and SIG_IGN.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = to;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// Gives commands that only print the usual end when their reader goes away, instead of an error.
pub(crate) fn let_sigpipe_end_us() {
    set_disposition(libc::SIGPIPE, libc::SIG_DFL);
}

/// The state to be put back in the target.
pub(crate) struct Inherited {
    mask: libc::sigset_t,
    /// Signals whose disposition the launcher changes, with what they had.
    dispositions: [(i32, usize); 3],
    files: libc::rlimit,
}

impl Inherited {
    /// Notes the state and prepares the launcher: signals that it passes on are blocked in all its later threads, its
    /// child's end can be waited for, and a file that grows too large is an error and no signal.
    pub(crate) fn note_and_block(blocked: &libc::sigset_t) -> Inherited {
        let dispositions = [
            (libc::SIGPIPE, SIGPIPE.load(Ordering::Relaxed)),
            (libc::SIGCHLD, disposition(libc::SIGCHLD)),
            (libc::SIGXFSZ, disposition(libc::SIGXFSZ)),
        ];
        set_disposition(libc::SIGCHLD, libc::SIG_DFL);
        set_disposition(libc::SIGXFSZ, libc::SIG_IGN);
        // SAFETY: both structures are plain data, for which zeros are valid, and live through the calls.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, blocked, &mut mask);
            let mut files: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut files);
            Inherited { mask, dispositions, files }
        }
    }

    /// Puts everything back. Runs in the child between fork and exec: system calls only, no allocation.
    pub(crate) fn restore(&self) {
        let closed = CLOSED.load(Ordering::Relaxed);
        for fd in (0..3).filter(|fd| closed & (1 << fd) != 0) {
            // SAFETY: the descriptor is /dev/null, opened by Rust's start-up code, and this process is about to exec.
            unsafe { libc::close(fd) };
        }
        for (signal, disposition) in self.dispositions {
            set_disposition(signal, disposition);
        }
        // SAFETY: the structures were filled by the kernel.
        unsafe {
            libc::setrlimit(libc::RLIMIT_NOFILE, &self.files);
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, std::ptr::null_mut());
        }
    }
}
