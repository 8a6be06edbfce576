//! cuGetProcAddress: the newest variant of a name that is not newer than asked for, nor than the driver.
//!
//! The rules were read off the vendor's 535 driver: an unknown name is no error of the `_v2` call (the status says
//! it), a suffix (`cuMemAlloc_v2`) is no name, and flag 2 asks for the variant for per-thread default streams. All of
//! its answers to 61,200 look-ups (425 names, 36 versions, flags 0 to 3) equal those given here for driver 12.2.

use crate::codes::*;
use crate::config::config;
use crate::module::name;
use crate::state::{out, put};
use crate::table::{Entry, R, driver as functions, entries};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::LazyLock;

static BY_BASE: LazyLock<HashMap<&'static [u8], Vec<&'static Entry>>> = LazyLock::new(|| {
    let mut map: HashMap<_, Vec<_>> = HashMap::new();
    for entry in entries() {
        map.entry(entry.base.as_bytes()).or_default().push(entry);
    }
    map
});

const FOUND: u32 = 0;
const NO_SYMBOL: u32 = 1;
const TOO_OLD: u32 = 2;

fn look_up(symbol: &CStr, version: u32, per_thread: bool) -> Result<&'static Entry, u32> {
    let all = BY_BASE.get(symbol.to_bytes()).ok_or(NO_SYMBOL)?;
    let version = version.min(config().version);
    // A name with per-thread variants gives nothing else, not even at a version that is older than they are.
    let per_thread = per_thread && all.iter().any(|e| e.per_thread);
    let fit = all.iter().filter(|e| e.since <= version && e.per_thread == per_thread);
    fit.max_by_key(|e| e.since).copied().ok_or(TOO_OLD)
}

unsafe fn resolve(symbol: *const c_char, version: i32, flags: u64) -> R<Result<*mut c_void, u32>> {
    let symbol = unsafe { name(symbol)? };
    if flags > 3 {
        return Err(INVALID_VALUE);
    }
    let found = look_up(symbol, version.max(0) as u32, flags & 2 != 0);
    if config().log {
        let answer = found.map_or_else(|status| format!("none ({status})"), |e| e.symbol.to_owned());
        eprintln!("fake-cuda: cuGetProcAddress({symbol:?}, {version}, {flags}) = {answer}");
    }
    Ok(found.map(|entry| entry.address.0.cast_mut().cast()))
}

/// Calls cuMemAlloc_v2 through its symbol, as one exported function of a C library calls another: an interposer's
/// definition comes first unless the library is linked -Bsymbolic.
pub(crate) fn call_cu_mem_alloc(result: &mut u64, bytes: usize) -> u32 {
    static ENTRY: LazyLock<usize> =
        LazyLock::new(|| entries().find(|e| e.symbol == "cuMemAlloc_v2").map_or(0, |e| e.address.0 as usize));
    let function: unsafe extern "C" fn(*mut u64, usize) -> u32 = unsafe { std::mem::transmute(*ENTRY) };
    unsafe { function(result, bytes) }
}

functions! {
    fn cuGetProcAddress(symbol: *const c_char, result: *mut *mut c_void, version: i32, flags: u64)
        = "cuGetProcAddress" 11030 |_| {
        let found = resolve(symbol, version, flags)?;
        *out(result)? = found.map_err(|_| NOT_FOUND)?;
        Ok(())
    }
    fn cuGetProcAddress_v2(symbol: *const c_char, result: *mut *mut c_void, version: i32, flags: u64,
        status: *mut u32) = "cuGetProcAddress" 12000 |_| {
        let result = out(result)?;
        match resolve(symbol, version, flags)? {
            Ok(address) => {
                *result = address;
                put(status, FOUND);
            }
            Err(why) => {
                *result = std::ptr::null_mut();
                put(status, why);
            }
        }
        Ok(())
    }
}
