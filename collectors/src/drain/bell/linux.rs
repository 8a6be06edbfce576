//! An eventfd.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Wakes the drain.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        // SAFETY: numbers only; the descriptor is ours.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn try_clone(&self) -> io::Result<Bell> {
        Ok(Bell(self.0.try_clone()?))
    }

    pub(crate) fn ring(&self) {
        // SAFETY: writes eight bytes of a local.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const ONE).cast(), 8) };
        static ONE: u64 = 1;
    }

    pub(in crate::drain) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(in crate::drain) fn quiet(&self) {
        let mut count = 0u64;
        // SAFETY: reads eight bytes into a local.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}
