//! Finds the hosts that run ahead of their GPUs, before the read of everything else, and times their steps by the GPU.
//!
//! It takes a read of all launches and kernels ([`GpuSteps`]), which is made only where something speaks for it: the host's
//! steps are uneven, or the GPU is at work long after the last of them.

use gputrace_collectors::schema::TableId;

use super::Pass;
use super::gpu_steps::GpuSteps;
use super::steps::{ProcessSteps, Steps};
use crate::trace::{Filter, Trace, Want};

/// The host runs ahead where the GPU's steps take so much longer than the host's, in the median; where the host's are uneven,
/// for it waits in some of them, less is enough.
const LONGER: f64 = 1.05;
const LONGER_THAN_UNEVEN: f64 = 1.02;
/// Mean and median of even steps differ by no more than this share of the median.
const UNEVEN: f64 = 0.2;
/// The GPU may work so many steps longer than the host.
const LATE: f64 = 2.0;
/// Steps of whose work on the GPU nothing is known would take no time there: of so large a part of them it must be known.
const KNOWN: f64 = 0.95;

/// The steps, timed by the GPU where the host runs ahead of it; in a process that in the median does not, where it does so of
/// the steps `chosen`: what the GPU did for them came later.
pub(crate) fn timed(trace: &Trace, filter: &Filter, steps: Steps, chosen: Option<(usize, usize)>) -> Steps {
    if chosen.is_none() && !steps.all.iter().any(uneven) && !late(trace, filter, &steps) {
        return steps;
    }
    let mut on_gpu = GpuSteps::default();
    trace.scan(on_gpu.wants(), filter, &mut |rows| on_gpu.rows(rows, &steps));
    on_gpu.end(&steps);
    let boundaries = on_gpu.ahead(&steps, |host, gpu| {
        let longer = if uneven(host) { LONGER_THAN_UNEVEN } else { LONGER };
        if (gpu.spans_ns.len() as f64) < KNOWN * host.sorted_ns.len() as f64 {
            return false;
        }
        let gpu_ns = gpu.quantile_ns(0.5) as f64;
        let limit_ns = LATE * gpu_ns;
        gpu_ns > longer * host.host_p50_ns() as f64
            || chosen.and_then(|(_, last)| gpu.late_ns(host, last)).is_some_and(|late| late as f64 > limit_ns)
    });
    steps.ahead(boundaries)
}

fn uneven(steps: &ProcessSteps) -> bool {
    let median = steps.quantile_ns(0.5) as f64;
    (steps.mean_ns() - median).abs() > UNEVEN * median
}

/// Whether any kernel begins long after the last step of its process.
fn late(trace: &Trace, filter: &Filter, steps: &Steps) -> bool {
    let limit = |steps: &ProcessSteps| steps.host_end_ns().saturating_add((LATE * steps.mean_ns()) as i64);
    let Some(from) = steps.all.iter().map(limit).min() else { return false };
    let from_ns = Some(filter.from_ns.map_or(from, |own| own.max(from)));
    let after = Filter { from_ns, ..filter.clone() };
    let mut found = false;
    trace.scan(&[Want { table: TableId::Kernels, columns: &[] }], &after, &mut |rows| {
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        let mut rows = process.iter().zip(start.iter());
        found |= rows.any(|(process, start)| steps.of(*process).is_some_and(|steps| *start >= limit(steps)));
    });
    found
}
