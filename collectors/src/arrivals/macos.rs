//! macOS has no socket that carries a message in one piece: all segments come as files.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Instant;

use super::{Announced, Arrival};

/// A door through which nobody comes.
pub(super) struct Door;

impl Door {
    pub(super) fn open(_: &Path) -> io::Result<Door> {
        Ok(Door)
    }

    pub(super) fn keep(_: OwnedFd, _: &Path) -> Door {
        Door
    }

    /// There is none to wait at.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        None
    }

    /// Nobody is.
    pub(super) fn is_waiting(&self) -> bool {
        false
    }

    /// Nobody comes.
    pub(super) fn accept(&mut self, _: impl FnMut(Arrival), _: &mut Vec<Announced>) -> bool {
        false
    }

    /// Nobody is waited for.
    pub(super) fn wait(&self, _: Instant) {}
}

/// A descriptor that becomes readable when the process has ended: a kqueue with that one event. None when it already has.
pub(crate) fn open_pidfd(pid: i32) -> Option<OwnedFd> {
    // SAFETY: numbers only; a descriptor that the call returns is ours.
    let queue = unsafe {
        let queue = libc::kqueue();
        (queue >= 0).then(|| OwnedFd::from_raw_fd(queue))?
    };
    // SAFETY: an all-zero kevent is a valid value of this plain struct.
    let mut end: libc::kevent = unsafe { zeroed() };
    end.ident = usize::try_from(pid).ok()?;
    end.filter = libc::EVFILT_PROC;
    end.flags = libc::EV_ADD;
    end.fflags = libc::NOTE_EXIT;
    // SAFETY: one change is read, and no event asked for.
    let added = unsafe { libc::kevent(queue.as_raw_fd(), &end, 1, null_mut(), 0, null()) } == 0;
    added.then_some(queue)
}
