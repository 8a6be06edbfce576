//! Looks for processes of the target's tree that use the GPU and cannot be traced, to name them in the trace.
//!
//! A child that clears its environment, or whose loader ignores LD_PRELOAD, tells the collector nothing. The launcher
//! looks at /proc: not before the first second, then once a second, later less often. Most processes cost one look
//! in their life. It reads what the kernel keeps about a process and never touches the process.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gputrace_collectors::Untraced;

use super::inspect::{Obstacle, inspect_file};
use super::processes;

/// Time to the first look.
pub(crate) const FIRST: Duration = Duration::from_secs(1);
/// Looks one second apart, after which they become rarer.
const EAGER_LOOKS: u32 = 30;
const LATER: Duration = Duration::from_secs(5);
/// After so many looks, pids that belonged to others are judged anew: they may have been given out again.
const FORGET: u32 = 16;

/// What is known of a pid.
enum Known {
    /// No process of the tree.
    Stranger,
    /// Traced, or named already, in this process image.
    Settled(Image),
    /// Untraced without a sign of CUDA so far.
    Suspect(Image, String),
}

/// A process image: the pid's start, and its stack, which an exec moves.
type Image = (u64, u64);

pub(crate) struct Watch {
    session: PathBuf,
    target: u32,
    known: HashMap<u32, Known>,
    looks: u32,
}

impl Watch {
    /// Watches the tree of `target`; `session` is in the environment of those who can be traced. `named`: the target
    /// itself has been named as untraced.
    pub(crate) fn new(session: PathBuf, target: u32, named: bool) -> Watch {
        let mut known = HashMap::new();
        if named && let Some(stat) = processes::stat(target) {
            known.insert(target, Known::Settled((stat.start, stat.stack)));
        }
        Watch { session, target, known, looks: 0 }
    }

    /// One look: the processes found, and the time until the next look.
    pub(crate) fn look(&mut self) -> (Vec<Untraced>, Duration) {
        self.looks += 1;
        if self.looks.is_multiple_of(FORGET) {
            self.known.retain(|_, known| !matches!(known, Known::Stranger));
        }
        let all = processes::all();
        self.known.retain(|pid, _| all.contains(pid));
        let found = all.into_iter().filter_map(|pid| self.look_at(pid)).collect();
        (found, if self.looks < EAGER_LOOKS { FIRST } else { LATER })
    }

    fn look_at(&mut self, pid: u32) -> Option<Untraced> {
        if matches!(self.known.get(&pid), Some(Known::Stranger)) {
            return None;
        }
        let stat = processes::stat(pid)?;
        let image = (stat.start, stat.stack);
        match self.known.remove(&pid) {
            Some(Known::Settled(same)) if same == image => {
                self.known.insert(pid, Known::Settled(image));
                return None;
            }
            Some(Known::Suspect(same, why)) if same == image => return self.judge_suspect(pid, image, why),
            _ => {}
        }
        let environment = processes::environment(pid);
        let name = self.session.as_os_str().as_encoded_bytes();
        let reached = environment.as_ref().is_some_and(|e| e.windows(name.len()).any(|window| window == name));
        if pid == std::process::id() || !(reached || processes::descends(pid, self.target)) {
            self.known.insert(pid, Known::Stranger);
            return None;
        }
        // /proc/PID/exe leads to the file even where its path means nothing here, as in a container.
        let obstacle = inspect_file(Path::new(&format!("/proc/{pid}/exe"))).0;
        // A sanitizer keeps the launcher from giving the shim to the command itself; where it is given, it loads.
        if let Some(obstacle) = obstacle.filter(|obstacle| !(reached && matches!(obstacle, Obstacle::Sanitizer(_)))) {
            self.known.insert(pid, Known::Settled(image));
            return Some(untraced(pid, obstacle.to_string()));
        }
        // Between fork and exec a child is still its parent, which the exec changes: it is judged again then.
        if reached {
            self.known.insert(pid, Known::Settled(image));
            return None;
        }
        let why = match environment {
            Some(_) => "its environment was cleared, so LD_PRELOAD did not reach it",
            None => "it runs as another user or with other privileges, so the loader ignores LD_PRELOAD",
        };
        self.judge_suspect(pid, image, why.to_owned())
    }

    fn judge_suspect(&mut self, pid: u32, image: Image, why: String) -> Option<Untraced> {
        if !uses_cuda(pid) {
            self.known.insert(pid, Known::Suspect(image, why));
            return None;
        }
        self.known.insert(pid, Known::Settled(image));
        Some(untraced(pid, why))
    }
}

fn untraced(pid: u32, reason: String) -> Untraced {
    let exe = fs::read_link(format!("/proc/{pid}/exe"));
    let exe = exe.map_or_else(|_| processes::name(pid), |path| path.to_string_lossy().into_owned());
    Untraced { pid: pid as i32, exe, reason }
}

/// Whether a process has the driver's library mapped or one of its devices open.
fn uses_cuda(pid: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let device = |path: PathBuf| path.to_string_lossy().starts_with("/dev/nvidia");
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(device)
        || fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps_driver(&maps))
}

/// Whether one of the mapped files is the driver's library (or the simulated one, by its own name).
fn maps_driver(maps: &str) -> bool {
    let is_driver = |name: &str| name.starts_with("libcuda.so") || name == super::shim::FAKE_DRIVER;
    maps.lines().filter_map(|line| line.rsplit('/').next()).any(is_driver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_driver_is_recognised_among_mapped_files() {
        let line = |path: &str| format!("7f00-7f01 r-xp 00000000 08:01 42   {path}\n");
        assert!(maps_driver(&line("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05")));
        assert!(maps_driver(&line("/opt/libfake_cuda.so")));
        assert!(!maps_driver(&line("/usr/lib/libcudart.so.13")));
        assert!(!maps_driver("7f00-7f01 rw-p 00000000 00:00 0\n"));
    }

    #[test]
    fn a_traced_child_is_settled_and_a_cleared_one_stays_a_suspect_until_it_uses_cuda() {
        let session = PathBuf::from("/nonexistent/gputrace-watch-test");
        let mut traced = Command::new("cat").env("S", &session).stdin(Stdio::piped()).spawn().unwrap();
        let mut cleared = Command::new("cat").env_clear().stdin(Stdio::piped()).spawn().unwrap();
        let mut watch = Watch::new(session, std::process::id(), false);
        let (found, next) = watch.look();
        assert!(found.iter().all(|u| u.pid != cleared.id() as i32 && u.pid != traced.id() as i32), "{found:?}");
        assert_eq!(next, FIRST);
        assert!(matches!(watch.known[&traced.id()], Known::Settled(_)));
        assert!(matches!(watch.known[&cleared.id()], Known::Suspect(..)));
        for child in [&mut traced, &mut cleared] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
