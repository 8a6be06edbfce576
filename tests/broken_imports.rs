//! Traces whose writer was wrong, or was stopped, are read as far as they say something, and what is wrong is counted.

use std::fs;

use crate::imports::{imported, ints, kineto_text, names, texts};
use crate::util::{Scratch, Trace};

fn some<const N: usize>(values: [i64; N]) -> Vec<Option<i64>> {
    values.map(Some).to_vec()
}

#[test]
fn a_trace_that_was_cut_off_keeps_what_is_whole() {
    let scratch = Scratch::new();
    let text = kineto_text();
    let until = |mark: &str| text.find(mark).expect("the mark");
    let events = &text[until("[\n  {\n    \"ph\"")..];
    let cases = [
        ("no closing brackets", text[..until("\n  ],\n  \"traceName\"")].to_owned(), 4, true),
        ("inside an event", text[..until("\"Collective name\"")].to_owned(), 1, true),
        ("an array alone", events[..events.rfind(']').expect("its end") + 1].to_owned(), 4, false),
        ("an array without its end", events[..events.rfind(']').expect("its end")].to_owned(), 4, true),
    ];
    for (name, text, kernels, cut_off) in cases {
        let file = scratch.file(&format!("{name}.json"), text);
        let _ = fs::remove_dir_all(scratch.path().join("imported"));
        let (trace, said) = imported(&scratch, &file);
        assert_eq!(trace.table("kernels").len(), kernels, "{name}");
        assert_eq!(said.contains("ends in the middle"), cut_off, "{name}: {said}");
        assert_eq!(trace.manifest().notes.iter().any(|note| note.contains("ends in the middle")), cut_off, "{name}");
    }
}

#[test]
fn what_follows_the_end_of_a_trace_is_said_to_be_left_out() {
    let scratch = Scratch::new();
    for (more, said_so) in [("", false), ("\n\n", false), ("garbage", true), ("{\"traceEvents\": []}", true)] {
        let file = scratch.file("twice.json", format!("{}{more}", kineto_text()));
        let _ = fs::remove_dir_all(scratch.path().join("imported"));
        let (trace, said) = imported(&scratch, &file);
        assert_eq!(trace.table("kernels").len(), 4, "{more}");
        assert_eq!(said.contains("something follows the end of the JSON"), said_so, "{more}: {said}");
    }
}

#[test]
fn names_with_what_is_no_character_lose_only_that() {
    let scratch = Scratch::new();
    let text = kineto_text()
        .replace("cudaMalloc", "cudaMalloc\\udfff")
        .replace("thread 4242", "thread \\ud83d 4242")
        .replace("aten::mm", "aten::mm \\ud83d\\ude00");
    let at = text.find("ncclDevKernel").expect("a kernel");
    let bytes = [&text.as_bytes()[..at], b"\xff\xfe", &text.as_bytes()[at..]].concat();
    let (trace, said) = imported(&scratch, &scratch.file("broken.json", bytes));
    assert!(!said.contains("could not be read"), "{said}");
    let kernels = trace.table("kernels");
    assert!(names(&trace, &kernels, "name_id")[1].starts_with("\u{fffd}\u{fffd}ncclDevKernel_AllReduce"));
    assert_eq!(names(&trace, &trace.table("device_memory"), "api_id"), ["cudaMalloc\u{fffd}"]);
    assert_eq!(texts(&trace.table("threads"), "name")[0], Some("thread \u{fffd} 4242 (python3)"));
    assert_eq!(names(&trace, &trace.table("ranges"), "name_id")[0], "aten::mm \u{1f600}");
    assert_eq!((kernels.len(), trace.table("launches").len()), (4, 3));
}

/// Calls and operations of a Kineto trace: begin in us, length in us, correlation, and of calls the process.
fn loop_of(calls: &[(i64, i64, i64, i64)], kernels: &[(i64, i64, i64)]) -> String {
    let calls = calls.iter().map(|(ts, dur, id, pid)| {
        format!(
            "{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": {pid}, \"tid\": {pid}, \
             \"ts\": {ts}, \"dur\": {dur}, \"args\": {{\"correlation\": {id}}}}}"
        )
    });
    let kernels = kernels.iter().map(|(ts, dur, id)| {
        format!(
            "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": 7, \"ts\": {ts}, \"dur\": {dur}, \
             \"args\": {{\"correlation\": {id}, \"device\": 0, \"stream\": 7}}}}"
        )
    });
    format!("{{\"traceEvents\": [{}]}}", calls.chain(kernels).collect::<Vec<_>>().join(",\n"))
}

/// Whether import, the manifest and the report all say it.
#[track_caller]
fn assert_said(scratch: &Scratch, imported: &(Trace, String), what: &str) {
    assert!(imported.1.contains(what), "import: {}", imported.1);
    let notes = imported.0.manifest().notes;
    assert_eq!(notes.iter().filter(|note| note.contains(what)).count(), 1, "{notes:?}");
    let report = scratch.gputrace(&["report", "imported", "--only", "self", "--width", "1000"]).expect(0).text();
    assert!(report.contains(what), "{report}");
}

#[test]
fn what_ends_before_it_begins_took_no_time_and_is_counted() {
    let scratch = Scratch::new();
    let text = loop_of(&[(10, -5, 1, 77), (20, 5, 2, 77)], &[(15, -1, 1), (25, 5, 2)]);
    let both = imported(&scratch, &scratch.file("negative.json", text));
    assert_eq!(ints(&both.0.table("launches"), "api_ns"), some([0, 5_000]));
    assert_eq!(ints(&both.0.table("kernels"), "gpu_ns"), some([0, 5_000]));
    assert_said(&scratch, &both, "2 events end before they begin");
}

#[test]
fn numbers_that_a_process_gives_again_lead_to_the_last_call_and_are_counted() {
    let scratch = Scratch::new();
    let calls = [(10, 5, 1, 77), (20, 5, 2, 77), (110, 5, 1, 77), (210, 5, 1, 77)];
    let both = imported(
        &scratch,
        &scratch.file("again.json", loop_of(&calls, &[(16, 1, 1), (26, 1, 2), (116, 1, 1), (216, 1, 1)])),
    );
    let launches = ints(&both.0.table("launches"), "correlation_id");
    assert_eq!(launches[..2], some([1, 2]));
    assert_eq!(ints(&both.0.table("kernels"), "correlation_id"), launches, "each kernel has the call before it");
    assert_eq!(ints(&both.0.table("launches"), "kernels"), some([1, 1, 1, 1]));
    assert_said(&scratch, &both, "2 calls have the correlation of an earlier call of their process");
}

#[test]
fn numbers_that_two_processes_count_lead_to_the_last_call_and_are_counted() {
    let scratch = Scratch::new();
    let calls = [(10, 5, 1, 77), (20, 5, 2, 77), (30, 5, 2, 78), (110, 5, 1, 78)];
    let both =
        imported(&scratch, &scratch.file("forked.json", loop_of(&calls, &[(16, 1, 1), (36, 1, 2), (116, 1, 1)])));
    assert_eq!(ints(&both.0.table("kernels"), "pid"), some([77, 78, 78]));
    assert_said(&scratch, &both, "3 operations of the GPU have a correlation that calls of several processes have");
}

/// So many calls a ms apart, each with a kernel, of which `at` says when they begin in us, instead of when they would have.
fn timed(calls: i64, at: impl Fn(bool, i64, i64) -> i64) -> String {
    let begin = |is_call, id: i64| at(is_call, id, 1_000_000_000 + id * 1_000 + if is_call { 0 } else { 10 });
    let own: Vec<_> = (1..=calls).map(|id| (begin(true, id), 5, id, 77)).collect();
    let kernels: Vec<_> = (1..=calls).map(|id| (begin(false, id), 900, id)).collect();
    loop_of(&own, &kernels)
}

/// us.
const HOUR: i64 = 3_600_000_000;

#[test]
fn an_event_that_a_clock_put_days_away_is_left_out_and_said() {
    // What is said, which events are moved (calls or not, by number) and by how much, and how many calls and kernels stay.
    type Case = (&'static str, fn(bool, i64) -> bool, i64, (usize, usize));
    let cases: [Case; 5] = [
        // Its number tells, however near it is.
        (
            "1 event is timed far from what belongs to it, up to 3.97 s",
            |is_call, id| is_call && id == 10,
            4_000_000,
            (39, 40),
        ),
        ("up to 48 h 00 min from all others", |is_call, id| !is_call && id == 10, 48 * HOUR, (40, 39)),
        ("up to 5 h 00 min from all others", |is_call, id| is_call && id == 10, -5 * HOUR, (39, 40)),
        // At the end no later call tells.
        (
            "2 events are timed far from what belongs to them, up to 24 h 00 min from all others",
            |_, id| id == 40,
            24 * HOUR,
            (39, 39),
        ),
        // As many as may be a part of the run stay.
        ("between two events lie 24 h 00 min without any", |_, id| id > 20, 24 * HOUR, (40, 40)),
    ];
    for (what, moved, by, (calls, kernels)) in cases {
        let scratch = Scratch::new();
        let text = timed(40, |is_call, id, at| if moved(is_call, id) { at + by } else { at });
        let both = imported(&scratch, &scratch.file("jumped.json", text));
        assert_said(&scratch, &both, what);
        assert_eq!((both.0.table("launches").len(), both.0.table("kernels").len()), (calls, kernels), "{what}");
        let only = ["report", "imported", "--only", "gpu-utilisation", "--format", "json"];
        let report: serde_json::Value = serde_json::from_str(&scratch.gputrace(&only).expect(0).text()).expect("JSON");
        let busy = report["analyses"]["gpu-utilisation"]["facts"]["busy_percent"].as_f64().expect("a share");
        assert!(busy > 80.0, "the jump is in no range: {what}: {busy} %");
    }
}

#[test]
fn findings_and_verdict_are_not_of_a_jump_of_the_clock() {
    for (jump_us, unknown) in [(-5_000_000, true), (2 * HOUR, false)] {
        let scratch = Scratch::new();
        let text = timed(400, |_, id, at| if id > 200 { at + jump_us } else { at });
        imported(&scratch, &scratch.file("jump.json", text));
        let report = scratch.gputrace(&["report", "imported", "--only", "summary"]).expect(0).text();
        assert_eq!(report.contains("\nUNKNOWN: the clock was set meanwhile: time runs back by "), unknown, "{report}");
        assert!(!report.contains("a few steps take far longer") && !report.contains("OUTLIER STEPS"), "{report}");
    }
}

#[test]
fn calls_that_a_profiler_numbers_in_blocks_are_no_clock_that_runs_back() {
    let scratch = Scratch::new();
    // Each second call has a number behind all others.
    let number = |id: i64| if id % 2 == 0 { 1_000 + id } else { id };
    let calls: Vec<_> = (1..=400).map(|id| (1_000_000_000 + id * 1_000, 5, number(id), 77)).collect();
    let kernels: Vec<_> = calls.iter().map(|(at, _, id, _)| (at + 10, 900, *id)).collect();
    let both = imported(&scratch, &scratch.file("blocks.json", loop_of(&calls, &kernels)));
    let notes = both.0.manifest().notes;
    assert!(notes.iter().all(|note| !note.contains("clock")), "{notes:?}");
}

#[test]
fn time_that_runs_back_is_said_and_a_steady_clock_is_not_blamed() {
    for (back_us, says) in [(5_000_000, true), (2 * HOUR, true), (0, false)] {
        let scratch = Scratch::new();
        let text = timed(400, |_, id, at| if id > 200 { at - back_us } else { at });
        let both = imported(&scratch, &scratch.file("back.json", text));
        assert_eq!(both.0.table("launches").len(), 400);
        if says {
            assert_said(&scratch, &both, "time runs back 1 time in a thread, by ");
        } else {
            let notes = both.0.manifest().notes;
            assert!(notes.iter().all(|note| !note.contains("clock")), "{notes:?}");
        }
    }
}
