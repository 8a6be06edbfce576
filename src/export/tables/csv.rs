//! Comma-separated values (RFC 4180), with a line of names: for spreadsheets and data frames.
//!
//! A null is empty, an empty text `""`; numbers are written so that they are read back as they were, times in ns since the epoch.
//! Tables have five types, so no library is taken for it.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use arrow::array::{Array, AsArray, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type, SchemaRef};

/// The file.
pub(super) struct Csv(BufWriter<File>);

/// A column.
enum Column<'a> {
    Long(&'a PrimitiveArray<Int64Type>),
    Int(&'a PrimitiveArray<Int32Type>),
    Real(&'a PrimitiveArray<Float64Type>),
    Bool(&'a BooleanArray),
    Text(&'a StringArray),
}

impl Csv {
    pub(super) fn new(file: File, schema: &SchemaRef) -> io::Result<Csv> {
        let mut out = BufWriter::with_capacity(1 << 18, file);
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(out, "{}\r\n", names.join(","))?;
        Ok(Csv(out))
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let columns: Vec<Column<'_>> = batch.columns().iter().map(|array| Column::of(array.as_ref())).collect();
        for row in 0..batch.num_rows() {
            for (at, column) in columns.iter().enumerate() {
                if at > 0 {
                    self.0.write_all(b",")?;
                }
                column.write(row, &mut self.0)?;
            }
            self.0.write_all(b"\r\n")?;
        }
        Ok(())
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<'a> Column<'a> {
    fn of(array: &'a dyn Array) -> Column<'a> {
        let long = array.as_primitive_opt().map(Column::Long);
        let number = long.or(array.as_primitive_opt().map(Column::Int)).or(array.as_primitive_opt().map(Column::Real));
        number.or(array.as_boolean_opt().map(Column::Bool)).unwrap_or_else(|| Column::Text(array.as_string()))
    }

    fn write(&self, row: usize, out: &mut impl Write) -> io::Result<()> {
        match self {
            Column::Long(of) if of.is_valid(row) => write!(out, "{}", of.value(row)),
            Column::Int(of) if of.is_valid(row) => write!(out, "{}", of.value(row)),
            Column::Real(of) if of.is_valid(row) => write!(out, "{}", of.value(row)),
            Column::Bool(of) if of.is_valid(row) => write!(out, "{}", of.value(row)),
            Column::Text(of) if of.is_valid(row) => text(of.value(row), out),
            _ => Ok(()),
        }
    }
}

/// A text, in quotes where it must be.
fn text(text: &str, out: &mut impl Write) -> io::Result<()> {
    if !text.is_empty() && !text.contains([',', '"', '\r', '\n']) {
        return out.write_all(text.as_bytes());
    }
    write!(out, "\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_text_is_quoted_where_it_must_be() {
        for (text, written) in [
            ("plain text", "plain text"),
            ("", r#""""#),
            ("a<b, c>", r#""a<b, c>""#),
            (r#"say "hi""#, r#""say ""hi""""#),
            ("two\nlines", "\"two\nlines\""),
        ] {
            let mut out = Vec::new();
            super::text(text, &mut out).expect("a vector");
            assert_eq!(String::from_utf8_lossy(&out), written);
        }
    }
}
