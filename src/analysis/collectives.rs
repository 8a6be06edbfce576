//! collectives: what the ranks say to each other with NCCL, how much of it, and what it costs the host.

use std::collections::BTreeMap;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::passes::collectives::{Calls, Key, Kind};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need};
use super::{bandwidth, loss};
use crate::render::counted;

/// The analysis.
pub(crate) struct Collectives;

/// How NCCL's kernels are called, in versions from 2.19 on and before.
const KERNELS: [&str; 2] = ["ncclDevKernel", "ncclKernel"];

impl Analysis for Collectives {
    fn name(&self) -> &'static str {
        "collectives"
    }

    fn title(&self) -> &'static str {
        "Collective communication (NCCL)"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Calls of NCCL's public functions, per process, function and communicator: count, bytes, time in the \
                call. Bytes are the call's count times the size of an element: for AllGather, ReduceScatter, AlltoAll, \
                Gather and Scatter the share of one rank. Calls between ncclGroupStart and ncclGroupEnd only queue their \
                work, and the time of the whole group is that of ncclGroupEnd, which stands by kind. Calls under stream \
                capture are counted when they are captured, not when their graph runs. On the GPU, where its times are in the \
                trace: algorithm bandwidth is size / time, bus bandwidth that times 2(n-1)/n for AllReduce, (n-1)/n for AllGather, \
                ReduceScatter, AlltoAll, Gather and Scatter, whose size is that of all n ranks, and 1 for Broadcast, Reduce, Send and \
                Recv. Time is the median of the operation's kernels, each from when the last rank had begun it (clocks aligned: \
                --explain ranks) to its end; where the other ranks are not in the trace from its own begin, with what it \
                waits for them, which the row says. Beside computing: the part of all of the kernels' time in which kernels that \
                compute ran on the same GPU.",
            unit: "bytes and ns in JSON; in text the column's head names the unit (powers of 1024 for bytes). Times of calls are the \
                host's: a call returns when its work is queued.",
            limits: "The kernel of a call is the one of NCCL that its thread launched during it: calls in groups and graphs have \
                none, nor have kernels whose call is not recorded (torch.profiler tells sizes as record_param_comms). The driver calls that a call of NCCL makes are rows of their own and part of its time. Calls of an \
                NCCL whose symbols are not exported are not seen: a process that launches NCCL's kernels and makes no call \
                of it is named.",
            source: "Counts and bytes as PyTorch's profiler has them for record_param_comms; NCCL's documentation; bandwidths of \
                nccl-tests (PERFORMANCE.md).",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Collectives, Need::Ranks, Need::Busy]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("calls", Count, "collectives, sends and receives of NCCL").sums(&[TableId::Collectives]),
            Metric::about("bytes", Bytes, "bytes that they were given").sums(&[TableId::Collectives]),
            Metric::about("grouped", Count, "of them in groups").sums(&[TableId::Collectives]),
            Metric::about("captured", Count, "of them under stream capture").sums(&[TableId::Collectives]),
            Metric::cost("failed", Count, "calls of NCCL that failed").sums(&[TableId::Collectives]),
            Metric::about("communicators", Count, "communicators of NCCL"),
            Metric::about("timed", Count, "operations whose time on the GPU is known")
                .sums(&[TableId::Collectives, TableId::Kernels]),
            Metric::use_of("hidden_percent", Percent, "their time on the GPU with computing beside them"),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let calls = || facts.collectives.calls.iter();
        let moving = || calls().filter(|(key, _)| key.kind.communicates());
        let count: u64 = moving().map(|(_, calls)| calls.api.count).sum();
        section.fact("calls", "operations", Unit::Count, count);
        section.fact("bytes", "bytes", Unit::Bytes, moving().map(|(_, calls)| calls.bytes).sum::<i64>());
        section.fact("grouped", "in groups", Unit::Count, moving().map(|(_, calls)| calls.grouped).sum::<u64>());
        section.fact("captured", "under capture", Unit::Count, moving().map(|(_, calls)| calls.captured).sum::<u64>());
        section.fact("failed", "calls that failed", Unit::Count, calls().map(|(_, calls)| calls.failed).sum::<u64>());
        let kept = |process_id: &i64| facts.filter.processes.as_ref().is_none_or(|kept| kept.contains(process_id));
        let members = facts.collectives.unique.iter().filter(|((process_id, _), _)| kept(process_id));
        // On each of its ranks one communicator is a member of its own.
        let known: FxHashSet<i64> = members.clone().map(|(_, unique)| *unique).filter(|unique| *unique != 0).collect();
        let communicators = known.len() + members.filter(|(_, unique)| **unique == 0).count();
        section.fact("communicators", "communicators", Unit::Count, communicators as u64);
        if calls().next().is_none() {
            section.note("No calls of NCCL in this trace.");
        }
        for note in uncovered(facts) {
            section.note(note);
        }
        section.table(by_operation(facts));
        bandwidth::add(&mut section, facts);
        section.table(by_kind(facts));
        loss::note(&mut section, facts, "calls of NCCL", TableId::Collectives);
        section
    }
}

/// Processes whose NCCL works and is not seen: its kernels run, and nobody called it.
fn uncovered(facts: &Facts<'_>) -> Vec<String> {
    let mut kernels: BTreeMap<i64, u64> = BTreeMap::new();
    for (process, name, count) in facts.collectives.kernels() {
        if KERNELS.iter().any(|start| facts.names.full(name).starts_with(start)) {
            *kernels.entry(process).or_default() += count;
        }
    }
    let seen = |process: i64| {
        facts.collectives.calls.iter().any(|(key, _)| key.process_id == process && key.kind.communicates())
    };
    let silent = kernels.into_iter().filter(|(process, _)| !seen(*process));
    silent
        .map(|(process, count)| {
            let kernels = counted(count as f64, "kernel", "kernels");
            let why = if facts.trace.is_imported(process) {
                "the imported file does not tell them (torch.profiler does with record_param_comms)"
            } else {
                "its NCCL is linked where its symbols are not exported (statically, or hidden), so its collectives are not covered"
            };
            let label = facts.label(process);
            format!("{label} launched {kernels} of NCCL, and no operation of it was seen: {why}.")
        })
        .collect()
}

fn by_operation(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 13] = [
        column("process", "Process", Unit::Text),
        column("api", "Function", Unit::Name),
        column("communicator", "Comm.", Unit::Count),
        column("rank", "Rank", Unit::Count),
        column("ranks", "Ranks", Unit::Count),
        column("calls", "Calls", Unit::Count),
        column("per_step", "Per step", Unit::Count),
        column("grouped", "In groups", Unit::Count),
        column("bytes", "Bytes", Unit::Bytes),
        column("total_ns", "Total", Unit::Ns),
        column("avg_ns", "Avg", Unit::Ns),
        column("med_ns", "Med", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
    ];
    let all = facts.collectives.calls.iter().filter(|(key, _)| key.kind.communicates());
    let mut all: Vec<(&Key, &Calls)> = all.collect();
    all.sort_by_key(|(key, calls)| {
        (std::cmp::Reverse((calls.bytes, calls.api.count)), facts.place(key.process_id), key.api_id, key.communicator)
    });
    let row = |(key, calls): &(&Key, &Calls)| {
        let steps = facts.steps.of(key.process_id).map(|s| s.sorted_ns.len().max(1));
        let (rank, ranks) =
            facts.collectives.communicators.get(&(key.process_id, key.communicator)).copied().unwrap_or((-1, -1));
        let known = |n: i32| Some(i64::from(n)).filter(|n| *n >= 0);
        vec![
            facts.label(key.process_id).into(),
            facts.names.full(key.api_id).into(),
            Some(i64::from(key.communicator)).filter(|n| *n > 0).into(),
            known(rank).into(),
            known(ranks).into(),
            calls.api.count.into(),
            steps.map(|n| calls.steady as f64 / n as f64).into(),
            calls.grouped.into(),
            calls.bytes.into(),
            calls.api.sum.into(),
            calls.api.mean().into(),
            calls.api.median().into(),
            calls.api.max.into(),
        ]
    };
    Table::new(
        "by_operation",
        "By operation and communicator, most bytes first",
        &COLUMNS,
        all.iter().map(row).collect(),
    )
}

fn by_kind(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 5] = [
        column("process", "Process", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("calls", "Calls", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
    ];
    let mut kinds: BTreeMap<(i64, Kind), (u64, i64)> = BTreeMap::new();
    for (key, calls) in facts.collectives.calls.iter() {
        let sum = kinds.entry((key.process_id, key.kind)).or_default();
        *sum = (sum.0 + calls.api.count, sum.1 + calls.api.sum);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|((process, kind), _)| (facts.place(*process), *kind));
    let row = |((process, kind), (count, ns)): &((i64, Kind), (u64, i64))| -> Vec<Value> {
        let share = percent(*ns as f64, facts.wall_ns(*process));
        vec![facts.label(*process).into(), kind.text().into(), (*count).into(), (*ns).into(), share]
    };
    Table::new("by_kind", "By kind", &COLUMNS, kinds.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn a_communicator_of_several_ranks_is_one() {
        let mut trace = TestTrace::new();
        for rank in 0..4 {
            trace.process(i64::from(rank) + 1, 100 + rank, Some(rank), START + 1_000_000);
            trace.world(i64::from(rank) + 1, rank, 4);
        }
        trace.communicator(1, 2, 0, 2);
        assert_eq!(trace.section(&Collectives).get("communicators"), &Value::Int(2));
    }

    #[test]
    fn operations_are_summed_by_communicator_and_groups_stand_apart() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, Some(3), START + 100_000_000);
        trace.communicator(1, 5, 3, 8);
        let mut thread = trace.thread(1, 11);
        for _ in 0..10 {
            thread.collective("ncclAllReduce", "collective", 5, 4096, true, 1_000);
            thread.collective("ncclGroupEnd", "group", 0, 0, false, 9_000);
        }
        thread.collective("ncclSend", "point_to_point", 0, 64, false, 2_000);
        thread.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 1_000);
        let section = trace.section(&Collectives);
        assert_eq!(section.get("calls"), &Value::Int(11));
        assert_eq!((section.get("bytes"), section.get("grouped")), (&Value::Int(40_960 + 64), &Value::Int(10)));
        let cell = |column| section.cell("by_operation", 0, column).clone();
        assert_eq!([cell("rank"), cell("ranks"), cell("communicator")], [3, 8, 5].map(Value::Int));
        assert_eq!([cell("calls"), cell("bytes"), cell("total_ns")], [10, 40_960, 10_000].map(Value::Int));
        assert_eq!(section.cell("by_operation", 1, "ranks"), &Value::Missing);
        assert_eq!(section.cell("by_kind", 2, "kind"), &Value::from("group"));
        assert_eq!(section.cell("by_kind", 2, "total_ns"), &Value::Int(90_000));
        assert!(section.notes.len() == 1 && section.notes[0].ends_with("Bandwidth needs them."), "{:?}", section.notes);
    }

    #[test]
    fn kernels_without_calls_tell_of_an_nccl_that_nobody_sees() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        trace.process(2, 200, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..7 {
            thread.launch("ncclDevKernel_AllGather_RING_LL", 1_000);
            thread.launch("gemm", 1_000);
        }
        trace.thread(2, 12).launch("ncclRefKernel", 1_000);
        let section = trace.section(&Collectives);
        assert_eq!(section.notes.len(), 2, "{:?}", section.notes);
        assert!(section.notes[1].starts_with("pid 100 launched 7 kernels of NCCL"), "{:?}", section.notes);
        assert!(section.notes[1].contains("its NCCL is linked"), "{:?}", section.notes);
        trace.manifest.as_mut().expect("a manifest").clock.kind = "imported".to_owned();
        let notes = trace.section(&Collectives).notes;
        assert!(notes[1].contains("the imported file does not tell them"), "{notes:?}");
    }
}
