//! Batches of a table from columns that are named, in any order.
//!
//! A column that is not named is null where it may be, else 0, false or the empty text. A name that the table does not
//! have, a column of another type or length, and a missing value where there must be one fail when the batch is made.

use std::io;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, new_null_array,
};

use crate::schema::{Column, Table, TableId, Type};

/// The columns of some rows, until [`Columns::batch`].
pub struct Columns {
    table: &'static Table,
    rows: usize,
    columns: Vec<Option<ArrayRef>>,
    wrong: Option<String>,
}

impl Columns {
    /// So many rows of a table.
    pub fn new(table: TableId, rows: usize) -> Columns {
        let table = table.table();
        Columns { table, rows, columns: vec![None; table.columns.len()], wrong: None }
    }

    /// 64-bit integers, or options of them.
    pub fn i64<T: Into<Option<i64>>>(self, name: &str, values: impl IntoIterator<Item = T>) -> Columns {
        self.put(name, Arc::new(values.into_iter().map(Into::into).collect::<Int64Array>()))
    }

    /// 32-bit integers, or options of them.
    pub fn i32<T: Into<Option<i32>>>(self, name: &str, values: impl IntoIterator<Item = T>) -> Columns {
        self.put(name, Arc::new(values.into_iter().map(Into::into).collect::<Int32Array>()))
    }

    /// Floating point numbers, or options of them.
    pub fn f64<T: Into<Option<f64>>>(self, name: &str, values: impl IntoIterator<Item = T>) -> Columns {
        self.put(name, Arc::new(values.into_iter().map(Into::into).collect::<Float64Array>()))
    }

    /// Flags.
    pub fn bool(self, name: &str, values: impl IntoIterator<Item = bool>) -> Columns {
        self.put(name, Arc::new(values.into_iter().map(Some).collect::<BooleanArray>()))
    }

    /// Texts, or options of them.
    pub fn text<'a, T: Into<Option<&'a str>>>(self, name: &str, values: impl IntoIterator<Item = T>) -> Columns {
        self.put(name, Arc::new(values.into_iter().map(Into::into).collect::<StringArray>()))
    }

    fn put(mut self, name: &str, array: ArrayRef) -> Columns {
        let table = self.table.name;
        match self.table.position(name) {
            None => self.wrong = Some(format!("{table} has no column {name}")),
            Some(at) if self.table.columns[at].kind.arrow() != *array.data_type() => {
                self.wrong = Some(format!("{table}.{name} is not {}", array.data_type()));
            }
            Some(at) => self.columns[at] = Some(array),
        }
        self
    }

    /// The batch.
    pub fn batch(self) -> io::Result<RecordBatch> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        if let Some(wrong) = self.wrong {
            return Err(invalid(wrong));
        }
        let named = self.table.columns.iter().zip(self.columns);
        let columns = named.map(|(column, array)| array.unwrap_or_else(|| unnamed(column, self.rows))).collect();
        // Arrow compares lengths and nulls with the table's.
        RecordBatch::try_new(self.table.arrow(), columns).map_err(|e| invalid(format!("{}: {e}", self.table.name)))
    }
}

/// What stands in a column that nobody named.
fn unnamed(column: &Column, rows: usize) -> ArrayRef {
    if column.nullable {
        return new_null_array(&column.kind.arrow(), rows);
    }
    match column.kind {
        Type::I64 => Arc::new(Int64Array::from(vec![0; rows])),
        Type::I32 => Arc::new(Int32Array::from(vec![0; rows])),
        Type::F64 => Arc::new(Float64Array::from(vec![0.0; rows])),
        Type::Bool => Arc::new(BooleanArray::from(vec![false; rows])),
        Type::Text => Arc::new(StringArray::from(vec![""; rows])),
    }
}
