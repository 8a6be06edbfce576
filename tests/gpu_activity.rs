//! What CUPTI tells beside the GPU's work: each record a row with what the stand-in for CUPTI says of it, and kernels are recorded
//! whatever becomes of it.

use std::collections::BTreeMap;
use std::path::Path;

use gputrace_collectors::manifest::GpuTime;

use crate::util::{Driver, Scratch, Target, Trace, program};

const ROUNDS: i64 = 40;
/// Bytes of managed memory that a round writes and reads.
const BYTES: i64 = 4096;

fn target<'a>(scratch: &'a Scratch, version: &str, kinds: &str) -> Target<'a> {
    let rounds = ROUNDS.to_string();
    let target = scratch.target(program("cuda_activity")).args([rounds.as_str()]).with_driver(Driver::Plain);
    let target = target.env("FAKE_CUPTI_VERSION", version).env("FAKE_CUPTI_TRUTH", scratch.path().join("cupti.json"));
    target.options(["--gpu-time", "full", "--on-full", "block", "--gpu-activity", kinds])
}

fn about(trace: &Trace) -> GpuTime {
    trace.root().gpu_time.expect("CUPTI was asked")
}

/// Records of each kind that the stand-in delivered, by CUPTI's number of the kind.
fn delivered(scratch: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(scratch.join("cupti.json")).expect("the stand-in's truth");
    let truth: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let kinds = truth["kinds"].as_object().expect("kinds");
    kinds.iter().map(|(kind, count)| (kind.clone(), count.as_u64().expect("a count"))).collect()
}

/// Rows by kind and what they were.
fn counts(trace: &Trace) -> BTreeMap<(String, String), i64> {
    let mut counts = BTreeMap::new();
    for row in trace.table("gpu_activity").rows() {
        *counts.entry((row.text("kind").to_owned(), row.text("what").to_owned())).or_default() += 1;
    }
    counts
}

#[test]
fn each_record_is_a_row_in_every_version() {
    for version in ["11.8", "12.1", "12.4", "12.8", "13.0", "13.5"] {
        let scratch = Scratch::new();
        let kinds = "overhead,sync,unified-memory";
        let trace = target(&scratch, version, kinds).traced().expect(0).read();
        let (told, found) = (about(&trace), counts(&trace));
        let count = |kind: &str, what: &str| found.get(&(kind.to_owned(), what.to_owned())).copied().unwrap_or(0);
        let waits = ["event", "stream_wait_event", "stream", "context"].map(|what| count("sync", what));
        assert_eq!(waits, [ROUNDS; 4], "{version}: {found:?}");
        let memory = ["HtoD", "DtoH", "cpu_fault", "gpu_fault"].map(|what| count("unified_memory", what));
        assert_eq!(memory, [ROUNDS; 4], "{version}: {found:?}");
        assert_eq!(count("overhead", "instrumentation"), 1, "{version}: {found:?}");
        assert!(count("overhead", "buffer_request") > 0, "{version}: {found:?}");
        // All that was delivered, and nothing else, is in the table and in the manifest.
        let truth = delivered(scratch.path());
        let of =
            |kind: &str| found.iter().filter(|((of, _), _)| of == kind).map(|(_, count)| *count as u64).sum::<u64>();
        for (number, kind) in [("17", "overhead"), ("38", "sync"), ("25", "unified_memory")] {
            assert_eq!((of(kind), told.activities.get(kind)), (truth[number], truth.get(number)), "{version}: {kind}");
        }
        assert_eq!((told.dropped, told.activities_refused.len()), (0, 0), "{version}: {told:?}");
    }
}

#[test]
fn rows_have_what_their_record_has() {
    let scratch = Scratch::new();
    let trace = target(&scratch, "13.0", "overhead,sync,unified-memory").traced().expect(0).read();
    let calls: BTreeMap<String, Vec<(i64, i64)>> = {
        let names = trace.names();
        let mut calls = BTreeMap::<String, Vec<(i64, i64)>>::new();
        for row in trace.table("syncs").rows() {
            let span = (row.int("start_ns"), row.int("start_ns") + row.int("api_ns"));
            calls.entry(names[&row.int("api_id")].clone()).or_default().push(span);
        }
        calls
    };
    let numbers = ["device", "context", "stream", "thread", "bytes", "faults", "address"];
    let mut context_waits = 0;
    for row in trace.table("gpu_activity").rows() {
        let [device, context, stream, thread, bytes, faults, address] = numbers.map(|name| row.maybe_int(name));
        let (cause, has_time) = (row.maybe_text("cause"), row.maybe_int("activity_ns").is_some());
        match row.text("what") {
            "context" => {
                context_waits += 1;
                assert_eq!((context, stream, thread, has_time), (Some(1), None, None, true));
                // The same wait as the hook saw, on one clock.
                let (from, length) = (row.int("start_ns"), row.int("activity_ns"));
                let within = |(start, end): &(i64, i64)| from > start - 50_000 && from + length < end + 50_000;
                assert!(calls["cuCtxSynchronize"].iter().any(within), "no call has this wait: {from} {length}");
            }
            "stream" => assert!(context == Some(1) && stream.is_some() && bytes.is_none() && has_time),
            "HtoD" | "DtoH" => {
                assert_eq!((device, bytes, faults, cause, has_time), (Some(0), Some(BYTES), None, Some("fault"), true));
                assert_eq!(address, Some(BYTES << 20));
            }
            "gpu_fault" => assert_eq!((device, bytes, faults, cause), (Some(0), None, Some(1), Some("write"))),
            "cpu_fault" => assert_eq!((device, bytes, faults, cause, has_time), (None, None, Some(1), None, false)),
            "instrumentation" | "buffer_request" => assert!(thread.is_some() && address.is_none() && has_time),
            _ => {}
        }
    }
    assert_eq!(context_waits, ROUNDS);
}

#[test]
fn kernels_find_their_calls_though_waits_are_numbered_too() {
    let scratch = Scratch::new();
    let trace = target(&scratch, "13.0", "overhead,sync,unified-memory").traced().expect(0).read();
    let told = about(&trace);
    assert_eq!((told.joined, told.records), (told.records, 4 * ROUNDS as u64), "{told:?}");
    let calls: BTreeMap<i64, (i64, i64)> = trace
        .table("launches")
        .rows()
        .map(|row| (row.int("correlation_id"), (row.int("grid_x"), row.int("start_ns"))))
        .collect();
    let kernels = trace.table("kernels");
    let mut seen: Vec<i64> = Vec::new();
    for row in kernels.rows() {
        let (grid, start_ns) = calls[&row.int("correlation_id")];
        // The stream was waited for in each round, so that a kernel begins within 20 ms of its call and in its order.
        assert_eq!(grid, row.int("grid_x"));
        assert!(row.int("start_ns") >= start_ns - 50_000);
        seen.push(row.int("correlation_id"));
    }
    assert!(seen.is_sorted_by(|one, next| one < next), "calls of one thread, in one stream");
}

#[test]
fn what_is_not_asked_for_is_not_enabled_and_only_overhead_is_by_itself() {
    let scratch = Scratch::new();
    let none = target(&scratch, "13.0", "none").traced().expect(0).read();
    assert_eq!((none.table("gpu_activity").len(), about(&none).activities.len()), (0, 0));
    let rounds = ROUNDS.to_string();
    let plain = scratch.target(program("cuda_activity")).args([rounds.as_str()]).with_driver(Driver::Plain);
    let trace = plain.clone().options(["--gpu-time", "full"]).traced().expect(0).read();
    let kinds: Vec<String> = about(&trace).activities.into_keys().collect();
    assert_eq!(kinds, ["overhead"]);
    let windows = plain.options(["--gpu-time", "windows", "--gpu-activity", "sync"]).traced().expect(125);
    assert!(windows.stderr.contains("they belong to --gpu-time full"), "{}", windows.stderr);
}

#[test]
fn a_kind_that_cupti_refuses_is_said_once_and_harms_no_other() {
    let refusals = [
        (("FAKE_CUPTI_FAIL", "cuptiActivityConfigureUnifiedMemoryCounter:24"), "unified-memory", "unified_memory"),
        (("FAKE_CUPTI_REFUSE", "25"), "unified-memory", "unified_memory"),
        (("FAKE_CUPTI_REFUSE", "38"), "sync", "sync"),
        (("FAKE_CUPTI_REFUSE", "17"), "overhead", "overhead"),
    ];
    for ((variable, value), name, kind) in refusals {
        let scratch = Scratch::new();
        let target = target(&scratch, "13.0", "overhead,sync,unified-memory").env(variable, value);
        let trace = target.same().expect(0).read();
        let told = about(&trace);
        assert_eq!(told.activities_refused.len(), 1, "{told:?}");
        let refused = &told.activities_refused[0];
        assert!(refused.starts_with(name) && refused.contains("NOT_SUPPORTED"), "{refused}");
        let notes = trace.root().notes.iter().filter(|note| note.contains(refused.as_str())).count();
        assert_eq!(notes, 1, "{:?}", trace.root().notes);
        assert_eq!((told.activities.len(), told.activities.contains_key(kind)), (2, false), "{told:?}");
        assert_eq!((told.records, trace.table("kernels").len() as i64), (4 * ROUNDS as u64, 2 * ROUNDS));
        trace.assert_balanced();
    }
}

#[test]
fn details_of_a_full_queue_are_given_back() {
    let scratch = Scratch::new();
    // The stand-in takes 54,321 bytes for each from malloc.
    let target = target(&scratch, "13.0", "overhead").env("FAKE_CUPTI_QUEUE_FULL", "4");
    let trace = target.options(["--malloc", "full"]).traced().expect(0).read();
    let full = counts(&trace)[&("overhead".to_owned(), "queue_full".to_owned())];
    assert_eq!(full, 2 * ROUNDS / 4);
    // What happened to each address, in order: blocks are given to others later.
    let memory = trace.table("host_memory");
    let mut at = BTreeMap::<i64, Vec<(i64, i64, &str, i64)>>::new();
    for row in memory.rows() {
        let event = (row.int("start_ns"), row.int("tid"), row.text("action"), row.int("bytes"));
        at.entry(row.int("address")).or_default().push(event);
    }
    at.values_mut().for_each(|events| events.sort_unstable());
    let pairs = at.values().flat_map(|events| events.iter().zip(events.iter().skip(1)));
    // Given back by our thread, not by the program's.
    let pid = i64::from(trace.root().pid);
    let given_back =
        pairs.filter(|(taken, next)| taken.3 == 54_321 && taken.2 == "alloc" && next.2 == "free" && next.1 != pid);
    assert_eq!(given_back.count() as i64, full);
    assert_eq!(
        memory.rows().filter(|row| row.text("action") == "alloc" && row.int("bytes") == 54_321).count() as i64,
        full
    );
}
