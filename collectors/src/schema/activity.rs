//! The table of what CUPTI tells beside the GPU's work.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const GPU_ACTIVITY: Table = Table {
    id: TableId::GpuActivity,
    name: "gpu_activity",
    meaning: "what CUPTI told beside the GPU's work, of the kinds that were asked for (--gpu-activity): its own overhead, waits, \
              and pages of managed memory that moved. Rows may be out of order by as much as CUPTI delivered them late",
    columns: &[
        START.means("when it began"),
        Column::new("activity_ns", I64, Delta, NS, "how long it took; null for what is a moment").optional(),
        PROCESS,
        PID,
        Column::new("kind", Text, Dictionary, NONE, "overhead, sync or unified_memory; unknown for others"),
        Column::new(
            "what",
            Text,
            Dictionary,
            NONE,
            "of overhead: compiler, buffer_flush, buffer_request, instrumentation and resource (CUPTI's own), module_loading, \
             lazy_loading, queue_full (a launch waited for room), memory_init (CUPTI began to follow managed memory); of sync: event, \
             stream, context, or stream_wait_event (a stream was made to wait); of unified_memory: HtoD, DtoH, DtoD (pages moved), \
             cpu_fault, gpu_fault, thrashing, throttling, remote_map; unknown where CUPTI said something else",
        ),
        Column::new(
            "cause",
            Text,
            Dictionary,
            NONE,
            "why pages moved: user (the program asked), fault, prefetch (the driver guessed), eviction or access_counters; what a fault \
             of the GPU wanted: read, write, atomic or prefetch_instruction; null for all else",
        )
        .optional(),
        Column::new(
            "device",
            I32,
            Dictionary,
            NONE,
            "ordinal of the device; of pages that moved the one that got them, to the host the one that had them; null where the record has none",
        )
        .optional(),
        Column::new("context", I64, Dictionary, NONE, "CUPTI's number of the context; null where the record has none")
            .optional(),
        Column::new(
            "stream",
            I64,
            Dictionary,
            NONE,
            "CUPTI's number of the stream in its context, no handle; null where the record has none",
        )
        .optional(),
        Column::new(
            "thread",
            I64,
            Dictionary,
            NONE,
            "CUPTI's number of the thread, the lower 32 bits of what pthread_self gives it; null where the record has none",
        )
        .optional(),
        Column::new(
            "bytes",
            I64,
            Plain,
            BYTES,
            "bytes that moved, were mapped or fought for; null for all else",
        )
        .optional(),
        Column::new("faults", I64, Dictionary, NONE, "faults that it stands for, of the GPU groups of them; null for all else")
            .optional(),
        Column::new("address", I64, Plain, NONE, "where in managed memory; null for all else").optional(),
    ],
};
