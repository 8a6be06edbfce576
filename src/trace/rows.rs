//! Rows of one table, as columns that are found by name.
//!
//! A column that a file does not have reads as null: an older file lacks what was added later. A null reads as zero,
//! false or the empty text, unless the caller names another value.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use gputrace_collectors::schema::TableId;

use super::Reach;

/// Some rows of one table.
pub(crate) struct Rows {
    /// Which table.
    pub(crate) table: TableId,
    /// How many rows.
    pub(crate) len: usize,
    /// Whose files they are from: a number of `Trace::launchers`.
    pub(crate) launcher: usize,
    /// Which of its table they are.
    pub(crate) reach: Reach,
    /// Where not all of them are kept: whether each is.
    pub(super) kept: Option<BooleanArray>,
    columns: Vec<(&'static str, ArrayRef)>,
}

/// Columns without which a row of an event means nothing: a file that lacks one is not of this tool.
const REQUIRED: [&str; 3] = ["start_ns", "process_id", "name_id"];

impl Rows {
    /// Takes the wanted columns out of a batch. Fails with a sentence when the batch is not one of this table.
    pub(crate) fn new(table: TableId, wanted: &[&'static str], batch: &RecordBatch) -> Result<Rows, String> {
        check(table, wanted, |name| batch.schema_ref().column_with_name(name).map(|(_, f)| f.data_type().clone()))?;
        let column = |name: &'static str| {
            let array = batch.column_by_name(name).map(Arc::clone);
            let array = array.unwrap_or_else(|| new_null_array(&type_of(table, name), batch.num_rows()));
            plausible(table, name, &array)?;
            Ok((name, array))
        };
        let columns = wanted.iter().map(|name| column(name)).collect::<Result<_, String>>()?;
        Ok(Rows { table, len: batch.num_rows(), launcher: 0, reach: Reach::Kept, kept: None, columns })
    }

    /// Whether a row is kept, and not only read to know what was in use before.
    pub(crate) fn is_kept(&self, row: usize) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.value(row))
    }

    /// A column as it is.
    pub(crate) fn array(&self, name: &str) -> Option<&ArrayRef> {
        self.columns.iter().find(|(n, _)| *n == name).map(|(_, array)| array)
    }

    /// A column of 64-bit integers, with `missing` for nulls.
    pub(crate) fn i64_or(&self, name: &str, missing: i64) -> Cow<'_, [i64]> {
        match self.array(name).and_then(|a| a.as_primitive_opt::<Int64Type>()) {
            Some(array) if array.null_count() == 0 => Cow::Borrowed(array.values()),
            Some(array) if array.null_count() < self.len => {
                Cow::Owned(array.iter().map(|v| v.unwrap_or(missing)).collect())
            }
            _ => Cow::Owned(vec![missing; self.len]),
        }
    }

    /// A column of 64-bit integers.
    pub(crate) fn i64(&self, name: &str) -> Cow<'_, [i64]> {
        self.i64_or(name, 0)
    }

    /// A column of 32-bit integers, with `missing` for nulls.
    pub(crate) fn i32_or(&self, name: &str, missing: i32) -> Cow<'_, [i32]> {
        match self.array(name).and_then(|a| a.as_primitive_opt::<Int32Type>()) {
            Some(array) if array.null_count() == 0 => Cow::Borrowed(array.values()),
            Some(array) if array.null_count() < self.len => {
                Cow::Owned(array.iter().map(|v| v.unwrap_or(missing)).collect())
            }
            _ => Cow::Owned(vec![missing; self.len]),
        }
    }

    /// A column of integers of either width, with its nulls.
    pub(crate) fn ints(&self, name: &str) -> Ints<'_> {
        let array = self.array(name);
        Ints(array.and_then(|a| a.as_primitive_opt()), array.and_then(|a| a.as_primitive_opt()))
    }

    /// Three columns that are the axes of `grid` or `block`, with 0 for nulls.
    pub(crate) fn axes(&self, of: &str) -> AxesOf<'_> {
        AxesOf(["x", "y", "z"].map(|axis| self.i32_or(&format!("{of}_{axis}"), 0)))
    }

    /// A column of floating point numbers; null is zero.
    pub(crate) fn f64(&self, name: &str) -> Cow<'_, [f64]> {
        match self.array(name).and_then(|a| a.as_primitive_opt::<Float64Type>()) {
            Some(array) if array.null_count() == 0 => Cow::Borrowed(array.values()),
            Some(array) => Cow::Owned(array.iter().map(|v| v.unwrap_or(0.0)).collect()),
            None => Cow::Owned(vec![0.0; self.len]),
        }
    }

    /// A column of floating point numbers, with its nulls.
    pub(crate) fn reals(&self, name: &str) -> Reals<'_> {
        Reals(self.array(name).and_then(|a| a.as_primitive_opt()))
    }

    /// A column of flags.
    pub(crate) fn flags(&self, name: &str) -> Flags<'_> {
        // Most columns of flags are false throughout.
        let flags = self.array(name).and_then(|a| a.as_boolean_opt());
        Flags(flags.filter(|flags| flags.true_count() > 0))
    }

    /// A column of texts.
    pub(crate) fn texts(&self, name: &str) -> Texts<'_> {
        Texts(self.array(name).and_then(|a| a.as_string_opt::<i32>()))
    }
}

/// A column of integers: one of the two, or none where the file has no such column.
#[derive(Clone, Copy)]
pub(crate) struct Ints<'a>(Option<&'a PrimitiveArray<Int64Type>>, Option<&'a PrimitiveArray<Int32Type>>);

impl Ints<'_> {
    /// The number of a row that may have none.
    #[inline]
    pub(crate) fn known(&self, row: usize) -> Option<i64> {
        match (self.0, self.1) {
            (Some(a), _) if a.is_valid(row) => Some(a.value(row)),
            (_, Some(a)) if a.is_valid(row) => Some(a.value(row).into()),
            _ => None,
        }
    }
}

/// A column of floating point numbers; none where the file has no such column.
#[derive(Clone, Copy)]
pub(crate) struct Reals<'a>(Option<&'a PrimitiveArray<Float64Type>>);

impl Reals<'_> {
    /// The number of a row that may have none.
    pub(crate) fn known(&self, row: usize) -> Option<f64> {
        self.0.filter(|a| a.is_valid(row)).map(|a| a.value(row))
    }
}

/// A grid or a block: x, y, z. No array: to compare one that was just put together takes longer.
pub(crate) type Axes = (i32, i32, i32);

/// Three columns of them.
pub(crate) struct AxesOf<'a>([Cow<'a, [i32]>; 3]);

impl AxesOf<'_> {
    /// Those of a row.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Axes {
        let [x, y, z] = &self.0;
        (x[row], y[row], z[row])
    }
}

/// A column of flags; null is false.
#[derive(Clone, Copy)]
pub(crate) struct Flags<'a>(Option<&'a BooleanArray>);

impl Flags<'_> {
    /// Whether any row has it.
    pub(crate) fn any(&self) -> bool {
        self.0.is_some()
    }

    /// The flag of a row.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> bool {
        self.0.is_some_and(|a| a.is_valid(row) && a.value(row))
    }
}

/// A column of texts; null is the empty text.
#[derive(Clone, Copy)]
pub(crate) struct Texts<'a>(Option<&'a StringArray>);

impl<'a> Texts<'a> {
    /// The text of a row.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> &'a str {
        match self.0 {
            Some(a) if a.is_valid(row) => a.value(row),
            _ => "",
        }
    }

    /// The text of a row that may have none.
    pub(crate) fn known(&self, row: usize) -> Option<&'a str> {
        self.0.filter(|a| a.is_valid(row)).map(|a| a.value(row))
    }
}

/// Says in a sentence why columns of these types are not those of the table, if they are not.
pub(crate) fn check(
    table: TableId,
    wanted: &[&'static str],
    type_in_file: impl Fn(&str) -> Option<DataType>,
) -> Result<(), String> {
    for name in wanted {
        let expected = type_of(table, name);
        match type_in_file(name) {
            Some(found) if found != expected => return Err(format!("column {name} is {found}, expected {expected}")),
            None if REQUIRED.contains(name) && !nullable(table, name) => return Err(format!("has no column {name}")),
            _ => {}
        }
    }
    Ok(())
}

/// Whether times and sizes are such that sums and differences of them cannot overflow: between 1970 and 2116, no
/// longer than 13 days, no larger than a petabyte. Only damage makes others.
fn plausible(table: TableId, name: &str, array: &ArrayRef) -> Result<(), String> {
    let about = table.table();
    let unit = about.position(name).map_or("", |i| about.columns[i].unit);
    let range = match unit {
        "ns" | "bytes" => -1..=1 << 50,
        unit if unit.starts_with("ns since") => 0..=1 << 62,
        _ => return Ok(()),
    };
    let Some(values) = array.as_primitive_opt::<Int64Type>() else { return Ok(()) };
    let (low, high) = values.values().iter().fold((0, 0), |(low, high), v| (low.min(*v), high.max(*v)));
    if range.contains(&low) && range.contains(&high) {
        return Ok(());
    }
    Err(format!("is damaged: column {name} holds impossible values; those rows are left out"))
}

fn type_of(table: TableId, column: &str) -> DataType {
    let table = table.table();
    table.position(column).map_or(DataType::Null, |i| table.columns[i].kind.arrow())
}

fn nullable(table: TableId, column: &str) -> bool {
    let table = table.table();
    table.position(column).is_none_or(|i| table.columns[i].nullable)
}
