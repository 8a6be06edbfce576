//! How the target ended, and how the launcher ends in turn.

use std::time::Duration;

use gputrace_collectors::ExitStatusInfo;

/// Exit code of gputrace's own failures before the target starts, as `env` and `timeout` have it.
pub(crate) const OWN_FAILURE: i32 = 125;
/// Exit code of a command other than `record` that was called wrongly, as most programs have it.
pub(crate) const USAGE: i32 = 2;
/// The command was found but cannot be executed.
pub(crate) const NOT_EXECUTABLE: i32 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: i32 = 127;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Ending {
    /// From what waitpid wrote, if the process has ended.
    pub(crate) fn of_status(status: i32) -> Option<Ending> {
        if libc::WIFEXITED(status) {
            Some(Ending::Code(libc::WEXITSTATUS(status)))
        } else if libc::WIFSIGNALED(status) {
            Some(Ending::Signal(libc::WTERMSIG(status)))
        } else {
            None
        }
    }

    /// The same for the collector, with the time that the process ran.
    pub(crate) fn info(self, wall: Duration) -> ExitStatusInfo {
        let wall_ns = u64::try_from(wall.as_nanos()).ok();
        match self {
            Ending::Code(code) => ExitStatusInfo { code: Some(code), signal: None, wall_ns },
            Ending::Signal(signal) => ExitStatusInfo { code: None, signal: Some(signal), wall_ns },
        }
    }

    /// What a shell would show in `$?`.
    pub(crate) fn code(self) -> i32 {
        match self {
            Ending::Code(code) => code,
            Ending::Signal(signal) => 128 + signal,
        }
    }

    /// Ends this process in the same way.
    pub(crate) fn become_ours(self) -> ! {
        if let Ending::Signal(signal) = self {
            raise(signal);
        }
        std::process::exit(self.code())
    }
}

/// Ends this process by `signal`, without a core dump of its own; comes back where that does not work: as process 1
/// of a container, which signals do not end.
fn raise(signal: i32) {
    // SAFETY: the structures are plain data, for which zeros are valid (SIG_DFL is zero), and live through the calls.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        #[cfg(target_os = "linux")]
        // A core that is piped to a program ignores the limit, but not this.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &default, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// An error that decides the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: i32,
    message: String,
}

impl Failure {
    /// An error with this exit code.
    pub(crate) fn error(code: i32, message: impl Into<String>) -> anyhow::Error {
        Failure { code, message: message.into() }.into()
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    fn ending(script: &str) -> Option<Ending> {
        Ending::of_status(Command::new("/bin/sh").args(["-c", script]).status().unwrap().into_raw())
    }

    #[test]
    fn codes_and_signals_are_told_apart() {
        assert_eq!(ending("exit 0"), Some(Ending::Code(0)));
        assert_eq!(ending("exit 137"), Some(Ending::Code(137)));
        assert_eq!(ending("kill -TERM $$"), Some(Ending::Signal(libc::SIGTERM)));
        assert_eq!(Ending::of_status(0x137f), None, "stopped is not ended");
    }

    #[test]
    fn a_signal_shows_as_128_and_its_number() {
        assert_eq!(Ending::Signal(libc::SIGKILL).code(), 137);
        assert_eq!(Ending::Code(3).code(), 3);
        let (wall, wall_ns) = (Duration::from_nanos(5), Some(5));
        assert_eq!(Ending::Signal(9).info(wall), ExitStatusInfo { code: None, signal: Some(9), wall_ns });
        assert_eq!(Ending::Code(3).info(wall), ExitStatusInfo { code: Some(3), signal: None, wall_ns });
    }
}
