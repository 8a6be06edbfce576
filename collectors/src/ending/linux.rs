//! The kernel's word about a process that is nobody's child here.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::kernel;

/// The kernel's answer to `PIDFD_GET_INFO`, as far as it is asked here.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_status: i32,
}

const _: () = assert!(size_of::<Info>() == 64);

/// `_IOWR(0xff, 11, struct pidfd_info)` with the size of its first version.
const GET_INFO: u64 = 3 << 30 | (size_of::<Info>() as u64) << 16 | 0xff << 8 | 11;
/// `PIDFD_INFO_EXIT`.
const INFO_EXIT: u64 = 1 << 3;
/// Fields of /proc/PID/stat after the command: the state is the first, the status the last.
const STAT_FIELDS: usize = 50;

/// The kernel's word: it is in /proc until the parent has waited, and in the descriptor from then on.
pub(super) fn status(pidfd: &OwnedFd, pid: i32) -> Option<i32> {
    remembered(pidfd).or_else(|| unwaited(pidfd, pid)).or_else(|| remembered(pidfd))
}

fn remembered(pidfd: &OwnedFd) -> Option<i32> {
    let mut info = Info { mask: INFO_EXIT, ..Info::default() };
    // SAFETY: the kernel writes at most as many bytes as the request names, which is the struct's size.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (result == 0 && info.mask & INFO_EXIT != 0).then_some(info.exit_status)
}

fn unwaited(pidfd: &OwnedFd, pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = kernel::stat_fields(&stat)?;
    let status = fields.get(STAT_FIELDS - 1)?.parse().ok()?;
    // Who may not look gets a zero, which would mean success. This link asks for the same right.
    fs::read_link(format!("/proc/{pid}/ns/user")).ok()?;
    // SAFETY: signal 0 asks only; there are no further arguments.
    let still = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), 0, 0, 0) } == 0;
    // Another process cannot have had the number while ours kept it.
    (matches!(*fields.first()?, "Z" | "X") && still).then_some(status)
}
