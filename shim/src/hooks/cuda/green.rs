//! Green contexts: parts of a device.

use core::ffi::c_void;

use cudarc::driver::sys::{CUcontext, CUdevResource, CUdevResourceDesc, CUgreenCtx, CUstream};

use super::context::switched;
use super::{handle, out};
use crate::gpu_time::events;
use crate::hooks::hooks;

hooks! {
    base: super::GREEN;

    Api: [cuCtxFromGreenCtx](context: *mut CUcontext, green: CUgreenCtx)
        => |result| [out(result, context), 0, handle(green), 0];
    Count: [cuCtxGetDevResource](CUcontext, *mut CUdevResource, u32);
    Api: [cuDevResourceGenerateDesc](*mut CUdevResourceDesc, *mut CUdevResource, u32);
    Api: [cuDevSmResourceSplit](*mut CUdevResource, u32, *const CUdevResource, *mut CUdevResource, u32, *mut c_void);
    Api: [cuDevSmResourceSplitByCount](
        *mut CUdevResource, *mut u32, *const CUdevResource, *mut CUdevResource, u32, u32);
    Count: [cuDeviceGetDevResource](i32, *mut CUdevResource, u32);
    Api: [cuGreenCtxCreate](context: *mut CUgreenCtx, resources: CUdevResourceDesc, device: i32, flags: u32)
        => |result| [out(result, context), 0, 0, device as u64];
    Api: [cuGreenCtxDestroy](context: CUgreenCtx), first events::any_context_ends(), after |_| switched(handle(context), 0);
    Count: [cuGreenCtxGetDevResource](CUgreenCtx, *mut CUdevResource, u32);
    Count: [cuGreenCtxGetId](CUgreenCtx, *mut u64);
    Api: [cuGreenCtxStreamCreate](stream: *mut CUstream, context: CUgreenCtx, flags: u32, priority: i32)
        => |result| [out(result, stream), 0, handle(context), u64::from(flags)];
    Count: [cuStreamGetDevResource, cuStreamGetDevResource_ptsz](CUstream, *mut CUdevResource, u32);
    Count: [cuStreamGetGreenCtx](CUstream, *mut CUgreenCtx);
}
