//! Threads of the process, stopped and let go again. Nothing is lost on the way: signals that come meanwhile are delivered, and a system
//! call in which a thread was is gone on with.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use super::ptrace::{self, Stop};

/// Time for a thread to stop: one that the kernel keeps (in a driver's call, or while its child of vfork runs) takes its time.
const PATIENCE: Duration = Duration::from_secs(5);
/// More threads are not stopped: a process that makes them faster than they are stopped never is.
const MOST_ROUNDS: usize = 1000;

/// A thread that is stopped; it goes on when this is dropped.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tid: i32,
}

impl Drop for Thread {
    fn drop(&mut self) {
        // One that was killed meanwhile is nobody's.
        let _ = ptrace::let_go(self.tid);
    }
}

/// Who stops threads.
#[derive(Debug, Default)]
pub(super) struct Tracer {
    /// Threads that did not stop in time. They will, and are to be let go then.
    late: BTreeSet<i32>,
}

/// Why a thread, or a process, is not stopped.
#[derive(Debug)]
pub(super) enum NotStopped {
    /// It has ended.
    Ended,
    /// The kernel refuses it.
    Refused(io::Error),
    /// This thread does not stop.
    Late(i32),
    /// New threads come faster than they are stopped.
    Growing,
}

impl Tracer {
    /// Stops one thread.
    pub(super) fn stop(&mut self, tid: i32) -> Result<Thread, NotStopped> {
        if !self.late.contains(&tid) {
            ptrace::seize(tid).map_err(|error| match error.raw_os_error() {
                Some(libc::ESRCH) => NotStopped::Ended,
                _ => NotStopped::Refused(error),
            })?;
            if ptrace::interrupt(tid).is_err() {
                return Err(NotStopped::Ended);
            }
        }
        self.late.insert(tid);
        let stopped = wait_until_stopped(tid, Instant::now() + PATIENCE);
        if !matches!(stopped, Ok(None)) {
            self.late.remove(&tid);
        }
        match stopped {
            Ok(Some(true)) => Ok(Thread { tid }),
            Ok(Some(false)) | Err(_) => Err(NotStopped::Ended),
            Ok(None) => Err(NotStopped::Late(tid)),
        }
    }

    /// Stops all threads of a process.
    pub(super) fn stop_all(&mut self, pid: i32) -> Result<Vec<Thread>, NotStopped> {
        let mut all: Vec<Thread> = Vec::new();
        for _ in 0..MOST_ROUNDS {
            let known: BTreeSet<i32> = all.iter().map(|thread| thread.tid).collect();
            let new: Vec<i32> = tids(pid).into_iter().filter(|tid| !known.contains(tid)).collect();
            let mut any = false;
            for tid in new {
                match self.stop(tid) {
                    Ok(thread) => {
                        any = true;
                        all.push(thread);
                    }
                    // The first thread stays in the list when it has ended and others run.
                    Err(NotStopped::Ended) => {}
                    Err(NotStopped::Refused(_)) if has_ended(pid, tid) => {}
                    Err(other) => return Err(other),
                }
            }
            // Those that run may make others; those that are stopped make none.
            if !any {
                return if all.is_empty() { Err(NotStopped::Ended) } else { Ok(all) };
            }
        }
        Err(NotStopped::Growing)
    }

    /// Whether this thread was told to stop and has not yet.
    pub(super) fn is_late(&self, tid: i32) -> bool {
        self.late.contains(&tid)
    }

    /// Lets threads go that have stopped after all. True: there are others.
    pub(super) fn settle(&mut self) -> bool {
        let now = Instant::now();
        self.late.retain(|tid| match wait_until_stopped(*tid, now) {
            Ok(Some(true)) => {
                let _ = ptrace::let_go(*tid);
                false
            }
            Ok(None) => true,
            Ok(Some(false)) | Err(_) => false,
        });
        !self.late.is_empty()
    }
}

/// True: it is stopped. False: it has ended. None: neither by then.
fn wait_until_stopped(tid: i32, until: Instant) -> io::Result<Option<bool>> {
    loop {
        match ptrace::wait(tid, until)? {
            None => return Ok(None),
            Some(Stop::Interrupted) => return Ok(Some(true)),
            Some(Stop::Ended) => return Ok(Some(false)),
            // It is delivered, and the thread stops before the handler's first instruction.
            Some(Stop::Signal(signal)) => ptrace::go_on(tid, signal)?,
            Some(Stop::Syscall) => ptrace::go_on(tid, 0)?,
        }
    }
}

/// The threads of a process.
pub(super) fn tids(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn has_ended(pid: i32, tid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("State:")).is_none_or(|state| state.trim().starts_with(['Z', 'X']))
}
