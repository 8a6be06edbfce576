//! What forbids to attach to a process, found before anything of it is touched: each with what to do about it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::found::{find_shim, has_driver};
use super::maps::{self, Mapping};
use super::memory::Memory;
use crate::launch::elf::{Elf, OUR_MACHINE};

/// Effective capability to look into other processes.
const SYS_PTRACE: u64 = 1 << 19;

/// A process that may be attached to.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) pid: i32,
    /// When it started, as the kernel counts: with the pid it is nobody else's.
    pub(crate) started: u64,
    /// Its program's name.
    pub(crate) name: String,
    /// Folder of the session that an earlier attach made for it.
    pub(crate) session: Option<PathBuf>,
    /// Variables of its environment by which launchers tell ranks and devices.
    pub(crate) variables: Vec<String>,
}

/// What it says in /proc/PID/status.
struct Status(String);

impl Status {
    fn of(pid: i32) -> Option<Status> {
        fs::read_to_string(format!("/proc/{pid}/status")).ok().map(Status)
    }

    fn field(&self, name: &str) -> &str {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim()
    }

    fn number(&self, name: &str) -> i32 {
        self.field(name).parse().unwrap_or(0)
    }
}

/// Looks at a process. Err: why it cannot be attached to.
pub(crate) fn look(pid: i32) -> Result<Target, String> {
    let status = Status::of(pid).filter(|_| pid > 0).ok_or_else(|| format!("there is no process {pid}"))?;
    let name = status.field("Name").to_owned();
    let whose = |what: String| format!("process {pid} ({name}) {what}");
    if pid == std::process::id() as i32 {
        return Err("gputrace does not attach to itself".to_owned());
    }
    match status.number("Tgid") {
        group if group != pid => return Err(whose(format!("is a thread of process {group}: gputrace attach {group}"))),
        _ => {}
    }
    by_status(&status).map_err(whose)?;
    let memory = Memory::open(pid).map_err(|error| whose(refusal(pid, &error)))?;
    let maps = maps::read(pid).map_err(|error| whose(format!("cannot be looked at: {error}")))?;
    by_program(pid, &maps).map_err(whose)?;
    let variables = by_environment(pid).map_err(whose)?;
    let session = earlier(&memory, &maps).map_err(whose)?;
    if !has_driver(&memory, &maps) {
        return Err(whose(
            "has not loaded the driver (no libcuda.so.1 is mapped in it); attach once it uses the GPU".to_owned(),
        ));
    }
    Ok(Target { pid, started: started(pid), name, session, variables })
}

/// By what the kernel says of it.
fn by_status(status: &Status) -> Result<(), String> {
    match status.field("State").chars().next() {
        Some('Z' | 'X') => return Err("has ended: only its parent has not asked how yet (a zombie)".to_owned()),
        Some('T') => {
            let pid = status.field("Tgid");
            return Err(format!("is stopped; let it go on first: kill -CONT {pid}"));
        }
        _ => {}
    }
    if status.field("VmSize").is_empty() {
        return Err("is a thread of the kernel".to_owned());
    }
    let tracer = status.number("TracerPid");
    if tracer != 0 {
        let name = Status::of(tracer).map_or_else(String::new, |tracer| format!(" ({})", tracer.field("Name")));
        return Err(format!("is traced by process {tracer}{name}, and one may at a time; end that first"));
    }
    let ids: Vec<u32> = status.field("Uid").split_whitespace().filter_map(|id| id.parse().ok()).collect();
    // SAFETY: the call only reads this process's credentials.
    let own = unsafe { libc::geteuid() };
    match ids.first() {
        Some(user) if *user != own => {
            return Err(format!(
                "is user {user}'s; run gputrace as that user: sudo -u '#{user}' gputrace attach {}",
                status.field("Tgid")
            ));
        }
        Some(user) if ids.iter().any(|id| id != user) => {
            return Err("has the rights of several users (setuid): it is not attached to".to_owned());
        }
        _ => {}
    }
    if status.number("Seccomp") != 0 {
        return Err(
            "has a seccomp filter, which may end it for a system call that it does not make by itself; start it with gputrace instead".to_owned(),
        );
    }
    Ok(())
}

/// Why the kernel does not let its memory be opened.
fn refusal(pid: i32, error: &std::io::Error) -> String {
    if error.kind() == ErrorKind::NotFound {
        return "ended meanwhile".to_owned();
    }
    let capable = Status::of(std::process::id() as i32)
        .is_some_and(|own| u64::from_str_radix(own.field("CapEff"), 16).is_ok_and(|all| all & SYS_PTRACE != 0));
    let yama =
        fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().and_then(|text| text.trim().parse::<u8>().ok());
    let undumpable = fs::metadata(format!("/proc/{pid}")).is_ok_and(|about| {
        // SAFETY: the call only reads this process's credentials.
        about.uid() != unsafe { libc::geteuid() }
    });
    match yama {
        Some(3) => "may not be attached to by anybody: kernel.yama.ptrace_scope is 3, until the machine starts anew".to_owned(),
        Some(2) if !capable => {
            "may be attached to by root only (kernel.yama.ptrace_scope is 2): sudo sysctl kernel.yama.ptrace_scope=0, or start it with gputrace".to_owned()
        }
        _ if undumpable && !capable => {
            "may not be looked into (it was setuid, or made itself so: not dumpable); start it with gputrace instead".to_owned()
        }
        Some(1) if !capable => {
            "may be attached to by its ancestors only (kernel.yama.ptrace_scope is 1): sudo sysctl kernel.yama.ptrace_scope=0, \
             or in a container --cap-add SYS_PTRACE"
                .to_owned()
        }
        _ => format!("may not be looked into ({error}); in a container that takes --cap-add SYS_PTRACE"),
    }
}

/// By its program and what it has mapped.
fn by_program(pid: i32, maps: &[Mapping]) -> Result<(), String> {
    let elf = Elf::read(Path::new(&format!("/proc/{pid}/exe"))).ok().flatten();
    if let Some(elf) = &elf {
        if !elf.wide {
            return Err("is a 32-bit program; the driver serves none".to_owned());
        }
        if elf.machine != OUR_MACHINE {
            return Err("is a program of another processor (an emulator runs it)".to_owned());
        }
    }
    let has = |start: &str| maps.iter().any(|one| maps::name(&one.path).starts_with(start));
    if elf.as_ref().is_some_and(|elf| elf.sanitizer.is_some())
        || ["libasan.so", "libtsan.so", "libmsan.so", "libclang_rt."].into_iter().any(has)
    {
        return Err(
            "is built with a sanitizer, which looks closely at who else is there; use a build without it".to_owned()
        );
    }
    if has("ld-musl") || has("libc.musl") {
        return Err("is linked to musl, whose loader cannot load the shim; use a build for glibc".to_owned());
    }
    if !has("libc.so.6") && !has("libc-2") {
        return Err("is statically linked: no glibc is mapped in it, which would load the shim".to_owned());
    }
    Ok(())
}

/// By the environment that it was started with. Returns what of that the trace is to know.
fn by_environment(pid: i32) -> Result<Vec<String>, String> {
    const WANTED: [&str; 13] = [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "PMI_RANK",
        "MPI_LOCALRANKID",
        "PMI_SIZE",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NTASKS",
        "CUDA_VISIBLE_DEVICES",
    ];
    let all = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let entries: Vec<String> =
        all.split(|byte| *byte == 0).map(|entry| String::from_utf8_lossy(entry).into_owned()).collect();
    if entries.iter().any(|entry| entry == "GPUTRACE=off") {
        return Err("was started with GPUTRACE=off: it is not to be traced".to_owned());
    }
    let wanted = |entry: &String| entry.split_once('=').is_some_and(|(name, _)| WANTED.contains(&name));
    Ok(entries.into_iter().filter(wanted).collect())
}

/// The session that an earlier attach made for it. Err: it is traced in another way.
fn earlier(memory: &Memory, all: &[Mapping]) -> Result<Option<PathBuf>, String> {
    let Some(shim) = find_shim(memory, all) else { return Ok(None) };
    let attached = shim.attached(memory).map_err(|error| format!("cannot be attached to: {error}"))?;
    let segment = all.iter().find(|one| maps::name(&one.path).starts_with("seg-"));
    let root = |one: &Mapping| Path::new(&one.path).parent().and_then(Path::parent).map(Path::to_owned);
    match (attached, segment) {
        (None, Some(segment)) => {
            let root = root(segment).unwrap_or_default();
            Err(format!("was started in a session of gputrace's: gputrace collect {} goes on with it", root.display()))
        }
        (None, None) if all.iter().any(|one| one.path.starts_with("/memfd:gputrace")) => {
            Err("is traced by gputrace already, which started it".to_owned())
        }
        // It is mapped and does nothing: an earlier attach came no further.
        (None, None) | (Some(_), None) => Ok(None),
        (Some(_), Some(segment)) if segment.path.ends_with(" (deleted)") => {
            Err("was attached to before, and the folder of that session was removed since: it can be traced after a new start only".to_owned())
        }
        (Some(_), Some(segment)) => Ok(root(segment)),
    }
}

/// When a process started, in the kernel's ticks; 0: it is not there.
pub(crate) fn started(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // The twenty-second field; the third one is the first behind the name.
    fields.split_whitespace().nth(22 - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Whether nothing of it runs any more, whoever has not asked yet how it ended.
pub(crate) fn is_over(pid: i32) -> bool {
    let ended = Status::of(pid).is_none_or(|status| status.field("State").starts_with(['Z', 'X']));
    ended && fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.flatten().count()) <= 1
}

/// Whether the process sees the same folder under this path, and may execute what lies there.
pub(crate) fn sees(pid: i32, path: &Path) -> bool {
    let its = PathBuf::from(format!("/proc/{pid}/root{}", path.display()));
    let (Ok(ours), Ok(its_own)) = (fs::metadata(path), fs::metadata(&its)) else { return false };
    (ours.dev(), ours.ino()) == (its_own.dev(), its_own.ino()) && !is_noexec(&its)
}

fn is_noexec(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return true };
    // SAFETY: plain data, for which zeros are valid; the kernel fills it for a path that ends with a zero byte.
    unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &mut about) == 0 && about.f_flag & libc::ST_NOEXEC != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(lines: &str) -> Status {
        Status(format!("Name:\tx\nTgid:\t7\nVmSize:\t 8 kB\n{lines}"))
    }

    #[test]
    fn what_the_kernel_says_forbids_it_with_what_to_do() {
        // SAFETY: the call only reads this process's credentials.
        let own = unsafe { libc::geteuid() };
        let user = format!("Uid:\t{own}\t{own}\t{own}\t{own}\n");
        let said = |lines: &str| by_status(&status(&format!("{user}{lines}"))).unwrap_err();
        assert!(by_status(&status(&format!("{user}State:\tS (sleeping)\nSeccomp:\t0\nTracerPid:\t0\n"))).is_ok());
        assert!(said("State:\tZ (zombie)\n").contains("zombie"));
        assert!(said("State:\tT (stopped)\n").contains("kill -CONT 7"));
        assert!(said("TracerPid:\t1\n").contains("traced by process 1 ("));
        assert!(said("Seccomp:\t2\n").contains("seccomp"));
        assert!(by_status(&status("Uid:\t77777\t77777\t77777\t77777\n")).unwrap_err().contains("sudo -u '#77777'"));
        let several = format!("Uid:\t{own}\t{}\t{own}\t{own}\n", own + 1);
        assert!(by_status(&status(&several)).unwrap_err().contains("setuid"));
        let kernel = Status("Name:\tkthreadd\nState:\tS\n".to_owned());
        assert!(by_status(&kernel).unwrap_err().contains("kernel"));
    }

    #[test]
    fn a_process_sees_the_folders_that_we_see() {
        let pid = std::process::id() as i32;
        assert!(
            sees(pid, Path::new("/usr")) && !sees(pid, Path::new("/no-such-folder")) && !sees(0, Path::new("/usr"))
        );
        assert!(started(pid) > 0 && started(0) == 0);
        assert_eq!(look(pid).unwrap_err(), "gputrace does not attach to itself");
        assert_eq!(look(0).unwrap_err(), "there is no process 0");
    }
}
