//! Traces of other profilers become ours, row by row, and what cannot be read gets one clear line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::{Scratch, Table, Trace, repository};

/// `baseTimeNanoseconds` of the Kineto file, and when the session of the other began.
const BASE_NS: i64 = 1_740_000_000_000_000_000;

fn kineto() -> PathBuf {
    repository().join("tests/traces/kineto-rank0.json")
}

pub(crate) fn kineto_text() -> String {
    fs::read_to_string(kineto()).expect("the trace")
}

/// Imports a file into a new trace.
#[track_caller]
pub(crate) fn imported(scratch: &Scratch, file: &Path) -> (Trace, String) {
    let trace = scratch.path().join("imported");
    let run = scratch.gputrace(&["import".as_ref(), file.as_os_str(), "-o".as_ref(), trace.as_os_str()]).expect(0);
    (Trace::open(&trace), run.own_stderr())
}

/// One column of a table, of all rows.
pub(crate) fn ints(table: &Table, column: &str) -> Vec<Option<i64>> {
    table.rows().map(|row| row.maybe_int(column)).collect()
}

pub(crate) fn texts<'a>(table: &'a Table, column: &str) -> Vec<Option<&'a str>> {
    table.rows().map(|row| row.maybe_text(column)).collect()
}

/// The names of a column of ids.
pub(crate) fn names(trace: &Trace, table: &Table, column: &str) -> Vec<String> {
    let known = trace.names();
    let name = |id: Option<i64>| id.map_or("-".to_owned(), |id| known[&id].clone());
    ints(table, column).into_iter().map(name).collect()
}

/// Begins, in ns since the base.
fn begins(table: &Table) -> Vec<i64> {
    table.rows().map(|row| row.int("start_ns") - BASE_NS).collect()
}

fn some<const N: usize>(values: [i64; N]) -> Vec<Option<i64>> {
    values.map(Some).to_vec()
}

#[test]
fn each_call_of_a_kineto_trace_is_a_row_of_its_table() {
    let scratch = Scratch::new();
    let (trace, said) = imported(&scratch, &kineto());
    trace.assert_balanced();
    assert!(said.contains("of rank 0 imported"), "{said}");

    let launches = trace.table("launches");
    assert_eq!(names(&trace, &launches, "api_id"), ["cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch"]);
    assert_eq!(begins(&launches), [1_020_001, 1_060_000, 1_080_000]);
    assert_eq!(ints(&launches, "api_ns"), some([4_999, 3_250, 10_000]));
    assert_eq!(ints(&launches, "correlation_id"), some([102, 103, 104]));
    assert_eq!(ints(&launches, "kernels"), some([1, 1, 2]));
    assert_eq!(ints(&launches, "stream"), some([7, 20, 7]));
    assert_eq!(ints(&launches, "block_x"), some([128, 544, 0]));
    assert_eq!(names(&trace, &launches, "name_id")[2], "-", "a graph has no kernel of its own");

    let syncs = trace.table("syncs");
    assert_eq!((texts(&syncs, "kind"), ints(&syncs, "stream")), (vec![Some("stream")], some([20])));
    assert_eq!(ints(&syncs, "pending_streams"), some([1]), "the collective was running");

    let transfers = trace.table("transfers");
    assert_eq!(texts(&transfers, "direction"), [Some("HtoD"), Some("unknown")]);
    assert_eq!(texts(&transfers, "kind"), [Some("copy"), Some("set")]);
    assert_eq!(texts(&transfers, "src_kind"), [Some("pinned"), None]);
    assert_eq!(ints(&transfers, "bytes"), some([1_048_576, 4_096]));
    assert_eq!(ints(&transfers, "async"), some([1, 1]));
    let memory = trace.table("device_memory");
    assert_eq!((texts(&memory, "action"), texts(&memory, "kind")), (vec![Some("alloc")], vec![Some("device")]));
}

#[test]
fn what_the_gpu_did_keeps_its_times_and_its_cause() {
    let scratch = Scratch::new();
    let (trace, _) = imported(&scratch, &kineto());
    let kernels = trace.table("kernels");
    assert_eq!(begins(&kernels), [1_026_125, 1_070_000, 1_100_000, 1_111_000]);
    assert_eq!(ints(&kernels, "gpu_ns"), some([30_875, 100_000, 10_000, 10_000]));
    assert_eq!(ints(&kernels, "correlation_id"), some([102, 103, 104, 104]));
    assert_eq!(ints(&kernels, "graph_node"), [None, None, Some(12_884_901_889), Some(12_884_901_890)]);
    assert_eq!(ints(&kernels, "registers"), some([168, 96, 16, 16]));
    assert_eq!(ints(&kernels, "grid_x"), some([8, 16, 64, 64]));
    assert!(names(&trace, &kernels, "name_id")[1].starts_with("ncclDevKernel_AllReduce_Sum_f32_RING_LL("));
    let copies = trace.table("device_copies");
    assert_eq!(begins(&copies), [1_011_000, 1_121_000]);
    assert_eq!(
        (texts(&copies, "kind"), ints(&copies, "gpu_ns")),
        (vec![Some("copy"), Some("set")], some([6_500, 1_000]))
    );
    assert_eq!(texts(&copies, "dst_kind"), [Some("device"), Some("device")]);

    let ranges = trace.table("ranges");
    assert_eq!(names(&trace, &ranges, "name_id"), ["aten::mm", "ProfilerStep#1"], "in the order of their ends");
    assert_eq!(names(&trace, &ranges, "domain_id"), ["cpu_op", "user_annotation"]);
    let processes = trace.table("processes");
    assert_eq!((ints(&processes, "pid"), ints(&processes, "rank")), (some([4242]), some([0])));
    assert_eq!((ints(&processes, "world_size"), texts(&processes, "exe")), (some([2]), vec![Some("python3")]));
    assert_eq!(texts(&trace.table("threads"), "name"), [Some("thread 4242 (python3)"), None]);
    let device = &trace.manifest().devices[0];
    assert_eq!((device.name.as_str(), device.sm_count), ("NVIDIA H100 80GB HBM3", Some(132)));
    assert_eq!((device.memory_bytes, device.compute_capability.as_str()), (Some(85_029_158_912), "9.0"));
}

#[test]
fn a_report_says_where_the_times_come_from() {
    let scratch = Scratch::new();
    imported(&scratch, &kineto());
    let report = scratch.gputrace(&["report", "imported"]).expect(0).text();
    for part in ["imported from kineto-rank0.json (Kineto JSON)", "sm90_x", "H100", "aten::mm"] {
        assert!(report.contains(part), "{part} in {report}");
    }
}

#[test]
fn times_since_1970_and_the_name_of_the_format_do_not_matter() {
    let scratch = Scratch::new();
    // Older profilers wrote microseconds since 1970, whole ones or with a fraction.
    let absolute = kineto_text()
        .replace("\"baseTimeNanoseconds\": 1740000000000000000,", "")
        .replace("\"ts\": 1", "\"ts\": 1740000000001")
        .replace("\"ts\": 99", "\"ts\": 174000000000099");
    let file = scratch.file("trace.txt", absolute);
    let (trace, _) = imported(&scratch, &file);
    assert_eq!(begins(&trace.table("kernels"))[0], 1_026_125);
}

#[test]
fn times_before_1970_keep_their_distances() {
    let scratch = Scratch::new();
    let early =
        kineto_text().replace("\"baseTimeNanoseconds\": 1740000000000000000,", "").replace("\"ts\": 1", "\"ts\": -1");
    let (trace, said) = imported(&scratch, &scratch.file("early.json", early));
    assert!(trace.table("kernels").len() == 4 && said.contains("times begin before 1970"), "{said}");
    let report = scratch.gputrace(&["report", "imported", "--only", "kernels"]).expect(0).text();
    assert!(!report.contains("damaged"), "{report}");
}

#[test]
fn a_compressed_trace_is_known_by_its_content_also_where_it_was_cut_off() {
    let scratch = Scratch::new();
    let zipped = Command::new("gzip").arg("-c").arg(kineto()).output().expect("gzip runs").stdout;
    let whole = scratch.file("whole", &zipped);
    assert_eq!(imported(&scratch, &whole).0.table("kernels").len(), 4);
    let _ = fs::remove_dir_all(scratch.path().join("imported"));
    let half = scratch.file("half", &zipped[..zipped.len() * 3 / 4]);
    let (trace, said) = imported(&scratch, &half);
    assert!(trace.table("launches").len() > 0 && said.contains("ends in the middle"), "{said}");
}

#[test]
fn ranks_share_a_trace_and_no_file_comes_in_twice() {
    let scratch = Scratch::new();
    let other = scratch.file("rank1.json", kineto_text().replace("\"rank\": 0", "\"rank\": 1"));
    let rank0 = kineto();
    let arguments = ["import".as_ref(), rank0.as_os_str(), other.as_os_str(), "-o".as_ref(), "imported".as_ref()];
    scratch.gputrace(&arguments).expect(0);
    let trace = Trace::open(&scratch.path().join("imported"));
    assert_eq!(trace.table("kernels").len(), 8);
    let mut ranks = ints(&trace.table("processes"), "rank");
    ranks.sort();
    assert_eq!(ranks, some([0, 1]));
    let again = scratch.gputrace(&arguments).expect(1).own_stderr();
    assert!(again.contains("is in imported already"), "{again}");
    assert_eq!(Trace::open(&scratch.path().join("imported")).table("kernels").len(), 8);
}

#[test]
fn an_export_of_nsight_systems_is_read_by_its_columns() {
    let scratch = Scratch::new();
    let sql = fs::read_to_string(repository().join("tests/traces/nsys.sql")).expect("the SQL");
    let without = |column: &str| sql.replace(&format!(", {column} INTEGER"), ", other INTEGER");
    for (name, sql) in
        [("now", sql.clone()), ("before graphs", without("graphNodeId")), ("early", without("mangledName"))]
    {
        let _ = fs::remove_dir_all(scratch.path().join("imported"));
        let file = scratch.path().join(format!("{name}.sqlite"));
        rusqlite::Connection::open(&file).expect("a database").execute_batch(&sql).expect("SQL");
        let (trace, said) = imported(&scratch, &file);
        trace.assert_balanced();
        assert!(said.contains("OSRT_API 2") && said.contains("calls inside other calls 1"), "{said}");
        let launches = trace.table("launches");
        assert_eq!(begins(&launches), [1_000, 5_000]);
        assert_eq!(ints(&launches, "result"), some([0, 701]));
        let kernels = trace.table("kernels");
        assert_eq!(begins(&kernels), [2_000, 6_500]);
        assert_eq!(ints(&kernels, "pid"), some([77, 78]), "the same correlation, of two processes");
        assert_eq!(ints(&kernels, "correlation_id"), some([11, 11]));
        assert_eq!(ints(&kernels, "static_shared_bytes"), some([1_024, 0]));
        let kernel = if name == "early" { "gemm(float*)" } else { "_Z4gemmPf" };
        assert_eq!(names(&trace, &kernels, "name_id")[0], kernel);
        let copies = trace.table("device_copies");
        assert_eq!(texts(&copies, "direction"), [Some("DtoH"), Some("unknown")]);
        assert_eq!(texts(&copies, "dst_kind"), [Some("pageable"), Some("device")]);
        assert_eq!(ints(&copies, "correlation_id"), [Some(13), None], "the set's call is not in the export");
        assert_eq!(ints(&trace.table("syncs"), "pending_streams"), some([1]));
        assert_eq!(names(&trace, &trace.table("ranges"), "domain_id"), ["-", "train"]);
        assert_eq!(texts(&trace.table("threads"), "name"), [Some("trainer"), None]);
        let manifest = trace.manifest();
        assert_eq!((manifest.host.as_str(), manifest.devices[0].name.as_str()), ("node7", "NVIDIA H200"));
    }
}

/// A profile with stacks of 60 steps: a launch in a layer, a wait for it, and a collective.
fn profile_with_stacks() -> String {
    let mut events =
        vec!["{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 9, \"args\": {\"name\": \"python\"}}".to_owned()];
    let mut add = |cat: &str, name: &str, place: (i64, i64), span: (i64, i64), args: &str| {
        events.push(format!(
            "{{\"ph\": \"X\", \"cat\": \"{cat}\", \"name\": \"{name}\", \"pid\": {}, \"tid\": {}, \"ts\": {}, \"dur\": {}, \
             \"args\": {{{args}}}}}",
            place.0, place.1, span.0, span.1
        ));
    };
    let main = (9, 9);
    add("python_function", "train.py(1): <module>", main, (0, 70_000), "");
    for step in 0..60 {
        let at = 1_000 + step * 1_000;
        let (launch, nccl) = (step * 2 + 1, step * 2 + 2);
        add("python_function", "train.py(10): step", main, (at, 900), "");
        add("python_function", "torch/nn/modules/module.py(1775): _call_impl", main, (at + 10, 40), "");
        add("cuda_runtime", "cudaLaunchKernel", main, (at + 20, 5), &format!("\"correlation\": {launch}"));
        add(
            "kernel",
            "gemm",
            (0, 7),
            (at + 30, 500),
            &format!("\"correlation\": {launch}, \"device\": 0, \"stream\": 7"),
        );
        add("python_function", "loss.py(33): read", main, (at + 100, 600), "");
        add("python_function", "<built-in method item of Tensor object at 0x7f0>", main, (at + 110, 580), "");
        add("cuda_runtime", "cudaStreamSynchronize", main, (at + 120, 500), "");
        let parameters = "\"Collective name\": \"_allgather_base\", \"In msg nelems\": 256, \"Out msg nelems\": 512, \"Group size\": 2, \
            \"dtype\": \"BFloat16\", \"Process Group Name\": \"0\", \"Process Group Ranks\": \"[4, 5]\"";
        add("cpu_op", "record_param_comms", main, (at + 720, 60), parameters);
        add("cuda_runtime", "cudaLaunchKernelExC", main, (at + 730, 5), &format!("\"correlation\": {nccl}"));
        add(
            "kernel",
            "ncclDevKernel_AllGather_RING_LL",
            (0, 20),
            (at + 740, 90),
            &format!("\"correlation\": {nccl}, \"device\": 0"),
        );
        // The backward pass has a thread of its own, without functions of Python.
        add("cuda_runtime", "cudaLaunchKernel", (9, 10), (at + 800, 5), "");
    }
    add("cpu_op", "record_param_comms", main, (68_000, 10), "\"Collective name\": \"wait\", \"dtype\": \"Float\"");
    let about = "\"distributedInfo\": {\"rank\": 5, \"world_size\": 8}, \"baseTimeNanoseconds\": 1740000000000000000";
    format!("{{{about}, \"traceEvents\": [{}]}}", events.join(",\n"))
}

#[test]
fn functions_of_python_are_the_stacks_of_calls_and_findings_name_them() {
    let scratch = Scratch::new();
    let (trace, said) = imported(&scratch, &scratch.file("stacks.json", profile_with_stacks()));
    trace.assert_balanced();
    assert!(!said.contains("python_function"), "{said}");
    let launches = trace.table("launches");
    assert_eq!(launches.len(), 180);
    let with_stack =
        |row: &crate::util::Row<'_>| (row.maybe_int("stack_id").is_some(), row.maybe_int("stack_launches"));
    for row in launches.rows() {
        assert_eq!(with_stack(&row), if row.int("tid") == 9 { (true, Some(1)) } else { (false, None) });
    }
    let wait = trace.table("syncs").rows().next().expect("a wait").int("stack_id");
    let text = |row: &crate::util::Row<'_>, column: &str| row.text(column).to_owned();
    let stacks = trace.stacks(|row| (text(row, "file"), row.maybe_int("line"), text(row, "function")));
    let frames: Vec<_> =
        stacks.of(wait).map(|(file, line, function)| (file.as_str(), *line, function.as_str())).collect();
    let outer = [("loss.py", Some(33), "read"), ("train.py", Some(10), "step"), ("train.py", Some(1), "<module>")];
    assert_eq!((frames[0], &frames[1..]), (("<built-in>", None, "item"), &outer[..]));
    let report = scratch.gputrace(&["report", "imported", "--only", "summary,launch-overhead"]).expect(0).text();
    assert!(report.contains("loss.py:33 read"), "the finding names the function that waits: {report}");
    assert!(report.contains("train.py:10 step"), "a launch in an installed package is the caller's: {report}");
}

#[test]
fn parameters_of_collectives_are_calls_of_nccl() {
    let scratch = Scratch::new();
    let (trace, said) = imported(&scratch, &scratch.file("stacks.json", profile_with_stacks()));
    assert!(said.contains("parameters of wait 1"), "{said}");
    let calls = trace.table("collectives");
    assert_eq!(calls.len(), 60);
    assert_eq!(names(&trace, &calls, "api_id")[0], "ncclAllGather");
    let first = calls.rows().next().expect("a call");
    assert_eq!(
        (first.int("count"), first.int("bytes"), first.text("data_type")),
        (256, 512, "bfloat16"),
        "one rank's share"
    );
    assert_eq!((first.text("kind"), first.int("communicator"), first.int("api_ns")), ("collective", 1, 60_000));
    let groups = trace.table("communicators");
    assert_eq!((ints(&groups, "rank"), ints(&groups, "ranks")), (some([1]), some([2])), "the second of ranks 4 and 5");
    let report =
        scratch.gputrace(&["report", "imported", "--only", "collectives", "--format", "json"]).expect(0).text();
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let row = &report["analyses"]["collectives"]["tables"]["by_operation"]["rows"][0];
    assert_eq!((&row["calls"], &row["bytes"], &row["ranks"]), (&60.into(), &(60 * 512).into(), &2.into()));
}

#[test]
fn a_snapshot_beside_a_profile_answers_what_the_profile_cannot() {
    let scratch = Scratch::new();
    let profile = scratch.file("stacks.json", profile_with_stacks());
    imported(&scratch, &profile);
    let report =
        || scratch.gputrace(&["report", "imported", "--only", "summary,self", "--width", "300"]).expect(0).text();
    let questions = ["tensors inside a caching allocator", "which tensors live in PyTorch's allocator"];
    let before = report();
    assert!(questions.iter().all(|question| before.contains(question)), "{before}");
    imported(&scratch, &repository().join("tests/traces/torch-memory.pickle"));
    let after = report();
    assert!(!questions.iter().any(|question| after.contains(question)), "{after}");
    assert!(after.contains("60 steps"), "the run is still the profile's: {after}");
}

#[test]
fn what_is_no_trace_of_a_profiler_gets_one_line() {
    let scratch = Scratch::new();
    imported(&scratch, &kineto());
    let foreign = scratch.path().join("foreign.sqlite");
    rusqlite::Connection::open(&foreign).expect("a database").execute_batch("CREATE TABLE t (a)").expect("SQL");
    let half = scratch.path().join("half.sqlite");
    fs::write(&half, &fs::read(&foreign).expect("bytes")[..200]).expect("a file");
    let cases: [(&str, PathBuf, &str); 9] = [
        ("empty", scratch.file("empty", ""), "is empty"),
        ("text", scratch.file("text", "hello"), "is not a trace of torch.profiler"),
        ("json", scratch.file("json", "{\"a\": 1}"), "is not a trace of torch.profiler"),
        ("events", scratch.file("events", "{\"traceEvents\": []}"), "is not a trace of torch.profiler"),
        ("host", scratch.file("host", "[{\"ph\": \"X\", \"cat\": \"overhead\"}]"), "nothing that can be imported"),
        ("foreign", foreign, "not one that nsys exported"),
        ("half", half, "cannot be imported"),
        ("folder", scratch.path().join("imported"), "is a trace of gputrace already"),
        ("missing", scratch.path().join("missing.json"), "cannot be read"),
    ];
    for (name, file, wanted) in cases {
        let run = scratch.gputrace(&["import".as_ref(), file.as_os_str(), "-o".as_ref(), "new".as_ref()]).expect(1);
        let said = run.own_stderr();
        assert!(said.contains(wanted) && said.lines().count() == 1, "{name}: {said}");
        assert!(!scratch.path().join("new").exists(), "{name} left a trace");
    }
}

#[test]
fn an_output_that_is_something_else_is_left_alone() {
    let scratch = Scratch::new();
    scratch.file("file", "mine");
    fs::create_dir(scratch.path().join("folder")).expect("a folder");
    scratch.file("folder/mine", "mine");
    scratch.gputrace(&["-o", "recorded", "--", "true"]).expect(0);
    let trace = scratch.path().join("recorded");
    for (output, wanted) in [
        (scratch.path().join("file"), "no folder"),
        (scratch.path().join("folder"), "not empty"),
        (trace, "was recorded"),
    ] {
        let from = kineto();
        let run = scratch.gputrace(&["import".as_ref(), from.as_os_str(), "-o".as_ref(), output.as_os_str()]).expect(2);
        assert!(run.own_stderr().contains(wanted), "{}", run.own_stderr());
    }
}

#[test]
fn of_files_that_are_not_all_imported_nothing_is_left() {
    let scratch = Scratch::new();
    let bad = scratch.file("bad.json", "{\"a\": 1}");
    let (good, out) = (kineto(), scratch.path().join("out"));
    let import = |files: &[&Path]| {
        let mut arguments = vec![Path::new("import")];
        arguments.extend(files);
        arguments.extend([Path::new("-o"), Path::new("out")]);
        scratch.gputrace(&arguments)
    };
    let said = import(&[&good, &bad]).expect(1).own_stderr();
    assert!(said.contains("nothing is left of the 1 that were imported before: ") && !out.exists(), "{said}");
    import(&[&good]).expect(0);
    // What another import made stays.
    import(&[&bad]).expect(1);
    assert!(Trace::open(&out).table("kernels").len() > 0);
}

#[test]
fn operations_of_the_gpu_without_a_call_are_said_to_have_none() {
    let scratch = Scratch::new();
    let kernel = |ts: u32, correlation: &str| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":5,"args":{{"device":0,"stream":7{correlation}}}}}"#
        )
    };
    let launch = r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":1,"dur":2,"args":{"correlation":4}}"#;
    let said = |name: &str, events: &[String]| {
        let text = format!("{{\"traceEvents\":[{launch},{}]}}", events.join(","));
        let file = scratch.file(name, text);
        let run = scratch.gputrace(&[Path::new("import"), &file, Path::new("-o"), Path::new(&format!("{name}.trace"))]);
        run.expect(0).own_stderr()
    };
    let (own, zero, none) = (kernel(10, r#","correlation":4"#), kernel(20, r#","correlation":0"#), kernel(30, ""));
    let lost = kernel(40, r#","correlation":9"#);
    let all = said("all", std::slice::from_ref(&own));
    assert!(!all.contains("have no call"), "{all}");
    let unnumbered = said("unnumbered", &[own.clone(), zero.clone(), none]);
    assert!(
        unnumbered
            .contains("2 of 3 operations of the GPU have no call: they name none (correlation 0, or no correlation)"),
        "{unnumbered}"
    );
    let mixed = said("mixed", &[own.clone(), zero, lost.clone()]);
    assert!(
        mixed.contains("2 of 3") && mixed.contains("1 name none") && mixed.contains("lacks those of the others"),
        "{mixed}"
    );
    let lacking = said("lacking", &[own, lost]);
    assert!(
        lacking.contains("1 of 2 operations of the GPU have no call: the file lacks the calls that they name"),
        "{lacking}"
    );
}
