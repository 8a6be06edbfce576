//! Tables of what the GPU did, on its own time: kernels that ran, and copies and sets that it made.
//!
//! Rows of one stream stand in the order of their time; rows of different streams may be out of order by as much as their
//! source delivered them late. An interval may begin slightly before the call that caused it: two clocks were compared.

use super::columns::*;
use super::{Column, Table, TableId};

const GPU: Column = Column::new("gpu_ns", I64, Delta, NS, "time on the GPU, from begin to end");
const CAUSE: Column = CORRELATION
    .means("the call that caused it: correlation_id of the same process in launches or transfers; null when that is not in the trace")
    .optional();
const NODE: Column = Column::new(
    "graph_node",
    I64,
    Dictionary,
    NONE,
    "node of the graph that it was, as its source numbers them; null outside of graphs",
)
.optional();

pub(super) const KERNELS: Table = Table {
    id: TableId::Kernels,
    name: "kernels",
    meaning: "a kernel that ran on the GPU; of Metal a whole command buffer",
    columns: &[
        START.means("when it began on the GPU"),
        GPU,
        PROCESS,
        PID,
        DEVICE.means("ordinal of the device in this process"),
        CONTEXT.means("number of the CUDA context, as in launches; 0 when not known"),
        STREAM,
        CAUSE,
        Column::new("name_id", I64, Dictionary, NONE, "its name: names.name_id, kind kernel; null when not known")
            .optional(),
        Column::new("grid_x", I32, Dictionary, "blocks", "grid; 0 when not known"),
        Column::new("grid_y", I32, Dictionary, "blocks", "grid"),
        Column::new("grid_z", I32, Dictionary, "blocks", "grid"),
        Column::new("block_x", I32, Dictionary, "threads", "block; 0 when not known"),
        Column::new("block_y", I32, Dictionary, "threads", "block"),
        Column::new("block_z", I32, Dictionary, "threads", "block"),
        Column::new("registers", I32, Dictionary, NONE, "registers of a thread; null when not known").optional(),
        Column::new(
            "static_shared_bytes",
            I32,
            Dictionary,
            BYTES,
            "shared memory of a block that the kernel declares; null when not known",
        )
        .optional(),
        Column::new("shared_bytes", I32, Dictionary, BYTES, "dynamic shared memory of a block; null when not known")
            .optional(),
        NODE,
        Column::new(
            "queue_ns",
            I64,
            Delta,
            NS,
            "queue delay: from the end of the call that caused it (of a graph's kernel: that launched the graph) to start_ns; null where it began before that, and when the call or its end is not known",
        )
        .optional(),
        Column::new(
            "occupancy_percent",
            F64,
            Dictionary,
            "percent",
            "theoretical occupancy: warps that a multiprocessor holds of this launch at once, of those that it can hold, by registers, shared memory and block; what is achieved may be lower; null when the device's limits are not known, and where the source did not tell what a launch takes",
        )
        .optional(),
        Column::new(
            "occupancy_limiter",
            Text,
            Dictionary,
            NONE,
            "what keeps it from more: blocks (that a multiprocessor holds at most), registers, shared memory or warps, or several of them, separated by a comma and a space; null where all warps are there, and when occupancy_percent is",
        )
        .optional(),
        EXTERNAL,
    ],
};

pub(super) const DEVICE_COPIES: Table = Table {
    id: TableId::DeviceCopies,
    name: "device_copies",
    meaning: "a copy or a set that the GPU made; of Metal a command buffer that holds nothing else",
    columns: &[
        START.means("when it began on the GPU"),
        GPU,
        PROCESS,
        PID,
        DEVICE.means("ordinal of the device in this process"),
        CONTEXT.means("number of the CUDA context, as in launches; 0 when not known"),
        STREAM,
        CAUSE,
        Column::new("kind", Text, Dictionary, NONE, "copy or set"),
        Column::new("direction", Text, Dictionary, NONE, "as in transfers: HtoD, DtoH, DtoD, PtoP, HtoH or unknown"),
        Column::new(
            "src_kind",
            Text,
            Dictionary,
            NONE,
            "memory that was read, as in transfers; null for sets and when not known",
        )
        .optional(),
        Column::new(
            "dst_kind",
            Text,
            Dictionary,
            NONE,
            "memory that was written, as in transfers; null when not known",
        )
        .optional(),
        Column::new("bytes", I64, Plain, BYTES, "bytes copied or set"),
        NODE,
        EXTERNAL,
    ],
};

pub(super) const GPU_WINDOWS: Table = Table {
    id: TableId::GpuWindows,
    name: "gpu_windows",
    meaning: "a stretch of time in which the GPU's work of a process was recorded: what calls that began in it caused is in \
              kernels and device_copies, and between two of them nothing is known of the GPU",
    columns: &[
        START.means("calls that began from then on are recorded"),
        Column::new("window_ns", I64, Delta, NS, "until when they are, from start_ns"),
        PROCESS,
        PID,
        Column::new(
            "kind",
            Text,
            Dictionary,
            NONE,
            "full (the whole run was asked for) or window (one in each period)",
        ),
        Column::new(
            "ended_by",
            Text,
            Dictionary,
            NONE,
            "window (it was over), aside (the program or another tool used CUPTI), graphs (with --gpu-time auto: the program made its \
             first), flush (CUPTI gave nothing out any more), end (of the process); unknown where the process was killed, or runs: then the window ends \
             with what it had told",
        ),
        Column::new(
            "lost",
            I64,
            Dictionary,
            "records",
            "records of its work that were lost, because CUPTI or the ring had no room: then not all that the GPU did in it is known",
        ),
    ],
};

pub(super) const GPU_SAMPLES: Table = Table {
    id: TableId::GpuSamples,
    name: "gpu_samples",
    meaning: "a launch that was timed by two events around it: kernels drawn by chance, each graph, and what NCCL launches",
    columns: &[
        START.means("when it began on the GPU: when the GPU passed the first event, or could have got the launch"),
        Column::new(
            "gpu_ns",
            I64,
            Delta,
            NS,
            "time on the GPU, without what two events take by themselves; of a graph its pauses too",
        ),
        PROCESS,
        PID,
        DEVICE.means("ordinal of the device in this process"),
        CONTEXT,
        STREAM,
        CORRELATION.means("the launch: correlation_id of the same process in launches"),
        Column::new("kind", Text, Dictionary, NONE, "kernel, graph, or collective (launched inside a call of NCCL)"),
        Column::new(
            "name_id",
            I64,
            Dictionary,
            NONE,
            "the kernel's name: names.name_id, kind kernel; null for graphs and when not known",
        )
        .optional(),
        Column::new("grid_x", I32, Dictionary, "blocks", "grid; 0 for graphs"),
        Column::new("grid_y", I32, Dictionary, "blocks", "grid"),
        Column::new("grid_z", I32, Dictionary, "blocks", "grid"),
        Column::new("block_x", I32, Dictionary, "threads", "block; 0 for graphs"),
        Column::new("block_y", I32, Dictionary, "threads", "block"),
        Column::new("block_z", I32, Dictionary, "threads", "block"),
        Column::new(
            "weight",
            I32,
            Dictionary,
            "launches",
            "launches of its kind that it stands for on average: the mean distance of two that are drawn; 1 where each is timed",
        ),
        Column::new("pair_ns", I64, Delta, NS, "time between both events as the GPU took it, nothing subtracted"),
    ],
};
