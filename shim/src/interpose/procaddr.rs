//! cuGetProcAddress: ask the driver, then look up the address that it returned.
//!
//! A requested version is only an upper bound, and callers ask at their own CUDA version, so a table by name and
//! version would un-hook whatever is newer. Every pointer that drivers 535 and 580 return is an exported function.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use gputrace_abi::Class;
use gputrace_abi::event::detail;
use gputrace_abi::layout::route;

use super::driver;
use crate::hooks::{self, Hook, cuda};
use crate::names;

/// CUDA_ERROR_NOT_FOUND.
const NOT_FOUND: u32 = 500;

/// The two functions; never recorded themselves.
pub(crate) const LIST: [Hook; 2] = [
    Hook::new(c"cuGetProcAddress", Class::Api, detail::NONE, cuGetProcAddress as *const ()),
    Hook::new(c"cuGetProcAddress_v2", Class::Api, detail::NONE, cuGetProcAddress_v2 as *const ()),
];

fn original(nth: u16) -> usize {
    let number = cuda::PROC_ADDRESS + nth;
    match hooks::original(number).load(Ordering::Relaxed) {
        0 => driver::late(number),
        address => address,
    }
}

/// `CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)`, CUDA 11.3 to 11.8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> u32 {
    let address = original(0);
    if address == 0 {
        return NOT_FOUND;
    }
    type F = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> u32;
    // SAFETY: the address is the driver's function of this name, whose signature this is.
    let f: F = unsafe { core::mem::transmute(address) };
    // SAFETY: the program's own arguments.
    let result = unsafe { f(symbol, pfn, version, flags) };
    // SAFETY: as above, and the driver has answered.
    unsafe { replace(result, symbol, pfn, version, flags) };
    result
}

/// `CUresult cuGetProcAddress_v2(..., CUdriverProcAddressQueryResult *symbolStatus)`, CUDA 12.0 on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> u32 {
    let address = original(1);
    if address == 0 {
        return NOT_FOUND;
    }
    type F = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;
    // SAFETY: the address is the driver's function of this name, whose signature this is.
    let f: F = unsafe { core::mem::transmute(address) };
    // SAFETY: the program's own arguments.
    let result = unsafe { f(symbol, pfn, version, flags, status) };
    // SAFETY: as above, and the driver has answered.
    unsafe { replace(result, symbol, pfn, version, flags) };
    result
}

/// # Safety
/// The arguments of a call that returned `result`.
unsafe fn replace(result: u32, symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64) {
    if result != 0 || pfn.is_null() || symbol.is_null() {
        return;
    }
    // SAFETY: a call that succeeded has read the symbol and written the pointer.
    let (name, found) = unsafe { (CStr::from_ptr(symbol), *pfn) };
    if found.is_null() {
        return;
    }
    match driver::hook_at(found as usize) {
        Some((hook, number)) => {
            driver::note_route(number, route::PROC_ADDRESS);
            // SAFETY: as above.
            unsafe { *pfn = hook.wrapper.cast_mut().cast() };
        }
        None => names::uncovered(name, version, flags),
    }
}
