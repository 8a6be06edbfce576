//! A database of sqlite that is written from front to end, under another name until it is whole.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, params_from_iter};
use rustc_hash::FxHashMap;

use super::sheets::Sheet;
use crate::new_file::NewFile;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Null,
    Int(i64),
    Real(f64),
    Text(&'a str),
}

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Cell::Int(value)
    }
}

impl From<Option<i64>> for Cell<'_> {
    fn from(value: Option<i64>) -> Self {
        value.map_or(Cell::Null, Cell::Int)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Cell::Text(value)
    }
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Cell::Null => ValueRef::Null,
            Cell::Int(value) => ValueRef::Integer(*value),
            Cell::Real(value) => ValueRef::Real(*value),
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// The database.
pub(super) struct Database {
    base: Connection,
    file: NewFile,
    /// Where it belongs.
    to: PathBuf,
    /// Statements by table; a table is made for its first row, as nsys does.
    inserts: FxHashMap<&'static str, String>,
}

impl Database {
    /// Makes an empty one. Nothing of it is seen under its name before [`Database::end`].
    pub(super) fn create(to: &Path) -> io::Result<Database> {
        let file = NewFile::create_with_path(to)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let base = Connection::open_with_flags(file.path(), flags).map_err(failed)?;
        base.set_prepared_statement_cache_capacity(32);
        let database = Database { base, file, to: to.to_owned(), inserts: FxHashMap::default() };
        // One that fails is removed, so nothing need be kept for its repair; and pages need not stay in memory until the end.
        database.run("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")?;
        Ok(database)
    }

    fn run(&self, sql: &str) -> io::Result<()> {
        self.base.execute_batch(sql).map_err(failed)
    }

    /// Writes a row: the sheet's filled columns, in their order.
    pub(super) fn insert(&mut self, sheet: &Sheet, cells: &[Cell<'_>]) -> io::Result<()> {
        if !self.inserts.contains_key(sheet.name) {
            self.table(sheet)?;
        }
        let mut insert = self.base.prepare_cached(&self.inserts[sheet.name]).map_err(failed)?;
        insert.execute(params_from_iter(cells)).map_err(failed)?;
        Ok(())
    }

    fn table(&mut self, sheet: &Sheet) -> io::Result<()> {
        let parts = |column: &&'static str| column.split_once(' ').unwrap_or((column, "INTEGER"));
        let columns = sheet.filled.iter().chain(sheet.empty).map(parts);
        let mut columns: Vec<String> = columns.map(|(name, kind)| format!("\"{name}\" {kind}")).collect();
        if !sheet.key.is_empty() {
            columns.push(format!("PRIMARY KEY ({})", sheet.key));
        }
        self.run(&format!("CREATE TABLE {} ({})", sheet.name, columns.join(", ")))?;
        let filled: Vec<String> = sheet.filled.iter().map(|column| format!("\"{}\"", parts(column).0)).collect();
        let marks = vec!["?"; filled.len()].join(", ");
        let insert = format!("INSERT OR IGNORE INTO {} ({}) VALUES ({marks})", sheet.name, filled.join(", "));
        self.inserts.insert(sheet.name, insert);
        Ok(())
    }

    /// An enumeration: a table of its own.
    pub(super) fn enumerate(&mut self, (table, values): &super::sheets::Enumeration) -> io::Result<()> {
        self.run(&format!("CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT, label TEXT)"))?;
        let mut insert = self.base.prepare(&format!("INSERT INTO {table} VALUES (?, ?, ?)")).map_err(failed)?;
        for value in *values {
            insert.execute(*value).map_err(failed)?;
        }
        Ok(())
    }

    /// It is whole: gives it its name. One that is not ended is gone when it is dropped.
    pub(super) fn end(self) -> io::Result<PathBuf> {
        self.run("COMMIT")?;
        drop(self.base);
        self.file.end()?;
        Ok(self.to)
    }
}

fn failed(error: rusqlite::Error) -> io::Error {
    io::Error::other(error.to_string())
}
