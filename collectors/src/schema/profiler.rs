//! The table of what other profilers tell and no other table has room for: it is filled by imports alone, and no analysis reads it.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const PROFILER_EVENTS: Table = Table {
    id: TableId::ProfilerEvents,
    name: "profiler_events",
    meaning: "an event of an imported profile (Kineto) that is no call, no work of the GPU and no range of the host: it is kept so that \
              an export gives it back",
    columns: &[
        START.means("when it began"),
        Column::new("event_ns", I64, Delta, NS, "how long it took"),
        PROCESS,
        PID,
        TID.means("thread whose function it was; null for what is told of a GPU").optional(),
        Column::new(
            "kind",
            Text,
            Dictionary,
            NONE,
            "function (of Python: python_function), annotation (from the first to the last kernel that was launched in a range, on one \
             stream: gpu_user_annotation) or sync (a wait as CUPTI saw it: cuda_sync)",
        ),
        Column::new(
            "name_id",
            I64,
            Dictionary,
            NONE,
            "what it is called: names.name_id, kind range; null when it has no name",
        )
        .optional(),
        DEVICE.means("ordinal of the device; null for functions, and where it is not told"),
        CONTEXT.means("number of the CUDA context; 0 for functions, and where it is not told"),
        STREAM
            .means("the stream, as the profiler numbers them; -1 for functions, and for waits for all streams")
            .optional(),
        CORRELATION.means("the call that waited, as the profiler numbers them; null for all else").optional(),
        Column::new(
            "waits_for_stream",
            I64,
            Dictionary,
            NONE,
            "of a sync the stream that was waited for (-1: all); null for all else",
        )
        .optional(),
        Column::new(
            "event",
            I64,
            Dictionary,
            NONE,
            "of a sync number of the event that was waited for; null for all else",
        )
        .optional(),
        Column::new(
            "event_call",
            I64,
            Delta,
            NONE,
            "of a sync the call that recorded that event, as correlation_id; null for all else",
        )
        .optional(),
        Column::new("function", I32, Plain, NONE, "number of the function's call (Python id); null for all else")
            .optional(),
        Column::new(
            "caller",
            I32,
            Plain,
            NONE,
            "number of the call that it was made in (Python parent id); null for all else",
        )
        .optional(),
        Column::new("module", I32, Dictionary, NONE, "number of the nn.Module (Python module id); null for all else")
            .optional(),
        EXTERNAL,
    ],
};
