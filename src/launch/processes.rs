//! What /proc says about processes; reading only, and only what costs the process nothing.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// One letter: R, S, D, Z, T ...
    pub(crate) state: u8,
    pub(crate) parent: u32,
    /// Ticks since boot at which it started: tells a process from an older one of the same pid.
    pub(crate) start: u64,
    /// Where its stack began: changes with an exec.
    pub(crate) stack: u64,
}

/// Reads `/proc/PID/stat`.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The name in parentheses may itself hold anything: what follows the last one counts.
    let end = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: number(1)? as u32,
        start: number(19)?,
        stack: number(25).unwrap_or(0),
    })
}

/// Pids of all processes in sight.
pub(crate) fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The pid that was given out last, if the kernel tells.
pub(crate) fn newest() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

/// The environment with which a process was started, `NAME=value` each followed by a nul byte.
pub(crate) fn environment(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

/// Whether a process runs with rights that its file lent it: its effective user or group is not its real one.
pub(crate) fn has_borrowed_rights(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| borrows(&status))
}

fn borrows(status: &str) -> bool {
    // Real, effective, saved, file system.
    let ids = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::split_ascii_whitespace);
    let differ = |name| ids(name).is_some_and(|mut ids| ids.next() != ids.next());
    differ("Uid:") || differ("Gid:")
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

/// Name of a process as `ps` shows it.
pub(crate) fn name(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    text.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let mut text = b"12 (a ) R (b) S 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0 0 1 2 3".to_vec();
        let expected = Stat { state: b'S', parent: 7, start: 4242, stack: 3 };
        assert_eq!(parse_stat(&text), Some(expected));
        text.truncate(20);
        assert_eq!(parse_stat(&text), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn borrowed_rights_show_in_the_users_of_a_process() {
        assert!(!borrows("Name:\tcat\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\n"));
        assert!(borrows("Uid:\t1000\t0\t0\t0\nGid:\t100\t100\t100\t100\n"));
        assert!(borrows("Uid:\t1000\t1000\t1000\t1000\nGid:\t100\t5\t5\t5\n"));
        assert!(!borrows("") && !has_borrowed_rights(std::process::id()));
    }

    #[test]
    fn a_process_with_a_folder_in_its_environment_is_found_until_it_ends() {
        let folder = Path::new("/nonexistent/gputrace-processes-test");
        let mut child = Command::new("cat").env("GPUTRACE_SESSION", folder).stdin(Stdio::piped()).spawn().unwrap();
        // The environment is the child's own only after its exec, which spawn has seen succeed.
        assert_eq!(referring_to(folder, 0), [child.id()]);
        // What is not newer than the newest process is not looked at again; others come and go meanwhile.
        let (before, again, after) = (newest(), referring_to(folder, child.id()), newest());
        let (own, none): (Vec<u32>, Vec<u32>) = (vec![child.id()], vec![]);
        match (before == Some(child.id()), after == Some(child.id())) {
            (true, true) => assert_eq!(again, none),
            (false, false) => assert_eq!(again, own),
            _ => assert!(again == own || again == none),
        }
        assert!(descends(child.id(), std::process::id()));
        assert!(!descends(std::process::id(), child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(referring_to(folder, 0).is_empty());
    }
}
