//! Launches without a kernel in the file: those that were captured into a graph, whose capture the calls tell, and the others, which
//! are counted: what the GPU did is not all there.

use rustc_hash::FxHashMap;

use super::calls::Kind;
use super::gathered::Gathered;
use super::join::Joined;
use crate::render::number;

/// Marks the launches that were captured, and says how many others have no kernel. Calls are in the order of time.
pub(super) fn judge(found: &mut Gathered, joined: &mut [Joined]) {
    // Of a capture all threads' launches may be part: PyTorch's backward pass has a thread of its own.
    let mut captures: FxHashMap<usize, u32> = FxHashMap::default();
    let (mut launches, mut without) = (0_u64, 0_u64);
    for (call, joined) in found.calls.iter().zip(joined) {
        let caller = found.callers.get(call.caller);
        match caller.kind {
            Kind::Api => {
                let name = found.name_of(caller.api_id);
                let open = captures.entry(caller.process).or_default();
                if name.contains("StreamBeginCapture") {
                    *open += 1;
                } else if name.contains("StreamEndCapture") {
                    *open = open.saturating_sub(1);
                }
            }
            Kind::Launch if joined.kernels > 0 => launches += 1,
            Kind::Launch if captures.get(&caller.process).is_some_and(|open| *open > 0) => joined.captured = true,
            Kind::Launch if caller.result == 0 => {
                launches += 1;
                without += 1;
            }
            _ => {}
        }
    }
    if without > 0 && !(found.kernels.is_empty() && found.copies.is_empty()) {
        let (without, launches) = (number(without as f64), number(launches as f64));
        found.notes.push(format!("{without} of {launches} launches have no kernel in the file"));
    }
}
