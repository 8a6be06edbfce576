//! Reading a trace in a test: columns of a table over all its files.

use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// Sealed files of a table, in order.
pub(crate) fn files(trace: &Path, table: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for host in std::fs::read_dir(trace.join(table)).into_iter().flatten().flatten() {
        let entries = std::fs::read_dir(host.path()).into_iter().flatten().flatten().map(|e| e.path());
        files.extend(entries.filter(|p| p.extension().is_some_and(|e| e == "parquet")));
    }
    files.sort();
    files
}

/// Batches of a table.
pub(crate) fn batches(trace: &Path, table: &str) -> Vec<RecordBatch> {
    let mut all = Vec::new();
    for file in files(trace, table) {
        let file = std::fs::File::open(file).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        all.extend(reader.map(|b| b.unwrap()));
    }
    all
}

/// Rows of a table.
pub(crate) fn count(trace: &Path, table: &str) -> usize {
    batches(trace, table).iter().map(RecordBatch::num_rows).sum()
}

/// A column of numbers, missing ones as none.
pub(crate) fn numbers(batches: &[RecordBatch], column: &str) -> Vec<Option<i64>> {
    let mut all = Vec::new();
    for batch in batches {
        let array = batch.column_by_name(column).unwrap_or_else(|| panic!("no column {column}"));
        match array.as_primitive_opt::<Int64Type>() {
            Some(wide) => all.extend(wide.iter()),
            None => all.extend(array.as_primitive::<Int32Type>().iter().map(|v| v.map(i64::from))),
        }
    }
    all
}

/// A column of numbers that are all there.
pub(crate) fn values(batches: &[RecordBatch], column: &str) -> Vec<i64> {
    numbers(batches, column).into_iter().map(Option::unwrap).collect()
}

/// A column of floating point numbers.
pub(crate) fn floats(batches: &[RecordBatch], column: &str) -> Vec<f64> {
    let column = |b: &RecordBatch| b.column_by_name(column).unwrap().as_primitive::<Float64Type>().values().to_vec();
    batches.iter().flat_map(column).collect()
}

/// A column of texts, missing ones as "-".
pub(crate) fn texts(batches: &[RecordBatch], column: &str) -> Vec<String> {
    let mut all = Vec::new();
    for batch in batches {
        let array = batch.column_by_name(column).unwrap().as_string::<i32>();
        all.extend((0..array.len()).map(|i| if array.is_null(i) { "-".into() } else { array.value(i).to_owned() }));
    }
    all
}

/// A column of flags.
pub(crate) fn flags(batches: &[RecordBatch], column: &str) -> Vec<bool> {
    let column = |b: &RecordBatch| b.column_by_name(column).unwrap().as_boolean().iter().flatten().collect::<Vec<_>>();
    batches.iter().flat_map(column).collect()
}
