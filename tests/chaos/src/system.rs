//! Processes, mounts and limits: what chaos asks of the kernel. The only file here with unsafe code.
//!
//! Orphans of a killed gputrace become children of this process (it is a subreaper), so that how they ended is known.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// How children of this process ended, by pid: exit code, or minus the signal.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    ended: HashMap<i32, i32>,
}

impl Reaper {
    /// Sees which have ended.
    pub(crate) fn look(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: the status is a local variable.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            if pid <= 0 {
                return;
            }
            let end = if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
            self.ended.insert(pid, end);
        }
    }

    /// How this one ended, if it has.
    pub(crate) fn end_of(&mut self, pid: i32) -> Option<i32> {
        self.look();
        self.ended.get(&pid).copied()
    }

    /// Nothing of an earlier round is known any more: pids are used again.
    pub(crate) fn forget(&mut self) {
        self.look();
        self.ended.clear();
    }
}

/// Makes this process the parent of orphans below it.
pub(crate) fn adopt_orphans() {
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// A mount namespace of this process's own, if it may have one; then disks can be small, and are gone when it ends.
pub(crate) fn own_mounts() -> bool {
    // SAFETY: numbers only; this process has one thread.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let flags = if uid == 0 { libc::CLONE_NEWNS } else { libc::CLONE_NEWNS | libc::CLONE_NEWUSER };
    // SAFETY: numbers only.
    if unsafe { libc::unshare(flags) } != 0 {
        return false;
    }
    if uid != 0 {
        let _ = fs::write("/proc/self/setgroups", "deny");
        let _ = fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"));
        let _ = fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"));
    }
    let none = std::ptr::null();
    // SAFETY: the path ends in a zero byte, and what is null may be.
    unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0 }
}

/// A disk of its own at this folder.
pub(crate) fn mount(folder: &Path, kib: u64, read_only: bool) -> io::Result<()> {
    let at = CString::new(folder.as_os_str().as_bytes())?;
    let size = CString::new(format!("size={kib}k"))?;
    let flags = if read_only { libc::MS_RDONLY } else { 0 };
    // SAFETY: all texts end in a zero byte.
    let done = unsafe {
        libc::mount(c"none".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), flags, size.as_ptr().cast::<libc::c_void>())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes the disk away again.
pub(crate) fn unmount(folder: &Path) {
    if let Ok(at) = CString::new(folder.as_os_str().as_bytes()) {
        // SAFETY: the text ends in a zero byte.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Sends a signal to a process that a round started.
pub(crate) fn signal(pid: i32, signal: i32) -> bool {
    // SAFETY: numbers only.
    pid > 1 && unsafe { libc::kill(pid, signal) } == 0
}

/// What a command is started with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Descriptors.
    pub(crate) descriptors: Option<u64>,
    /// Bytes of a file.
    pub(crate) file_bytes: Option<u64>,
}

/// Has the command start in a process group of its own, with these limits, no core files, and signals as they are by default.
pub(crate) fn prepare(command: &mut Command, limits: Limits) {
    command.process_group(0);
    let prepare = move || {
        let set = |what, value| {
            let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
            // SAFETY: the structure lives through the call.
            unsafe { libc::setrlimit(what, &limit) };
        };
        set(libc::RLIMIT_CORE, 0);
        limits.descriptors.into_iter().for_each(|most| set(libc::RLIMIT_NOFILE, most));
        limits.file_bytes.into_iter().for_each(|most| set(libc::RLIMIT_FSIZE, most));
        for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGPIPE, libc::SIGTERM] {
            // SAFETY: async-signal-safe, and the child has one thread.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure makes async-signal-safe calls only.
    unsafe { command.pre_exec(prepare) };
}

/// Processes that have this text in their environment, and their names; zombies have none.
pub(crate) fn marked(mark: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let mut text = fs::read(entry.path().join("environ")).unwrap_or_default();
        if text.is_empty() {
            // The first thread may have ended, and others go on.
            let others = fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten();
            let others = others.filter_map(|task| fs::read(task.path().join("environ")).ok());
            text = others.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        }
        if text.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((pid, name.trim_end().to_owned()));
        }
    }
    found
}

/// Memory of a process that is its own, in KiB; 0 when it is gone.
pub(crate) fn own_memory_kib(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Whether a process stands still, by a signal.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}
