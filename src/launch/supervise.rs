//! The launcher while the target runs: waits for its end, passes on signals, stops and goes on with it.
//!
//! One loop in the main thread over the signalfd, which also tells of children. As process 1 of a container the
//! launcher reaps orphans as well; otherwise it never makes itself their parent, because a program may count on
//! its orphans going to init.

use std::path::Path;
use std::time::{Duration, Instant};

use super::exit::Ending;
use super::processes;
use super::signals::{self, Duty, Signals};

/// SIGTERM or Ctrl-C may add this much to the exit.
pub(crate) const HURRIED: Duration = Duration::from_secs(2);
/// How often survivors are looked at during the grace period.
const LOOK: Duration = Duration::from_millis(20);

/// The target and what has been seen of it.
pub(crate) struct Supervisor<'a> {
    signals: &'a Signals,
    target: u32,
    /// Process 1 reaps.
    init: bool,
    /// A stop from the terminal that the target has not yet followed.
    stop: Option<i32>,
    /// The target stands still.
    stopped: bool,
    /// Signals that are the launcher's own and that the target is not told of.
    own: Vec<i32>,
    /// Those of them that came.
    asked: Vec<i32>,
    /// When SIGINT and SIGTERM came, the last two.
    interrupts: [Option<Instant>; 2],
}

impl<'a> Supervisor<'a> {
    /// `own`: signals that are for the launcher alone.
    pub(crate) fn new(signals: &'a Signals, target: u32, own: Vec<i32>) -> Supervisor<'a> {
        let init = std::process::id() == 1;
        Supervisor { signals, target, init, stop: None, stopped: false, own, asked: Vec::new(), interrupts: [None; 2] }
    }

    /// Waits for the target's end; calls `tick` after the time that it returned, first after `first`, and when signals
    /// of the launcher's own came, which it is told.
    pub(crate) fn until_end(&mut self, first: Duration, mut tick: impl FnMut(&[i32]) -> Duration) -> Ending {
        let mut next = Instant::now() + first;
        loop {
            self.take_signals(next.saturating_duration_since(Instant::now()));
            if let Some(ending) = self.take_children() {
                return ending;
            }
            if self.stopped
                && let Some(signal) = self.stop.take()
            {
                signals::stop_self(signal);
                self.stopped = false;
            }
            let asked = std::mem::take(&mut self.asked);
            if !asked.is_empty() || Instant::now() >= next {
                next = Instant::now() + tick(&asked);
            }
        }
    }

    fn take_signals(&mut self, timeout: Duration) {
        for signal in self.signals.wait(timeout) {
            self.note_interrupt(signal.number);
            if self.own.contains(&signal.number) {
                self.asked.push(signal.number);
                continue;
            }
            match signals::duty(signal, self.signals.leader(), signals::is_of(self.target)) {
                Duty::Forward => signals::send(self.target, signal.number),
                Duty::StopTogether => self.stop = Some(signal.number),
                Duty::Continue => {
                    self.stop = None;
                    if processes::stat(self.target).is_some_and(|stat| stat.state == b'T') {
                        signals::send(self.target, libc::SIGCONT);
                    }
                }
                Duty::Child | Duty::Nothing => {}
            }
        }
    }

    fn note_interrupt(&mut self, signal: i32) {
        if signal == libc::SIGINT || signal == libc::SIGTERM {
            self.interrupts = [self.interrupts[1], Some(Instant::now())];
        }
    }

    /// What children have done; the target's end if it has ended.
    fn take_children(&mut self) -> Option<Ending> {
        let whom = if self.init { -1 } else { self.target as i32 };
        loop {
            let mut status = 0;
            // SAFETY: the status lives through the call. Only process 1 waits for children that it did not start.
            let pid = unsafe { libc::waitpid(whom, &mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
            if pid <= 0 {
                return None;
            }
            if pid as u32 != self.target {
                continue;
            }
            if libc::WIFSTOPPED(status) {
                self.stopped = true;
            } else if libc::WIFCONTINUED(status) {
                self.stopped = false;
            } else if let Some(ending) = Ending::of_status(status) {
                return Some(ending);
            }
        }
    }

    /// After the target's end: waits until no process refers to the session, at most for `grace`. The survivors.
    pub(crate) fn wait_for_descendants(&mut self, session: &Path, grace: Duration) -> Vec<u32> {
        let deadline = Instant::now() + grace;
        loop {
            let survivors = processes::referring_to(session, self.target);
            let left = deadline.saturating_duration_since(Instant::now());
            if survivors.is_empty() || left.is_zero() || self.is_hurried() {
                return survivors;
            }
            for signal in self.signals.wait(left.min(LOOK)) {
                self.note_interrupt(signal.number);
                if signal.number == libc::SIGINT || signal.number == libc::SIGTERM {
                    return survivors;
                }
            }
            self.reap_orphans();
        }
    }

    fn reap_orphans(&self) {
        // SAFETY: a null status is allowed. Only process 1 waits for children that it did not start.
        while self.init && unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
    }

    /// SIGTERM or Ctrl-C came not long ago: the end must not take longer than [`HURRIED`].
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupts[1].is_some_and(|at| at.elapsed() < HURRIED)
    }

    /// They came twice: the summary is not wanted.
    pub(crate) fn is_hurried(&self) -> bool {
        self.is_interrupted() && self.interrupts[0].is_some_and(|at| at.elapsed() < HURRIED)
    }

    /// Whether SIGTERM or Ctrl-C came since the last look, after the target's end.
    pub(crate) fn is_told_to_end(&mut self, timeout: Duration) -> bool {
        let came = self.signals.wait(timeout);
        came.iter().any(|signal| signal.number == libc::SIGINT || signal.number == libc::SIGTERM)
    }
}
