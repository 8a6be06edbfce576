//! Every table and column of a trace: name, type, unit, meaning, encoding. Nothing else in the project describes them.
//!
//! `gputrace schema` prints this list; the collector builds its columns and its Parquet settings from it; readers find
//! columns by name. A table is one folder of Parquet files. Rows of one thread stand in the order of their time; rows
//! of different threads may be out of order by as much as the collector lagged behind.
//!
//! **Rule for [`SCHEMA_VERSION`].** It is bumped when a column goes away or changes its type, unit or meaning. A new
//! column or table needs no bump: readers ask by name and take a missing column as null.

mod activity;
mod calls;
mod collectives;
mod columns;
mod counters;
mod device;
mod graphs;
mod host_memory;
mod metal;
mod names;
mod os_waits;
mod processes;
mod profiler;
mod ranges;
mod rollups;
mod stacks;
mod torch_memory;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::basic::Encoding as ParquetEncoding;

/// Version of the tables below, written into every manifest and file.
pub const SCHEMA_VERSION: u32 = 1;

/// No device has more bytes: of more, in a row or in a sum, readers say that it is damage.
pub(crate) const MOST_BYTES: i64 = 1 << 50;

/// A column that only imports fill: the last one of its tables, and null in what is recorded.
pub const IMPORTED_ONLY: &str = "external_id";

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

/// How a column's values are written in Parquet, before zstd (which few rows are spared).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// DELTA_BINARY_PACKED: values that grow, and durations. BYTE_STREAM_SPLIT packs these better by up to 0.3 bytes each, but
    /// DuckDB reads it for integers only from version 2.0 on; PLAIN comes near it, at four times the compressor's time.
    Delta,
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
    /// Ranges that the program names.
    Ranges = 9,
    /// Frames behind `stack_id`.
    Stacks = 10,
    /// Calls of NCCL.
    Collectives = 11,
    /// NCCL's communicators.
    Communicators = 12,
    /// Graphs that were instantiated or updated.
    Graphs = 13,
    /// Their kernels.
    GraphKernels = 14,
    /// Waits for the operating system.
    OsWaits = 15,
    /// Kernels that ran on a GPU.
    Kernels = 16,
    /// Copies and sets that a GPU made.
    DeviceCopies = 17,
    /// What PyTorch's caching allocator did and held.
    TorchMemory = 18,
    /// Metal's command buffers.
    CommandBuffers = 19,
    /// Dispatches in them.
    Dispatches = 20,
    /// When the GPU's work was recorded.
    GpuWindows = 21,
    /// What devices, processes and control groups were seen doing from outside.
    Counters = 22,
    /// Launches that were timed.
    GpuSamples = 23,
    /// What CUPTI told beside the GPU's work.
    GpuActivity = 24,
    /// Sums of short periods.
    Rollups = 25,
    /// Sums of longer ones, by name and line.
    RollupNames = 26,
    /// What imported profiles have beside all that.
    ProfilerEvents = 27,
}

impl TableId {
    /// Classes of the events that are the table's rows, as the manifest's accounts name them; none where its rows are not events.
    pub fn classes(self) -> &'static [&'static str] {
        match self {
            TableId::Launches => &["launch", "commit"],
            TableId::Syncs => &["sync"],
            TableId::Transfers => &["transfer"],
            TableId::DeviceMemory => &["alloc", "free"],
            TableId::HostMemory => &["host_alloc", "host_free"],
            TableId::Api => &["api", "module"],
            TableId::Collectives => &["collective"],
            TableId::Ranges => &["range"],
            TableId::OsWaits => &["os_wait"],
            TableId::Dispatches => &["encode"],
            _ => &[],
        }
    }

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

/// Every table, in the order of [`TableId`].
pub const TABLES: [Table; 28] = [
    processes::PROCESSES,
    processes::THREADS,
    calls::LAUNCHES,
    calls::SYNCS,
    calls::TRANSFERS,
    calls::DEVICE_MEMORY,
    host_memory::HOST_MEMORY,
    calls::OTHER_API,
    names::NAMES,
    ranges::RANGES,
    stacks::STACKS,
    collectives::COLLECTIVES,
    collectives::COMMUNICATORS,
    graphs::GRAPHS,
    graphs::GRAPH_KERNELS,
    os_waits::OS_WAITS,
    device::KERNELS,
    device::DEVICE_COPIES,
    torch_memory::TORCH_MEMORY,
    metal::COMMAND_BUFFERS,
    metal::DISPATCHES,
    device::GPU_WINDOWS,
    counters::COUNTERS,
    device::GPU_SAMPLES,
    activity::GPU_ACTIVITY,
    rollups::ROLLUPS,
    rollups::ROLLUP_NAMES,
    profiler::PROFILER_EVENTS,
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
