//! Tables of Metal: command buffers that were committed, and the dispatches in them.

use super::columns::*;
use super::{Column, Table, TableId};

const OF_COMMIT: Column = CORRELATION.means("number of its commit: correlation_id of the same process in launches");

const fn count(name: &'static str, unit: &'static str, meaning: &'static str) -> Column {
    Column::new(name, I32, Dictionary, unit, meaning)
}

pub(super) const COMMAND_BUFFERS: Table = Table {
    id: TableId::CommandBuffers,
    name: "command_buffers",
    meaning: "a Metal command buffer that was committed; written when it completed, or when no more is to be learned of it",
    columns: &[
        START.means("when its commit began"),
        PROCESS,
        PID,
        OF_COMMIT,
        DEVICE.means("ordinal of its device in this process; null when not known"),
        Column::new("queue", I64, Dictionary, NONE, "bits of its queue: launches.stream"),
        Column::new("queue_name_id", I64, Dictionary, NONE, "label of its queue: names.name_id, kind kernel; null for none")
            .optional(),
        Column::new(
            "name_id",
            I64,
            Dictionary,
            NONE,
            "its label, else its encoders' labels, else its pipelines, as in launches: names.name_id, kind kernel; null when it has none of them",
        )
        .optional(),
        Column::new("labelled", Bool, Plain, NONE, "name_id is the label that the program gave it"),
        count(
            "command_buffers",
            "command buffers",
            "1; in Metal 4 those that were committed together, which may be none",
        ),
        count("dispatches", "dispatches", "dispatches in it, those of indirect command buffers too"),
        count("compute_encoders", "encoders", "encoders of dispatches"),
        count("blit_encoders", "encoders", "encoders of copies and fills"),
        count("render_encoders", "encoders", "encoders of draws"),
        count("other_encoders", "encoders", "encoders of acceleration structures and the like"),
        Column::new("encode_ns", I64, Delta, NS, "time inside the messages that encoded it, over all threads"),
        Column::new("schedule_ns", I64, Delta, NS, "time that its scheduling took on the host; null when not known")
            .optional(),
        Column::new("gpu_start_ns", I64, Delta, EPOCH, "when the GPU began it, on the host's clock (gpu_clocks of the manifest says how far it may be off); null when not known").optional(),
        Column::new("gpu_ns", I64, Delta, NS, "time on the GPU; null when not known").optional(),
        Column::new(
            "status",
            Text,
            Dictionary,
            NONE,
            "completed, or error when the GPU gave it up; null when it was not seen to end",
        )
        .optional(),
    ],
};

pub(super) const DISPATCHES: Table = Table {
    id: TableId::Dispatches,
    name: "dispatches",
    meaning: "a message that put kernels into a Metal command buffer; written when that was committed",
    columns: &[
        START.means("when the message began"),
        API.means("time inside the original method"),
        PROCESS,
        PID,
        TID,
        OF_COMMIT
            .means(
                "the commit of its command buffer: correlation_id of the same process in launches; null when none was seen",
            )
            .optional(),
        API_ID.means("method that was called: names.name_id, kind api"),
        DEVICE.means("ordinal of its device in this process; null when not known"),
        Column::new(
            "name_id",
            I64,
            Dictionary,
            NONE,
            "its pipeline: names.name_id, kind kernel; null when that was not seen made",
        )
        .optional(),
        Column::new("encoder_id", I64, Dictionary, NONE, "label of its encoder: names.name_id, kind kernel; null for none")
            .optional(),
        Column::new(
            "kind",
            Text,
            Dictionary,
            NONE,
            "threads or groups: what size counts; indirect: the GPU reads it in a buffer; commands: of an indirect command buffer",
        ),
        count("size_x", NONE, "threads, groups or commands; 0 for indirect ones; at most 2,147,483,647, which may stand for more"),
        count("size_y", NONE, "the same; at most 65,535, which may stand for more"),
        count("size_z", NONE, "the same; at most 65,535, which may stand for more"),
        count("group_x", "threads", "threads of a group; 0 for commands; at most 2,047, which may stand for more"),
        count("group_y", "threads", "threads of a group; at most 2,047, which may stand for more"),
        count("group_z", "threads", "threads of a group; at most 1,023, which may stand for more"),
        Column::new("threads", I64, Dictionary, "threads", "threads in all; null where the GPU decides, or one of the sizes may stand for more").optional(),
        Column::new("discarded", Bool, Plain, NONE, "its command buffer went without a commit, as far as was seen: the GPU was not given it"),
    ],
};
