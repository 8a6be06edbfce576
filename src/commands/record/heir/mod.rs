//! A process beside this one that goes on when this one is killed: it is there from before the command starts, holds what would be
//! lost (see [`gputrace_collectors::heir`]) and sleeps. When it dies there is another one soon, and when it goes on it has one itself.
//!
//! It is no child of this process, so that the command has no sibling that it did not have without us, in a session of its own, so
//! that what kills this process's group or closes its terminal leaves it alone, and has none of the descriptors that this one has,
//! so that nobody waits for the end of a pipe because of it. It is this program, started anew with the same words: a copy of a process
//! with threads could not go on by itself.

mod life;
mod voice;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gputrace_collectors::heir::{farewell, is_gone, pair, paper};
use gputrace_collectors::{Config, Running};
use serde::{Deserialize, Serialize};

use super::metrics::Endpoint;
use crate::launch::brake::Brake;
use crate::launch::session::Session;
use crate::terminal;

pub(crate) use life::live;

/// The descriptors that an heir is given: where its collector speaks, and where stands what it must know.
const VARIABLE: &str = "GPUTRACE_HEIR";
/// So many heirs may come one soon after the other: what kills them may be what they do.
const MOST: u8 = 5;
/// One that lived for so long did not die of that.
const LONG: Duration = Duration::from_secs(60);

/// The heir, as long as this process lives.
pub(super) struct Heir {
    end: Arc<OwnedFd>,
    knowledge: Knowledge,
    /// Stderr, where it is held and is not this process's own.
    stderr: Option<File>,
}

/// What an heir must know.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Knowledge {
    config: Config,
    /// Folder of the session, and the descriptor that holds its lock.
    #[serde(with = "gputrace_collectors::heir::path")]
    session: PathBuf,
    lock: RawFd,
    /// The pid of the collector.
    collector: u32,
    brake: Option<Brake>,
    /// About when the command was started.
    started: SystemTime,
    lives: Lives,
    /// What stderr is, where it is not held.
    lent: Option<voice::Identity>,
    /// Only errors are said.
    quiet: bool,
    /// Where metrics are asked for, and orders are given.
    metrics: Option<Endpoint>,
}

/// How many heirs may still come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Lives {
    left: u8,
    last: SystemTime,
}

impl Lives {
    /// Takes one, if there is one.
    fn take(&mut self, now: SystemTime) -> bool {
        if now.duration_since(self.last).is_ok_and(|age| age >= LONG) {
            self.left = MOST;
        }
        let any = self.left > 0;
        if any {
            (self.left, self.last) = (self.left - 1, now);
        }
        any
    }
}

impl Heir {
    /// Starts it and tells the collector of it, which is to be started. None: there is none here, and nobody goes on.
    pub(super) fn start(
        config: &mut Config,
        session: &Session,
        brake: Option<&Brake>,
        metrics: Option<Endpoint>,
    ) -> Option<Heir> {
        let mut config_of_heir = config.clone();
        // It keeps no folder from being unmounted.
        config_of_heir.trace = std::path::absolute(&config.trace).ok()?;
        let now = SystemTime::now();
        let knowledge = Knowledge {
            config: config_of_heir,
            session: session.root().to_owned(),
            lock: session.lock(),
            collector: 0,
            brake: brake.cloned(),
            started: now,
            lives: Lives { left: MOST, last: now },
            lent: voice::lent_here(),
            quiet: terminal::is_quiet(),
            metrics,
        };
        let heir = Heir::again(knowledge, None)?;
        config.heir = Some(heir.end.clone());
        Some(heir)
    }

    /// Starts one with what the one before knew.
    fn again(mut knowledge: Knowledge, stderr: Option<File>) -> Option<Heir> {
        knowledge.collector = std::process::id();
        if !knowledge.lives.take(SystemTime::now()) {
            return None;
        }
        let end = spawn(&knowledge, stderr.as_ref()).ok()?;
        Some(Heir { end, knowledge, stderr })
    }

    /// Sees whether it lives. Else there is another one soon.
    pub(super) fn watch(&mut self, running: &Running) {
        if is_gone(&self.end)
            && self.knowledge.lives.take(SystemTime::now())
            && let Ok(end) = spawn(&self.knowledge, self.stderr.as_ref())
        {
            running.heir(end.clone());
            self.end = end;
        }
    }
}

impl Drop for Heir {
    /// Whatever came of the run, it needs nobody to go on.
    fn drop(&mut self) {
        farewell(&self.end);
    }
}

/// Starts a process that knows this. Returns the end of the pair by which it is spoken to.
fn spawn(knowledge: &Knowledge, stderr: Option<&File>) -> io::Result<Arc<OwnedFd>> {
    let (ours, theirs) = pair()?;
    let mut paper = paper()?;
    serde_json::to_writer(&paper, knowledge)?;
    paper.flush().and_then(|()| paper.rewind())?;
    let kept = [theirs.as_raw_fd(), paper.as_raw_fd(), knowledge.lock];
    let mut words = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(words.next().unwrap_or_else(|| OsString::from("gputrace"))).args(words);
    command.env(VARIABLE, format!("{} {}", kept[0], kept[1])).current_dir("/");
    if let Some(stderr) = stderr {
        command.stderr(stderr.try_clone()?);
    }
    // SAFETY: system calls only, on descriptors that live until the exec, and on a set of this frame's own.
    unsafe { command.pre_exec(move || leave_family(&kept)) };
    let mut child = command.spawn()?;
    // It has ended at once; as process 1 somebody else may have waited for it.
    let _ = child.wait();
    Ok(Arc::new(ours))
}

/// In the child, before it becomes the program: the heir is a child of this one, which ends. Until it goes on, no signal ends it.
fn leave_family(kept: &[RawFd]) -> io::Result<()> {
    // SAFETY: system calls on numbers and on a set that lives through them; zeros are a valid set.
    unsafe {
        libc::setsid();
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {}
            _ => libc::_exit(0),
        }
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        for fd in kept {
            libc::fcntl(*fd, libc::F_SETFD, 0);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heirs_that_die_one_after_the_other_come_to_an_end_and_one_that_lived_begins_anew() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lives = Lives { left: MOST, last: start };
        let taken = (0..20).filter(|second| lives.take(at(*second))).count();
        assert_eq!(taken, usize::from(MOST));
        assert!(!lives.take(at(60)), "the last one came at 4 s");
        assert!(lives.take(at(64)));
        assert_eq!(lives.left, MOST - 1);
    }
}
