//! Calls that may wait for the operating system: locks, threads, files, pipes, sockets, time, children.
//!
//! A line names the kind of the wait, how the function tells an error, its signature, and what it waits for. Pointers
//! are passed on and not looked at, so their types are not spelled out. Lines of `versioned` have another function of
//! the same name in their library (a condition variable of another layout, say): [`crate::interpose::versions`] exports
//! the version that programs ask for today, and who asks for the other one does not reach us.
//!
//! Each exported function is one jump to where its place in [`ENTRIES`] says: to libc's function, until waits are looked
//! at in this process; then to ours. A process that does not use the GPU runs no code of ours but that jump.
//!
//! What it does not see: reads that libc makes for itself (`fread`), page faults of mapped files, and locks that were
//! free, which are taken without a look at the clock.

use core::ffi::{CStr, c_int, c_long, c_uint, c_ulong, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use gputrace_abi::event::detail;

use crate::interpose::{elf, variadic};
use crate::wait::{self, FIRST_OF_LIST, Mark, Target, Tells};

/// A pointer that is only passed on.
type At = *mut c_void;

/// A function of the lists.
pub(crate) struct Function {
    pub(crate) name: &'static CStr,
    /// Kind of the wait, one of [`detail`].
    pub(crate) detail: u8,
    pub(crate) tells: Tells,
    /// Our function.
    pub(crate) ours: *const (),
}

// SAFETY: the only pointer is the address of a function.
unsafe impl Sync for Function {}

/// Number of the first function.
pub(crate) const FIRST: u16 = super::nccl::FIRST + super::nccl::COUNT as u16;

fn nothing() -> Target {
    Target::default()
}

fn at(address: At) -> Target {
    Target::at(address as usize)
}

fn fd(descriptor: c_int) -> Target {
    Target::fd(descriptor)
}

/// The descriptor of a list of one: which pipe or socket a program waits for.
fn list(list: At, count: c_ulong) -> Target {
    if count == 1 { Target { descriptor: FIRST_OF_LIST, ..at(list) } } else { nothing() }
}

macro_rules! waits {
    (
        exported {
            $($kind:ident $tells:ident: $name:ident $arguments:tt -> $result:ty => $target:expr;)*
        }
        tried {
            $($lock_kind:ident $lock_tells:ident: $lock:ident $lock_arguments:tt -> $lock_result:ty => $lock_target:expr, $try:ident;)*
        }
        versioned {
            $($old_kind:ident $old_tells:ident: $old:ident $old_arguments:tt -> $old_result:ty => $old_target:expr;)*
        }
        variadic {
            $($other_kind:ident $other_tells:ident: $other:ident;)*
        }
    ) => {
        /// Places of the functions in the list.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy)]
        pub(crate) enum Index { $($name,)* $($lock,)* $($old,)* $($other,)* }

        const COUNT: usize =
            [$(stringify!($name),)* $(stringify!($lock),)* $(stringify!($old),)* $(stringify!($other),)*].len();

        /// The functions, numbered from [`FIRST`] on.
        pub(crate) static LIST: [Function; COUNT] = [
            $(function!($kind $tells $name, ours::$name),)*
            $(function!($lock_kind $lock_tells $lock, ours::$lock),)*
            $(function!($old_kind $old_tells $old, ours::$old),)*
            $(function!($other_kind $other_tells $other, variadic::$other),)*
        ];

        /// Where the exported functions jump to. At first to ours, which find libc's.
        pub(crate) static ENTRIES: [AtomicPtr<()>; COUNT] = [
            $(AtomicPtr::new(ours::$name as *mut ()),)*
            $(AtomicPtr::new(ours::$lock as *mut ()),)*
            $(AtomicPtr::new(ours::$old as *mut ()),)*
            $(AtomicPtr::new(variadic::$other as *mut ()),)*
        ];

        $(entry!(#[unsafe(no_mangle)] $name = $name, "");)*
        $(entry!(#[unsafe(no_mangle)] $lock = $lock, "");)*
        $(entry!(#[unsafe(no_mangle)] $other = $other, "");)*

        /// What takes each lock of `tried` if it is free; 0 where that must not be called.
        static TRIES: Tries = Tries { $($lock: AtomicUsize::new(0),)* };
        struct Tries { $($lock: AtomicUsize,)* }
        static TRIED: &[(&CStr, &CStr, &AtomicUsize)] = &[$((name!($lock), name!($try), &TRIES.$lock),)*];

        /// Our functions: the clock before and after.
        mod ours {
            use super::*;
            $(hook!($name $arguments -> $result => $target);)*
            $(hook!($lock $lock_arguments -> $lock_result => $lock_target, tried);)*
            $(hook!($old $old_arguments -> $old_result => $old_target);)*
        }
    };
}

macro_rules! name {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

macro_rules! function {
    ($kind:ident $tells:ident $name:ident, $ours:path) => {
        Function { name: name!($name), detail: detail::$kind, tells: Tells::$tells, ours: $ours as *const () }
    };
}

/// An exported function. `$directive` is for the assembler.
macro_rules! entry {
    (#[$export:meta] $symbol:ident = $name:ident, $directive:expr) => {
        #[doc = concat!("`", stringify!($name), "` as the program calls it.")]
        #[$export]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $symbol() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                $directive,
                "endbr64",
                "jmp qword ptr [rip + {entries} + {offset}]",
                entries = sym $crate::hooks::os::ENTRIES,
                offset = const 8 * $crate::hooks::os::Index::$name as usize,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                $directive,
                "hint #34", // bti c
                "adrp x16, {entries} + {offset}",
                "ldr x16, [x16, :lo12:{entries} + {offset}]",
                "br x16",
                entries = sym $crate::hooks::os::ENTRIES,
                offset = const 8 * $crate::hooks::os::Index::$name as usize,
            );
        }
    };
}
pub(crate) use entry;

macro_rules! hook {
    ($name:ident ($($argument:ident: $type:ty),*) -> $result:ty => $target:expr) => {
        hook!(@make $name($($argument: $type),*) -> $result => $target, None::<c_int>);
    };
    ($name:ident ($lock:ident: $at:ty $(, $argument:ident: $type:ty)*) -> $result:ty => $target:expr, tried) => {
        hook!(
            @make $name($lock: $at $(, $argument: $type)*) -> $result => $target,
            wait::tried(TRIES.$name.load(Ordering::Relaxed), $lock)
        );
    };
    (@make $name:ident ($($argument:ident: $type:ty),*) -> $result:ty => $target:expr, $taken:expr) => {
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            const NUMBER: u16 = number(Index::$name);
            const NAME: &CStr = name!($name);
            let address = wait::original(NUMBER, NAME);
            if address == 0 {
                return wait::missing(NUMBER) as $result;
            }
            // SAFETY: the address is that of the function of this name, whose signature this is.
            let f: unsafe extern "C" fn($($type),*) -> $result = unsafe { core::mem::transmute(address) };
            if !wait::is_on() {
                // SAFETY: the program's own arguments, passed on.
                return unsafe { f($($argument),*) };
            }
            if let Some(taken) = $taken {
                return taken as $result;
            }
            let mut mark = Mark::new(NUMBER);
            wait::begin(&mut mark);
            // SAFETY: as above.
            let result = unsafe { f($($argument),*) };
            wait::end(&mut mark, result as i64, $target);
            result
        }
    };
}

/// Number of a function among all hooks.
pub(crate) const fn number(function: Index) -> u16 {
    FIRST + function as u16
}

/// Finds all originals at once, in the constructor: a later first call may be made in a signal handler, or in a child
/// that was forked while another thread held the loader's lock. Those that are found are jumped to from now on.
pub(crate) fn find_all() {
    elf::each_after_us(|library| {
        for (n, function) in LIST.iter().enumerate() {
            let place = super::original(FIRST + n as u16);
            if place.load(Ordering::Relaxed) == 0 {
                // SAFETY: the library is loaded while the loader visits it.
                place.store(unsafe { library.find(function.name, false) }, Ordering::Relaxed);
            }
        }
    });
    find_tries();
    for (n, entry) in ENTRIES.iter().enumerate() {
        let original = super::original(FIRST + n as u16).load(Ordering::Relaxed);
        if original != 0 && !wait::is_on() {
            entry.store(original as *mut (), Ordering::Relaxed);
        }
    }
}

/// Makes all exported functions jump to ours.
pub(crate) fn lead_to_ours() {
    for (function, entry) in LIST.iter().zip(&ENTRIES) {
        entry.store(function.ours.cast_mut(), Ordering::Relaxed);
    }
}

/// Finds what takes a free lock, where the lock's own function is libc's: a preloaded wrapper of locks, which calls are
/// passed to, must see every one of them.
fn find_tries() {
    for (lock, take, place) in TRIED {
        for library in [c"libc.so.6", c"libpthread.so.0"] {
            let found = elf::in_library(library, take);
            if found != 0 && elf::in_library(library, lock) == elf::next_definition(lock) {
                place.store(found, Ordering::Relaxed);
            }
        }
    }
}

waits! {
    exported {
        CHILD Nothing: pclose(stream: At) -> c_int => at(stream);
        CHILD Nothing: system(command: At) -> c_int => nothing();
        CHILD Errno: wait(status: At) -> c_int => nothing();
        CHILD Errno: wait3(status: At, options: c_int, usage: At) -> c_int => nothing();
        CHILD Errno: wait4(pid: c_int, status: At, options: c_int, usage: At) -> c_int => nothing();
        CHILD Errno: waitid(kind: c_int, id: c_uint, information: At, options: c_int) -> c_int => nothing();
        CHILD Errno: waitpid(pid: c_int, status: At, options: c_int) -> c_int => nothing();

        CONDITION Nothing: pthread_barrier_wait(barrier: At) -> c_int => at(barrier);
        CONDITION Code: pthread_cond_clockwait(condition: At, mutex: At, clock: c_int, until: At) -> c_int => at(condition);

        JOIN Code: pthread_clockjoin_np(thread: At, value: At, clock: c_int, until: At) -> c_int => at(thread);
        JOIN Code: pthread_join(thread: At, value: At) -> c_int => at(thread);
        JOIN Code: pthread_timedjoin_np(thread: At, value: At, until: At) -> c_int => at(thread);

        LOCK Errno: flock(file: c_int, operation: c_int) -> c_int => fd(file);
        LOCK Errno: lockf(file: c_int, command: c_int, bytes: i64) -> c_int => fd(file);
        LOCK Errno: lockf64(file: c_int, command: c_int, bytes: i64) -> c_int => fd(file);
        LOCK Code: pthread_mutex_clocklock(mutex: At, clock: c_int, until: At) -> c_int => at(mutex);
        LOCK Code: pthread_rwlock_clockrdlock(lock: At, clock: c_int, until: At) -> c_int => at(lock);
        LOCK Code: pthread_rwlock_clockwrlock(lock: At, clock: c_int, until: At) -> c_int => at(lock);
        LOCK Code: pthread_rwlock_timedrdlock(lock: At, until: At) -> c_int => at(lock);
        LOCK Code: pthread_rwlock_timedwrlock(lock: At, until: At) -> c_int => at(lock);

        POLL Errno: __poll_chk(files: At, count: c_ulong, timeout: c_int, room: usize) -> c_int => list(files, count);
        POLL Errno: __ppoll_chk(files: At, count: c_ulong, timeout: At, mask: At, room: usize) -> c_int => list(files, count);
        POLL Errno: epoll_pwait(epoll: c_int, events: At, most: c_int, timeout: c_int, mask: At) -> c_int => fd(epoll);
        POLL Errno: epoll_pwait2(epoll: c_int, events: At, most: c_int, timeout: At, mask: At) -> c_int => fd(epoll);
        POLL Errno: epoll_wait(epoll: c_int, events: At, most: c_int, timeout: c_int) -> c_int => fd(epoll);
        POLL Errno: poll(files: At, count: c_ulong, timeout: c_int) -> c_int => list(files, count);
        POLL Errno: ppoll(files: At, count: c_ulong, timeout: At, mask: At) -> c_int => list(files, count);
        POLL Errno: pselect(count: c_int, read: At, write: At, other: At, timeout: At, mask: At) -> c_int => nothing();
        POLL Errno: select(count: c_int, read: At, write: At, other: At, timeout: At) -> c_int => nothing();

        READ Errno: __pread64_chk(file: c_int, to: At, bytes: usize, offset: i64, room: usize) -> isize => fd(file);
        READ Errno: __pread_chk(file: c_int, to: At, bytes: usize, offset: i64, room: usize) -> isize => fd(file);
        READ Errno: __read_chk(file: c_int, to: At, bytes: usize, room: usize) -> isize => fd(file);
        READ Errno: __recv_chk(socket: c_int, to: At, bytes: usize, room: usize, flags: c_int) -> isize => fd(socket);
        READ Errno: __recvfrom_chk(socket: c_int, to: At, bytes: usize, room: usize, flags: c_int, from: At, length: At) -> isize => fd(socket);
        READ Errno: accept(socket: c_int, from: At, length: At) -> c_int => fd(socket);
        READ Errno: accept4(socket: c_int, from: At, length: At, flags: c_int) -> c_int => fd(socket);
        READ Errno: pread(file: c_int, to: At, bytes: usize, offset: i64) -> isize => fd(file);
        READ Errno: pread64(file: c_int, to: At, bytes: usize, offset: i64) -> isize => fd(file);
        READ Errno: preadv(file: c_int, parts: At, count: c_int, offset: i64) -> isize => fd(file);
        READ Errno: preadv2(file: c_int, parts: At, count: c_int, offset: i64, flags: c_int) -> isize => fd(file);
        READ Errno: preadv64(file: c_int, parts: At, count: c_int, offset: i64) -> isize => fd(file);
        READ Errno: preadv64v2(file: c_int, parts: At, count: c_int, offset: i64, flags: c_int) -> isize => fd(file);
        READ Errno: read(file: c_int, to: At, bytes: usize) -> isize => fd(file);
        READ Errno: readv(file: c_int, parts: At, count: c_int) -> isize => fd(file);
        READ Errno: recv(socket: c_int, to: At, bytes: usize, flags: c_int) -> isize => fd(socket);
        READ Errno: recvfrom(socket: c_int, to: At, bytes: usize, flags: c_int, from: At, length: At) -> isize => fd(socket);
        READ Errno: recvmmsg(socket: c_int, messages: At, count: c_uint, flags: c_int, timeout: At) -> c_int => fd(socket);
        READ Errno: recvmsg(socket: c_int, message: At, flags: c_int) -> isize => fd(socket);

        SEMAPHORE Errno: sem_clockwait(semaphore: At, clock: c_int, until: At) -> c_int => at(semaphore);
        SEMAPHORE Errno: sem_timedwait(semaphore: At, until: At) -> c_int => at(semaphore);
        SEMAPHORE Errno: sem_wait(semaphore: At) -> c_int => at(semaphore);
        SEMAPHORE Errno: semop(set: c_int, operations: At, count: usize) -> c_int => nothing();
        SEMAPHORE Errno: semtimedop(set: c_int, operations: At, count: usize, timeout: At) -> c_int => nothing();

        SLEEP Code: clock_nanosleep(clock: c_int, flags: c_int, time: At, rest: At) -> c_int => nothing();
        SLEEP Errno: nanosleep(time: At, rest: At) -> c_int => nothing();
        SLEEP Nothing: sleep(seconds: c_uint) -> c_uint => nothing();
        SLEEP Errno: usleep(us: c_uint) -> c_int => nothing();

        SYNC Errno: fdatasync(file: c_int) -> c_int => fd(file);
        SYNC Errno: fsync(file: c_int) -> c_int => fd(file);
        SYNC Errno: msync(address: At, bytes: usize, flags: c_int) -> c_int => at(address);
        SYNC Errno: sync_file_range(file: c_int, offset: i64, bytes: i64, flags: c_uint) -> c_int => fd(file);
        SYNC Errno: syncfs(file: c_int) -> c_int => fd(file);

        WRITE Errno: connect(socket: c_int, to: At, length: c_uint) -> c_int => fd(socket);
        WRITE Errno: copy_file_range(from: c_int, from_at: At, to: c_int, to_at: At, bytes: usize, flags: c_uint) -> isize => fd(to);
        WRITE Errno: pwrite(file: c_int, from: At, bytes: usize, offset: i64) -> isize => fd(file);
        WRITE Errno: pwrite64(file: c_int, from: At, bytes: usize, offset: i64) -> isize => fd(file);
        WRITE Errno: pwritev(file: c_int, parts: At, count: c_int, offset: i64) -> isize => fd(file);
        WRITE Errno: pwritev2(file: c_int, parts: At, count: c_int, offset: i64, flags: c_int) -> isize => fd(file);
        WRITE Errno: pwritev64(file: c_int, parts: At, count: c_int, offset: i64) -> isize => fd(file);
        WRITE Errno: pwritev64v2(file: c_int, parts: At, count: c_int, offset: i64, flags: c_int) -> isize => fd(file);
        WRITE Errno: send(socket: c_int, from: At, bytes: usize, flags: c_int) -> isize => fd(socket);
        WRITE Errno: sendfile(to: c_int, from: c_int, from_at: At, bytes: usize) -> isize => fd(to);
        WRITE Errno: sendfile64(to: c_int, from: c_int, from_at: At, bytes: usize) -> isize => fd(to);
        WRITE Errno: sendmmsg(socket: c_int, messages: At, count: c_uint, flags: c_int) -> c_int => fd(socket);
        WRITE Errno: sendmsg(socket: c_int, message: At, flags: c_int) -> isize => fd(socket);
        WRITE Errno: sendto(socket: c_int, from: At, bytes: usize, flags: c_int, to: At, length: c_uint) -> isize => fd(socket);
        WRITE Errno: splice(from: c_int, from_at: At, to: c_int, to_at: At, bytes: usize, flags: c_uint) -> isize => fd(to);
        WRITE Errno: write(file: c_int, from: At, bytes: usize) -> isize => fd(file);
        WRITE Errno: writev(file: c_int, parts: At, count: c_int) -> isize => fd(file);
    }

    // With the function that takes the lock if it is free. Not those that look at their clock or time before they look
    // at the lock: they refuse a wrong one though the lock is free.
    tried {
        LOCK Code: pthread_mutex_lock(mutex: At) -> c_int => at(mutex), pthread_mutex_trylock;
        LOCK Code: pthread_mutex_timedlock(mutex: At, until: At) -> c_int => at(mutex), pthread_mutex_trylock;
        LOCK Code: pthread_rwlock_rdlock(lock: At) -> c_int => at(lock), pthread_rwlock_tryrdlock;
        LOCK Code: pthread_rwlock_wrlock(lock: At) -> c_int => at(lock), pthread_rwlock_trywrlock;
    }

    versioned {
        CONDITION Code: pthread_cond_timedwait(condition: At, mutex: At, until: At) -> c_int => at(condition);
        CONDITION Code: pthread_cond_wait(condition: At, mutex: At) -> c_int => at(condition);
        POLL Negative: io_getevents(context: At, least: c_long, most: c_long, events: At, timeout: At) -> c_int => nothing();
    }

    // Our functions are in [`crate::interpose::variadic`].
    variadic {
        FUTEX Errno: syscall;
        LOCK Errno: fcntl;
        LOCK Errno: fcntl64;
    }
}
