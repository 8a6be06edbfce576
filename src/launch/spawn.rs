//! Starts the target: fork, put back what the launcher changed about itself, exec.
//!
//! Not by `std::process::Command`, which sorts the environment, drops entries that are no `NAME=value`, and gives the
//! target SIGPIPE and a signal mask of its own choice. The target stays in this process group, with this terminal,
//! these descriptors and these limits.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::inherited::Inherited;

/// Arrays of C strings as exec takes them, made before the fork because after it nothing may allocate.
struct Strings {
    _owned: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Strings {
    fn new(strings: impl Iterator<Item = Vec<u8>>) -> io::Result<Strings> {
        let owned: Vec<CString> = strings.map(CString::new).collect::<Result<_, _>>()?;
        let pointers = owned.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Strings { _owned: owned, pointers })
    }
}

/// A program with its arguments (the first one is its name) and environment (entries as they stand).
pub(crate) struct Program {
    path: CString,
    arguments: Strings,
    /// For a script without an interpreter line, as execvp runs it: `/bin/sh <path> <arguments>`.
    by_shell: Strings,
    environment: Strings,
}

impl Program {
    pub(crate) fn new(path: &Path, arguments: &[OsString], environment: Vec<OsString>) -> io::Result<Program> {
        let bytes = |text: &OsString| text.as_bytes().to_vec();
        let path_bytes = path.as_os_str().as_bytes().to_vec();
        let shell = [b"/bin/sh".to_vec(), path_bytes.clone()];
        Ok(Program {
            path: CString::new(path_bytes)?,
            arguments: Strings::new(arguments.iter().map(bytes))?,
            by_shell: Strings::new(shell.into_iter().chain(arguments.iter().skip(1).map(bytes)))?,
            environment: Strings::new(environment.into_iter().map(OsString::into_vec))?,
        })
    }

    /// Becomes the program; comes back only with an error.
    pub(crate) fn exec(&self) -> io::Error {
        let environment = self.environment.pointers.as_ptr();
        // SAFETY: the strings end in nul bytes, the arrays in null pointers, and all live in `self`.
        unsafe {
            libc::execve(self.path.as_ptr(), self.arguments.pointers.as_ptr(), environment);
            if io::Error::last_os_error().raw_os_error() == Some(libc::ENOEXEC) {
                libc::execve(c"/bin/sh".as_ptr(), self.by_shell.pointers.as_ptr(), environment);
            }
        }
        io::Error::last_os_error()
    }

    /// Starts the program as a child and returns its pid once its exec has succeeded.
    pub(crate) fn spawn(&self, inherited: &Inherited) -> io::Result<u32> {
        let mut pipe = [0; 2];
        // SAFETY: the array has room for the two descriptors.
        if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let [read, write] = pipe;
        // SAFETY: the child makes system calls only until it execs or ends, whatever other threads were doing.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            inherited.restore();
            let error = self.exec().raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
            // SAFETY: the buffer is as long as the call is told; the pipe is open; _exit runs nothing of ours.
            unsafe {
                libc::write(write, error.as_ptr().cast(), error.len());
                libc::_exit(127);
            }
        }
        let failed = io::Error::last_os_error();
        let mut error = [0u8; 4];
        // SAFETY: both descriptors are this function's own and the buffer is as long as the call is told.
        let got = unsafe {
            libc::close(write);
            let got = if pid < 0 { 0 } else { read_fully(read, &mut error) };
            libc::close(read);
            got
        };
        if pid < 0 {
            return Err(failed);
        }
        if got == error.len() {
            // SAFETY: the child is ours and has ended or is about to.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)));
        }
        Ok(pid as u32)
    }
}

/// Reads until the buffer is full or the other end is closed, which is when the child has become the program.
fn read_fully(fd: i32, buffer: &mut [u8; 4]) -> usize {
    let mut have = 0;
    while have < buffer.len() {
        let rest = &mut buffer[have..];
        // SAFETY: the buffer is as long as the call is told.
        let got = unsafe { libc::read(fd, rest.as_mut_ptr().cast(), rest.len()) };
        match got {
            0 => break,
            got if got > 0 => have += got as usize,
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    have
}

/// This process's environment, entry by entry in its order, whatever the entries look like.
pub(crate) fn environment() -> Vec<OsString> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: nothing in this program changes the environment, so the array and its strings stand still; the array
    // ends with a null pointer and each string with a nul byte.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(OsStr::from_bytes(std::ffi::CStr::from_ptr(*at).to_bytes()).to_owned());
            at = at.add(1);
        }
    }
    entries
}
