//! By libproc and sysctl. Of programs that macOS protects the kernel hides the environment.

use std::ffi::{OsString, c_int, c_void};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr::null_mut;

use super::Stat;

/// Of proc_listpids: every process.
const PROC_ALL_PIDS: u32 = 1;
/// States of a process, by their numbers.
const STATES: &[u8; 6] = b"?IRSTZ";
const PATH_BYTES: usize = 4096;

/// What libproc says about a process.
fn info(pid: u32) -> Option<libc::proc_bsdinfo> {
    const BYTES: c_int = size_of::<libc::proc_bsdinfo>() as c_int;
    // SAFETY: an all-zero value of this plain struct is valid; the call fills at most its bytes.
    unsafe {
        let mut info: libc::proc_bsdinfo = zeroed();
        let got = libc::proc_pidinfo(pid as c_int, libc::PROC_PIDTBSDINFO, 0, (&raw mut info).cast(), BYTES);
        (got == BYTES).then_some(info)
    }
}

/// State, parent and start of a process.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    let info = info(pid)?;
    let state = STATES.get(info.pbi_status as usize).copied().unwrap_or(b'?');
    let start = info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec;
    Some(Stat { state, parent: info.pbi_ppid, start, stack: 0 })
}

/// Pids of all processes in sight.
pub(crate) fn all() -> Vec<u32> {
    // SAFETY: without a buffer the call says how many bytes it would fill.
    let bytes = unsafe { libc::proc_listpids(PROC_ALL_PIDS, 0, null_mut(), 0) };
    // Some may be started in between.
    let mut pids = vec![0u32; bytes.max(0) as usize / size_of::<u32>() + 64];
    let room = (pids.len() * size_of::<u32>()) as c_int;
    // SAFETY: the buffer has as many bytes as the call is told.
    let filled = unsafe { libc::proc_listpids(PROC_ALL_PIDS, 0, pids.as_mut_ptr().cast(), room) };
    pids.truncate(filled.max(0) as usize / size_of::<u32>());
    pids.retain(|pid| *pid != 0);
    pids
}

/// The kernel does not tell which pid it gave out last.
pub(crate) fn newest() -> Option<u32> {
    None
}

/// The environment with which a process was started, `NAME=value` each followed by a nul byte. It comes after the number of
/// arguments, the executable's path, and the arguments.
pub(crate) fn environment(pid: u32) -> Option<Vec<u8>> {
    let mut names = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid as c_int];
    let mut bytes = 0usize;
    let mut ask = |into: *mut c_void, bytes: &mut usize| {
        // SAFETY: three names; the call fills at most the bytes that it is told, and says how many.
        unsafe { libc::sysctl(names.as_mut_ptr(), 3, into, bytes, null_mut(), 0) == 0 }
    };
    if !ask(null_mut(), &mut bytes) {
        return None;
    }
    let mut text = vec![0u8; bytes];
    if !ask(text.as_mut_ptr().cast(), &mut bytes) {
        return None;
    }
    text.truncate(bytes);
    let (count, rest) = text.split_first_chunk::<4>()?;
    let path = rest.iter().position(|byte| *byte == 0)?;
    let padding = rest[path..].iter().position(|byte| *byte != 0)?;
    let mut at = path + padding;
    for _ in 0..i32::from_ne_bytes(*count) {
        at += rest.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
    }
    Some(rest.get(at..)?.to_vec())
}

/// Whether a process runs with rights that its file lent it: its effective user or group is not its real one.
pub(crate) fn has_borrowed_rights(pid: u32) -> bool {
    info(pid).is_some_and(|info| info.pbi_uid != info.pbi_ruid || info.pbi_gid != info.pbi_rgid)
}

/// The file that a process runs; empty where the kernel does not say.
pub(crate) fn executable(pid: u32) -> PathBuf {
    let mut path = vec![0u8; PATH_BYTES];
    // SAFETY: the buffer has as many bytes as the call is told.
    let length = unsafe { libc::proc_pidpath(pid as c_int, path.as_mut_ptr().cast(), PATH_BYTES as u32) };
    path.truncate(length.max(0) as usize);
    PathBuf::from(OsString::from_vec(path))
}

/// The path of that file.
pub(crate) fn executable_path(pid: u32) -> io::Result<PathBuf> {
    let path = executable(pid);
    if path.as_os_str().is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(path) }
}

/// Name of a process as `ps` shows it.
pub(crate) fn name(pid: u32) -> String {
    let mut name = [0u8; 64];
    // SAFETY: the buffer has as many bytes as the call is told.
    let length = unsafe { libc::proc_name(pid as c_int, name.as_mut_ptr().cast(), name.len() as u32) };
    let name = String::from_utf8_lossy(name.get(..length.max(0) as usize).unwrap_or_default()).into_owned();
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
