//! The rows of one table of one launcher: its sealed files in order, then the young rows of its journal.
//!
//! A file that cannot be read any further is named and left; the next one goes on.

use std::fs::File;
use std::path::Path;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use gputrace_collectors::schema::{SCHEMA_VERSION, TableId};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;

use super::{Filter, Launcher, Problem, Rows, Trace, rows};

/// Rows in a batch: few enough that several tables' batches fit the processor's cache together.
const BATCH_ROWS: usize = 16_384;

/// The rows of one table, in order.
pub(crate) struct Stream<'a> {
    trace: &'a Trace,
    table: TableId,
    columns: Vec<&'static str>,
    filter: &'a Filter,
    files: std::slice::Iter<'a, std::path::PathBuf>,
    open: Option<(&'a Path, ParquetRecordBatchReader)>,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(
        trace: &'a Trace,
        launcher: &'a Launcher,
        table: TableId,
        columns: Vec<&'static str>,
        filter: &'a Filter,
    ) -> Stream<'a> {
        Stream { trace, table, columns, filter, files: launcher.sealed(table).iter(), open: None }
    }

    /// The next rows, never none at all, until the end.
    pub(crate) fn next(&mut self) -> Option<Rows> {
        loop {
            let Some((path, batch)) = self.next_batch() else { return None };
            let batch = self.filtered(batch);
            match Rows::new(self.table, &self.columns, &batch) {
                Ok(rows) if rows.len > 0 => return Some(rows),
                Ok(_) => {}
                Err(text) => self.trace.problem(Problem::lost(path, text)),
            }
        }
    }

    fn next_batch(&mut self) -> Option<(&'a Path, RecordBatch)> {
        loop {
            if let Some((path, reader)) = &mut self.open {
                match reader.next() {
                    Some(Ok(batch)) => return Some((path, batch)),
                    Some(Err(error)) => {
                        self.trace
                            .problem(Problem::lost(*path, format!("is damaged, its other rows are left out: {error}")));
                    }
                    None => {}
                }
                self.open = None;
            }
            let path = self.files.next()?;
            match self.open_file(path) {
                Ok(reader) => self.open = Some((path, reader)),
                Err(text) => self.trace.problem(Problem::lost(path, text)),
            }
        }
    }

    fn open_file(&self, path: &Path) -> Result<ParquetRecordBatchReader, String> {
        let file = File::open(path).map_err(|e| format!("cannot be read: {e}"))?;
        let unreadable = |e| format!("cannot be read as Parquet (cut short or damaged), left out: {e}");
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(unreadable)?;
        let schema = builder.schema().clone();
        let version = schema.metadata().get("gputrace.schema_version");
        if let Some(version) = version.filter(|v| **v != SCHEMA_VERSION.to_string()) {
            return Err(format!(
                "has schema version {version}, this gputrace reads version {SCHEMA_VERSION}; left out"
            ));
        }
        rows::check(self.table, &self.columns, |name| {
            schema.column_with_name(name).map(|(_, f)| f.data_type().clone())
        })
        .map_err(|e| format!("{e}; left out"))?;
        let mask = ProjectionMask::columns(builder.parquet_schema(), self.columns.iter().copied());
        let groups = groups_in_time(builder.metadata(), self.filter);
        let builder = builder.with_batch_size(BATCH_ROWS).with_projection(mask).with_row_groups(groups);
        builder.build().map_err(unreadable)
    }

    fn filtered(&self, batch: RecordBatch) -> RecordBatch {
        if self.filter.is_all() || self.table == TableId::Names || self.table == TableId::Processes {
            return batch;
        }
        let Ok(rows) = Rows::new(self.table, &["start_ns", "process_id"], &batch) else { return batch };
        let (start, process) = (rows.i64("start_ns"), rows.i64("process_id"));
        let keep: BooleanArray =
            start.iter().zip(process.iter()).map(|(s, p)| Some(self.filter.keeps(*s, *p))).collect();
        filter_record_batch(&batch, &keep).unwrap_or(batch)
    }
}

/// The row groups that may hold rows in the filter's span, by the statistics of `start_ns`.
fn groups_in_time(metadata: &ParquetMetaData, filter: &Filter) -> Vec<usize> {
    let span = |group: usize| {
        let columns = metadata.row_group(group).columns();
        let column = columns.iter().find(|c| c.column_path().string() == "start_ns")?;
        match column.statistics()? {
            Statistics::Int64(s) => Some((*s.min_opt()?, *s.max_opt()?)),
            _ => None,
        }
    };
    let keep = |group: &usize| span(*group).is_none_or(|(first, last)| filter.may_keep(first, last));
    (0..metadata.num_row_groups()).filter(keep).collect()
}
