//! Rows that a limit of size or age removed.

use gputrace_collectors::manifest::Removed;
use gputrace_collectors::schema::TableId;
use serde_json::Value;

use super::{START, TestTrace};

impl TestTrace {
    /// Removes a table's rows that began before then, as `--max-size` does, and notes it. Gives how many.
    pub(crate) fn remove_before(&mut self, table: TableId, until_ns: i64) -> u64 {
        let rows = &mut self.rows[table as usize];
        let before = rows.len();
        rows.retain(|row| row.get("start_ns").and_then(Value::as_i64).is_none_or(|start| start >= until_ns));
        let removed = (before - rows.len()) as u64;
        if removed > 0 {
            let (limit, table) = ("--max-size".to_owned(), table.table().name.to_owned());
            let removed = Removed { limit, table, rows: removed, from_ns: START, to_ns: until_ns };
            self.manifest.as_mut().expect("a manifest").removed.push(removed);
        }
        removed
    }
}
