//! By libproc.

use std::ffi::{c_char, c_int};
use std::mem::{size_of, zeroed};

/// Of proc_pidinfo: a thread by its system-wide number (`PROC_PIDTHREADID64INFO`).
const THREAD_BY_NUMBER: c_int = 15;
const PATH_BYTES: usize = 4096;

/// Name of a thread; none where the program gave it none.
pub(crate) fn thread_name(pid: i32, tid: i32) -> Option<String> {
    const BYTES: c_int = size_of::<libc::proc_threadinfo>() as c_int;
    // SAFETY: an all-zero value of this plain struct is valid; the call fills at most its bytes.
    let info = unsafe {
        let mut info: libc::proc_threadinfo = zeroed();
        let number = u64::from(tid as u32);
        let got = libc::proc_pidinfo(pid, THREAD_BY_NUMBER, number, (&raw mut info).cast(), BYTES);
        (got == BYTES).then_some(info)?
    };
    Some(text(&info.pth_name)).filter(|name| !name.is_empty())
}

/// Path of a process's executable; empty where it is not known.
pub(crate) fn executable(pid: i32) -> String {
    let mut path = [0 as c_char; PATH_BYTES];
    // SAFETY: the buffer has as many bytes as the call is told.
    unsafe { libc::proc_pidpath(pid, path.as_mut_ptr().cast(), PATH_BYTES as u32) };
    text(&path)
}

fn text(characters: &[c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
