//! malloc: what was allocated, and what was in use at the end or at the peak.
//!
//! Values are estimates where malloc was sampled. Memory from the kernel (`--mmap`) is left out: malloc's own comes from it.

use super::Found;
use crate::analysis::Facts;
use crate::cli::ExportAt;

/// Blocks and bytes allocated, blocks and bytes in use, of each stack.
pub(super) fn found(facts: &Facts<'_>, at: ExportAt) -> Vec<Found> {
    let found = facts.allocations.stacks.iter().filter_map(|((process_id, stack_id), stack)| {
        let inuse = match at {
            ExportAt::End => stack.live,
            ExportAt::Peak => stack.at_peak(facts.allocations.processes.get(process_id)?),
        };
        let all = stack.sums.all;
        // A sum of estimates may end a hair below nothing.
        let values = [all.blocks, all.bytes, inuse.blocks, inuse.bytes].map(|value| value.round().max(0.0) as i64);
        Some(Found { process_id: *process_id, api_id: None, stack_id: *stack_id, values: values.to_vec() })
    });
    found.collect()
}
