//! An epoll.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The descriptors that are watched, each with a token.
pub(in crate::drain) struct Watch(OwnedFd);

impl Watch {
    pub(in crate::drain) fn new() -> io::Result<Watch> {
        // SAFETY: numbers only.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made.
        Ok(Watch(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches a descriptor; `once`: only until it has said something.
    pub(in crate::drain) fn add(&self, fd: RawFd, token: u64, once: bool) -> io::Result<()> {
        let once = if once { libc::EPOLLONESHOT } else { 0 };
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | once) as u32, u64: token };
        // SAFETY: the kernel reads the event.
        if unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sleeps for at most this long, rounded to milliseconds, and tells who has something to say.
    pub(in crate::drain) fn sleep(&self, most: Duration, mut tell: impl FnMut(u64)) {
        const MOST: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let wait = most.as_millis().max(1) as i32;
        // SAFETY: the kernel fills at most `MOST` events.
        let got = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), MOST as i32, wait) };
        events.iter().take(got.max(0) as usize).for_each(|event| tell(event.u64));
    }
}
