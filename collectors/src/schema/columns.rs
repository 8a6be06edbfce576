//! Columns that several tables have, and the words to describe columns with.

use super::Column;
pub(super) use super::Encoding::{Delta, Dictionary, Plain};
pub(super) use super::Type::{Bool, F64, I32, I64, Text};

pub(super) const EPOCH: &str = "ns since 1970-01-01 UTC";
pub(super) const NS: &str = "ns";
pub(super) const BYTES: &str = "bytes";
pub(super) const NONE: &str = "";

pub(super) const START: Column = Column::new("start_ns", I64, Delta, EPOCH, "when the call began");
pub(super) const API: Column = Column::new("api_ns", I64, Delta, NS, "time inside the original function");
pub(super) const PROCESS: Column = Column::new(
    "process_id",
    I64,
    Dictionary,
    NONE,
    "process image: unique for each exec and fork over all hosts, unlike the pid, which is reused",
);
pub(super) const PID: Column =
    Column::new("pid", I32, Dictionary, NONE, "process id as the collector's pid namespace has it");
pub(super) const TID: Column = Column::new("tid", I32, Dictionary, NONE, "thread id as the process itself sees it");
pub(super) const CORRELATION: Column = Column::new(
    "correlation_id",
    I64,
    Delta,
    NONE,
    "number of the call, unique in the process: use of a thread row << 44, row << 32, number of the call in it",
);
pub(super) const API_ID: Column =
    Column::new("api_id", I64, Dictionary, NONE, "function that was called: names.name_id, kind api");
pub(super) const CONTEXT: Column = Column::new(
    "context",
    I32,
    Dictionary,
    NONE,
    "number of the current CUDA context, or of the Metal device, in this process; 0 when there was none or it was not seen",
);
pub(super) const DEVICE: Column = Column::new(
    "device",
    I32,
    Dictionary,
    NONE,
    "ordinal of the context's device in this process; null when the context is not known",
)
.optional();
pub(super) const STREAM: Column = Column::new(
    "stream",
    I64,
    Dictionary,
    NONE,
    "bits of the stream handle (0 default, 1 legacy, 2 per thread), or of the command queue; means nothing without the context",
);
/// The last column of its tables: rows of what is recorded do not name it.
pub(super) const EXTERNAL: Column = Column::new(
    super::IMPORTED_ONLY,
    I64,
    Delta,
    NONE,
    "number by which another profiler says what belongs to which operator (Kineto's External id); null in what was recorded, and where it said none",
)
.optional();
pub(super) const CAPTURED: Column = Column::new(
    "captured",
    Bool,
    Plain,
    NONE,
    "the stream was being captured into a graph: the call queued no work of its own",
);
pub(super) const STACK: Column = Column::new(
    "stack_id",
    I64,
    Dictionary,
    NONE,
    "who made the call: stacks.stack_id; null for calls of which no stack was taken",
)
.optional();
pub(super) const PENDING: Column = Column::new(
    "pending_streams",
    I32,
    Dictionary,
    NONE,
    "streams with work that nobody was seen to wait for, and that the call has to wait for: of its context for allocations, frees, modules; its own and others, by the rule of the legacy stream or because its own was made to wait for their events; for a stream that is made to wait, those; for queued work only others by the legacy stream's rule; 0 for calls that wait for nothing",
);
pub(super) const LEGACY: Column = Column::new(
    "legacy",
    Bool,
    Plain,
    NONE,
    "other streams than its own are among pending_streams because the legacy stream and those that are not CU_STREAM_NON_BLOCKING wait for each other",
);
pub(super) const RESULT: Column = Column::new(
    "result",
    I32,
    Dictionary,
    NONE,
    "the driver's result code (CUresult); 0 is success, and of Metal's 1 that it gave nothing",
);
