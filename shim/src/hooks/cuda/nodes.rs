//! The nodes of graphs: added, asked, changed. Nothing runs yet; `graph` says what a graph holds when it is instantiated.

use cudarc::driver::sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphConditionalHandle, CUgraphEdgeData, CUgraphExec, CUgraphNode,
    CUgraphNodeParams, CUgraphNodeType, CUkernelNodeAttrValue,
};

use super::{handle, out};
use crate::graphs::{self, bodies};
use crate::hooks::hooks;

hooks! {
    base: super::NODES;

    Api: [cuGraphAddBatchMemOpNode](
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
    Api: [cuGraphAddChildGraphNode](*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUgraph);
    Api: [cuGraphAddDependencies](CUgraph, *const CUgraphNode, *const CUgraphNode, usize);
    Api: [cuGraphAddDependencies_v2](CUgraph, *const CUgraphNode, *const CUgraphNode, *const CUgraphEdgeData, usize);
    Api: [cuGraphAddEmptyNode](*mut CUgraphNode, CUgraph, *const CUgraphNode, usize);
    Api: [cuGraphAddEventRecordNode](*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUevent);
    Api: [cuGraphAddEventWaitNode](*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUevent);
    Api: [cuGraphAddExternalSemaphoresSignalNode](
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);
    Api: [cuGraphAddExternalSemaphoresWaitNode](
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_EXT_SEM_WAIT_NODE_PARAMS);
    Api: [cuGraphAddHostNode](*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_HOST_NODE_PARAMS);
    Api: [cuGraphAddKernelNode, cuGraphAddKernelNode_v2](
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_KERNEL_NODE_PARAMS);
    Api: [cuGraphAddMemAllocNode](
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    Api: [cuGraphAddMemFreeNode](*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUdeviceptr);
    Api: [cuGraphAddMemcpyNode](
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMCPY3D, CUcontext);
    Api: [cuGraphAddMemsetNode](
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMSET_NODE_PARAMS, CUcontext);
    Api: [cuGraphAddNode](
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, info: *mut CUgraphNodeParams),
        after |result| added(out(result, node), handle(graph), info);
    Api: [cuGraphAddNode_v2, cuGraphAddNode_v3](
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
        info: *mut CUgraphNodeParams),
        after |result| added(out(result, node), handle(graph), info);
    Count: [cuGraphBatchMemOpNodeGetParams](CUgraphNode, *mut CUDA_BATCH_MEM_OP_NODE_PARAMS);
    Count: [cuGraphBatchMemOpNodeSetParams](CUgraphNode, *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
    Count: [cuGraphChildGraphNodeGetGraph](CUgraphNode, *mut CUgraph);
    Api: [cuGraphConditionalHandleCreate](*mut CUgraphConditionalHandle, CUgraph, CUcontext, u32, u32);
    Api: [cuGraphDestroyNode](node: CUgraphNode), after |result| gone(result, handle(node));
    Count: [cuGraphEventRecordNodeGetEvent](CUgraphNode, *mut CUevent);
    Count: [cuGraphEventRecordNodeSetEvent](CUgraphNode, CUevent);
    Count: [cuGraphEventWaitNodeGetEvent](CUgraphNode, *mut CUevent);
    Count: [cuGraphEventWaitNodeSetEvent](CUgraphNode, CUevent);
    Api: [cuGraphExecBatchMemOpNodeSetParams](
        exec: CUgraphExec, node: CUgraphNode, info: *const CUDA_BATCH_MEM_OP_NODE_PARAMS)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecChildGraphNodeSetParams](exec: CUgraphExec, node: CUgraphNode, graph: CUgraph)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecEventRecordNodeSetEvent](exec: CUgraphExec, node: CUgraphNode, event: CUevent)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecEventWaitNodeSetEvent](exec: CUgraphExec, node: CUgraphNode, event: CUevent)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecExternalSemaphoresSignalNodeSetParams](
        exec: CUgraphExec, node: CUgraphNode, info: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecExternalSemaphoresWaitNodeSetParams](
        exec: CUgraphExec, node: CUgraphNode, info: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecHostNodeSetParams](exec: CUgraphExec, node: CUgraphNode, info: *const CUDA_HOST_NODE_PARAMS)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2](
        exec: CUgraphExec, node: CUgraphNode, info: *const CUDA_KERNEL_NODE_PARAMS)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecMemcpyNodeSetParams](
        exec: CUgraphExec, node: CUgraphNode, info: *const CUDA_MEMCPY3D, context: CUcontext)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecMemsetNodeSetParams](
        exec: CUgraphExec, node: CUgraphNode, info: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext)
        => |_| [handle(exec), 0, 0, 0];
    Api: [cuGraphExecNodeSetParams](exec: CUgraphExec, node: CUgraphNode, info: *mut CUgraphNodeParams)
        => |_| [handle(exec), 0, 0, 0];
    Count: [cuGraphExternalSemaphoresSignalNodeGetParams](CUgraphNode, *mut CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);
    Count: [cuGraphExternalSemaphoresSignalNodeSetParams](CUgraphNode, *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);
    Count: [cuGraphExternalSemaphoresWaitNodeGetParams](CUgraphNode, *mut CUDA_EXT_SEM_WAIT_NODE_PARAMS);
    Count: [cuGraphExternalSemaphoresWaitNodeSetParams](CUgraphNode, *const CUDA_EXT_SEM_WAIT_NODE_PARAMS);
    Count: [cuGraphGetNodes](CUgraph, *mut CUgraphNode, *mut usize);
    Count: [cuGraphGetRootNodes](CUgraph, *mut CUgraphNode, *mut usize);
    Count: [cuGraphHostNodeGetParams](CUgraphNode, *mut CUDA_HOST_NODE_PARAMS);
    Count: [cuGraphHostNodeSetParams](CUgraphNode, *const CUDA_HOST_NODE_PARAMS);
    Count: [cuGraphKernelNodeCopyAttributes](CUgraphNode, CUgraphNode);
    Count: [cuGraphKernelNodeGetAttribute](CUgraphNode, u32, *mut CUkernelNodeAttrValue);
    Count: [cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2](CUgraphNode, *mut CUDA_KERNEL_NODE_PARAMS);
    Count: [cuGraphKernelNodeSetAttribute](CUgraphNode, u32, *const CUkernelNodeAttrValue);
    Count: [cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2](CUgraphNode, *const CUDA_KERNEL_NODE_PARAMS);
    Count: [cuGraphMemAllocNodeGetParams](CUgraphNode, *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    Count: [cuGraphMemFreeNodeGetParams](CUgraphNode, *mut CUdeviceptr);
    Count: [cuGraphMemcpyNodeGetParams](CUgraphNode, *mut CUDA_MEMCPY3D);
    Count: [cuGraphMemcpyNodeSetParams](CUgraphNode, *const CUDA_MEMCPY3D);
    Count: [cuGraphMemsetNodeGetParams](CUgraphNode, *mut CUDA_MEMSET_NODE_PARAMS);
    Count: [cuGraphMemsetNodeSetParams](CUgraphNode, *const CUDA_MEMSET_NODE_PARAMS);
    Count: [cuGraphNodeFindInClone](*mut CUgraphNode, CUgraphNode, CUgraph);
    Count: [cuGraphNodeGetContainingGraph](CUgraphNode, *mut CUgraph);
    Count: [cuGraphNodeGetDependencies](CUgraphNode, *mut CUgraphNode, *mut usize);
    Count: [cuGraphNodeGetDependencies_v2](CUgraphNode, *mut CUgraphNode, *mut CUgraphEdgeData, *mut usize);
    Count: [cuGraphNodeGetDependentNodes](CUgraphNode, *mut CUgraphNode, *mut usize);
    Count: [cuGraphNodeGetDependentNodes_v2](CUgraphNode, *mut CUgraphNode, *mut CUgraphEdgeData, *mut usize);
    Count: [cuGraphNodeGetEnabled](CUgraphExec, CUgraphNode, *mut u32);
    Count: [cuGraphNodeGetLocalId](CUgraphNode, *mut u32);
    Count: [cuGraphNodeGetParams](CUgraphNode, *mut CUgraphNodeParams);
    Count: [cuGraphNodeGetToolsId](CUgraphNode, *mut u64);
    Count: [cuGraphNodeGetType](CUgraphNode, *mut CUgraphNodeType);
    Api: [cuGraphNodeSetEnabled](exec: CUgraphExec, node: CUgraphNode, flags: u32),
        after |result| switched(result, handle(exec), handle(node), flags);
    Count: [cuGraphNodeSetParams, cuGraphNodeSetParams_v2](CUgraphNode, *mut CUgraphNodeParams);
    Api: [cuGraphRemoveDependencies](CUgraph, *const CUgraphNode, *const CUgraphNode, usize);
    Api: [cuGraphRemoveDependencies_v2](
        CUgraph, *const CUgraphNode, *const CUgraphNode, *const CUgraphEdgeData, usize);
}

fn added(node: u64, graph: u64, info: *const CUgraphNodeParams) -> [u64; 4] {
    bodies::added(node, graph, info);
    [node, 0, graph, 0]
}

fn gone(result: u32, node: u64) -> [u64; 4] {
    if result == 0 {
        bodies::ended_node(node);
    }
    [node, 0, 0, 0]
}

fn switched(result: u32, exec: u64, node: u64, flags: u32) -> [u64; 4] {
    graphs::switched(result, exec, node, flags & 1 != 0);
    [exec, 0, node, u64::from(flags)]
}
