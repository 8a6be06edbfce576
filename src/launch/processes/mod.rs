//! What the kernel says about processes; reading only, and only what costs the process nothing.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(target_os = "macos")]
use macos as platform;
pub(crate) use platform::{all, environment, executable, executable_path, has_borrowed_rights, name, newest, stat};

/// What the kernel keeps about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// One letter: R, S, D, Z, T ...
    pub(crate) state: u8,
    pub(crate) parent: u32,
    /// When it started, in the kernel's own unit: tells a process from an older one of the same pid.
    pub(crate) start: u64,
    /// Where its stack began: changes with an exec. 0 where the kernel does not say.
    pub(crate) stack: u64,
}

/// Living processes other than this one whose environment names `folder` (a session), leaving out pids that are
/// certainly older than `since`.
///
/// After the usual short command no pid is younger than the target's, and then nothing is read at all.
///
/// A process that forks and ends during the look is gone, and its child too young to be in the list: then there was a
/// new pid, and the look is repeated.
pub(crate) fn referring_to(folder: &Path, since: u32) -> Vec<u32> {
    for _ in 0..LOOKS {
        let newest = newest();
        if since != 0 && newest == Some(since) {
            return Vec::new();
        }
        let found = look_for(folder, since, newest);
        if !found.is_empty() || newest == self::newest() {
            return found;
        }
    }
    Vec::new()
}

/// Looks on a machine where others start processes all the time.
const LOOKS: usize = 8;

fn look_for(folder: &Path, since: u32, newest: Option<u32>) -> Vec<u32> {
    // Pids are given out in rising order and start again at the top: then every pid may be young.
    let young = |pid: u32| newest.is_none_or(|newest| newest < since) || pid >= since;
    let name = folder.as_os_str().as_bytes();
    let refers = |pid: u32| {
        environment(pid).is_some_and(|text| text.windows(name.len()).any(|window| window == name))
            && stat(pid).is_some_and(|stat| stat.state != b'Z' && stat.state != b'X')
    };
    let own = std::process::id();
    all().into_iter().filter(|pid| *pid != own && young(*pid) && refers(*pid)).collect()
}

/// Whether a process runs a program: one that has ended, or is about to and has given its memory back, does not.
pub(crate) fn is_at_work(pid: u32) -> bool {
    let lives = stat(pid).is_some_and(|stat| stat.state != b'Z' && stat.state != b'X');
    lives && executable_path(pid).map_or_else(|error| error.kind() == ErrorKind::PermissionDenied, |_| true)
}

/// Whether `pid` is `ancestor` or descends from it.
pub(crate) fn descends(pid: u32, ancestor: u32) -> bool {
    let mut at = pid;
    // A bound, because the tree may change while it is climbed.
    for _ in 0..64 {
        if at == ancestor {
            return true;
        }
        match stat(at) {
            Some(stat) if stat.parent > 1 => at = stat.parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_with_a_folder_in_its_environment_is_found_until_it_ends() {
        let folder = Path::new("/nonexistent/gputrace-processes-test");
        let mut child = Command::new("cat").env("GPUTRACE_SESSION", folder).stdin(Stdio::piped()).spawn().unwrap();
        // Right after its exec, when its environment may not yet stand.
        assert_eq!(referring_to(folder, 0), [child.id()]);
        // What is not newer than the newest process is not looked at again; others come and go meanwhile.
        let (before, again, after) = (newest(), referring_to(folder, child.id()), newest());
        let (own, none): (Vec<u32>, Vec<u32>) = (vec![child.id()], vec![]);
        match (before == Some(child.id()), after == Some(child.id())) {
            (true, true) => assert_eq!(again, none),
            (false, false) => assert_eq!(again, own),
            _ => assert!(again == own || again == none),
        }
        assert!(descends(child.id(), std::process::id()) && is_at_work(child.id()));
        assert!(!descends(std::process::id(), child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(referring_to(folder, 0).is_empty());
    }
}
