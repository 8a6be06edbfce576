//! For tools: profiler ranges, logs, core dumps, checkpoints, notifications.

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{CUasyncCallbackHandle, CUlogsCallbackHandle};

use crate::control;
use crate::hooks::hooks;

/// Switches recording where that is asked for, whatever the driver says of the call: another tool may have its profiler.
fn profiler(starts: bool) -> [u64; 4] {
    control::profiler(starts);
    [0; 4]
}

hooks! {
    base: super::TOOLS;

    Api: [cuCheckpointOperationComplete](*mut c_void);
    Api: [cuCheckpointProcessCheckpoint](i32, *mut c_void);
    Count: [cuCheckpointProcessGetRestoreThreadId](i32, *mut i32);
    Count: [cuCheckpointProcessGetState](i32, *mut u32);
    Api: [cuCheckpointProcessLock](i32, *mut c_void);
    Api: [cuCheckpointProcessRestore](i32, *mut c_void);
    Api: [cuCheckpointProcessUnlock](i32, *mut c_void);
    Api: [cuCoredumpDeregisterCompleteCallback](*mut c_void);
    Api: [cuCoredumpDeregisterStartCallback](*mut c_void);
    Count: [cuCoredumpGetAttribute](u32, *mut c_void, *mut usize);
    Count: [cuCoredumpGetAttributeGlobal](u32, *mut c_void, *mut usize);
    Api: [cuCoredumpRegisterCompleteCallback](*mut c_void, *mut c_void, *mut c_void);
    Api: [cuCoredumpRegisterStartCallback](*mut c_void, *mut c_void, *mut c_void);
    Api: [cuCoredumpSetAttribute](u32, *mut c_void, *mut usize);
    Api: [cuCoredumpSetAttributeGlobal](u32, *mut c_void, *mut usize);
    Api: [cuDeviceRegisterAsyncNotification](i32, *mut c_void, *mut c_void, *mut CUasyncCallbackHandle);
    Api: [cuDeviceUnregisterAsyncNotification](i32, CUasyncCallbackHandle);
    Count: [cuLogsCurrent](*mut u32, u32);
    Api: [cuLogsDumpToFile](*mut u32, *const c_char, u32);
    Api: [cuLogsDumpToMemory](*mut u32, *mut c_char, *mut usize, u32);
    Api: [cuLogsRegisterCallback](*mut c_void, *mut c_void, *mut CUlogsCallbackHandle);
    Api: [cuLogsUnregisterCallback](CUlogsCallbackHandle);
    Api: [cuProfilerInitialize](*const c_char, *const c_char, u32);
    Api: [cuProfilerStart](), after |_| profiler(true);
    Api: [cuProfilerStop](), after |_| profiler(false);
}
