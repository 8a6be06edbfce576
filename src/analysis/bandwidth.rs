//! How fast collectives move their bytes: algorithm and bus bandwidth as nccl-tests defines them, by operation and size.

use std::collections::BTreeMap;

use super::passes::stats::Stats;
use super::passes::timed::Timed;
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Facts, gpu};

/// What a function's bytes are in nccl-tests, as multiples of those of a call, and what part of that crosses the bus: for
/// `n` ranks.
fn factors(function: &str, ranks: i32) -> Option<(f64, f64)> {
    let n = f64::from(ranks);
    let known = |factors: (f64, f64)| (ranks > 0).then_some(factors);
    match function {
        "ncclAllReduce" => known((1.0, 2.0 * (n - 1.0) / n)),
        // A call counts the share of one rank.
        "ncclAllGather" | "ncclReduceScatter" | "ncclAlltoAll" | "ncclGather" | "ncclScatter" => {
            known((n, (n - 1.0) / n))
        }
        "ncclBroadcast" | "ncclBcast" | "ncclReduce" | "ncclSend" | "ncclRecv" => Some((1.0, 1.0)),
        _ => None,
    }
}

/// Operations of one function, size and number of ranks.
#[derive(Default)]
struct Sum {
    /// Without waiting, where that is known of all.
    gpu: Stats,
    whole_ns: i64,
    hidden_ns: i64,
    not_aligned: u64,
}

/// The table, the numbers of all of them, and what is not known.
pub(super) fn add(section: &mut Section, facts: &Facts<'_>) {
    let ranks = &facts.ranks;
    let mut sums: BTreeMap<(u32, i32), Sum> = BTreeMap::new();
    for Timed { process_id, call, gpu_ns, whole_ns, aligned, ranks, size } in &ranks.timed {
        let sum = sums.entry((*size, *ranks)).or_default();
        sum.gpu.add(*gpu_ns);
        sum.whole_ns += whole_ns;
        sum.hidden_ns += facts.gpu.as_ref().map_or(0, |gpu| gpu.devices.hidden_ns(*process_id, *call));
        sum.not_aligned += u64::from(!aligned);
    }
    let timed = ranks.timed.len() as u64;
    let (whole, hidden) = sums.values().fold((0, 0), |all, sum| (all.0 + sum.whole_ns, all.1 + sum.hidden_ns));
    section.fact("timed", "with times on the GPU", Unit::Count, facts.gpu.is_some().then_some(timed));
    section.fact(
        "hidden_percent",
        "of their time beside computing",
        Unit::Percent,
        percent(hidden as f64, whole as f64),
    );
    notes(section, facts, timed, sums.values().any(|sum| sum.not_aligned > 0));
    section.table(by_size(facts, &sums));
}

fn notes(section: &mut Section, facts: &Facts<'_>, timed: u64, waiting: bool) {
    let Some(of_gpu) = facts.gpu.as_ref().filter(|gpu| gpu.any()) else {
        if facts.collectives.calls.iter().any(|(key, _)| key.kind.communicates()) {
            section.note(format!("{} Bandwidth needs them.", gpu::NO_TIMES));
        }
        return;
    };
    let kernels: u64 = of_gpu.communication().map(|(_, stats)| stats.count).sum();
    if kernels > timed {
        section.note(format!(
            "{} of {kernels} kernels of NCCL have no call with a size in this trace (their call is in a group or a graph, or the \
             profiler did not record its parameters): they have no bandwidth.",
            kernels - timed
        ));
    }
    if waiting {
        section.note(
            "Bandwidths whose row says so include the waiting for other ranks: of these the traces are not here, or have no \
             clock in common.",
        );
    }
}

fn by_size(facts: &Facts<'_>, sums: &BTreeMap<(u32, i32), Sum>) -> Table {
    const COLUMNS: [Column; 11] = [
        column("api", "Function", Unit::Name),
        column("size_bytes", "Size", Unit::BytesEach),
        column("ranks", "Ranks", Unit::Count),
        column("operations", "Operations", Unit::Count),
        column("gpu_med_ns", "Med", Unit::Ns),
        column("algorithm_bytes_per_s", "Algorithm", Unit::BytesPerS),
        column("bus_bytes_per_s", "Bus", Unit::BytesPerS),
        column("hidden_percent", "Beside computing", Unit::Percent),
        column("waited_percent", "Waiting", Unit::Percent),
        column("includes_waiting", "Time with waiting", Unit::Text),
        column("total_ns", "Total", Unit::Ns),
    ];
    let mut all: Vec<(&(u32, i32), &Sum)> = sums.iter().collect();
    all.sort_by_key(|(key, sum)| (std::cmp::Reverse(sum.whole_ns), **key));
    let row = |((size, ranks), sum): &(&(u32, i32), &Sum)| -> Vec<Value> {
        let (api_id, bytes) = facts.ranks.sizes.get(*size).unwrap_or_default();
        let function = facts.names.full(api_id);
        let factors = factors(&function, *ranks).filter(|_| bytes > 0);
        let size = factors.map_or(bytes as f64, |(share, _)| share * bytes as f64);
        let algorithm = factors.map(|_| size / (sum.gpu.median().max(1) as f64 / 1e9));
        let waited = percent((sum.whole_ns - sum.gpu.sum) as f64, sum.whole_ns as f64);
        vec![
            function.into(),
            size.into(),
            Some(i64::from(*ranks)).filter(|ranks| *ranks > 0).into(),
            sum.gpu.count.into(),
            sum.gpu.median().into(),
            algorithm.into(),
            algorithm.zip(factors).map(|(algorithm, (_, bus))| algorithm * bus).into(),
            percent(sum.hidden_ns as f64, sum.whole_ns as f64),
            if sum.not_aligned < sum.gpu.count { waited } else { Value::Missing },
            match sum.not_aligned {
                0 => "no",
                some if some < sum.gpu.count => "some",
                _ => "yes",
            }
            .into(),
            sum.whole_ns.into(),
        ]
    };
    let title = "By operation and size, on the GPU (bandwidth of the median time)";
    Table::new("by_size", title, &COLUMNS, all.iter().map(row).collect())
}

#[cfg(test)]
mod tests {

    use super::super::collectives::Collectives;
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    /// Ten calls of a function for 4 MiB, whose kernels run for 30 us from when the second rank has come, 20 us after the first.
    /// Beside each kernel of the first rank computing runs for 10 us.
    fn ranks(function: &str, ranks: i32) -> Section {
        let mut trace = TestTrace::new();
        for rank in 0..ranks {
            let process = i64::from(rank) + 1;
            trace.process(process, 100 + rank, Some(rank), START + 1_000_000);
            trace.world(process, rank, 2);
            let mut thread = trace.thread(process, 11);
            thread.device = rank;
            for n in 0..10 {
                let at = START + 100_000 * n;
                thread.now = at;
                let (begin, end) = (at + 20_000 + i64::from(rank) * 20_000, at + 70_000);
                if rank == 0 {
                    thread.launch_running("gemm", 2_000, 7, (end - 10_000, 15_000));
                }
                let call = thread.now;
                thread.launch_running("ncclDevKernel", 2_000, 9, (begin, end - begin));
                thread.now = call;
                thread.collective(function, "collective", 1, 4 << 20, false, 5_000);
            }
        }
        trace.section(&Collectives)
    }

    #[test]
    fn bandwidth_is_that_of_nccl_tests_and_waiting_is_left_out_where_ranks_are_aligned() {
        // 4 MiB in 30 us; of two ranks an all-reduce moves each byte once, an all-gather half of what both have.
        let all = (4 << 20) as f64 / 30e-6;
        for (function, size, algorithm, bus) in [
            ("ncclAllReduce", 4 << 20, all, all),
            ("ncclAllGather", 8 << 20, 2.0 * all, all),
            ("ncclReduce", 4 << 20, all, all),
        ] {
            let section = ranks(function, 2);
            let cell = |column: &str| section.cell("by_size", 0, column).clone();
            assert_eq!([cell("size_bytes"), cell("gpu_med_ns")], [Value::Num(f64::from(size)), Value::Int(30_000)]);
            assert_eq!([cell("algorithm_bytes_per_s"), cell("bus_bytes_per_s")], [algorithm, bus].map(Value::Num));
            // Of 80 us of kernels 20 waited, and 10 had computing beside them.
            assert_eq!([cell("waited_percent"), cell("hidden_percent")], [25.0, 12.5].map(Value::Num));
            assert_eq!((cell("operations"), cell("includes_waiting")), (Value::Int(20), "no".into()));
            assert_eq!(section.notes, Vec::<String>::new());
        }
    }

    #[test]
    fn of_one_rank_alone_the_time_includes_its_waiting_and_says_so() {
        let section = ranks("ncclAllReduce", 1);
        let cell = |column: &str| section.cell("by_size", 0, column).clone();
        assert_eq!((cell("gpu_med_ns"), cell("includes_waiting")), (Value::Int(50_000), "yes".into()));
        assert_eq!((cell("waited_percent"), cell("ranks")), (Value::Missing, Value::Int(2)));
        assert!(section.notes[0].starts_with("Bandwidths whose row says so"), "{:?}", section.notes);
    }

    #[test]
    fn what_has_no_size_has_no_bandwidth() {
        assert_eq!(factors("ncclAllReduce", 0), None);
        assert_eq!(factors("ncclSend", 0), Some((1.0, 1.0)));
        assert_eq!(factors("ncclAllReduce", 4), Some((1.0, 1.5)));
        assert_eq!(factors("ncclNewThing", 4), None);
    }
}
