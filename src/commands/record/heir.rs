//! A process beside this one that goes on when this one is killed: it is there from before the command starts, holds what would be
//! lost (see [`gputrace_collectors::heir`]) and sleeps.
//!
//! It is no child of this process, so that the command has no sibling that it did not have without us, in a session of its own, so
//! that what kills this process's group or closes its terminal leaves it alone, and has none of the descriptors that this one has,
//! so that nobody waits for the end of a pipe because of it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, ptr, thread};

use gputrace_collectors::heir::{farewell, pair, wait};
use gputrace_collectors::{Config, Manifest, Running, take_over};

use super::stay::SEAL;
use crate::analysis::summary;
use crate::launch::processes;
use crate::launch::session::Session;
use crate::render;

/// How often it is looked whether any process of the session is left.
const LOOK: Duration = Duration::from_millis(100);

/// The heir, as long as this process lives.
pub(super) struct Heir(Arc<OwnedFd>);

impl Heir {
    /// Starts it and tells the collector of it. This process has one thread as yet. None: there is none here, and nobody goes on.
    pub(super) fn start(config: &mut Config, session: &Session) -> Option<Heir> {
        let (ours, theirs) = pair().ok()?;
        // SAFETY: this process has no other thread, so the child has all that this one has, whole.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: system calls without pointers; the first child ends here, the second one in `live`.
            unsafe {
                libc::setsid();
                if libc::fork() != 0 {
                    libc::_exit(0);
                }
            }
            drop(ours);
            live(&theirs, config, session);
            // SAFETY: nothing of the parent's is to be ended by this copy of it.
            unsafe { libc::_exit(0) };
        }
        if child < 0 {
            return None;
        }
        // SAFETY: our own child, which ends at once.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
        let ours = Arc::new(ours);
        config.heir = Some(ours.clone());
        Some(Heir(ours))
    }
}

impl Drop for Heir {
    /// Whatever came of the run, it needs nobody to go on.
    fn drop(&mut self) {
        farewell(&self.0);
    }
}

/// What the heir does.
fn live(collector: &OwnedFd, config: &Config, session: &Session) {
    let mut config = config.clone();
    // It keeps no folder from being unmounted.
    config.trace = std::path::absolute(&config.trace).unwrap_or(config.trace);
    let _ = std::env::set_current_dir("/");
    leave_behind(&[collector.as_raw_fd(), session.lock()]);
    take_name();
    let Some(left) = wait(collector) else { return };
    // From now on it is as any other process: what ends it, ends it.
    // SAFETY: plain data, for which zeros are valid: the empty set.
    unsafe {
        let nothing: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &nothing, ptr::null_mut());
    }
    let trace = config.trace.clone();
    // What stands in its way is in the trace's manifest, or recover says it: nobody reads its stderr.
    let Ok(running) = take_over(config, left) else { return };
    if let Some(manifest) = go_on(running, session) {
        summarise(&trace, manifest);
    }
    session.remove();
}

/// Is told from the process that it waits for.
#[cfg(target_os = "linux")]
fn take_name() {
    // SAFETY: a name that ends in a zero byte.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"gputrace-heir".as_ptr()) };
}

/// There is no heir there.
#[cfg(target_os = "macos")]
fn take_name() {}

/// Collects until no process of the session is left.
fn go_on(running: Running, session: &Session) -> Option<Manifest> {
    let mut empty = 0;
    while empty < 2 {
        thread::sleep(LOOK);
        let own = std::process::id();
        let any = processes::referring_to(session.root(), 0).iter().any(|pid| *pid != own);
        empty = if any { 0 } else { empty + 1 };
    }
    running.finish(None, Instant::now() + SEAL).ok()
}

fn summarise(trace: &Path, manifest: Manifest) {
    if let Ok(text) = summary::at_end(trace, Some(manifest)) {
        let _ = fs::write(trace.join("summary.txt"), render::summary(text.trim_end()));
    }
}

/// Closes all descriptors but these and the first three, which lead nowhere from now on.
fn leave_behind(kept: &[i32]) {
    let listed = |path: &str| -> Option<Vec<i32>> {
        let entries = fs::read_dir(path).ok()?;
        Some(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    };
    for fd in listed("/dev/fd").or_else(|| listed("/proc/self/fd")).unwrap_or_default() {
        if fd > 2 && !kept.contains(&fd) {
            // SAFETY: nothing in this process uses it any more.
            unsafe { libc::close(fd) };
        }
    }
    // SAFETY: a path that ends in a zero byte, and numbers.
    unsafe {
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in 0..3 {
            libc::dup2(nowhere, fd);
        }
        if nowhere > 2 {
            libc::close(nowhere);
        }
    }
}
