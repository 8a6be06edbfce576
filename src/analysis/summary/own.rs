//! What a trace says of itself: loss, coverage and cost of the tracing, from the manifests.

use crate::analysis::{Facts, gpu_cost};

/// What the trace says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Own {
    /// Whether a manifest says anything.
    pub(crate) known: bool,
    /// Calls that began.
    pub(crate) seen: u64,
    /// Events that found no room.
    pub(crate) dropped: u64,
    /// Time that recording took in the process where it took most, ns, and how long that process ran: shells that wait
    /// for it must not dilute its share. With what CUPTI takes, about, where it is at work for the whole run.
    pub(crate) cost_ns: Option<(f64, f64)>,
    /// What the GPU's times cost there, of it, and what recording may cost, in percent of the wall time.
    pub(crate) times_percent: Option<(f64, f64)>,
    /// What of it is CUPTI's in a process in which it is at work for the whole run, ns: an estimate.
    pub(crate) cupti_ns: Option<f64>,
    /// What of it threads waited for room in their rings, all added up, ns.
    pub(crate) waited_ns: f64,
    /// What recording may cost there, in percent of the wall time, where a budget was given, which does not bind CUPTI.
    pub(crate) budget_percent: Option<f64>,
    /// Driver functions of launch, copy, set, wait or allocation that were fetched and that no hook covers.
    pub(crate) uncovered: Vec<String>,
    /// Libraries whose own calls of the driver may be missing, each with how it was opened.
    pub(crate) past: Vec<String>,
    /// Ended processes whose calls are not all accounted for.
    pub(crate) unbalanced: usize,
    /// A collector was killed, had no room for its account, or is still at work: what there is is not all.
    pub(crate) incomplete: bool,
    /// And nobody knows what it saw.
    pub(crate) unaccounted: bool,
}

impl Own {
    pub(crate) fn of(facts: &Facts<'_>) -> Own {
        let mut own = Own::default();
        for manifest in facts.trace.manifests() {
            own.known = true;
            own.incomplete |= manifest.is_cut_short();
        }
        for process in facts.processes() {
            let Some(about) = &process.manifest else { continue };
            own.seen += about.accounting.values().map(|c| c.seen).sum::<u64>();
            own.dropped += about.accounting.values().map(|c| c.dropped).sum::<u64>();
            own.unbalanced += usize::from(!about.balanced && !about.running && about.traced && !own.incomplete);
            let wall = facts.whole_wall_ns(process.process_id);
            let cupti = about.gpu_time.as_ref().and_then(gpu_cost::whole_run_ns);
            let budget = about.gpu_time.as_ref().and_then(|gpu| gpu.budget.as_ref());
            let times = budget.and_then(|budget| {
                let more = [budget.attached_percent, budget.events_percent].into_iter().flatten().sum::<f64>();
                Some((budget.windows_percent? + more, budget.percent))
            });
            let with_times = |ns: f64| ns + times.map_or(0.0, |(percent, _)| percent / 100.0 * wall);
            let cost = about.cost.total_ns.map(|ns| with_times(ns) + cupti.unwrap_or(0.0));
            if let Some(ns) = cost.filter(|ns| wall > 0.0 && own.cost_ns.is_none_or(|(most, _)| *ns > most)) {
                (own.cost_ns, own.times_percent, own.cupti_ns) = (Some((ns, wall)), times, cupti);
                own.waited_ns = about.cost.waited_ns.unwrap_or(0.0);
                own.budget_percent = about.budget.as_ref().map(|budget| budget.percent);
            }
            let symbols = about.coverage.uncovered.iter().map(|s| s.symbol.as_str());
            own.uncovered.extend(symbols.filter(|s| matters(s)).map(str::to_owned));
            if about.coverage.inline.is_none() {
                let past = about.coverage.past_symbols.iter();
                own.past.extend(past.map(|past| format!("calls of {} ({})", past.library, past.how)));
            }
        }
        own.unaccounted = own.known && own.incomplete && own.seen == 0;
        own.past.sort_unstable();
        own.past.dedup();
        own.uncovered.sort_unstable();
        own.uncovered.dedup();
        own
    }
}

/// Whether a driver function launches, copies, sets, waits or allocates: then its calls are missed in the figures.
fn matters(symbol: &str) -> bool {
    const STARTS: [&str; 12] = [
        "cuGraphLaunch",
        "cuLaunch",
        "cuMemAlloc",
        "cuMemCreate",
        "cuMemFree",
        "cuMemHostAlloc",
        "cuMemHostRegister",
        "cuMemMap",
        "cuMemPrefetch",
        "cuMemRelease",
        "cuMemcpy",
        "cuMemset",
    ];
    STARTS.iter().any(|start| symbol.starts_with(start)) || symbol.starts_with("cu") && symbol.contains("Synchronize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_that_the_figures_miss_count_as_uncovered() {
        for symbol in ["cuLaunchGridAsync", "cuMemcpyBatchAsync_v3", "cuMemAllocFoo", "cuDevResourceSynchronizeX"] {
            assert!(matters(symbol), "{symbol}");
        }
        for symbol in ["cuDeviceGetName", "cuCtxGetFlags", "cuGraphAddNode", "cuMemGetInfo_v2"] {
            assert!(!matters(symbol), "{symbol}");
        }
    }
}
