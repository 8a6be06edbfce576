//! Rows in, what the device did out: every cause of a gap, and sums that add up to the range.

use super::OfLaunch;
use crate::analysis::{ALL, CAUSES, Cause, Facts, Need, Value};
use crate::trace::Filter;
use crate::trace::testing::{START, TestTrace};
use gputrace_collectors::schema::TableId;
use serde_json::json;

/// The idle time by cause, without those that have none, and everything else that a test asks for.
fn idle(trace: &TestTrace) -> Vec<(Cause, i64)> {
    let (trace, filter) = (trace.open(), Filter::default());
    let facts = Facts::gather(&trace, &filter, &[Need::Gpu]);
    let gpu = facts.gpu.expect("GPU times");
    let device = gpu.devices.iter().next().expect("a device");
    let causes = CAUSES.iter().map(|(cause, ..)| (*cause, device.idle[*cause as usize].ns));
    let idle: Vec<(Cause, i64)> = causes.filter(|(_, ns)| *ns > 0).collect();
    assert_eq!(idle.iter().map(|(_, ns)| ns).sum::<i64>(), device.idle_ns(), "the causes sum to the idle time");
    assert_eq!(device.busy().total_ns() + device.idle_ns(), device.range_ns(), "busy and idle sum to the range");
    idle
}

#[test]
fn a_gap_is_blamed_on_what_the_launching_thread_did() {
    type Do = fn(&mut crate::trace::testing::Thread<'_>);
    let cases: [(Cause, Do); 9] = [
        (Cause::NotLaunched, |t| t.host(100_000)),
        (Cause::Transfer, |t| t.copy("HtoD", ("pinned", "device"), true, 8, 100_000)),
        (Cause::Memory, |t| t.alloc("cuMemAlloc_v2", "device", 1, 8, 100_000)),
        (Cause::Load, |t| t.other("cuModuleLoadData", "module", 100_000)),
        (Cause::Driver, |t| t.other("cuCtxSetCurrent", "api", 100_000)),
        // Of which nothing ran on the GPU.
        (Cause::LaunchCalls, |t| t.launch("c", 100_000)),
        (Cause::Collective, |t| t.collective("ncclAllReduce", "all_reduce", 1, 8, false, 100_000)),
        (Cause::System, |t| t.system_wait("read", "read", 100_000)),
        // A wait that began when the GPU had run dry already is not what it waits for.
        (Cause::Driver, |t| t.sync("cuStreamSynchronize", "stream", 100_000)),
    ];
    for (cause, meanwhile) in cases {
        let mut trace = TestTrace::new();
        let mut thread = trace.thread(1, 11);
        let end = thread.launch_running("a", 5_000, 7, (START + 6_000, 10_000));
        thread.host(end - thread.now);
        meanwhile(&mut thread);
        let begin = thread.now;
        thread.launch_running("b", 5_000, 7, (begin + 6_000, 10_000));
        assert_eq!(idle(&trace), [(cause, 106_000)]);
    }
}

#[test]
fn a_wait_in_which_the_gpu_ran_dry_is_blamed_with_all_that_follows() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    let end = thread.launch_running("a", 5_000, 7, (START + 6_000, 50_000));
    let wait = end + 3_000 - thread.now;
    thread.sync("cuStreamSynchronize", "stream", wait);
    thread.host(200_000);
    let begin = thread.now;
    thread.launch_running("b", 5_000, 7, (begin + 6_000, 10_000));
    assert_eq!(idle(&trace), [(Cause::AfterWait, 209_000)]);
}

#[test]
fn what_was_queued_is_not_the_hosts_fault() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    let end = thread.launch_running("a", 5_000, 7, (START + 6_000, 100_000));
    // Queued long before: 20 ns is the device's own pace, 500 ns is not.
    let end = thread.launch_running("b", 5_000, 7, (end + 20, 100_000));
    let end = thread.launch_running("c", 5_000, 7, (end + 500, 100_000));
    // A launch that is under way when the device runs dry.
    thread.host(end - 1_000 - thread.now);
    thread.launch_running("d", 5_000, 7, (end + 5_000, 1_000));
    assert_eq!(idle(&trace), [(Cause::Launching, 5_000), (Cause::KernelWait, 20), (Cause::Queued, 500)]);
}

#[test]
fn after_a_fork_the_same_number_is_a_call_of_each_process() {
    let mut trace = TestTrace::new();
    // Parent and child count from the same number on, and their kernels lie between each other.
    for (process, kernel) in [(1, "parents"), (2, "childs")] {
        let mut thread = trace.thread(process, 11);
        for n in 0..50 {
            thread.now = START + n * 100_000 + process * 10_000;
            let begin = thread.now + 9_000 * process;
            thread.launch_running(kernel, 2_000, 7, (begin, 5_000));
        }
    }
    let trace = trace.open();
    let (filter, needs) = (Filter::default(), [Need::Launched]);
    let facts = Facts::gather(&trace, &filter, &needs);
    let gpu = facts.gpu.as_ref().expect("times");
    assert_eq!(gpu.without_call, 0);
    let mut joined: Vec<_> =
        gpu.launched.kernels.iter().map(|((process, ..), of)| (*process, of.queue.count, of.queue.max)).collect();
    joined.sort_unstable();
    assert_eq!(joined, [(1, 50, 7_000), (2, 50, 16_000)]);
}

#[test]
fn a_gap_longer_than_a_step_is_idle_time_of_the_mean_step() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    for step in 0..40 {
        let range = thread.range_begin();
        let begin = thread.now + 10_000;
        thread.launch_running("k", 5_000, 7, (begin, 900_000));
        // 100 us between two kernels, and in four steps 8 ms more: as long as eight usual steps.
        thread.host(995_000 + if [5, 11, 26, 33].contains(&step) { 8_000_000 } else { 0 });
        thread.range_end(None, "step", range, true);
    }
    let section = |of: &'static str| {
        let analysis = ALL.iter().find(|analysis| analysis.name() == of).expect("an analysis");
        trace.section(*analysis)
    };
    let number = |value: &Value| match value {
        Value::Num(ns) => (ns / 1_000.0).round() as i64,
        Value::Int(ns) => ns / 1_000,
        other => panic!("{other:?}"),
    };
    let summary = section("summary");
    let [usual, mean] = ["gpu_idle_ns", "gpu_idle_mean_ns"].map(|key| number(summary.get(key)));
    // Before the first operation and after the last one nothing is known.
    assert!((95..=100).contains(&usual) && (880..=920).contains(&mean), "{usual} {mean}");
    let text = summary.literal.clone().unwrap_or_default();
    assert!(text.contains("\n  unusual steps have longer gaps: idle 0.90 of 1.8"), "{text}");
    let gaps = section("gpu-gaps");
    let cell = |column: &str| number(gaps.cell("by_cause", 0, column));
    assert_eq!((cell("per_step_ns"), cell("mean_step_ns")), (usual, mean));
    let utilisation = section("gpu-utilisation");
    let cell = |column: &str| number(utilisation.cell("per_step", 0, column));
    // There what lies before the first operation and after the last one is not busy, and so idle.
    assert!(cell("idle_ns").abs_diff(usual) <= 5 && cell("mean_idle_ns").abs_diff(mean) <= 30);
}

#[test]
fn a_gpu_that_processes_share_is_known_while_both_have_windows() {
    let mut trace = TestTrace::new();
    // Steps of a ms with a kernel of 300 us; the other process's lie between them.
    for (process, window) in [(1, (20, 60)), (2, (35, 75))] {
        trace.process(process, 100 * process as i32, None, START + 100_000_000);
        let mut thread = trace.thread(process, 10 + process as i32);
        thread.now = START + (process - 1) * 500_000;
        for _ in 0..100 {
            let step = thread.range_begin();
            let begin = thread.now + 10_000;
            thread.launch_running("k", 5_000, 7, (begin, 300_000));
            thread.sync("cuCtxSynchronize", "context", 310_000);
            thread.host(1_000_000 - (thread.now - step));
            thread.range_end(None, "step", step, true);
        }
        let row = json!({"start_ns": START + window.0 * 1_000_000, "window_ns": (window.1 - window.0) * 1_000_000,
            "process_id": process, "kind": "window", "ended_by": "window"});
        trace.row(TableId::GpuWindows, row);
    }
    let trace = trace.open();
    let filter = Filter::of(&trace);
    let needs: Vec<Need> = ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect();
    let facts = Facts::gather(&trace, &filter, &needs);
    let section = ALL[0].section(&facts);
    let ms = |name: &str| match section.get(name) {
        Value::Num(ns) => ns / 1e6,
        other => panic!("{name}: {other:?}"),
    };
    // What lies before the first operation and after the last one is not known.
    for (name, truth) in [("unit_ns", 1.0), ("gpu_busy_ns", 0.6), ("gpu_idle_ns", 0.4)] {
        assert!((ms(name) - truth).abs() < 0.02, "{name}: {} ms", ms(name));
    }
}

#[test]
fn an_operation_without_its_call_leaves_the_gap_unknown() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    thread.launch_running("a", 5_000, 7, (START + 6_000, 10_000));
    let name = trace.name(gputrace_collectors::names::NameKind::Kernel, "b");
    let row =
        serde_json::json!({ "start_ns": START + 20_000, "gpu_ns": 10, "process_id": 1, "device": 0, "name_id": name });
    trace.row(gputrace_collectors::schema::TableId::Kernels, row);
    assert_eq!(idle(&trace), [(Cause::Unknown, 4_000)]);
}

#[test]
fn time_is_shared_out_between_computing_communication_and_copies() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    // Computing 0 to 100, NCCL 50 to 250, a copy 200 to 300: 100 + 150 + 50, and 100 at once.
    let at = |us: i64| START + 10_000 + us * 1_000;
    thread.launch_running("gemm", 1_000, 7, (at(0), 100_000));
    thread.launch_running("ncclDevKernel_AllReduce", 1_000, 9, (at(50), 200_000));
    thread.copy_running("HtoD", 1 << 20, 1_000, (at(200), 100_000));
    let (trace, filter) = (trace.open(), Filter::default());
    let facts = Facts::gather(&trace, &filter, &[Need::Gpu]);
    let gpu = facts.gpu.expect("GPU times");
    let device = gpu.devices.iter().next().expect("a device");
    let busy = device.busy();
    assert_eq!((busy.compute_ns, busy.communication_ns, busy.copy_ns), (100_000, 150_000, 50_000));
    assert_eq!((device.overlap_ns(), device.several.total_ns), ((200_000, 50_000), 100_000));
    assert_eq!(device.operations, [1, 1, 1]);
}

#[test]
fn the_order_of_rows_and_files_changes_nothing() {
    let make = |parts: usize| {
        let mut trace = TestTrace::new();
        let mut random = 7u64;
        let mut thread = trace.thread(1, 11);
        let mut ends = [START; 3];
        for n in 0..3_000i64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let stream = (random >> 33) as usize % 3;
            let begin = (thread.now + 3_000).max(ends[stream]);
            ends[stream] = thread.launch_running(
                &format!("k{}", n % 5),
                2_000,
                stream as i64,
                (begin, (random >> 40) as i64 % 9_000),
            );
            thread.host((random >> 50) as i64 % 4_000);
        }
        let folder = trace.write_parts(parts).to_owned();
        let opened = crate::trace::Trace::open(&[folder]).unwrap();
        let filter = Filter::default();
        let facts = Facts::gather(&opened, &filter, &[Need::Gpu]);
        let gpu = facts.gpu.expect("GPU times");
        let device = gpu.devices.iter().next().expect("a device");
        let idle: Vec<i64> = device.idle.iter().map(|gaps| gaps.ns).collect();
        (device.busy(), idle, device.several.total_ns, gpu.late, gpu.without_call, device.range_ns())
    };
    let whole = make(1);
    assert_eq!(whole, make(7));
    assert_eq!((whole.3, whole.4), (0, 0));
    assert_eq!(whole.0.total_ns() + whole.1.iter().sum::<i64>(), whole.5);
}

#[test]
fn queues_shapes_gaps_and_all_times_of_launches_are_kept_for_who_asks_for_them() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    thread.launch_running("a", 5_000, 7, (START + 6_000, 10_000));
    thread.launch_running("a", 5_000, 7, (START + 30_000, 10_000));
    let (trace, filter) = (trace.open(), Filter::default());
    let kept = |needs: &[Need]| {
        let gpu = Facts::gather(&trace, &filter, needs).gpu.expect("GPU times");
        let launched =
            |of: fn(&OfLaunch) -> u64| gpu.launched.kernels.iter().map(|(_, launched)| of(launched)).sum::<u64>();
        (
            [launched(|of| of.kernel.count), launched(|of| of.total.count)],
            gpu.queues.0.iter().count(),
            gpu.executions.shapes.iter().count(),
            gpu.devices.gaps.iter().map(|(_, gaps)| gaps.ns).sum::<i64>(),
        )
    };
    assert_eq!(kept(&[Need::Executions]), ([0, 0], 0, 1, 0));
    assert_eq!(kept(&[Need::Busy]), ([0, 0], 0, 0, 0));
    assert_eq!(kept(&[Need::Gpu]), ([2, 0], 0, 0, 14_000));
    assert_eq!(kept(&[Need::Launched]), ([2, 2], 1, 0, 0));
    assert_eq!(kept(&[Need::Gpu, Need::Launched, Need::Executions]), ([2, 2], 1, 1, 14_000));
}
