//! Collectives of ranks whose calls nobody tells, as in traces without NCCL's parameters: kernels that match one to one by their order.
//!
//! The n-th kernel of NCCL of a rank is taken for the same collective as the n-th of each other rank, if all ranks have as many, of
//! the same names in the same order, and each pair ends when the others do, as the kernels of one collective do.

use super::{Begin, Calls, Ran, Ranks};

/// So far from the usual difference of two ranks' clocks half of the ends may lie, of a kernel's usual time or in ns: whichever is more.
const ENDS: i64 = 10;
const ENDS_NS: i64 = 10_000;
/// Fewer kernels may match by chance.
const FEWEST: usize = 10;

/// A kernel, its launch by thread and begin, and its name.
type Launched = (Ran, (i32, i64), i64);

/// The calls of one communicator of all ranks that have kernels of NCCL, where these match.
pub(super) fn calls(ranks: &Ranks) -> Option<Calls> {
    let told = ranks.begins.iter().next().is_some() || ranks.others.iter().next().is_some() || !ranks.made.is_empty();
    let of: Vec<(i64, Vec<Launched>)> = match told {
        true => return None,
        false => {
            ranks.ran.iter().map(|(process, _)| Some((*process, launched(ranks, *process)?))).collect::<Option<_>>()?
        }
    };
    let mut of: Vec<_> = of.into_iter().filter(|(process, _)| ranks.clocks.get(*process).is_some()).collect();
    of.sort_by_key(|(process, _)| *process);
    let (first, others) =
        of.split_first().filter(|((_, kernels), others)| kernels.len() >= FEWEST && !others.is_empty())?;
    others.iter().all(|other| is_same(&first.1, &other.1)).then(|| {
        let begin = |(_, (tid, at), _): &Launched| Begin { start_ns: *at, api_ns: 1, tid: *tid, size: u32::MAX };
        of.iter().map(|(process, kernels)| (*process, kernels.iter().map(begin).collect())).collect()
    })
}

/// A process's kernels in their order; none where one has no launch, or a launch no kernel.
fn launched(ranks: &Ranks, process: i64) -> Option<Vec<Launched>> {
    let (launches, ran) = (ranks.launches.get(&process)?, ranks.ran.get(&process)?);
    let kernel = |(tid, at, call): &(i32, i64, i64)| {
        let ran = ran.get(ran.partition_point(|ran| ran.call < *call)).filter(|ran| ran.call == *call)?;
        Some((*ran, (*tid, *at), ran.name_id))
    };
    let mut all: Vec<Launched> = launches.iter().map(kernel).collect::<Option<_>>()?;
    all.sort_by_key(|(ran, at, _)| (ran.start_ns, *at));
    (all.len() == ran.len()).then_some(all)
}

fn is_same(one: &[Launched], other: &[Launched]) -> bool {
    if one.len() != other.len() || one.iter().zip(other).any(|(a, b)| a.2 != b.2) {
        return false;
    }
    let apart: Vec<i64> = one.iter().zip(other).map(|(a, b)| b.0.end_ns() - a.0.end_ns()).collect();
    let ahead_ns = middle(apart.clone());
    let beside_ns = middle(apart.iter().map(|ns| (ns - ahead_ns).abs()).collect());
    let usual_ns = middle(one.iter().chain(other).map(|(ran, ..)| ran.gpu_ns).collect());
    beside_ns <= (usual_ns / ENDS).max(ENDS_NS)
}

/// The middle one.
fn middle(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
