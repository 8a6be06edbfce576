//! Sums of all events of a period, whether these stand in the trace one by one or not.

use super::columns::*;
use super::{Column, Table, TableId};

const PERIOD: Column = Column::new("period_ns", I64, Dictionary, NS, "how long the period is");
const CLASS: Column = Column::new(
    "class",
    Text,
    Dictionary,
    NONE,
    "class of the events, as the manifest's accounts name it; kernel and device_copy for what a GPU did",
);
const FUNCTION: Column = Column::new(
    "api_id",
    I64,
    Dictionary,
    NONE,
    "function that was called: names.name_id, kind api; null for ranges and for what a GPU did, for events that were only counted, and where a period has more keys than are kept apart",
)
.optional();
const ANY_STREAM: Column =
    STREAM.means("bits of the stream handle, as in launches; null where there is none, as with api_id").optional();
const EVENTS: Column = Column::new(
    "events",
    I64,
    Dictionary,
    NONE,
    "events that began in the period, counted as the manifest's accounts do (a range that ends is two), with those that no row of its own stands for: sampled out, only counted, dropped",
);
const ERRORS: Column = Column::new(
    "errors",
    I64,
    Dictionary,
    NONE,
    "calls of CUDA or NCCL among them that failed: another result than 0, CUDA_ERROR_NOT_READY (600) or, of NCCL, ncclInProgress (7)",
);
const TIMED: Column =
    Column::new("timed", I64, Dictionary, NONE, "how many have a duration: those that the next columns are about");
const TOTAL: Column = Column::new(
    "total_ns",
    I64,
    Delta,
    NS,
    "sum of their durations: inside the original function, waits whole, of ranges and on a GPU from begin to end; it may exceed the period",
);
const LEAST: Column = Column::new("min_ns", I64, Delta, NS, "the shortest; null where none has one").optional();
const MOST: Column = Column::new("max_ns", I64, Delta, NS, "the longest; null where none has one").optional();
const SUM_OF_BYTES: Column = Column::new(
    "bytes",
    I64,
    Delta,
    BYTES,
    "bytes copied, set, allocated, freed or sent by calls that did not fail; of sampled mallocs what they stand for",
);
const DURATIONS: Column = Column::new(
    "durations",
    Text,
    Plain,
    NONE,
    "histogram, as BUCKET:COUNT separated by spaces: bucket b holds durations from 2^(b div 4 + 1) * (1 + b mod 4 / 4) ns to where b + 1 begins; 0 to 3 hold 0 to 3 ns",
);

pub(super) const ROLLUPS: Table = Table {
    id: TableId::Rollups,
    name: "rollups",
    meaning: "all events of a process that began in a short period, by function and stream; a period may have several rows of the same kind: their sums are what counts",
    columns: &[
        START.means("when the period begins: a multiple of its length"),
        PERIOD,
        PROCESS,
        PID,
        CLASS,
        FUNCTION,
        CONTEXT,
        DEVICE,
        ANY_STREAM,
        EVENTS,
        ERRORS,
        TIMED,
        TOTAL,
        LEAST,
        MOST,
        SUM_OF_BYTES,
        DURATIONS,
    ],
};

pub(super) const ROLLUP_NAMES: Table = Table {
    id: TableId::RollupNames,
    name: "rollup_names",
    meaning: "the same events in periods sixty times as long, by what they are about as well: kernel or range, and line",
    columns: &[
        START.means("when the period begins: a multiple of its length"),
        PERIOD,
        PROCESS,
        PID,
        CLASS,
        FUNCTION,
        Column::new("name_id", I64, Dictionary, NONE, "kernel or range: names.name_id; null for others").optional(),
        STACK.means("who made the calls: stacks.stack_id; null for those of which no stack was taken, and for launches, of which few have one"),
        CONTEXT,
        DEVICE,
        ANY_STREAM,
        EVENTS,
        ERRORS,
        TIMED,
        TOTAL,
        LEAST,
        MOST,
        SUM_OF_BYTES,
        DURATIONS,
    ],
};
