//! The ranks of a run, and which of them is the slowest: one answer for every report.

use std::cmp::Reverse;

use super::passes::ranks::Late;
use super::{Facts, Part};
use crate::trace::Process;

/// One rank.
pub(crate) struct Rank<'a> {
    /// Its process.
    pub(crate) process: &'a Process,
    /// Median step; none without steps.
    pub(crate) p50_ns: Option<f64>,
    /// What the host did in a usual step beside waiting; in the run, where there are no steps.
    pub(crate) busy_ns: f64,
}

/// The busiest process of each rank, in their order; of one that several processes have that give a GPU work, each of these.
pub(crate) fn ranks<'a>(facts: &'a Facts<'_>) -> Vec<Rank<'a>> {
    let busy = facts.busy();
    let mut ranked: Vec<&Process> = facts.processes().filter(|process| process.rank.is_some()).collect();
    let place = |process: &Process| busy.iter().position(|(id, _)| *id == process.process_id).unwrap_or(usize::MAX);
    ranked.sort_by_key(|process| (process.rank, place(process), process.process_id));
    ranked.dedup_by(|later, first| later.rank == first.rank && later.apart.is_none());
    let rank = |process: &'a Process| {
        let id = process.process_id;
        let waits = facts.host.processes.get(&id).map_or(0, |time| time.shares_ns()[Part::Wait as usize]) as f64;
        match facts.steps.of(id).filter(|steps| steps.middle > 0) {
            Some(steps) => {
                let busy_ns = steps.middle_host_ns - waits / steps.middle as f64;
                Rank { process, p50_ns: Some(steps.quantile_ns(0.5) as f64), busy_ns }
            }
            None => Rank { process, p50_ns: None, busy_ns: facts.wall_ns(id) - waits },
        }
    };
    ranked.into_iter().map(rank).collect()
}

/// Steps that differ by less are equally long: ranks that wait for each other take the same time.
const ALIKE: f64 = 0.01;

/// The slowest rank's process, and how much longer its usual step is than the median rank's, as a share. It is the rank with the
/// longest step; of those that are as long, the one that keeps the others waiting longest, else the first.
pub(crate) fn slowest(facts: &Facts<'_>) -> Option<(i64, Option<f64>)> {
    let ranks = ranks(facts);
    let mut steps: Vec<f64> = ranks.iter().filter_map(|rank| rank.p50_ns).collect();
    steps.sort_by(f64::total_cmp);
    let longest = steps.last().copied().unwrap_or(0.0);
    let kept_ns = |rank: &Rank<'_>| facts.ranks.late.get(&rank.process.process_id).map_or(0, Late::behind_ns);
    let slow = ranks.iter().enumerate().filter(|(_, rank)| rank.p50_ns.unwrap_or(0.0) >= (1.0 - ALIKE) * longest);
    let p50_ns = |rank: &Rank<'_>| rank.p50_ns.map(|ns| ns as i64);
    let (_, slowest) = slow.max_by_key(|(place, rank)| (kept_ns(rank), p50_ns(rank), Reverse(*place)))?;
    // Without steps only who keeps others waiting is known to be slow.
    if ranks.len() < 2 || steps.is_empty() && kept_ns(slowest) == 0 {
        return None;
    }
    let median = steps.get(steps.len().saturating_sub(1) / 2).filter(|median| **median > 0.0);
    Some((slowest.process.process_id, slowest.p50_ns.zip(median).map(|(p50, median)| (p50 / median - 1.0).max(0.0))))
}
