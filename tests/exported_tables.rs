//! Databases and tables for other programs hold what the trace holds: read by Python's sqlite3 and csv and by pyarrow
//! (`tests/exported_tables/read.py`), and the database by our own import.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::exports::comes_back_as;
use crate::timelines::middle;
use crate::util::{Driver, Row, Scratch, Trace, gputrace, lacks, program, repository};

/// A run on the simulated driver with times of the GPU.
fn recorded(scratch: &Scratch) -> Trace {
    let target = scratch.target(program("steps")).args(["0.4", "10", "10", "10000"]).with_driver(Driver::Plain);
    let run = target.options(["--gpu-time", "full", "--os-over", "50"]).traced().expect(0);
    std::fs::rename(&run.trace, scratch.path().join("recorded")).expect("the trace is moved");
    Trace::open(&scratch.path().join("recorded"))
}

/// A trace with ranges, of torch.profiler.
fn imported(scratch: &Scratch) -> Trace {
    let file = repository().join("tests/traces/kineto-rank0.json");
    scratch.gputrace(&[Path::new("import"), &file, Path::new("-o"), Path::new("imported")]).expect(0);
    Trace::open(&scratch.path().join("imported"))
}

/// Exports a trace and reads the export.
fn exported(scratch: &Scratch, trace: &str, format: &str, more: &[&str]) -> Option<Value> {
    let output = format!("{trace}{}.{format}", more.len());
    scratch.gputrace(&[&["export", trace, "--format", format, "-o", &output], more].concat()).expect(0);
    let Some(python) = std::env::var_os("GPUTRACE_READ_PYTHON") else {
        lacks("GPUTRACE_READ_PYTHON: a Python with pyarrow");
        return None;
    };
    let script = repository().join("tests/exported_tables/read.py");
    let out = Command::new(python).arg(script).arg(format).arg(scratch.path().join(output)).output();
    let out = out.expect("Python runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(serde_json::from_slice(&out.stdout).expect("JSON"))
}

/// Sums of a table's rows by a key.
fn sums<const N: usize>(rows: &mut dyn Iterator<Item = (String, [i64; N])>) -> BTreeMap<String, [i64; N]> {
    let mut sums = BTreeMap::new();
    for (key, values) in rows {
        let sum = sums.entry(key).or_insert([0; N]);
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// The same of a query's rows: their first column is the key.
fn found<const N: usize>(value: &Value, columns: [usize; N]) -> BTreeMap<String, [i64; N]> {
    let rows = value.as_array().map_or(&[][..], Vec::as_slice);
    let row = |row: &Value| {
        (row[0].as_str().expect("a key").to_owned(), columns.map(|at| row[at].as_i64().expect("a number")))
    };
    rows.iter().map(row).collect()
}

/// What queries find in the database is what the trace holds.
fn database_holds(trace: &Trace, read: &Value) {
    let names = trace.names();
    let name = |row: Row<'_>, id: &str| names[&row.int(id)].replace("_Z3addPf", "add");
    let began = trace.manifest().started_ns;
    assert_eq!(read["began"], json!([[began]]));
    assert_eq!(read["product"], json!([["gputrace"]]));
    let mut calls = BTreeMap::new();
    for table in ["launches", "syncs", "transfers", "device_memory", "api"] {
        for row in trace.table(table).rows() {
            let sum = calls.entry(name(row, "api_id")).or_insert([0, 0, i64::MAX, 0]);
            let start = row.int("start_ns") - began;
            *sum = [sum[0] + 1, sum[1] + row.int("api_ns"), sum[2].min(start), sum[3] + row.int("result")];
        }
    }
    assert!(calls.len() > 2);
    assert_eq!(found(&read["calls"], [1, 2, 3, 4]), calls);
    for call in read["calls"].as_array().expect("calls") {
        let runtime = call[0].as_str().is_some_and(|name| name.starts_with("cuda"));
        let class = if runtime { "TRACE_PROCESS_EVENT_CUDA_RUNTIME" } else { "TRACE_PROCESS_EVENT_CUDA_DRIVER" };
        assert_eq!((&call[6], &call[5]), (&json!(class), &json!(trace.manifest().processes[0].pid)), "{call}");
    }
    let kernels = trace.table("kernels");
    let of_kernel = |row: Row<'_>| [1, row.int("gpu_ns"), row.int("grid_x") * row.int("block_x")];
    let expected = sums(&mut kernels.rows().map(|row| (name(row, "name_id"), of_kernel(row))));
    assert_eq!(found(&read["kernels"], [2, 3, 4]), expected);
    let launched = kernels.rows().filter(|row| row.maybe_int("correlation_id").is_some()).count();
    assert!(launched > 0);
    assert_eq!(read["launched"], json!([[launched, launched]]));
    assert_eq!(read["on devices"][0][1], json!(kernels.len()), "{}", read["on devices"]);
    let copies = trace.table("device_copies");
    let label = |row: Row<'_>| match row.text("direction") {
        "HtoD" => "Host-to-Device".to_owned(),
        "DtoH" => "Device-to-Host".to_owned(),
        "DtoD" => "Device-to-Device".to_owned(),
        other => panic!("{other}"),
    };
    let of_copy = |row: Row<'_>| [1, row.int("bytes"), row.int("gpu_ns")];
    let expected =
        sums(&mut copies.rows().filter(|row| row.text("kind") == "copy").map(|row| (label(row), of_copy(row))));
    assert_eq!(found(&read["copies"], [1, 2, 3]), expected);
    let waited = |row: &Row<'_>| row.text("kind") != "query";
    let kind = |row: Row<'_>| match row.text("kind") {
        "event" => "Event sync".to_owned(),
        "stream" => "Stream sync".to_owned(),
        "context" => "Context sync".to_owned(),
        _ => "Stream wait sync".to_owned(),
    };
    let syncs = trace.table("syncs");
    let expected = sums(&mut syncs.rows().filter(waited).map(|row| (kind(row), [1, row.int("api_ns")])));
    assert_eq!(found(&read["waited"], [1, 2]), expected);
    let memory = trace.table("device_memory");
    let action = |row: Row<'_>| if row.text("action") == "free" { "Deallocation" } else { "Allocation" }.to_owned();
    let expected =
        sums(&mut memory.rows().filter(|row| row.int("result") == 0).map(|row| (action(row), [1, row.int("bytes")])));
    assert_eq!(found(&read["memory"], [1, 2]), expected);
    let waits = trace.table("os_waits");
    let expected = sums(&mut waits.rows().map(|row| (name(row, "api_id"), [1, row.int("wait_ns")])));
    assert_eq!(found(&read["waits"], [1, 2]), expected);
}

#[test]
fn queries_of_nsight_systems_find_in_a_database_what_the_trace_holds() {
    let scratch = Scratch::new();
    let trace = recorded(&scratch);
    let Some(read) = exported(&scratch, "recorded", "sqlite", &[]) else { return };
    database_holds(&trace, &read);
    assert!(read["waits"][0][1].as_i64().is_some_and(|count| count > 0), "{}", read["waits"]);
    let process = trace.root();
    assert_eq!(read["processes"], json!([[process.pid, process.pid, process.exe]]));
    let (options, span) = middle(&trace);
    let part = exported(&scratch, "recorded", "sqlite", &options.each_ref().map(String::as_str)).expect("Python");
    let inside = trace.table("kernels").rows().filter(|row| span.contains(&row.int("start_ns"))).count() as i64;
    let of = |read: &Value| found(&read["kernels"], [2]).into_values().map(|[count]| count).sum::<i64>();
    assert!(inside > 10 && of(&part) == inside && of(&read) > inside, "{inside}, {} of {}", of(&part), of(&read));
}

#[test]
fn ranges_and_their_domains_are_found_in_a_database() {
    let scratch = Scratch::new();
    let trace = imported(&scratch);
    let Some(read) = exported(&scratch, "imported", "sqlite", &[]) else { return };
    database_holds(&trace, &read);
    assert!(ranges_hold(&trace, &read), "no domain");
    // With categories, colours and payloads, and of a program that was killed.
    for (mode, code) in [("", 0), ("kill", 137)] {
        let every = scratch.target(program("nvtx_every")).args(Some(mode).filter(|mode| !mode.is_empty()));
        let run = every.traced().expect(code);
        let name = format!("nvtx{mode}");
        std::fs::rename(&run.trace, scratch.path().join(&name)).expect("the trace is moved");
        let trace = Trace::open(&scratch.path().join(&name));
        let read = exported(&scratch, &name, "sqlite", &[]).expect("Python");
        ranges_hold(&trace, &read);
        let (ranges, names) = (trace.table("ranges"), trace.names());
        // Rows that came before the collector knew a category's name lack it; in the database it is the category that has one.
        let key = |row: Row<'_>| (row.maybe_int("domain_id"), row.maybe_int("category"));
        let categories: BTreeMap<_, i64> =
            ranges.rows().filter_map(|row| Some((key(row), row.maybe_int("category_id")?))).collect();
        let told = |row: Row<'_>| {
            let open = row.text("kind") == "mark" || row.maybe_int("end_ns").is_none();
            json!([
                row.maybe_int("name_id").map(|id| &names[&id]),
                row.maybe_int("category"),
                row.maybe_int("color"),
                row.maybe_int("payload_int"),
                i64::from(open),
                i64::from(row.text("kind") != "start_end"),
                categories.get(&key(row)).map(|id| &names[id]),
            ])
        };
        let expected: Vec<Value> = ranges.rows().map(told).collect();
        assert!(expected.iter().any(|row| if code == 0 { row[1].is_i64() } else { row[4] == 1 }), "{expected:?}");
        assert_eq!(read["told"], Value::Array(expected));
    }
}

/// Ranges are found by domain, name and type, with their number and time. Whether any has a domain.
fn ranges_hold(trace: &Trace, read: &Value) -> bool {
    let names = trace.names();
    let ranges = trace.table("ranges");
    let key = |row: Row<'_>| {
        let domain = row.maybe_int("domain_id").map_or("", |id| &names[&id]);
        let kind = match row.text("kind") {
            "push_pop" => "NvtxPushPopRange",
            "start_end" => "NvtxStartEndRange",
            _ => "NvtxMark",
        };
        (
            format!("{domain}:{}:{kind}", row.maybe_int("name_id").map_or("", |id| &names[&id])),
            [1, row.maybe_int("end_ns").map_or(0, |end| end - row.int("start_ns"))],
        )
    };
    let expected = sums(&mut ranges.rows().map(key));
    assert!(expected.len() > 1, "{expected:?}");
    let text = |row: &Value, at: usize| row[at].as_str().expect("a text").to_owned();
    let row = |row: &Value| {
        let key = format!("{}:{}:{}", text(row, 0), text(row, 1), text(row, 2));
        (key, [row[3].as_i64().expect("a count"), row[4].as_i64().unwrap_or(0)])
    };
    let is: BTreeMap<String, [i64; 2]> = read["ranges"].as_array().expect("ranges").iter().map(row).collect();
    assert_eq!(is, expected);
    expected.keys().any(|key| !key.starts_with(':'))
}

#[test]
fn a_database_that_is_imported_again_has_the_rows_of_the_trace() {
    let scratch = Scratch::new();
    recorded(&scratch);
    comes_back_as(&scratch, "sqlite", "recorded", "recorded.sqlite");
    // Handles are longer than nsys' numbers of streams.
    let streams = |trace: &str| -> Vec<i64> {
        let syncs = Trace::open(&scratch.path().join(trace)).table("syncs");
        syncs.rows().filter(|row| row.text("kind") == "stream").map(|row| row.int("stream")).collect()
    };
    assert!(streams("recorded").iter().any(|stream| *stream > 0xffff_ffff), "{:?}", streams("recorded"));
    assert_eq!(streams("recorded.sqlite-back"), streams("recorded"));
    imported(&scratch);
    comes_back_as(&scratch, "sqlite", "imported", "imported.sqlite");
}

#[test]
fn stacks_of_calls_and_calls_of_nccl_are_found_in_a_database() {
    let scratch = Scratch::new();
    let event = |cat: &str, name: &str, span: (u32, u32), args: &str| {
        let (ts, dur) = span;
        format!(r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":9,"tid":9,"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#)
    };
    let nccl = r#""Collective name":"allreduce","dtype":"Float","In msg nelems":8,"Out msg nelems":8"#;
    let events = [
        event("python_function", "train.py(10): step", (10, 80), ""),
        event("python_function", "loss.py(33): read", (20, 40), ""),
        event("cuda_runtime", "cudaStreamSynchronize", (30, 20), ""),
        event("cuda_runtime", "cudaLaunchKernel", (70, 5), r#""correlation":1"#),
        event("cuda_runtime", "cudaEventRecord", (95, 1), ""),
        event("cpu_op", "record_param_comms", (80, 5), nccl),
    ];
    let file = scratch.file("made.json", format!("{{\"traceEvents\":[{}]}}", events.join(",")));
    scratch.gputrace(&[Path::new("import"), &file, Path::new("-o"), Path::new("made")]).expect(0);
    let Some(read) = exported(&scratch, "made", "sqlite", &[]) else { return };
    let stacks = json!([["cudaLaunchKernel", "step (train.py:10)"], ["cudaStreamSynchronize", "read (loss.py:33)"]]);
    assert_eq!(read["stacks"], stacks);
    let ranges = read["ranges"].as_array().expect("ranges");
    assert_eq!(ranges.iter().filter(|row| row[0] == "NCCL").count(), 1, "{ranges:?}");
    assert!(ranges.contains(&json!(["NCCL", "ncclAllReduce", "NvtxPushPopRange", 1, 5_000])), "{ranges:?}");
}

/// Each table of the folder has the rows of the trace's, and each column their sum; those that the span leaves out are not asked.
fn folder_holds(trace: &Trace, folder: &Path, read: &Value) {
    let tables = read.as_object().expect("tables");
    let stored: Vec<String> = std::fs::read_dir(folder)
        .expect("the trace")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "manifest" && trace.table(name).len() > 0)
        .collect();
    assert!(stored.len() > 5 && stored.iter().all(|name| tables.contains_key(name)), "{stored:?} {:?}", tables.keys());
    let names = trace.names();
    for (name, is) in tables {
        let table = trace.table(name);
        assert_eq!(is["rows"], json!(table.len()), "{name}");
        for column in ["start_ns", "api_ns", "gpu_ns", "wait_ns", "process_id", "correlation_id", "bytes", "result"] {
            let Some(of) = is["columns"].get(column) else { continue };
            let values: Vec<Option<i64>> = table.rows().map(|row| row.maybe_int(column)).collect();
            let sum: i128 = values.iter().flatten().map(|value| i128::from(*value)).sum();
            let missing = values.iter().filter(|value| value.is_none()).count();
            assert_eq!(of, &json!({ "null": missing, "sum": sum.to_string() }), "{name}.{column}");
        }
        for (id, pairs) in is["named"].as_object().expect("names") {
            for pair in pairs.as_array().expect("pairs") {
                let text = names[&pair[0].as_i64().expect("an id")].replace("_Z3addPf", "add");
                assert_eq!(pair[1], json!(text), "{name}.{id}");
            }
        }
    }
    assert!(tables["launches"]["named"]["api_id"].as_array().is_some_and(|pairs| !pairs.is_empty()));
}

#[test]
fn folders_of_csv_and_arrow_hold_the_tables_of_a_trace_with_their_names() {
    let scratch = Scratch::new();
    let traces = [("recorded", recorded(&scratch)), ("imported", imported(&scratch))];
    for (name, trace) in &traces {
        for format in ["csv", "arrow"] {
            let Some(read) = exported(&scratch, name, format, &[]) else { return };
            folder_holds(trace, &scratch.path().join(name), &read);
        }
    }
    // A span of it: the events in it, and what they refer to.
    let trace = &traces[0].1;
    let (options, span) = middle(trace);
    let part = exported(&scratch, "recorded", "csv", &options.each_ref().map(String::as_str)).expect("Python");
    let inside = |row: &Row<'_>| span.contains(&row.int("start_ns"));
    for table in ["launches", "kernels"] {
        let rows = trace.table(table).rows().filter(inside).count();
        assert!(rows > 10);
        assert_eq!(part[table]["rows"], json!(rows), "{table}");
    }
    for table in ["processes", "threads", "names"] {
        assert_eq!(part[table]["rows"], json!(trace.table(table).len()), "{table}");
    }
}

#[test]
fn an_export_of_tables_that_cannot_be_written_says_so_once_and_leaves_nothing() {
    let scratch = Scratch::new();
    imported(&scratch);
    std::fs::create_dir_all(scratch.path().join("full/inner")).expect("a folder");
    let before = || {
        let names = std::fs::read_dir(scratch.path()).expect("the folder").map(|entry| entry.expect("one").file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let was = before();
    let refused = |format: &str, output: &str, limit: &str, says: &str| {
        let script = format!("trap '' XFSZ; {limit} exec \"$0\" export imported --format {format} -o {output}");
        let mut command = Command::new("sh");
        let run = command.args(["-c", &script]).arg(gputrace()).current_dir(scratch.path()).output().expect("sh runs");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{said}");
        assert!(said.contains(output) && said.contains(says) && said.lines().count() == 1, "{said}");
        assert_eq!(before(), was, "{format} {output}");
    };
    refused("sqlite", "no/x.sqlite", "", "No such file");
    refused("sqlite", "full", "", "directory");
    refused("csv", "no/tables", "", "No such file");
    refused("arrow", "full", "", "the folder is not empty");
    // A disk without room.
    for (format, output) in [("sqlite", "x.sqlite"), ("csv", "tables"), ("arrow", "tables")] {
        refused(format, output, "ulimit -f 1;", "cannot write the export");
    }
    // An older file stays when its successor fails, and goes when it succeeds.
    let old = scratch.file("old.sqlite", "old");
    let failing = ["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" export imported --format sqlite -o old.sqlite"];
    let mut command = Command::new("sh");
    let run = command.args(failing).arg(gputrace()).current_dir(scratch.path()).output().expect("sh runs");
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(std::fs::read(&old).expect("the old file"), b"old");
    scratch.gputrace(&["export", "imported", "--format", "sqlite", "-o", "old.sqlite"]).expect(0);
    assert!(std::fs::read(&old).expect("the new file").starts_with(b"SQLite format 3"));
}

#[test]
fn options_that_say_nothing_to_tables_are_refused() {
    let scratch = Scratch::new();
    for format in ["sqlite", "csv", "arrow"] {
        for (more, says) in [
            (&["-o", "x", "--max-events", "5"][..], "--format perfetto or chrome"),
            (&["-o", "x", "--at", "peak"], "--format pprof, folded or speedscope"),
            (&["-o", "x", "--of", "waits"], "--format pprof, folded or speedscope"),
            (&["-o", "x", "--value", "alloc_space"], "--format folded"),
            (&["-o", "x.gz"], "not compressed"),
            (&["-o", "-"], "-o - is standard output"),
        ] {
            let run = scratch.gputrace(&[&["export", "trace", "--format", format], more].concat()).expect(2);
            assert!(run.own_stderr().contains(says), "{format}: {}", run.own_stderr());
        }
    }
    for name in ["x", "x.gz", "x.part", "x.gz.part", "-"] {
        assert!(!scratch.path().join(name).exists(), "{name}");
    }
}
