//! The gain of a job whose ranks wait for each other at collectives: that of the rank that gains least.
//!
//! Each rank is replayed by itself, with NCCL's kernels as long as they took, waiting for others included. So a rank that works
//! less would come earlier to its collectives and wait there for so much longer: its steps get no shorter than those of the rank that it waits
//! for. A collective is over on all ranks at once, hence steps of ranks have one mean length, and no rank's can fall below its own work: what is left
//! of it when the work in question is gone, on all ranks, and nobody waits for others any more. The least of what
//! the ranks gain so is the most that the job can gain.

use super::Subject;
use crate::analysis::{Class, Without};

/// Ranks whose steps differ more in their length are of different jobs, or what their steps are was found in other ways.
const ALIKE: f64 = 0.1;

/// How much shorter a process's unit would be without some work, on all ranks of its job, ns; none where the trace does not tell.
pub(super) fn shorter_ns(subjects: &[Subject<'_>], own: &Subject<'_>, without: Without) -> Option<f64> {
    let alone = own.shorter_ns(without)?;
    let is_rank = |subject: &Subject<'_>| subject.facts.ranks.late.contains_key(&subject.process_id);
    if !is_rank(own) {
        return Some(alone);
    }
    let others = subjects.iter().filter(|other| other.process_id != own.process_id && is_rank(other));
    let alike = others
        .filter(|other| other.per_step == own.per_step && (other.unit_ns - own.unit_ns).abs() <= ALIKE * own.unit_ns);
    Some(alike.filter_map(|other| without_waiting_ns(other, without)).fold(alone, f64::min))
}

/// The same of one rank that does not wait for others any more: what it waits now goes, and no more of NCCL's kernels than all.
fn without_waiting_ns(rank: &Subject<'_>, without: Without) -> Option<f64> {
    let without_any = rank.shorter_ns(without.and(Without::these(&[Class::Communication])))?;
    Some(without_any.min(rank.shorter_ns(without)? + rank.waited_ns))
}
