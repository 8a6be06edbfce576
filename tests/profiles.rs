//! Profiles hold what the tables hold: the values of each stack are the sums of its rows, in every format, by other tools' own readers.
//!
//! speedscope's package reads all three formats (`tests/profiles/read_speedscope.mjs`), Google's library for protobuf pprof's
//! (`tests/profiles/read_pprof.py`).

use std::collections::{BTreeMap, HashMap};
use std::process::Command;

use serde_json::Value;

use crate::util::{Driver, Row, Scratch, Stacks, Trace, lacks, needs, program, repository};

/// Values by process, stack and called function: `pid N;outermost;...;innermost;function`, functions alone.
type Sums = BTreeMap<String, i64>;

/// A program in Python that waits in two lines, copies, launches often, and sleeps.
const PROGRAM: &str = "import ctypes, time
cuda = ctypes.CDLL('libcuda.so.1')
c, m, f, d = (ctypes.c_void_p() for _ in range(4))
assert cuda.cuInit(0) == 0
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)
cuda.cuCtxSetCurrent(c)
cuda.cuModuleLoadData(ctypes.byref(m), b'fakecuda:k')
cuda.cuModuleGetFunction(ctypes.byref(f), m, b'k')
assert cuda.cuMemAlloc_v2(ctypes.byref(d), 64) == 0
host = ctypes.create_string_buffer(64)
def launch():
    assert cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
def item():
    cuda.cuMemcpyDtoH_v2(host, d, ctypes.c_size_t(64))
    cuda.cuStreamSynchronize(None)
def save():
    cuda.cuCtxSynchronize()
    cuda.cuStreamQuery(None)
    time.sleep(0.001)
for n in range(300):
    launch()
    launch()
    if n % 10 == 0:
        item()
    if n % 100 == 0:
        save()
";

/// A trace of it.
fn recorded(scratch: &Scratch, stacks: [&str; 4]) -> Trace {
    let script = scratch.file("program.py", PROGRAM);
    let target = scratch.target("python3").arg(script).with_driver(Driver::Plain).options(stacks);
    let run = target.options(["--malloc", "sample=16K", "--os-over", "50"]).traced().expect(0);
    std::fs::rename(&run.trace, scratch.path().join("recorded")).expect("the trace is moved");
    Trace::open(&scratch.path().join("recorded"))
}

/// Every call has a stack.
const ALL_STACKS: [&str; 4] = ["--stacks-over", "0", "--launch-stacks", "20"];

/// Exports the recorded trace and reads the file.
fn export(scratch: &Scratch, file: &str, options: &[&str]) -> Vec<u8> {
    scratch.gputrace(&[&["export", "recorded", "-o", file, "--format"], options].concat()).expect(0);
    std::fs::read(scratch.path().join(file)).expect("the export")
}

/// A file of folded stacks.
fn folded(scratch: &Scratch, file: &str, value: &str) -> Sums {
    let text = String::from_utf8(export(scratch, file, &["folded", "--value", value])).expect("a text");
    let mut sums = Sums::new();
    for line in text.lines() {
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        *sums.entry(functions(stack)).or_default() += value.parse::<i64>().expect("a number");
    }
    assert!(!sums.is_empty(), "nothing in {file}");
    sums
}

/// A folded stack without programs, files and lines: `python (pid 7);main (x.py:3);poll` as `pid 7;main;poll`.
fn functions(stack: &str) -> String {
    let (process, frames) = stack.split_once(';').expect("a process and frames");
    let pid = process.rsplit_once('(').map_or(process, |(_, pid)| pid.trim_end_matches(')'));
    let bare = |frame: &str| match frame.rsplit_once(" (") {
        Some((function, place)) if place.ends_with(')') && place.contains(':') => format!(";{function}"),
        _ => format!(";{frame}"),
    };
    std::iter::once(pid.to_owned()).chain(frames.split(';').map(bare)).collect()
}

/// Sums of rows of tables: of each its value, none where it is not counted.
struct Tables<'t> {
    trace: &'t Trace,
    names: HashMap<i64, String>,
    stacks: Stacks<String>,
}

impl<'t> Tables<'t> {
    fn new(trace: &'t Trace) -> Tables<'t> {
        Tables { trace, names: trace.names(), stacks: trace.stacks(|row| row.text("function").to_owned()) }
    }

    fn sums(&self, tables: &[&str], value: impl Fn(&str, &Row<'_>) -> Option<i64>) -> Sums {
        let mut sums = Sums::new();
        for table in tables {
            for row in self.trace.table(table).rows() {
                let Some(value) = value(table, &row) else { continue };
                let mut text = format!("pid {}", row.int("pid"));
                match row.maybe_int("stack_id") {
                    Some(id) => {
                        let stack: Vec<&String> = self.stacks.of(id).collect();
                        stack.iter().rev().for_each(|function| text += &format!(";{function}"));
                    }
                    None => text += ";[no stack]",
                }
                text += &format!(";{}", self.names[&row.int("api_id")]);
                *sums.entry(text).or_default() += value;
            }
        }
        sums
    }
}

/// What a row of a driver call waited, as far as it did.
fn waited(table: &str, row: &Row<'_>) -> Option<i64> {
    let ns = row.int("api_ns");
    match table {
        "syncs" => ["context", "stream", "event"].contains(&row.text("kind")).then_some(ns),
        // What a copy needs: 20 us and its bytes at 2 GB/s. It waited where it took twice that, for what is beyond.
        _ => {
            let need = 20_000 + row.int("bytes") / 2;
            (row.int("pending_streams") > 0 && ns > 2 * need).then_some(ns - need)
        }
    }
}

/// Every driver call's table.
const CALLS: [&str; 5] = ["launches", "syncs", "transfers", "device_memory", "api"];

#[test]
fn waits_and_calls_by_stack_are_the_sums_of_their_rows() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let trace = recorded(&scratch, ALL_STACKS);
    let tables = Tables::new(&trace);
    let times = tables.sums(&["syncs", "transfers"], waited);
    assert_eq!(folded(&scratch, "time.folded", "wait_time"), times);
    let counts = tables.sums(&["syncs", "transfers"], |table, row| waited(table, row).map(|_| 1));
    assert_eq!(folded(&scratch, "count.folded", "waits"), counts);
    let of = |line: &str| counts.iter().filter(|(stack, _)| stack.ends_with(line)).map(|(_, n)| n).sum::<i64>();
    assert_eq!((of(";<module>;item;cuStreamSynchronize"), of(";<module>;save;cuCtxSynchronize")), (30, 3));
    // As the report counts them.
    let report = scratch.gputrace(&["report", "recorded", "--only", "syncs", "--format", "json"]).expect(0);
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let facts = &report["analyses"]["syncs"]["facts"];
    let both = ["waits_ns", "implicit_waits_ns"].map(|fact| facts[fact].as_i64().expect("a time"));
    assert_eq!(both[0] + both[1], times.values().sum::<i64>());
    // Each launch has a stack, so that none stands for another.
    let calls = |row: &Row<'_>, value| row.maybe_int("stack_id").map(|_| value);
    assert_eq!(folded(&scratch, "calls.folded", "calls"), tables.sums(&CALLS, |_, row| calls(row, 1)));
    let time = tables.sums(&CALLS, |_, row| calls(row, row.int("api_ns")));
    assert_eq!(folded(&scratch, "call-time.folded", "call_time"), time);
}

#[test]
fn waits_for_the_operating_system_are_told_apart_from_the_gpus() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let trace = recorded(&scratch, ALL_STACKS);
    let names = trace.names();
    let mut expected: BTreeMap<String, [i64; 2]> = BTreeMap::new();
    for row in trace.table("os_waits").rows() {
        let [count, ns] = expected.entry(names[&row.int("api_id")].clone()).or_default();
        (*count, *ns) = (*count + 1, *ns + row.int("wait_ns"));
    }
    let mut found: BTreeMap<String, [i64; 2]> = BTreeMap::new();
    for (place, value) in ["os_waits", "os_wait_time"].into_iter().enumerate() {
        for (stack, sum) in folded(&scratch, value, value) {
            found.entry(stack.rsplit(';').next().expect("a function").to_owned()).or_default()[place] += sum;
        }
    }
    assert_eq!(found, expected);
    assert!(found.values().map(|[_, ns]| ns).sum::<i64>() >= 3_000_000, "three sleeps of a millisecond: {found:?}");
}

#[test]
fn drawn_launches_count_for_those_they_were_drawn_from() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let trace = recorded(&scratch, ["--stacks-over", "10000000", "--launch-stacks", "20"]);
    let tables = Tables::new(&trace);
    let stands_for = |row: &Row<'_>| row.maybe_int("stack_launches").filter(|launches| *launches > 0);
    let calls = tables.sums(&["launches"], |_, row| stands_for(row));
    assert_eq!(folded(&scratch, "calls.folded", "calls"), calls);
    let drawn = trace.table("launches").rows().filter_map(|row| stands_for(&row)).count() as i64;
    assert_eq!(calls.values().sum::<i64>(), 20 * drawn);
    let time = tables.sums(&["launches"], |_, row| Some(stands_for(row)? * row.int("api_ns")));
    assert_eq!(folded(&scratch, "time.folded", "call_time"), time);
}

#[test]
fn speedscope_shows_the_same_of_all_three_formats() {
    let Some(modules) = std::env::var_os("GPUTRACE_NODE_MODULES") else {
        lacks("GPUTRACE_NODE_MODULES: speedscope's package");
        return;
    };
    if !needs(&["node", "python3"]) {
        return;
    }
    let scratch = Scratch::new();
    recorded(&scratch, ALL_STACKS);
    export(&scratch, "all.speedscope.json", &["speedscope"]);
    export(&scratch, "waits.speedscope.json.gz", &["speedscope", "--value", "wait_time"]);
    export(&scratch, "waits.pb.gz", &["pprof", "--of", "waits"]);
    let waits = folded(&scratch, "waits.folded", "wait_time");
    let script = repository().join("tests/profiles/read_speedscope.mjs");
    let files = ["all.speedscope.json", "waits.pb.gz", "waits.folded", "waits.speedscope.json.gz"]
        .map(|file| scratch.path().join(file));
    let out = Command::new("node").arg(script).arg(modules).args(files).output().expect("node runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let read: Vec<Value> = String::from_utf8(out.stdout)
        .expect("a text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let named = |name: &str| {
        let profiles = read[0].as_array().expect("profiles");
        profiles.iter().find(|profile| profile["name"].as_str().is_some_and(|of| of.starts_with(name))).expect(name)
    };
    // Frames are told as name, file and line.
    let stacks = |profile: &Value| -> Sums {
        let mut sums = Sums::new();
        for (stack, value) in profile["stacks"].as_object().expect("stacks") {
            let names: Vec<&str> = stack.split(';').map(|frame| frame.split('|').next().expect("a name")).collect();
            *sums.entry(names.join(";")).or_default() += value.as_i64().expect("a number");
        }
        sums
    };
    let without_process = |sums: &Sums| -> Sums {
        sums.iter().map(|(stack, value)| (stack.split_once(';').expect("frames").1.to_owned(), *value)).collect()
    };
    let waits_alone = without_process(&waits);
    assert_eq!(stacks(named("wait_time of ")), waits_alone);
    assert_eq!(stacks(&read[1][0]), waits_alone);
    assert_eq!(stacks(&read[3][0]), waits_alone);
    let of_folded: Sums = stacks(&read[2][0]).into_iter().map(|(stack, value)| (functions(&stack), value)).collect();
    assert_eq!(of_folded, waits);
    let text = named("wait_time of ")["stacks"].to_string();
    assert!(text.contains("program.py|15;cuStreamSynchronize||0"), "the line of the wait: {text}");
    for (value, unit) in [
        ("alloc_space", "bytes"),
        ("inuse_space", "bytes"),
        ("wait_time", "nanoseconds"),
        ("os_wait_time", "nanoseconds"),
        ("call_time", "nanoseconds"),
    ] {
        let profiles = read[0].as_array().expect("profiles").iter();
        let own: Vec<&Value> =
            profiles.filter(|of| of["name"].as_str().expect("a name").starts_with(&format!("{value} of "))).collect();
        assert!(own.iter().all(|profile| profile["unit"] == unit), "{value}");
        // python3 may be a script that looks for it, and ends as it: one pid is several programs then, of which each has a profile.
        let (mut is, mut was) = (Sums::new(), Sums::new());
        for profile in &own {
            let pid = profile["name"]
                .as_str()
                .and_then(|name| Some(name.rsplit_once('(')?.1.trim_end_matches(')').to_owned()));
            *is.entry(pid.expect("a pid")).or_default() += profile["total"].as_i64().expect("a sum");
        }
        for (stack, sum) in folded(&scratch, &format!("{value}.folded"), value) {
            *was.entry(stack.split(';').next().expect("a pid").to_owned()).or_default() += sum;
        }
        assert_eq!(is, was, "{value}");
        let totals: Vec<Option<i64>> = own.iter().map(|profile| profile["total"].as_i64()).collect();
        assert!(totals.is_sorted_by(|one, next| one >= next), "those with most come first: {totals:?}");
    }
    let profiles = read[0].as_array().expect("profiles").iter();
    let counts = |profile: &&Value| profile["unit"] == "none";
    assert_eq!(profiles.filter(counts).count(), 0);
}

#[test]
fn googles_library_reads_both_values_of_every_wait() {
    let Some(python) = std::env::var_os("GPUTRACE_READ_PYTHON") else {
        lacks("GPUTRACE_READ_PYTHON: a Python with protobuf");
        return;
    };
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    recorded(&scratch, ALL_STACKS);
    let script = repository().join("tests/profiles/read_pprof.py");
    for (of, values) in [
        ("waits", &[("waits", "count"), ("wait_time", "nanoseconds")][..]),
        ("calls", &[("calls", "count"), ("call_time", "nanoseconds")]),
        (
            "malloc",
            &[
                ("alloc_objects", "count"),
                ("alloc_space", "bytes"),
                ("inuse_objects", "count"),
                ("inuse_space", "bytes"),
            ],
        ),
    ] {
        let file = format!("{of}.pb.gz");
        export(&scratch, &file, &["pprof", "--of", of]);
        let out = Command::new(&python).arg(&script).arg(scratch.path().join(&file)).output().expect("Python runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let profile: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let types: Vec<[&str; 2]> = values.iter().map(|(name, unit)| [*name, *unit]).collect();
        assert_eq!(profile["types"], serde_json::json!(types));
        assert_eq!(profile["default"], types[types.len() - 1][0]);
        for (place, (value, _)) in values.iter().enumerate() {
            let mut sums = Sums::new();
            for sample in profile["samples"].as_array().expect("samples") {
                let mut stack = format!("pid {}", sample["labels"]["pid"]);
                for frame in sample["frames"].as_array().expect("frames") {
                    stack += &format!(";{}", frame[0].as_str().expect("a name").replace(';', ":"));
                }
                *sums.entry(stack).or_default() += sample["values"][place].as_i64().expect("a number");
            }
            sums.retain(|_, sum| *sum > 0);
            assert_eq!(sums, folded(&scratch, &format!("{value}.folded"), value), "{value}");
        }
    }
}

#[test]
fn what_does_not_belong_together_is_refused_and_nothing_is_said_to_be_nothing() {
    let scratch = Scratch::new();
    let call = r#"{"ph":"X","cat":"cuda_runtime","name":"cudaMalloc","pid":9,"tid":9,"ts":10,"dur":1,"args":{"correlation":1}}"#;
    scratch.file("one-call.json", format!("{{\"traceEvents\":[{call}]}}"));
    scratch.gputrace(&["import", "one-call.json", "-o", "recorded"]).expect(0);
    for (wrong, says) in [
        (&["perfetto", "--of", "waits"][..], "--format pprof, folded or speedscope"),
        (&["folded", "--of", "waits", "--value", "alloc_space"], "waits, wait_time"),
        (&["pprof", "--of", "calls", "--value", "calls"], "--format folded or speedscope"),
        (&["pprof", "--of", "waits", "--at", "peak"], "malloc alone"),
        (&["speedscope", "--value", "alloc_space", "--at", "peak"], "--value inuse_space"),
    ] {
        let run = scratch.gputrace(&[&["export", "recorded", "-o", "x", "--format"], wrong].concat()).expect(2);
        assert!(run.own_stderr().contains(says), "{}", run.own_stderr());
    }
    assert!(!scratch.path().join("x").exists());
    for (of, says) in
        [("malloc", "--of waits has"), ("waits", "no waits"), ("os-waits", "--os off"), ("calls", "--stacks off")]
    {
        let run =
            scratch.gputrace(&["export", "recorded", "--format", "pprof", "--of", of, "-o", "none.pb.gz"]).expect(0);
        assert!(run.own_stderr().contains(says), "{}", run.own_stderr());
    }
    let target = scratch.target(program("cuda_values")).with_driver(Driver::Plain);
    let run = target.options(["--detail", "rollup", "--malloc", "off"]).traced().expect(0);
    let trace = run.trace.to_string_lossy();
    let run = scratch.gputrace(&["export", &trace, "--format", "speedscope", "-o", "none.json.gz"]).expect(0);
    for says in ["no single event was kept", "nothing in this trace is known by stack", "none.json.gz: 0 stacks"] {
        assert!(run.own_stderr().contains(says), "{}", run.own_stderr());
    }
    // speedscope opens no file without a profile.
    let Some(modules) = std::env::var_os("GPUTRACE_NODE_MODULES").filter(|_| needs(&["node"])) else { return };
    let script = repository().join("tests/profiles/read_speedscope.mjs");
    let read = Command::new("node").arg(script).arg(modules).arg(scratch.path().join("none.json.gz")).output();
    let read = read.expect("node runs");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let read: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    assert_eq!(read.as_array().map(Vec::len), Some(1), "{read}");
    assert_eq!(read[0]["name"], "nothing is known by stack", "{read}");
}
