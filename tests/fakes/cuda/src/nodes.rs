//! Nodes of graphs: adding them, asking for and changing what they do, and their edges.

use crate::codes::*;
use crate::copy::Copy3D;
use crate::graph::{Body, Graph};
use crate::launch::Geometry;
use crate::memory::{Kind, Owner};
use crate::state::{Driver, driver, out, put};
use crate::table::{R, driver as functions};
use crate::work::{HostFn, Set, Shape, Work};
use std::ffi::c_void;
use std::sync::Arc;

/// CUDA_KERNEL_NODE_PARAMS_v1, and of v2 the part they share.
#[repr(C)]
pub(crate) struct KernelParams {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: *const *const c_void,
    extra: *const *const c_void,
}

/// CUDA_KERNEL_NODE_PARAMS_v2: `function` may be 0 and a CUkernel stand at the end.
#[repr(C)]
pub(crate) struct KernelParams2 {
    first: KernelParams,
    kernel: u64,
    context: u64,
}

/// CUDA_MEMSET_NODE_PARAMS_v1.
#[repr(C)]
pub(crate) struct SetParams {
    dst: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// CUDA_HOST_NODE_PARAMS_v1.
#[repr(C)]
pub(crate) struct HostParams {
    function: Option<HostFn>,
    data: *mut c_void,
}

/// CUDA_MEM_ALLOC_NODE_PARAMS: the pool's properties (88 bytes), access descriptors, size and, as a result, address.
#[repr(C)]
pub(crate) struct AllocParams {
    pool: [u64; 11],
    access: u64,
    access_count: usize,
    bytes: usize,
    address: u64,
}

impl Driver {
    unsafe fn kernel_body(&self, p: *const KernelParams, kernel: u64) -> R<Body> {
        let p = unsafe { p.as_ref() }.ok_or(INVALID_VALUE)?;
        let function = if p.function != 0 { p.function } else { kernel };
        let geometry = Geometry { grid: p.grid, block: p.block, shared: p.shared };
        geometry.check()?;
        Ok(Body::Work(Work::Kernel(unsafe { self.kernel(function, geometry, p.params, p.extra)? })))
    }

    pub(crate) unsafe fn kernel_body_2(&self, p: *const KernelParams2) -> R<Body> {
        let kernel = unsafe { p.as_ref() }.ok_or(INVALID_VALUE)?.kernel;
        unsafe { self.kernel_body(p.cast(), kernel) }
    }

    unsafe fn copy_body(&self, p: *const Copy3D) -> R<Body> {
        let shape: Shape = self.shape_3d(unsafe { p.as_ref() }.ok_or(INVALID_VALUE)?)?;
        Ok(Body::Work(Work::Copy(self.copy(shape)?)))
    }

    unsafe fn set_body(&self, p: *const SetParams) -> R<Body> {
        let p = unsafe { p.as_ref() }.ok_or(INVALID_VALUE)?;
        let (width, height, element) = (p.width, p.height, p.element as usize);
        if !matches!(element, 1 | 2 | 4) || width == 0 || height == 0 {
            return Err(INVALID_VALUE);
        }
        let last = (height - 1).saturating_mul(p.pitch).saturating_add(width.saturating_mul(element));
        if !self.memory.holds(p.dst, last as u64) {
            return Err(INVALID_VALUE);
        }
        Ok(Body::Work(Work::Set(Set { dst: p.dst, pitch: p.pitch, width, height, value: p.value, element })))
    }

    pub(crate) fn child_body(&mut self, graph: u64) -> R<Body> {
        Ok(Body::Child { plan: Arc::new(self.plan(graph)?), graph: self.copy_graph(graph)? })
    }

    pub(crate) unsafe fn add(
        &mut self,
        result: *mut u64,
        graph: u64,
        after: *const u64,
        count: usize,
        body: Body,
    ) -> R {
        let after = unsafe { self.positions(graph, after, count)? };
        let at = self.add_node(graph, body, after)?;
        unsafe { *out(result)? = self.graphs.get(graph).ok_or(INVALID_VALUE)?.nodes[at].handle };
        Ok(())
    }

    fn work_of(&self, node: u64) -> R<&Work> {
        match &self.node(node)?.body {
            Body::Work(work) => Ok(work),
            _ => Err(INVALID_VALUE),
        }
    }

    fn set_node(&mut self, node: u64, body: Body) -> R {
        let node = self.node_mut(node)?;
        if node.body.kind() != body.kind() {
            return Err(INVALID_VALUE);
        }
        node.body = body;
        Ok(())
    }

    pub(crate) fn set_exec_node(&mut self, exec: u64, node: u64, body: Body) -> R {
        self.change_exec(exec, node, |old, _| {
            if old.kind() != body.kind() {
                return Err(INVALID_VALUE);
            }
            *old = body;
            Ok(())
        })
    }

    unsafe fn edges(&mut self, graph: u64, from: *const u64, to: *const u64, count: usize, add: bool) -> R {
        let (from, to) = unsafe { (self.positions(graph, from, count)?, self.positions(graph, to, count)?) };
        let g = self.graphs.get_mut(graph).ok_or(INVALID_VALUE)?;
        for (from, to) in from.into_iter().zip(to) {
            let after = &mut g.nodes[to].after;
            match after.iter().position(|other| *other == from) {
                None if add => after.push(from),
                Some(at) if !add => _ = after.remove(at),
                _ => return Err(INVALID_VALUE),
            }
        }
        Ok(())
    }
}

/// Answers a list question: the number, and as many entries as the caller has room for.
unsafe fn list(all: &[u64], target: *mut u64, count: *mut usize) -> R {
    let count = unsafe { out(count)? };
    if target.is_null() {
        *count = all.len();
        return Ok(());
    }
    let room = *count;
    for i in 0..room {
        unsafe { *target.add(i) = all.get(i).copied().unwrap_or(0) };
    }
    *count = room.min(all.len());
    Ok(())
}

fn living(g: &Graph) -> impl Iterator<Item = &crate::graph::Node> {
    g.nodes.iter().filter(|node| !node.removed)
}

fn all_edges(graph: u64) -> R<(Vec<u64>, Vec<u64>)> {
    let d = driver()?;
    let g = d.graphs.get(graph).ok_or(INVALID_VALUE)?;
    Ok(living(g).flat_map(|n| n.after.iter().map(|a| (g.nodes[*a].handle, n.handle))).unzip())
}

unsafe fn edges(graph: u64, from: *mut u64, to: *mut u64, count: *mut usize) -> R {
    let (all_from, all_to) = all_edges(graph)?;
    let mut room = unsafe { *out(count)? };
    unsafe {
        list(&all_from, from, &mut room)?;
        list(&all_to, to, count)
    }
}

unsafe fn neighbours(node: u64, before: bool, target: *mut u64, count: *mut usize) -> R {
    let d = driver()?;
    let (graph, at) = *d.nodes.get(node).ok_or(INVALID_VALUE)?;
    let g = d.graphs.get(graph).ok_or(INVALID_VALUE)?;
    let all: Vec<u64> = if before {
        g.nodes[at].after.iter().map(|i| g.nodes[*i].handle).collect()
    } else {
        living(g).filter(|n| n.after.contains(&at)).map(|n| n.handle).collect()
    };
    unsafe { list(&all, target, count) }
}

unsafe fn kernel_params(node: u64) -> R<KernelParams> {
    let d = driver()?;
    let Work::Kernel(k) = d.work_of(node)? else { return Err(INVALID_VALUE) };
    let Geometry { grid, block, shared } = k.geometry;
    let (params, extra) = (std::ptr::null(), std::ptr::null());
    Ok(KernelParams { function: k.function, grid, block, shared, params, extra })
}

functions! {
    fn cuGraphAddKernelNode(result: *mut u64, graph: u64, after: *const u64, count: usize, p: *const KernelParams)
        = "cuGraphAddKernelNode" 10000 |_| {
        let mut d = driver()?;
        let body = d.kernel_body(p, 0)?;
        d.add(result, graph, after, count, body)
    }
    fn cuGraphAddKernelNode_v2(result: *mut u64, graph: u64, after: *const u64, count: usize,
        p: *const KernelParams2) = "cuGraphAddKernelNode" 12000 |_| {
        let mut d = driver()?;
        let body = d.kernel_body_2(p)?;
        d.add(result, graph, after, count, body)
    }
    fn cuGraphAddMemcpyNode(result: *mut u64, graph: u64, after: *const u64, count: usize, p: *const Copy3D,
        _context: u64) = "cuGraphAddMemcpyNode" 10000 |_| {
        let mut d = driver()?;
        let body = d.copy_body(p)?;
        d.add(result, graph, after, count, body)
    }
    fn cuGraphAddMemsetNode(result: *mut u64, graph: u64, after: *const u64, count: usize, p: *const SetParams,
        _context: u64) = "cuGraphAddMemsetNode" 10000 |_| {
        let mut d = driver()?;
        let body = d.set_body(p)?;
        d.add(result, graph, after, count, body)
    }
    fn cuGraphAddHostNode(result: *mut u64, graph: u64, after: *const u64, count: usize, p: *const HostParams)
        = "cuGraphAddHostNode" 10000 |_| {
        let p = p.as_ref().ok_or(INVALID_VALUE)?;
        let body = Body::Work(Work::Host(p.function.ok_or(INVALID_VALUE)?, p.data as usize));
        driver()?.add(result, graph, after, count, body)
    }
    fn cuGraphAddChildGraphNode(result: *mut u64, graph: u64, after: *const u64, count: usize, child: u64)
        = "cuGraphAddChildGraphNode" 10000 |_| {
        let mut d = driver()?;
        let body = d.child_body(child)?;
        d.add(result, graph, after, count, body)
    }
    fn cuGraphAddEmptyNode(result: *mut u64, graph: u64, after: *const u64, count: usize)
        = "cuGraphAddEmptyNode" 10000 |_| { driver()?.add(result, graph, after, count, Body::Empty) }
    fn cuGraphAddEventRecordNode(result: *mut u64, graph: u64, after: *const u64, count: usize, event: u64)
        = "cuGraphAddEventRecordNode" 11010 |_| {
        let mut d = driver()?;
        d.events.get(event).ok_or(INVALID_VALUE)?;
        d.add(result, graph, after, count, Body::EventRecord(event))
    }
    fn cuGraphAddEventWaitNode(result: *mut u64, graph: u64, after: *const u64, count: usize, event: u64)
        = "cuGraphAddEventWaitNode" 11010 |_| {
        let mut d = driver()?;
        d.events.get(event).ok_or(INVALID_VALUE)?;
        d.add(result, graph, after, count, Body::EventWait(event))
    }
    fn cuGraphAddMemAllocNode(result: *mut u64, graph: u64, after: *const u64, count: usize, p: *mut AllocParams)
        = "cuGraphAddMemAllocNode" 11040 |_| {
        let p = out(p)?;
        let mut d = driver()?;
        let address = d.memory.allocate(Kind::Pooled, p.bytes as u64, Owner::default())?;
        p.address = address;
        d.add(result, graph, after, count, Body::Alloc { address, bytes: p.bytes as u64 })
    }
    fn cuGraphAddMemFreeNode(result: *mut u64, graph: u64, after: *const u64, count: usize, address: u64)
        = "cuGraphAddMemFreeNode" 11040 |_| {
        let mut d = driver()?;
        d.memory.get(address).ok_or(INVALID_VALUE)?;
        d.add(result, graph, after, count, Body::Free(address))
    }
    fn cuGraphMemAllocNodeGetParams(node: u64, p: *mut AllocParams) = "cuGraphMemAllocNodeGetParams" 11040 |_| {
        let d = driver()?;
        let Body::Alloc { address, bytes } = d.node(node)?.body else { return Err(INVALID_VALUE) };
        *out(p)? = AllocParams { pool: [0; 11], access: 0, access_count: 0, bytes: bytes as usize, address };
        Ok(())
    }
    fn cuGraphMemFreeNodeGetParams(node: u64, result: *mut u64) = "cuGraphMemFreeNodeGetParams" 11040 |_| {
        let d = driver()?;
        let Body::Free(address) = d.node(node)?.body else { return Err(INVALID_VALUE) };
        *out(result)? = address;
        Ok(())
    }
    fn cuGraphKernelNodeGetParams(node: u64, p: *mut KernelParams) = "cuGraphKernelNodeGetParams" 10000 |_| {
        *out(p)? = kernel_params(node)?;
        Ok(())
    }
    fn cuGraphKernelNodeGetParams_v2(node: u64, p: *mut KernelParams2) = "cuGraphKernelNodeGetParams" 12000 |_| {
        *out(p)? = KernelParams2 { first: kernel_params(node)?, kernel: 0, context: 0 };
        Ok(())
    }
    fn cuGraphKernelNodeSetParams(node: u64, p: *const KernelParams) = "cuGraphKernelNodeSetParams" 10000 |_| {
        let mut d = driver()?;
        let body = d.kernel_body(p, 0)?;
        d.set_node(node, body)
    }
    fn cuGraphKernelNodeSetParams_v2(node: u64, p: *const KernelParams2) = "cuGraphKernelNodeSetParams" 12000 |_| {
        let mut d = driver()?;
        let body = d.kernel_body_2(p)?;
        d.set_node(node, body)
    }
    fn cuGraphMemcpyNodeSetParams(node: u64, p: *const Copy3D) = "cuGraphMemcpyNodeSetParams" 10000 |_| {
        let mut d = driver()?;
        let body = d.copy_body(p)?;
        d.set_node(node, body)
    }
    fn cuGraphMemsetNodeSetParams(node: u64, p: *const SetParams) = "cuGraphMemsetNodeSetParams" 10000 |_| {
        let mut d = driver()?;
        let body = d.set_body(p)?;
        d.set_node(node, body)
    }
    fn cuGraphMemsetNodeGetParams(node: u64, p: *mut SetParams) = "cuGraphMemsetNodeGetParams" 10000 |_| {
        let d = driver()?;
        let Work::Set(s) = d.work_of(node)? else { return Err(INVALID_VALUE) };
        let (width, height, element) = (s.width, s.height, s.element as u32);
        *out(p)? = SetParams { dst: s.dst, pitch: s.pitch, value: s.value, element, width, height };
        Ok(())
    }
    fn cuGraphHostNodeGetParams(node: u64, p: *mut HostParams) = "cuGraphHostNodeGetParams" 10000 |_| {
        let d = driver()?;
        let Work::Host(function, data) = d.work_of(node)? else { return Err(INVALID_VALUE) };
        *out(p)? = HostParams { function: Some(*function), data: *data as *mut c_void };
        Ok(())
    }
    fn cuGraphHostNodeSetParams(node: u64, p: *const HostParams) = "cuGraphHostNodeSetParams" 10000 |_| {
        let p = p.as_ref().ok_or(INVALID_VALUE)?;
        let body = Body::Work(Work::Host(p.function.ok_or(INVALID_VALUE)?, p.data as usize));
        driver()?.set_node(node, body)
    }
    fn cuGraphChildGraphNodeGetGraph(node: u64, result: *mut u64) = "cuGraphChildGraphNodeGetGraph" 10000 |_| {
        let d = driver()?;
        let Body::Child { graph, .. } = d.node(node)?.body else { return Err(INVALID_VALUE) };
        *out(result)? = graph;
        Ok(())
    }
    fn cuGraphEventRecordNodeGetEvent(node: u64, result: *mut u64) = "cuGraphEventRecordNodeGetEvent" 11010 |_| {
        let d = driver()?;
        let Body::EventRecord(event) = d.node(node)?.body else { return Err(INVALID_VALUE) };
        *out(result)? = event;
        Ok(())
    }
    fn cuGraphEventWaitNodeGetEvent(node: u64, result: *mut u64) = "cuGraphEventWaitNodeGetEvent" 11010 |_| {
        let d = driver()?;
        let Body::EventWait(event) = d.node(node)?.body else { return Err(INVALID_VALUE) };
        *out(result)? = event;
        Ok(())
    }
    fn cuGraphExecKernelNodeSetParams(exec: u64, node: u64, p: *const KernelParams)
        = "cuGraphExecKernelNodeSetParams" 10010 |_| {
        let mut d = driver()?;
        let body = d.kernel_body(p, 0)?;
        d.set_exec_node(exec, node, body)
    }
    fn cuGraphExecKernelNodeSetParams_v2(exec: u64, node: u64, p: *const KernelParams2)
        = "cuGraphExecKernelNodeSetParams" 12000 |_| {
        let mut d = driver()?;
        let body = d.kernel_body_2(p)?;
        d.set_exec_node(exec, node, body)
    }
    fn cuGraphExecMemcpyNodeSetParams(exec: u64, node: u64, p: *const Copy3D, _context: u64)
        = "cuGraphExecMemcpyNodeSetParams" 10020 |_| {
        let mut d = driver()?;
        let body = d.copy_body(p)?;
        d.set_exec_node(exec, node, body)
    }
    fn cuGraphExecMemsetNodeSetParams(exec: u64, node: u64, p: *const SetParams, _context: u64)
        = "cuGraphExecMemsetNodeSetParams" 10020 |_| {
        let mut d = driver()?;
        let body = d.set_body(p)?;
        d.set_exec_node(exec, node, body)
    }
    fn cuGraphExecHostNodeSetParams(exec: u64, node: u64, p: *const HostParams)
        = "cuGraphExecHostNodeSetParams" 10020 |_| {
        let p = p.as_ref().ok_or(INVALID_VALUE)?;
        let body = Body::Work(Work::Host(p.function.ok_or(INVALID_VALUE)?, p.data as usize));
        driver()?.set_exec_node(exec, node, body)
    }
    fn cuGraphExecChildGraphNodeSetParams(exec: u64, node: u64, child: u64)
        = "cuGraphExecChildGraphNodeSetParams" 11010 |_| {
        let mut d = driver()?;
        let body = d.child_body(child)?;
        d.set_exec_node(exec, node, body)
    }
    fn cuGraphNodeSetEnabled(exec: u64, node: u64, enabled: u32) = "cuGraphNodeSetEnabled" 11060 |_| {
        driver()?.change_exec(exec, node, |_, on| {
            *on = enabled != 0;
            Ok(())
        })
    }
    fn cuGraphNodeGetEnabled(exec: u64, node: u64, enabled: *mut u32) = "cuGraphNodeGetEnabled" 11060 |_| {
        let d = driver()?;
        let e = d.execs.get(exec).ok_or(INVALID_VALUE)?;
        *out(enabled)? = e.nodes.iter().find(|n| n.0 == node).ok_or(INVALID_VALUE)?.3.into();
        Ok(())
    }
    fn cuGraphNodeGetType(node: u64, kind: *mut u32) = "cuGraphNodeGetType" 10000 |_| {
        *out(kind)? = driver()?.node(node)?.body.kind();
        Ok(())
    }
    fn cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) = "cuGraphGetNodes" 10000 |_| {
        let d = driver()?;
        let all: Vec<u64> = living(d.graphs.get(graph).ok_or(INVALID_VALUE)?).map(|n| n.handle).collect();
        list(&all, nodes, count)
    }
    fn cuGraphGetRootNodes(graph: u64, nodes: *mut u64, count: *mut usize) = "cuGraphGetRootNodes" 10000 |_| {
        let d = driver()?;
        let g = d.graphs.get(graph).ok_or(INVALID_VALUE)?;
        let all: Vec<u64> = living(g).filter(|n| n.after.is_empty()).map(|n| n.handle).collect();
        list(&all, nodes, count)
    }
    fn cuGraphGetEdges(graph: u64, from: *mut u64, to: *mut u64, count: *mut usize) = "cuGraphGetEdges" 10000 |_| {
        edges(graph, from, to, count)
    }
    fn cuGraphGetEdges_v2(graph: u64, from: *mut u64, to: *mut u64, data: *mut u64, count: *mut usize)
        = "cuGraphGetEdges" 12030 |_| {
        edges(graph, from, to, count)?;
        if !data.is_null() {
            data.write_bytes(0, *count);
        }
        Ok(())
    }
    fn cuGraphNodeGetDependencies(node: u64, nodes: *mut u64, count: *mut usize)
        = "cuGraphNodeGetDependencies" 10000 |_| { neighbours(node, true, nodes, count) }
    fn cuGraphNodeGetDependencies_v2(node: u64, nodes: *mut u64, data: *mut u64, count: *mut usize)
        = "cuGraphNodeGetDependencies" 12030 |_| {
        neighbours(node, true, nodes, count)?;
        if !data.is_null() {
            data.write_bytes(0, *count);
        }
        Ok(())
    }
    fn cuGraphNodeGetDependentNodes(node: u64, nodes: *mut u64, count: *mut usize)
        = "cuGraphNodeGetDependentNodes" 10000 |_| { neighbours(node, false, nodes, count) }
    fn cuGraphNodeGetDependentNodes_v2(node: u64, nodes: *mut u64, data: *mut u64, count: *mut usize)
        = "cuGraphNodeGetDependentNodes" 12030 |_| {
        neighbours(node, false, nodes, count)?;
        if !data.is_null() {
            data.write_bytes(0, *count);
        }
        Ok(())
    }
    fn cuGraphAddDependencies(graph: u64, from: *const u64, to: *const u64, count: usize)
        = "cuGraphAddDependencies" 10000 |_| { driver()?.edges(graph, from, to, count, true) }
    fn cuGraphAddDependencies_v2(graph: u64, from: *const u64, to: *const u64, _data: *const u64, count: usize)
        = "cuGraphAddDependencies" 12030 |_| { driver()?.edges(graph, from, to, count, true) }
    fn cuGraphRemoveDependencies(graph: u64, from: *const u64, to: *const u64, count: usize)
        = "cuGraphRemoveDependencies" 10000 |_| { driver()?.edges(graph, from, to, count, false) }
    fn cuGraphRemoveDependencies_v2(graph: u64, from: *const u64, to: *const u64, _data: *const u64, count: usize)
        = "cuGraphRemoveDependencies" 12030 |_| { driver()?.edges(graph, from, to, count, false) }
    fn cuGraphDestroyNode(node: u64) = "cuGraphDestroyNode" 10000 |_| {
        let mut d = driver()?;
        let (graph, at) = *d.nodes.get(node).ok_or(INVALID_VALUE)?;
        let body = d.node(node)?.body.clone();
        d.end_body(&body);
        let g = d.graphs.get_mut(graph).ok_or(INVALID_VALUE)?;
        g.nodes[at].removed = true;
        g.nodes[at].after.clear();
        g.nodes.iter_mut().for_each(|n| n.after.retain(|other| *other != at));
        d.nodes.remove(node);
        Ok(())
    }
    fn cuGraphClone(result: *mut u64, graph: u64) = "cuGraphClone" 10000 |_| {
        let mut d = driver()?;
        *out(result)? = d.copy_graph(graph)?;
        Ok(())
    }
    fn cuGraphNodeFindInClone(result: *mut u64, original: u64, clone: u64) = "cuGraphNodeFindInClone" 10000 |_| {
        let d = driver()?;
        let (_, at) = *d.nodes.get(original).ok_or(INVALID_VALUE)?;
        *out(result)? = d.graphs.get(clone).and_then(|g| g.nodes.get(at)).ok_or(INVALID_VALUE)?.handle;
        Ok(())
    }
    fn cuGraphKernelNodeCopyAttributes(to: u64, from: u64) = "cuGraphKernelNodeCopyAttributes" 11000 |_| {
        let d = driver()?;
        d.node(to)?;
        d.node(from).map(|_| ())
    }
    fn cuGraphKernelNodeGetAttribute(node: u64, _attribute: u32, value: *mut [u64; 8])
        = "cuGraphKernelNodeGetAttribute" 11000 |_| {
        driver()?.node(node)?;
        put(value, [0; 8]);
        Ok(())
    }
    fn cuGraphKernelNodeSetAttribute(node: u64, _attribute: u32, _value: *const [u64; 8])
        = "cuGraphKernelNodeSetAttribute" 11000 |_| { driver()?.node(node).map(|_| ()) }
}
