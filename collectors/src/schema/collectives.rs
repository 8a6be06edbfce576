//! Tables about collective communication: NCCL's calls and its communicators.

use super::columns::*;
use super::{Column, Table, TableId};

const COMMUNICATOR: Column = Column::new(
    "communicator",
    I32,
    Dictionary,
    NONE,
    "number of the communicator in this process (communicators); 0: none, or one that was not seen being made",
);

pub(super) const COLLECTIVES: Table = Table {
    id: TableId::Collectives,
    name: "collectives",
    meaning: "a call of NCCL; calls in a group only queue their work, which ncclGroupEnd does",
    columns: &[
        START,
        API,
        PROCESS,
        PID,
        TID,
        CORRELATION,
        API_ID,
        Column::new(
            "kind",
            Text,
            Dictionary,
            NONE,
            "collective; point_to_point; group: its begin or end; communicator: made, split, ended; memory: taken, registered",
        ),
        COMMUNICATOR,
        Column::new(
            "count",
            I64,
            Dictionary,
            "elements",
            "the call's count argument; bytes where there is no data type",
        ),
        Column::new(
            "data_type",
            Text,
            Dictionary,
            NONE,
            "NCCL's name of the elements' type; null when the call has none",
        )
        .optional(),
        Column::new(
            "bytes",
            I64,
            Dictionary,
            BYTES,
            "count x size of an element; AllGather, ReduceScatter, AlltoAll, Gather and Scatter count the share of one rank",
        ),
        Column::new("op", Text, Dictionary, NONE, "sum, prod, max, min, avg or custom; null when nothing is reduced")
            .optional(),
        Column::new("root", I32, Dictionary, NONE, "rank of the root; null when there is none").optional(),
        Column::new("peer", I32, Dictionary, NONE, "rank of the other end of a point-to-point call; null for others")
            .optional(),
        CONTEXT,
        DEVICE,
        STREAM,
        Column::new("in_group", Bool, Plain, NONE, "the call was made between ncclGroupStart and ncclGroupEnd"),
        CAPTURED,
        PENDING,
        LEGACY,
        Column::new(
            "result",
            I32,
            Dictionary,
            NONE,
            "NCCL's result code (ncclResult_t); 0 is success, 7 that it goes on in the background",
        ),
        STACK,
        EXTERNAL,
    ],
};

pub(super) const COMMUNICATORS: Table = Table {
    id: TableId::Communicators,
    name: "communicators",
    meaning: "an NCCL communicator, when it was made",
    columns: &[
        START,
        PROCESS,
        PID,
        TID,
        COMMUNICATOR.means("its number in this process"),
        Column::new(
            "unique_id",
            I64,
            Plain,
            NONE,
            "hash of the unique id: the same on all ranks, also of what ncclCommSplit and Shrink made; null when not known",
        )
        .optional(),
        Column::new("rank", I32, Plain, NONE, "this process's rank in it; null when NCCL could not be asked").optional(),
        Column::new("ranks", I32, Plain, NONE, "how many ranks it has; null when NCCL could not be asked").optional(),
        Column::new("parent", I32, Plain, NONE, "number of the communicator that it was split from; null when it was not")
            .optional(),
        DEVICE.means("ordinal of its device in this process; null when it is not known"),
        API_ID.means("function that made it: names.name_id, kind api"),
        Column::new("handle", I64, Plain, NONE, "bits of the ncclComm_t handle"),
        Column::new("library", Text, Dictionary, NONE, "path of the copy of NCCL; empty when it is not known"),
        Column::new("version", I32, Dictionary, NONE, "its version as ncclGetVersion gives it; 0 when not known"),
    ],
};
