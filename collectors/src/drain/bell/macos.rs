//! Two ends of a socket.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// Wakes the drain.
pub(crate) struct Bell {
    rope: UnixStream,
    clapper: UnixStream,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        let (rope, clapper) = UnixStream::pair()?;
        rope.set_nonblocking(true)?;
        clapper.set_nonblocking(true)?;
        Ok(Bell { rope, clapper })
    }

    pub(crate) fn try_clone(&self) -> io::Result<Bell> {
        Ok(Bell { rope: self.rope.try_clone()?, clapper: self.clapper.try_clone()? })
    }

    pub(crate) fn ring(&self) {
        // When it is full, it rings already.
        let _ = (&self.rope).write(&[1]);
    }

    pub(in crate::drain) fn descriptor(&self) -> RawFd {
        self.clapper.as_raw_fd()
    }

    pub(in crate::drain) fn quiet(&self) {
        let mut rung = [0; 64];
        while (&self.clapper).read(&mut rung).is_ok_and(|bytes| bytes == rung.len()) {}
    }
}
