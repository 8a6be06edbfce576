//! How often each function of this copy was called, for tests that compare.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};

static CALLS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts a call.
pub(crate) fn count(name: &'static str) {
    *CALLS.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
}

/// How often a function of this copy was called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakeNcclCalls(name: *const c_char) -> u64 {
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default();
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied().unwrap_or(0)
}
