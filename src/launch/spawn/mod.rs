//! Starts the target: a child puts back what the launcher changed about itself and execs. posix_spawn cannot ignore a
//! signal or set a limit in the child.
//!
//! Not by `std::process::Command`, which sorts the environment, drops entries that are no `NAME=value`, and gives the
//! target SIGPIPE and a signal mask of its own choice. The target stays in this process group, with this terminal,
//! these descriptors and these limits.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND, OWN_FAILURE};

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

/// The error for the user when exec fails although the file was there and executable.
pub(crate) fn exec_failure(command: &OsStr, error: &io::Error) -> anyhow::Error {
    let name = command.to_string_lossy();
    match error.raw_os_error() {
        Some(libc::ENOENT) => Failure::error(NOT_FOUND, format!("{name}: its interpreter or loader does not exist")),
        Some(libc::ENOEXEC) => {
            Failure::error(NOT_EXECUTABLE, format!("{name}: neither a program for this machine nor a script"))
        }
        Some(libc::EAGAIN | libc::ENOMEM) => Failure::error(OWN_FAILURE, format!("{name}: cannot be started: {error}")),
        _ => Failure::error(NOT_EXECUTABLE, format!("{name}: cannot be executed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::inherited::Inherited;

    fn program(words: &[&str], environment: &[&str]) -> Program {
        let strings = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        Program::new(Path::new(words[0]), &strings(words), strings(environment)).unwrap()
    }

    fn nothing_blocked() -> Inherited {
        // SAFETY: plain data, for which zeros are valid: the empty set.
        Inherited::note_and_block(&unsafe { std::mem::zeroed() })
    }

    fn exit_code(pid: u32) -> i32 {
        let mut status = 0;
        // SAFETY: the status lives through the call and the child is ours.
        unsafe { libc::waitpid(pid as i32, &mut status, 0) };
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_program_gets_its_arguments_and_exactly_its_environment() {
        let script = "[ \"$0 $1\" = 'a b' ] && [ \"$X\" = 1 ] && [ -z \"$HOME\" ] && exit 7";
        let pid = program(&["/bin/sh", "-c", script, "a", "b"], &["X=1"]).spawn(&nothing_blocked()).unwrap();
        assert_eq!(exit_code(pid), 7);
    }

    #[test]
    fn a_script_without_a_first_line_is_run_by_the_shell() {
        let folder = crate::launch::testing::Folder::new("spawn");
        let script = folder.file("script", b"exit $1\n", 0o755);
        let pid = program(&[script.to_str().unwrap(), "5"], &[]).spawn(&nothing_blocked()).unwrap();
        assert_eq!(exit_code(pid), 5);
    }

    #[test]
    fn a_failed_exec_is_an_error_with_the_exit_code_of_env() {
        let error = program(&["/no/such/file"], &[]).spawn(&nothing_blocked()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        let code = |errno| {
            let error = exec_failure(OsStr::new("x"), &io::Error::from_raw_os_error(errno));
            error.downcast_ref::<Failure>().unwrap().code
        };
        assert_eq!(code(libc::ENOENT), 127);
        assert_eq!(code(libc::ENOEXEC), 126);
        assert_eq!(code(libc::EACCES), 126);
        assert_eq!(code(libc::EAGAIN), 125);
    }
}
