//! Names of the system calls in which threads wait, by the numbers of /proc/PID/task/TID/syscall.

use std::ffi::c_long;

const KNOWN: &[(c_long, &str)] = &[
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_close, "close"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_read, "read"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_waitid, "waitid"),
    (libc::SYS_write, "write"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_pause, "pause"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select"),
];

/// The system call in which a thread is; none where it is in none.
pub(super) fn describe(text: &str) -> Option<String> {
    let number: c_long = text.split_whitespace().next()?.parse().ok().filter(|number| *number >= 0)?;
    let name = KNOWN.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
    Some(name.map_or_else(|| format!("system call {number}"), |name| format!("in {name}")))
}

/// Stack pointer and program counter of a thread that sleeps.
pub(super) fn registers(text: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [first, .., stack, counter] = &words[..] else { return None };
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    first.parse::<c_long>().ok()?;
    Some((number(stack)?, number(counter)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_in_a_known_call_in_an_unknown_one_or_in_none() {
        let futex = format!("{} 0x7f 0x80 0x0\n", libc::SYS_futex);
        assert_eq!(describe(&futex).as_deref(), Some("in futex"));
        assert_eq!(describe("99999 0x0").as_deref(), Some("system call 99999"));
        assert_eq!(registers("230 0x1 0x0 0x7ffe10 0x7f00\n"), Some((0x7ffe10, 0x7f00)));
        assert_eq!([registers("running\n"), registers("-1 0x7f"), registers("")], [None, None, None]);
        assert_eq!([describe("running\n"), describe("-1 0x7ffc 0x7f"), describe("")], [None, None, None]);
    }
}
