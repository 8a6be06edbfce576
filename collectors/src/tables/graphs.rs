//! The tables of graphs and of their kernels.

use gputrace_abi::graph::{Contents, Kernel};

use super::columns::{Coded, Flags, Optional, Plain, Rows, take};
use crate::schema::TableId;
use crate::writer::Message;

/// Texts of `graphs.action`.
const ACTIONS: [&str; 2] = ["instantiate", "update"];
/// Columns of nodes by kind, in the order of the schema: the kinds (CUgraphNodeType) that each counts.
const KINDS: [&[usize]; 14] =
    [&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7], &[8, 9], &[10], &[11], &[12], &[13], &[14, 15]];

/// A row of `graphs`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Graph {
    pub(crate) start_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) graph_exec_id: i64,
    /// It was instantiated; else updated.
    pub(crate) first: bool,
    pub(crate) exec: i64,
    pub(crate) contents: Contents,
    pub(crate) updates: i32,
}

/// A row of `graph_kernels`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphKernel {
    pub(crate) start_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) graph_exec_id: i64,
    pub(crate) name_id: Option<i64>,
    pub(crate) kernel: Kernel,
}

/// The columns of `graphs`.
pub(super) struct GraphColumns {
    rows: Rows,
    start_ns: Plain<i64>,
    process_id: Plain<i64>,
    pid: Plain<i32>,
    tid: Plain<i32>,
    graph_exec_id: Plain<i64>,
    action: Coded,
    exec: Plain<i64>,
    graph: Plain<i64>,
    graph_id: Optional<i64>,
    exec_id: Optional<i64>,
    nodes: [Plain<i32>; KINDS.len()],
    conditional_nodes: Plain<i32>,
    conditional_kernels: Plain<i32>,
    updates: Plain<i32>,
    complete: Flags,
}

impl Default for GraphColumns {
    fn default() -> GraphColumns {
        GraphColumns {
            rows: Rows::default(),
            start_ns: Plain::default(),
            process_id: Plain::default(),
            pid: Plain::default(),
            tid: Plain::default(),
            graph_exec_id: Plain::default(),
            action: Coded::new(&ACTIONS),
            exec: Plain::default(),
            graph: Plain::default(),
            graph_id: Optional::default(),
            exec_id: Optional::default(),
            nodes: Default::default(),
            conditional_nodes: Plain::default(),
            conditional_kernels: Plain::default(),
            updates: Plain::default(),
            complete: Flags::default(),
        }
    }
}

impl GraphColumns {
    pub(super) fn push(&mut self, row: &Graph) {
        let contents = &row.contents;
        let number = |id: u32| Some(i64::from(id)).filter(|id| *id != 0);
        self.rows.count += 1;
        self.start_ns.push(row.start_ns);
        self.process_id.push(row.process_id);
        self.pid.push(row.pid);
        self.tid.push(row.tid);
        self.graph_exec_id.push(row.graph_exec_id);
        self.action.push(u8::from(!row.first));
        self.exec.push(row.exec);
        self.graph.push(contents.graph as i64);
        self.graph_id.push(number(contents.graph_id));
        self.exec_id.push(number(contents.exec_id));
        for (column, kinds) in self.nodes.iter_mut().zip(KINDS) {
            column.push(kinds.iter().fold(0, |sum: i32, kind| sum.wrapping_add(contents.nodes[*kind] as i32)));
        }
        self.conditional_nodes.push(contents.conditional_nodes as i32);
        self.conditional_kernels.push(contents.conditional_kernels as i32);
        self.updates.push(row.updates);
        self.complete.push(contents.flags == 0);
    }

    /// A batch, when there are rows.
    pub(super) fn take(&mut self) -> Option<Message> {
        if self.rows.count == 0 {
            return None;
        }
        let mut columns = take![
            self.start_ns,
            self.process_id,
            self.pid,
            self.tid,
            self.graph_exec_id,
            self.action,
            self.exec,
            self.graph,
            self.graph_id,
            self.exec_id
        ];
        for nodes in &mut self.nodes {
            columns.extend(take![*nodes]);
        }
        columns.extend(take![self.conditional_nodes, self.conditional_kernels, self.updates, self.complete]);
        self.rows.batch(TableId::Graphs, columns)
    }
}

/// The columns of `graph_kernels`.
#[derive(Default)]
pub(super) struct GraphKernelColumns {
    rows: Rows,
    start_ns: Plain<i64>,
    process_id: Plain<i64>,
    graph_exec_id: Plain<i64>,
    name_id: Optional<i64>,
    function: Plain<i64>,
    nodes: Plain<i32>,
    conditional_nodes: Plain<i32>,
}

impl GraphKernelColumns {
    pub(super) fn push(&mut self, row: &GraphKernel) {
        self.rows.count += 1;
        self.start_ns.push(row.start_ns);
        self.process_id.push(row.process_id);
        self.graph_exec_id.push(row.graph_exec_id);
        self.name_id.push(row.name_id);
        self.function.push(row.kernel.function as i64);
        self.nodes.push(row.kernel.nodes as i32);
        self.conditional_nodes.push(row.kernel.conditional_nodes as i32);
    }

    /// A batch, when there are rows.
    pub(super) fn take(&mut self) -> Option<Message> {
        if self.rows.count == 0 {
            return None;
        }
        let columns = take![
            self.start_ns,
            self.process_id,
            self.graph_exec_id,
            self.name_id,
            self.function,
            self.nodes,
            self.conditional_nodes
        ];
        self.rows.batch(TableId::GraphKernels, columns)
    }
}
