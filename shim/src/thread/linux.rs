//! Fork and the ends of threads on Linux: memory that the kernel wipes, and a key beside the state's own word.

use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::State;
use crate::gpu_time::events;
use crate::interpose::elf;
use crate::{sys, tls};

/// Sets for a new thread what only this system has.
pub(super) fn reset(state: &State) {
    events::reset(state);
}

/// The key whose destructor ends a thread's chain; -1 when there is none.
static EXIT_KEY: AtomicU64 = AtomicU64::new(u64::MAX);
static SET_SPECIFIC: AtomicUsize = AtomicUsize::new(0);

/// Has the states wiped at a fork, and makes the exit key.
pub(super) fn prepare(states: *mut u8, bytes: usize) -> Result<(), &'static [u8]> {
    if sys::wipe_on_fork(states, bytes).is_ok() {
        // Without it only a child made by `_Fork` or raw clone, which run no handler, and that starts threads before its first
        // hooked call, would have two threads with one state.
        let _ = at_fork(super::forget);
    } else if !at_fork(super::wipe) {
        return Err(b"the kernel has no MADV_WIPEONFORK (Linux 4.14)");
    }
    if let Some(key) = make_exit_key() {
        SET_SPECIFIC.store(elf::next_or_any(c"pthread_setspecific"), Ordering::Relaxed);
        EXIT_KEY.store(u64::from(key), Ordering::Relaxed);
    }
    Ok(())
}

/// Keys from here on would make pthread_setspecific allocate, inside malloc.
const KEYS: usize = 32;

/// Makes the exit key: the highest of those that need no allocation.
///
/// The program keeps the numbers that it would have got. And a libc in another link namespace (dlmopen) numbers its
/// keys from 0 again but finds values in the same thread: the vendor's driver, opened so, took our value for its own.
fn make_exit_key() -> Option<u32> {
    let create = elf::next_or_any(c"pthread_key_create");
    let delete = elf::next_or_any(c"pthread_key_delete");
    if create == 0 || delete == 0 {
        return None;
    }
    type Create = unsafe extern "C" fn(*mut u32, unsafe extern "C" fn(*mut core::ffi::c_void)) -> i32;
    // SAFETY: the address is libc's pthread_key_create, whose signature this is.
    let create: Create = unsafe { core::mem::transmute(create) };
    // SAFETY: the same for pthread_key_delete.
    let delete: unsafe extern "C" fn(u32) -> i32 = unsafe { core::mem::transmute(delete) };
    let mut below = [None; KEYS];
    let mut highest = None;
    for place in &mut below {
        let mut key = 0;
        // SAFETY: the key is written to a local; the destructor is never unloaded (nodelete).
        if unsafe { create(&mut key, at_thread_exit) } != 0 {
            break;
        }
        if key as usize >= KEYS {
            *place = Some(key);
            break;
        }
        *place = highest.replace(key);
    }
    for key in below.into_iter().flatten() {
        // SAFETY: a key made above, of which no thread has a value.
        unsafe { delete(key) };
    }
    highest
}

/// Has fork call this in each child.
fn at_fork(handler: unsafe extern "C" fn()) -> bool {
    let register = elf::next_or_any(c"__register_atfork");
    if register == 0 {
        return false;
    }
    type Handler = Option<unsafe extern "C" fn()>;
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const core::ffi::c_void) -> i32;
    // SAFETY: the address is libc's __register_atfork, whose signature this is.
    let register: Register = unsafe { core::mem::transmute(register) };
    // SAFETY: the handler is never unloaded (nodelete).
    unsafe { register(None, None, Some(handler), ptr::null()) == 0 }
}

unsafe extern "C" fn at_thread_exit(_: *mut core::ffi::c_void) {
    if tls::get().filter(|state| state.row().is_some()).is_some_and(super::goes_on) {
        arm_exit();
    }
}

/// Has the destructor called at the thread's end, or in its next round.
pub(super) fn arm_exit() {
    let key = EXIT_KEY.load(Ordering::Relaxed);
    if key == u64::MAX {
        return;
    }
    type Set = unsafe extern "C" fn(u32, *const core::ffi::c_void) -> i32;
    // SAFETY: stored together with the key; the address is libc's pthread_setspecific.
    let set: Set = unsafe { core::mem::transmute(SET_SPECIFIC.load(Ordering::Relaxed)) };
    // SAFETY: the key exists; the value is never dereferenced.
    unsafe { set(key as u32, ptr::without_provenance(1)) };
}
