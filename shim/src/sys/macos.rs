//! Calls of libSystem, which alone is stable on macOS: system calls by number are not. errno is put back after each.
//!
//! Our own calls reach libSystem's functions whoever interposes them: the loader leaves the library that holds the
//! tuples alone.

use core::ffi::{CStr, c_char, c_int, c_void};

use super::Errno;

#[link(name = "System")]
unsafe extern "C" {
    fn clock_gettime_nsec_np(clock: libc::clockid_t) -> u64;
    fn _NSGetArgc() -> *mut c_int;
    fn _NSGetArgv() -> *mut *mut *mut c_char;
    fn _NSGetEnviron() -> *mut *mut *mut c_char;
    fn _NSGetExecutablePath(buffer: *mut c_char, bytes: *mut u32) -> c_int;
}

/// The clock of events whose ticks are nanoseconds: that of mach_absolute_time, which stands still while the machine
/// sleeps and in which Metal gives its times. macOS's CLOCK_MONOTONIC has microseconds only.
pub(crate) const MONOTONIC: libc::clockid_t = libc::CLOCK_UPTIME_RAW;

/// Makes a call, and puts errno back as it was.
fn quietly<T>(call: impl FnOnce() -> T) -> (T, Errno) {
    // SAFETY: the calling thread's own errno.
    unsafe {
        let place = libc::__error();
        let before = *place;
        let result = call();
        let error = Errno(*place);
        *place = before;
        (result, error)
    }
}

fn checked(call: impl FnOnce() -> c_int) -> Result<c_int, Errno> {
    let (result, error) = quietly(call);
    if result < 0 { Err(error) } else { Ok(result) }
}

/// A descriptor that is closed when dropped.
pub(crate) struct Fd(c_int);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        let _ = checked(|| unsafe { libc::close(self.0) });
    }
}

pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { libc::getpid() as u32 }
}

pub(crate) fn getppid() -> u32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { libc::getppid() as u32 }
}

/// The system-wide number of the thread; threads are numbered from the machine's start on.
pub(crate) fn gettid() -> u32 {
    let mut number = 0u64;
    // SAFETY: 0 means the calling thread; the number is written to a local.
    let _ = quietly(|| unsafe { libc::pthread_threadid_np(0, &mut number) });
    number as u32
}

/// Sleeps for less than a second, all of it: who counts naps counts time, whatever signals come.
pub(crate) fn nap(ns: u64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: ns as libc::c_long };
    let at = &raw mut time;
    // SAFETY: the time is a local; what is left takes its place when a signal comes.
    while checked(|| unsafe { libc::nanosleep(at, at) }) == Err(Errno(libc::EINTR)) {}
}

/// Whether there is a process with this id.
pub(crate) fn is_there(pid: u32) -> bool {
    // SAFETY: numbers; signal 0 asks only.
    checked(|| unsafe { libc::kill(pid as libc::pid_t, 0) }) != Err(Errno(libc::ESRCH))
}

pub(crate) fn open(path: &CStr, flags: i32, mode: u32) -> Result<Fd, Errno> {
    // SAFETY: the path is a C string.
    checked(|| unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) }).map(Fd)
}

pub(crate) fn unlink(path: &CStr) {
    // SAFETY: the path is a C string.
    let _ = checked(|| unsafe { libc::unlink(path.as_ptr()) });
}

pub(crate) fn exists(path: &CStr) -> bool {
    // SAFETY: the path is a C string.
    checked(|| unsafe { libc::access(path.as_ptr(), libc::F_OK) }).is_ok()
}

/// Reserves room on the disk, and gives the file this size.
pub(crate) fn fallocate(fd: &Fd, bytes: u64) -> Result<(), Errno> {
    let bytes = bytes as libc::off_t;
    let mut room = libc::fstore_t {
        fst_flags: libc::F_ALLOCATEALL,
        fst_posmode: libc::F_PEOFPOSMODE,
        fst_offset: 0,
        fst_length: bytes,
        fst_bytesalloc: 0,
    };
    // SAFETY: a descriptor of ours; the request reads and writes the struct.
    checked(|| unsafe { libc::fcntl(fd.0, libc::F_PREALLOCATE, &raw mut room) })?;
    // SAFETY: a descriptor and a number.
    checked(|| unsafe { libc::ftruncate(fd.0, bytes) }).map(|_| ())
}

/// Bytes free for us on the file system of this open file.
pub(crate) fn free_bytes(fd: &Fd) -> u64 {
    // SAFETY: an all-zero statvfs is a valid value of this plain struct.
    let mut stat: libc::statvfs = unsafe { core::mem::zeroed() };
    // SAFETY: a descriptor of ours; the call fills the struct.
    match checked(|| unsafe { libc::fstatvfs(fd.0, &mut stat) }) {
        Ok(_) => u64::from(stat.f_bavail).saturating_mul(stat.f_frsize),
        Err(_) => 0,
    }
}

/// The soft limit of a resource.
pub(crate) fn limit(resource: c_int) -> u64 {
    let mut limits = libc::rlimit { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    // SAFETY: the call fills the struct.
    match checked(|| unsafe { libc::getrlimit(resource, &mut limits) }) {
        Ok(_) if limits.rlim_cur != libc::RLIM_INFINITY => limits.rlim_cur,
        _ => u64::MAX,
    }
}

/// The machine's memory, bytes; 0 where the kernel does not say.
pub(crate) fn memory_bytes() -> u64 {
    let (mut bytes, mut size) = (0u64, size_of::<u64>());
    let mut name = [libc::CTL_HW, libc::HW_MEMSIZE];
    let told = checked(|| {
        // SAFETY: writes the number, which is this large.
        unsafe { libc::sysctl(name.as_mut_ptr(), 2, (&raw mut bytes).cast(), &mut size, core::ptr::null_mut(), 0) }
    });
    if told.is_ok() { bytes } else { 0 }
}

/// Maps memory for reading and writing: shared and of a file, or private and anonymous.
pub(crate) fn map(bytes: usize, file: Option<&Fd>) -> Result<*mut u8, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (flags, fd) = match file {
        Some(fd) => (libc::MAP_SHARED, fd.0),
        None => (libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE, -1),
    };
    // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
    let (at, error) = quietly(|| unsafe { libc::mmap(core::ptr::null_mut(), bytes, protection, flags, fd, 0) });
    if at == libc::MAP_FAILED { Err(error) } else { Ok(at.cast()) }
}

/// # Safety
/// Nothing refers to the memory any more.
pub(crate) unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    let _ = checked(|| unsafe { libc::munmap(at.cast::<c_void>(), bytes) });
}

/// Core dumps of macOS leave no memory out.
pub(crate) fn leave_out_of_dumps(_: *mut u8, _: usize) {}

/// macOS makes no huge pages of its own accord.
pub(crate) fn keep_pages_small(_: *mut u8, _: usize) {}

/// Writes one line to stderr, in one call.
pub(crate) fn complain(line: &[u8]) {
    // SAFETY: the call reads the slice.
    let _ = quietly(|| unsafe { libc::write(2, line.as_ptr().cast(), line.len()) });
}

/// A clock in nanoseconds.
#[inline(always)]
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: a number; a clock that there is sets no errno.
    unsafe { clock_gettime_nsec_np(clock) }
}

/// The environment the process was started with. For the constructor only.
pub(super) fn environment() -> *const *const c_char {
    // SAFETY: libSystem's initialiser, which ran before ours, has set it.
    unsafe { (*_NSGetEnviron()).cast_const().cast() }
}

/// The executable's path; bytes written into the buffer.
pub(crate) fn executable(buffer: &mut [u8]) -> usize {
    let mut bytes = buffer.len() as u32;
    // SAFETY: at most `bytes` bytes are written, a zero byte at their end.
    let result = unsafe { _NSGetExecutablePath(buffer.as_mut_ptr().cast(), &mut bytes) };
    if result == 0 { buffer.iter().position(|byte| *byte == 0).unwrap_or(0) } else { 0 }
}

/// The arguments, each ended by a zero byte; bytes written into the buffer.
pub(crate) fn arguments(buffer: &mut [u8]) -> usize {
    // SAFETY: libSystem's own variables, set before our constructor: so many pointers to C strings.
    let arguments = unsafe { core::slice::from_raw_parts(*_NSGetArgv(), (*_NSGetArgc()).max(0) as usize) };
    // SAFETY: each is a C string, which nobody but the program itself may change.
    let texts = arguments.iter().map(|text| unsafe { CStr::from_ptr(*text) }.to_bytes_with_nul());
    let mut written = 0;
    for (place, byte) in buffer.iter_mut().zip(texts.flatten()) {
        *place = *byte;
        written += 1;
    }
    written
}
