//! System calls without libc: they leave errno alone, cannot be interposed, and need no symbol version.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use super::Errno;
use crate::interpose::elf;

/// The clock of events whose ticks are nanoseconds.
pub(crate) const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;

#[cfg(target_arch = "x86_64")]
unsafe fn call6(n: i64, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the kernel clobbers rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") n as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack),
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
unsafe fn call6(n: i64, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the kernel preserves all registers but x0.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") n,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack),
        );
    }
    result
}

/// # Safety
/// As the system call demands.
unsafe fn call(n: i64, a: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let result = unsafe { call6(n, a) };
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// A descriptor that is closed when dropped.
pub(crate) struct Fd(pub(crate) i32);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        let _ = unsafe { call(libc::SYS_close, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}

pub(crate) fn getppid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_getppid, [0; 6]) }.unwrap_or(0) as u32
}

/// Ends the process.
pub(crate) fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: a number; the call does not return.
        let _ = unsafe { call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Threads of this process, the first one as long as any other lives; 0 where /proc does not say.
pub(crate) fn threads() -> u64 {
    // SAFETY: all zeros is a valid structure, which the kernel fills.
    let mut about: libc::stat = unsafe { core::mem::zeroed() };
    let args = [libc::AT_FDCWD as usize, c"/proc/self/task".as_ptr() as usize, &raw mut about as usize, 0, 0, 0];
    // SAFETY: the path is a C string, and the kernel fills the structure.
    let told = unsafe { call(libc::SYS_newfstatat, args) };
    // A folder for each, beside the folder itself and the one above.
    told.map_or(0, |_| (about.st_nlink as u64).saturating_sub(2))
}

pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}

/// Does work that no signal handler may leave by siglongjmp, nor a cancellation: under a lock of the loader's, say, which
/// would stay held. Only faults of the work itself come through. Two system calls.
pub(crate) fn without_signals<R>(work: impl FnOnce() -> R) -> R {
    const FAULTS: [i32; 6] = [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS];
    let all = !FAULTS.iter().fold(0u64, |set, signal| set | 1 << (signal - 1));
    let mut before = 0u64;
    let mask = |how: i32, new: *const u64, old: *mut u64| {
        // SAFETY: the kernel reads one set of 8 bytes, and writes another where it is not null.
        unsafe { call(libc::SYS_rt_sigprocmask, [how as usize, new as usize, old as usize, 8, 0, 0]) }
    };
    let blocked = mask(libc::SIG_BLOCK, &all, &mut before).is_ok();
    let done = work();
    if blocked {
        let _ = mask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
    }
    done
}

/// Sleeps for less than a second, all of it: who counts naps counts time, whatever signals come (a profiler's timer: thousands a second).
pub(crate) fn nap(ns: u64) {
    let mut time = [0u64, ns];
    let at = time.as_mut_ptr() as usize;
    // SAFETY: the kernel reads two 64-bit numbers, and puts what is left in their place when a signal comes.
    while unsafe { call(libc::SYS_nanosleep, [at, at, 0, 0, 0, 0]) } == Err(Errno(libc::EINTR)) {}
}

/// Waits until somebody wakes who waits on this word, at most so long; not at all when it holds another value.
pub(crate) fn wait(word: &AtomicU32, value: u32, ns: u64) {
    let time = [ns / 1_000_000_000, ns % 1_000_000_000];
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    let args = [word.as_ptr() as usize, operation, value as usize, time.as_ptr() as usize, 0, 0];
    // SAFETY: the kernel reads a word that is never unmapped, and two 64-bit numbers.
    let _ = unsafe { call(libc::SYS_futex, args) };
}

/// Wakes who waits on this word.
pub(crate) fn wake(word: &AtomicU32) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the word's address and numbers.
    let _ = unsafe { call(libc::SYS_futex, [word.as_ptr() as usize, operation, i32::MAX as usize, 0, 0, 0]) };
}

/// Names the calling thread, as `ps` and debuggers show it.
pub(crate) fn name_thread(name: &CStr) {
    // SAFETY: a C string.
    let _ = unsafe { call(libc::SYS_prctl, [libc::PR_SET_NAME as usize, name.as_ptr() as usize, 0, 0, 0, 0]) };
}

/// Whether there is a process with this id.
pub(crate) fn is_there(pid: u32) -> bool {
    // SAFETY: numbers; signal 0 asks only.
    let asked = unsafe { call(libc::SYS_kill, [pid as usize, 0, 0, 0, 0, 0]) };
    asked != Err(Errno(libc::ESRCH))
}

/// An anonymous file in memory, whose size the collector may seal: it must not shrink under its reader.
pub(crate) fn memfd(name: &CStr) -> Result<Fd, Errno> {
    let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
    // SAFETY: the name is a C string.
    unsafe { call(libc::SYS_memfd_create, [name.as_ptr() as usize, flags, 0, 0, 0, 0]) }.map(|fd| Fd(fd as i32))
}

pub(crate) fn open(path: &CStr, flags: i32, mode: u32) -> Result<Fd, Errno> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    // SAFETY: the path is a C string.
    unsafe { call(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, mode as usize, 0, 0]) }
        .map(|fd| Fd(fd as i32))
}

pub(crate) fn unlink(path: &CStr) {
    // SAFETY: the path is a C string.
    let _ = unsafe { call(libc::SYS_unlinkat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, 0, 0, 0, 0]) };
}

pub(crate) fn exists(path: &CStr) -> bool {
    // SAFETY: the path is a C string.
    unsafe { call(libc::SYS_faccessat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, 0, 0, 0, 0]) }.is_ok()
}

/// Reads until the end or until the buffer is full.
pub(crate) fn read_all(fd: &Fd, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|r| !r.is_empty()) {
        // SAFETY: the kernel writes at most `len` bytes into the slice.
        match unsafe { call(libc::SYS_read, [fd.0 as usize, rest.as_mut_ptr() as usize, rest.len(), 0, 0, 0]) } {
            Ok(0) | Err(_) => break,
            Ok(n) => done += n,
        }
    }
    done
}

/// Target of a symbolic link; bytes written into the buffer.
fn readlink(path: &CStr, buffer: &mut [u8]) -> usize {
    let at = libc::AT_FDCWD as usize;
    let args = [at, path.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0];
    // SAFETY: the kernel writes at most `len` bytes into the slice.
    unsafe { call(libc::SYS_readlinkat, args) }.unwrap_or(0)
}

pub(crate) fn ftruncate(fd: &Fd, bytes: u64) -> Result<(), Errno> {
    // SAFETY: a descriptor and a number.
    unsafe { call(libc::SYS_ftruncate, [fd.0 as usize, bytes as usize, 0, 0, 0, 0]) }.map(|_| ())
}

pub(crate) fn fallocate(fd: &Fd, bytes: u64) -> Result<(), Errno> {
    // SAFETY: a descriptor and numbers.
    unsafe { call(libc::SYS_fallocate, [fd.0 as usize, 0, 0, bytes as usize, 0, 0]) }.map(|_| ())
}

/// Bytes free for us on the file system of this open file.
pub(crate) fn free_bytes(fd: &Fd) -> u64 {
    // SAFETY: an all-zero statfs is a valid value of this plain struct.
    let mut stat: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel fills the struct.
    let result = unsafe { call(libc::SYS_fstatfs, [fd.0 as usize, &raw mut stat as usize, 0, 0, 0, 0]) };
    if result.is_ok() { stat.f_bavail.saturating_mul(stat.f_bsize as u64) } else { 0 }
}

/// The soft limit of a resource.
pub(crate) fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limits = [u64::MAX; 2];
    // SAFETY: the kernel writes two 64-bit numbers.
    let result = unsafe { call(libc::SYS_prlimit64, [0, resource as usize, 0, limits.as_mut_ptr() as usize, 0, 0]) };
    if result.is_ok() { limits[0] } else { u64::MAX }
}

/// The machine's memory, bytes; 0 where the kernel does not say.
pub(crate) fn memory_bytes() -> u64 {
    // SAFETY: all zeros is a valid structure, which the kernel fills.
    let mut info: libc::sysinfo = unsafe { core::mem::zeroed() };
    // SAFETY: writes the structure.
    let told = unsafe { call(libc::SYS_sysinfo, [(&raw mut info) as usize, 0, 0, 0, 0, 0]) };
    told.map_or(0, |_| info.totalram.saturating_mul(u64::from(info.mem_unit)))
}

/// Maps memory for reading and writing: shared and of a file, or private and anonymous.
pub(crate) fn map(bytes: usize, file: Option<&Fd>) -> Result<*mut u8, Errno> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let (flags, fd) = match file {
        Some(fd) => (libc::MAP_SHARED, fd.0 as usize),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, usize::MAX),
    };
    // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
    unsafe { call(libc::SYS_mmap, [0, bytes, protection, flags as usize, fd, 0]) }.map(|at| at as *mut u8)
}

/// # Safety
/// Nothing refers to the memory any more.
pub(crate) unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { call(libc::SYS_munmap, [at as usize, bytes, 0, 0, 0, 0]) };
}

/// Whether a word can be written to, which stays as it is.
pub(crate) fn is_writable(word: &AtomicUsize) -> bool {
    // FUTEX_WAKE_OP with FUTEX_OP_OR and 0: the kernel writes what it read, in one, and wakes whoever waits for it, which is nobody.
    const OR_NOTHING: usize = 2 << 28;
    let other = AtomicU32::new(0);
    let operation = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
    let args = [other.as_ptr() as usize, operation, 0, 0, word.as_ptr() as usize, OR_NOTHING];
    // SAFETY: the kernel reads and writes half a word as one who had it could, and tells where it must not.
    unsafe { call(libc::SYS_futex, args) }.is_ok()
}

/// Gives the page of an address this protection. False: it has the one that it had.
///
/// # Safety
/// Everybody whose page it is can live with that.
pub(crate) unsafe fn protect(address: usize, protection: i32) -> bool {
    // The sizes that pages have: the kernel refuses what does not begin with one.
    [4 << 10, 16 << 10, 64 << 10].into_iter().any(|page: usize| {
        // SAFETY: the caller's promise.
        unsafe { call(libc::SYS_mprotect, [address & !(page - 1), page, protection as usize, 0, 0, 0]) }.is_ok()
    })
}

/// Leaves memory out of core dumps, which are the program's.
pub(crate) fn leave_out_of_dumps(at: *mut u8, bytes: usize) {
    // SAFETY: the range is a mapping of ours, and the advice changes nothing in this process.
    let _ = unsafe { call(libc::SYS_madvise, [at as usize, bytes, libc::MADV_DONTDUMP as usize, 0, 0, 0]) };
}

/// Has memory that is used here and there take no more than that: no huge pages.
pub(crate) fn keep_pages_small(at: *mut u8, bytes: usize) {
    // SAFETY: the range is a mapping of ours, and the advice changes nothing that it holds.
    let _ = unsafe { call(libc::SYS_madvise, [at as usize, bytes, libc::MADV_NOHUGEPAGE as usize, 0, 0, 0]) };
}

/// Makes the kernel give a forked child zeros in place of these pages. Needs Linux 4.14.
///
/// An emulator (qemu-user 7.2) takes each advice for a hint, ignores it and reports success. It is known by its taking
/// one that there is not.
pub(crate) fn wipe_on_fork(at: *mut u8, bytes: usize) -> Result<(), Errno> {
    const MADV_WIPEONFORK: usize = 18;
    const NO_ADVICE: usize = 9999;
    // SAFETY: the range is a private mapping of ours, and neither advice changes it in this process.
    let advise = |advice| unsafe { call(libc::SYS_madvise, [at as usize, bytes, advice, 0, 0, 0]) };
    match advise(NO_ADVICE) {
        Ok(_) => Err(Errno(libc::EINVAL)),
        Err(_) => advise(MADV_WIPEONFORK).map(|_| ()),
    }
}

/// Sends one message, and a descriptor with it, to a SOCK_SEQPACKET socket in the file system. Waits at most 100 ms in
/// all. Returns the process that listens there; 0 where this process does not see it.
pub(crate) fn send(socket_path: &[u8], message: &[u8], fd: Option<&Fd>) -> Result<u32, Errno> {
    // SAFETY: an all-zero sockaddr_un is a valid value of this plain struct.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    if socket_path.len() >= address.sun_path.len() {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(socket_path) {
        *place = *byte as c_char;
    }
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: numbers only.
    let socket = Fd(unsafe { call(libc::SYS_socket, [libc::AF_UNIX as usize, kind, 0, 0, 0, 0]) }? as i32);
    let wait = libc::timeval { tv_sec: 0, tv_usec: 100_000 };
    let option = [socket.0 as usize, libc::SOL_SOCKET as usize, libc::SO_SNDTIMEO as usize];
    let size = size_of::<libc::timeval>();
    // SAFETY: the kernel reads a timeval of the given size.
    let _ = unsafe { call(libc::SYS_setsockopt, [option[0], option[1], option[2], &raw const wait as usize, size, 0]) };
    let size = size_of::<libc::sockaddr_un>();
    // SAFETY: the kernel reads an address of the given size.
    unsafe { call(libc::SYS_connect, [socket.0 as usize, &raw const address as usize, size, 0, 0, 0]) }?;

    /// A control message with one descriptor, as the kernel lays it out on 64-bit systems.
    #[repr(C)]
    struct Control {
        length: usize,
        level: i32,
        kind: i32,
        fd: i32,
        padding: i32,
    }
    let fd_number = fd.map_or(-1, |fd| fd.0);
    let control = Control { length: 20, level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, fd: fd_number, padding: 0 };
    let vector = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    // SAFETY: an all-zero msghdr is a valid value of this plain struct.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = (&raw const vector).cast_mut();
    header.msg_iovlen = 1;
    if fd.is_some() {
        header.msg_control = (&raw const control).cast_mut().cast();
        header.msg_controllen = size_of::<Control>();
    }
    let flags = libc::MSG_NOSIGNAL as usize;
    // SAFETY: the header points to memory that lives until the call returns; the kernel only reads it.
    unsafe { call(libc::SYS_sendmsg, [socket.0 as usize, &raw const header as usize, flags, 0, 0, 0]) }?;
    Ok(listener(&socket))
}

/// The process that called `listen` on what a socket is connected to; 0: it is out of sight.
fn listener(socket: &Fd) -> u32 {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as u32;
    let option = [socket.0 as usize, libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize];
    let (at, bytes) = (&raw mut who as usize, &raw mut size as usize);
    // SAFETY: the kernel writes at most a ucred, and its size.
    let _ = unsafe { call(libc::SYS_getsockopt, [option[0], option[1], option[2], at, bytes, 0]) };
    who.pid.max(0) as u32
}

/// Writes one line to stderr, in one call.
pub(crate) fn complain(line: &[u8]) {
    // SAFETY: the kernel reads the slice.
    let _ = unsafe { call(libc::SYS_write, [2, line.as_ptr() as usize, line.len(), 0, 0, 0]) };
}

/// A clock in nanoseconds: libc's vDSO call, which makes no system call and sets no errno for a valid clock.
///
/// libc's own: what a plain call finds may be a library that fakes the time, or the wrapper of a sanitizer that is not
/// ready yet.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    static CLOCK_GETTIME: elf::Function = elf::Function::of_libc(c"clock_gettime");
    type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let address = CLOCK_GETTIME.address();
    if address != 0 {
        // SAFETY: the address is libc's clock_gettime, whose signature this is.
        let clock_gettime: ClockGettime = unsafe { core::mem::transmute(address) };
        // SAFETY: libc fills the struct.
        unsafe { clock_gettime(clock, &mut time) };
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The environment the process was started with: where the kernel put it. For the constructor only.
pub(crate) fn environment() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: libc set it before constructors run; other threads that change it do not exist yet.
    unsafe { environ }
}

/// The executable's path; bytes written into the buffer.
pub(crate) fn executable(buffer: &mut [u8]) -> usize {
    readlink(c"/proc/self/exe", buffer)
}

/// The working directory's path; bytes written into the buffer, 0 where it has none.
pub(crate) fn working_directory(buffer: &mut [u8]) -> usize {
    readlink(c"/proc/self/cwd", buffer)
}

/// The arguments, each ended by a zero byte; bytes written into the buffer.
pub(crate) fn arguments(buffer: &mut [u8]) -> usize {
    open(c"/proc/self/cmdline", libc::O_RDONLY, 0).map_or(0, |file| read_all(&file, buffer))
}
