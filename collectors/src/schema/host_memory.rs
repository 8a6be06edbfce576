//! Calls of the allocator.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const HOST_MEMORY: Table = Table {
    id: TableId::HostMemory,
    name: "host_memory",
    meaning: "a call of malloc's or free's family: every one, or a sample by bytes (processes.malloc_mode)",
    columns: &[
        START,
        // Calls of malloc take few different times.
        Column::new(
            "api_ns",
            I64,
            Dictionary,
            NS,
            "time inside the allocator; null where only one clock read was made",
        )
        .optional(),
        PROCESS,
        PID,
        TID,
        API_ID,
        Column::new("action", Text, Dictionary, NONE, "alloc or free; a realloc is a free and an alloc"),
        Column::new("address", I64, Delta, NONE, "address of the block"),
        Column::new("bytes", I64, Dictionary, BYTES, "bytes asked for; for a free those of the block, or 0"),
        Column::new(
            "weight_bytes",
            F64,
            Dictionary,
            BYTES,
            "bytes of allocation that this row stands for: bytes / (1 - exp(-bytes / mean)) when sampled, else bytes; the mean distance of samples is longer while --budget makes them rarer",
        ),
    ],
};
