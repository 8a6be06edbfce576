//! Waits that calls do not speak of, against the simulated driver's own times.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::util::{Driver, Row, Scratch, program};

/// When the kernels of 10 ms ran: begin and end, ns since the epoch.
fn kernels(truth: &Path) -> Vec<(i64, i64)> {
    let truth: Value = serde_json::from_slice(&fs::read(truth).expect("the truth")).expect("JSON");
    let device = truth["device"].as_array().expect("operations");
    let slow = device.iter().filter(|op| op["name"] == "spin_us_10000");
    slow.map(|op| (op["start_ns"].as_i64().expect("a time"), op["end_ns"].as_i64().expect("a time"))).collect()
}

/// What a call of a table waited for at most, by the driver's own times: from its begin to the end of a kernel that ran.
fn waited(kernels: &[(i64, i64)], start: i64, api_ns: i64) -> i64 {
    let running = kernels.iter().filter(|(begin, end)| *begin < start + api_ns && *end > start);
    running.map(|(_, end)| end - start).max().unwrap_or(0)
}

#[test]
fn each_implicit_wait_is_the_drivers_own() {
    let scratch = Scratch::new();
    let truth = scratch.path().join("truth");
    let target = scratch.target(program("cuda_implicit")).with_driver(Driver::Symbolic).env("FAKE_CUDA_TRUTH", &truth);
    let run = target.same().expect(0);
    let trace = run.read();
    let (names, kernels) = (trace.names(), kernels(&truth));
    assert_eq!(kernels.len(), 4 * 7 + 4 + 2 * 4);
    // By function: calls that found work: the time in each, and what it waited by the driver's times.
    let mut found: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for table in ["transfers", "device_memory"] {
        for row in trace.table(table).rows().filter(|row| row.int("pending_streams") > 0) {
            let (start, ns) = (row.int("start_ns"), row.int("api_ns"));
            found.entry(names[&row.int("api_id")].as_str()).or_default().push((ns, waited(&kernels, start, ns)));
        }
    }
    let json = scratch.gputrace(&["report", &run.trace.to_string_lossy(), "--only", "syncs", "--format", "json"]);
    let json: Value = serde_json::from_slice(&json.expect(0).stdout).expect("JSON");
    let rows = json["analyses"]["syncs"]["tables"]["implicit"]["rows"].as_array().expect("rows");
    let wanted = [
        ("free", Value::Null, "cuMemFree_v2", 8),
        ("free", Value::Null, "cuMemFreeHost", 4),
        ("copy", "cuda_memcpy_sync".into(), "cuMemcpyDtoH_v2", 4),
        ("copy", "cuda_memcpy_sync".into(), "cuMemcpyHtoD_v2", 4),
        ("pageable copy", "cuda_memcpy_async".into(), "cuMemcpyDtoHAsync_v2", 4),
        ("set", "cuda_memset_sync".into(), "cuMemsetD8_v2", 4),
    ];
    for (kind, rule, api, count) in wanted {
        let row = rows.iter().find(|row| row["api"] == api && row["kind"] == kind).expect(api);
        assert_eq!((&row["rule"], &row["pending"]), (&rule, &Value::from(count)), "{row}");
        let calls = &found[api];
        assert_eq!(calls.len(), count);
        // A kernel may be over before its call comes, where others keep this machine busy.
        let certain = calls.iter().filter(|(_, truth_ns)| *truth_ns > 500_000).count() as u64;
        let waits = row["waits"].as_u64().expect("a count");
        assert!((certain..=count as u64).contains(&waits), "{row}, {certain} by the driver");
        // Beside waiting a call needs something; that is known to 120 us, and the copy itself takes 10 of them.
        let (api_ns, truth_ns) = calls.iter().fold((0, 0), |sum, call| (sum.0 + call.0, sum.1 + call.1));
        let waited_ns = row["waited_ns"].as_i64().expect("a time");
        let least = truth_ns - 500_000 * (count as i64 - certain as i64) - 120_000 * certain as i64;
        assert!((least..=api_ns).contains(&waited_ns), "{row}, {truth_ns} by the driver");
    }
    let allocations = rows.iter().find(|row| row["api"] == "cuMemAlloc_v2").expect("a row");
    assert_eq!(allocations["pending"], 4);
}

#[test]
fn compiling_and_loading_are_told_apart_with_the_drivers_own_times() {
    let scratch = Scratch::new();
    let run = scratch.target(program("cuda_implicit")).with_driver(Driver::Symbolic).same().expect(0);
    let trace = run.read();
    let names = trace.names();
    let table = trace.table("api");
    let loaded = table.rows().filter(|row| names[&row.int("api_id")] == "cuModuleLoadData");
    let (jit, others): (Vec<i64>, Vec<i64>) = loaded.fold(Default::default(), |mut sums, row| {
        if row.int("jit") == 1 { &mut sums.0 } else { &mut sums.1 }.push(row.int("api_ns"));
        sums
    });
    // The program's first image is text as well, and takes no time.
    assert_eq!((jit.len(), others.len()), (4 + 1, 4));
    assert_eq!(jit.iter().filter(|ns| **ns >= 3_000_000).count(), 4, "{jit:?}");
    let json = scratch.gputrace(&["report", &run.trace.to_string_lossy(), "--only", "syncs", "--format", "json"]);
    let json: Value = serde_json::from_slice(&json.expect(0).stdout).expect("JSON");
    let rows = json["analyses"]["syncs"]["tables"]["implicit"]["rows"].as_array().expect("rows");
    let row = |kind: &str, api: &str| rows.iter().find(|row| row["kind"] == kind && row["api"] == api).expect(kind);
    let compiled = row("JIT", "cuModuleLoadData");
    assert_eq!((&compiled["calls"], &compiled["total_ns"]), (&5.into(), &jit.iter().sum::<i64>().into()));
    assert_eq!(compiled["pending"], 4, "a kernel was running");
    assert_eq!(row("module loading", "cuModuleLoadData")["total_ns"], others.iter().sum::<i64>());
    let lazy = row("lazy loading", "cuLaunchKernel");
    assert!(lazy["calls"].as_i64() >= Some(4), "{lazy}");
    // Four first launches of 5 ms each, less a usual launch.
    assert!(lazy["total_ns"].as_i64() > Some(4 * 4_500_000), "{lazy}");
    let kinds = json["analyses"]["syncs"]["tables"]["by_kind"]["rows"].as_array().expect("rows");
    for kind in ["JIT", "module loading", "lazy loading"] {
        assert!(kinds.iter().any(|row| row["kind"] == kind && row["host_waits"] == "yes"), "{kind}: {kinds:?}");
    }
}

#[test]
fn the_legacy_stream_waits_for_ordinary_streams_only() {
    let scratch = Scratch::new();
    let run = scratch.target(program("cuda_implicit")).with_instant_driver().same().expect(0);
    let trace = run.read();
    let names = trace.names();
    let legacy = |table: &str| -> Vec<(String, i64)> {
        let table = trace.table(table);
        let rows = table.rows().filter(|row| row.int("legacy") == 1);
        rows.map(|row| (names[&row.int("api_id")].clone(), row.int("pending_streams"))).collect()
    };
    // The stream that is CU_STREAM_NON_BLOCKING is not waited for.
    assert_eq!(legacy("launches"), vec![("cuLaunchKernel".to_owned(), 1); 4]);
    assert_eq!(legacy("syncs"), vec![("cuStreamSynchronize".to_owned(), 2); 4]);
    assert!(legacy("transfers").is_empty() && legacy("device_memory").is_empty());
}

#[test]
fn a_stream_that_waits_for_an_event_is_waited_for_with_what_the_event_stands_for() {
    let scratch = Scratch::new();
    let truth = scratch.path().join("truth");
    let target = scratch.target(program("cuda_joins")).with_driver(Driver::Symbolic).env("FAKE_CUDA_TRUTH", &truth);
    let trace = target.same().expect(0).read();
    let (names, kernels) = (trace.names(), kernels(&truth));
    let table = trace.table("syncs");
    // In the order of the program: pending streams that each call stands for.
    let mut calls: Vec<_> = table.rows().collect();
    calls.sort_by_key(|row| row.int("start_ns"));
    let (joins, waits): (Vec<_>, Vec<_>) =
        calls.into_iter().partition(|row| names[&row.int("api_id")].starts_with("cuStreamWaitEvent"));
    let pending = |rows: &[Row<'_>]| -> Vec<i64> { rows.iter().map(|row| row.int("pending_streams")).collect() };
    assert_eq!(pending(&joins), [1, 0, 1, 1, 1].repeat(3));
    assert_eq!(pending(&waits), [1, 1, 0, 1, 0, 2, 0].repeat(3));
    for row in waits {
        let waited_ns = waited(&kernels, row.int("start_ns"), row.int("api_ns"));
        assert!(row.int("pending_streams") > 0 || waited_ns < 500_000, "{waited_ns} ns by the driver's own times");
    }
}
