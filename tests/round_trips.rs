//! A profile of torch.profiler that was imported and exported again says what it said: to us by category and field, and to
//! Holistic Trace Analysis, which reads both files.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::judges::agrees;
use crate::util::{Scratch, program};

/// What is compared of an event's arguments: what Holistic Trace Analysis and TensorBoard read.
const ARGUMENTS: [&str; 15] = [
    "External id",
    "correlation",
    "device",
    "context",
    "stream",
    "bytes",
    "cuda_sync_kind",
    "wait_on_stream",
    "wait_on_cuda_event_id",
    "wait_on_cuda_event_record_corr_id",
    "Python id",
    "Python parent id",
    "Python module id",
    "grid",
    "block",
];

/// Two steps and the begin of a third, with everything that a profile may hold beside calls and kernels.
fn profile() -> Value {
    let mut events = vec![json!({"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "python"}})];
    let mut add = |cat: &str, name: &str, place: (i64, i64), span: (i64, i64), args: Value| {
        events.push(json!({
            "ph": "X", "cat": cat, "name": name, "pid": place.0, "tid": place.1, "ts": span.0, "dur": span.1, "args": args
        }));
    };
    let (host, gpu) = ((9, 9), (0, 7));
    let on_gpu = |more: Value| {
        let mut args = json!({"device": 0, "context": 1, "stream": 7});
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        args
    };
    add(
        "python_function",
        "train.py(1): <module>",
        host,
        (900, 3_100),
        json!({"Python id": 1, "Python parent id": null}),
    );
    for step in 0..3 {
        let (at, id, call) = (1_000 + step * 1_000, 10 * (step + 1), 100 * (step + 1));
        let step_name = format!("ProfilerStep#{}", step + 4);
        add("user_annotation", &step_name, host, (at, 950), json!({"External id": id}));
        add("gpu_user_annotation", &step_name, gpu, (at + 30, 500), json!({"External id": id}));
        let python = json!({"Python id": 2 + step, "Python parent id": 1, "Python module id": 0});
        add("python_function", "nn.Module: Linear_0", host, (at + 5, 200), python);
        add("cpu_op", "aten::mm", host, (at + 10, 40), json!({"External id": id + 1, "Input Dims": [[2, 2], [2, 2]]}));
        let named = json!({"External id": id + 1, "correlation": call});
        add("cuda_runtime", "cudaLaunchKernel", host, (at + 20, 5), named.clone());
        let kernel = json!({"External id": id + 1, "correlation": call, "grid": [4, 1, 1], "block": [64, 1, 1]});
        add("kernel", "gemm", gpu, (at + 30, 300), on_gpu(kernel));
        add(
            "cuda_runtime",
            "cudaMemcpyAsync",
            host,
            (at + 60, 5),
            json!({"External id": id + 2, "correlation": call + 1}),
        );
        let copy = json!({"External id": id + 2, "correlation": call + 1, "bytes": 4096});
        add("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", gpu, (at + 400, 130), on_gpu(copy));
        add("cuda_runtime", "cudaStreamWaitEvent", host, (at + 70, 2), json!({"correlation": call + 2}));
        let awaited = json!({"External id": id + 2, "correlation": call + 2, "cuda_sync_kind": "Stream Wait Event",
            "wait_on_stream": 20, "wait_on_cuda_event_id": 3, "wait_on_cuda_event_record_corr_id": call + 1});
        add("cuda_sync", "Stream Wait Event", gpu, (at + 71, 1), on_gpu(awaited));
        add("cuda_runtime", "cudaStreamSynchronize", host, (at + 80, 500), json!({"correlation": call + 3}));
        let sync = json!({"correlation": call + 3, "cuda_sync_kind": "Stream Sync"});
        add("cuda_sync", "Stream Sync", gpu, (at + 82, 480), on_gpu(sync));
        add("cuda_runtime", "cudaDeviceSynchronize", host, (at + 700, 20), json!({"correlation": call + 4}));
        let all =
            json!({"device": 0, "context": 1, "stream": -1, "correlation": call + 4, "cuda_sync_kind": "Context Sync"});
        add("cuda_sync", "Context Sync", (0, -1), (at + 701, 18), all);
        let nccl = json!({"External id": id + 3, "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 256,
            "Out msg nelems": 256, "Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"});
        add("cpu_op", "record_param_comms", host, (at + 730, 20), nccl);
    }
    json!({
        "schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1},
        "baseTimeNanoseconds": 1_740_000_000_000_000_000_i64, "traceEvents": events
    })
}

/// The events with a length, by category: what is compared of each.
fn by_category(profile: &Value) -> BTreeMap<String, Vec<String>> {
    let base = profile["baseTimeNanoseconds"].as_i64().expect("a base");
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in profile["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X") {
        let ns = |key: &str| (event[key].as_f64().expect("a time") * 1000.0).round() as i64;
        // Of a collective our own says bytes as well.
        let told = |key: &&str| !(*key == "bytes" && event["cat"] == "cpu_op");
        let args = ARGUMENTS.map(|key| Some(&event["args"][key]).filter(|value| !value.is_null() && told(&key)));
        let place = (&event["pid"], &event["tid"]);
        let told = format!("{} {place:?} {} {} {args:?}", event["name"], base + ns("ts"), ns("dur"));
        all.entry(event["cat"].as_str().expect("a category").to_owned()).or_default().push(told);
    }
    all.values_mut().for_each(|events| events.sort());
    all
}

fn read(file: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file).expect("a file")).expect("JSON")
}

#[test]
fn what_its_readers_look_at_comes_back_event_by_event() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("was")).expect("a folder");
    std::fs::create_dir(scratch.path().join("is")).expect("a folder");
    scratch.file("was/rank0.json", profile().to_string());
    let said = scratch.gputrace(&["import", "was/rank0.json", "-o", "trace"]).expect(0).own_stderr();
    assert!(
        said.contains("3 operators say which inputs they had (Input Dims and the like): these are left out"),
        "{said}"
    );
    assert!(!said.contains("no place"), "{said}");
    scratch.gputrace(&["export", "trace", "--format", "kineto", "-o", "is/rank0.json"]).expect(0);
    let [was, is] = ["was", "is"].map(|folder| by_category(&read(&scratch.path().join(folder).join("rank0.json"))));
    assert_eq!(was.keys().collect::<Vec<_>>(), is.keys().collect::<Vec<_>>());
    assert_eq!(was.len(), 8);
    for (category, events) in &was {
        assert_eq!(&is[category], events, "{category}");
    }
    let [was, is] = ["was", "is"].map(|folder| scratch.path().join(folder));
    agrees("same_profile.py", &[&was, &is], &[]);
}

#[test]
fn a_step_that_was_open_at_the_end_is_told_to_end_with_its_process_and_comes_back_open() {
    let scratch = Scratch::new();
    let target = scratch.target(program("nvtx_every")).arg("kill");
    let trace = scratch.path().join("killed");
    target.traced_command(&trace).status().expect("gputrace runs");
    let said =
        scratch.gputrace(&["export", "killed", "--format", "kineto", "-o", "killed.json"]).expect(0).own_stderr();
    assert!(said.contains("2 ranges without an end are told to end with their process"), "{said}");
    let profile = read(&scratch.path().join("killed.json"));
    let events = profile["traceEvents"].as_array().expect("events");
    let open: Vec<&Value> = events.iter().filter(|event| event["args"]["end not seen"] == true).collect();
    let names: Vec<&str> = open.iter().filter_map(|event| event["name"].as_str()).collect();
    assert_eq!(names, ["outer", "open"]);
    let end =
        |event: &&Value| ((event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap()) * 1000.0).round() as i64;
    assert_eq!(end(&open[0]), end(&open[1]));
    let last = events.iter().filter(|event| event["ph"] == "X").map(|event| end(&event)).max();
    assert_eq!(last, Some(end(&open[0])), "nothing ends later");
    scratch.gputrace(&["import", "killed.json", "-o", "back"]).expect(0);
    let back = crate::util::Trace::open(&scratch.path().join("back"));
    let ranges = back.table("ranges");
    assert_eq!(ranges.rows().filter(|row| row.maybe_int("end_ns").is_none()).count(), 2);
}
