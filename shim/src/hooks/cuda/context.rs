//! Contexts: made, ended, made current. Payload: handle, 0, 0, number.

use cudarc::driver::sys::{CUcontext, CUctxCreateParams, CUexecAffinityParam, CUfunc_cache, CUsharedconfig};

use super::{handle, out};
use crate::gpu_time::{self, events};
use crate::hooks::hooks;
use crate::{contexts, devices, names, tls};

hooks! {
    base: super::CONTEXT;

    Api: [cuCtxAttach](context: *mut CUcontext, flags: u32), after |result| switched(out(result, context), 0);
    Api: [cuCtxCreate, cuCtxCreate_v2](context: *mut CUcontext, flags: u32, device: i32),
        after |result| switched(out(result, context), device as u64);
    Api: [cuCtxCreate_v3](
        context: *mut CUcontext, affinity: *mut CUexecAffinityParam, count: i32, flags: u32, device: i32),
        after |result| switched(out(result, context), device as u64);
    Api: [cuCtxCreate_v4](context: *mut CUcontext, parameters: *mut CUctxCreateParams, flags: u32, device: i32),
        after |result| switched(out(result, context), device as u64);
    Api: [cuCtxDestroy, cuCtxDestroy_v2](context: CUcontext), first events::context_ends(handle(context)),
        after |_| destroyed(handle(context));
    Api: [cuCtxDetach](context: CUcontext), first events::context_ends(handle(context)),
        after |_| destroyed(handle(context));
    Api: [cuCtxDisablePeerAccess](CUcontext);
    Api: [cuCtxEnablePeerAccess](CUcontext, u32);
    Count: [cuCtxGetApiVersion](CUcontext, *mut u32);
    Count: [cuCtxGetCacheConfig](*mut CUfunc_cache);
    Count: [cuCtxGetCurrent](*mut CUcontext);
    Count: [cuCtxGetDevice](*mut i32);
    Count: [cuCtxGetDevice_v2](*mut i32, CUcontext);
    Count: [cuCtxGetExecAffinity](*mut CUexecAffinityParam, u32);
    Count: [cuCtxGetFlags](*mut u32);
    Count: [cuCtxGetId](CUcontext, *mut u64);
    Count: [cuCtxGetLimit](*mut usize, u32);
    Count: [cuCtxGetSharedMemConfig](*mut CUsharedconfig);
    Count: [cuCtxGetStreamPriorityRange](*mut i32, *mut i32);
    Count: [cuCtxPopCurrent, cuCtxPopCurrent_v2](context: *mut CUcontext), after |_| switched(0, 0);
    Count: [cuCtxPushCurrent, cuCtxPushCurrent_v2](context: CUcontext), after |_| switched(0, 0);
    Api: [cuCtxResetPersistingL2Cache]();
    Count: [cuCtxSetCacheConfig](u32);
    Count: [cuCtxSetCurrent](context: CUcontext), after |_| switched(0, 0);
    Count: [cuCtxSetFlags](u32);
    Api: [cuCtxSetLimit](u32, usize);
    Count: [cuCtxSetSharedMemConfig](u32);
    Count: [cuDevicePrimaryCtxGetState](i32, *mut u32, *mut i32);
    Api: [cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2](device: i32), first events::device_ends(device),
        after |_| switched(0, device as u64);
    Api: [cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2](device: i32), first events::device_ends(device),
        after |_| reset(device as u64);
    Api: [cuDevicePrimaryCtxRetain](context: *mut CUcontext, device: i32)
        => |result| [out(result, context), 0, 0, device as u64];
    Api: [cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2](i32, u32);
    Api: [cuInit](flags: u32), after |result| initialised(result, flags);
}

/// The thread's current context may be another one now.
pub(super) fn switched(context: u64, number: u64) -> [u64; 4] {
    contexts::forget(tls::get());
    [context, 0, 0, number]
}

fn initialised(result: u32, flags: u32) -> [u64; 4] {
    if result == 0 {
        devices::tell();
        gpu_time::start();
    }
    [0, 0, 0, u64::from(flags)]
}

fn destroyed(context: u64) -> [u64; 4] {
    contexts::destroyed(context);
    names::unloaded();
    switched(context, 0)
}

fn reset(device: u64) -> [u64; 4] {
    names::unloaded();
    switched(0, device)
}
