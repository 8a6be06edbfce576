//! Which graphs are the bodies of a conditional node. The driver says so once, when the node is added.
//!
//! A small fixed table; what finds no room in it counts as bodies that could not be looked into. Handles come back, and a
//! graph that is gone must not be asked anything: an entry ends with its node, or with the graph that the node is in.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::graph::CONDITIONAL;

/// Bodies that are remembered.
const MOST: usize = 512;
/// Bodies of a node: those of a switch are numbered.
const BODIES: u32 = 64;

struct Entry {
    /// 0: free; all ones: being filled in.
    node: AtomicU64,
    body: AtomicU64,
    /// The graph that the node is in.
    graph: AtomicU64,
}

static ENTRIES: [Entry; MOST] =
    [const { Entry { node: AtomicU64::new(0), body: AtomicU64::new(0), graph: AtomicU64::new(0) } }; MOST];

const FILLING: u64 = u64::MAX;

/// CUgraphNodeParams of a conditional node.
#[repr(C)]
struct Parameters {
    kind: u32,
    reserved: [u32; 3],
    handle: u64,
    condition: u32,
    count: u32,
    bodies: *const u64,
}

/// A node was added to a graph with these parameters, which the driver has completed; `node` is 0 when that failed.
#[inline]
pub(crate) fn added<T>(node: u64, graph: u64, parameters: *const T) {
    // SAFETY: null, or the program's parameters (256 bytes, of which these are the first), which the driver has read.
    let Some(parameters) = (unsafe { parameters.cast::<Parameters>().as_ref() }).filter(|_| node != 0) else { return };
    if parameters.kind as usize == CONDITIONAL && !parameters.bodies.is_null() {
        ended_node(node);
        for nth in 0..parameters.count.min(BODIES) as usize {
            // SAFETY: the driver's array of `count` graphs, which it has just filled in.
            add(node, unsafe { *parameters.bodies.add(nth) }, graph);
        }
    }
}

#[cold]
#[inline(never)]
fn add(node: u64, body: u64, graph: u64) {
    let free = |entry: &&Entry| entry.node.compare_exchange(0, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if let Some(entry) = ENTRIES.iter().find(free) {
        entry.body.store(body, Ordering::Relaxed);
        entry.graph.store(graph, Ordering::Relaxed);
        entry.node.store(node, Ordering::Release);
    }
}

/// Calls `each` with the bodies of a node.
pub(super) fn of(node: u64, mut each: impl FnMut(u64)) {
    for entry in ENTRIES.iter().filter(|entry| entry.node.load(Ordering::Acquire) == node) {
        each(entry.body.load(Ordering::Relaxed));
    }
}

/// A node is gone.
#[cold]
#[inline(never)]
pub(crate) fn ended_node(node: u64) {
    for entry in &ENTRIES {
        if entry.node.compare_exchange(node, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            let body = entry.body.swap(0, Ordering::Relaxed);
            entry.node.store(0, Ordering::Release);
            ended_graph(body);
        }
    }
}

/// A graph is gone, with its nodes and their bodies.
#[cold]
#[inline(never)]
pub(crate) fn ended_graph(graph: u64) {
    for entry in ENTRIES.iter().filter(|_| graph != 0) {
        let node = entry.node.load(Ordering::Acquire);
        if node != 0 && node != FILLING && entry.graph.load(Ordering::Relaxed) == graph {
            ended_node(node);
        }
    }
}
