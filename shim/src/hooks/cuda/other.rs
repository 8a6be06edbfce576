//! Contexts, streams, events, captures, graphs and initialisation. Payload: handle, stream, second handle, number.

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{CUcontext, CUevent, CUgraph, CUgraphExec, CUstream};

use super::{handle, out};
use crate::hooks::hooks;
use crate::{capture, contexts, names, tls};

hooks! {
    base: super::OTHER;

    Api NONE: [cuCtxCreate_v2](context: *mut CUcontext, flags: u32, device: i32)
        => |result| switched(out(result, context), device as u64);
    Api NONE: [cuCtxCreate_v3](context: *mut CUcontext, affinity: *mut c_void, count: i32, flags: u32, device: i32)
        => |result| switched(out(result, context), device as u64);
    Api NONE: [cuCtxCreate_v4](context: *mut CUcontext, parameters: *mut c_void, flags: u32, device: i32)
        => |result| switched(out(result, context), device as u64);
    Api NONE: [cuCtxDestroy, cuCtxDestroy_v2](context: CUcontext) => |_| destroyed(handle(context));
    Api NONE: [cuCtxPopCurrent, cuCtxPopCurrent_v2](context: *mut CUcontext)
        => |result| switched(out(result, context), 0);
    Api NONE: [cuCtxPushCurrent, cuCtxPushCurrent_v2](context: CUcontext) => |_| switched(handle(context), 0);
    Api NONE: [cuCtxSetCurrent](context: CUcontext) => |_| switched(handle(context), 0);
    Api NONE: [cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2](device: i32) => |_| switched(0, device as u64);
    Api NONE: [cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2](device: i32) => |_| reset(device as u64);
    Api NONE: [cuDevicePrimaryCtxRetain](context: *mut CUcontext, device: i32)
        => |result| [out(result, context), 0, 0, device as u64];
    Api NONE: [cuEventCreate](event: *mut CUevent, flags: u32) => |result| [out(result, event), 0, 0, u64::from(flags)];
    Api NONE: [cuEventDestroy, cuEventDestroy_v2](event: CUevent) => |_| [handle(event), 0, 0, 0];
    Api NONE: [cuGraphExecDestroy](graph: CUgraphExec) => |_| [handle(graph), 0, 0, 0];
    Api NONE: [cuGraphInstantiateWithFlags](graph: *mut CUgraphExec, source: CUgraph, flags: u64)
        => |result| [out(result, graph), 0, handle(source), flags];
    Api NONE: [cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz](
        graph: *mut CUgraphExec, source: CUgraph, parameters: *mut c_void)
        => |result| [out(result, graph), 0, handle(source), 0];
    Api NONE: [cuGraphInstantiate_v2](
        graph: *mut CUgraphExec, source: CUgraph, node: *mut c_void, log: *mut c_char, bytes: usize)
        => |result| [out(result, graph), 0, handle(source), 0];
    Api NONE: [cuGraphUpload, cuGraphUpload_ptsz](graph: CUgraphExec, stream: CUstream)
        => |_| [handle(graph), handle(stream), 0, 0];
    Api NONE: [cuInit](flags: u32) => |_| [0, 0, 0, u64::from(flags)];
    Api NONE: [cuStreamBeginCapture, cuStreamBeginCapture_ptsz](stream: CUstream) => |result| begins(result, stream);
    Api NONE: [cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz](
        stream: CUstream, graph: CUgraph, nodes: *const c_void, edges: *const c_void, count: usize, mode: u32)
        => |result| begins(result, stream);
    Api NONE: [cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz](stream: CUstream, mode: u32)
        => |result| begins(result, stream);
    Api NONE: [cuStreamCreate](stream: *mut CUstream, flags: u32)
        => |result| [out(result, stream), 0, 0, u64::from(flags)];
    Api NONE: [cuStreamCreateWithPriority](stream: *mut CUstream, flags: u32, priority: i32)
        => |result| [out(result, stream), 0, 0, u64::from(flags)];
    Api NONE: [cuStreamDestroy, cuStreamDestroy_v2](stream: CUstream) => |_| ended(stream);
    Api NONE: [cuStreamEndCapture, cuStreamEndCapture_ptsz](stream: CUstream, graph: *mut CUgraph)
        => |result| captured(out(result, graph), stream);
}

/// The thread's current context may be another one now.
fn switched(context: u64, number: u64) -> [u64; 4] {
    contexts::forget(tls::get());
    [context, 0, 0, number]
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
