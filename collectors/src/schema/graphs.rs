//! Tables about CUDA graphs: what was instantiated, and which kernels are in it.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const GRAPH_EXEC: Column = Column::new(
    "graph_exec_id",
    I64,
    Dictionary,
    NONE,
    "number of the instantiation in this process, from 1: unlike the handle it is not reused (launches.graph_exec_id)",
);

const fn nodes(name: &'static str, meaning: &'static str) -> Column {
    Column::new(name, I32, Dictionary, "nodes", meaning)
}

pub(super) const GRAPHS: Table = Table {
    id: TableId::Graphs,
    name: "graphs",
    meaning: "a graph that was instantiated, or what an executable graph held after updates (at most a row a second); counts hold the nodes of child graphs too, and not those in bodies of conditional nodes; the first 65,536 of a process",
    columns: &[
        START.means("when the instantiation, or the last update, was done"),
        PROCESS,
        PID,
        TID.means("thread that made it, or updated it last from a whole graph, as the process itself sees it"),
        GRAPH_EXEC,
        Column::new("action", Text, Dictionary, NONE, "instantiate or update; an update keeps the graph_exec_id"),
        Column::new("exec", I64, Dictionary, NONE, "bits of the CUgraphExec handle (launches.function)"),
        Column::new("graph", I64, Dictionary, NONE, "bits of the CUgraph handle that it was made or updated of"),
        Column::new(
            "graph_id",
            I64,
            Dictionary,
            NONE,
            "the driver's own number of the graph (cuGraphGetId); null where the driver has none (before CUDA 13.1)",
        )
        .optional(),
        Column::new("exec_id", I64, Dictionary, NONE, "the same of the executable graph (cuGraphExecGetId)").optional(),
        nodes("kernels", "kernels that a launch gives to the GPU when no node is switched off"),
        nodes("memcpys", "copies"),
        nodes("memsets", "sets"),
        nodes("hosts", "functions on the host"),
        nodes("child_graphs", "graphs in the graph; their nodes are in the other columns"),
        nodes("empties", "nodes that do nothing but order others"),
        nodes("event_waits", "waits for an event"),
        nodes("event_records", "records of an event"),
        nodes("semaphores", "signals of, and waits for, external semaphores"),
        nodes("mem_allocs", "allocations"),
        nodes("mem_frees", "frees"),
        nodes("batch_mem_ops", "batches of memory operations"),
        nodes("conditionals", "conditional nodes (if, while, switch)"),
        nodes("others", "nodes of kinds that this version does not know"),
        nodes("conditional_nodes", "nodes in the bodies of conditional nodes; how often they run, the device decides"),
        nodes("conditional_kernels", "kernels among them"),
        Column::new(
            "updates",
            I32,
            Dictionary,
            "calls",
            "calls that changed it since its row before: cuGraphExecUpdate, cuGraphExec*SetParams, cuGraphNodeSetEnabled and the like",
        ),
        Column::new(
            "complete",
            Bool,
            Plain,
            NONE,
            "every node was counted, and every kernel named in graph_kernels; false beyond 1,048,576 nodes, 16 levels or 480 different kernels, and where a body of a conditional node could not be looked into",
        ),
    ],
};

pub(super) const GRAPH_KERNELS: Table = Table {
    id: TableId::GraphKernels,
    name: "graph_kernels",
    meaning: "a kernel of a graph that was instantiated, or updated to hold other kernels than before; all rows of one start_ns and graph_exec_id belong together",
    columns: &[
        START.means("start_ns of the row in graphs"),
        PROCESS,
        GRAPH_EXEC,
        Column::new("name_id", I64, Dictionary, NONE, "names.name_id, kind kernel; null when its loading was not seen")
            .optional(),
        Column::new("function", I64, Dictionary, NONE, "bits of the CUfunction or CUkernel handle"),
        nodes("nodes", "nodes that launch it, those of child graphs too"),
        nodes("conditional_nodes", "nodes in the bodies of conditional nodes that launch it"),
    ],
};
