//! Nodes that are added by one function for all kinds, and the one kind that only it can add: a conditional node.
//!
//! A simulated device computes no condition, so a handle's default value is what the condition is: an `if` runs its
//! first body when it is not 0, a `while` runs it so many times, a `switch` runs the body of that number.

use crate::codes::*;
use crate::graph::{Body, Graph};
use crate::nodes::KernelParams2;
use crate::state::{Driver, driver, out};
use crate::table::{R, driver as functions};
use crate::work::{Plan, Step, Work};
use std::sync::Arc;

/// CUgraphNodeParams: its kind, and what the kind needs.
#[repr(C)]
pub(crate) struct NodeParams {
    kind: u32,
    reserved: [u32; 3],
    words: [u64; 29],
}

/// CUDA_CONDITIONAL_NODE_PARAMS.
#[repr(C)]
struct ConditionalParams {
    handle: u64,
    kind: u32,
    count: u32,
    bodies: *const u64,
    context: u64,
}

/// What a conditional node holds.
#[derive(Clone)]
pub(crate) struct Conditional {
    kind: u32,
    value: u32,
    pub(crate) bodies: Arc<[u64]>,
    /// What it does, as of the instantiation.
    pub(crate) plan: Arc<Plan>,
}

const IF: u32 = 0;
const WHILE: u32 = 1;
const SWITCH: u32 = 2;
/// Marks a condition's handle; its value is the low half.
const CONDITION: u64 = 0x51 << 40;

impl Conditional {
    /// The body that runs, and how often.
    fn runs(&self) -> Option<(u64, u32)> {
        let (nth, times) = match self.kind {
            IF if self.value == 0 => (1, 1), // the second body, if there is one, is the else
            IF => (0, 1),
            WHILE => (0, self.value),
            _ => (self.value as usize, 1),
        };
        Some((*self.bodies.get(nth)?, times))
    }
}

impl Driver {
    /// The same node as it is instantiated now: with what its bodies hold.
    pub(crate) fn planned(&self, body: &Body) -> R<Body> {
        let Body::Conditional(node) = body else { return Ok(body.clone()) };
        let mut plan = Plan::default();
        if let Some((graph, times)) = node.runs() {
            let body = Arc::new(self.plan(graph)?);
            (plan.has_host, plan.visible, plan.nodes) = (body.has_host, body.visible, body.nodes);
            for _ in 0..times {
                let start_ns = plan.total_ns;
                plan.total_ns += body.total_ns;
                plan.steps.push(Step { work: Work::Graph(body.clone()), start_ns, end_ns: plan.total_ns, node: 0 });
            }
        }
        Ok(Body::Conditional(Conditional { plan: Arc::new(plan), ..node.clone() }))
    }

    unsafe fn body_of(&mut self, params: *mut NodeParams) -> R<Body> {
        let params = unsafe { out(params)? };
        match params.kind {
            0 => unsafe { self.kernel_body_2(params.words.as_ptr().cast::<KernelParams2>()) },
            4 => self.child_body(params.words[0]),
            5 => Ok(Body::Empty),
            13 => {
                let p = unsafe { &mut *params.words.as_mut_ptr().cast::<ConditionalParams>() };
                if p.handle & !0xffff_ffff != CONDITION || p.kind > SWITCH || p.count == 0 {
                    return Err(INVALID_VALUE);
                }
                let bodies: Arc<[u64]> = (0..p.count).map(|_| self.graphs.insert(Graph::default())).collect();
                p.bodies = bodies.as_ptr();
                let plan = Arc::new(Plan::default());
                Ok(Body::Conditional(Conditional { kind: p.kind, value: p.handle as u32, bodies, plan }))
            }
            _ => Err(NOT_SUPPORTED),
        }
    }
}

functions! {
    fn cuGraphAddNode(result: *mut u64, graph: u64, after: *const u64, count: usize, params: *mut NodeParams)
        = "cuGraphAddNode" 12020 |_| {
        let mut d = driver()?;
        let body = d.body_of(params)?;
        d.add(result, graph, after, count, body)
    }
    fn cuGraphAddNode_v2(result: *mut u64, graph: u64, after: *const u64, _edges: *const u64, count: usize,
        params: *mut NodeParams) = "cuGraphAddNode" 12030 |_| {
        let mut d = driver()?;
        let body = d.body_of(params)?;
        d.add(result, graph, after, count, body)
    }
    fn cuGraphConditionalHandleCreate(result: *mut u64, graph: u64, _context: u64, value: u32, flags: u32)
        = "cuGraphConditionalHandleCreate" 12030 |_| {
        driver()?.graphs.get(graph).ok_or(INVALID_VALUE)?;
        // Flag 1: the value is set at each launch.
        *out(result)? = CONDITION | u64::from(if flags & 1 != 0 { value } else { 0 });
        Ok(())
    }
    fn cuGraphExecNodeSetParams(exec: u64, node: u64, params: *mut NodeParams) = "cuGraphExecNodeSetParams" 12020 |_| {
        let mut d = driver()?;
        let body = d.body_of(params)?;
        d.set_exec_node(exec, node, body)
    }
    fn cuGraphGetId(graph: u64, id: *mut u32) = "cuGraphGetId" 13010 |_| {
        driver()?.graphs.get(graph).ok_or(INVALID_VALUE)?;
        *out(id)? = crate::slab::parts(graph).1 + 1;
        Ok(())
    }
    fn cuGraphExecGetId(exec: u64, id: *mut u32) = "cuGraphExecGetId" 13010 |_| {
        driver()?.execs.get(exec).ok_or(INVALID_VALUE)?;
        *out(id)? = crate::slab::parts(exec).1 + 1;
        Ok(())
    }
}
