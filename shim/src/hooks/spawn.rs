//! Children of programs that make their children's environment themselves: the loader's and our variables stay in it.
//!
//! Only where the program's own libraries call these functions with an environment; what libSystem calls of itself
//! (`execvp`, `popen`, `system`) passes on the process's own, in which the variables are. A child's environment that names
//! libraries to insert, or holds GPUTRACE=off, is left alone.

use core::ffi::{c_char, c_int};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::kept::{MOST, kept};
use crate::interpose::macho::interpose;
use crate::sys;

/// Our variables as this process was given them: the loader's, and each that begins like ours, of which gputrace sets some twenty.
/// Copies: a program that gives itself a title (`setproctitle`) writes it where the kernel put them. Nobody frees them.
static OURS: [AtomicPtr<c_char>; 64] = [const { AtomicPtr::new(null_mut()) }; 64];

/// Remembers the variables. For the constructor.
pub(crate) fn remember() {
    let is_ours = |text: &[u8]| text.starts_with(b"DYLD_INSERT_LIBRARIES=") || text.starts_with(b"GPUTRACE_");
    let entries = || sys::entries().filter(|entry| is_ours(entry.to_bytes())).take(OURS.len());
    let bytes = entries().map(|entry| entry.to_bytes_with_nul().len()).sum::<usize>();
    let Ok(mut at) = sys::map(bytes.max(1), None) else { return };
    for (place, entry) in OURS.iter().zip(entries()) {
        let text = entry.to_bytes_with_nul();
        // SAFETY: the mapping has room for all of them, and nobody else knows of it.
        unsafe { at.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        place.store(at.cast(), Ordering::Relaxed);
        // SAFETY: up to the mapping's end.
        at = unsafe { at.add(text.len()) };
    }
}

fn ours() -> impl Iterator<Item = *mut c_char> {
    OURS.iter().map(|entry| entry.load(Ordering::Relaxed)).take_while(|entry| !entry.is_null())
}

/// Makes a call with this environment, in which our variables stay.
fn with_ours(given: *const *mut c_char, call: impl FnOnce(*const *mut c_char) -> c_int) -> c_int {
    let mut room = [null_mut(); MOST];
    // SAFETY: the program's own environment, and strings of ours.
    call(unsafe { kept(given, ours(), &mut room) })
}

interpose! {
    /// `int execve(const char *path, char *const argv[], char *const envp[])`
    fn execve(path: *const c_char, argv: *const *mut c_char, envp: *const *mut c_char) -> c_int {
        // SAFETY: the program's own arguments; the environment lives through the call.
        with_ours(envp, |envp| unsafe { libc::execve(path, argv.cast(), envp.cast()) })
    }

    /// `int posix_spawn(pid_t *, const char *path, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
    /// char *const argv[], char *const envp[])`
    fn posix_spawn(
        pid: *mut libc::pid_t,
        path: *const c_char,
        actions: *const libc::posix_spawn_file_actions_t,
        attributes: *const libc::posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char
    ) -> c_int {
        // SAFETY: the program's own arguments; the environment lives through the call.
        with_ours(envp, |envp| unsafe { libc::posix_spawn(pid, path, actions, attributes, argv, envp) })
    }

    /// The same, with the file looked for in PATH.
    fn posix_spawnp(
        pid: *mut libc::pid_t,
        file: *const c_char,
        actions: *const libc::posix_spawn_file_actions_t,
        attributes: *const libc::posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char
    ) -> c_int {
        // SAFETY: the program's own arguments; the environment lives through the call.
        with_ours(envp, |envp| unsafe { libc::posix_spawnp(pid, file, actions, attributes, argv, envp) })
    }
}
