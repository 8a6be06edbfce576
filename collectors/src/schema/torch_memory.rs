//! What PyTorch's caching allocator did and held: from a memory snapshot of its own, not from recorded calls.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const TORCH_MEMORY: Table = Table {
    id: TableId::TorchMemory,
    name: "torch_memory",
    meaning: "an action of PyTorch's caching allocator, or a segment or block that it held when its snapshot was taken",
    columns: &[
        START.means("when it was; of segments and blocks when the snapshot was taken"),
        PROCESS,
        PID.means("process id; 0 where the snapshot does not say it"),
        DEVICE.means("ordinal of the device in its process"),
        Column::new("stream", I64, Dictionary, NONE, "bits of the stream handle that the memory belongs to"),
        Column::new(
            "action",
            Text,
            Dictionary,
            NONE,
            "alloc; free_requested: the tensor let go; free_completed: no stream uses it any more; segment_alloc, segment_free, segment_map, segment_unmap: memory taken from and given back to the driver; oom: an allocation failed; snapshot: one was taken. What was held: segment: memory of the driver; active, pending_free, inactive: blocks of it that a tensor has, that a stream still uses, that are free",
        ),
        Column::new("address", I64, Delta, NONE, "address of the block or segment; 0 for oom and snapshot"),
        Column::new(
            "segment",
            I64,
            Dictionary,
            NONE,
            "address of the segment that a held block lies in; null for others",
        )
        .optional(),
        Column::new(
            "bytes",
            I64,
            Dictionary,
            BYTES,
            "size: of actions as it was asked for, of what was held with what the allocator rounds up",
        ),
        Column::new("requested_bytes", I64, Dictionary, BYTES, "of held blocks what was asked for; null for others")
            .optional(),
        Column::new("free_bytes", I64, Plain, BYTES, "of oom what the device had left; null for others").optional(),
        STACK.means("whose line took the memory, or let it go: stacks.stack_id; null where the snapshot has no frames"),
    ],
};
