//! Linux: the kernel, glibc, the clock, and what a container restricts.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};

use super::super::Check;
use super::free_bytes;

/// The shim loads on this glibc and newer.
const OLDEST_GLIBC: (u32, u32) = (2, 28);
/// First kernel with MADV_WIPEONFORK, by which a forked child notices that it needs a segment of its own.
const WIPE_ON_FORK: (u32, u32) = (4, 14);
pub(super) fn checks() -> Vec<Check> {
    vec![memfd(), kernel(), glibc(), clock(), shm()]
}

pub(super) fn restrictions() -> Vec<Check> {
    [seccomp(), ptrace()].into_iter().flatten().collect()
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

/// The first two numbers of `5.10.0-21-amd64` or `2.36`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::super::Level;
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
