//! launch-overhead: what giving work to the GPU costs the host.

use std::hash::Hash;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::passes::launches::OUTLIER_NS;
use super::passes::stats::Stats;
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, executions, graphs, sites};
use crate::trace::NO_NAME;

/// The analysis.
pub(crate) struct LaunchOverhead;

/// The columns of Nsight Systems' `cuda_api_sum`, after the ones that name the row.
pub(crate) const TIMES: [Column; 8] = [
    column("time_percent", "Time %", Unit::Percent),
    column("total_ns", "Total", Unit::Ns),
    column("calls", "Calls", Unit::Count),
    column("avg_ns", "Avg", Unit::Ns),
    column("med_ns", "Med", Unit::Ns),
    column("min_ns", "Min", Unit::Ns),
    column("max_ns", "Max", Unit::Ns),
    column("stddev_ns", "StdDev", Unit::Ns),
];

/// The values of [`TIMES`]; `whole_ns` is what Time % refers to.
pub(crate) fn times(stats: &Stats, whole_ns: f64) -> [Value; 8] {
    [
        percent(stats.sum as f64, whole_ns),
        stats.sum.into(),
        stats.count.into(),
        stats.mean().into(),
        stats.median().into(),
        stats.min.into(),
        stats.max.into(),
        stats.deviation().into(),
    ]
}

impl Analysis for LaunchOverhead {
    fn name(&self) -> &'static str {
        "launch-overhead"
    }

    fn title(&self) -> &'static str {
        "Launch overhead"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "A launch is a call of class launch: a kernel, a graph or a host function; of Metal the commit of a command buffer, \
                whose kernels are its dispatches (encoding it is told apart; --explain dispatches). API time is the time \
                inside the driver's function, from before the call to after its return. Launch overhead is the sum of API \
                time over the launching threads / wall time of the process. Per thread, per function and per kernel: Time % \
                (of all launches), Total, Calls, Avg, Med, Min, Max, StdDev as in cuda_api_sum. Outliers are calls longer \
                than 50 us. Kernels are what the launches gave the GPU: one each, none for a host function or under capture, and for a \
                graph its kernel nodes that are switched on, those of child graphs too; per step over the steady steps of usual \
                duration. Launches under stream capture are counted, and named: they build a graph. By line: about one launch \
                in 1,000 (--launch-stacks), drawn at random, has a stack, and stands for as many; others have one because they \
                took long or followed a pause of 200 us of their thread. Where GPU times are in the trace, launches are joined with their kernels by \
                correlation id: A is the API time, Q the time from the end of the call to the begin of the kernel where that is \
                not negative (else the kernel is counted as not queued), K the time of the kernel, T = max(end of call, end of \
                kernel) - begin of call. Launch efficiency is the GPUs' busy time / wall time, of each GPU that in which any process that uses it ran. Short kernels are \
                shorter than their own launch call of at most 50 us; delayed ones begin more than 100 us after it returned.",
            unit: "ns in JSON; in text the column's head names the unit. Rates are launches per second.",
            limits: "Medians are exact up to 64 values, else within 1.6 % (log-linear histogram, 32 buckets per power of \
                two). Queue and kernel time are known where the trace has GPU times. A graph's call counts with each of its kernels in A. \
                Kernels in the bodies of a graph's conditional nodes run as often as the device decides, and are in no \
                count; graphs that the device launches neither. A launch that blocks on a full queue counts as launch time. \
                Of Metal the tables by process count the time of encoding as launching too. Where launches were left out for \
                --budget those that were drawn count for the others (launches.stands_for): numbers and times are estimates, but for what is joined with kernels and \
                for the longest calls. With --range there is no launch efficiency: work may outlast the range that launched it.",
            source: "Nsight Systems cuda_api_sum and cuda_kern_exec_sum (A, Q, K, T); outliers, short kernels and delays: HTA's \
                50 us, 50 us and 100 us; launch efficiency: users' guides take over 70 % as good.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Launches, Need::Sites, Need::Launched, Need::GpuClock, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("launches", Count, "launch calls of the run").sums(&[TableId::Launches]).of_launches(),
            Metric::about("kernels", Count, "kernels that the launches gave the GPU")
                .sums(&[TableId::Launches])
                .of_launches(),
            Metric::about("graph_launches", Count, "launches of CUDA graphs").sums(&[TableId::Launches]),
            Metric::about("unknown_graph_launches", Count, "launches of graphs whose kernels are not known")
                .sums(&[TableId::Launches]),
            Metric::about("total_ns", Ns, "time in launch calls, over all threads")
                .sums(&[TableId::Launches])
                .of_launches(),
            Metric::cost("wall_percent", Percent, "time in launch calls, of wall time")
                .sums(&[TableId::Launches])
                .unsteady()
                .of_launches(),
            Metric::cost("med_ns", Ns, "median launch call"),
            Metric::cost("p99_ns", Ns, "99th percentile of the launch calls").unsteady(),
            Metric::about("outliers_50us", Count, "launch calls longer than 50 us")
                .sums(&[TableId::Launches])
                .of_launches(),
            Metric::about("outliers_ns", Ns, "time in launch calls longer than 50 us")
                .sums(&[TableId::Launches])
                .of_launches(),
            Metric::use_of("efficiency_percent", Percent, "time in which the GPU worked, of wall time")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .unsteady(),
            Metric::about("joined_kernels", Count, "kernels that were joined with their launch")
                .sums(&[TableId::Kernels, TableId::Launches])
                .of_launches(),
            Metric::about("queue_med_ns", Ns, "median time from the end of a launch call to its kernel"),
            Metric::about("short_kernels", Count, "kernels shorter than their launch call of 50 us at most")
                .sums(&[TableId::Kernels, TableId::Launches]),
            Metric::cost("short_percent", Percent, "the same, of all kernels").unsteady(),
            Metric::about("delayed_100us", Count, "kernels that began more than 100 us after their call returned")
                .sums(&[TableId::Kernels, TableId::Launches]),
            Metric::about("encode_ns", Ns, "time in messages that encode Metal command buffers, over all threads")
                .sums(&[TableId::CommandBuffers]),
            Metric::about("captured", Count, "launch calls under stream capture").sums(&[TableId::Launches]),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let launches = &facts.launches;
        let mut all = Stats::default();
        launches.calls.iter().for_each(|(_, stats)| all.merge(stats));
        if all.count == 0 {
            let removed = super::loss::is_removed(facts.trace, &[TableId::Launches]);
            section.note(if removed { "No launches are left in this trace." } else { "No launches in this trace." });
            super::loss::note(&mut section, facts, "launches", TableId::Launches);
            return section;
        }
        let sum = |of: fn(&super::passes::launches::ProcessLaunches) -> i64| -> i64 {
            launches.processes.iter().map(|(_, p)| of(p)).sum()
        };
        let wall: f64 = launches.processes.iter().map(|(id, _)| facts.wall_ns(*id)).sum();
        let outliers = sum(|p| p.outliers as i64);
        section.fact("launches", "launches", Unit::Count, all.count);
        graphs::facts_of(&mut section, facts);
        section.fact("total_ns", "time in launch calls", Unit::Ns, all.sum);
        section.fact("wall_percent", "share of wall time", Unit::Percent, percent(all.sum as f64, wall));
        section.fact("med_ns", "median call", Unit::Ns, all.median());
        section.fact("p99_ns", "99th percentile", Unit::Ns, all.quantile(0.99));
        section.fact("outliers_50us", "outliers (> 50 us)", Unit::Count, outliers);
        section.fact("outliers_ns", "time in outliers", Unit::Ns, sum(|p| p.outliers_ns));
        let encoding = Some(facts.metal.encode_ns()).filter(|ns| *ns > 0);
        section.rare_fact("encode_ns", "time in encoding command buffers", Unit::Ns, encoding);
        section.fact("captured", "under stream capture", Unit::Count, sum(|p| p.captured as i64));
        executions::facts_of(&mut section, facts);
        super::gpu::unread_note(&mut section, facts);
        super::gpu_clock::note(&mut section, facts);
        super::unmatched::note_of_rest(&mut section, facts);
        super::uncalled::note(&mut section, facts);
        sites::launch_table(&mut section, facts);
        section.table(by_process(facts));
        section.table(by_thread(facts, all.sum as f64));
        section.table(by_api(facts, all.sum as f64));
        section.table(by_kernel(facts, all.sum as f64));
        graphs::table(&mut section, facts, all.sum as f64);
        section.table(executions::table(facts));
        section.table(longest(facts));
        super::loss::note(&mut section, facts, "launches", TableId::Launches);
        section
    }
}

fn by_process(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("launches", "Launches", Unit::Count),
        column("kernels", "Kernels", Unit::Count),
        column("kernels_per_step", "Kernels per step", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
        column("rate_per_s", "Rate", Unit::PerS),
        column("peak_per_s", "Peak rate", Unit::PerS),
        column("steady_med_ns", "Med steady", Unit::Ns),
    ];
    let row = |(id, p): (&i64, &super::passes::launches::ProcessLaunches)| {
        let of = facts.host.processes.get(id).map_or(0, |t| t.all.ns(super::Part::Launch)) as f64;
        let span_s = (p.span_ns.1 - p.span_ns.0) as f64 / 1e9;
        let rate = (span_s > 0.0).then(|| p.count as f64 / span_s);
        // A run shorter than the bins of the rate has its mean as its peak.
        let peak = p.rate.peak_per_s().0.max(rate.unwrap_or(0.0));
        vec![
            facts.label(*id).into(),
            p.count.into(),
            p.kernels.all.into(),
            graphs::per_step(facts, *id, &p.kernels),
            of.into(),
            percent(of, facts.wall_ns(*id)),
            rate.into(),
            peak.into(),
            p.steady.median().into(),
        ]
    };
    let mut processes: Vec<_> = facts.launches.processes.iter().collect();
    processes.sort_by_key(|(id, p)| (std::cmp::Reverse(p.count), facts.place(**id)));
    Table::new("by_process", "By process", &COLUMNS, processes.into_iter().map(row).collect())
}

/// The calls summed by a part of their key, most time first.
fn summed<K: Hash + Ord + Copy>(
    facts: &Facts<'_>,
    part: impl Fn(&(i64, i32, i64)) -> K,
    process: impl Fn(&K) -> i64,
) -> Vec<(K, Stats)> {
    let mut sums: FxHashMap<K, Stats> = FxHashMap::default();
    for (key, stats) in facts.launches.calls.iter() {
        sums.entry(part(key)).or_default().merge(stats);
    }
    let mut sums: Vec<(K, Stats)> = sums.into_iter().collect();
    sums.sort_by_key(|(key, stats)| (std::cmp::Reverse(stats.sum), facts.place(process(key)), *key));
    sums
}

fn by_thread(facts: &Facts<'_>, whole: f64) -> Table {
    let names = [column("process", "Process", Unit::Text), column("tid", "Thread", Unit::Text)];
    let row = |((process, tid), stats): &((i64, i32), Stats)| {
        let mut row = vec![facts.label(*process).into(), tid.to_string().into()];
        row.extend(times(stats, whole));
        row
    };
    let columns: Vec<Column> = names.into_iter().chain(TIMES).collect();
    let threads = summed(facts, |(process, tid, _)| (*process, *tid), |key| key.0);
    Table::new("by_thread", "By thread", &columns, threads.iter().map(row).collect())
}

fn by_api(facts: &Facts<'_>, whole: f64) -> Table {
    let names = [column("process", "Process", Unit::Text), column("api", "Function", Unit::Name)];
    let row = |((process, api), stats): &((i64, i64), Stats)| {
        let mut row = vec![facts.label(*process).into(), facts.names.full(*api).into()];
        row.extend(times(stats, whole));
        row
    };
    let columns: Vec<Column> = names.into_iter().chain(TIMES).collect();
    let apis = summed(facts, |(process, _, api)| (*process, *api), |key| key.0);
    Table::new("by_api", "By function", &columns, apis.iter().map(row).collect())
}

fn by_kernel(facts: &Facts<'_>, whole: f64) -> Table {
    let mut kernels: Vec<_> = facts.launches.kernels.iter().collect();
    kernels.sort_by_key(|(key, stats)| (std::cmp::Reverse(stats.sum), **key));
    let row = |((api, name), stats): (&(i64, i64), &Stats)| {
        let api = facts.names.full(*api);
        let kernel = match () {
            () if *name != NO_NAME => facts.names.full(*name),
            () if api.contains("GraphLaunch") => "(a graph)".to_owned(),
            () if api.contains("HostFunc") => "(a host function)".to_owned(),
            () => facts.names.full(*name),
        };
        let mut row = vec![kernel.into(), api.into()];
        row.extend(times(stats, whole));
        row
    };
    let names = [column("kernel", "Kernel", Unit::Name), column("api", "Function", Unit::Name)];
    let columns: Vec<Column> = names.into_iter().chain(TIMES).collect();
    Table::new("by_kernel", "By kernel", &columns, kernels.into_iter().map(row).collect())
}

fn longest(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 6] = [
        column("api_ns", "Time", Unit::Ns),
        column("after_ns", "After", Unit::Ns),
        column("process", "Process", Unit::Text),
        column("tid", "Thread", Unit::Text),
        column("api", "Function", Unit::Name),
        column("kernel", "Kernel", Unit::Name),
    ];
    debug_assert!(facts.launches.longest.iter().all(|o| o.api_ns > OUTLIER_NS));
    let row = |o: &super::passes::launches::Outlier| {
        let began = facts.host.processes.get(&o.process_id).map_or(o.start_ns, |t| t.span_ns.0);
        vec![
            o.api_ns.into(),
            (o.start_ns - began).into(),
            facts.label(o.process_id).into(),
            o.tid.to_string().into(),
            facts.names.full(o.api_id).into(),
            facts.names.full(o.name_id).into(),
        ]
    };
    let title = "Longest outliers (After: since the process's first driver call)";
    Table::new("longest", title, &COLUMNS, facts.launches.longest.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn calls_are_summed_by_thread_function_and_kernel() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..3 {
            thread.launch("_Z4gemmPf", 2_000);
        }
        thread.launch("relu", 60_000);
        trace.thread(1, 12).launch("relu", 4_000);
        let section = trace.section(&LaunchOverhead);
        assert_eq!(section.get("launches"), &Value::Int(5));
        assert_eq!(section.get("total_ns"), &Value::Int(70_000));
        assert_eq!(section.get("wall_percent"), &Value::Num(7.0));
        assert_eq!((section.get("outliers_50us"), section.get("outliers_ns")), (&Value::Int(1), &Value::Int(60_000)));
        assert_eq!(section.cell("by_process", 0, "peak_per_s"), section.cell("by_process", 0, "rate_per_s"));
        assert_eq!(section.cell("by_thread", 0, "tid"), &Value::from("11"));
        assert_eq!(section.cell("by_thread", 1, "total_ns"), &Value::Int(4_000));
        assert_eq!(section.cell("by_api", 0, "calls"), &Value::Int(5));
        assert_eq!(section.cell("by_kernel", 0, "kernel"), &Value::from("relu"));
        assert_eq!(section.cell("by_kernel", 1, "kernel"), &Value::from("gemm"));
        assert_eq!(section.cell("by_kernel", 1, "med_ns"), &Value::Int(2_000));
        assert_eq!(section.cell("longest", 0, "api_ns"), &Value::Int(60_000));
        assert_eq!(section.cell("longest", 0, "after_ns"), &Value::Int(6_000));
    }

    #[test]
    fn a_trace_without_launches_says_so() {
        let section = TestTrace::new().section(&LaunchOverhead);
        assert_eq!(section.notes, ["No launches in this trace."]);
    }
}
