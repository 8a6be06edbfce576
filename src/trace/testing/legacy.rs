//! Launches that the legacy default stream's rule puts behind other streams' work.

use gputrace_collectors::schema::TableId;

use super::TestTrace;

impl TestTrace {
    /// Has all launches so far be such.
    pub(crate) fn order_by_legacy_stream(&mut self) {
        for row in &mut self.rows[TableId::Launches as usize] {
            row.insert("legacy".to_owned(), true.into());
        }
    }
}
