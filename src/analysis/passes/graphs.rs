//! What CUDA graphs hold, and how often they were instantiated and updated.

use gputrace_collectors::schema::TableId;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::steps::{Cursor, Steps};
use crate::trace::{Rows, Want};

/// One instantiated graph, as its last row says.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Kernels of a launch.
    pub(crate) kernels: i64,
    /// Other nodes that do work: copies, sets, host functions, allocations.
    pub(crate) others: i64,
    /// Kernels in the bodies of conditional nodes.
    pub(crate) conditional_kernels: i64,
    /// Calls that changed it.
    pub(crate) updates: u64,
    /// Instantiated in a steady step.
    pub(crate) steady: bool,
    /// Not read in full.
    pub(crate) incomplete: bool,
    last_ns: i64,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct GraphsMade {
    /// By process and instantiation.
    pub(crate) graphs: Groups<(i64, i64), Graph>,
    cursor: Cursor,
}

impl Default for GraphsMade {
    fn default() -> Self {
        GraphsMade { graphs: Groups::new(50_000, (OTHER, OTHER)), cursor: Cursor::default() }
    }
}

impl Pass for GraphsMade {
    fn wants(&self) -> &'static [Want] {
        const COLUMNS: &[&str] = &[
            "graph_exec_id",
            "action",
            "kernels",
            "memcpys",
            "memsets",
            "hosts",
            "mem_allocs",
            "mem_frees",
            "conditional_kernels",
            "updates",
            "complete",
        ];
        &[Want { table: TableId::Graphs, columns: COLUMNS }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let (process, start, graph) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("graph_exec_id"));
        let (kernels, in_bodies) = (rows.i32_or("kernels", 0), rows.i32_or("conditional_kernels", 0));
        let others = ["memcpys", "memsets", "hosts", "mem_allocs", "mem_frees"].map(|column| rows.i32_or(column, 0));
        let (action, updates, complete) = (rows.texts("action"), rows.i32_or("updates", 0), rows.flags("complete"));
        for row in 0..rows.len {
            let steady = steps.place(&mut self.cursor, process[row], start[row]).is_steady();
            let graph = self.graphs.at((process[row], graph[row]));
            graph.updates += updates[row].max(0) as u64;
            graph.steady |= steady && action.get(row) == "instantiate";
            if start[row] >= graph.last_ns {
                graph.last_ns = start[row];
                graph.kernels = i64::from(kernels[row]);
                graph.others = others.iter().map(|nodes| i64::from(nodes[row])).sum();
                graph.conditional_kernels = i64::from(in_bodies[row]);
                graph.incomplete = !complete.get(row);
            }
        }
    }
}
