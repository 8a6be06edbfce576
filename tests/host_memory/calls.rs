//! Each call of malloc and free in full mode, some in sampled mode, none where they are off; and what that costs.

use std::collections::BTreeMap;

use crate::util::{Finished, Scratch, count, program};

fn known(mode: &str) -> (Scratch, Finished) {
    let scratch = Scratch::new();
    let target = scratch.target(program("mallocs")).args(["known", "100"]).options(["--malloc", mode]);
    let run = target.same();
    (scratch, run)
}

#[test]
fn full_mode_records_each_call_with_its_function_size_and_end() {
    let (_scratch, run) = known("full");
    let trace = run.read();
    trace.assert_balanced();
    let names = trace.names();
    let table = trace.table("host_memory");
    let mut allocations: BTreeMap<(&str, i64), u64> = BTreeMap::new();
    let mut live: BTreeMap<i64, i64> = BTreeMap::new();
    let mut freed: BTreeMap<i64, u64> = BTreeMap::new();
    let mut rows: Vec<_> = table.rows().collect();
    rows.sort_by_key(|row| row.int("start_ns"));
    for row in rows {
        let (address, bytes) = (row.int("address"), row.int("bytes"));
        if row.text("action") == "alloc" {
            *allocations.entry((names[&row.int("api_id")].as_str(), bytes)).or_default() += 1;
            assert_eq!(row.float("weight_bytes"), bytes as f64);
            live.insert(address, bytes);
        } else if let Some(bytes) = live.remove(&address) {
            *freed.entry(bytes).or_default() += 1;
        }
    }
    let expected = [
        ("malloc", 70_001),
        ("calloc", 70_021),
        ("realloc", 70_003),
        ("realloc", 70_004),
        ("memalign", 70_005),
        ("aligned_alloc", 70_016),
        ("posix_memalign", 70_007),
        ("reallocarray", 70_008),
    ];
    for (function, bytes) in expected {
        assert_eq!(allocations.get(&(function, bytes)), Some(&100), "{function} of {bytes}");
        assert_eq!(freed.get(&bytes), Some(&100), "frees of {bytes}");
    }
}

#[test]
fn off_records_and_counts_nothing() {
    let (_scratch, run) = known("off");
    let trace = run.read();
    assert_eq!(trace.table("host_memory").len(), 0);
    assert_eq!(count(&trace.root(), "host_alloc").seen, 0);
}

#[test]
fn sampled_mode_counts_each_allocation_and_records_some() {
    let (_scratch, run) = known("sample=65536");
    let trace = run.read();
    trace.assert_balanced();
    let allocations = count(&trace.root(), "host_alloc");
    assert!(allocations.seen >= 800, "{allocations:?}");
    assert!(allocations.recorded > 0 && allocations.sampled_out > 0, "{allocations:?}");
    assert_eq!(allocations.dropped, 0);
    // What is not among the samples passes uncounted.
    let frees = count(&trace.root(), "host_free");
    assert!(frees.recorded > 0 && frees.seen == frees.recorded, "{frees:?}");
}

#[test]
fn what_recording_malloc_costs_is_known_without_a_driver() {
    for (mode, least_ns) in [("sample", 0.0), ("full", 1000.0)] {
        let (_scratch, run) = known(mode);
        let cost = run.read().root().cost;
        assert!(cost.total_ns.is_some_and(|ns| ns > least_ns), "{mode}: {cost:?}");
        assert!(cost.event_ns.is_some_and(|ns| ns > 1.0), "{mode}: {cost:?}");
        let summary = run.stderr.lines().find(|line| line.starts_with("cost "));
        assert!(summary.is_some_and(|line| !line.contains("not measured")), "{}", run.stderr);
    }
}

/// Calls and bytes of allocations by function and power of two of the size, in rows of their own and in sums.
fn allocated(run: &Finished) -> BTreeMap<(String, u32), (i64, f64)> {
    let trace = run.read();
    let names = trace.names();
    let mut sums = BTreeMap::new();
    for row in trace.table("host_memory").rows().filter(|row| ["alloc", "culled"].contains(&row.text("action"))) {
        let bits = i64::BITS - row.int("bytes").leading_zeros();
        let sum: &mut (i64, f64) = sums.entry((names[&row.int("api_id")].clone(), bits)).or_default();
        *sum = (sum.0 + row.int("calls"), sum.1 + row.float("weight_bytes"));
    }
    sums
}

#[test]
fn culled_allocations_are_sums_that_add_up_to_what_each_would() {
    culled_sums_add_up("on");
}

/// Without stacks the process itself sums up most of them.
#[test]
fn allocations_without_stacks_are_such_sums_as_well() {
    culled_sums_add_up("off");
}

fn culled_sums_add_up(stacks: &str) {
    let record = |more: &[&str]| {
        let scratch = Scratch::new();
        let target = scratch.target(program("mallocs")).args(["traffic", "20000", "1000"]);
        let options = [&["--malloc", "full", "--malloc-stacks", stacks, "--on-full", "block"], more].concat();
        let run = target.options(options).traced().expect(0);
        run.read().assert_balanced();
        (scratch, run)
    };
    // Longer than the program runs on any machine: what is freed at all is culled.
    let ((whole_scratch, whole), (culled_scratch, culled)) = (record(&[]), record(&["--cull", "10000"]));
    assert_eq!(allocated(&whole), allocated(&culled));
    let rows = |run: &Finished| run.read().table("host_memory").len();
    assert!(rows(&whole) > 40_000 && rows(&culled) < 200, "{} and {} rows", rows(&whole), rows(&culled));
    for class in ["host_alloc", "host_free"] {
        let (whole, culled) = (count(&whole.read().root(), class), count(&culled.read().root(), class));
        assert_eq!((whole.culled, whole.recorded), (0, culled.recorded + culled.culled), "{class}");
        assert!(culled.culled >= 20_000 && culled.dropped == 0, "{class}: {culled:?}");
    }
    let trace = culled.read();
    let starts: Vec<i64> = trace.table("host_memory").rows().map(|row| row.int("start_ns")).collect();
    assert!(starts.is_sorted());
    assert_eq!(trace.manifest().host_memory.cull_ns, Some(10_000_000_000));
    // A report says the same of both.
    let report = |scratch: &Scratch, run: &Finished| {
        let arguments = ["report", &run.trace.to_string_lossy(), "--only", "host-memory", "--format", "json"];
        let text = scratch.gputrace(&arguments).expect(0).text();
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let section = &report["analyses"]["host-memory"];
        let fact = |fact: &str| section["facts"][fact].clone();
        let live = &section["tables"]["by_process"]["rows"][0]["live_at_end_bytes"];
        let facts = ["rows", "allocated_bytes", "allocations", "error_percent"].map(fact);
        (facts, section["tables"]["sizes"]["rows"].clone(), live.clone())
    };
    let said = report(&whole_scratch, &whole);
    assert!(said.0.iter().all(|fact| fact.is_number()) && said.1[0].is_object() && said.2.is_number(), "{said:?}");
    assert_eq!(said, report(&culled_scratch, &culled));
}

#[test]
fn culling_what_is_only_sampled_is_refused() {
    let scratch = Scratch::new();
    let run = scratch.gputrace(&["--cull", "1", "--", "true"]).expect(125);
    assert!(run.stderr.contains("--malloc full"), "{}", run.stderr);
}

#[test]
fn a_report_says_what_python_keeps_in_pools_of_its_own() {
    if !crate::util::needs(&["python3"]) {
        return;
    }
    let note = |variable: Option<&str>| {
        let scratch = Scratch::new();
        let target = scratch.target("python3").args(["-c", "blocks = [bytes(100000) for _ in range(1000)]"]);
        let target = if let Some(value) = variable { target.env("PYTHONMALLOC", value) } else { target };
        target.options(["--malloc", "sample=64K"]).traced().expect(0);
        let report = scratch.gputrace(&["report", "trace0", "--only", "host-memory"]).expect(0);
        report.text().contains("pools of its own")
    };
    assert!(note(None) && note(Some("debug")) && !note(Some("malloc")));
}
