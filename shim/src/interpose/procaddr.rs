//! cuGetProcAddress: ask the driver, then look up the address that it returned; and cuGetExportTable.
//!
//! A requested version is only an upper bound, and callers ask at their own CUDA version, so a table by name and
//! version would un-hook whatever is newer. Every pointer that drivers 535 and 580 return is an exported function.

use core::ffi::{CStr, c_char, c_int, c_void};

use gputrace_abi::Class;
use gputrace_abi::event::detail;
use gputrace_abi::layout::route;
use gputrace_abi::sync::Ordering;

use super::driver;
use crate::hooks::{Hook, cuda};
use crate::{attach, count, names, session};

/// The functions; counted only.
pub(crate) const LIST: [Hook; COUNT as usize] = [
    Hook::new(c"cuGetExportTable", Class::Api, detail::NONE, true, cuGetExportTable as *const ()),
    Hook::new(c"cuGetProcAddress", Class::Api, detail::NONE, true, cuGetProcAddress as *const ()),
    Hook::new(c"cuGetProcAddress_v2", Class::Api, detail::NONE, true, cuGetProcAddress_v2 as *const ()),
];

/// How many there are.
pub(crate) const COUNT: u16 = 3;

const EXPORT_TABLE: u16 = cuda::PROC_ADDRESS;
const FIRST: u16 = cuda::PROC_ADDRESS + 1;
const SECOND: u16 = cuda::PROC_ADDRESS + 2;

/// `CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)`: private functions of the
/// driver, for NVIDIA's own libraries. Which tables are asked for is noted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, id: *const [u8; 16]) -> u32 {
    type F = unsafe extern "C" fn(*mut *const c_void, *const [u8; 16]) -> u32;
    count::call(
        EXPORT_TABLE,
        |address| {
            // SAFETY: the address is the driver's function of this name, whose signature this is.
            let f: F = unsafe { core::mem::transmute(address) };
            // SAFETY: the program's own arguments.
            unsafe { f(table, id) }
        },
        |result| {
            // SAFETY: null, or the program's identifier, which the driver has just read.
            if let Some(id) = unsafe { id.as_ref() } {
                names::export_table(id, result);
            }
        },
    )
}

/// `CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)`, CUDA 11.3 to 11.8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> u32 {
    type F = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> u32;
    count::call(
        FIRST,
        |address| {
            // SAFETY: the address is the driver's function of this name, whose signature this is.
            let f: F = unsafe { core::mem::transmute(address) };
            // SAFETY: the program's own arguments.
            unsafe { f(symbol, pfn, version, flags) }
        },
        // SAFETY: as above, and the driver has answered.
        |result| unsafe { replace(result, symbol, pfn, version, flags) },
    )
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
    type F = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;
    count::call(
        SECOND,
        |address| {
            // SAFETY: the address is the driver's function of this name, whose signature this is.
            let f: F = unsafe { core::mem::transmute(address) };
            // SAFETY: the program's own arguments.
            unsafe { f(symbol, pfn, version, flags, status) }
        },
        // SAFETY: as above, and the driver has answered.
        |result| unsafe { replace(result, symbol, pfn, version, flags) },
    )
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
    if let Some(view) = session::present() {
        let asked = &view.header().asked_version;
        // Callers ask at the version that they were built for.
        if version > 0 && version as u32 > asked.load(Ordering::Relaxed) {
            asked.fetch_max(version as u32, Ordering::Relaxed);
        }
    }
    match driver::hook_at(found as usize) {
        Some((_, number)) if attach::is_attached() => driver::note_route(number, route::PROC_ADDRESS),
        Some((hook, number)) => {
            driver::note_route(number, route::PROC_ADDRESS);
            // SAFETY: as above.
            unsafe { *pfn = hook.wrapper.cast_mut().cast() };
        }
        None => names::uncovered(name, version, flags),
    }
}
