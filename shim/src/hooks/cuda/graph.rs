//! Graphs: made, instantiated, updated, ended. Payload: handle, stream, second handle, number.
//!
//! These lines also tell what a graph holds ([`crate::graphs`]).

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUstream, CUuserObject,
};

use super::{handle, out};
use crate::gpu_time::graph_comes;
use crate::graphs::{self, bodies};
use crate::hooks::hooks;

hooks! {
    base: super::GRAPH;

    Api: [cuGraphClone](clone: *mut CUgraph, graph: CUgraph) => |result| [out(result, clone), 0, handle(graph), 0];
    Api: [cuGraphCreate](graph: *mut CUgraph, flags: u32), first graph_comes() => |result| [out(result, graph), 0, 0, 0];
    Api: [cuGraphDebugDotPrint](CUgraph, *const c_char, u32);
    Api: [cuGraphDestroy](graph: CUgraph), after |result| ended(result, handle(graph));
    Api: [cuGraphExecDestroy](exec: CUgraphExec) => |_| [handle(exec), 0, 0, 0];
    Count: [cuGraphExecGetFlags](CUgraphExec, *mut u64);
    Count: [cuGraphExecGetId](CUgraphExec, *mut u32);
    Api: [cuGraphExecUpdate](
        exec: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, status: *mut CUgraphExecUpdateResult),
        after |result| updated(result, handle(exec), handle(graph));
    Api: [cuGraphExecUpdate_v2](exec: CUgraphExec, graph: CUgraph, status: *mut CUgraphExecUpdateResultInfo),
        after |result| updated(result, handle(exec), handle(graph));
    Count: [cuGraphGetEdges](CUgraph, *mut CUgraphNode, *mut CUgraphNode, *mut usize);
    Count: [cuGraphGetEdges_v2](CUgraph, *mut CUgraphNode, *mut CUgraphNode, *mut CUgraphEdgeData, *mut usize);
    Count: [cuGraphGetId](CUgraph, *mut u32);
    Api: [cuGraphInstantiate, cuGraphInstantiate_v2](
        exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, bytes: usize),
        after |result| instantiated(out(result, exec), handle(graph), 0);
    Api: [cuGraphInstantiateWithFlags](exec: *mut CUgraphExec, graph: CUgraph, flags: u64),
        after |result| instantiated(out(result, exec), handle(graph), flags);
    Api: [cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz](
        exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS),
        after |result| instantiated(out(result, exec), handle(graph), 0);
    Count: [cuGraphReleaseUserObject](CUgraph, CUuserObject, u32);
    Count: [cuGraphRetainUserObject](CUgraph, CUuserObject, u32, u32);
    Api: [cuGraphUpload, cuGraphUpload_ptsz](exec: CUgraphExec, stream: CUstream)
        => |_| [handle(exec), handle(stream), 0, 0];
    Count: [cuUserObjectCreate](*mut CUuserObject, *mut c_void, *mut c_void, u32, u32);
    Count: [cuUserObjectRelease](CUuserObject, u32);
    Count: [cuUserObjectRetain](CUuserObject, u32);
}

fn instantiated(exec: u64, graph: u64, flags: u64) -> [u64; 4] {
    graphs::instantiated(exec, graph);
    [exec, 0, graph, flags]
}

fn updated(result: u32, exec: u64, graph: u64) -> [u64; 4] {
    graphs::updated(result, exec, graph);
    [exec, 0, graph, 0]
}

fn ended(result: u32, graph: u64) -> [u64; 4] {
    if result == 0 {
        bodies::ended_graph(graph);
    }
    [graph, 0, 0, 0]
}
