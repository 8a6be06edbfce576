//! What the heir does: it sleeps until its collector is killed, and then is the collector.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{ptr, thread};

use gputrace_collectors::heir::wait;
use gputrace_collectors::recover::TakeOverError;
use gputrace_collectors::{Manifest, Running, take_over};

use super::voice::Voice;
use super::{Heir, Knowledge, VARIABLE};
use crate::analysis::summary;
use crate::commands::record::metrics;
use crate::commands::record::stay::SEAL;
use crate::launch::brake::CURE;
use crate::launch::exit::Ending;
use crate::launch::{processes, trace_folder};
use crate::render;

/// How often it is looked whether any process of the session is left.
const LOOK: Duration = Duration::from_millis(100);

/// The heir's life. None: this process is none.
pub(crate) fn live() -> Option<Ending> {
    let given = std::env::var(VARIABLE).ok()?;
    let (socket, paper) = given.split_once(' ')?;
    let (socket, paper): (RawFd, RawFd) = (socket.parse().ok()?, paper.parse().ok()?);
    // SAFETY: whoever started this process left it these two, and nothing here has opened any. Numbers that lead nowhere fail below.
    let (socket, paper) = unsafe { (OwnedFd::from_raw_fd(socket), File::from_raw_fd(paper)) };
    let knowledge: Knowledge = serde_json::from_reader(&paper).ok()?;
    drop(paper);
    let voice = Voice::new(&knowledge.session, knowledge.lent);
    leave_behind(&[socket.as_raw_fd(), knowledge.lock, voice.descriptor()]);
    take_name(c"gputrace-heir");
    sleep_and_go_on(&socket, knowledge, &voice);
    Some(Ending::Code(0))
}

fn sleep_and_go_on(collector: &OwnedFd, knowledge: Knowledge, voice: &Voice) {
    let Some(left) = wait(collector) else { return };
    // From now on it is as any other process of gputrace: what ends it, ends it.
    take_name(c"gputrace");
    // SAFETY: plain data, for which zeros are valid: the empty set.
    unsafe {
        let nothing: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &nothing, ptr::null_mut());
    }
    let mut config = knowledge.config.clone();
    let (session, trace) = (knowledge.session.clone(), config.trace.clone());
    let mut heir = Heir::again(knowledge.clone(), voice.held());
    if let Some(heir) = &heir {
        left.hand_on(&heir.end);
        config.heir = Some(heir.end.clone());
    }
    let (dead, own, shown) = (knowledge.collector, std::process::id(), trace.display());
    let running = match take_over(config, left) {
        Ok(running) => running,
        Err(TakeOverError::Ended) => {
            until_empty(&session, || {});
            return remove(&session);
        }
        Err(error) => {
            voice.say(&format!(
                "gputrace (process {dead}) was killed, and process {own} cannot go on: {error}; gputrace recover {shown} \
                 makes the trace whole"
            ));
            return;
        }
    };
    voice.say(&format!(
        "gputrace (process {dead}) was killed, and process {own} goes on; the summary will be in {shown}/summary.txt"
    ));
    let metrics = metrics::go_on(knowledge.metrics.clone(), &running, &knowledge.config.session)
        .inspect_err(|error| voice.say(&format!("metrics are told no more: {error}")));
    if let Some(manifest) = go_on(running, &session, (voice, knowledge.quiet), &mut heir) {
        note_death(&knowledge, &manifest, voice);
        summarise(&trace, manifest);
    }
    drop(metrics);
    remove(&session);
}

/// Is told from the process that it waits for, until it takes its place.
#[cfg(target_os = "linux")]
fn take_name(name: &CStr) {
    // SAFETY: a name that ends in a zero byte.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// There is no heir there.
#[cfg(target_os = "macos")]
fn take_name(_: &CStr) {}

/// Collects until no process of the session is left.
fn go_on(
    running: Running,
    session: &Path,
    (voice, quiet): (&Voice, bool),
    heir: &mut Option<Heir>,
) -> Option<Manifest> {
    let warnings = running.warnings();
    let say = || {
        while let Some(warning) = warnings.take() {
            // Who wants to hear of errors alone finds it in the trace.
            if !quiet {
                voice.say(&warning);
            }
        }
    };
    until_empty(session, || {
        say();
        heir.iter_mut().for_each(|heir| heir.watch(&running));
    });
    running.finish(None, Instant::now() + SEAL).ok()
}

/// Waits until no process refers to the session.
fn until_empty(session: &Path, mut meanwhile: impl FnMut()) {
    let (mut empty, own) = (0, std::process::id());
    while empty < 2 {
        thread::sleep(LOOK);
        meanwhile();
        let any = processes::referring_to(session, 0).iter().any(|pid| *pid != own);
        empty = if any { 0 } else { empty + 1 };
    }
}

fn remove(session: &Path) {
    let _ = fs::remove_dir_all(session);
}

/// A death counts whoever sees it.
fn note_death(knowledge: &Knowledge, manifest: &Manifest, voice: &Voice) {
    let ended = manifest.root.and_then(|root| Some((Ending::Signal(root.exit_signal?), root.wall_ns?)));
    let Some((brake, (ending, wall_ns))) = knowledge.brake.as_ref().zip(ended) else { return };
    match brake.note(ending, knowledge.started, Duration::from_nanos(wall_ns)) {
        Ok(true) => voice.say(&format!(
            "{} died soon after its start for the second time: it runs untraced from now on; {CURE}",
            brake.command()
        )),
        Ok(false) => {}
        Err(error) => voice.say(&brake.not_noted(&error)),
    }
}

fn summarise(trace: &Path, manifest: Manifest) {
    if trace_folder::others_at_work(trace, &manifest).0 > 0 {
        // The one that ends last reports on all of them.
        return;
    }
    if let Ok(text) = summary::at_end(trace, Some(manifest)) {
        let _ = gputrace_collectors::write_text(trace, "summary.txt", &render::summary(text.trim_end()));
    }
}

/// Closes all descriptors but these and the first three, which lead nowhere from now on.
fn leave_behind(kept: &[RawFd]) {
    let listed = |path: &str| -> Option<Vec<RawFd>> {
        let entries = fs::read_dir(path).ok()?;
        Some(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    };
    for fd in listed("/dev/fd").or_else(|| listed("/proc/self/fd")).unwrap_or_default() {
        if fd > 2 && !kept.contains(&fd) {
            // SAFETY: nothing in this process uses it any more.
            unsafe { libc::close(fd) };
        }
    }
    // SAFETY: a path that ends in a zero byte, and numbers. What it spawns itself is to hold none of those that were kept.
    unsafe {
        for fd in kept {
            libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for fd in 0..3 {
            libc::dup2(nowhere, fd);
        }
        if nowhere > 2 {
            libc::close(nowhere);
        }
    }
}
