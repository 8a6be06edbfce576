//! Equal processes stand in the order of their ranks, whatever ids they have and in whatever order their traces are named.

use std::path::PathBuf;

use super::ALL;
use crate::analysis::Facts;
use crate::trace::testing::{START, TestTrace};
use crate::trace::{Filter, Trace};

/// Does the same work in a rank of two.
fn work(trace: &mut TestTrace, process_id: i64, rank: i32) {
    trace.process(process_id, 100 + rank, Some(rank), START + 100_000_000);
    trace.world(process_id, rank, 2);
    let mut thread = trace.thread(process_id, 11 + rank);
    thread.device = rank;
    thread.other("cuModuleLoadData", "module", 300_000);
    for _ in 0..40 {
        let step = thread.range_begin();
        thread.host(20_000);
        thread.malloc("alloc", 4096, 524_288.0);
        let copied = thread.copy_running("HtoD", 1 << 20, 4_000, (thread.now + 6_000, 50_000));
        thread.alloc("cuMemAlloc_v2", "device", 0x1000, 1 << 20, 8_000);
        let end = thread.launch_running("gemm", 5_000, 7, (copied + i64::from(rank), 300_000 - i64::from(rank)));
        thread.launch_graph(Some(1), Some(4), 9_000);
        thread.collective("ncclAllReduce", "all_reduce", 1, 4096, false, 6_000);
        thread.system_wait("poll", "poll", 30_000);
        thread.free("cuMemFree_v2", "device", 0x1000, 9_000);
        thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
        thread.range_end(None, "step", step, true);
    }
}

/// All that is reported of the folders, without where they are.
fn reported(folders: &[PathBuf]) -> Vec<(&'static str, String)> {
    let trace = Trace::open(folders).expect("a trace");
    let filter = Filter::of(&trace);
    let needs: Vec<_> = ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect();
    let facts = Facts::gather(&trace, &filter, &needs);
    let text = |text: &str| text.lines().filter(|line| !line.starts_with("next: ")).collect::<Vec<_>>().join("\n");
    let section = |analysis: &dyn super::Analysis| {
        let section = analysis.section(&facts);
        let rows =
            section.tables.iter().flat_map(|table| table.rows.iter().map(|row| format!("{}: {row:?}", table.key)));
        let literal = text(&section.literal.clone().unwrap_or_default());
        let facts: Vec<_> = section.facts.iter().map(|fact| (&fact.key, &fact.value)).collect();
        format!("{literal}\n{facts:?}\n{}\n{:?}", rows.collect::<Vec<_>>().join("\n"), section.notes)
    };
    ALL.iter().map(|analysis| (analysis.name(), section(*analysis))).collect()
}

/// Names the analyses that differ, and the first line that does.
fn assert_alike(one: &[(&'static str, String)], other: &[(&'static str, String)]) {
    let first = |a: &str, b: &str| a.lines().zip(b.lines()).find(|(a, b)| a != b).map(|(a, b)| format!("{a} | {b}"));
    let differ = one.iter().zip(other).filter(|((_, a), (_, b))| a != b);
    let differ: Vec<_> = differ.map(|((name, a), (_, b))| (*name, first(a, b))).collect();
    assert!(differ.is_empty(), "{differ:#?}");
}

#[test]
fn which_ids_equal_ranks_have_changes_no_report() {
    let of = |ids: [i64; 2]| {
        let mut trace = TestTrace::new();
        work(&mut trace, ids[0], 0);
        work(&mut trace, ids[1], 1);
        reported(&[trace.write_parts(1).to_owned()])
    };
    assert_alike(&of([1, 2]), &of([2, 1]));
}

#[test]
fn in_which_order_the_traces_of_ranks_are_named_changes_no_report() {
    let traces: Vec<TestTrace> = (0..2)
        .map(|rank| {
            let mut trace = TestTrace::new();
            work(&mut trace, i64::from(9 - rank), rank);
            let about = trace.manifest.as_mut().expect("a manifest");
            about.launcher_id += rank as u64;
            about.command.push(format!("--rank={rank}"));
            about.notes.push(format!("of rank {rank}"));
            // The launcher of the second rank began first.
            about.started_ns -= i64::from(rank);
            trace
        })
        .collect();
    let folders: Vec<PathBuf> = traces.iter().map(|trace| trace.write_parts(1).to_owned()).collect();
    let turned: Vec<PathBuf> = folders.iter().rev().cloned().collect();
    let (one, other) = (reported(&folders), reported(&turned));
    assert!(one[0].1.contains("--rank=0"), "{}", one[0].1);
    assert_alike(&one, &other);
}
