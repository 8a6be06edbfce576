//! The columns of what the GPU did that formats of timelines and tables have; what one of them has beyond these it reads besides.

use gputrace_collectors::schema::TableId;

use crate::trace::Want;

/// Of kernels.
pub(super) const KERNELS: Want = Want {
    table: TableId::Kernels,
    columns: &[
        "gpu_ns",
        "device",
        "context",
        "stream",
        "correlation_id",
        "graph_node",
        "name_id",
        "grid_x",
        "grid_y",
        "grid_z",
        "block_x",
        "block_y",
        "block_z",
        "registers",
        "shared_bytes",
        "static_shared_bytes",
    ],
};
/// Of copies and sets.
pub(super) const COPIES: Want = Want {
    table: TableId::DeviceCopies,
    columns: &[
        "gpu_ns",
        "device",
        "context",
        "stream",
        "correlation_id",
        "graph_node",
        "kind",
        "direction",
        "src_kind",
        "dst_kind",
        "bytes",
    ],
};
