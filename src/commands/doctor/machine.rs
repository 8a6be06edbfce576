//! The machine, the container and the limits of this process.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};

use super::Check;

/// The shim loads on this glibc and newer.
const OLDEST_GLIBC: (u32, u32) = (2, 28);
/// First kernel with MADV_WIPEONFORK, by which a forked child notices that it needs a segment of its own.
const WIPE_ON_FORK: (u32, u32) = (4, 14);
/// The shim takes at most an eighth of RLIMIT_AS, and needs this much to start.
const SEGMENT_BYTES: u64 = 16 << 20;
const LEAST_SEGMENT_BYTES: u64 = 4 << 20;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![memfd(), kernel(), glibc(), clock(), shm(), folder()];
    checks.extend([preload(), seccomp(), ptrace()].into_iter().flatten());
    checks.push(limit("RLIMIT_AS", libc::RLIMIT_AS, 8));
    checks.push(limit("RLIMIT_FSIZE", libc::RLIMIT_FSIZE, 1));
    checks.push(open_files());
    checks
}

fn memfd() -> Check {
    // SAFETY: the name ends in a nul byte; a descriptor that comes belongs to nobody else.
    let made = unsafe {
        let fd = libc::memfd_create(c"gputrace-doctor".as_ptr(), libc::MFD_CLOEXEC);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    };
    match made {
        Some(_) => Check::fine("memfd", "works; /dev/shm is not needed"),
        None => {
            let error = std::io::Error::last_os_error();
            Check::fail("memfd", error.to_string(), "allow memfd_create in this container's system call filter")
        }
    }
}

fn kernel() -> Check {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    match version(release) {
        Some(found) if found < WIPE_ON_FORK => Check::note(
            "kernel",
            format!("{release}: no MADV_WIPEONFORK before 4.14"),
            "children made by a raw clone are not traced",
        ),
        _ => Check::fine("kernel", release),
    }
}

fn glibc() -> Check {
    // SAFETY: glibc returns a string that lives as long as the process.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned();
    match version(&text) {
        Some(found) if found < OLDEST_GLIBC => Check::fail("glibc", text, "the shim needs glibc 2.28 or newer"),
        _ => Check::fine("glibc", text),
    }
}

fn clock() -> Check {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(source).unwrap_or_default();
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let invariant = cpu.contains(" constant_tsc") && cpu.contains(" nonstop_tsc");
    match source.trim() {
        "tsc" => Check::fine("clock", "tsc: 26 ns a recorded call"),
        "arch_sys_counter" => Check::fine("clock", "arch_sys_counter"),
        source if invariant && ["kvm-clock", "hyperv_clocksource_tsc_page"].contains(&source) => {
            Check::fine("clock", format!("{source} with an invariant tsc: 26 ns a recorded call"))
        }
        "" => Check::note("clock", "clock source unknown", "CLOCK_MONOTONIC is used: some 43 ns a recorded call"),
        source => Check::note("clock", source, "CLOCK_MONOTONIC is used: some 43 ns a recorded call"),
    }
}

fn shm() -> Check {
    match free_bytes("/dev/shm") {
        Some((size, free)) => {
            Check::fine("/dev/shm", format!("{} MiB, {} free; left to the programs", size >> 20, free >> 20))
        }
        None => Check::note("/dev/shm", "missing", "gputrace does not need it, NCCL and DataLoader do"),
    }
}

fn folder() -> Check {
    let here = std::env::current_dir().unwrap_or_default();
    let shown = here.display().to_string();
    // SAFETY: the name ends in a nul byte.
    if unsafe { libc::access(c".".as_ptr(), libc::W_OK) } != 0 {
        return Check::note("trace", format!("{shown} is not writable"), "say where the trace shall be with -o");
    }
    let free = free_bytes(&shown).map_or(0, |(_, free)| free);
    let found = format!("{shown}: {:.1} GiB free", free as f64 / f64::from(1 << 30));
    if free < 2 << 30 {
        return Check::note("trace", found, "a trace takes up to 2 GiB: set --max-size, or -o on another disk");
    }
    Check::fine("trace", found)
}

fn preload() -> Option<Check> {
    let preload = std::env::var("LD_PRELOAD").ok().filter(|value| !value.is_empty())?;
    Some(Check::note("LD_PRELOAD", format!("{preload}: stays, after the shim"), ""))
}

fn seccomp() -> Option<Check> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?.trim();
    (mode != "0").then(|| Check::note("seccomp", format!("a system call filter is active (mode {mode})"), ""))
}

fn ptrace() -> Option<Check> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    match scope.trim() {
        "0" | "1" => None,
        scope => Some(Check::note(
            "yama",
            format!("ptrace_scope {scope}: children that escape tracing may go unnoticed"),
            "",
        )),
    }
}

/// A limit that bounds the segment; the shim may use the limit divided by `share`.
fn limit(name: &'static str, which: libc::__rlimit_resource_t, share: u64) -> Check {
    let (soft, _) = limits(which);
    let room = soft / share;
    if soft == libc::RLIM_INFINITY {
        Check::fine(name, "unlimited")
    } else if room < LEAST_SEGMENT_BYTES {
        let least = (LEAST_SEGMENT_BYTES * share) >> 20;
        Check::fail(name, format!("{} MiB leaves no room for events", soft >> 20), format!("raise it to {least} MiB"))
    } else if room < SEGMENT_BYTES {
        Check::note(name, format!("{} MiB", soft >> 20), "the memory for events is smaller than usual")
    } else {
        Check::fine(name, format!("{} MiB", soft >> 20))
    }
}

fn open_files() -> Check {
    let (soft, hard) = limits(libc::RLIMIT_NOFILE);
    let found = format!("{soft}, at most {hard}");
    if hard < 64 {
        Check::note("RLIMIT_NOFILE", found, "with many processes some may not be traced")
    } else {
        Check::fine("RLIMIT_NOFILE", found)
    }
}

fn limits(which: libc::__rlimit_resource_t) -> (u64, u64) {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call.
    unsafe { libc::getrlimit(which, &mut limits) };
    (limits.rlim_cur, limits.rlim_max)
}

/// Size and free bytes of the file system at `path`.
fn free_bytes(path: &str) -> Option<(u64, u64)> {
    let path = CString::new(path).ok()?;
    // SAFETY: plain data, for which zeros are valid; the path ends in a nul byte.
    let meta = unsafe {
        let mut meta: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut meta) == 0).then_some(meta)?
    };
    Some((meta.f_blocks * meta.f_frsize, meta.f_bavail * meta.f_frsize))
}

/// The first two numbers of `5.10.0-21-amd64` or `2.36`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("5.10.0-21-amd64"), Some((5, 10)));
        assert_eq!(version("2.36"), Some((2, 36)));
        assert_eq!(version("x"), None);
        assert!(version("4.9").unwrap() < WIPE_ON_FORK);
    }

    #[test]
    fn this_machine_is_good_enough_to_run_these_tests() {
        for check in [memfd(), glibc(), shm(), clock(), kernel()] {
            assert!(check.level != Level::Fail, "{check:?}");
        }
    }
}
