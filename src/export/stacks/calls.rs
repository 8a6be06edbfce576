//! Driver calls, and what they waited: count and time. A stack ends with the caller, below which the called function is put.
//!
//! **Waits** are those of the analysis `syncs`: the whole of a call that does nothing but wait, and of copies, sets, frees and allocations what was
//! waiting. Of every wait the time is there, with or without a stack. Waits for the operating system are a kind of their own: a thread that has
//! nothing to do waits as long as the run takes, beside which nothing else would be seen.

use std::collections::BTreeMap;

use super::Found;
use crate::analysis::{Facts, What};

/// Waits of the host for the GPU.
pub(super) fn waits(facts: &Facts<'_>) -> Vec<Found> {
    costs(facts, &[What::Wait, What::Hidden])
}

/// Waits of all threads for the operating system.
pub(super) fn os_waits(facts: &Facts<'_>) -> Vec<Found> {
    costs(facts, &[What::System, What::Helper])
}

/// Calls that have a stack, or were drawn to stand for others.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Found> {
    let calls = facts.calls.iter();
    calls.map(|(key, sum)| found((key.process_id, key.api_id, key.stack_id), [sum.count, sum.ns])).collect()
}

/// What cost time with one of `what`, whatever the direction of a copy.
fn costs(facts: &Facts<'_>, what: &[What]) -> Vec<Found> {
    let mut sums: BTreeMap<(i64, i64, i64), [i64; 2]> = BTreeMap::new();
    for (key, cost) in facts.sites.costs.iter().filter(|(key, _)| what.contains(&key.what)) {
        let [count, ns] = sums.entry((key.process_id, key.api_id, key.stack_id)).or_default();
        *count = count.saturating_add(cost.all.count as i64);
        *ns = ns.saturating_add(cost.all.sum);
    }
    sums.into_iter().map(|(key, values)| found(key, values)).collect()
}

fn found((process_id, api_id, stack_id): (i64, i64, i64), values: [i64; 2]) -> Found {
    Found { process_id, api_id: Some(api_id), stack_id, values: values.to_vec() }
}
