//! Looks for processes of the target's tree that cannot be traced, to name them in the trace.
//!
//! A child that clears its environment, or whose loader ignores LD_PRELOAD, tells the collector nothing. The launcher
//! looks at /proc twenty times a second, later four times: at all processes when the kernel has given out a new pid
//! since the last look, else at those of the tree, which may have called exec. A look may take at most one hundredth of
//! the time: the next one waits accordingly. Most processes cost one look in their life; those that begin and end
//! between two looks are missed. It reads what the kernel keeps about a process and never touches it.
//!
//! A process that the shim could have traced is named where something is missing: its calls of CUDA, or, where malloc is
//! recorded, whatever it allocates. For the latter it must be the same at a second look, and not have the shim all the same: one
//! that is in an exec or at its end, or wrote over its environment (setproctitle), reads as one whose environment was cleared.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputrace_collectors::Untraced;

use super::inspect::{Obstacle, inspect_file};
use super::processes;
use super::reach::{Reach, cut_off, has_shim, reach, uses_cuda};

/// Time to the first look, and from one to the next in the first minute.
pub(crate) const EAGER: Duration = Duration::from_millis(50);
/// The same later.
const LATER: Duration = Duration::from_millis(250);
const EAGER_TIME: Duration = Duration::from_secs(60);
/// How often all processes are looked at where the kernel does not tell the newest pid.
const BLIND: Duration = Duration::from_secs(1);
/// A look may take this part of the time.
const SHARE: u32 = 100;
/// How often a process without a sign of CUDA is searched for one.
const SUSPICION: Duration = Duration::from_secs(1);
/// After this time pids that belonged to others are judged anew: they may have been given out again.
const FORGET: Duration = Duration::from_secs(30);

/// What is known of a pid.
enum Known {
    /// No process of the tree.
    Stranger,
    /// Traced, or named already, in this process image.
    Settled(Image),
    /// Untraced without a sign of CUDA when it was last searched for one. `again`: it was judged twice.
    Suspect { image: Image, searched: Instant, again: bool },
}

/// A process image: the pid's start, and its stack, which an exec moves.
type Image = (u64, u64);

pub(crate) struct Watch {
    session: PathBuf,
    target: u32,
    /// The target's program, when it has been named as untraced already.
    named: Option<PathBuf>,
    /// Whether malloc is recorded, of which every process has some.
    malloc: bool,
    known: HashMap<u32, Known>,
    started: Instant,
    /// The newest pid at the last look at all processes, if the kernel tells.
    newest: Option<u32>,
    /// When that was.
    looked: Option<Instant>,
    /// When the next look may come.
    next: Instant,
    forgot: Instant,
}

impl Watch {
    /// Watches the tree of `target`; `session` is in the environment of those who can be traced. `named`: the
    /// target's own program, if it has been named as untraced. `malloc`: whether that is recorded.
    pub(crate) fn new(session: PathBuf, target: u32, named: Option<&Path>, malloc: bool) -> Watch {
        let named = named.and_then(|program| program.canonicalize().ok());
        let (known, now) = (HashMap::new(), Instant::now());
        let (newest, looked, next) = (None, None, now);
        Watch { session, target, named, malloc, known, started: now, newest, looked, next, forgot: now }
    }

    /// Looks, if it is time: the processes found, and the time until it shall be asked again.
    pub(crate) fn look(&mut self) -> (Vec<Untraced>, Duration) {
        let start = Instant::now();
        let again = if self.started.elapsed() < EAGER_TIME { EAGER } else { LATER };
        if start < self.next {
            return (Vec::new(), again);
        }
        let found = if self.has_new_pids() { self.look_at_all() } else { self.look_at_tree() };
        self.next = start + start.elapsed() * SHARE;
        (found, again)
    }

    /// After the target's end, whose last children may still be there. A target without children costs nothing.
    pub(crate) fn last_look(&mut self) -> Vec<Untraced> {
        let childless = processes::newest() == Some(self.target);
        if childless || !self.has_new_pids() { Vec::new() } else { self.look_at_all() }
    }

    /// Whether the kernel has given out a pid since the last look at all processes.
    fn has_new_pids(&mut self) -> bool {
        let newest = processes::newest();
        let blind = newest.is_none() && self.looked.is_none_or(|at| at.elapsed() >= BLIND);
        let new = newest != self.newest || self.looked.is_none();
        self.newest = newest;
        new || blind
    }

    fn look_at_all(&mut self) -> Vec<Untraced> {
        self.looked = Some(Instant::now());
        if self.forgot.elapsed() >= FORGET {
            self.forgot = Instant::now();
            self.known.retain(|_, known| !matches!(known, Known::Stranger));
        }
        let mut all = processes::all();
        all.sort_unstable();
        self.known.retain(|pid, _| all.binary_search(pid).is_ok());
        all.into_iter().filter_map(|pid| self.look_at(pid)).collect()
    }

    fn look_at_tree(&mut self) -> Vec<Untraced> {
        let tree = self.known.iter().filter(|(_, known)| !matches!(known, Known::Stranger)).map(|(pid, _)| *pid);
        let tree: Vec<u32> = tree.collect();
        tree.into_iter().filter_map(|pid| self.look_at(pid)).collect()
    }

    fn look_at(&mut self, pid: u32) -> Option<Untraced> {
        if matches!(self.known.get(&pid), Some(Known::Stranger)) {
            return None;
        }
        let stat = processes::stat(pid)?;
        let image = (stat.start, stat.stack);
        let again = match self.known.get(&pid) {
            Some(Known::Settled(same)) if *same == image => return None,
            Some(Known::Suspect { image: same, searched, again }) if *same == image => {
                let is_time = searched.elapsed() >= SUSPICION || self.malloc && !again;
                if !is_time {
                    return None;
                }
                true
            }
            _ => false,
        };
        let environment = processes::environment(pid);
        let reach = reach(environment.as_deref(), &self.session);
        let reached = reach == Reach::Preloaded;
        let is_named = matches!(reach, Reach::Preloaded | Reach::Dropped);
        if pid == std::process::id() || !(is_named || processes::descends(pid, self.target)) {
            self.known.insert(pid, Known::Stranger);
            return None;
        }
        let obstacle = inspect_file(&processes::executable(pid)).0;
        // Where the launcher gave the shim to a program with a sanitizer it loads, and says itself what it leaves out.
        if let Some(obstacle) = obstacle.filter(|obstacle| !(reached && matches!(obstacle, Obstacle::Sanitizer(_)))) {
            return self.name(pid, image, obstacle.to_string());
        }
        // Between fork and exec a child is still its parent, which the exec changes: it is judged again then.
        if reached {
            if let Some(why) = cut_off(pid, &self.session) {
                return self.judge_suspect(pid, image, why, again, again && self.malloc);
            }
            self.known.insert(pid, Known::Settled(image));
            return None;
        }
        // The kernel shows neither the environment nor the file of a process with other rights than ours.
        if environment.is_none() && processes::has_borrowed_rights(pid) {
            let why = "it runs with the rights of another user (setuid or setgid), so the loader ignores LD_PRELOAD";
            return self.name(pid, image, why.to_owned());
        }
        let why = match environment {
            Some(_) if reach == Reach::Inner => "another gputrace that runs inside this one traces it: see its trace",
            Some(_) if reach == Reach::Dropped => "its LD_PRELOAD was removed or replaced, so its loader finds no shim",
            Some(_) => "its environment was cleared, so LD_PRELOAD did not reach it",
            None => "it runs as another user or with other privileges, so the loader ignores LD_PRELOAD",
        };
        // What another gputrace records of malloc is missing here for a reason that its user knows.
        let allocates = again && self.malloc && reach != Reach::Inner && processes::is_at_work(pid) && !has_shim(pid);
        self.judge_suspect(pid, image, why, again, allocates)
    }

    fn judge_suspect(
        &mut self,
        pid: u32,
        image: Image,
        why: &'static str,
        again: bool,
        allocates: bool,
    ) -> Option<Untraced> {
        if !(allocates || uses_cuda(pid)) {
            self.known.insert(pid, Known::Suspect { image, searched: Instant::now(), again });
            return None;
        }
        self.name(pid, image, why.to_owned())
    }

    fn name(&mut self, pid: u32, image: Image, reason: String) -> Option<Untraced> {
        self.known.insert(pid, Known::Settled(image));
        let exe = processes::executable_path(pid);
        if pid == self.target && self.named.is_some() && exe.as_ref().ok() == self.named.as_ref() {
            return None;
        }
        let exe = exe.map_or_else(|_| processes::name(pid), |path| path.to_string_lossy().into_owned());
        Some(Untraced { pid: pid as i32, exe, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::{Command, Stdio};

    #[test]
    fn a_traced_child_is_settled_and_a_cleared_one_stays_a_suspect_until_it_uses_cuda() {
        let folder = crate::launch::testing::Folder::new("watch");
        let session = folder.path().to_owned();
        fs::create_dir(super::super::links::folder(&session)).unwrap();
        let preload = session.join("no-such-library.so");
        let mut traced = Command::new("cat").env("LD_PRELOAD", &preload).stdin(Stdio::piped()).spawn().unwrap();
        let mut cleared = Command::new("cat").env_clear().stdin(Stdio::piped()).spawn().unwrap();
        let mut watch = Watch::new(session, std::process::id(), None, false);
        let (found, next) = watch.look();
        assert!(found.iter().all(|u| u.pid != cleared.id() as i32 && u.pid != traced.id() as i32), "{found:?}");
        assert_eq!(next, EAGER);
        assert!(matches!(watch.known[&traced.id()], Known::Settled(_)));
        assert!(matches!(watch.known[&cleared.id()], Known::Suspect { .. }));
        for child in [&mut traced, &mut cleared] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn where_malloc_is_recorded_a_cleared_child_is_named_at_the_second_look() {
        let folder = crate::launch::testing::Folder::new("watch-malloc");
        let session = folder.path().to_owned();
        fs::create_dir(super::super::links::folder(&session)).unwrap();
        let preload = session.join("no-such-library.so");
        let mut traced = Command::new("cat").env("LD_PRELOAD", &preload).stdin(Stdio::piped()).spawn().unwrap();
        let mut cleared = Command::new("cat").env_clear().stdin(Stdio::piped()).spawn().unwrap();
        let mut ended = Command::new("true").env_clear().spawn().unwrap();
        while processes::stat(ended.id()).is_some_and(|stat| stat.state != b'Z') {
            std::thread::yield_now();
        }
        let mut watch = Watch::new(session, std::process::id(), None, true);
        let mut found = Vec::new();
        // Until the children have come through their exec.
        while !matches!(watch.known.get(&cleared.id()), Some(Known::Settled(_))) {
            watch.next = Instant::now();
            found.extend(watch.look().0);
        }
        let reasons: Vec<&str> = found.iter().filter(|u| u.pid == cleared.id() as i32).map(|u| &*u.reason).collect();
        assert_eq!(reasons, ["its environment was cleared, so LD_PRELOAD did not reach it"]);
        for other in [&traced, &ended] {
            assert!(found.iter().all(|u| u.pid != other.id() as i32), "{found:?}");
        }
        ended.wait().unwrap();
        for child in [&mut traced, &mut cleared] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_look_comes_when_it_may_and_all_are_looked_at_when_there_is_a_new_pid() {
        let mut watch = Watch::new(PathBuf::from("/nonexistent/gputrace-watch-test"), std::process::id(), None, false);
        let before = Instant::now();
        watch.look();
        let first = watch.looked.expect("all were looked at");
        assert!(watch.next > before, "the next one waits");
        watch.next = Instant::now() + Duration::from_secs(60);
        watch.newest = Some(0);
        assert!(watch.look().0.is_empty());
        assert_eq!(watch.looked, Some(first), "it is not time yet");
        watch.next = Instant::now();
        watch.look();
        assert_ne!(watch.looked, Some(first), "there is a new pid");
    }
}
