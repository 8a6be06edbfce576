//! What a record says of the work itself: a kernel with what it takes of its device, a copy or a set.

use gputrace_abi::event::{unpack_block, unpack_grid};
use gputrace_abi::gpu::{Work, kind};

use crate::names::Written;
use crate::occupancy::{Fit, Limits};
use crate::tables::{Copies, End, Kernel, Worked};

/// `queue_ns`: from the end of its call to its begin; `limits`: those of its device, where they are known.
pub(super) fn worked(work: &Work, queue_ns: Option<i64>, limits: Option<&'static Limits>, written: &Written) -> Worked {
    if work.kind == kind::KERNEL {
        let (block, shared) = unpack_block(work.block);
        let resources = [work.registers, work.static_shared, shared];
        return Worked::Kernel(Kernel {
            name_id: written.by_key(work.amount),
            grid: unpack_grid(work.grid),
            block,
            resources: Some(resources),
            queue_ns,
            fit: limits.and_then(|limits| fit(limits, block, resources)),
        });
    }
    let [_, source, destination] = work.copy.map(end);
    let bytes = work.amount.min(i64::MAX as u64) as i64;
    Worked::Copies(Copies::one(work.kind == kind::SET, work.kind == kind::PEER, [source, destination], bytes))
}

fn fit(limits: &Limits, block: [u32; 3], [registers, fixed, dynamic]: [u32; 3]) -> Option<Fit> {
    let threads = block.iter().fold(1i64, |threads, axis| threads.saturating_mul(i64::from(*axis)));
    if threads == 0 {
        return None;
    }
    limits.fit(threads, Some(registers.into()), Some(i64::from(fixed) + i64::from(dynamic)))
}

/// CUpti_ActivityMemoryKind.
fn end(kind: u8) -> End {
    match kind {
        1 => End::Pageable,
        2 => End::Pinned,
        3 | 6 => End::Device,
        4 => End::Array,
        5 | 7 => End::Managed,
        _ => End::Unknown,
    }
}
