//! cuGetExportTable: private tables of functions, by UUID.

use crate::codes::*;
use crate::config::config;
use crate::state::out;
use crate::table::driver as functions;
use std::ffi::c_void;

functions! {
    fn cuGetExportTable(result: *mut *const c_void, id: *const [u8; 16]) = "cuGetExportTable" 3000 |_| {
        let id = id.as_ref().ok_or(INVALID_VALUE)?;
        if config().log {
            eprintln!("fake-cuda: cuGetExportTable({id:02x?})");
        }
        *out(result)? = std::ptr::null();
        Err(NOT_FOUND)
    }
}
