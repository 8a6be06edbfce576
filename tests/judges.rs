//! Judges who know nothing of us: Holistic Trace Analysis and DuckDB find our report's numbers in the same trace.
//!
//! The trace is made here, as torch.profiler would write it: some thousand operations whose times have no pattern, and no
//! two the same. It is imported; HTA reads our export of that, DuckDB our files. That a judge would notice is tried too. The
//! questions of `examples/queries.sql` are asked of a run on the simulated driver.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::util::{Driver, Scratch, gputrace, lacks, program, repository, shim};

/// Operations of a trace.
const OPERATIONS: usize = 3_000;

/// Random numbers, the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as i64
    }
}

/// Microseconds.
fn us(ns: i64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// A trace whose operations run in one stream, or in those of kernels, copies and NCCL.
fn kineto(streams: bool) -> String {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut text =
        "{\"schemaVersion\": 1,\n\"distributedInfo\": {\"rank\": 0, \"world_size\": 1},\n\"traceEvents\": [\n"
            .to_owned();
    text.push_str("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":77,\"tid\":0,\"args\":{\"name\":\"python\"}}");
    let (mut host, mut free) = (1_000_000, [0i64; 32]);
    for n in 1..=OPERATIONS as i64 {
        // Sometimes the host does something else for long, so that the GPU runs dry.
        host += 500 + dice.below(if n % 40 == 0 { 300_000 } else { 9_000 });
        let call = 1_000 + dice.below(if n % 97 == 0 { 70_000 } else { 4_000 });
        let (api, cat, name, stream, longest) = match dice.below(20) {
            0..13 => ("cudaLaunchKernel", "kernel", format!("gemm_{}", dice.below(5)), 7, 12_000),
            13..16 if streams => {
                ("cudaLaunchKernelExC", "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL()".to_owned(), 20, 60_000)
            }
            13..16 => ("cudaLaunchKernelExC", "kernel", "softmax".to_owned(), 7, 9_000),
            16..19 => (
                "cudaMemcpyAsync",
                "gpu_memcpy",
                "Memcpy HtoD (Pinned -> Device)".to_owned(),
                if streams { 13 } else { 7 },
                20_000,
            ),
            _ => ("cudaMemsetAsync", "gpu_memset", "Memset (Device)".to_owned(), 7, 2_000),
        };
        // Some kernels follow at once, some a little later, as on a GPU.
        let next = free[stream] + [1 + dice.below(28), 40 + dice.below(900), 1_500][dice.below(3) as usize];
        let begin = next.max(host + call / 2 + 1_500 + dice.below(3_000));
        let length = 300 + dice.below(longest);
        free[stream] = begin + length;
        let (host_us, call_us, begin_us, length_us) = (us(host), us(call), us(begin), us(length));
        let _ = write!(
            text,
            ",\n{{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"{api}\",\"pid\":77,\"tid\":77,\"ts\":{host_us},\"dur\":{call_us},\"args\":{{\"correlation\":{n}}}}}\
             ,\n{{\"ph\":\"X\",\"cat\":\"{cat}\",\"name\":\"{name}\",\"pid\":0,\"tid\":{stream},\"ts\":{begin_us},\"dur\":{length_us},\
             \"args\":{{\"device\":0,\"context\":1,\"stream\":{stream},\"correlation\":{n},\"bytes\":4096}}}}"
        );
        host += call;
    }
    text.push_str("\n]}\n");
    text
}

/// A trace of 60 layers, each an operator with another one inside: of four sequences, and of too few kernels.
fn operators() -> String {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let mut text =
        "{\"schemaVersion\": 1, \"distributedInfo\": {\"rank\": 0, \"world_size\": 1}, \"traceEvents\": [\n".to_owned();
    text.push_str("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":77,\"tid\":0,\"args\":{\"name\":\"python\"}}");
    let mut add = |cat: &str, name: &str, (pid, tid): (i64, i64), (from, to): (i64, i64), args: &str| {
        let (ts, dur) = (us(from), us(to - from));
        let _ = write!(
            text,
            ",\n{{\"ph\":\"X\",\"cat\":\"{cat}\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"dur\":{dur},\"args\":{{{args}}}}}"
        );
    };
    let (mut now, mut free, mut call) = (1_000_000, 0, 0);
    for _ in 0..60 {
        let (began, variant) = (now, dice.below(4));
        // The inner one has a copy more in one of them.
        let inner = [
            &["norm", "gemm", "softmax"][..],
            &["norm", "gemm"],
            &["copy", "gemm", "softmax"],
            &["norm", "gemm", "softmax"],
        ];
        let outer = if variant == 3 { "gelu" } else { "add" };
        for (place, kernel) in inner[variant as usize].iter().copied().chain([outer]).enumerate() {
            (now, call) = (now + 1_000 + dice.below(3_000), call + 1);
            let number = format!("\"correlation\":{call}");
            let begin = free.max(now + 5_000) + dice.below(2_000);
            free = begin + 1_000 + dice.below(9_000);
            let args = format!("\"device\":0,\"context\":1,\"stream\":7,{number}");
            if kernel == "copy" {
                add("cuda_runtime", "cudaMemsetAsync", (77, 77), (now, now + 900), &number);
                add("gpu_memset", "Memset (Device)", (0, 7), (begin, free), &format!("{args},\"bytes\":4096"));
            } else {
                add("cuda_runtime", "cudaLaunchKernel", (77, 77), (now, now + 900), &number);
                add("kernel", kernel, (0, 7), (begin, free), &args);
            }
            now += 1_000;
            if place + 1 == inner[variant as usize].len() {
                add("cpu_op", "aten::attention", (77, 77), (began + 500, now), "");
                now += 100;
            }
        }
        now += 200;
        add("cpu_op", "aten::layer", (77, 77), (began, now), "");
        now += 1_000;
    }
    text.push_str("\n]}\n");
    text
}

/// The trace, its export in a folder of its own, and the report on it.
fn prepare(scratch: &Scratch, streams: bool) -> [PathBuf; 3] {
    let file = scratch.file("made.json", kineto(streams));
    let [trace, exported, report] = ["trace", "exported", "report.json"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&exported).expect("a folder");
    let run = |arguments: &[&str]| drop(scratch.gputrace(arguments).expect(0));
    run(&["import", file.to_str().expect("text"), "-o", "trace"]);
    run(&["export", "trace", "--format", "kineto", "-o", "exported/rank0.json.gz"]);
    run(&["report", "trace", "--format", "json", "-o", "report.json"]);
    [trace, exported, report]
}

/// Asks a judge; none where none is installed.
fn ask(judge: &str, arguments: &[&Path], more: &[&str]) -> Option<Output> {
    let Some(python) = std::env::var_os("GPUTRACE_JUDGE_PYTHON") else {
        lacks("Holistic Trace Analysis and DuckDB (GPUTRACE_JUDGE_PYTHON)");
        return None;
    };
    let script = repository().join("tests/judges").join(judge);
    let mut command = Command::new(python);
    command.arg("-B").arg(script).args(arguments).args(more);
    Some(command.output().expect("the judge runs"))
}

#[track_caller]
pub(crate) fn agrees(judge: &str, arguments: &[&Path], more: &[&str]) {
    let Some(output) = ask(judge, arguments, more) else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(", 0 differ"), "{said}");
}

#[test]
fn holistic_trace_analysis_finds_the_same_over_streams() {
    let scratch = Scratch::new();
    let [_, exported, report] = prepare(&scratch, true);
    agrees("holistic.py", &[&exported, &report], &["all"]);
}

#[test]
fn holistic_trace_analysis_finds_the_same_causes_of_idle_time() {
    let scratch = Scratch::new();
    let [_, exported, report] = prepare(&scratch, false);
    agrees("holistic.py", &[&exported, &report], &["idle"]);
}

#[test]
fn holistic_trace_analysis_finds_the_same_launches_in_a_recorded_trace() {
    let scratch = Scratch::new();
    shim();
    scratch.target(gputrace()).args(["demo", "-o", "trace"]).plain().expect(0);
    let [exported, report] = ["exported", "report.json"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&exported).expect("a folder");
    scratch.gputrace(&["export", "trace", "--format", "kineto", "-o", "exported/rank0.json.gz"]).expect(0);
    scratch.gputrace(&["report", "trace", "--format", "json", "-o", "report.json"]).expect(0);
    agrees("holistic.py", &[&exported, &report], &["launches"]);
}

#[test]
fn holistic_trace_analysis_finds_the_same_sequences_of_kernels() {
    let scratch = Scratch::new();
    let file = scratch.file("made.json", operators());
    let [exported, report] = ["exported", "report.json"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&exported).expect("a folder");
    scratch.gputrace(&["import", file.to_str().expect("text"), "-o", "trace"]).expect(0);
    scratch.gputrace(&["export", "trace", "--format", "kineto", "-o", "exported/rank0.json"]).expect(0);
    let only = ["report", "trace", "--only", "frequent_cuda_kernel_sequences", "--format", "json", "-o", "report.json"];
    scratch.gputrace(&only).expect(0);
    agrees("sequences.py", &[&exported, &report], &["aten::layer", "aten::attention"]);
}

#[test]
fn duckdb_finds_the_same_in_the_files() {
    for streams in [true, false] {
        let scratch = Scratch::new();
        let [trace, _, report] = prepare(&scratch, streams);
        agrees("sql.py", &[&trace, &report], &[]);
    }
}

#[test]
fn a_judge_notices_each_number_that_is_one_off() {
    let scratch = Scratch::new();
    let [trace, exported, report] = prepare(&scratch, true);
    let text = std::fs::read_to_string(&report).expect("the report");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for (analysis, fact) in [("gpu-utilisation", "compute_ns"), ("gpu-gaps", "idle_ns")] {
        let mut wrong = value.clone();
        let number = &mut wrong["analyses"][analysis]["facts"][fact];
        *number = (number.as_i64().expect("a number") + 1).into();
        let file = scratch.file("wrong.json", wrong.to_string());
        for (judge, first, more) in [("holistic.py", &exported, &["all"][..]), ("sql.py", &trace, &[])] {
            let Some(output) = ask(judge, &[first, &file], more) else { return };
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(1), "{judge}: {said}");
            assert!(said.contains(", 1 differ"), "{judge} on {fact}: {said}");
        }
    }
}

#[test]
fn each_question_of_the_examples_has_the_answer_that_the_report_has() {
    let scratch = Scratch::new();
    let folder = repository().join("examples/bottlenecks");
    let training = repository().join("tests/programs/training.py");
    let train = format!("RANK=0 WORLD_SIZE=1 python3 -B {} {}", training.display(), folder.display());
    let script = format!("{train} && {} 2 10 > /dev/null", program("nvtx_threads").display());
    let truth = scratch.path().join("truth-%p.json");
    let target = scratch.shell(&script).with_driver(Driver::Plain).env("FAKE_CUDA_TRUTH", &truth);
    let run = target.options(["--stacks-over", "0"]).traced().expect(0);
    let [trace, report] = [run.trace.clone(), scratch.path().join("report.json")];
    let paths = [&trace, &report].map(|path| path.to_string_lossy().into_owned());
    for entry in std::fs::read_dir(scratch.path()).expect("a folder").flatten() {
        if entry.file_name().to_string_lossy().starts_with("truth-") {
            scratch.gputrace(&["import", &entry.path().to_string_lossy(), "-o", &paths[0]]).expect(0);
        }
    }
    scratch.gputrace(&["report", &paths[0], "--format", "json", "-o", &paths[1]]).expect(0);
    let queries = repository().join("examples/queries.sql");
    agrees("queries.py", &[&trace, &report, &queries], &[]);
    // Another trace's report differs: the comparison compares.
    let wrong = std::fs::read_to_string(&report).expect("the report").replace("\"calls\": 30,", "\"calls\": 31,");
    let wrong = scratch.file("wrong.json", wrong);
    if let Some(output) = ask("queries.py", &[&trace, &wrong, &queries], &[]) {
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
