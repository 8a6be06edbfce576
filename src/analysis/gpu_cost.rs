//! What recording the GPU's times cost the program and the GPU, about, as far as the cost of recording leaves it out: tables of `self`.
//!
//! Nothing in the process measures what CUPTI takes of a run that has it all the time, nor what the GPU loses to records and events: here are
//! their numbers times prices that were measured once (docs/benchmarks.md), or in the run, where it says so.

use gputrace_abi::sample::PAIR_NS;
use gputrace_abi::windows::IDLE_NS;
use gputrace_collectors::manifest::GpuTime;

use super::Facts;
use super::section::{Column, Table, Unit, Value, column, percent};

/// What a record of CUPTI takes of the launching thread, and of the GPU, ns: an H200 with CUDA 13.
const RECORD_NS: f64 = 600.0;
const RECORD_GPU_NS: f64 = 250.0;

/// Overhead that there would not be without CUPTI; the rest is the driver's own.
pub(super) const OF_CUPTI: [&str; 5] = ["buffer_flush", "buffer_request", "instrumentation", "memory_init", "resource"];

/// What CUPTI takes of the host of a process in which it is at work for the whole run, ns: an estimate, for nothing in the process measures
/// it. None: it is not, and what its windows take is measured.
pub(super) fn whole_run_ns(about: &GpuTime) -> Option<f64> {
    (about.budget.is_none() && about.windows > 0).then_some(about.records as f64 * RECORD_NS)
}

/// The table.
pub(super) fn table(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 7] = [
        column("process", "Process", Unit::Text),
        column("how", "GPU times by", Unit::Text),
        column("count", "Records", Unit::Count),
        column("host_ns", "Host, each", Unit::Ns),
        column("host_percent", "Of wall", Unit::Percent),
        column("gpu_ns", "GPU, each", Unit::Ns),
        column("gpu_percent", "Of wall (GPU)", Unit::Percent),
    ];
    let mut rows = Vec::new();
    for process in facts.processes() {
        let Some(about) = process.manifest.as_ref().and_then(|about| about.gpu_time.as_ref()) else { continue };
        let wall = facts.whole_wall_ns(process.process_id);
        for (how, count, host_ns, gpu_ns) in prices(about) {
            let of_wall = |ns: f64| percent(count as f64 * ns, wall);
            rows.push(vec![
                facts.label(process.process_id).into(),
                how.into(),
                count.into(),
                host_ns.into(),
                host_ns.map_or(Value::Missing, of_wall),
                gpu_ns.into(),
                of_wall(gpu_ns),
            ]);
        }
    }
    Table::new("gpu_times", "What the GPU's times cost, about", &COLUMNS, rows)
}

/// What CUPTI tells that it took, and what the driver did, while its records were on.
pub(super) fn overhead(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 6] = [
        column("process", "Process", Unit::Text),
        column("what", "Overhead", Unit::Text),
        column("whose", "Of", Unit::Text),
        column("count", "Times", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
    ];
    let mut all: Vec<_> = facts.activities.of("overhead").collect();
    all.sort_by_key(|(key, sum)| (std::cmp::Reverse(sum.ns), &key.what, key.process_id));
    let rows = all.into_iter().map(|(key, sum)| {
        vec![
            facts.label(key.process_id).into(),
            key.what.as_str().into(),
            if OF_CUPTI.contains(&key.what.as_str()) { "CUPTI" } else { "the driver" }.into(),
            sum.count.into(),
            sum.ns.into(),
            percent(sum.ns as f64, facts.whole_wall_ns(key.process_id)),
        ]
    });
    Table::new("overhead", "Overhead, as CUPTI tells it, while records were on", &COLUMNS, rows.collect())
}

/// How they were recorded, how many, and what each takes of the host and of the GPU.
fn prices(about: &GpuTime) -> Vec<(&'static str, u64, Option<f64>, f64)> {
    let measured = about.budget.as_ref().and_then(|budget| budget.host_ns);
    let records = (about.records > 0).then_some(match measured {
        Some(ns) => ("CUPTI, the host's part as measured", about.records, Some(ns), RECORD_GPU_NS),
        None => ("CUPTI, as on an H200", about.records, Some(RECORD_NS), RECORD_GPU_NS),
    });
    let events = about.events.as_ref().filter(|events| events.timed > 0);
    let events = events.map(|events| {
        let host_ns = PAIR_NS.saturating_sub(events.pair_ns) as f64;
        ("events, 8 us each, the GPU's part as measured", events.timed, Some(host_ns), events.pair_ns as f64)
    });
    let attached = about.budget.as_ref().map_or(0, |budget| budget.attached_launches);
    let attached =
        (attached > 0).then_some(("CUPTI between windows, as on an H200", attached, Some(IDLE_NS as f64), 0.0));
    records.into_iter().chain(attached).chain(events).collect()
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::{Budget, GpuTime, TimedLaunches};

    use crate::analysis::{ALL, Value};
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn each_way_of_recording_has_its_price() {
        let measured = Budget { host_ns: Some(900.0), ..Budget::default() };
        let events = TimedLaunches { timed: 1000, pair_ns: 2_000, ..TimedLaunches::default() };
        let cases = [
            (GpuTime { records: 10_000, ..GpuTime::default() }, Value::Num(0.6), 0.25),
            (GpuTime { records: 10_000, budget: Some(measured), ..GpuTime::default() }, Value::Num(0.9), 0.25),
            (
                GpuTime {
                    budget: Some(Budget { attached_launches: 2_000, ..Budget::default() }),
                    ..GpuTime::default()
                },
                Value::Num(0.1),
                0.0,
            ),
            (GpuTime { events: Some(events), ..GpuTime::default() }, Value::Num(0.6), 0.2),
        ];
        for (about, host, gpu) in cases {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000_000);
            trace.manifest.as_mut().expect("a manifest").processes[0].gpu_time = Some(about);
            let itself = ALL.iter().find(|analysis| analysis.name() == "self").expect("an analysis");
            let section = trace.section(*itself);
            assert_eq!(section.cell("gpu_times", 0, "host_percent"), &host);
            assert_eq!(section.cell("gpu_times", 0, "gpu_percent"), &Value::Num(gpu));
        }
    }
}
