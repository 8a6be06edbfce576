//! How much of a table a trace has: readers hold it against what they find, for files can be removed.
//!
//! It is told with the last word about a trace, of files that have their names and that `--max-size` left. What is written
//! later, from an archive, is added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::schema::TableId;

/// What one launcher has stored of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Sealed files.
    pub files: u64,
    /// Rows in them.
    pub rows: u64,
}

/// The same of each table that has files, by its name.
pub type StoredTables = BTreeMap<String, Stored>;

/// Counts a sealed file with so many rows.
pub(crate) fn count(tables: &mut StoredTables, table: TableId, rows: u64) {
    let stored = tables.entry(table.table().name.to_owned()).or_default();
    stored.files += 1;
    stored.rows += rows;
}
