//! Rows of what was read from outside.

use gputrace_collectors::schema::TableId;
use serde_json::json;

use super::{START, TestTrace};

impl TestTrace {
    /// A value that was read of a process, or of a device, so long after the start.
    pub(crate) fn counter(&mut self, at_ns: i64, of: Result<i64, &str>, source: &str, name: &str, value: f64) {
        let row = json!({
            "start_ns": START + at_ns, "process_id": of.ok(), "device": of.err(), "source": source, "name": name, "unit": "",
            "value": value,
        });
        self.row(TableId::Counters, row);
    }
}
