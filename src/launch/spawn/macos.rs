//! A child of fork, which says by a pipe that closes itself at its exec whether that failed.

use std::io::{self, Read};
use std::os::fd::AsRawFd;

use super::Program;
use crate::launch::inherited::Inherited;

impl Program {
    /// Starts the program as a child and returns its pid once its exec has succeeded.
    pub(crate) fn spawn(&self, inherited: &Inherited) -> io::Result<u32> {
        // Both ends are closed by an exec.
        let (mut reader, writer) = io::pipe()?;
        // SAFETY: the child makes system calls only, and becomes another program or ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            inherited.restore();
            let error = self.exec().raw_os_error().unwrap_or(libc::EIO);
            // SAFETY: writes four bytes of a local; _exit runs nothing of ours.
            unsafe {
                libc::write(writer.as_raw_fd(), (&raw const error).cast(), size_of::<i32>());
                libc::_exit(127)
            }
        }
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(writer);
        let mut error = [0; size_of::<i32>()];
        if reader.read_exact(&mut error).is_err() {
            return Ok(pid as u32);
        }
        // SAFETY: the child is ours and has ended or is about to.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)))
    }
}
