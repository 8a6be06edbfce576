//! Launches beside what they launched: the part of launch-overhead that needs GPU times.

use super::passes::gpu::{Gpu, OfLaunch};
use super::passes::stats::Stats;
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Facts, targets};

fn known<'a>(facts: &'a Facts<'_>) -> Option<&'a Gpu> {
    facts.gpu.as_ref().filter(|gpu| gpu.launched.kernels.iter().next().is_some())
}

/// Launch efficiency, queue time, short and delayed kernels.
pub(super) fn facts_of(section: &mut Section, facts: &Facts<'_>) {
    let Some(gpu) = known(facts) else { return };
    let of = |each: &dyn Fn(&OfLaunch) -> u64| gpu.launched.kernels.iter().map(|(_, of)| each(of)).sum::<u64>();
    let all = of(&|of| of.kernel.count);
    let mut queue = Stats::default();
    gpu.launched.kernels.iter().for_each(|(_, of)| queue.merge(&of.queue));
    let short = of(&|of| of.short);
    let efficiency = targets::launch_efficiency(facts);
    section.fact("efficiency_percent", "launch efficiency (GPU busy / wall)", Unit::Percent, efficiency);
    section.fact("joined_kernels", "kernels joined with their launch", Unit::Count, all);
    section.fact("queue_med_ns", "median queue time", Unit::Ns, (queue.count > 0).then(|| queue.median()));
    section.fact("short_kernels", "short kernels", Unit::Count, short);
    section.fact("short_percent", "of all kernels", Unit::Percent, percent(short as f64, all as f64));
    section.fact("delayed_100us", "delayed over 100 us", Unit::Count, of(&|of| of.delayed));
}

/// A, Q, K and T by kernel, most total time first.
pub(super) fn table(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 13] = [
        column("process", "Process", Unit::Text),
        column("kernel", "Kernel", Unit::Name),
        column("calls", "Kernels", Unit::Count),
        column("api_med_ns", "A med", Unit::Ns),
        column("queue_med_ns", "Q med", Unit::Ns),
        column("kernel_med_ns", "K med", Unit::Ns),
        column("total_med_ns", "T med", Unit::Ns),
        column("kernel_total_ns", "K total", Unit::Ns),
        column("api_total_ns", "A total", Unit::Ns),
        column("queue_total_ns", "Q total", Unit::Ns),
        column("not_queued", "No Q", Unit::Count),
        column("short", "Short", Unit::Count),
        column("api", "Function", Unit::Name),
    ];
    let mut all: Vec<_> = known(facts).into_iter().flat_map(|gpu| gpu.launched.kernels.iter()).collect();
    all.sort_by_key(|(key, of)| (std::cmp::Reverse(of.total.sum), facts.place(key.0), **key));
    let row = |((process_id, api_id, name_id), of): (&(i64, i64, i64), &OfLaunch)| {
        vec![
            facts.label(*process_id).into(),
            facts.names.full(*name_id).into(),
            of.kernel.count.into(),
            of.api.median().into(),
            (of.queue.count > 0).then(|| of.queue.median()).into(),
            of.kernel.median().into(),
            of.total.median().into(),
            of.kernel.sum.into(),
            of.api.sum.into(),
            of.queue.sum.into(),
            of.no_queue.into(),
            of.short.into(),
            facts.names.full(*api_id).into(),
        ]
    };
    let title = "By kernel: API time A, queue time Q, kernel K, total T";
    Table::new("executions", title, &COLUMNS, all.into_iter().map(row).collect())
}
