//! Streams and events, captures into graphs. Payload: handle, stream, second handle, number.

use core::ffi::c_void;

use cudarc::driver::sys::{
    CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphEdgeData, CUgraphNode, CUgreenCtx, CUstream, CUstreamAttrValue,
    CUstreamCaptureMode, CUstreamCaptureStatus,
};

use super::{handle, out};
use crate::capture;
use crate::gpu_time::graph_comes;
use crate::hooks::hooks;

hooks! {
    base: super::STREAM;

    Api: [cuEventCreate](event: *mut CUevent, flags: u32) => |result| [out(result, event), 0, 0, u64::from(flags)];
    Api: [cuEventDestroy, cuEventDestroy_v2](event: CUevent) => |_| [handle(event), 0, 0, 0];
    Count: [cuEventElapsedTime, cuEventElapsedTime_v2](*mut f32, CUevent, CUevent);
    Api: [cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz](
        stream: CUstream, address: CUdeviceptr, bytes: usize, flags: u32)
        => |_| [address, handle(stream), 0, bytes as u64];
    Api: [cuStreamBeginCapture, cuStreamBeginCapture_ptsz](stream: CUstream), first graph_comes(),
        after |result| begins(result, stream);
    Api: [cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig_ptsz](stream: CUstream, parameters: *mut c_void),
        first graph_comes(), after |result| begins(result, stream);
    Api: [cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz](
        stream: CUstream, graph: CUgraph, nodes: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
        mode: u32), first graph_comes(),
        after |result| begins(result, stream);
    Api: [cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz](stream: CUstream, mode: u32), first graph_comes(),
        after |result| begins(result, stream);
    Api: [cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph_ptsz](
        stream: CUstream, mode: u32, graph: CUgraph, callback: *mut c_void, data: *mut c_void), first graph_comes(),
        after |result| begins(result, stream);
    Count: [cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz](CUstream, CUstream);
    Api: [cuStreamCreate](stream: *mut CUstream, flags: u32)
        => |result| [out(result, stream), 0, 0, u64::from(flags)];
    Api: [cuStreamCreateWithPriority](stream: *mut CUstream, flags: u32, priority: i32)
        => |result| [out(result, stream), 0, 0, u64::from(flags)];
    Api: [cuStreamDestroy, cuStreamDestroy_v2](stream: CUstream), after |_| ended(stream);
    Api: [cuStreamEndCapture, cuStreamEndCapture_ptsz](stream: CUstream, graph: *mut CUgraph),
        after |result| captured(out(result, graph), stream);
    Api: [cuStreamEndCaptureToCig, cuStreamEndCaptureToCig_ptsz](stream: CUstream), after |_| captured(0, stream);
    Count: [cuStreamGetAttribute, cuStreamGetAttribute_ptsz](CUstream, u32, *mut CUstreamAttrValue);
    Count: [cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz](CUstream, *mut CUstreamCaptureStatus, *mut u64);
    Count: [cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz](
        CUstream, *mut CUstreamCaptureStatus, *mut u64, *mut CUgraph, *mut *const CUgraphNode, *mut usize);
    Count: [cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz](
        CUstream, *mut CUstreamCaptureStatus, *mut u64, *mut CUgraph, *mut *const CUgraphNode,
        *mut *const CUgraphEdgeData, *mut usize);
    Count: [cuStreamGetCtx, cuStreamGetCtx_ptsz](CUstream, *mut CUcontext);
    Count: [cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz](CUstream, *mut CUcontext, *mut CUgreenCtx);
    Count: [cuStreamGetDevice, cuStreamGetDevice_ptsz](CUstream, *mut i32);
    Count: [cuStreamGetFlags, cuStreamGetFlags_ptsz](CUstream, *mut u32);
    Count: [cuStreamGetId, cuStreamGetId_ptsz](CUstream, *mut u64);
    Count: [cuStreamGetPriority, cuStreamGetPriority_ptsz](CUstream, *mut i32);
    Count: [cuStreamIsCapturing, cuStreamIsCapturing_ptsz](CUstream, *mut CUstreamCaptureStatus);
    Count: [cuStreamSetAttribute, cuStreamSetAttribute_ptsz](CUstream, u32, *const CUstreamAttrValue);
    Count: [cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz](
        CUstream, *mut CUgraphNode, usize, u32);
    Count: [cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz](
        CUstream, *mut CUgraphNode, *const CUgraphEdgeData, usize, u32);
    Api: [cuStreamWriteValue32, cuStreamWriteValue32_ptsz, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz](
        stream: CUstream, address: CUdeviceptr, value: u32, flags: u32)
        => |_| [address, handle(stream), 0, u64::from(value)];
    Api: [cuStreamWriteValue64, cuStreamWriteValue64_ptsz, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz](
        stream: CUstream, address: CUdeviceptr, value: u64, flags: u32)
        => |_| [address, handle(stream), 0, value];
    Count: [cuThreadExchangeStreamCaptureMode](*mut CUstreamCaptureMode);
}

fn begins(result: u32, stream: CUstream) -> [u64; 4] {
    if result == 0 {
        capture::begin(handle(stream));
    }
    [0, handle(stream), 0, 0]
}

fn captured(graph: u64, stream: CUstream) -> [u64; 4] {
    capture::end(handle(stream));
    [graph, handle(stream), 0, 0]
}

fn ended(stream: CUstream) -> [u64; 4] {
    capture::end(handle(stream));
    [handle(stream), 0, 0, 0]
}
