//! Ranges that a program names.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const RANGES: Table = Table {
    id: TableId::Ranges,
    name: "ranges",
    meaning: "a range or a moment that the program or a library named with NVTX; rows stand in the order of their ends",
    columns: &[
        START.means("when it began"),
        Column::new(
            "end_ns",
            I64,
            Delta,
            EPOCH,
            "when it ended; start_ns for a mark; null when it was open at the end of its thread or process, or its end was lost",
        )
        .optional(),
        PROCESS,
        PID,
        TID.means("thread that began it, as the process itself sees it"),
        CORRELATION.means("number of the range, unique in the process among these and driver calls"),
        Column::new("kind", Text, Dictionary, NONE, "push_pop (nested in its thread), start_end (may end in another thread) or mark"),
        Column::new(
            "name_id",
            I64,
            Dictionary,
            NONE,
            "what it is called: names.name_id, kind range; null when it has no name or the name was lost",
        )
        .optional(),
        Column::new("domain_id", I64, Dictionary, NONE, "its domain: names.name_id, kind domain; null for the default domain")
            .optional(),
        Column::new("level", I32, Dictionary, NONE, "open push_pop ranges around it, of its thread and domain; null for others")
            .optional(),
        Column::new("category", I32, Dictionary, NONE, "number of its category in its domain (unsigned); null for none").optional(),
        Column::new("category_id", I64, Dictionary, NONE, "that category's name: names.name_id, kind category; null where this process had named none when the row was written")
            .optional(),
        Column::new("color", I64, Dictionary, NONE, "colour: alpha << 24, red << 16, green << 8, blue; null for none").optional(),
        Column::new("payload_int", I64, Plain, NONE, "its number, where that is an integer (above 2^63 it is negative); else null")
            .optional(),
        Column::new("payload_float", F64, Plain, NONE, "its number, where that is a floating point one; else null").optional(),
        EXTERNAL,
    ],
};
