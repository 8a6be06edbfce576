//! Rows of host_memory for tests.

use gputrace_collectors::schema::TableId;
use serde_json::{Value, json};

use super::Thread;

impl Thread<'_> {
    /// malloc or free.
    pub(crate) fn malloc(&mut self, action: &str, bytes: i64, weight: f64) {
        self.host_memory(action, bytes, weight, json!({}));
    }

    /// A block of malloc's with its stack; `free_block` takes what it gives.
    pub(crate) fn malloc_at(&mut self, stack_id: i64, bytes: i64, weight: f64) -> TestBlock {
        let block = TestBlock { start_ns: self.now, stack_id, bytes, weight };
        self.host_memory("alloc", bytes, weight, json!({ "stack_id": stack_id }));
        block
    }

    /// The free of a block.
    pub(crate) fn free_block(&mut self, block: &TestBlock) {
        let more = json!({ "stack_id": block.stack_id, "age_ns": self.now - block.start_ns });
        self.host_memory("free", block.bytes, block.weight, more);
    }

    /// Blocks that were freed again at once, in one row.
    pub(crate) fn culled(&mut self, stack_id: i64, calls: i64, bytes: i64, age_ns: i64) {
        let more = json!({ "stack_id": stack_id, "age_ns": age_ns, "calls": calls });
        self.host_memory("culled", bytes / calls, bytes as f64, more);
    }

    /// A row of host_memory: any action, and what it has beside size and weight. Takes 10 ns.
    pub(crate) fn host_memory(&mut self, action: &str, bytes: i64, weight: f64, more: Value) {
        let mut row = json!({
            "start_ns": self.now, "process_id": self.process_id, "tid": self.tid, "action": action, "bytes": bytes,
            "weight_bytes": weight, "calls": 1,
        });
        if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
            row.extend(more);
        }
        self.trace.row(TableId::HostMemory, row);
        self.now += 10;
    }
}

/// A block of malloc's in a test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestBlock {
    start_ns: i64,
    stack_id: i64,
    bytes: i64,
    weight: f64,
}
