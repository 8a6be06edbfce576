//! Signals to the launcher, and which of them the target has to be told about.
//!
//! The launcher takes every signal that it passes on out of a descriptor. What the terminal sends goes to
//! the whole process group, so the target has it already; what a process sends to the launcher's pid reached only the
//! launcher. The kernel's `si_code` tells the two apart: above zero the kernel sent it.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub(crate) use linux::{Signals, dump_signal};
#[cfg(target_os = "macos")]
pub(crate) use macos::{Signals, dump_signal};

use super::processes;

/// Signals that a fault in the launcher itself raises, and that must keep ending it.
const FAULTS: [i32; 6] = [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// A signal as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) number: i32,
    /// Zero or below: sent by a process.
    pub(crate) code: i32,
    /// Pid of the sender, 0 if it is in no pid namespace of ours.
    pub(crate) sender: u32,
}

/// What to do about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Send it to the target.
    Forward,
    /// The target has it already, or it is none of its business.
    Nothing,
    /// The target must go on if it is stopped.
    Continue,
    /// The terminal stops the job: once the target has stopped, so does the launcher.
    StopTogether,
    /// A child changed its state.
    Child,
}

/// Decides about a signal. `leader`: the launcher leads its session, so that on a hang-up the kernel tells it alone.
pub(crate) fn duty(signal: Signal, leader: bool, from_target: impl Fn(u32) -> bool) -> Duty {
    let by_process = signal.code <= 0;
    match signal.number {
        libc::SIGCHLD => Duty::Child,
        // What the target or a child of it sends to its group (`kill 0`) has reached the target too.
        _ if by_process && signal.sender != 0 && from_target(signal.sender) => Duty::Nothing,
        // A shell's `fg` sends this to the whole group.
        libc::SIGCONT => Duty::Continue,
        _ if by_process => Duty::Forward,
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Duty::StopTogether,
        libc::SIGHUP if leader => Duty::Forward,
        // A timer that was set before the launcher took the target's place; a timer does not pass a fork.
        libc::SIGALRM => Duty::Forward,
        _ => Duty::Nothing,
    }
}

/// The set that must be blocked before the first thread is started.
pub(crate) fn wanted() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data that sigfillset fills; the calls only write to it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for signal in FAULTS.into_iter().chain([libc::SIGPIPE, libc::SIGXFSZ, libc::SIGPROF]) {
            libc::sigdelset(&mut set, signal);
        }
        set
    }
}

/// Sends a signal to the target.
pub(crate) fn send(pid: u32, signal: i32) {
    // SAFETY: the pid is a child that has not been waited for, so it is nobody else's yet.
    unsafe { libc::kill(pid as i32, signal) };
}

/// Whether `sender` is the target or descends from it.
pub(crate) fn is_of(target: u32) -> impl Fn(u32) -> bool {
    move |sender| processes::descends(sender, target)
}

/// Stops the launcher by `signal` as the terminal would have; returns when it is continued.
pub(crate) fn stop_self(signal: i32) {
    // SAFETY: the sets are plain data filled by the calls. The signal's disposition is the inherited one: where that
    // is to ignore it, nothing happens, as nothing would have happened to the target's parent.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: i32 = 128;

    fn by(number: i32, code: i32, sender: u32) -> Duty {
        duty(Signal { number, code, sender }, false, |pid| pid == 7)
    }

    #[test]
    fn what_a_process_sent_is_passed_on_and_what_the_terminal_sent_is_not() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGWINCH, libc::SIGTSTP, 40] {
            assert_eq!(by(signal, libc::SI_USER, 99), Duty::Forward, "{signal}");
            assert_eq!(by(signal, libc::SI_QUEUE, 99), Duty::Forward, "{signal}");
        }
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGWINCH] {
            assert_eq!(by(signal, KERNEL, 0), Duty::Nothing, "{signal}");
        }
    }

    #[test]
    fn what_the_targets_own_tree_sent_to_its_group_is_not_sent_twice() {
        assert_eq!(by(libc::SIGTERM, libc::SI_USER, 7), Duty::Nothing);
        assert_eq!(by(libc::SIGTERM, libc::SI_USER, 0), Duty::Forward);
    }

    #[test]
    fn stops_and_continues_are_followed_and_children_noticed() {
        assert_eq!(by(libc::SIGTSTP, KERNEL, 0), Duty::StopTogether);
        assert_eq!(by(libc::SIGCONT, libc::SI_USER, 99), Duty::Continue);
        assert_eq!(by(libc::SIGCHLD, 1, 7), Duty::Child);
    }

    #[test]
    fn a_session_leader_passes_on_the_hang_up_that_only_it_was_told() {
        let hang_up = Signal { number: libc::SIGHUP, code: KERNEL, sender: 0 };
        assert_eq!(duty(hang_up, true, |_| false), Duty::Forward);
        assert_eq!(by(libc::SIGALRM, KERNEL, 0), Duty::Forward);
    }
}
