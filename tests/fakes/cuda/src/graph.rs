//! Graphs: nodes and edges, and what becomes of them when they are instantiated and launched.

use crate::codes::*;
use crate::conditional::Conditional;
use crate::observe;
use crate::state::{Driver, driver, out};
use crate::table::{R, driver as functions};
use crate::work::{Plan, Step, Work};
use std::ffi::c_void;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// The client's objects that live as long as the graph.
    pub(crate) user_objects: Vec<u64>,
}

pub(crate) struct Node {
    pub(crate) handle: u64,
    pub(crate) body: Body,
    /// Positions of the nodes before it.
    pub(crate) after: Vec<usize>,
    pub(crate) removed: bool,
}

#[derive(Clone)]
pub(crate) enum Body {
    Work(Work),
    Empty,
    /// A graph of its own: a copy of another one as that was when it was added.
    Child {
        graph: u64,
        plan: Arc<Plan>,
    },
    EventRecord(u64),
    EventWait(u64),
    Alloc {
        address: u64,
        bytes: u64,
    },
    Free(u64),
    Conditional(Conditional),
}

/// A node as it was instantiated: handle, what it does, the nodes before it, whether it is there and switched on.
type Planned = (u64, Body, Vec<usize>, bool);

pub(crate) struct Exec {
    pub(crate) plan: Arc<Plan>,
    pub(crate) flags: u64,
    /// An observer's name for it; no other has had it.
    pub(crate) number: u32,
    /// The bodies and edges that parameters can be changed in.
    pub(crate) nodes: Vec<Planned>,
}

pub(crate) struct UserObject {
    pub(crate) pointer: usize,
    pub(crate) destroy: crate::work::HostFn,
    pub(crate) count: u32,
}

/// CU_GRAPH_NODE_TYPE_WAIT_EVENT.
const WAIT_EVENT: u32 = 6;

impl Body {
    /// CUgraphNodeType.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Body::Work(Work::Kernel(_)) => 0,
            Body::Work(Work::Copy(_)) => 1,
            Body::Work(Work::Set(_)) => 2,
            Body::Work(Work::Host(..)) => 3,
            Body::Child { .. } => 4,
            Body::Work(Work::Write { .. }) => 12,
            Body::Work(_) | Body::Empty => 5,
            Body::EventWait(_) => WAIT_EVENT,
            Body::EventRecord(_) => 7,
            Body::Alloc { .. } => 10,
            Body::Free(_) => 11,
            Body::Conditional(_) => 13,
        }
    }

    fn event(&self) -> Option<u64> {
        match self {
            Body::EventWait(event) | Body::EventRecord(event) => Some(*event),
            _ => None,
        }
    }

    /// How many nodes are inside it.
    fn inside(&self) -> u32 {
        match self {
            Body::Child { plan, .. } | Body::Conditional(Conditional { plan, .. }) => plan.nodes,
            _ => 0,
        }
    }

    fn work(&self) -> Work {
        match self {
            Body::Work(work) => work.clone(),
            Body::Child { plan, .. } | Body::Conditional(Conditional { plan, .. }) => Work::Graph(plan.clone()),
            _ => Work::Nothing,
        }
    }
}

impl Plan {
    /// Gives every node its place in time: each begins when the last of those before it has ended.
    pub(crate) fn of<'a>(nodes: impl Iterator<Item = (&'a Body, &'a [usize], bool)>) -> R<Plan> {
        let nodes: Vec<_> = nodes.collect();
        let mut ends: Vec<Option<u64>> = vec![None; nodes.len()];
        let mut steps = Vec::with_capacity(nodes.len());
        let mut count = 0;
        let mut numbers = Vec::with_capacity(nodes.len());
        for (body, ..) in &nodes {
            numbers.push(count + 1);
            count += 1 + body.inside();
        }
        let mut left = nodes.iter().filter(|(.., on)| *on).count();
        while left > 0 {
            let before = left;
            for (i, (body, after, on)) in nodes.iter().enumerate() {
                let ready = *on && ends[i].is_none() && after.iter().all(|a| !nodes[*a].2 || ends[*a].is_some());
                if !ready {
                    continue;
                }
                let start_ns = after.iter().filter_map(|a| ends[*a]).max().unwrap_or(0);
                let work = body.work();
                let end_ns = start_ns + work.ns();
                ends[i] = Some(end_ns);
                steps.push(Step { work, start_ns, end_ns, node: numbers[i] });
                left -= 1;
            }
            if left == before {
                return Err(INVALID_VALUE); // a cycle
            }
        }
        Ok(Plan {
            total_ns: ends.iter().flatten().max().copied().unwrap_or(0),
            has_host: steps.iter().any(|step| step.work.has_host()),
            visible: steps.iter().any(|step| step.work.visible()),
            nodes: count,
            steps,
        })
    }
}

impl Driver {
    pub(crate) fn add_node(&mut self, graph: u64, body: Body, after: Vec<usize>) -> R<usize> {
        let at = self.graphs.get(graph).ok_or(INVALID_VALUE)?.nodes.len();
        let handle = self.nodes.insert((graph, at));
        let g = self.graphs.get_mut(graph).ok_or(INVALID_VALUE)?;
        g.nodes.push(Node { handle, body, after, removed: false });
        Ok(at)
    }

    /// Positions in a graph of the nodes that a client names.
    pub(crate) unsafe fn positions(&self, graph: u64, nodes: *const u64, count: usize) -> R<Vec<usize>> {
        self.graphs.get(graph).ok_or(INVALID_VALUE)?;
        if count > 0 && nodes.is_null() {
            return Err(INVALID_VALUE);
        }
        let node = |i| match self.nodes.get(unsafe { *nodes.add(i) }) {
            Some((owner, at)) if *owner == graph => Ok(*at),
            _ => Err(INVALID_VALUE),
        };
        (0..count).map(node).collect()
    }

    pub(crate) fn node(&self, handle: u64) -> R<&Node> {
        let (graph, at) = self.nodes.get(handle).ok_or(INVALID_VALUE)?;
        self.graphs.get(*graph).and_then(|g| g.nodes.get(*at)).ok_or(INVALID_VALUE)
    }

    pub(crate) fn node_mut(&mut self, handle: u64) -> R<&mut Node> {
        let (graph, at) = *self.nodes.get(handle).ok_or(INVALID_VALUE)?;
        self.graphs.get_mut(graph).and_then(|g| g.nodes.get_mut(at)).ok_or(INVALID_VALUE)
    }

    pub(crate) fn end_graph(&mut self, graph: u64) -> bool {
        let Some(g) = self.graphs.remove(graph) else { return false };
        for node in &g.nodes {
            self.nodes.remove(node.handle);
            self.end_body(&node.body);
        }
        for object in g.user_objects {
            self.release_user_object(object, 1);
        }
        true
    }

    /// Ends the graphs inside a node.
    pub(crate) fn end_body(&mut self, body: &Body) {
        match body {
            Body::Child { graph, .. } => _ = self.end_graph(*graph),
            Body::Conditional(node) => node.bodies.iter().for_each(|graph| _ = self.end_graph(*graph)),
            _ => {}
        }
    }

    /// A copy of a graph, with copies of the graphs in it.
    pub(crate) fn copy_graph(&mut self, graph: u64) -> R<u64> {
        let g = self.graphs.get(graph).ok_or(INVALID_VALUE)?;
        let nodes: Vec<_> = g.nodes.iter().map(|n| (n.body.clone(), n.after.clone(), n.removed)).collect();
        self.graph_of(nodes)
    }

    /// A new graph of these nodes: what they do, the nodes before them, and whether they are gone.
    fn graph_of(&mut self, nodes: Vec<(Body, Vec<usize>, bool)>) -> R<u64> {
        let new = self.graphs.insert(Graph::default());
        for (mut body, after, removed) in nodes {
            match &mut body {
                Body::Child { graph, .. } if !removed => *graph = self.copy_graph(*graph)?,
                Body::Conditional(_) if !removed => return Err(NOT_SUPPORTED),
                _ => {}
            }
            let at = self.add_node(new, body, after)?;
            if let Some(g) = self.graphs.get_mut(new) {
                g.nodes[at].removed = removed;
            }
        }
        Ok(new)
    }

    /// The nodes of a graph as they are instantiated now: handle, what it does, the nodes before it, whether it is there.
    fn planned_nodes(&self, graph: u64) -> R<Vec<Planned>> {
        let g = self.graphs.get(graph).ok_or(INVALID_VALUE)?;
        let body = |n: &Node| if n.removed { Ok(n.body.clone()) } else { self.planned(&n.body) };
        g.nodes.iter().map(|n| Ok((n.handle, body(n)?, n.after.clone(), !n.removed))).collect()
    }

    pub(crate) fn plan(&self, graph: u64) -> R<Plan> {
        Plan::of(self.planned_nodes(graph)?.iter().map(|(_, body, after, on)| (body, &after[..], *on)))
    }

    /// Gives up references to a client's object; its destructor runs with the last one.
    pub(crate) fn release_user_object(&mut self, object: u64, count: u32) {
        let Some(o) = self.user_objects.get_mut(object) else { return };
        o.count = o.count.saturating_sub(count);
        if o.count == 0
            && let Some(o) = self.user_objects.remove(object)
        {
            // The vendor's runs it on a thread of its own some time later; calling CUDA in it is forbidden.
            unsafe { (o.destroy)(o.pointer as *mut c_void) };
        }
    }

    fn instantiate(&mut self, graph: u64, flags: u64) -> R<u64> {
        let (plan, nodes) = (Arc::new(self.plan(graph)?), self.planned_nodes(graph)?);
        let number = self.id() as u32;
        Ok(self.execs.insert(Exec { plan, flags, number, nodes }))
    }

    /// Recomputes an executable graph after one of its nodes was changed.
    pub(crate) fn change_exec(&mut self, exec: u64, node: u64, change: impl FnOnce(&mut Body, &mut bool) -> R) -> R {
        let e = self.execs.get_mut(exec).ok_or(INVALID_VALUE)?;
        let found = e.nodes.iter_mut().find(|n| n.0 == node).ok_or(INVALID_VALUE)?;
        change(&mut found.1, &mut found.3)?;
        e.plan = Arc::new(Plan::of(e.nodes.iter().map(|(_, body, after, on)| (body, &after[..], *on)))?);
        Ok(())
    }

    fn update_exec(&mut self, exec: u64, graph: u64) -> R<bool> {
        let nodes = self.planned_nodes(graph)?;
        let e = self.execs.get_mut(exec).ok_or(INVALID_VALUE)?;
        let same = e.nodes.len() == nodes.len()
            && e.nodes.iter().zip(&nodes).all(|(old, new)| old.1.kind() == new.1.kind() && old.2 == new.2);
        if same {
            // The executable keeps its own node handles; only what the nodes do changes.
            for (old, new) in e.nodes.iter_mut().zip(nodes) {
                old.1 = new.1;
            }
            e.plan = Arc::new(Plan::of(e.nodes.iter().map(|(_, body, after, on)| (body, &after[..], *on)))?);
        }
        Ok(same)
    }
}

/// CUDA_GRAPH_INSTANTIATE_PARAMS.
#[repr(C)]
pub(crate) struct InstantiateParams {
    flags: u64,
    stream: u64,
    error_node: u64,
    result: u32,
}

fn launch(raw: u64, default: crate::table::Default, exec: u64) -> R {
    observe::begin(observe::class::GRAPH);
    let mut d = driver()?;
    let stream = d.stream(raw, default)?;
    let e = d.execs.get(exec).ok_or(INVALID_VALUE)?;
    let plan = e.plan.clone();
    observe::launches(e.number);
    if d.streams.get(stream).is_some_and(|s| s.capture.is_some()) {
        // A graph that is launched under capture becomes a child of the captured one.
        let nodes = e.nodes.iter().map(|(_, body, after, on)| (body.clone(), after.clone(), !on)).collect();
        let graph = d.graph_of(nodes)?;
        return d.capture_body(stream, Body::Child { graph, plan });
    }
    let events: Vec<(u32, u64)> = e.nodes.iter().filter_map(|n| n.1.event().map(|event| (n.1.kind(), event))).collect();
    // Event nodes take effect at the graph's edges: what it waits for comes before all of it, what it records after.
    for (_, event) in events.iter().filter(|(kind, _)| *kind == WAIT_EVENT) {
        crate::event::wait_in_stream(&mut d, stream, *event)?;
    }
    d.submit(stream, Work::Graph(plan))?;
    for (_, event) in events.iter().filter(|(kind, _)| *kind != WAIT_EVENT) {
        crate::event::record_in_stream(&mut d, stream, *event)?;
    }
    Ok(())
}

unsafe fn new_exec(result: *mut u64, graph: u64, flags: u64) -> R {
    unsafe { *out(result)? = driver()?.instantiate(graph, flags)? };
    Ok(())
}

unsafe fn with_params(result: *mut u64, graph: u64, params: *mut InstantiateParams) -> R {
    let params = unsafe { out(params)? };
    params.error_node = 0;
    params.result = 0;
    unsafe { new_exec(result, graph, params.flags) }
}

functions! {
    fn cuGraphCreate(result: *mut u64, flags: u32) = "cuGraphCreate" 10000 |_| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        *out(result)? = driver()?.graphs.insert(Graph::default());
        Ok(())
    }
    fn cuGraphDestroy(graph: u64) = "cuGraphDestroy" 10000 |_| {
        if driver()?.end_graph(graph) { Ok(()) } else { Err(INVALID_VALUE) }
    }
    fn cuGraphInstantiate(result: *mut u64, graph: u64, _node: *mut u64, _log: *mut i8, _bytes: usize)
        = "cuGraphInstantiate" 10000 |_| { new_exec(result, graph, 0) }
    fn cuGraphInstantiate_v2(result: *mut u64, graph: u64, _node: *mut u64, _log: *mut i8, _bytes: usize)
        = "cuGraphInstantiate" 11000 |_| { new_exec(result, graph, 0) }
    fn cuGraphInstantiateWithFlags(result: *mut u64, graph: u64, flags: u64)
        = "cuGraphInstantiateWithFlags" 11040 |_| { new_exec(result, graph, flags) }
    fn cuGraphInstantiateWithParams(result: *mut u64, graph: u64, params: *mut InstantiateParams)
        = "cuGraphInstantiateWithParams" 12000 + "cuGraphInstantiateWithParams_ptsz" 12000 |_| {
        with_params(result, graph, params)
    }
    fn cuGraphExecGetFlags(exec: u64, flags: *mut u64) = "cuGraphExecGetFlags" 12000 |_| {
        *out(flags)? = driver()?.execs.get(exec).ok_or(INVALID_VALUE)?.flags;
        Ok(())
    }
    fn cuGraphExecDestroy(exec: u64) = "cuGraphExecDestroy" 10000 |_| {
        driver()?.execs.remove(exec).map(|_| ()).ok_or(INVALID_VALUE)
    }
    fn cuGraphUpload(exec: u64, stream: u64) = "cuGraphUpload" 11010 + "cuGraphUpload_ptsz" 11010 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        d.execs.get(exec).ok_or(INVALID_VALUE)?;
        d.refuse_on_captured(stream)?;
        d.submit(stream, Work::Nothing).map(|_| ())
    }
    fn cuGraphLaunch(exec: u64, stream: u64) = "cuGraphLaunch" 10000 + "cuGraphLaunch_ptsz" 10000 |default| {
        launch(stream, default, exec)
    }
    fn cuGraphExecUpdate(exec: u64, graph: u64, node: *mut u64, result: *mut u32) = "cuGraphExecUpdate" 10020 |_| {
        let same = driver()?.update_exec(exec, graph)?;
        crate::state::put(node, 0);
        crate::state::put(result, u32::from(!same));
        if same { Ok(()) } else { Err(910) }
    }
    fn cuGraphExecUpdate_v2(exec: u64, graph: u64, info: *mut u32) = "cuGraphExecUpdate" 12000 |_| {
        let same = driver()?.update_exec(exec, graph)?;
        *out(info)? = u32::from(!same);
        if same { Ok(()) } else { Err(910) }
    }
    fn cuUserObjectCreate(result: *mut u64, pointer: *mut c_void, destroy: Option<crate::work::HostFn>, count: u32,
        _flags: u32) = "cuUserObjectCreate" 11030 |_| {
        let destroy = destroy.ok_or(INVALID_VALUE)?;
        *out(result)? = driver()?.user_objects.insert(UserObject { pointer: pointer as usize, destroy, count });
        Ok(())
    }
    fn cuUserObjectRetain(object: u64, count: u32) = "cuUserObjectRetain" 11030 |_| {
        driver()?.user_objects.get_mut(object).ok_or(INVALID_VALUE)?.count += count;
        Ok(())
    }
    fn cuUserObjectRelease(object: u64, count: u32) = "cuUserObjectRelease" 11030 |_| {
        let mut d = driver()?;
        d.user_objects.get(object).ok_or(INVALID_VALUE)?;
        d.release_user_object(object, count);
        Ok(())
    }
    fn cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32)
        = "cuGraphRetainUserObject" 11030 |_| {
        let mut d = driver()?;
        let o = d.user_objects.get_mut(object).ok_or(INVALID_VALUE)?;
        // Flag 1 moves the caller's references into the graph.
        o.count += if flags & 1 == 0 { count } else { 0 };
        let g = d.graphs.get_mut(graph).ok_or(INVALID_VALUE)?;
        g.user_objects.extend(std::iter::repeat_n(object, count as usize));
        Ok(())
    }
    fn cuGraphReleaseUserObject(graph: u64, object: u64, count: u32) = "cuGraphReleaseUserObject" 11030 |_| {
        let mut d = driver()?;
        let g = d.graphs.get_mut(graph).ok_or(INVALID_VALUE)?;
        for _ in 0..count {
            let at = g.user_objects.iter().position(|o| *o == object).ok_or(INVALID_VALUE)?;
            g.user_objects.remove(at);
        }
        d.release_user_object(object, count);
        Ok(())
    }
}
