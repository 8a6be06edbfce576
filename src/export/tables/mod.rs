//! The tables of a trace as files that other programs read: a folder with one file for each table that has rows.
//!
//! Columns are those of `gputrace schema`, with the text of each name beside its id, so that nobody needs to join. Tables are
//! read one after another: memory is that of a few batches and of the names.

mod csv;
mod ipc;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use gputrace_collectors::schema::{TABLES, TableId};

use super::{Written, outside};
use crate::new_file::{Unfinished, name_all};
use crate::trace::{Filter, Rows, Texts, Trace, Want, full_name};

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Comma-separated values.
    Csv,
    /// Arrow's file format.
    Arrow,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Arrow => "arrow",
        }
    }
}

/// Columns of ids of names, and the column that has the text.
const NAMED: [(&str, &str); 7] = [
    ("api_id", "api"),
    ("category_id", "category_name"),
    ("domain_id", "domain"),
    ("encoder_id", "encoder"),
    ("label_id", "label"),
    ("name_id", "name"),
    ("queue_name_id", "queue_name"),
];

/// The columns of each table, as a scan takes them.
static COLUMNS: LazyLock<Vec<Vec<&'static str>>> =
    LazyLock::new(|| TABLES.iter().map(|table| table.columns.iter().map(|column| column.name).collect()).collect());

/// Writes the folder.
pub(crate) fn write(trace: &Trace, filter: &Filter, folder: &Path, format: Format) -> io::Result<Written> {
    let mut files = Folder::make(folder, format)?;
    files.whole(trace, filter)?;
    let cut = TABLES.iter().map(|table| table.id).filter(|table| !describes(*table));
    let outside = outside::of_rows(trace, filter, cut);
    Ok(Written { files: files.end()?, outside, ..Written::default() })
}

/// The folder, and the files in it, which have other names until all of them are whole, and are gone where they never are.
struct Folder<'a> {
    path: &'a Path,
    format: Format,
    files: Vec<(PathBuf, u64)>,
    /// Each under its other name.
    young: Vec<Unfinished>,
    /// The folder itself, where it was not there; dropped last, when it is empty.
    made: Option<Unfinished>,
}

impl<'a> Folder<'a> {
    fn make(path: &'a Path, format: Format) -> io::Result<Folder<'a>> {
        let made = match Unfinished::folder(path) {
            Ok(made) => Some(made),
            // What another export left would look like a part of this one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                if fs::read_dir(path)?.next().is_some() {
                    return Err(io::Error::other("the folder is not empty: name a new one, or remove what is in it"));
                }
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Folder { path, format, files: Vec::new(), young: Vec::new(), made })
    }

    fn whole(&mut self, trace: &Trace, filter: &Filter) -> io::Result<()> {
        let names = trace.every_name(full_name)?;
        // What they describe was there before the span that is kept.
        let always = Filter { processes: filter.processes.clone(), ..Filter::default() };
        for table in TABLES {
            let want = [Want { table: table.id, columns: &COLUMNS[table.id as usize] }];
            let filter = if describes(table.id) { &always } else { filter };
            let (mut sink, mut done) = (None, Ok(()));
            trace.scan(&want, filter, &mut |rows| {
                if done.is_ok() {
                    done = batch(rows, &names).and_then(|batch| self.sink(&mut sink, rows.table, &batch));
                }
            });
            done?;
            sink.map_or(Ok(()), Sink::end)?;
        }
        Ok(())
    }

    /// Writes rows to the file of their table, which is made for the first of them.
    fn sink(&mut self, sink: &mut Option<Sink>, table: TableId, batch: &RecordBatch) -> io::Result<()> {
        let sink = match sink {
            Some(sink) => sink,
            None => {
                let file = self.path.join(format!("{}.{}", table.table().name, self.format.ending()));
                let mut young = file.clone().into_os_string();
                young.push(".part");
                let (young, made) = Unfinished::file(Path::new(&young))?;
                self.young.push(young);
                self.files.push((file, 0));
                sink.insert(Sink::new(made, self.format, &batch.schema())?)
            }
        };
        if let Some((_, rows)) = self.files.last_mut() {
            *rows += batch.num_rows() as u64;
        }
        sink.write(batch)
    }

    /// All are whole: gives them their names.
    fn end(self) -> io::Result<Vec<(PathBuf, u64)>> {
        let files = self.young.into_iter().zip(self.files.iter().map(|(file, _)| file.clone()));
        name_all(files.chain(self.made.map(|made| (made, self.path.to_owned()))).collect())?;
        Ok(self.files)
    }
}

/// A table's file.
enum Sink {
    Csv(csv::Csv),
    Arrow(Box<ipc::Ipc>),
}

impl Sink {
    fn new(file: File, format: Format, schema: &SchemaRef) -> io::Result<Sink> {
        Ok(match format {
            Format::Csv => Sink::Csv(csv::Csv::new(file, schema)?),
            Format::Arrow => Sink::Arrow(Box::new(ipc::Ipc::new(file, schema)?)),
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        match self {
            Sink::Csv(file) => file.write(batch),
            Sink::Arrow(file) => file.write(batch),
        }
    }

    fn end(self) -> io::Result<()> {
        match self {
            Sink::Csv(file) => file.end(),
            Sink::Arrow(file) => file.end(),
        }
    }
}

/// Whether a table holds what rows of others refer to, and no events of a span.
fn describes(table: TableId) -> bool {
    matches!(
        table,
        TableId::Processes
            | TableId::Threads
            | TableId::Names
            | TableId::Stacks
            | TableId::Communicators
            | TableId::Graphs
            | TableId::GraphKernels
    )
}

/// The rows with the texts of their names.
fn batch(rows: &Rows, names: &Texts) -> io::Result<RecordBatch> {
    let table = rows.table.table();
    let (mut fields, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
    for column in table.columns {
        let Some(array) = rows.array(column.name) else { continue };
        // A later batch may have nulls where this one has none: older files lack columns.
        fields.push(Field::new(column.name, column.kind.arrow(), true));
        arrays.push(Arc::clone(array));
        let text = NAMED.iter().find(|(id, _)| *id == column.name && rows.table != TableId::Names);
        if let (Some((_, text)), Some(ids)) = (text, array.as_primitive_opt::<Int64Type>()) {
            let mut texts = StringBuilder::new();
            for id in ids {
                texts.append_option(id.map_or(Ok(None), |id| names.get(id))?);
            }
            fields.push(Field::new(*text, DataType::Utf8, true));
            arrays.push(Arc::new(texts.finish()));
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_of_a_name_has_its_text_and_no_column_has_another_ones_name() {
        for table in TABLES.iter().filter(|table| table.id != TableId::Names) {
            for column in table.columns {
                let named = NAMED.iter().any(|(id, _)| *id == column.name);
                assert_eq!(named, column.meaning.contains("names.name_id"), "{}.{}", table.name, column.name);
                let taken = |(id, text): &(&str, &str)| *text == column.name && table.position(id).is_some();
                assert!(!NAMED.iter().any(taken), "{}.{}", table.name, column.name);
            }
        }
    }
}
