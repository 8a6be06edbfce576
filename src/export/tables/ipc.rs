//! Arrow's file format (IPC), which pyarrow, polars and DuckDB map into memory as it is.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::FileWriter;

/// The file.
pub(super) struct Ipc(FileWriter<BufWriter<File>>);

impl Ipc {
    pub(super) fn new(file: File, schema: &SchemaRef) -> io::Result<Ipc> {
        let out = BufWriter::with_capacity(1 << 18, file);
        Ok(Ipc(FileWriter::try_new(out, schema).map_err(io::Error::other)?))
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        self.0.write(batch).map_err(io::Error::other)
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.0.finish().map_err(io::Error::other)?;
        self.0.get_mut().flush()
    }
}
