//! A kqueue.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::time::Duration;

/// The descriptors that are watched, each with a token.
pub(in crate::drain) struct Watch(OwnedFd);

impl Watch {
    pub(in crate::drain) fn new() -> io::Result<Watch> {
        // SAFETY: no arguments.
        let fd = unsafe { libc::kqueue() };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made.
        Ok(Watch(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches a descriptor; `once`: only until it has said something.
    pub(in crate::drain) fn add(&self, fd: RawFd, token: u64, once: bool) -> io::Result<()> {
        // SAFETY: an all-zero kevent is a valid value of this plain struct.
        let mut change: libc::kevent = unsafe { zeroed() };
        change.ident = fd as usize;
        change.filter = libc::EVFILT_READ;
        change.flags = libc::EV_ADD | if once { libc::EV_ONESHOT } else { 0 };
        change.udata = without_provenance_mut(token as usize);
        // SAFETY: one change is read, and no event asked for.
        if unsafe { libc::kevent(self.0.as_raw_fd(), &change, 1, null_mut(), 0, null()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sleeps for at most this long, and tells who has something to say.
    pub(in crate::drain) fn sleep(&self, most: Duration, mut tell: impl FnMut(u64)) {
        const MOST: usize = 64;
        // SAFETY: all-zero kevents are valid values of this plain struct.
        let mut events: [libc::kevent; MOST] = unsafe { zeroed() };
        let wait = libc::timespec { tv_sec: most.as_secs() as libc::time_t, tv_nsec: most.subsec_nanos().into() };
        // SAFETY: no change is read; the kernel fills at most `MOST` events.
        let got = unsafe { libc::kevent(self.0.as_raw_fd(), null(), 0, events.as_mut_ptr(), MOST as i32, &wait) };
        events.iter().take(got.max(0) as usize).for_each(|event| tell(event.udata as u64));
    }
}
