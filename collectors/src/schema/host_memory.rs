//! Calls of the allocator, and of the kernel for memory.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const HOST_MEMORY: Table = Table {
    id: TableId::HostMemory,
    name: "host_memory",
    meaning: "a call of malloc's or free's family: every one, or a sample by bytes (processes.malloc_mode); with --mmap of mmap's family, too",
    columns: &[
        START,
        // Calls of malloc take few different times.
        Column::new(
            "api_ns",
            I64,
            Dictionary,
            NS,
            "time inside the allocator; null where only one clock read was made, for an allocation when it ended: start_ns is that; for culled the mean of those that have it",
        )
        .optional(),
        PROCESS,
        PID,
        TID,
        API_ID,
        Column::new(
            "action",
            Text,
            Dictionary,
            NONE,
            "alloc or free (a realloc is both); map: memory from the kernel, reserve: addresses without memory (PROT_NONE), unmap: the end of either (--mmap); culled: allocations that were freed again within --cull, summed by thread, stack, function and power of two of the size over about a second, at the end of which the row stands",
        ),
        Column::new("address", I64, Delta, NONE, "address of the block or region; 0 for culled"),
        Column::new(
            "bytes",
            I64,
            Dictionary,
            BYTES,
            "bytes asked for; for a free those of the block, or 0; for an unmap those of the piece of a known region; for culled the mean of a block, rounded",
        ),
        Column::new(
            "weight_bytes",
            F64,
            Dictionary,
            BYTES,
            "bytes of allocation that this row stands for: bytes / (1 - exp(-bytes / mean)) when sampled, else bytes; the mean distance of samples is longer while --budget makes them rarer; for culled the bytes of all; for reserve, and an unmap of it or of nothing known, 0",
        ),
        STACK.means("who allocated: stacks.stack_id; for free and unmap that of the block's allocation; null where no stack was taken"),
        Column::new(
            "age_ns",
            I64,
            Delta,
            NS,
            "free, unmap: how long the block lived; culled: the mean; null for others, and where that is not known",
        )
        .optional(),
        Column::new("calls", I64, Dictionary, NONE, "calls that the row sums: 1; of culled as many as there were; 0 for further pieces of one unmap, and for what a map took the place of"),
    ],
};
