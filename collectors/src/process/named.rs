//! Names of threads, as the kernel has them: read while they run.
//!
//! A thread is born with its creator's name and gets its own a moment later, so each is looked at several times, ever
//! less often. The shim asks for none: it would be a system call in a thread whose sandbox may forbid it.

use std::time::{Duration, Instant};

use gputrace_abi::sync::Ordering;

use super::Process;
use crate::kernel;

/// Nobody's threads are looked at more often than this.
const BETWEEN: Duration = Duration::from_millis(50);
/// A thread is looked at when it is found, and then each time three times as long after the last time.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);
/// Threads that are looked at in one go.
const MOST: usize = 512;

/// A thread's name, and when it is looked at next.
pub(super) struct Named {
    pub(super) name: Option<String>,
    due: Instant,
    wait: Duration,
}

impl Default for Named {
    fn default() -> Named {
        Named { name: None, due: Instant::now(), wait: FIRST }
    }
}

impl Process {
    /// Looks at the names of threads that run, when it is time.
    pub(super) fn name_threads(&mut self) {
        let now = Instant::now();
        // In another namespace its numbers are not ours.
        let own = self.segment.view().header().pid.load(Ordering::Relaxed) as i32;
        if self.foreign || own != self.pid || self.named.is_some_and(|at| now < at + BETWEEN) {
            return;
        }
        self.named = Some(now);
        let pid = self.pid;
        let running = self.threads.iter_mut().skip(1).filter(|t| t.is_live() && t.exited.is_none());
        for thread in running.filter(|thread| thread.named.due <= now).take(MOST) {
            if let Some(name) = kernel::thread_name(pid, thread.tid) {
                thread.named.name = Some(name);
            }
            thread.named.due = now + thread.named.wait;
            thread.named.wait = (thread.named.wait * 3).min(LONGEST);
        }
    }
}
