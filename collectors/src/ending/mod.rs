//! How a process ended that is nobody's child here.
//!
//! Only a parent is told. But a process that has ended and was not waited for yet shows its status in /proc, and since
//! Linux 6.15 a descriptor of a process gives it afterwards. On an older kernel, where the parent was faster than the
//! collector, the process's own word counts: what it gave to exit. Then a signal that ended it stays unknown. macOS
//! tells nobody but the parent.

#[cfg(target_os = "linux")]
mod linux;

use std::os::fd::OwnedFd;

use gputrace_abi::layout::SAID_EXIT;

#[cfg(target_os = "linux")]
use linux::status;

use crate::manifest::ExitStatusInfo;

/// The number that a process gave to exit or _exit ([`SAID_EXIT`]), at this moment. A process that began a call later did
/// not end then: a child of vfork did, which shares its memory.
pub(crate) fn word(said: u32, at: u64, latest: u64) -> Option<i32> {
    (said & SAID_EXIT != 0 && latest <= at).then_some((said & 0xff) as i32)
}

/// How the process of this descriptor ended, which left this word about it. Both are none when nobody knows, and for one
/// that runs on as another program.
pub(crate) fn of(pidfd: Option<&OwnedFd>, pid: i32, word: Option<i32>) -> ExitStatusInfo {
    let exited = |code| ExitStatusInfo { code: Some(code), ..ExitStatusInfo::default() };
    match pidfd.and_then(|pidfd| status(pidfd, pid)) {
        Some(status) if libc::WIFSIGNALED(status) => {
            ExitStatusInfo { signal: Some(libc::WTERMSIG(status)), ..ExitStatusInfo::default() }
        }
        Some(status) => exited(libc::WEXITSTATUS(status)),
        None => word.map_or_else(ExitStatusInfo::default, exited),
    }
}

/// The kernel's word: it has none for others than the parent.
#[cfg(target_os = "macos")]
fn status(_: &OwnedFd, _: i32) -> Option<i32> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::process::{Child, Command};

    fn pidfd(child: &Child) -> OwnedFd {
        // SAFETY: numbers only; a descriptor that the call returns is ours.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, child.id(), 0);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd as i32)
        }
    }

    fn ended(fd: &OwnedFd) {
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the kernel reads and writes one entry.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, -1) }, 1);
    }

    #[test]
    fn a_process_that_nobody_waited_for_shows_how_it_ended() {
        for (script, code, signal) in [("exit 7", Some(7), None), ("kill -SEGV $$", None, Some(libc::SIGSEGV))] {
            let mut child = Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
            let fd = pidfd(&child);
            ended(&fd);
            let known = ExitStatusInfo { code, signal, ..ExitStatusInfo::default() };
            assert_eq!(of(Some(&fd), child.id() as i32, None), known, "{script}");
            child.wait().unwrap();
            // Afterwards the kernel says the same, or nothing where it is older.
            let later = of(Some(&fd), child.id() as i32, None);
            assert!(later == known || later == ExitStatusInfo::default(), "{later:?}");
        }
    }

    #[test]
    fn the_word_of_a_child_of_vfork_is_not_its_parents() {
        assert_eq!(word(SAID_EXIT | 7, 100, 99), Some(7));
        assert_eq!(word(SAID_EXIT | 127, 100, 101), None);
        assert_eq!(word(0, 0, 0), None);
    }

    #[test]
    fn what_a_process_said_counts_only_where_the_kernel_is_silent() {
        assert_eq!(of(None, 0, Some(3)).code, Some(3));
        assert_eq!(of(None, 0, None), ExitStatusInfo::default());
        let mut child = Command::new("/bin/sh").args(["-c", "kill -KILL $$"]).spawn().unwrap();
        let fd = pidfd(&child);
        ended(&fd);
        let known = ExitStatusInfo { signal: Some(libc::SIGKILL), ..ExitStatusInfo::default() };
        assert_eq!(of(Some(&fd), child.id() as i32, Some(0)), known);
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_runs_has_not_ended() {
        let mut child = Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let fd = pidfd(&child);
        assert_eq!(of(Some(&fd), child.id() as i32, None), ExitStatusInfo::default());
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
