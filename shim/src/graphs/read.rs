//! Reading a graph: its nodes by kind, those of child graphs and of conditional nodes' bodies too, and its kernels.
//!
//! Cost: two calls of the driver a node, which took it far longer to make. Bounds: so many nodes, levels and functions;
//! what goes beyond them is said to be cut, and never guessed.

use gputrace_abi::graph::{CHILD, CONDITIONAL, Contents, KERNEL, flag};

use super::kernels::Kernels;
use super::room::Room;
use super::{bodies, driver};
use crate::names;

/// Nodes of a graph and everything in it that are looked at.
const NODES_MAX: usize = 1 << 20;
/// Graphs in graphs.
const LEVELS: usize = 16;

/// What was read.
pub(super) struct Reading {
    pub(super) contents: Contents,
    kernels: Kernels,
    left: usize,
}

impl Reading {
    /// The functions of its kernels as they travel.
    pub(super) fn kernels(&self) -> &[u8] {
        self.kernels.bytes()
    }

    fn cut(&mut self, what: u64) {
        self.contents.flags |= what;
    }

    fn graph(&mut self, graph: u64, conditional: bool, level: usize) {
        let Some(count) = driver::count(graph).filter(|_| level < LEVELS) else { return self.cut(flag::NODES_CUT) };
        if count > self.left {
            self.cut(flag::NODES_CUT);
        }
        let count = count.min(self.left);
        self.left -= count;
        if count == 0 {
            return;
        }
        let Some(mut room) = Room::<u64>::new(count) else { return self.cut(flag::NODES_CUT) };
        let Some(found) = driver::nodes(graph, room.all()) else { return self.cut(flag::NODES_CUT) };
        for node in room.seen().iter().take(found) {
            self.node(*node, conditional, level);
        }
    }

    fn node(&mut self, node: u64, conditional: bool, level: usize) {
        let Some(kind) = driver::kind(node) else { return self.cut(flag::NODES_CUT) };
        let contents = &mut self.contents;
        if conditional {
            contents.conditional_nodes = contents.conditional_nodes.saturating_add(1);
            contents.conditional_kernels = contents.conditional_kernels.saturating_add(u32::from(kind == KERNEL));
        } else if let Some(count) = contents.nodes.get_mut(kind) {
            *count = count.saturating_add(1);
        }
        match kind {
            KERNEL => self.kernel(node, conditional),
            CHILD => match driver::child(node) {
                Some(graph) => self.graph(graph, conditional, level + 1),
                None => self.cut(flag::NODES_CUT),
            },
            CONDITIONAL => {
                let mut known = false;
                bodies::of(node, |body| {
                    known = true;
                    self.graph(body, true, level + 1);
                });
                if !known {
                    self.cut(flag::BODIES_CUT);
                }
            }
            _ => {}
        }
    }

    fn kernel(&mut self, node: u64, conditional: bool) {
        let counted = driver::kernel(node).is_some_and(|(function, is_kernel)| {
            self.kernels.add(function, conditional, || names::in_graph(function, is_kernel))
        });
        if !counted {
            self.cut(flag::KERNELS_CUT);
        }
    }
}

/// Reads a graph that was just instantiated as, or applied to, an executable graph.
pub(super) fn read(graph: u64, exec: u64) -> Reading {
    let contents = Contents { graph, ..Contents::default() };
    let mut reading = Reading { contents, kernels: Kernels::new(), left: NODES_MAX };
    let read = driver::relaxed(|| {
        reading.graph(graph, false, 0);
        (reading.contents.graph_id, reading.contents.exec_id) = driver::ids(graph, exec);
    });
    if read.is_none() {
        reading.cut(flag::NODES_CUT);
    }
    reading.kernels.close();
    reading
}
