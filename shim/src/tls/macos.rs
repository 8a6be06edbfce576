//! A key of libSystem's, whose value stands in the thread's own block: a read is a load behind one call.
//!
//! Mach-O's thread-local variables are made by malloc at a thread's first use of them, which is inside our malloc.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::thread::State;

/// The key; 0 while there is none: libSystem keeps the low ones to itself.
static KEY: AtomicU64 = AtomicU64::new(0);

/// Makes the key, whose destructor a thread's end calls with the thread's state. False: none is left.
pub(crate) fn prepare(destructor: unsafe extern "C" fn(*mut c_void)) -> bool {
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: the key is written to a local; the library with the destructor is never unloaded.
    let made = unsafe { libc::pthread_key_create(&mut key, Some(destructor)) } == 0;
    if made {
        KEY.store(key as u64, Ordering::Release);
    }
    made
}

/// The calling thread's state, if it has one. It may have been wiped by a fork: see [`State::row`].
#[inline(always)]
pub(crate) fn get() -> Option<&'static State> {
    let key = KEY.load(Ordering::Relaxed);
    if key == 0 {
        return None;
    }
    // SAFETY: a key that was made; the value is null or the address of a state, and states are never unmapped.
    unsafe { libc::pthread_getspecific(key as libc::pthread_key_t).cast::<State>().as_ref() }
}

/// Sets the calling thread's state.
pub(crate) fn set(state: Option<&'static State>) {
    let key = KEY.load(Ordering::Relaxed);
    if key != 0 {
        let value = state.map_or(core::ptr::null(), |state| core::ptr::from_ref(state).cast());
        // SAFETY: a key that was made; the value is only ever read by us.
        unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, value) };
    }
}
