//! Sums of periods.

use gputrace_collectors::schema::TableId;
use serde_json::{Value, json};

use super::{START, TestTrace};

impl TestTrace {
    /// Sums of process 1 in a second that begins so long after the start, in both tables.
    pub(crate) fn rollup(&mut self, at_ns: i64, class: &str, values: &Value) {
        let mut row = json!({
            "start_ns": START + at_ns, "period_ns": 1_000_000_000, "process_id": 1, "pid": 100, "class": class, "bytes": 0, "errors": 0,
        });
        if let (Some(row), Some(values)) = (row.as_object_mut(), values.as_object()) {
            row.extend(values.clone());
        }
        [TableId::Rollups, TableId::RollupNames].into_iter().for_each(|table| self.row(table, row.clone()));
    }
}
