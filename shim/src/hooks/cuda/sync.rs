//! Waits, questions whether one would have to wait, and streams made to wait. Payload: handle, stream, flags, 0.

use core::ffi::c_void;

use cudarc::driver::sys::{
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, CUcontext, CUdeviceptr, CUevent, CUexternalSemaphore, CUgreenCtx, CUstream,
    CUstreamBatchMemOpParams,
};

use super::handle;
use crate::capture;
use crate::hooks::hooks;

hooks! {
    base: super::SYNC;

    Api: [cuCtxRecordEvent](context: CUcontext, event: CUevent) => |_| [handle(event), 0, handle(context), 0];
    Sync CONTEXT: [cuCtxSynchronize]() => |_| [0; 4];
    Sync CONTEXT: [cuCtxSynchronize_v2](context: CUcontext) => |_| [handle(context), 0, 0, 0];
    Sync STREAM_WAIT: [cuCtxWaitEvent](context: CUcontext, event: CUevent) => |_| [handle(event), 0, handle(context), 0];
    Sync QUERY: [cuEventQuery](event: CUevent) => |_| [handle(event), 0, 0, 0];
    Api: [cuEventRecord, cuEventRecord_ptsz](event: CUevent, stream: CUstream),
        captured |result| recorded(result, event, stream, 0);
    Api: [cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz](event: CUevent, stream: CUstream, flags: u32),
        captured |result| recorded(result, event, stream, flags);
    Sync EVENT: [cuEventSynchronize](event: CUevent) on handle(event) => |_| [handle(event), 0, 0, 0];
    Api: [cuGreenCtxRecordEvent](context: CUgreenCtx, event: CUevent) => |_| [handle(event), 0, handle(context), 0];
    Sync STREAM_WAIT: [cuGreenCtxWaitEvent](context: CUgreenCtx, event: CUevent)
        => |_| [handle(event), 0, handle(context), 0];
    Api: [cuStreamAddCallback, cuStreamAddCallback_ptsz](
        stream: CUstream, callback: *mut c_void, data: *mut c_void, flags: u32)
        => |_| [handle(callback), handle(stream), u64::from(flags), 0];
    Sync STREAM_WAIT: [cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz](
        stream: CUstream, count: u32, operations: *mut CUstreamBatchMemOpParams, flags: u32)
        => |_| [0, handle(stream), u64::from(flags), 0];
    Sync QUERY: [cuStreamQuery, cuStreamQuery_ptsz](stream: CUstream) => |_| [0, handle(stream), 0, 0];
    Sync STREAM: [cuStreamSynchronize, cuStreamSynchronize_ptsz](stream: CUstream) on handle(stream)
        => |_| [0, handle(stream), 0, 0];
    Sync STREAM_WAIT: [cuStreamWaitEvent, cuStreamWaitEvent_ptsz](stream: CUstream, event: CUevent, flags: u32),
        captured |result| waits(result, stream, event, flags);
    Sync STREAM_WAIT: [cuStreamWaitValue32, cuStreamWaitValue32_ptsz, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz](
        stream: CUstream, address: CUdeviceptr, value: u32, flags: u32)
        => |_| [address, handle(stream), u64::from(flags), 0];
    Sync STREAM_WAIT: [cuStreamWaitValue64, cuStreamWaitValue64_ptsz, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz](
        stream: CUstream, address: CUdeviceptr, value: u64, flags: u32)
        => |_| [address, handle(stream), u64::from(flags), 0];
    Sync STREAM_WAIT: [cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz](
        semaphores: *const CUexternalSemaphore, parameters: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, count: u32,
        stream: CUstream)
        => |_| [0, handle(stream), 0, 0];
}

fn waits(result: u32, stream: CUstream, event: CUevent, flags: u32) -> [u64; 4] {
    if result == 0 {
        capture::stream_waits(handle(stream), handle(event));
    }
    [handle(event), handle(stream), u64::from(flags), 0]
}

fn recorded(result: u32, event: CUevent, stream: CUstream, flags: u32) -> [u64; 4] {
    if result == 0 {
        capture::event_recorded(handle(event), handle(stream));
    }
    [handle(event), handle(stream), u64::from(flags), 0]
}
