//! Inline hooks: patches the driver's functions so that every call of them comes to the shim's hooks.
//!
//! Loaded only where `--hook inline` asked for it, by LD_AUDIT: an auditor of the dynamic loader. The loader tells
//! auditors of every library in every namespace once it is mapped and before anybody can have called it: it is not
//! even relocated then. That is the moment to patch. The auditor has a namespace and a libc of its own, so nothing
//! that it does (it allocates, it uses Rust's std) is seen by the program or by the shim's malloc.
//!
//! What is patched is what the shim exports: the driver's function of a name is led to the shim's function of that
//! name. Where its original goes on is written into a variable of the shim ([`gputrace_abi::patches`]). A function that
//! cannot be patched safely (`gputrace_patch`) is left as it was, whole, and the trace names it.

mod elf;
mod engine;
mod patch;
mod process;

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use process::Process;

/// `struct link_map` of link.h, as far as it is public.
#[repr(C)]
pub struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: usize,
}

const LA_ACT_CONSISTENT: c_uint = 0;

/// Whether this process is to be patched.
static WANTED: AtomicBool = AtomicBool::new(false);
static PROCESS: Cell = Cell(UnsafeCell::new(Process::new()));
/// The pid of the process that works on it now; 0: none does.
static WORKING: AtomicU32 = AtomicU32::new(0);

struct Cell(UnsafeCell<Process>);

// SAFETY: the loader calls auditors with its lock held, one thread at a time.
unsafe impl Sync for Cell {}

/// Works on the process, if it is to be patched.
///
/// The loader's lock is ours too, and it is free in a forked child. What another thread was at work on when this child was
/// forked is not: neither the process nor the auditor's malloc is touched in it any more, and it is not patched further.
fn with_process(work: impl FnOnce(&mut Process)) {
    if !WANTED.load(Ordering::Relaxed) {
        return;
    }
    let own = std::process::id();
    match WORKING.swap(own, Ordering::Acquire) {
        0 => {
            // SAFETY: nobody else works on it, see above.
            work(unsafe { &mut *PROCESS.0.get() });
            WORKING.store(0, Ordering::Release);
        }
        before => {
            WORKING.store(before, Ordering::Relaxed);
            if before != own {
                WANTED.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// Whether this process is to be patched: it was asked for, its session is still there, nothing switched tracing off.
fn is_wanted() -> bool {
    let asked = std::env::var_os("GPUTRACE_HOOK").is_some_and(|value| value == "inline");
    let off = std::env::var_os("GPUTRACE").is_some_and(|value| value == "off");
    let session = std::env::var_os("GPUTRACE_SESSION").is_some_and(|path| std::path::Path::new(&path).is_dir());
    asked && session && !off && !std::path::Path::new("/etc/gputrace/disable").exists()
}

/// The loader asks for the version of the interface; the calls below are the same in all. An answer of 0 would have us
/// unloaded, which the loader does not survive: where nothing is wanted of us we do nothing.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(version: c_uint) -> c_uint {
    WANTED.store(is_wanted(), Ordering::Relaxed);
    version
}

/// A library was mapped.
///
/// # Safety
/// The loader's own contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *const LinkMap, namespace: libc::c_long, cookie: *mut usize) -> c_uint {
    // SAFETY: the loader passes the library that it is mapping.
    if let Some(map) = unsafe { map.as_ref() } {
        // SAFETY: the library is mapped; its name is null or a C string.
        with_process(|process| unsafe { process.opened(map, namespace as isize, cookie as usize) });
    }
    0 // no binding of symbols is to be told to us
}

/// The lists of libraries begin or end to change.
///
/// # Safety
/// The loader's own contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_activity(_cookie: *mut c_void, flag: c_uint) {
    if flag == LA_ACT_CONSISTENT {
        // SAFETY: all that was opened is mapped, and nothing of what is new has run.
        with_process(|process| unsafe { process.complete() });
    }
}

/// A library is about to be unmapped.
///
/// # Safety
/// The loader's own contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objclose(cookie: *mut usize) -> c_uint {
    with_process(|process| process.closed(cookie as usize));
    0
}
