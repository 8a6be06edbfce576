//! Rows of a table of sqlite by the columns' names, of which any may be missing.

use std::collections::BTreeSet;
use std::num::NonZeroI64;

use anyhow::{Context, Result, bail};
use rusqlite::types::ValueRef;

use super::super::gathered::TIMES_NS;
use super::Reader;
use crate::progress::{self, Unit};

/// A row: the wanted columns in their order.
pub(super) type Row = Vec<Cell>;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    None,
    Int(i64),
    Text(String),
}

impl Cell {
    pub(super) fn int(&self) -> Option<i64> {
        match self {
            Cell::Int(value) => Some(*value),
            Cell::Text(text) => text.parse().ok(),
            Cell::None => None,
        }
    }

    /// A time, if it may be one.
    pub(super) fn time(&self) -> Option<i64> {
        self.int().filter(|ns| TIMES_NS.contains(ns))
    }

    pub(super) fn small(&self) -> Option<i32> {
        self.int().and_then(|value| value.try_into().ok())
    }

    /// A number that is above 0, as those of calls are.
    pub(super) fn number(&self) -> Option<NonZeroI64> {
        self.int().filter(|number| *number > 0).and_then(NonZeroI64::new)
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Cell::Text(text) = self { Some(text) } else { None }
    }
}

impl Reader {
    /// Hands each row of a table to `each`, if there is such a table. A column that is not there reads as null.
    pub(super) fn rows(
        &mut self,
        table: &str,
        columns: &[&str],
        mut each: impl FnMut(&mut Reader, &Row),
    ) -> Result<()> {
        if !self.tables.contains(table) {
            return Ok(());
        }
        // The rows of a table come in pieces, so that the reader is free while they are taken in.
        const PIECE: usize = 65_536;
        let known = {
            let mut about = self.base.prepare(&format!("PRAGMA table_info(\"{table}\")"))?;
            about.query_map([], |row| row.get::<_, String>(1))?.collect::<Result<BTreeSet<_>, _>>()?
        };
        let wanted: Vec<String> = columns
            .iter()
            .map(|column| if known.contains(*column) { format!("\"{column}\"") } else { "NULL".to_owned() })
            .collect();
        let query = |after: i64| {
            format!(
                "SELECT rowid, {} FROM \"{table}\" WHERE rowid > {after} ORDER BY rowid LIMIT {PIECE}",
                wanted.join(", ")
            )
        };
        if progress::is_seen() {
            let last =
                self.base.query_row(&format!("SELECT max(rowid) FROM \"{table}\""), [], |row| row.get::<_, i64>(0));
            let rows = last.ok().and_then(|rows| u64::try_from(rows).ok());
            progress::stage(&format!("reading {table}"), rows.map(|rows| (rows, Unit::Number)));
        }
        let mut after = i64::MIN;
        loop {
            let piece = {
                let mut statement = self.base.prepare(&query(after))?;
                let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, Row)> {
                    let cell = |at: usize| {
                        Ok(match row.get_ref(at + 1)? {
                            ValueRef::Integer(value) => Cell::Int(value),
                            ValueRef::Real(value) => Cell::Int(value as i64),
                            ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
                            _ => Cell::None,
                        })
                    };
                    Ok((row.get(0)?, (0..columns.len()).map(cell).collect::<rusqlite::Result<Row>>()?))
                };
                statement.query_map([], row)?.collect::<Result<Vec<_>, _>>()
            };
            let piece = piece.with_context(|| format!("its table {table} is damaged"))?;
            let Some((last, _)) = piece.last() else { return Ok(()) };
            // Pages that lie in a circle would be read for ever.
            if *last <= after {
                bail!("its table {table} is damaged: its rows are in no order");
            }
            after = *last;
            piece.iter().for_each(|(_, row)| each(self, row));
            progress::step(piece.len() as u64);
        }
    }
}
