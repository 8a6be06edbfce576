//! Every table and column of a trace: name, type, unit, meaning, encoding. Nothing else in the project describes them.
//!
//! `gputrace schema` prints this list; the collector builds its columns and its Parquet settings from it; readers find
//! columns by name. A table is one folder of Parquet files. Rows of one thread stand in the order of their time; rows
//! of different threads may be out of order by as much as the collector lagged behind.
//!
//! **Rule for [`SCHEMA_VERSION`].** It is bumped when a column goes away or changes its type, unit or meaning. A new
//! column or table needs no bump: readers ask by name and take a missing column as null.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::basic::Encoding as ParquetEncoding;

/// Version of the tables below, written into every manifest and file.
pub const SCHEMA_VERSION: u32 = 1;

/// Type of a column, in Arrow and in Parquet. Dictionary arrays are absent on purpose: a distributed engine failed on
/// GROUP BY over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 64-bit floating point number.
    F64,
    /// True or false.
    Bool,
    /// UTF-8 text.
    Text,
}

impl Type {
    /// Arrow's name of the type.
    pub fn arrow(self) -> DataType {
        match self {
            Type::I64 => DataType::Int64,
            Type::I32 => DataType::Int32,
            Type::F64 => DataType::Float64,
            Type::Bool => DataType::Boolean,
            Type::Text => DataType::Utf8,
        }
    }

    /// The name that `gputrace schema` prints.
    pub fn name(self) -> &'static str {
        match self {
            Type::I64 => "int64",
            Type::I32 => "int32",
            Type::F64 => "float64",
            Type::Bool => "bool",
            Type::Text => "utf8",
        }
    }
}

/// How a column's values are written in Parquet, before zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// DELTA_BINARY_PACKED: values that grow.
    Delta,
    /// BYTE_STREAM_SPLIT: durations, whose high bytes are alike.
    Split,
    /// RLE_DICTIONARY: few distinct values, or long runs.
    Dictionary,
    /// PLAIN: everything else.
    Plain,
}

impl Encoding {
    /// Parquet's name, for columns that are not dictionary encoded.
    pub fn parquet(self) -> ParquetEncoding {
        match self {
            Encoding::Delta => ParquetEncoding::DELTA_BINARY_PACKED,
            Encoding::Split => ParquetEncoding::BYTE_STREAM_SPLIT,
            Encoding::Dictionary => ParquetEncoding::RLE_DICTIONARY,
            Encoding::Plain => ParquetEncoding::PLAIN,
        }
    }
}

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name, with the unit last.
    pub name: &'static str,
    /// Type.
    pub kind: Type,
    /// Whether values may be missing.
    pub nullable: bool,
    /// Unit of the values; empty for names, numbers of things and flags.
    pub unit: &'static str,
    /// What a value means, and what a missing one means.
    pub meaning: &'static str,
    /// Encoding in Parquet.
    pub encoding: Encoding,
}

impl Column {
    const fn new(
        name: &'static str,
        kind: Type,
        encoding: Encoding,
        unit: &'static str,
        meaning: &'static str,
    ) -> Self {
        Column { name, kind, nullable: false, unit, meaning, encoding }
    }

    const fn optional(mut self) -> Self {
        self.nullable = true;
        self
    }

    const fn means(mut self, meaning: &'static str) -> Self {
        self.meaning = meaning;
        self
    }
}

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Which one.
    pub id: TableId,
    /// Name of its folder.
    pub name: &'static str,
    /// What a row is.
    pub meaning: &'static str,
    /// Columns in the order of the file.
    pub columns: &'static [Column],
}

/// Number of a table: its place in [`TABLES`], and its number in the journal.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableId {
    /// Process images.
    Processes = 0,
    /// Threads.
    Threads = 1,
    /// Work given to a GPU.
    Launches = 2,
    /// Waits and questions.
    Syncs = 3,
    /// Copies and sets.
    Transfers = 4,
    /// Memory of the driver, taken and given back.
    DeviceMemory = 5,
    /// malloc and free.
    HostMemory = 6,
    /// All other driver calls.
    Api = 7,
    /// Names behind `name_id` and `api_id`.
    Names = 8,
}

impl TableId {
    /// Description of the table.
    pub fn table(self) -> &'static Table {
        &TABLES[self as usize]
    }

    /// The table with this number, if there is one.
    pub fn from_u8(n: u8) -> Option<TableId> {
        TABLES.get(usize::from(n)).map(|t| t.id)
    }
}

impl Table {
    /// The table with this name, if there is one.
    pub fn named(name: &str) -> Option<&'static Table> {
        TABLES.iter().find(|t| t.name == name)
    }

    /// Position of a column.
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == column)
    }

    /// The Arrow schema, with the schema version and each column's unit as metadata.
    pub fn arrow(&self) -> SchemaRef {
        let field = |c: &Column| {
            let field = Field::new(c.name, c.kind.arrow(), c.nullable);
            if c.unit.is_empty() { field } else { field.with_metadata([("unit".into(), c.unit.into())].into()) }
        };
        let fields: Vec<Field> = self.columns.iter().map(field).collect();
        let metadata = [("gputrace.schema_version".to_owned(), SCHEMA_VERSION.to_string())];
        Arc::new(Schema::new_with_metadata(fields, metadata.into()))
    }
}

use Encoding::{Delta, Dictionary, Plain, Split};
use Type::{Bool, F64, I32, I64, Text};

const EPOCH: &str = "ns since 1970-01-01 UTC";
const NS: &str = "ns";
const BYTES: &str = "bytes";
const NONE: &str = "";

const START: Column = Column::new("start_ns", I64, Delta, EPOCH, "when the call began");
const API: Column = Column::new("api_ns", I64, Split, NS, "time inside the original function");
const PROCESS: Column = Column::new(
    "process_id",
    I64,
    Dictionary,
    NONE,
    "process image: unique for each exec and fork over all hosts, unlike the pid, which is reused",
);
const PID: Column = Column::new("pid", I32, Dictionary, NONE, "process id as the collector's pid namespace has it");
const TID: Column = Column::new("tid", I32, Dictionary, NONE, "thread id as the process itself sees it");
const CORRELATION: Column = Column::new(
    "correlation_id",
    I64,
    Delta,
    NONE,
    "number of the call, unique in the process: use of a thread row << 44, row << 32, number of the call in it",
);
const API_ID: Column =
    Column::new("api_id", I64, Dictionary, NONE, "function that was called: names.name_id, kind api");
const CONTEXT: Column = Column::new(
    "context",
    I32,
    Dictionary,
    NONE,
    "number of the current CUDA context in this process; 0 when there was none or it was not seen",
);
const DEVICE: Column = Column::new(
    "device",
    I32,
    Dictionary,
    NONE,
    "ordinal of the context's device in this process; null when the context is not known",
)
.optional();
const STREAM: Column = Column::new(
    "stream",
    I64,
    Dictionary,
    NONE,
    "bits of the stream handle (0 default, 1 legacy, 2 per thread); means nothing without the context",
);
const CAPTURED: Column = Column::new(
    "captured",
    Bool,
    Plain,
    NONE,
    "the stream was being captured into a graph: the call queued no work of its own",
);
const RESULT: Column =
    Column::new("result", I32, Dictionary, NONE, "the driver's result code (CUresult); 0 is success");

/// Every table, in the order of [`TableId`].
pub const TABLES: [Table; 9] = [
    Table {
        id: TableId::Processes,
        name: "processes",
        meaning: "a process image: from fork or exec to exit or the next exec",
        columns: &[
            PROCESS,
            PID,
            Column::new("parent_pid", I32, Plain, NONE, "process id of the parent at the start; 0 when not known"),
            Column::new("host", Text, Dictionary, NONE, "host on which it ran"),
            Column::new(
                "rank",
                I32,
                Plain,
                NONE,
                "rank in a distributed run (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID); null when none is set",
            )
            .optional(),
            Column::new(
                "local_rank",
                I32,
                Plain,
                NONE,
                "rank among the processes of its host (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID)",
            )
            .optional(),
            Column::new("exe", Text, Dictionary, NONE, "path of the executable; empty when it could not be read"),
            Column::new("command", Text, Dictionary, NONE, "arguments, quoted as for a shell"),
            Column::new("origin", Text, Dictionary, NONE, "exec, or fork: a copy of its parent that has not called exec"),
            START.means("when tracing of this image began"),
            Column::new("end_ns", I64, Plain, EPOCH, "when it ended; null when it was still running at the end of the trace")
                .optional(),
            Column::new("exit_code", I32, Plain, NONE, "exit code; null when it is not known or a signal ended it").optional(),
            Column::new("exit_signal", I32, Plain, NONE, "signal that ended it; null when none did or it is not known")
                .optional(),
            Column::new("traced", Bool, Plain, NONE, "whether its events are in the trace"),
            Column::new("reason", Text, Dictionary, NONE, "why it was not traced").optional(),
            Column::new("events", I64, Plain, NONE, "events recorded"),
            Column::new("malloc_mode", Text, Dictionary, NONE, "off, sample:BYTES or full"),
            Column::new(
                "event_cost_ns",
                F64,
                Plain,
                NS,
                "time that recording one driver event takes in this process, measured at its start; null when not measured",
            )
            .optional(),
        ],
    },
    Table {
        id: TableId::Threads,
        name: "threads",
        meaning: "a thread that recorded or called something hooked",
        columns: &[
            PROCESS,
            PID,
            TID,
            Column::new("name", Text, Dictionary, NONE, "the thread's own name; null when it was not seen").optional(),
            START.means("when the thread first called something hooked"),
            Column::new("end_ns", I64, Plain, EPOCH, "when it ended; null when it was running to the end of its process")
                .optional(),
            Column::new("events", I64, Plain, NONE, "events recorded"),
        ],
    },
    Table {
        id: TableId::Launches,
        name: "launches",
        meaning: "a call that gives the GPU work: a kernel, a graph, a host function",
        columns: &[
            START,
            API,
            PROCESS,
            PID,
            TID,
            CORRELATION,
            API_ID,
            Column::new(
                "name_id",
                I64,
                Dictionary,
                NONE,
                "kernel: names.name_id, kind kernel; null for graphs, host functions and functions whose loading was not seen",
            )
            .optional(),
            CONTEXT,
            DEVICE,
            STREAM,
            Column::new("function", I64, Dictionary, NONE, "bits of the CUfunction, CUkernel or CUgraphExec handle"),
            Column::new("grid_x", I32, Dictionary, "blocks", "grid; 0 for graphs and host functions"),
            Column::new("grid_y", I32, Dictionary, "blocks", "grid"),
            Column::new("grid_z", I32, Dictionary, "blocks", "grid"),
            Column::new("block_x", I32, Dictionary, "threads", "block"),
            Column::new("block_y", I32, Dictionary, "threads", "block"),
            Column::new("block_z", I32, Dictionary, "threads", "block"),
            Column::new("shared_bytes", I32, Dictionary, BYTES, "dynamic shared memory of a block"),
            CAPTURED,
            RESULT,
        ],
    },
    Table {
        id: TableId::Syncs,
        name: "syncs",
        meaning: "a call that waits, asks whether it would have to wait, or makes a stream wait",
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
                "context, stream, event: the host waits for it; query: asks only; stream_wait: a stream waits, not the host",
            ),
            CONTEXT,
            DEVICE,
            STREAM,
            Column::new("handle", I64, Dictionary, NONE, "bits of the event or context handle; 0 for streams"),
            CAPTURED,
            RESULT,
        ],
    },
    Table {
        id: TableId::Transfers,
        name: "transfers",
        meaning: "a copy or a set of memory",
        columns: &[
            START,
            API,
            PROCESS,
            PID,
            TID,
            CORRELATION,
            API_ID,
            Column::new("kind", Text, Dictionary, NONE, "copy or set"),
            Column::new(
                "direction",
                Text,
                Dictionary,
                NONE,
                "HtoD, DtoH, DtoD, HtoH; PtoP between devices; A for an array (HtoA, AtoD ...); managed memory counts as D; unknown",
            ),
            Column::new(
                "src_kind",
                Text,
                Dictionary,
                NONE,
                "memory of the source: pageable, pinned, device, managed, array or unknown; null for sets",
            )
            .optional(),
            Column::new("dst_kind", Text, Dictionary, NONE, "memory of the destination, named as src_kind").optional(),
            Column::new("bytes", I64, Dictionary, BYTES, "bytes copied or set"),
            Column::new("dst", I64, Dictionary, NONE, "address or array handle of the destination"),
            Column::new("src", I64, Dictionary, NONE, "address or array handle of the source; the value of a set"),
            CONTEXT,
            DEVICE,
            STREAM,
            Column::new("async", Bool, Plain, NONE, "the function queues the work in stream order and need not wait for it"),
            CAPTURED,
            RESULT,
        ],
    },
    Table {
        id: TableId::DeviceMemory,
        name: "device_memory",
        meaning: "memory taken from or given back to the driver",
        columns: &[
            START,
            API,
            PROCESS,
            PID,
            TID,
            CORRELATION,
            API_ID,
            Column::new("action", Text, Dictionary, NONE, "alloc or free"),
            Column::new(
                "kind",
                Text,
                Dictionary,
                NONE,
                "device; async (from a pool, in stream order); managed; pinned; registered; virtual (physical memory without an address of its own, or its mapping); array",
            ),
            Column::new("address", I64, Delta, NONE, "address or handle"),
            Column::new(
                "bytes",
                I64,
                Dictionary,
                BYTES,
                "bytes taken; for a free those of the allocation; 0 for one that was not seen",
            ),
            CONTEXT,
            DEVICE,
            STREAM,
            CAPTURED,
            RESULT,
        ],
    },
    Table {
        id: TableId::HostMemory,
        name: "host_memory",
        meaning: "a call of malloc's or free's family: every one, or a sample by bytes (processes.malloc_mode)",
        columns: &[
            START,
            Column::new("api_ns", I64, Split, NS, "time inside the allocator; null where only one clock read was made").optional(),
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
                "bytes of allocation that this row stands for: bytes / (1 - exp(-bytes / mean)) when sampled, else bytes",
            ),
        ],
    },
    Table {
        id: TableId::Api,
        name: "api",
        meaning: "any other driver call: modules, libraries, functions, streams, events, contexts, captures, initialisation",
        columns: &[
            START,
            API,
            PROCESS,
            PID,
            TID,
            CORRELATION,
            API_ID,
            Column::new("class", Text, Dictionary, NONE, "class of the function, such as module or api"),
            CONTEXT,
            DEVICE,
            STREAM,
            Column::new("handle", I64, Dictionary, NONE, "bits of the handle that the call is about"),
            CAPTURED,
            RESULT,
        ],
    },
    Table {
        id: TableId::Names,
        name: "names",
        meaning: "texts behind ids; the id is the same in every trace, see names::id",
        columns: &[
            Column::new("name_id", I64, Plain, NONE, "hash of kind and name (63 bits)"),
            Column::new("kind", Text, Dictionary, NONE, "api, kernel or symbol"),
            Column::new("name", Text, Plain, NONE, "the name as the driver gave it: kernels are mangled"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stand_at_the_place_that_their_number_says() {
        for (n, table) in TABLES.iter().enumerate() {
            assert_eq!(table.id as usize, n);
            assert_eq!(TableId::from_u8(n as u8), Some(table.id));
            assert_eq!(Table::named(table.name), Some(table));
        }
        assert_eq!(TableId::from_u8(TABLES.len() as u8), None);
    }

    #[test]
    fn columns_are_documented_and_named_once() {
        for table in &TABLES {
            for (n, column) in table.columns.iter().enumerate() {
                assert!(!column.meaning.is_empty(), "{}.{}", table.name, column.name);
                assert_eq!(table.position(column.name), Some(n));
                if column.name.ends_with("_ns") || column.name.ends_with("bytes") {
                    assert!(!column.unit.is_empty(), "{}.{} has no unit", table.name, column.name);
                }
            }
        }
    }
}
