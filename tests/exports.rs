//! What is exported says the same as the trace: read back, each call and each interval keeps its times to the ns.

use std::path::Path;

use crate::util::{Driver, Scratch, Table, Trace, program, repository};

/// Tables that are exported, with the columns that must come back; the last two name things.
const TABLES: &[(&str, &[&str], &[&str])] = &[
    ("launches", &["start_ns", "api_ns", "pid", "tid", "correlation_id", "result"], &["api_id", "name_id"]),
    ("syncs", &["start_ns", "api_ns", "pid", "tid", "correlation_id", "result"], &["api_id"]),
    ("transfers", &["start_ns", "api_ns", "pid", "tid", "correlation_id", "async"], &["api_id"]),
    ("device_memory", &["start_ns", "api_ns", "pid", "tid", "correlation_id"], &["api_id"]),
    ("api", &["start_ns", "api_ns", "pid", "tid", "correlation_id", "result"], &["api_id"]),
    (
        "kernels",
        &[
            "start_ns",
            "gpu_ns",
            "pid",
            "device",
            "context",
            "stream",
            "correlation_id",
            "grid_x",
            "block_x",
            "registers",
            "shared_bytes",
            "graph_node",
        ],
        &["name_id"],
    ),
    ("device_copies", &["start_ns", "gpu_ns", "pid", "device", "context", "stream", "correlation_id", "bytes"], &[]),
    ("collectives", &["start_ns", "api_ns", "pid", "tid", "communicator", "count", "bytes"], &["api_id"]),
    ("communicators", &["pid", "communicator", "unique_id", "rank", "ranks"], &[]),
    ("ranges", &["start_ns", "end_ns", "pid", "tid", "level"], &["name_id", "domain_id"]),
];

/// The rows as text, in an order of their own.
fn rows(trace: &Trace, table: &Table, columns: &[&str], named: &[&str]) -> Vec<String> {
    let names = trace.names();
    // The one name here that is mangled is shown as its source has it.
    let name = |id: i64| names[&id].replace("_Z3addPf", "add");
    let mut rows: Vec<String> = table
        .rows()
        .map(|row| {
            let numbers = columns.iter().map(|column| format!("{column} {:?}", row.maybe_int(column)));
            let named = named.iter().map(|column| format!("{column} {:?}", row.maybe_int(column).map(name)));
            numbers.chain(named).collect::<Vec<_>>().join(", ")
        })
        .collect();
    rows.sort();
    rows
}

/// Exports a trace as Kineto, imports that, and compares.
#[track_caller]
fn comes_back(scratch: &Scratch, trace: &str, file: &str) {
    comes_back_as(scratch, "kineto", trace, file);
}

/// The same in any format that can be imported.
#[track_caller]
pub(crate) fn comes_back_as(scratch: &Scratch, format: &str, trace: &str, file: &str) {
    scratch.gputrace(&["export", trace, "--format", format, "-o", file]).expect(0);
    let back = format!("{file}-back");
    scratch.gputrace(&["import", file, "-o", &back]).expect(0);
    let (was, is) = (Trace::open(&scratch.path().join(trace)), Trace::open(&scratch.path().join(&back)));
    let mut any = false;
    for (name, columns, named) in TABLES {
        let (before, after) = (was.table(name), is.table(name));
        if before.len() == 0 && after.len() == 0 {
            continue;
        }
        any = true;
        assert_eq!(rows(&is, &after, columns, named), rows(&was, &before, columns, named), "{name} of {file}");
    }
    assert!(any, "nothing was compared");
}

fn imported(scratch: &Scratch, files: &[&Path]) {
    let mut arguments = vec![Path::new("import")];
    arguments.extend(files);
    arguments.extend([Path::new("-o"), Path::new("imported")]);
    scratch.gputrace(&arguments).expect(0);
}

#[test]
fn every_event_of_an_imported_trace_comes_back_plain_and_compressed() {
    let scratch = Scratch::new();
    imported(&scratch, &[&repository().join("tests/traces/kineto-rank0.json")]);
    comes_back(&scratch, "imported", "plain.json");
    comes_back(&scratch, "imported", "small.json.gz");
    let device = Trace::open(&scratch.path().join("plain.json-back")).manifest().devices.remove(0);
    assert_eq!((device.sm_count, device.compute_capability.as_str()), (Some(132), "9.0"));
    let plain = std::fs::metadata(scratch.path().join("plain.json")).expect("a file").len();
    let small = std::fs::metadata(scratch.path().join("small.json.gz")).expect("a file").len();
    assert!(small * 2 < plain, "{small} of {plain} bytes");
}

#[test]
fn every_call_of_a_recorded_trace_comes_back() {
    let scratch = Scratch::new();
    let target = scratch.target(program("cuda_values")).with_driver(Driver::Plain);
    let trace = scratch.path().join("recorded");
    let status = target.traced_command(&trace).status().expect("gputrace runs");
    assert!(status.success());
    comes_back(&scratch, "recorded", "recorded.json");
    // Readers of torch.profiler's traces look for the runtime's names.
    let text = std::fs::read_to_string(scratch.path().join("recorded.json")).expect("the export");
    let launches: Vec<&str> = text.lines().filter(|line| line.contains("\"cuLaunchKernel\"")).collect();
    let told = |line: &&&str| {
        line.contains(r#""cat":"cuda_runtime","name":"cudaLaunchKernel""#)
            && line.contains(r#""driver function":"cuLaunchKernel""#)
    };
    assert!(!launches.is_empty() && launches.iter().filter(told).count() == launches.len(), "{launches:?}");
}

#[test]
fn what_is_not_known_of_a_kernel_is_left_out() {
    let scratch = Scratch::new();
    let kernel = |name: &str, ts: u32, more: &str| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":0,"args":{{"device":0,"stream":7{more}}}}}"#
        )
    };
    let all = r#","grid":[4,1,1],"block":[64,1,1],"registers per thread":0,"static shared memory":16,"dynamic shared memory":0"#;
    let events = [kernel("bare", 10, ""), kernel("known", 20, all)].join(",");
    let file = scratch.file("made.json", format!("{{\"traceEvents\":[{events}]}}"));
    imported(&scratch, &[&file]);
    scratch.gputrace(&["export", "imported", "--format", "kineto", "-o", "out.json"]).expect(0);
    let text = std::fs::read_to_string(scratch.path().join("out.json")).expect("the export");
    let line = |name: &str| text.lines().find(|line| line.contains(name)).expect("the kernel");
    for key in
        ["grid", "block", "registers per thread", "static shared memory", "dynamic shared memory", "shared memory"]
    {
        let key = format!("\"{key}\":");
        assert!(line("bare").find(&key).is_none() && line("known").contains(&key), "{key}: {text}");
    }
    assert!(
        line("known").contains(r#""registers per thread":0"#) && line("known").contains(r#""shared memory":16"#),
        "{text}"
    );
}

#[test]
fn windows_timed_launches_and_what_cupti_told_are_exported_and_are_no_work_of_the_gpu() {
    let scratch = Scratch::new();
    for (mode, table, category) in [
        ("windows", "gpu_windows", "Trace"),
        ("windows", "gpu_activity", "overhead"),
        ("events", "gpu_samples", "gpu_sample"),
    ] {
        let target = scratch.target(program("steps")).args(["1.2", "10", "10", "10000"]).with_driver(Driver::Plain);
        let target = target.options(["--gpu-time", mode, "--malloc", "off", "--os", "off", "--counters", "off"]);
        let windows = ["--gpu-window-every", "0.5", "--budget", "20"];
        let run = target.options(windows.into_iter().filter(|_| mode == "windows")).traced().expect(0);
        let (trace, file) = (run.trace.to_string_lossy().into_owned(), format!("{table}.json"));
        comes_back(&scratch, &trace, &file);
        let text = std::fs::read_to_string(scratch.path().join(&file)).expect("an export");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let events = value["traceEvents"].as_array().expect("events");
        let told: Vec<_> = events.iter().filter(|event| event["cat"] == category).collect();
        assert!(!told.is_empty() && told.len() == run.read().table(table).len(), "{table}: {} events", told.len());
        assert!(told.iter().all(|event| event["args"]["stream"].is_null() && event["pid"].is_i64()), "{told:?}");
    }
}

#[test]
fn calls_of_nccl_come_back_with_bytes_and_communicators() {
    let scratch = Scratch::new();
    let call = |n: usize, name: &str, dtype: &str, elements: (i64, i64), group: &str| {
        format!(
            "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"record_param_comms\", \"pid\": 9, \"tid\": 9, \"ts\": {n}00, \
             \"dur\": 50, \"args\": {{\"Collective name\": \"{name}\", \"dtype\": \"{dtype}\", \"In msg nelems\": {}, \
             \"Out msg nelems\": {}, \"Group size\": 2, \"Process Group Name\": \"{group}\", \"Process Group Ranks\": \"[4, 5]\"}}}}",
            elements.0, elements.1
        )
    };
    let events = [
        call(1, "_allgather_base", "BFloat16", (256, 512), "0"),
        call(2, "_reduce_scatter_base", "Float", (512, 256), "0"),
        call(3, "allreduce", "ComplexFloat", (100, 100), "1"),
        call(4, "all_to_all", "Bool", (64, 64), "1"),
        call(5, "send", "Long", (7, 7), "0"),
        call(6, "recv", "Char", (8, 8), "0"),
        call(7, "broadcast", "unheard", (9, 9), "1"),
        call(8, "wait", "Float", (9, 9), "1"),
    ];
    let text = format!(
        "{{\"distributedInfo\": {{\"rank\": 5, \"world_size\": 8}}, \"traceEvents\": [{}]}}",
        events.join(",\n")
    );
    imported(&scratch, &[&scratch.file("nccl.json", text)]);
    comes_back(&scratch, "imported", "nccl-export.json");
    let [was, is] = ["imported", "nccl-export.json-back"].map(|trace| Trace::open(&scratch.path().join(trace)));
    let texts = |trace: &Trace| -> Vec<(String, Option<String>)> {
        let calls = trace.table("collectives");
        calls.rows().map(|row| (row.text("kind").to_owned(), row.maybe_text("data_type").map(str::to_owned))).collect()
    };
    assert_eq!(texts(&is), texts(&was));
    assert_eq!((was.table("collectives").len(), was.table("communicators").len()), (7, 2));
    assert_eq!(is.table("ranges").len(), 8, "the operator around each call, and the one of which nothing is known");
    let report = |trace: &str| scratch.gputrace(&["report", trace, "--only", "collectives"]).expect(0).text();
    assert_eq!(report("nccl-export.json-back"), report("imported"));
}

#[test]
fn each_rank_gets_a_file_that_is_named() {
    let scratch = Scratch::new();
    let rank0 = repository().join("tests/traces/kineto-rank0.json");
    let text = std::fs::read_to_string(&rank0).expect("the trace").replace("\"rank\": 0", "\"rank\": 1");
    let rank1 = scratch.file("rank1.json", text);
    imported(&scratch, &[&rank0, &rank1]);
    let run = scratch.gputrace(&["export", "imported", "--format", "kineto", "-o", "all.json"]).expect(0);
    for (name, rank) in [("all-rank0.json", 0), ("all-rank1.json", 1)] {
        assert!(run.own_stderr().contains(name), "{}", run.own_stderr());
        let text = std::fs::read_to_string(scratch.path().join(name)).expect("an export");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["distributedInfo"], serde_json::json!({ "backend": "nccl", "rank": rank, "world_size": 2 }));
    }
    assert!(!scratch.path().join("all.json").exists());
}

#[test]
fn a_dash_stands_for_standard_output() {
    let scratch = Scratch::new();
    imported(&scratch, &[&repository().join("tests/traces/kineto-rank0.json")]);
    let export =
        |output: &str| scratch.gputrace(&["export", "imported", "--format", "chrome", "-o", output]).expect(0).text();
    let text = export("-");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(value["traceEvents"].as_array().is_some_and(|events| !events.is_empty()));
    assert_eq!(text, export("/dev/stdout"));
    assert!(!scratch.path().join("-").exists());
}

#[test]
fn an_export_that_cannot_be_written_says_so() {
    let scratch = Scratch::new();
    imported(&scratch, &[&repository().join("tests/traces/kineto-rank0.json")]);
    let run = scratch.gputrace(&["export", "imported", "--format", "kineto", "-o", "no/folder.json"]).expect(1);
    assert!(
        run.own_stderr().contains("no/folder.json") && run.own_stderr().lines().count() == 1,
        "{}",
        run.own_stderr()
    );
    let run = scratch.gputrace(&["export", "nothing", "--format", "kineto", "-o", "e.json"]).expect(1);
    assert!(run.own_stderr().contains("no trace at nothing"), "{}", run.own_stderr());
    let run = scratch.gputrace(&["export", "imported", "--format", "gantt", "-o", "e.json"]).expect(2);
    assert!(run.own_stderr().contains("gantt"), "{}", run.own_stderr());
}

#[test]
fn malloc_by_stack_is_exported_with_the_sums_of_its_rows() {
    let scratch = Scratch::new();
    let target = scratch.target(program("mallocs")).args(["traffic", "300", "70001"]);
    let run = target.options(["--malloc", "full", "--on-full", "block"]).traced().expect(0);
    let trace = run.trace.to_string_lossy().into_owned();
    let export = |more: &[&str], file: &str| {
        scratch.gputrace(&[&["export", &trace, "-o", file, "--format"], more].concat()).expect(0);
        std::fs::read(scratch.path().join(file)).expect("the export")
    };
    let sum = |text: Vec<u8>| -> i64 {
        let text = String::from_utf8(text).expect("a text");
        assert!(text.lines().all(|line| line.starts_with("mallocs (pid ")), "{text}");
        text.lines().map(|line| line.rsplit(' ').next().expect("a value").parse::<i64>().expect("a number")).sum()
    };
    let rows = run.read().table("host_memory");
    let of = |action: &str| -> i64 {
        rows.rows().filter(|row| row.text("action") == action).map(|row| row.float("weight_bytes") as i64).sum()
    };
    assert!(of("alloc") > 300 * 70_001);
    assert_eq!(sum(export(&["folded"], "alloc.folded")), of("alloc"));
    let inuse = sum(export(&["folded", "--value", "inuse_space"], "inuse.folded"));
    assert_eq!(inuse, of("alloc") - of("free"));
    let peak = sum(export(&["folded", "--value", "inuse_space", "--at", "peak"], "peak.folded"));
    assert!(peak >= inuse && peak < of("alloc"), "{peak} of {}", of("alloc"));
    // Compressed, whatever its name.
    assert_eq!(export(&["pprof"], "heap.pb")[..2], [0x1f, 0x8b]);
    for (wrong, says) in [
        (&["pprof", "--value", "alloc_space"][..], "--format folded"),
        (&["kineto", "--at", "peak"], "--format pprof"),
        (&["folded", "--at", "peak"], "add --value inuse_space or --value inuse_objects"),
        (&["folded", "--at", "peak", "--value", "alloc_space"], "add --value inuse_space or --value inuse_objects"),
    ] {
        let run = scratch.gputrace(&[&["export", &trace, "-o", "x", "--format"], wrong].concat()).expect(2);
        assert!(run.own_stderr().contains(says), "{}", run.own_stderr());
    }
    assert!(!scratch.path().join("x").exists());
}
