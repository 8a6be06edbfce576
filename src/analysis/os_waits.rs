//! os-waits: where the host waits for something other than the GPU.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_collectors::schema::TableId;

use super::passes::os_waits::Calls;
use super::passes::stats::Stats;
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, What, loss, sites};

/// The analysis.
pub(crate) struct OsWaits;

impl Analysis for OsWaits {
    fn name(&self) -> &'static str {
        "os-waits"
    }

    fn title(&self) -> &'static str {
        "Waits for the operating system"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Calls outside the driver that waited for the operating system for --os-over (20 us) and more: \
                locks, conditions, semaphores, joins of threads, polls, reads and writes, syncs of files, sleeps, children, \
                futexes. Per line of Python, else per native function; per function; per kind; per thread: count, total and \
                longest. Threads that give the GPU work (launch or copy) stand apart from others, such as pools and watchdogs, \
                which wait long because they have nothing to do. The thread that makes the steps is named, since only its waits \
                are sure to hold them up. Shorter waits are counted. In processes that use CUDA, from their first look at the driver on, and the children \
                that they fork then (--os all: in every process from its start).",
            unit: "ns in JSON, from the call to its return. Totals are over all threads, which wait at the same time, so \
                they may exceed wall time.",
            limits: "A wait inside a driver call is that call's and is not here. Not seen: waits that libc makes for itself \
                (fread), page faults of mapped files, system calls that a program makes on its own (Go, libgomp), and locks \
                that were free. Short waits of a thread are counted from its first long one, or first driver call, on; a long \
                one in a signal handler on a stack of its own has no line. A thread that has nothing to do waits too: a long total is no cost by itself; and \
                one that waits for another thread (backward() for autograd's) waits for that thread's work: the summary and its \
                findings leave waits out in which another thread of the process launches. A wait that \
                was not over when its process ended is counted as in flight and has no row.",
            source: "Nsight Systems osrt_sum, whose functions and threshold differ.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::OsWaits, Need::Sites]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("waits", Count, "calls that waited for the operating system").sums(&[TableId::OsWaits]),
            Metric::about("waits_ns", Ns, "time in them, over all threads").sums(&[TableId::OsWaits]),
            Metric::about("longest_ns", Ns, "the longest of them").sums(&[TableId::OsWaits]),
            Metric::about("failed", Count, "of them failed, or ran out of time").sums(&[TableId::OsWaits]),
            Metric::about("short_waits", Count, "shorter ones, which are only counted"),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let calls = || facts.os_waits.calls.iter().map(|(_, calls)| calls);
        let accounts = || facts.processes().filter_map(|p| p.manifest.as_ref()?.accounting.get("os_wait"));
        let short: u64 = accounts().map(|count| count.sampled_out).sum();
        // Imported traces have no account of them.
        let looked = calls().next().is_some() || accounts().next().is_some();
        section.fact("waits", "waits", Unit::Count, looked.then(|| calls().map(|c| c.all.count).sum::<u64>()));
        section.fact(
            "waits_ns",
            "time in them, over all threads",
            Unit::Ns,
            looked.then(|| calls().map(|c| c.all.sum).sum::<i64>()),
        );
        section.fact("longest_ns", "the longest", Unit::Ns, calls().map(|c| c.all.max).max());
        section.fact(
            "failed",
            "of them failed, or ran out of time",
            Unit::Count,
            looked.then(|| calls().map(|c| c.failed).sum::<u64>()),
        );
        section.fact("short_waits", "shorter ones, counted only", Unit::Count, looked.then_some(short));
        if calls().next().is_none() {
            section.note("No waits for the operating system in this trace: there was none so long, or --os off.");
        }
        let title = "By line, threads that give the GPU work";
        sites::cost_table(&mut section, facts, &[What::System], ("by_site", title));
        let title = "By line, other threads (one that has nothing to do waits long, and costs nothing)";
        sites::cost_table(&mut section, facts, &[What::Helper], ("by_site_others", title));
        section.table(by_call(facts));
        section.table(by_kind(facts));
        section.table(by_thread(facts));
        loss::note(&mut section, facts, "waits for the operating system", TableId::OsWaits);
        section
    }
}

fn by_call(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 12] = [
        column("process", "Process", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("api", "Function", Unit::Name),
        column("calls", "Calls", Unit::Count),
        column("per_step", "Per step", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
        column("avg_ns", "Avg", Unit::Ns),
        column("med_ns", "Med", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
        column("bytes", "Bytes", Unit::BytesEach),
        column("failed", "Failed", Unit::Count),
    ];
    let mut calls: Vec<(&(i64, i64), &Calls)> = facts.os_waits.calls.iter().collect();
    calls.sort_by_key(|(key, calls)| (Reverse(calls.all.sum), facts.place(key.0), **key));
    let row = |((process_id, api_id), calls): &(&(i64, i64), &Calls)| {
        let steps = facts.steps.of(*process_id).map(|s| s.sorted_ns.len().max(1));
        let moves = matches!(calls.kind.as_str(), "read" | "write");
        vec![
            facts.label(*process_id).into(),
            calls.kind.as_str().into(),
            facts.names.full(*api_id).into(),
            calls.all.count.into(),
            steps.map(|n| calls.steady as f64 / n as f64).into(),
            calls.all.sum.into(),
            percent(calls.all.sum as f64, facts.wall_ns(*process_id)),
            calls.all.mean().into(),
            calls.all.median().into(),
            calls.all.max.into(),
            moves.then_some(calls.bytes).into(),
            calls.failed.into(),
        ]
    };
    Table::new("by_call", "By function", &COLUMNS, calls.iter().map(row).collect())
}

fn by_kind(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 5] = [
        column("process", "Process", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("calls", "Calls", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
    ];
    let mut kinds: BTreeMap<(i64, &str), Stats> = BTreeMap::new();
    for ((process_id, _), calls) in facts.os_waits.calls.iter() {
        kinds.entry((*process_id, calls.kind.as_str())).or_default().merge(&calls.all);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(key, all)| (Reverse(all.sum), facts.place(key.0)));
    let row = |((process_id, kind), all): &((i64, &str), Stats)| {
        vec![facts.label(*process_id).into(), (*kind).into(), all.count.into(), all.sum.into(), all.max.into()]
    };
    Table::new("by_kind", "By kind", &COLUMNS, kinds.iter().map(row).collect())
}

fn by_thread(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("tid", "Thread", Unit::Text),
        column("name", "Name", Unit::Name),
        column("gives_work", "Gives work", Unit::Text),
        column("steps", "Makes the steps", Unit::Text),
        column("calls", "Calls", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
        column("max_ns", "Max", Unit::Ns),
    ];
    let mut threads: Vec<(&(i64, i32), &Stats)> = facts.os_waits.threads.iter().collect();
    let gives = |(process_id, tid): &(i64, i32)| facts.steps.givers().gives(*process_id, *tid);
    threads.sort_by_key(|(key, all)| (Reverse(gives(key)), Reverse(all.sum), facts.place(key.0), **key));
    let names = facts.trace.thread_names();
    let row = |(key @ (process_id, tid), all): &(&(i64, i32), &Stats)| {
        vec![
            facts.label(*process_id).into(),
            tid.to_string().into(),
            names.get(key).cloned().into(),
            gives(key).into(),
            facts.steps.of(*process_id).map(|steps| steps.tid == *tid).into(),
            all.count.into(),
            all.sum.into(),
            percent(all.sum as f64, facts.wall_ns(*process_id)),
            all.max.into(),
        ]
    };
    Table::new(
        "by_thread",
        "By thread, those that give the GPU work first",
        &COLUMNS,
        threads.iter().map(row).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::section::Value;
    use crate::analysis::summary::Summary;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn where_nobody_looked_there_were_not_none() {
        let mut trace = TestTrace::new();
        trace.thread(1, 11).launch("k", 1_000);
        let section = trace.section(&OsWaits);
        for fact in ["waits", "waits_ns", "longest_ns", "failed", "short_waits"] {
            assert_eq!(section.get(fact), &Value::Missing, "{fact}");
        }
    }

    #[test]
    fn waits_are_summed_by_line_function_kind_and_thread() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let next = trace.stack("next", "/home/u/data.py", 31);
        trace.thread_row(1, 11, "python");
        trace.thread_row(1, 12, "pt_nccl_watchdg");
        let mut thread = trace.thread(1, 11);
        thread.launch("k", 1_000);
        thread.stack = Some((next, 0));
        for ns in [1_000_000, 3_000_000, 2_000_000] {
            thread.system_wait("read", "read", ns);
        }
        thread.stack = None;
        thread.system_wait("sem_wait", "semaphore", 500_000);
        thread.system_wait("sem_timedwait", "semaphore", 5_000_000);
        trace.thread(1, 12).system_wait("sem_wait", "semaphore", 90_000_000);
        let section = trace.section(&OsWaits);
        assert_eq!((section.get("waits"), section.get("waits_ns")), (&Value::Int(6), &Value::Int(101_500_000)));
        assert_eq!(section.get("longest_ns"), &Value::Int(90_000_000));
        let row = |table: &str, row: usize, columns: [&str; 4]| {
            columns.map(|column| match section.cell(table, row, column) {
                Value::Text(text) => text.clone(),
                Value::Int(number) => number.to_string(),
                other => format!("{other:?}"),
            })
        };
        let calls = ["api", "kind", "calls", "total_ns"];
        assert_eq!(row("by_call", 0, calls), ["sem_wait", "semaphore", "2", "90500000"]);
        assert_eq!(row("by_call", 1, calls), ["read", "read", "3", "6000000"]);
        let sites = ["site", "calls", "total_ns", "max_ns"];
        // What a thread waits that gives the GPU nothing is told apart, however long it is.
        assert_eq!(row("by_site", 0, sites), ["data.py:31 next", "3", "6000000", "3000000"]);
        assert_eq!(
            row("by_site_others", 0, ["api", "calls", "total_ns", "max_ns"]),
            ["sem_wait", "1", "90000000", "90000000"]
        );
        assert_eq!(
            row("by_kind", 0, ["kind", "calls", "total_ns", "max_ns"]),
            ["semaphore", "3", "95500000", "90000000"]
        );
        let threads = ["tid", "name", "total_ns", "max_ns"];
        assert_eq!(row("by_thread", 0, threads), ["11", "python", "11500000", "5000000"]);
        assert_eq!(row("by_thread", 1, threads), ["12", "pt_nccl_watchdg", "90000000", "90000000"]);
        let gives = |row: usize| section.cell("by_thread", row, "gives_work").clone();
        assert_eq!((gives(0), gives(1)), (true.into(), false.into()));
    }

    /// Steps of 10 ms: a launch, a wait of the loop for its data, work without evidence, a wait for the GPU.
    fn steps(trace: &mut TestTrace, waits: bool) -> Section {
        trace.process(1, 100, None, START + 200_000_000);
        let next = trace.stack("next", "/home/u/data.py", 31);
        let mut thread = trace.thread(1, 11);
        for _ in 0..20 {
            thread.launch("k", 100_000);
            thread.launch("l", 100_000);
            thread.stack = Some((next, 0));
            if waits {
                thread.system_wait("read", "read", 6_000_000)
            } else {
                thread.host(6_000_000)
            }
            thread.stack = None;
            thread.host(2_800_000);
            thread.sync("cuStreamSynchronize", "stream", 1_000_000);
        }
        if waits {
            // Another thread has nothing to do all the time.
            trace.thread(1, 12).system_wait("sem_wait", "semaphore", 199_000_000);
        }
        trace.section(&Summary)
    }

    #[test]
    fn time_outside_the_driver_without_evidence_is_unknown() {
        let section = steps(&mut TestTrace::new(), true);
        let get = |key: &str| section.get(key).clone();
        assert_eq!(get("outside_driver_ns"), Value::Num(8_800_000.0));
        assert_eq!(get("outside_system_ns"), Value::Num(6_000_000.0));
        assert_eq!(get("outside_unknown_ns"), Value::Num(2_800_000.0));
        let text = section.literal.clone().unwrap_or_default();
        let line = "\n  outside driver: system waits 6.00 (most: data.py:31 next read) | unknown 2.80\n";
        assert!(text.contains(line), "{text}");

        let section = steps(&mut TestTrace::new(), false);
        assert_eq!(section.get("outside_system_ns"), &Value::Missing);
        assert_eq!(section.get("outside_unknown_ns"), &Value::Num(8_800_000.0));
        assert!(!section.literal.unwrap_or_default().contains("system waits"));
    }
}
