//! By /proc.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use gputrace_collectors::processes as all;

use super::Stat;

/// Reads `/proc/PID/stat`.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    let fields = fields(text)?;
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: number(1)? as u32,
        start: number(19)?,
        stack: number(25).unwrap_or(0),
    })
}

/// The fields of `/proc/PID/stat` from the state on, which is the third. The name in parentheses before it may itself hold
/// anything: what follows the last one counts.
fn fields(text: &[u8]) -> Option<Vec<&str>> {
    let end = text.iter().rposition(|b| *b == b')')?;
    Some(std::str::from_utf8(&text[end + 1..]).ok()?.split_ascii_whitespace().collect())
}

/// The pid that was given out last, if the kernel tells.
pub(crate) fn newest() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

/// The environment with which a process was started, `NAME=value` each followed by a nul byte.
///
/// In the midst of an exec, when the old program is gone and the new one's environment not yet laid out, a process reads as one
/// that has none. That takes microseconds, but a busy machine may stop it there: it is waited for. None counts only when it is
/// read after the process was seen to be past that.
pub(crate) fn environment(pid: u32) -> Option<Vec<u8>> {
    let mut settled = false;
    for _ in 0..EXEC_LOOKS {
        let text = fs::read(format!("/proc/{pid}/environ")).ok()?;
        if settled || !text.is_empty() {
            return Some(text);
        }
        settled = !is_in_exec(pid);
        if !settled {
            std::thread::sleep(EXEC_PAUSE);
        }
    }
    None
}

/// An exec is waited for as long as this, 50 ms in all.
const EXEC_LOOKS: u32 = 100;
const EXEC_PAUSE: Duration = Duration::from_micros(500);

/// Whether a process has a program (a thread of the kernel has none) whose environment does not yet stand.
fn is_in_exec(pid: u32) -> bool {
    let text = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    environment_is_missing(&text) && executable_path(pid).is_ok()
}

/// By the line of `/proc/PID/stat`: the end of the environment is the last thing that an exec lays out. A stack stands before.
fn environment_is_missing(stat: &[u8]) -> bool {
    fields(stat).is_some_and(|fields| !matches!(fields.first(), Some(&"Z" | &"X")) && fields.get(48) == Some(&"0"))
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

/// The file that a process runs. It leads there even where its path means nothing here, as in a container.
pub(crate) fn executable(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// The path of that file, as the process sees it.
pub(crate) fn executable_path(pid: u32) -> io::Result<PathBuf> {
    fs::read_link(executable(pid))
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
    fn a_process_in_the_midst_of_its_exec_is_waited_for() {
        for round in 0..50 {
            let own = round.to_string();
            let mut child = Command::new("cat").env_clear().env("ROUND", &own).stdin(Stdio::piped()).spawn().unwrap();
            let (text, id) = (whenever_it_stands(child.id()), child.id());
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!(text, Some(format!("ROUND={own}\0").into_bytes()), "{id}");
        }
        let mut bare = Command::new("cat").env_clear().stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(whenever_it_stands(bare.id()), Some(Vec::new()));
        drop(bare.stdin.take());
        bare.wait().unwrap();
    }

    /// However long a busy machine stops the process in its exec.
    fn whenever_it_stands(pid: u32) -> Option<Vec<u8>> {
        (0..200).find_map(|_| environment(pid))
    }

    #[test]
    fn an_exec_is_over_when_the_environment_stands() {
        let line = |state: &str, end: u64| {
            let zeros = "0 ".repeat(22);
            format!("12 (a b) {state} 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0 0 1 2 140000 {zeros}{end} 0")
                .into_bytes()
        };
        assert_eq!(fields(&line("R", 99)).unwrap()[48], "99");
        assert!(environment_is_missing(&line("R", 0)) && !environment_is_missing(&line("R", 99)));
        assert!(!environment_is_missing(&line("Z", 0)) && !environment_is_missing(b"12 (a) R 7"));
    }

    #[test]
    fn borrowed_rights_show_in_the_users_of_a_process() {
        assert!(!borrows("Name:\tcat\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\n"));
        assert!(borrows("Uid:\t1000\t0\t0\t0\nGid:\t100\t100\t100\t100\n"));
        assert!(borrows("Uid:\t1000\t1000\t1000\t1000\nGid:\t100\t5\t5\t5\n"));
        assert!(!borrows("") && !has_borrowed_rights(std::process::id()));
    }
}
