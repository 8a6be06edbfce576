//! Timelines for other viewers hold what the trace holds: each call, range, wait and work once, with its times to the ns, on its
//! thread or stream, and joined with what caused it.
//!
//! Perfetto's file is read with the messages that Perfetto publishes (`tests/timelines/read_perfetto.py`), Chrome's as JSON.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::util::{Driver, Row, Scratch, Trace, lacks, program, repository};

/// A bar: category, name, begin and end in ns, pid and tid (-1 for work of the GPU).
type Bar = (String, String, i64, i64, i64, i64);

/// Tables that become bars: their category (none: by a column), the column of their length, and of their names.
const TABLES: &[(&str, &str, &str)] = &[
    ("launches", "launch", "api_ns"),
    ("syncs", "sync", "api_ns"),
    ("transfers", "transfer", "api_ns"),
    ("device_memory", "memory", "api_ns"),
    ("api", "api", "api_ns"),
    ("os_waits", "os_wait", "wait_ns"),
    ("kernels", "kernel", "gpu_ns"),
];

fn bars_of(trace: &Trace) -> Vec<Bar> {
    let names = trace.names();
    let mut bars = Vec::new();
    for (table, category, length) in TABLES {
        let named = if *table == "kernels" { "name_id" } else { "api_id" };
        let bar = |row: Row<'_>| {
            let (start, tid) = (row.int("start_ns"), if *table == "kernels" { -1 } else { row.int("tid") });
            let name = names[&row.int(named)].replace("_Z3addPf", "add");
            ((*category).to_owned(), name, start, start + row.int(length), row.int("pid"), tid)
        };
        bars.extend(trace.table(table).rows().map(bar));
    }
    for row in trace.table("ranges").rows().filter(|row| row.text("kind") == "push_pop") {
        let name = names[&row.int("name_id")].clone();
        bars.push(("range".to_owned(), name, row.int("start_ns"), row.int("end_ns"), row.int("pid"), -1));
    }
    bars.sort();
    bars
}

/// A run on the simulated driver with times of the GPU.
fn recorded(scratch: &Scratch) -> Trace {
    let target = scratch.target(program("steps")).args(["0.4", "10", "10", "10000"]).with_driver(Driver::Plain);
    let run = target.options(["--gpu-time", "full", "--os-over", "50"]).traced().expect(0);
    std::fs::rename(&run.trace, scratch.path().join("recorded")).expect("the trace is moved");
    Trace::open(&scratch.path().join("recorded"))
}

/// The time in which the middle half of a trace's launches began: as options, and in ns since the epoch.
pub(crate) fn middle(trace: &Trace) -> ([String; 4], Range<i64>) {
    let mut starts: Vec<i64> = trace.table("launches").rows().map(|row| row.int("start_ns")).collect();
    starts.sort_unstable();
    let span = starts[starts.len() / 4]..starts[starts.len() * 3 / 4];
    let began = trace.manifest().started_ns;
    let seconds = |at: i64| format!("{}.{:09}", (at - began) / 1_000_000_000, (at - began) % 1_000_000_000);
    (["--from".to_owned(), seconds(span.start), "--to".to_owned(), seconds(span.end)], span)
}

fn read_perfetto(scratch: &Scratch, file: &str) -> Option<Value> {
    let Some(python) = std::env::var_os("GPUTRACE_READ_PYTHON") else {
        lacks("GPUTRACE_READ_PYTHON: a Python with Perfetto's messages");
        return None;
    };
    let script = repository().join("tests/timelines/read_perfetto.py");
    let out = Command::new(python).arg(script).arg(scratch.path().join(file)).output().expect("Python runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(serde_json::from_slice(&out.stdout).expect("JSON"))
}

#[test]
fn perfetto_reads_every_bar_of_a_trace_and_joins_work_with_its_call() {
    let scratch = Scratch::new();
    let trace = recorded(&scratch);
    let kernels = all_are_there(&scratch, "recorded", &trace);
    assert!(kernels.is_none_or(|kernels| kernels > 100), "{kernels:?} kernels");
    // With ranges, some of which begin at one moment.
    let file = repository().join("tests/traces/kineto-rank0.json");
    scratch.gputrace(&[Path::new("import"), &file, Path::new("-o"), Path::new("imported")]).expect(0);
    all_are_there(&scratch, "imported", &Trace::open(&scratch.path().join("imported")));
}

/// How many kernels a trace's export has, which holds what the trace holds; none where nothing can read it.
fn all_are_there(scratch: &Scratch, name: &str, trace: &Trace) -> Option<usize> {
    let run = scratch.gputrace(&["export", name, "--format", "perfetto", "-o", "x.pftrace"]).expect(0);
    let read = read_perfetto(scratch, "x.pftrace")?;
    let slices = read["slices"].as_array().expect("slices");
    let expected = bars_of(trace);
    let categories: Vec<&str> = TABLES.iter().map(|table| table.1).chain(["range"]).collect();
    let mut bars: Vec<Bar> = slices
        .iter()
        .filter(|slice| categories.contains(&slice["category"].as_str().expect("a category")))
        .map(|slice| {
            let text = |key: &str| slice[key].as_str().expect("a text").to_owned();
            let track = text("track");
            let ids: Vec<i64> = track.split([' ', ':']).filter_map(|word| word.parse().ok()).collect();
            // `thread 11 of 100`, or `process 100: OS waits of main (11)`.
            let (tid, pid) = match ids[..] {
                [tid, pid] if track.starts_with("thread ") => (tid, pid),
                [pid, ..] if text("category") == "os_wait" => {
                    let tid = track.rsplit(['(', ' ']).next().expect("a thread").trim_end_matches(')');
                    (tid.parse().expect("a thread's number"), pid)
                }
                [pid, ..] => (-1, pid),
                [] => panic!("a track of no process: {track}"),
            };
            let time = |key: &str| slice[key].as_i64().expect("a time");
            (text("category"), text("name"), time("start"), time("end"), pid, tid)
        })
        .collect();
    bars.sort();
    assert_eq!(bars.len(), expected.len(), "{}", run.own_stderr());
    for (is, was) in bars.iter().zip(&expected) {
        assert_eq!(is, was);
    }
    // Each kernel has the flow of the launch that has its number.
    let mut of_launches = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice["category"] == "launch") {
        of_launches.insert(slice["args"]["correlation"].as_i64(), slice["flows"].clone());
    }
    for slice in slices.iter().filter(|slice| slice["category"] == "kernel") {
        assert_eq!(slice["flows"].as_array().map(Vec::len), Some(1), "{slice}");
        assert_eq!(of_launches.get(&slice["args"]["correlation"].as_i64()), Some(&slice["flows"]), "{slice}");
    }
    let values = read["values"].as_array().expect("values");
    let memory = |value: &&Value| {
        value[0]
            .as_str()
            .is_some_and(|name| name.contains("host memory in use") || name.contains("device memory in use"))
    };
    let succeeded = trace.table("device_memory").rows().filter(|row| row.int("result") == 0).count();
    assert_eq!(values.iter().filter(memory).count(), succeeded);
    Some(trace.table("kernels").len())
}

/// Whether it is a bar, a moment or a value.
fn is_event(event: &Value) -> bool {
    ["X", "i", "C", "b"].contains(&event["ph"].as_str().unwrap_or(""))
}

/// Files of a part of a trace say what they have not, in the words of the command, and with that the events are those of the whole.
#[track_caller]
fn files_say_what_lies_outside(scratch: &Scratch, options: &[String], all: usize, said: &str) {
    let outside = |said: &str| {
        let line = said.lines().find(|line| line.contains(" lie outside of the chosen span and are left out"));
        line.unwrap_or_else(|| panic!("{said}")).trim_start_matches("gputrace: ").to_owned()
    };
    let number = |text: &str| text.replace(',', "").parse::<usize>().unwrap_or_else(|_| panic!("{text} in {said}"));
    let words = outside(said);
    let [left_out, of] = [0, 2].map(|at| number(words.split(' ').nth(at).expect("a number")));
    let written = said.split("part.json: ").nth(1).and_then(|rest| rest.split(' ').next()).expect("how many");
    assert_eq!((of, number(written) + left_out), (all, all), "{said}");
    for (format, file) in
        [("chrome", "o.json"), ("perfetto", "o.pftrace"), ("kineto", "o-kineto.json"), ("sqlite", "o.sqlite")]
    {
        let words = ["export", "recorded", "--format", format, "-o", file];
        let words: Vec<&str> = words.into_iter().chain(options.iter().map(String::as_str)).collect();
        let said = outside(&scratch.gputrace(&words).expect(0).own_stderr());
        let text = std::fs::read(scratch.path().join(file)).expect("the export");
        assert!(String::from_utf8_lossy(&text).contains(&said), "{format}: {said}");
    }
}

#[test]
fn chrome_has_the_same_bars_and_a_span_of_them() {
    let scratch = Scratch::new();
    let trace = recorded(&scratch);
    let export = |more: &[&str], file: &str| -> (Vec<Value>, String) {
        let run =
            scratch.gputrace(&[&["export", "recorded", "--format", "chrome", "-o", file], more].concat()).expect(0);
        let text = std::fs::read_to_string(scratch.path().join(file)).expect("the export");
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        let begin: i64 = value["otherData"]["begin_ns"].as_str().and_then(|text| text.parse().ok()).expect("a time");
        let Value::Array(mut events) = value["traceEvents"].take() else { panic!("no events") };
        for event in &mut events {
            let ns = |key: &str| event[key].as_f64().map(|us| (us * 1000.0).round() as i64);
            let (ts, dur) = (ns("ts").map(|ts| ts + begin), ns("dur"));
            (event["ts"], event["dur"]) = (ts.into(), dur.into());
        }
        (events, run.own_stderr())
    };
    let (events, _) = export(&[], "all.json");
    let of = |event: &Value, cat: &str| event["ph"] == "X" && event["cat"] == cat;
    for (table, category, length) in TABLES {
        let sums = |bars: &mut dyn Iterator<Item = (i64, i64)>| {
            bars.fold((0u64, 0i64, 0i64), |(n, s, d), (start, length)| (n + 1, s.wrapping_add(start), d + length))
        };
        let rows = trace.table(table);
        let was = sums(&mut rows.rows().map(|row| (row.int("start_ns"), row.int(length))));
        let time = |event: &Value, key: &str| event[key].as_i64().expect("a time");
        let is = sums(&mut events.iter().filter(|e| of(e, category)).map(|e| (time(e, "ts"), time(e, "dur"))));
        assert_eq!(is, was, "{table}");
    }
    let steps = |ph: &str| events.iter().filter(|event| event["cat"] == "flow" && event["ph"] == ph).count();
    assert_eq!(steps("t"), trace.table("kernels").len() + trace.table("device_copies").len());
    assert_eq!(steps("s"), trace.table("launches").len() + trace.table("transfers").len());
    // A part of it, and no more than so many.
    let (options, span) = middle(&trace);
    let (part, part_said) = export(&options.each_ref().map(String::as_str), "part.json");
    let launches = trace.table("launches").rows().filter(|row| span.contains(&row.int("start_ns"))).count();
    assert!(launches > 10);
    assert_eq!(part.iter().filter(|event| of(event, "launch")).count(), launches);
    files_say_what_lies_outside(&scratch, &options, events.iter().filter(|event| is_event(event)).count(), &part_said);
    let (few, said) = export(&["--max-events", "50"], "few.json");
    assert_eq!(few.iter().filter(|event| is_event(event)).count(), 50);
    assert!(said.contains("events are left out (--max-events), the first of them"), "{said}");
    // They are those that began first, of whatever table; the file says what is not in it, and no arrow leads to nowhere.
    let starts = |events: &[Value]| {
        let mut starts: Vec<i64> =
            events.iter().filter(|event| is_event(event)).map(|event| event["ts"].as_i64().expect("ts")).collect();
        starts.sort_unstable();
        starts
    };
    for most in [50, 500] {
        let (few, said) = export(&["--max-events", &most.to_string()], "few.json");
        assert_eq!(starts(&few), starts(&events)[..most], "{most}");
        let flows = |ph: &str| -> std::collections::BTreeSet<String> {
            let of = few.iter().filter(|event| event["cat"] == "flow" && event["ph"] == ph);
            of.map(|event| event["id"].as_str().expect("an id").to_owned()).collect()
        };
        assert_eq!(flows("s"), flows("t"), "{most}");
        assert!(most < 500 || !flows("s").is_empty());
        let text = std::fs::read_to_string(scratch.path().join("few.json")).expect("the export");
        let file: Value = serde_json::from_str(&text).expect("JSON");
        let told = file["otherData"]["left_out"].as_str().expect("a text");
        assert!(said.contains(told) && told.contains(" events are left out"), "{told} {said}");
    }
    let perfetto = ["export", "recorded", "--format", "perfetto", "--quiet", "--max-events", "50", "-o", "few.pftrace"];
    assert_eq!(scratch.gputrace(&perfetto).expect(0).own_stderr(), "");
    let file = std::fs::read(scratch.path().join("few.pftrace")).expect("the export");
    assert!(String::from_utf8_lossy(&file).contains(" events are left out (--max-events)"));
    let wrong = ["export", "recorded", "--format", "kineto", "--max-events", "5", "-o", "x"];
    assert!(scratch.gputrace(&wrong).expect(2).own_stderr().contains("--format perfetto or chrome"));
    let nowhere = scratch.gputrace(&["export", "recorded", "--format", "perfetto", "-o", "no/x.pftrace"]).expect(1);
    assert!(nowhere.own_stderr().contains("no/x.pftrace"), "{}", nowhere.own_stderr());
}
