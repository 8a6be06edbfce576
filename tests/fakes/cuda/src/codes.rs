//! The results that the simulated driver gives, and the functions that name them.

use crate::table::{Code, driver};
use std::ffi::{CStr, c_char};

pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const NOT_INITIALIZED: Code = 3;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_DEVICE: Code = 101;
pub(crate) const INVALID_IMAGE: Code = 200;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const FILE_NOT_FOUND: Code = 301;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const ILLEGAL_ADDRESS: Code = 700;
pub(crate) const PEER_ALREADY_ENABLED: Code = 704;
pub(crate) const PEER_NOT_ENABLED: Code = 705;
pub(crate) const PRIMARY_ACTIVE: Code = 708;
pub(crate) const CONTEXT_IS_DESTROYED: Code = 709;
pub(crate) const HOST_ALREADY_REGISTERED: Code = 712;
pub(crate) const HOST_NOT_REGISTERED: Code = 713;
pub(crate) const NOT_SUPPORTED: Code = 801;
pub(crate) const CAPTURE_UNSUPPORTED: Code = 900;
pub(crate) const CAPTURE_INVALIDATED: Code = 901;
pub(crate) const CAPTURE_MERGE: Code = 902;
pub(crate) const CAPTURE_UNMATCHED: Code = 903;
pub(crate) const CAPTURE_UNJOINED: Code = 904;
pub(crate) const CAPTURE_ISOLATION: Code = 905;
pub(crate) const CAPTURE_IMPLICIT: Code = 906;
pub(crate) const CAPTURED_EVENT: Code = 907;
pub(crate) const CAPTURE_WRONG_THREAD: Code = 908;

/// Number, name and description of each result, ascending.
static NAMES: &[(Code, &CStr, &CStr)] = &[
    (0, c"CUDA_SUCCESS", c"no error"),
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
    (35, c"CUDA_ERROR_STUB_LIBRARY", c"CUDA driver is a stub library"),
    (NO_DEVICE, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_IMAGE, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (FILE_NOT_FOUND, c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found"),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (NOT_READY, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (ILLEGAL_ADDRESS, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (PEER_ALREADY_ENABLED, c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is already enabled"),
    (PEER_NOT_ENABLED, c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access has not been enabled"),
    (PRIMARY_ACTIVE, c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", c"cannot set while device is active in this process"),
    (CONTEXT_IS_DESTROYED, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
    (
        HOST_ALREADY_REGISTERED,
        c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        c"part or all of the requested memory range is already mapped",
    ),
    (
        HOST_NOT_REGISTERED,
        c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        c"pointer does not correspond to a registered memory region",
    ),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (NOT_SUPPORTED, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (
        CAPTURE_UNSUPPORTED,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing",
    ),
    (
        CAPTURE_INVALIDATED,
        c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"operation failed due to a previous error during capture",
    ),
    (
        CAPTURE_MERGE,
        c"CUDA_ERROR_STREAM_CAPTURE_MERGE",
        c"operation would result in a merge of separate capture sequences",
    ),
    (
        CAPTURE_UNMATCHED,
        c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        c"capture was not ended in the same stream as it began",
    ),
    (CAPTURE_UNJOINED, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capturing stream has unjoined work"),
    (
        CAPTURE_ISOLATION,
        c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        c"dependency created on uncaptured work in another stream",
    ),
    (
        CAPTURE_IMPLICIT,
        c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        c"operation would make the legacy stream depend on a capturing blocking stream",
    ),
    (
        CAPTURED_EVENT,
        c"CUDA_ERROR_CAPTURED_EVENT",
        c"operation not permitted on an event last recorded in a capturing stream",
    ),
    (
        CAPTURE_WRONG_THREAD,
        c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        c"attempt to terminate a thread-local capture sequence from another thread",
    ),
    (910, c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", c"the graph update was not performed"),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

fn lookup(code: Code) -> Option<&'static (Code, &'static CStr, &'static CStr)> {
    NAMES.iter().find(|row| row.0 == code)
}

driver! {
    fn cuGetErrorName(code: u32, out: *mut *const c_char) = "cuGetErrorName" 6000 |_| {
        let row = lookup(code);
        *out.as_mut().ok_or(INVALID_VALUE)? = row.map_or(std::ptr::null(), |row| row.1.as_ptr());
        row.map(|_| ()).ok_or(INVALID_VALUE)
    }
    fn cuGetErrorString(code: u32, out: *mut *const c_char) = "cuGetErrorString" 6000 |_| {
        let row = lookup(code);
        *out.as_mut().ok_or(INVALID_VALUE)? = row.map_or(std::ptr::null(), |row| row.2.as_ptr());
        row.map(|_| ()).ok_or(INVALID_VALUE)
    }
}
