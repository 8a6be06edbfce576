//! Graphs: made, instantiated, updated, ended. Payload: handle, stream, second handle, number.

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUstream, CUuserObject,
};

use super::{handle, out};
use crate::hooks::hooks;

hooks! {
    base: super::GRAPH;

    Api: [cuGraphClone](clone: *mut CUgraph, graph: CUgraph) => |result| [out(result, clone), 0, handle(graph), 0];
    Api: [cuGraphCreate](graph: *mut CUgraph, flags: u32) => |result| [out(result, graph), 0, 0, 0];
    Api: [cuGraphDebugDotPrint](CUgraph, *const c_char, u32);
    Api: [cuGraphDestroy](graph: CUgraph) => |_| [handle(graph), 0, 0, 0];
    Api: [cuGraphExecDestroy](exec: CUgraphExec) => |_| [handle(exec), 0, 0, 0];
    Count: [cuGraphExecGetFlags](CUgraphExec, *mut u64);
    Count: [cuGraphExecGetId](CUgraphExec, *mut u32);
    Api: [cuGraphExecUpdate](
        exec: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, status: *mut CUgraphExecUpdateResult)
        => |_| [handle(exec), 0, handle(graph), 0];
    Api: [cuGraphExecUpdate_v2](exec: CUgraphExec, graph: CUgraph, status: *mut CUgraphExecUpdateResultInfo)
        => |_| [handle(exec), 0, handle(graph), 0];
    Count: [cuGraphGetEdges](CUgraph, *mut CUgraphNode, *mut CUgraphNode, *mut usize);
    Count: [cuGraphGetEdges_v2](CUgraph, *mut CUgraphNode, *mut CUgraphNode, *mut CUgraphEdgeData, *mut usize);
    Count: [cuGraphGetId](CUgraph, *mut u32);
    Api: [cuGraphInstantiate, cuGraphInstantiate_v2](
        exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, bytes: usize)
        => |result| [out(result, exec), 0, handle(graph), 0];
    Api: [cuGraphInstantiateWithFlags](exec: *mut CUgraphExec, graph: CUgraph, flags: u64)
        => |result| [out(result, exec), 0, handle(graph), flags];
    Api: [cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz](
        exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS)
        => |result| [out(result, exec), 0, handle(graph), 0];
    Count: [cuGraphReleaseUserObject](CUgraph, CUuserObject, u32);
    Count: [cuGraphRetainUserObject](CUgraph, CUuserObject, u32, u32);
    Api: [cuGraphUpload, cuGraphUpload_ptsz](exec: CUgraphExec, stream: CUstream)
        => |_| [handle(exec), handle(stream), 0, 0];
    Count: [cuUserObjectCreate](*mut CUuserObject, *mut c_void, *mut c_void, u32, u32);
    Count: [cuUserObjectRelease](CUuserObject, u32);
    Count: [cuUserObjectRetain](CUuserObject, u32);
}
