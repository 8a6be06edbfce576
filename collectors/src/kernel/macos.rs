//! By libproc.

use std::ffi::{c_char, c_int};
use std::mem::{size_of, zeroed};

use crate::counters::Task;

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

/// Ticks of mach_absolute_time to ns.
#[repr(C)]
struct Timebase {
    numerator: u32,
    denominator: u32,
}

unsafe extern "C" {
    fn mach_timebase_info(info: *mut Timebase) -> c_int;
}

/// What the kernel knows of a process; none of one that has ended.
pub(crate) fn task(pid: i32) -> Option<Task> {
    const BYTES: c_int = size_of::<libc::proc_taskinfo>() as c_int;
    let mut base = Timebase { numerator: 1, denominator: 1 };
    // SAFETY: an all-zero value of this plain struct is valid; the calls fill at most what they are given.
    let info = unsafe {
        mach_timebase_info(&raw mut base);
        let mut info: libc::proc_taskinfo = zeroed();
        let got = libc::proc_pidinfo(pid, libc::PROC_PIDTASKINFO, 0, (&raw mut info).cast(), BYTES);
        (got == BYTES).then_some(info)?
    };
    let ns = |ticks: u64| {
        let ns = u128::from(ticks) * u128::from(base.numerator) / u128::from(base.denominator.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    };
    // The kernel counts these in 32 bits, and wraps.
    let count = |number: i32| u64::from(number as u32);
    Some(Task {
        user_ns: ns(info.pti_total_user),
        system_ns: ns(info.pti_total_system),
        resident_bytes: info.pti_resident_size,
        threads: count(info.pti_threadnum),
        faults: count(info.pti_faults),
        page_ins: count(info.pti_pageins),
    })
}

fn text(characters: &[c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Which files a process has mapped: nobody says.
pub(crate) fn mapped(_: i32, _: &str) -> Option<Vec<String>> {
    None
}

/// Nobody is looked for here.
pub(crate) fn processes() -> Vec<u32> {
    Vec::new()
}
