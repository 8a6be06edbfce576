//! api: what every function of the driver, and of NCCL, cost the host.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::Hash;

use gputrace_collectors::results;
use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::launch_overhead::{TIMES, times};
use super::passes::api::{Failed, Key, Results};
use super::passes::stats::Stats;
use super::section::{Column, Section, Table, Unit, Value, column};
use super::sums::DRIVER;
use super::{Analysis, Explain, Facts, Metric, Need, loss};
use crate::trace::Site;

/// The analysis.
pub(crate) struct Api;

/// Tables of calls, and what losses of their events are called.
const TABLES: [(TableId, &str); 6] = [
    (TableId::Launches, "launches"),
    (TableId::Syncs, "waits and questions"),
    (TableId::Transfers, "copies and sets"),
    (TableId::DeviceMemory, "allocations and frees"),
    (TableId::Api, "other driver calls"),
    (TableId::Collectives, "calls of NCCL"),
];

impl Analysis for Api {
    fn name(&self) -> &'static str {
        "api"
    }

    fn title(&self) -> &'static str {
        "Calls of the driver"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "All recorded calls of the CUDA driver, of every class, messages to Metal, and calls of NCCL: per process and function, and \
                per thread, Time % (of the time in all driver calls), Total, Calls, Avg, Med, Min, Max and StdDev. The time \
                is from before the call to after its return. Calls that did not return 0 stand by function and result \
                with the name that the headers give it; NOT_READY and ncclInProgress are answers and not counted as \
                failed. Stays: every later call of the context fails as well, and what its first call asked for says little. First \
                at: the line of the first such call that has a stack. Functions that only ask or set a word are counted, not timed, and named apart.",
            unit: "ns in JSON; in text the column's head names the unit. Totals are over all threads, which may be in calls \
                at the same time.",
            limits: "The driver calls that a call of NCCL makes have rows of their own: NCCL's functions therefore have no \
                Time %. Functions of the runtime (cuda*) are seen as the driver calls that they make. Medians are exact up \
                to 64 values, else within 1.6 %. Calls counted only are of the whole run, whatever --from and --to leave. \
                20,000 rows are told apart.",
            source: "Nsight Systems cuda_api_sum; cuda.h (CUresult), nccl.h (ncclResult_t).",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Api]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("calls", Count, "driver calls of the run").sums(&DRIVER),
            Metric::about("total_ns", Ns, "time in driver calls, over all threads").sums(&DRIVER),
            Metric::about("functions", Count, "functions of the driver and of NCCL that were called, by process")
                .sums(&DRIVER),
            Metric::cost("failed", Count, "calls whose result is a failure").sums(&DRIVER),
            Metric::about("counted_only", Count, "calls that were counted and not timed"),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let calls = || facts.api.calls.iter();
        let driver = || calls().filter(|(key, _)| key.table != TableId::Collectives);
        let whole_ns: i64 = driver().map(|(_, stats)| stats.sum).sum();
        let failed = facts.api.results.iter().filter(|(key, _)| !results::is_answer(key.result, key.nccl));
        let counted = counted(facts);
        section.fact("calls", "driver calls", Unit::Count, driver().map(|(_, stats)| stats.count).sum::<u64>());
        section.fact("total_ns", "time in them, over all threads", Unit::Ns, whole_ns);
        let functions = summed(facts, |key| (key.process_id, key.api_id, key.table), |key| key.0);
        section.fact("functions", "functions, by process", Unit::Count, functions.len() as u64);
        section.fact("failed", "calls that failed", Unit::Count, failed.map(|(_, r)| r.calls).sum::<u64>());
        section.fact("counted_only", "calls counted only", Unit::Count, counted.iter().map(|(_, n)| n).sum::<u64>());
        if calls().next().is_none() {
            section.note("No driver calls in this trace.");
        }
        section.table(by_function(facts, &functions, whole_ns as f64));
        section.table(by_thread(facts, whole_ns as f64));
        section.table(by_result(facts));
        section.table(counted_only(facts, &counted));
        TABLES.into_iter().for_each(|(table, what)| loss::note(&mut section, facts, what, table));
        section
    }
}

/// The calls summed by a part of their key, most time first.
fn summed<K: Hash + Ord + Copy>(
    facts: &Facts<'_>,
    part: impl Fn(&Key) -> K,
    process: impl Fn(&K) -> i64,
) -> Vec<(K, Stats)> {
    let mut sums: FxHashMap<K, Stats> = FxHashMap::default();
    for (key, stats) in facts.api.calls.iter() {
        sums.entry(part(key)).or_default().merge(stats);
    }
    let mut sums: Vec<(K, Stats)> = sums.into_iter().collect();
    sums.sort_by_key(|(key, stats)| (Reverse(stats.sum), facts.place(process(key)), *key));
    sums
}

fn by_function(facts: &Facts<'_>, functions: &[((i64, i64, TableId), Stats)], whole_ns: f64) -> Table {
    let names = [
        column("process", "Process", Unit::Text),
        column("api", "Function", Unit::Name),
        column("table", "Table", Unit::Text),
    ];
    let row = |((process, api, table), stats): &((i64, i64, TableId), Stats)| {
        let whole_ns = if *table == TableId::Collectives { 0.0 } else { whole_ns };
        let table = table.table().name;
        let mut row = vec![facts.label(*process).into(), facts.names.full(*api).into(), table.into()];
        row.extend(times(stats, whole_ns));
        row
    };
    let columns: Vec<Column> = names.into_iter().chain(TIMES).collect();
    Table::new("by_function", "By function", &columns, functions.iter().map(row).collect())
}

fn by_thread(facts: &Facts<'_>, whole_ns: f64) -> Table {
    let names = [column("process", "Process", Unit::Text), column("tid", "Thread", Unit::Text)];
    let mut sums: BTreeMap<(i64, i32), Stats> = BTreeMap::new();
    for (key, stats) in facts.api.calls.iter().filter(|(key, _)| key.table != TableId::Collectives) {
        sums.entry((key.process_id, key.tid)).or_default().merge(stats);
    }
    let mut threads: Vec<_> = sums.into_iter().collect();
    threads.sort_by_key(|(key, stats)| (Reverse(stats.sum), facts.place(key.0), *key));
    let row = |((process, tid), stats): &((i64, i32), Stats)| {
        let mut row: Vec<Value> = vec![facts.label(*process).into(), tid.to_string().into()];
        row.extend(times(stats, whole_ns));
        row
    };
    let columns: Vec<Column> = names.into_iter().chain(TIMES).collect();
    Table::new("by_thread", "By thread, without NCCL", &columns, threads.iter().map(row).collect())
}

fn by_result(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("api", "Function", Unit::Name),
        column("calls", "Calls", Unit::Count),
        column("name", "Result", Unit::Text),
        column("result", "Code", Unit::Count),
        column("failed", "Failure", Unit::Text),
        column("sticky", "Stays", Unit::Text),
        column("line", "First at", Unit::Name),
        column("first_after_ns", "First after", Unit::Ns),
    ];
    let mut results: Vec<(&Failed, &Results)> = facts.api.results.iter().collect();
    results.sort_by_key(|(key, r)| {
        (results::is_answer(key.result, key.nccl), Reverse(r.calls), facts.place(key.process_id), **key)
    });
    let row = |(key, r): &(&Failed, &Results)| -> Vec<Value> {
        vec![
            facts.label(key.process_id).into(),
            facts.names.full(key.api_id).into(),
            r.calls.into(),
            results::name(key.result, facts.is_metal(key.process_id), key.nccl).into(),
            i64::from(key.result).into(),
            (!results::is_answer(key.result, key.nccl)).into(),
            results::is_sticky(key.result, key.nccl).into(),
            r.first_stack.and_then(|stack| facts.stacks.get(stack)).map(Site::short).into(),
            (r.first_ns - facts.trace.began_ns()).into(),
        ]
    };
    let title = "By result other than 0 (First after: since the trace began)";
    Table::new("by_result", title, &COLUMNS, results.iter().map(row).collect())
}

/// Calls that left no rows, by process and function, most first.
pub(super) fn counted<'a>(facts: &'a Facts<'_>) -> Vec<((i64, &'a str), u64)> {
    let hooks = facts.processes().filter_map(|p| Some((p.process_id, &p.manifest.as_ref()?.coverage.hooks)));
    let counted = hooks.flat_map(|(process, hooks)| hooks.iter().map(move |hook| (process, hook)));
    let counted = counted.filter(|(_, hook)| hook.counted && hook.calls > 0);
    let mut counted: Vec<_> = counted.map(|(process, hook)| ((process, hook.name.as_str()), hook.calls)).collect();
    counted.sort_by_key(|(key, calls)| (Reverse(*calls), facts.place(key.0), *key));
    counted
}

/// The same as a table.
pub(super) fn counted_only(facts: &Facts<'_>, counted: &[((i64, &str), u64)]) -> Table {
    const COLUMNS: [Column; 3] = [
        column("process", "Process", Unit::Text),
        column("api", "Function", Unit::Name),
        column("calls", "Calls", Unit::Count),
    ];
    let row = |((process, name), calls): &((i64, &str), u64)| {
        vec![facts.label(*process).into(), (*name).into(), (*calls).into()]
    };
    let title = "Counted only: functions that ask, or set a word";
    Table::new("counted_only", title, &COLUMNS, counted.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest;
    use gputrace_collectors::names::NameKind;
    use serde_json::json;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn calls_of_every_class_are_summed_and_nccls_stand_beside_them() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.launch("k", 2_000);
        thread.sync("cuStreamSynchronize", "stream", 3_000);
        thread.sync("cuStreamSynchronize", "stream", 1_000);
        thread.copy("HtoD", ("pinned", "device"), true, 64, 1_000);
        thread.alloc("cuMemAlloc_v2", "device", 0x1000, 64, 2_000);
        thread.other("cuStreamCreate", "api", 1_000);
        thread.collective("ncclAllReduce", "collective", 0, 64, false, 90_000);
        trace.thread(1, 12).launch("k", 10_000);
        let section = trace.section(&Api);
        assert_eq!((section.get("calls"), section.get("total_ns")), (&Value::Int(7), &Value::Int(20_000)));
        let cell = |row: usize, column: &str| section.cell("by_function", row, column).clone();
        assert_eq!([cell(0, "api"), cell(0, "time_percent")], ["ncclAllReduce".into(), Value::Missing]);
        assert_eq!([cell(1, "api"), cell(1, "time_percent")], ["cuLaunchKernel".into(), Value::Num(60.0)]);
        assert_eq!([cell(2, "table"), cell(2, "max_ns")], ["syncs".into(), Value::Int(3_000)]);
        assert_eq!(section.cell("by_thread", 0, "calls"), &Value::Int(6));
        assert_eq!(section.cell("by_thread", 1, "tid"), &"12".into());
        assert!(section.notes[0].starts_with("10 of 1,000 other driver calls found no room"), "{:?}", section.notes);
    }

    #[test]
    fn failures_are_named_and_answers_are_none() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        for (at, api, result) in [(0, "cuMemAlloc_v2", 2), (5, "cuMemAlloc_v2", 2), (7, "cuStreamQuery", 600)] {
            let api_id = trace.name(NameKind::Api, api);
            let row =
                json!({ "start_ns": START + at, "api_ns": 1, "process_id": 1, "api_id": api_id, "result": result });
            trace.row(if result == 600 { TableId::Syncs } else { TableId::DeviceMemory }, row);
        }
        let hook = manifest::Hook { name: "cuCtxGetCurrent".into(), calls: 9, counted: true, ..Default::default() };
        let process = trace.manifest.as_mut().and_then(|m| m.processes.first_mut()).expect("a process");
        process.coverage.hooks.push(hook);
        let section = trace.section(&Api);
        assert_eq!((section.get("failed"), section.get("counted_only")), (&Value::Int(2), &Value::Int(9)));
        assert_eq!(section.cell("by_result", 0, "name"), &Value::from("CUDA_ERROR_OUT_OF_MEMORY"));
        assert_eq!(section.cell("by_result", 0, "first_after_ns"), &Value::Int(0));
        assert_eq!(section.cell("by_result", 1, "failed"), &Value::from("no"));
        assert_eq!(section.cell("counted_only", 0, "api"), &Value::from("cuCtxGetCurrent"));
    }
}
