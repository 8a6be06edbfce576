//! What a launcher asked for of host memory, as the manifest has it.

use serde::{Deserialize, Serialize};

/// What was asked for of host memory, beside `processes.malloc_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMemory {
    /// Whether allocations were to have stacks.
    pub stacks: bool,
    /// Whether memory from the kernel was to be recorded.
    pub mmap: bool,
    /// Allocations that were freed within so long are in the trace as sums, ns; missing where each is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cull_ns: Option<i64>,
}

impl Default for HostMemory {
    fn default() -> HostMemory {
        HostMemory { stacks: true, mmap: false, cull_ns: None }
    }
}
