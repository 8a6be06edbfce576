//! What holds for every trace, tried on random ones: time adds up, and a report is one of what happened, not of the files
//! that tell it.

use std::path::PathBuf;

use gputrace_collectors::schema::TableId;
use proptest::prelude::*;
use serde_json::Value as Json;

use super::{ALL, Facts, Need};
use crate::cli::Format;
use crate::render::{Layout, Report};
use crate::trace::testing::{START, TestTrace, Thread};
use crate::trace::{Filter, Trace, Want};

/// What a thread of a random program does.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Something outside the driver.
    Host(i64),
    /// Launches a kernel; it begins so long after the call began, or when its stream is free.
    Launch { kernel: usize, api_ns: i64, stream: i64, delay_ns: i64, gpu_ns: i64 },
    /// Copies likewise.
    Copy { bytes: i64, api_ns: i64, delay_ns: i64, gpu_ns: i64 },
    /// Copies pageable memory; nothing tells what the GPU did.
    Pageable(i64),
    /// Launches a graph whose kernels nothing tells.
    Graph(i64),
    /// Waits.
    Wait(i64),
    /// Takes memory and gives it back.
    Memory(i64),
    /// Calls NCCL.
    Collective(i64),
    /// Waits for the operating system.
    System(i64),
    /// Loads code.
    Load(i64),
}

const KERNELS: [&str; 4] = ["gemm", "relu", "softmax", "ncclDevKernel_AllReduce"];
const STREAMS: i64 = 3;

/// What a thread does, and how often; each round may be a range.
#[derive(Clone, Debug)]
struct Loop {
    acts: Vec<Act>,
    rounds: usize,
    named: bool,
}

/// The loops of the threads of each process.
type Program = Vec<Vec<Loop>>;

fn act() -> impl Strategy<Value = Act> {
    let ns = || prop_oneof![0..100i64, 100..20_000i64, 20_000..1_000_000i64];
    prop_oneof![
        2 => ns().prop_map(Act::Host),
        6 => (0..KERNELS.len(), ns(), 0..STREAMS, ns(), ns()).prop_map(|(kernel, api_ns, stream, delay_ns, gpu_ns)| {
            Act::Launch { kernel, api_ns, stream, delay_ns, gpu_ns }
        }),
        2 => (0..200_000i64, ns(), ns(), ns())
            .prop_map(|(bytes, api_ns, delay_ns, gpu_ns)| Act::Copy { bytes, api_ns, delay_ns, gpu_ns }),
        1 => ns().prop_map(Act::Pageable),
        1 => ns().prop_map(Act::Graph),
        2 => ns().prop_map(Act::Wait),
        1 => ns().prop_map(Act::Memory),
        1 => ns().prop_map(Act::Collective),
        1 => ns().prop_map(Act::System),
        1 => ns().prop_map(Act::Load),
    ]
}

fn program(processes: std::ops::Range<usize>) -> impl Strategy<Value = Program> {
    let one = (prop::collection::vec(act(), 1..8), 1..25usize, any::<bool>());
    let threads = one.prop_map(|(acts, rounds, named)| Loop { acts, rounds, named });
    prop::collection::vec(prop::collection::vec(threads, 1..3), processes)
}

/// Makes the calls of a thread and what they cause; `free`: when each stream of its process is, then for copies.
fn run(thread: &mut Thread<'_>, of: &Loop, free: &mut [i64; STREAMS as usize + 1]) {
    for round in 0..of.rounds {
        let began = thread.range_begin();
        for act in &of.acts {
            let now = thread.now;
            match *act {
                Act::Host(ns) => thread.host(ns),
                Act::Launch { kernel, api_ns, stream, delay_ns, gpu_ns } => {
                    let free = &mut free[stream as usize];
                    *free = thread.launch_running(
                        KERNELS[kernel],
                        api_ns,
                        stream + 10,
                        ((now + delay_ns).max(*free), gpu_ns),
                    );
                }
                Act::Copy { bytes, api_ns, delay_ns, gpu_ns } => {
                    let free = &mut free[STREAMS as usize];
                    *free = thread.copy_running("HtoD", bytes, api_ns, ((now + delay_ns).max(*free), gpu_ns));
                }
                Act::Pageable(ns) => thread.copy("DtoH", ("device", "pageable"), ns % 2 == 0, ns * 3, ns),
                Act::Graph(ns) => thread.launch_graph(Some(1), Some(3), ns),
                Act::Wait(ns) => thread.sync("cuStreamSynchronize", "stream", ns),
                Act::Memory(ns) => {
                    thread.alloc("cuMemAlloc_v2", "device", 0x1000, ns, ns);
                    thread.free("cuMemFree_v2", "device", 0x1000, ns / 2);
                    // Of three lines, of which one gives nothing back.
                    let block = thread.malloc_at(ns % 3, ns, 524_288.0);
                    if ns % 3 != 0 {
                        thread.free_block(&block);
                    }
                    thread.culled(ns % 3, 1 + ns % 5, ns, ns);
                }
                Act::Collective(ns) => thread.collective("ncclAllReduce", "collective", 1, ns, false, ns),
                Act::System(ns) => thread.system_wait("poll", "poll", ns),
                Act::Load(ns) => thread.other("cuModuleLoadData", "module", ns),
            }
        }
        if of.named {
            thread.range_end(None, if round % 3 == 0 { "step" } else { "epoch" }, began, true);
        }
    }
}

/// A trace of some processes by one launcher; each is a rank.
fn trace_of(launcher: u64, processes: &[(usize, &Vec<Loop>)]) -> TestTrace {
    let mut trace = TestTrace::new();
    trace.manifest.as_mut().unwrap().launcher_id = launcher;
    for (rank, threads) in processes {
        let id = *rank as i64 + 1;
        trace.process(id, 100 + *rank as i32, Some(*rank as i32), START + 10_000_000_000);
        trace.communicator(id, 1, *rank as i32, 8);
        let mut free = [START; STREAMS as usize + 1];
        // Whether a trace has times of a GPU is said of all of it: each process has one kernel at least.
        let first = Act::Launch { kernel: 0, api_ns: 1_000, stream: 0, delay_ns: 0, gpu_ns: 1_000 };
        run(&mut trace.thread(id, 10), &Loop { acts: vec![first], rounds: 1, named: false }, &mut free);
        for (tid, of) in threads.iter().enumerate() {
            run(&mut trace.thread(id, 11 + tid as i32), of, &mut free);
        }
    }
    trace.in_time();
    trace
}

/// One launcher for all processes.
fn together(program: &Program) -> TestTrace {
    trace_of(0xabc, &program.iter().enumerate().collect::<Vec<_>>())
}

/// A launcher and a folder for each rank, with launchers' ids that sort in the order of the ranks or against it.
fn apart(program: &Program, against: bool) -> Vec<TestTrace> {
    let launcher = |rank: usize| if against { 0xfff - rank as u64 } else { 0xa00 + rank as u64 };
    program.iter().enumerate().map(|(rank, of)| trace_of(launcher(rank), &[(rank, of)])).collect()
}

/// The report of all analyses as JSON, and the summary's text: without what names or measures the files.
fn report(folders: &[PathBuf], rank: Option<i32>) -> (Json, String) {
    let trace = Trace::open(folders).unwrap();
    let filter = Filter::default().only(&trace.processes, &[], rank.as_slice());
    let needs: Vec<Need> = ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect();
    let facts = Facts::gather(&trace, &filter, &needs);
    let sections: Vec<_> = ALL.iter().map(|analysis| (*analysis, analysis.section(&facts))).collect();
    let text = sections[0].1.literal.clone().unwrap_or_default();
    let text = text.split("next: gputrace report").next().unwrap_or_default().to_owned();
    let report = Report { traces: Vec::new(), notes: Vec::new(), sections, problems: trace.problems() };
    let mut json: Json = serde_json::from_str(&report.render(Format::Json, Layout::PLAIN)).unwrap();
    json["analyses"]["summary"]["facts"]["trace_bytes"] = Json::Null;
    (json, text)
}

fn fact(json: &Json, analysis: &str, key: &str) -> i64 {
    json["analyses"][analysis]["facts"][key].as_i64().unwrap_or(0)
}

/// A column of a table, of all its rows.
fn column(json: &Json, analysis: &str, table: &str, column: &str) -> Vec<Json> {
    let rows = json["analyses"][analysis]["tables"][table]["rows"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row[column].clone()).collect()
}

fn sum(json: &Json, analysis: &str, table: &str, name: &str) -> i64 {
    column(json, analysis, table, name).iter().filter_map(Json::as_i64).sum()
}

/// Where two values differ first; none where they are the same but for the last digits of a mean.
fn difference(a: &Json, b: &Json, at: &str) -> Option<String> {
    match (a, b) {
        (Json::Object(a), Json::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().find_map(|(key, value)| difference(value, &b[key], &format!("{at}.{key}")))
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| difference(a, b, &format!("{at}[{i}]")))
        }
        (Json::Number(a), Json::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64()?, b.as_f64()?);
            ((a - b).abs() > 1e-9 * a.abs().max(b.abs())).then(|| format!("{at}: {a} and {b}"))
        }
        _ => (a != b).then(|| format!("{at}: {a} and {b}")),
    }
}

/// Operations as intervals: compute, communication, copy.
fn intervals(trace: &Trace) -> Vec<(usize, i64, i64)> {
    let mut all = Vec::new();
    let want = |table, columns| Want { table, columns };
    let wants =
        [want(TableId::Kernels, &["gpu_ns", "name_id"] as &[_]), want(TableId::DeviceCopies, &["gpu_ns"] as &[_])];
    let communication = super::passes::gpu::communication::communication(trace);
    trace.scan(&wants, &Filter::default(), &mut |rows| {
        let (start, length) = (rows.i64("start_ns"), rows.i64("gpu_ns"));
        let names = if rows.table == TableId::Kernels { rows.i64("name_id") } else { start.clone() };
        for row in 0..rows.len {
            let class = match rows.table {
                TableId::DeviceCopies => 2,
                _ => usize::from(communication.contains(&names[row])),
            };
            all.push((class, start[row], start[row] + length[row]));
        }
    });
    all
}

/// Time that intervals of these classes cover, looked at between all begins and ends.
fn covered_ns(intervals: &[(usize, i64, i64)], classes: &[usize], at_least: usize) -> i64 {
    let mut edges: Vec<i64> = intervals.iter().flat_map(|(_, start, end)| [*start, *end]).collect();
    edges.sort_unstable();
    edges.dedup();
    let within = |from: i64, to: i64| {
        intervals.iter().filter(|(class, start, end)| classes.contains(class) && *start <= from && to <= *end).count()
    };
    edges.windows(2).filter(|edge| within(edge[0], edge[1]) >= at_least).map(|edge| edge[1] - edge[0]).sum()
}

fn settings(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, max_shrink_iters: 500, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(settings(24))]

    #[test]
    fn the_time_of_a_gpu_is_busy_with_one_thing_or_idle_for_one_reason(program in program(1..3)) {
        let made = together(&program);
        let trace = made.open();
        let (json, _) = report(std::slice::from_ref(&made.folder), None);
        let of = |key: &str| fact(&json, "gpu-utilisation", key);
        let all = intervals(&trace);
        let first = all.iter().map(|(_, start, _)| *start).min().unwrap_or(0);
        let last = all.iter().map(|(.., end)| *end).max().unwrap_or(0);
        prop_assert_eq!(of("range_ns"), last - first);
        let busy = covered_ns(&all, &[0, 1, 2], 1);
        prop_assert!(busy <= last - first);
        prop_assert_eq!(of("busy_ns"), busy);
        prop_assert_eq!(of("idle_ns"), last - first - busy);
        let compute = covered_ns(&all, &[0], 1);
        let kernels = covered_ns(&all, &[0, 1], 1);
        prop_assert_eq!(of("compute_ns"), compute);
        prop_assert_eq!(of("communication_exposed_ns"), kernels - compute);
        prop_assert_eq!(of("copies_exposed_ns"), busy - kernels);
        prop_assert_eq!(of("communication_ns"), covered_ns(&all, &[1], 1));
        let concurrent = sum(&json, "gpu-utilisation", "by_device", "concurrent_ns");
        prop_assert_eq!(concurrent, covered_ns(&all, &[0, 1, 2], 2));

        let gaps = |key: &str| fact(&json, "gpu-gaps", key);
        prop_assert_eq!(gaps("idle_ns"), of("idle_ns"));
        prop_assert_eq!(gaps("host_wait_ns") + gaps("kernel_wait_ns") + gaps("other_ns"), of("idle_ns"));
        for table in ["by_cause", "by_site"] {
            prop_assert_eq!(sum(&json, "gpu-gaps", table, "idle_ns"), of("idle_ns"), "{}", table);
        }
    }

    #[test]
    fn the_time_of_a_step_is_that_of_its_parts(program in program(1..3)) {
        let made = together(&program);
        made.write_parts(1);
        let (json, _) = report(std::slice::from_ref(&made.folder), None);
        let of = |key: &str| json["analyses"]["summary"]["facts"][key].as_f64();
        if let Some(unit) = of("unit_ns") {
            let parts = ["outside_driver_ns", "launch_ns", "wait_ns", "copy_ns", "memory_ns", "other_ns"];
            let all: f64 = parts.iter().filter_map(|part| of(part)).sum();
            let host = of("unit_host_ns").unwrap_or(0.0);
            prop_assert!((all - host).abs() <= 1e-6 * host, "{} of {}", all, host);
            prop_assert!(host == unit || json["analyses"]["summary"]["facts"]["step_bound"] == "GPU");
            let gpu = of("gpu_busy_ns").unwrap_or(0.0) + of("gpu_idle_ns").unwrap_or(0.0);
            let run = json["analyses"]["summary"]["facts"]["unit"] == "run";
            prop_assert!(run || gpu <= unit * (1.0 + 1e-6), "{} of {}", gpu, unit);
        }
    }

    #[test]
    fn a_report_does_not_depend_on_how_rows_lie_in_files(program in program(1..3), parts in 2..9usize) {
        let (whole, split) = (together(&program), together(&program));
        whole.write_parts(1);
        split.write_parts(parts);
        let [whole, split] = [&whole, &split].map(|made| report(std::slice::from_ref(&made.folder), None));
        prop_assert_eq!(difference(&whole.0, &split.0, ""), None);
        prop_assert_eq!(whole.1, split.1);
    }

    #[test]
    fn a_report_does_not_depend_on_the_order_of_folders_and_files(program in program(2..4), alike: bool) {
        // Ranks that do the same have the same numbers, and only their names tell them apart.
        let program: Program = if alike { vec![program[0].clone(); program.len()] } else { program };
        let (ranks, other) = (apart(&program, false), apart(&program, true));
        for rank in ranks.iter().chain(&other) {
            rank.write_parts(1);
        }
        let forth: Vec<PathBuf> = ranks.iter().map(|rank| rank.folder.clone()).collect();
        let back: Vec<PathBuf> = forth.iter().rev().cloned().collect();
        let renamed: Vec<PathBuf> = other.iter().map(|rank| rank.folder.clone()).collect();
        let forth = report(&forth, None);
        for (how, others) in [("folders", back), ("launchers", renamed)] {
            let others = report(&others, None);
            prop_assert_eq!(difference(&forth.0, &others.0, how), None);
            prop_assert_eq!(&forth.1, &others.1, "{}", how);
        }
    }

    #[test]
    fn ranks_that_are_merged_keep_their_own_numbers(program in program(2..4)) {
        let ranks = apart(&program, false);
        for rank in &ranks {
            rank.write_parts(1);
        }
        let folders: Vec<PathBuf> = ranks.iter().map(|rank| rank.folder.clone()).collect();
        let merged = report(&folders, None).0;
        let own: Vec<Json> = folders.iter().map(|folder| report(std::slice::from_ref(folder), None).0).collect();
        for (analysis, key) in [
            ("kernels", "kernels"),
            ("kernels", "total_ns"),
            ("gpu-utilisation", "range_ns"),
            ("gpu-utilisation", "busy_ns"),
            ("gpu-gaps", "idle_ns"),
            ("launch-overhead", "launches"),
            ("transfers", "copied_bytes"),
            ("syncs", "waits"),
        ] {
            let all: i64 = own.iter().map(|own| fact(own, analysis, key)).sum();
            prop_assert_eq!(fact(&merged, analysis, key), all, "{} {}", analysis, key);
        }
        for (rank, own) in own.iter().enumerate() {
            let mut merged = report(&folders, Some(rank as i32)).0;
            let mut own = own.clone();
            // These are about all that was recorded, whoever is looked at.
            for json in [&mut merged, &mut own] {
                for analysis in ["node-health", "ranks", "self"] {
                    json["analyses"][analysis] = Json::Null;
                }
            }
            prop_assert_eq!(difference(&own, &merged, ""), None, "rank {}", rank);
        }
    }
}
