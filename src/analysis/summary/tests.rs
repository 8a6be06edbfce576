//! Whole summaries of small traces, to the letter.

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::{self, Device, Root, Untraced};
use gputrace_collectors::schema::TableId;
use serde_json::json;

use super::Summary;
use crate::analysis::{Analysis, Facts};
use crate::trace::testing::{START, TestTrace, Thread};
use crate::trace::{Filter, Trace};

fn summary(trace: &TestTrace) -> String {
    let text = trace.section(&Summary).literal.unwrap_or_default();
    // The folder has another name each time.
    let (text, next) = text.split_once("next: gputrace report ").unwrap_or((&text, ""));
    assert!(next.ends_with("B)\n"), "{next}");
    text.to_owned()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Steps of 11.6 ms: 955 launches of 2.9 us, one short wait; the first ten are slower.
fn launch_bound_steps(thread: &mut Thread<'_>, steps: i64) {
    for step in 0..steps {
        for launch in 0..955 {
            thread.host(if step < 10 { 20_000 } else { 8_900 });
            thread.launch(&format!("kernel_{}", launch % 7), 2_900);
        }
        thread.host(24_000);
        thread.sync("cuStreamSynchronize", "stream", 310_000);
    }
}

#[test]
fn a_launch_bound_loop_is_named_with_its_numbers() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_200_000_000);
    launch_bound_steps(&mut trace.thread(1, 11), 60);
    let expected = "\
gputrace: python train.py  exit 0  1.20 s  60 steps  GPU 0
LAUNCH BOUND: 955 launch calls take 24 % of a step; the host waits 2.7 %
step (9 warm-up left out)  p50 11.60 ms  p99 11.60
 GPU   busy not recorded (--gpu-time full or events; host side only)
 host  outside driver 8.52 | launch calls 2.77 | waits 0.31 | copies 0.00
 955 launches, median 2.90 us api; 1 wait
findings (both together: at most 3.08 ms, 27 %)
1 many small launches  <= 2.77 ms (24 %)  effort low
   137 launches kernel_2 cuLaunchKernel
   137 launches kernel_1 cuLaunchKernel
   137 launches kernel_0 cuLaunchKernel
   try CUDA graphs: torch.compile(mode=\"reduce-overhead\"), cuStreamBeginCapture; AdamW(fused=True); larger batches
2 wait every step  <= 0.31 ms (2.7 %)  effort low
   cuStreamSynchronize 1 a step, 310 us each
   try wait less often: read the loss every 100 steps, not with .item() each time; events in place of full waits
checked, fine: allocations, hidden waits, pageable copies, small transfers, synchronous copies, module loading
not known: GPU busy and idle time; call sites; tensors inside a caching allocator
cost 0.4 %  lost 10 of 1,000  uncovered 0
";
    let text = summary(&trace);
    // Of kernels launched equally often the order is that of their ids.
    let without_kernels = |text: &str| -> Vec<String> {
        text.lines().filter(|l| !l.contains("launches kernel_")).map(str::to_owned).collect()
    };
    assert_eq!(without_kernels(&text), without_kernels(expected), "{text}");
    assert_eq!(text.matches("launches kernel_").count(), 3);
}

#[test]
fn a_loop_that_waits_for_the_gpu_is_healthy() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 2_000_000_000);
    let mut thread = trace.thread(1, 11);
    for _ in 0..30 {
        (0..20).for_each(|k| thread.launch(&format!("k{k}"), 3_000));
        thread.host(500_000);
        thread.sync("cuStreamSynchronize", "stream", 98_000_000);
    }
    let text = summary(&trace);
    assert_eq!(lines(&text)[1], "HEALTHY: no finding above 2 %; the host waits for the GPU 99 % of a step");
    assert_eq!(lines(&text)[2], "step  p50 98.56 ms  p99 98.56");
    assert!(
        !text.contains("finding\n") && text.contains("checked, fine: allocations, hidden waits, launches,"),
        "{text}"
    );
}

#[test]
fn of_ranks_that_are_as_slow_as_each_other_the_one_is_named_whose_numbers_are_shown() {
    let mut trace = TestTrace::new();
    for rank in 0..2 {
        trace.process(rank + 1, 100 + rank as i32, Some(rank as i32), START + 1_200_000_000);
        let mut thread = trace.thread(rank + 1, 11);
        for _ in 0..30 {
            (0..20).for_each(|k| thread.launch(&format!("k{k}"), 3_000));
            // Rank 0 waits for 9 ms of a step, rank 1 for 1 ms.
            thread.host(if rank == 0 { 940_000 } else { 8_940_000 });
            thread.sync("cuStreamSynchronize", "stream", if rank == 0 { 9_000_000 } else { 1_000_000 });
        }
    }
    let text = summary(&trace);
    assert!(text.contains("\n slowest rank 0 (+0 % of the median rank); numbers are its\n"), "{text}");
    assert!(text.contains(" | waits 9.00"), "{text}");
}

#[test]
fn several_ranks_are_told_apart_by_the_slowest() {
    let mut trace = TestTrace::new();
    for rank in 0..4 {
        trace.process(rank + 1, 100 + rank as i32, Some(rank as i32), START + 1_200_000_000);
        let mut thread = trace.thread(rank + 1, 11);
        for _ in 0..30 {
            (0..20).for_each(|k| thread.launch(&format!("k{k}"), 3_000));
            thread.host(if rank == 2 { 4_940_000 } else { 440_000 });
            thread.sync("cuStreamSynchronize", "stream", 9_500_000);
        }
    }
    let text = summary(&trace);
    assert!(lines(&text)[0].starts_with("gputrace: python train.py  4 ranks  exit 0  1.20 s  30 steps"), "{text}");
    assert!(text.contains("\n slowest rank 2 (+45 % of the median rank); numbers are its\n"), "{text}");
    assert!(text.contains("\n rank: step p50 in ms  0 10.00 | 1 10.00 | 2 14.50 | 3 10.00\n"), "{text}");
    assert!(text.contains("cost 0.4 %  lost 40 of 4,000  uncovered 0  ranks 4\n"), "{text}");
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn ranks_that_are_missing_or_failed_are_told_and_a_ranks_helper_is_none() {
    let mut trace = TestTrace::new();
    // The last one is a worker of rank 1, with its variables.
    for (id, rank, calls, code, signal) in
        [(1, 0, 9, Some(0), None), (2, 1, 9, None, Some(11)), (3, 3, 9, Some(1), None), (4, 1, 1, Some(0), None)]
    {
        trace.process(id, 100 + id as i32, Some(rank), START + 1_000_000_000);
        trace.row(
            TableId::Processes,
            json!({
                "process_id": id, "pid": 100 + id, "host": "node", "rank": rank, "world_size": 4, "exe": "/bin/python",
                "command": "python train.py", "origin": "exec", "start_ns": START, "end_ns": START + 1_000_000_000,
                "exit_code": code, "exit_signal": signal, "traced": true, "malloc_mode": "off",
            }),
        );
        let mut thread = trace.thread(id, 11);
        for _ in 0..30 {
            (0..calls).for_each(|k| thread.launch(&format!("k{k}"), 3_000));
            thread.sync("cuStreamSynchronize", "stream", 9_500_000);
        }
    }
    let text = summary(&trace);
    assert!(lines(&text)[0].starts_with("gputrace: python train.py  3 ranks  "), "{text}");
    assert!(text.contains("\n failed: rank 1 (pid 102) signal 11; rank 3 (pid 103) exit 1\n"), "{text}");
    assert!(text.contains("  ranks 3/4\n"), "{text}");
}

#[test]
fn many_ranks_are_told_by_the_fastest_the_median_and_the_slowest() {
    let mut trace = TestTrace::new();
    for rank in 0..9 {
        trace.process(rank + 1, 100 + rank as i32, Some(rank as i32), START + 1_200_000_000);
        let mut thread = trace.thread(rank + 1, 11);
        for _ in 0..30 {
            (0..20).for_each(|k| thread.launch(&format!("k{k}"), 3_000));
            thread.host(440_000 + 1_000_000 * rank);
            thread.sync("cuStreamSynchronize", "stream", 9_500_000);
        }
    }
    let text = summary(&trace);
    let expected = "\n rank: step p50 in ms (fastest, median, slowest)  0 10.00 | 4 14.00 | 8 18.00\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn the_device_has_its_name_where_all_have_the_same() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_200_000_000);
    launch_bound_steps(&mut trace.thread(1, 11), 20);
    let device = |uuid: &str, name: &str| Device { uuid: uuid.into(), name: name.into(), ..Device::default() };
    trace.manifest.as_mut().unwrap().devices = vec![device("GPU-1", "NVIDIA H200"), device("GPU-2", "NVIDIA H200")];
    assert!(lines(&summary(&trace))[0].ends_with("  20 steps  GPU 0 H200"), "{}", summary(&trace));
    trace.manifest.as_mut().unwrap().devices = vec![device("GPU-1", "NVIDIA H200"), device("GPU-3", "NVIDIA L4")];
    assert!(lines(&summary(&trace))[0].ends_with("  20 steps  GPU 0"), "{}", summary(&trace));
}

#[test]
fn a_program_without_cuda_is_told_why() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 200_000_000);
    if let Some(manifest) = &mut trace.manifest {
        let sudo = Untraced { pid: 7, exe: "/usr/bin/sudo".into(), reason: "setuid".into() };
        manifest.untraced = vec![sudo.clone(), sudo];
    }
    let expected = "\
gputrace: python train.py  exit 0  200 ms
no CUDA calls seen: no process loaded the driver (1 process traced)
not traced: /usr/bin/sudo (setuid) x 2
cost 0.4 %  lost 10 of 1,000  uncovered 0
";
    assert_eq!(summary(&trace), expected);
}

#[test]
fn calls_without_a_period_have_no_steps() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    let mut seed = 1u64;
    for _ in 0..500 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        thread.launch(&format!("k{}", seed >> 60), 2_000);
        thread.host(30_000);
    }
    trace.manifest = None;
    let trace = trace.open();
    let filter = Filter::default();
    let facts = Facts::gather(&trace, &filter, crate::findings::NEEDS);
    let text = Summary.section(&facts).literal.unwrap_or_default();
    assert!(text.contains("\nno steps detected: times are of the run, 15.97 ms of driver calls\n"), "{text}");
    assert!(text.contains("\nUNKNOWN: without a manifest nobody knows what the trace lacks\n"), "{text}");
    assert!(text.contains("\ncost, loss and coverage not known: no manifest\n"), "{text}");
}

#[test]
fn threads_that_overlap_count_each_nanosecond_once() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 100_000_000);
    let mut main = trace.thread(1, 11);
    for _ in 0..40 {
        (0..10).for_each(|k| main.launch(&format!("k{k}"), 10_000));
        main.sync("cuStreamSynchronize", "stream", 900_000);
    }
    // Another thread copies all the time, half of it while the first one launches or waits.
    let mut other = trace.thread(1, 12);
    for _ in 0..40 {
        other.host(100_000);
        other.copy("HtoD", ("pinned", "device"), true, 1 << 20, 900_000);
    }
    let text = summary(&trace);
    assert!(text.contains("\n host  outside driver 0.00 | launch calls 0.10 | waits 0.00 | copies 0.90\n"), "{text}");
}

#[test]
fn a_process_that_made_too_few_calls_is_not_judged() {
    let mut trace = TestTrace::new();
    trace.thread(1, 11).other("cuInit", "api", 5_000);
    trace
        .row(TableId::Processes, json!({ "process_id": 1, "pid": 5, "traced": true, "exe": "/bin/x", "command": "x" }));
    assert!(summary(&trace).contains("\nUNKNOWN: too few CUDA calls to judge (1)\n"));
}

/// The summary of what stands in the trace's folder, of the rows that the filter keeps.
fn summary_of(trace: &TestTrace, filter: &Filter) -> String {
    let trace = Trace::open(std::slice::from_ref(&trace.folder)).unwrap();
    let facts = Facts::gather(&trace, filter, crate::findings::NEEDS);
    Summary.section(&facts).literal.unwrap_or_default()
}

#[test]
fn launchers_that_ended_differently_are_all_told() {
    let mut trace = TestTrace::new();
    for rank in 0..5 {
        trace.process(rank + 1, 100 + rank as i32, Some(rank as i32), START + 1_200_000_000);
    }
    trace.write_parts(1);
    let first = trace.manifest.clone().unwrap();
    let ends = [(2, Some(0), None), (3, Some(1), None), (4, Some(0), None), (5, None, Some(9))];
    for (id, exit_code, exit_signal) in ends {
        let root = Root { process_id: Some(id), exit_code, exit_signal, wall_ns: None };
        let launcher_id = id as u64;
        let other = Manifest { launcher_id, root: Some(root), processes: Vec::new(), ..first.clone() };
        other.write(&manifest::path(&trace.folder, "node", launcher_id)).unwrap();
    }
    let text = summary_of(&trace, &Filter::default());
    assert!(
        text.starts_with("gputrace: python train.py  5 ranks  exit 0 (rank 2: exit 1; rank 4: signal 9)  1.20 s\n"),
        "{text}"
    );
}

#[test]
fn the_time_is_the_commands_own_and_a_window_says_what_is_not_of_it() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_200_000_000);
    if let Some(root) = trace.manifest.as_mut().and_then(|m| m.root.as_mut()) {
        root.wall_ns = Some(1_100_000_000);
    }
    trace.write_parts(1);
    let window = Filter { from_ns: Some(START + 500_000_000), to_ns: Some(START + 700_000_000), ..Filter::default() };
    let text = summary_of(&trace, &window);
    assert_eq!(lines(&text)[0], "gputrace: python train.py  exit 0  1.10 s  (reported: 500 ms .. 700 ms)");
    assert!(text.contains("\nof the whole run: cost 0.4 %  lost 10 of 1,000  uncovered 0\n"), "{text}");
    let text = summary_of(&trace, &Filter::default());
    assert_eq!(lines(&text)[0], "gputrace: python train.py  exit 0  1.10 s");
    assert!(text.contains("\ncost 0.4 %"), "{text}");
    let cost = manifest::Cost { total_ns: Some(24.6e9), waited_ns: Some(24e9), ..manifest::Cost::default() };
    trace.manifest.as_mut().unwrap().processes[0].cost = cost;
    let says = "\ncost 2050 % (2000 % of it threads that waited for room, added up)  lost 10 of";
    assert!(summary(&trace).contains(says), "{}", summary(&trace));
}

#[test]
fn where_nothing_was_seen_nothing_is_said_of_cost_and_loss() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 200_000_000);
    trace.manifest.as_mut().unwrap().processes[0].accounting.clear();
    assert!(!summary(&trace).contains("cost"), "{}", summary(&trace));
}

// metrics.md's two summaries, as near as what traces hold allows. Not in a trace yet, and so not in these: the budget of the
// cost, the share of steps with GPU times, tensor pipes and DRAM (GPM), and how much more a finding
// gains once another one is fixed.

/// Calls of a loop with what they cause: times of the GPU, and lines of Python.
fn launch_bound_on_gpu() -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_200_000_000);
    let device = Device { uuid: "GPU-1".into(), name: "NVIDIA H200".into(), ..Device::default() };
    trace.manifest.as_mut().unwrap().devices = vec![device];
    let [block, optimizer, loss] =
        [("Block.forward", "model.py", 88), ("step", "optim.py", 41), ("train", "train.py", 44)]
            .map(|(function, file, line)| trace.stack(function, file, line));
    let mut thread = trace.thread(1, 11);
    let mut free = START;
    for step in 0..60 {
        for launch in 0..955i64 {
            thread.host(if step < 10 { 20_000 } else { 8_900 });
            let drawn = launch % 50 == 0;
            thread.stack = drawn.then_some((if launch % 100 < 50 { block } else { optimizer }, 50));
            let begin = (thread.now + 4_900).max(free);
            free = thread.launch_running("kernel", 2_900, 7, (begin, if launch % 3 == 0 { 11_000 } else { 2_100 }));
        }
        thread.stack = Some((loss, 0));
        thread.sync("cuStreamSynchronize", "stream", 310_000);
        thread.stack = None;
        thread.host(24_000);
    }
    trace.in_time();
    trace
}

#[test]
fn a_launch_bound_loop_has_the_summary_that_was_asked_for() {
    let expected = "\
gputrace: python train.py  exit 0  1.20 s  60 steps  GPU 0 H200
LAUNCH BOUND: GPU idle 58 % of a step, host too slow to feed it
step (9 warm-up left out)  p50 11.60 ms  p99 11.60
 GPU   busy 4.84 | idle: not launched 6.17, after wait 0.33, other 0.25
 host  outside driver 8.52 | launch calls 2.77 | waits 0.31 | copies 0.00
 955 GPU operations, median kernel 2.10 us; 1 wait
findings (both together: at most 6.50 ms, 56 %)
1 many small launches  <= 6.20 ms (53 %)  effort low
   about 478 launches model.py:88 Block.forward
   about 478 launches optim.py:41 step
   955 launches kernel cuLaunchKernel
   try CUDA graphs: torch.compile(mode=\"reduce-overhead\"), cuStreamBeginCapture; AdamW(fused=True); larger batches
2 wait every step  <= 0.31 ms (2.7 %)  effort low
   train.py:44 train  cuStreamSynchronize 1 a step, 310 us each
   try wait less often: read the loss every 100 steps, not with .item() each time; events in place of full waits
checked, fine: allocations, exposed copies, hidden waits, host work, pageable copies, serialised streams, small transfers, synchronous copies, module loading
not known: tensors inside a caching allocator
cost 0.4 %  lost 10 of 1,000  uncovered 0
";
    assert_eq!(summary(&launch_bound_on_gpu()), expected);
}

#[test]
fn a_healthy_run_of_ranks_has_the_summary_that_was_asked_for() {
    let mut trace = TestTrace::new();
    for rank in 0..8 {
        let id = rank + 1;
        trace.process(id, 100 + rank as i32, Some(rank as i32), START + 4_200_000_000);
        let about = trace.manifest.as_mut().unwrap();
        let (uuid, memory_bytes) = (format!("GPU-{rank}"), Some(141_000_000_000));
        about.processes[rank as usize].devices = vec![uuid.clone()];
        about.devices.push(Device { uuid, name: "NVIDIA H200".into(), memory_bytes, ..Device::default() });
        let mut thread = trace.thread(id, 11);
        thread.alloc("cuMemAlloc_v2", "device", 0x1000, 118_000_000_000, 1_000_000);
        for _ in 0..40 {
            let begin = thread.now;
            let slow = if rank == 5 { 400_000 } else { 0 };
            let mut at = begin + 10_000;
            for layer in 0..9 {
                at = thread.launch_running("gemm", 5_000, 7, (at, 10_100_000 + slow / 9));
                if layer == 8 {
                    at = thread.launch_running("ncclDevKernel_AllReduce_Sum", 5_000, 8, (at, 4_100_000));
                }
            }
            at = thread.copy_running("DtoH", 4096, 5_000, (at, 1_200_000));
            thread.host(100_000);
            thread.sync("cuStreamSynchronize", "stream", at - thread.now + 5_000);
            thread.host(1_700_000);
        }
    }
    trace.in_time();
    trace.manifest.as_mut().unwrap().command = vec!["torchrun".into(), "train.py".into()];
    let expected = "\
gputrace: torchrun train.py  8 ranks  exit 0  4.20 s  40 steps
HEALTHY: no finding above 2 % of a step; GPU busy 98 %
step  p50 98.31 ms  p99 98.31
 GPU   busy 96.60 (98 %): compute 91.30, NCCL exposed 4.10, copies exposed 1.20 | idle 1.71
 host  outside driver 1.80 | launch calls 0.05 | waits 96.46 | copies 0.01
 11 GPU operations, median kernel 10.1 ms; 1 wait; 1 copy or set
 slowest rank 5 (+0.4 % of the median rank); numbers are its; reserved memory peak 118 of 141 GB
 rank: step p50 in ms  0 97.92 | 1 97.92 | 2 97.92 | 3 97.92 | 4 97.92 | 5 98.31 | 6 97.92 | 7 97.92
checked, fine: allocations, communication, exposed copies, hidden waits, host work, launches, pageable copies, serialised streams, small transfers, \
synchronous copies, waits, module loading
not known: which rank the others wait for; call sites; warp stalls (report has the ncu command); tensors inside a caching allocator
cost 0.4 %  lost 80 of 8,000  uncovered 0  ranks 8
";
    assert_eq!(summary(&trace), expected);
}

#[test]
fn of_two_gpus_the_one_that_idles_is_named_with_its_share() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    for n in 0..40 {
        let step = thread.range_begin();
        let begin = thread.now + 17_000;
        let end = thread.launch_running("gemm", 5_000, 7, (begin, 900_000));
        if n % 20 == 0 {
            thread.device = 1;
            thread.launch_running("gemm", 5_000, 7, (begin, 10_000));
            thread.device = 0;
        }
        thread.sync("cuStreamSynchronize", "stream", end - thread.now + 1_000);
        thread.range_end(None, "step", step, true);
    }
    let text = summary(&trace);
    assert!(lines(&text)[1].starts_with("IDLE GPU: GPU 1 busy 0"), "{text}");
    assert!(lines(&text)[1].contains(" of a step while GPU 0 is busy 98 %"), "{text}");
    assert!(text.contains("  the mean of 2 GPUs, each busy: 0 98 % | 1 0"), "{text}");
    let finding = "1 a GPU that has next to nothing to do  gain not known  effort medium\n   GPU 1 busy 0";
    assert!(text.contains(finding) && text.contains("one process a GPU"), "{text}");
    let section = trace.section(&crate::analysis::gpu_utilisation::GpuUtilisation);
    let said = "Idle beside others: GPU 1 worked for 0.1 % of the time of all GPUs of its run, GPU 0 for 98 %.";
    assert!(section.notes.iter().any(|note| note == said), "{:?}", section.notes);
    // With the other one alone there is nothing to compare it with.
    let (opened, filter) = (
        trace.open(),
        Filter { device: Some(std::sync::Arc::new([(1, 0)].into_iter().collect())), ..Filter::default() },
    );
    let facts = Facts::gather(&opened, &filter, Summary.needs());
    let alone = Summary.section(&facts).literal.unwrap_or_default();
    assert!(!alone.contains("IDLE GPU") && !alone.contains("the mean of"), "{alone}");
    assert!(!alone.contains("next to nothing"), "{alone}");
}
