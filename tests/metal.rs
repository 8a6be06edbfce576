//! Metal's trace is what the simulated Metal did: the shim's machine code for macOS, for both processors, hooks its
//! classes, and this machine's collector reads what it wrote.
//!
//! `tests/fakes/metal` is the simulation and writes the truth; what Apple's own classes do only a Mac can show.

mod asked;
mod clocks;
mod cost;
mod forbidden;
mod given;
mod kept;
mod labels;
mod layer;
mod left;
mod pipelines;
mod polled;
mod queue4;
mod stress;
mod switched;
mod system;
mod textures;
mod thin;
mod unseen;
mod verdicts;

use std::collections::BTreeMap;
use std::fs;

use gputrace_collectors::manifest::Process;
use serde_json::Value;

use crate::util::{Finished, Processor, Row, Scratch, Table, Trace, apple_targets, count};

/// One program, traced.
struct Run {
    who: String,
    run: Finished,
    trace: Trace,
    /// Lines of JSON.
    truth: String,
    scratch: Scratch,
}

impl Run {
    /// Lines of the truth of one kind, in the order of their times where they have one.
    fn truth(&self, kind: &str) -> Vec<Value> {
        let mut lines: Vec<Value> =
            self.lines(kind).map(|line| serde_json::from_str(line).expect("the truth is JSON")).collect();
        lines.sort_by_key(|line| line["start_ns"].as_i64().unwrap_or_default());
        lines
    }

    /// Its lines of one kind, as they stand there.
    fn lines(&self, kind: &str) -> impl Iterator<Item = &str> {
        let begin = format!("{{\"kind\":\"{kind}\"");
        self.truth.lines().filter(move |line| line.starts_with(&begin))
    }

    fn waits(&self, what: &str) -> Vec<Value> {
        self.truth("wait").into_iter().filter(|line| line["what"] == what).collect()
    }

    /// The process that the shim for macOS told of; the others ran before it under the same number.
    fn process(&self) -> Process {
        let mut all = self.trace.manifest().processes;
        all.retain(|process| process.exe.contains(".m-"));
        assert_eq!(all.len(), 1, "{}: {all:?}", self.who);
        all.remove(0)
    }
}

/// Runs a program of `tests/programs` on both processors, without and with the tracer, which must be the same.
fn each(program: &str, arguments: &[&str], assert: impl Fn(&Run)) {
    each_with(program, arguments, &[], |run| {
        assert_eq!(run.run.own_stderr(), "", "{}", run.who);
        assert(run);
    });
}

fn each_with(program: &str, arguments: &[&str], variables: &[(&str, &str)], assert: impl Fn(&Run)) {
    each_of(program, arguments, variables, &[], assert);
}

fn each_of(program: &str, arguments: &[&str], variables: &[(&str, &str)], options: &[&str], assert: impl Fn(&Run)) {
    on_each(&[Processor::X86, Processor::Arm], program, arguments, variables, options, assert);
}

fn on_each(
    processors: &[Processor],
    program: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
    options: &[&str],
    assert: impl Fn(&Run),
) {
    let Some((dylibs, _)) = apple_targets() else { return };
    for processor in processors.iter().copied() {
        processor.tries(|| {
            let scratch = Scratch::new();
            let file = scratch.path().join("truth");
            let target = processor
                .target(&scratch, &dylibs, program)
                .args(arguments)
                // A death there is noted for the brake, where that can be written.
                .env("XDG_STATE_HOME", scratch.path().join("state"))
                .options(["--malloc", "off"])
                .options(options);
            let target = variables.iter().fold(target, |target, (name, value)| target.env(name, value));
            let plain = target.plain();
            let traced = target.env("FAKE_METAL_TRUTH", &file).traced();
            let who = format!("{processor:?} {program} {arguments:?}");
            assert_eq!(plain.text(), traced.text(), "{who}: {}", traced.stderr);
            assert_eq!(plain.code(), traced.code(), "{who}: {}", traced.stderr);
            assert_eq!(plain.stderr, traced.own_stderr(), "{who}");
            let truth = fs::read_to_string(&file).unwrap_or_default();
            let trace = traced.read();
            trace.assert_balanced();
            assert(&Run { who, run: traced, trace, truth, scratch });
        });
    }
}

fn int(line: &Value, field: &str) -> i64 {
    line[field].as_i64().unwrap_or_else(|| panic!("no {field} in {line}"))
}

fn length(line: &Value) -> i64 {
    int(line, "end_ns") - int(line, "start_ns")
}

/// Rows by a time of theirs.
fn sorted<'a>(table: &'a Table, by: &str) -> Vec<Row<'a>> {
    let mut rows: Vec<Row> = table.rows().collect();
    rows.sort_by_key(|row| row.maybe_int(by).unwrap_or_default());
    rows
}

/// How often each number comes.
fn bag(values: impl Iterator<Item = i64>) -> BTreeMap<i64, u64> {
    values.fold(BTreeMap::new(), |mut all, value| {
        *all.entry(value).or_default() += 1;
        all
    })
}

/// What a double loses of a time of this machine's clock, and the step of its reading.
const ROUNDING_NS: i64 = 2;

/// Each command buffer of the truth has its row, with its dispatches and its time on the GPU.
#[track_caller]
fn assert_command_buffers(run: &Run) {
    let (truth, table) = (run.truth("command_buffer"), run.trace.table("command_buffers"));
    let rows = sorted(&table, "gpu_start_ns");
    assert_eq!(rows.len(), truth.len(), "{}", run.who);
    for (row, line) in rows.iter().zip(&truth) {
        assert_eq!(row.int("dispatches"), int(line, "dispatches"), "{}: {line}", run.who);
        assert!((row.int("gpu_ns") - length(line)).abs() <= ROUNDING_NS, "{}: {line}, {}", run.who, row.int("gpu_ns"));
    }
    assert_eq!(run.trace.table("launches").len(), truth.len(), "{}", run.who);
    // Those that only copy stand among the copies.
    let on_gpu = ["kernels", "device_copies"].map(|name| run.trace.table(name));
    let seen: i64 = on_gpu.iter().flat_map(Table::rows).map(|row| row.int("gpu_ns")).sum();
    let happened: i64 = truth.iter().map(length).sum();
    assert!((seen - happened).abs() <= ROUNDING_NS * rows.len() as i64, "{}: {seen}, {happened}", run.who);
}

/// Each dispatch of the truth has its row: pipeline, form, size and group.
#[track_caller]
fn assert_dispatches(run: &Run) {
    let names = run.trace.names();
    let said = |row: &Row, fields: [&str; 3]| fields.map(|field| row.int(field));
    let seen: Vec<String> = sorted(&run.trace.table("dispatches"), "start_ns")
        .iter()
        .map(|row| {
            let name = row.maybe_int("name_id").map_or("", |id| names[&id].as_str());
            let (size, group) =
                (said(row, ["size_x", "size_y", "size_z"]), said(row, ["group_x", "group_y", "group_z"]));
            format!("{name} {} {size:?} {group:?}", row.text("kind"))
        })
        .collect();
    let of = |line: &Value, field: &str| [0, 1, 2].map(|i| line[field][i].as_i64().unwrap_or(-1));
    let text = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let happened: Vec<String> = run
        .truth("dispatch")
        .iter()
        .map(|line| {
            let label = if text(line, "name") == "update_100us" { "adam".to_owned() } else { text(line, "name") };
            format!("{label} {} {:?} {:?}", text(line, "form"), of(line, "grid"), of(line, "group"))
        })
        .collect();
    assert_eq!(seen, happened, "{}", run.who);
}

#[test]
fn a_training_loop_is_recorded_as_it_ran() {
    each("metal_training.m", &["12"], |run| {
        assert_command_buffers(run);
        assert_dispatches(run);
        let names = run.trace.names();
        let labels: Vec<&str> = sorted(&run.trace.table("command_buffers"), "start_ns")
            .iter()
            .filter(|row| row.int("labelled") == 1)
            .map(|row| names[&row.int("name_id")].as_str())
            .collect();
        assert_eq!(labels, ["even step", "odd step"].repeat(6), "{}", run.who);
        let copies = run.trace.table("transfers");
        let truth = run.truth("copy");
        assert_eq!(
            bag(copies.rows().map(|row| row.int("bytes"))),
            bag(truth.iter().map(|line| int(line, "bytes"))),
            "{}",
            run.who
        );
        let completed = run.waits("completed");
        let syncs = run.trace.table("syncs");
        let waits: Vec<_> = syncs.rows().filter(|row| row.text("kind") == "stream").collect();
        assert_eq!(waits.len(), completed.len(), "{}", run.who);
        assert_memory(run);
    });
}

/// What was made and freed is what the truth says.
#[track_caller]
fn assert_memory(run: &Run) {
    let table = run.trace.table("device_memory");
    for action in ["alloc", "free"] {
        let rows = table.rows().filter(|row| row.text("action") == action);
        let seen = bag(rows.map(|row| row.int("bytes")));
        assert_eq!(seen, bag(run.truth(action).iter().map(|line| int(line, "bytes"))), "{}: {action}", run.who);
    }
}

/// The longest row of one kind of wait is as long as the simulation says, or longer by what stands around it.
#[track_caller]
fn assert_longest(run: &Run, kind: &str, what: &str, least_ns: i64) {
    let table = run.trace.table("syncs");
    let longest = table.rows().filter(|row| row.text("kind") == kind).map(|row| row.int("api_ns")).max();
    let waited = run.waits(what).iter().map(length).max().unwrap_or_default();
    assert!(waited >= least_ns, "{}: {waited}", run.who);
    assert!(longest >= Some(waited), "{}: {longest:?}, {waited}", run.who);
}

#[test]
fn waits_are_as_long_as_they_were() {
    const LEAST_NS: i64 = 15_000_000;
    for (what, kind) in [("completed", "stream"), ("scheduled", "schedule"), ("room", "room"), ("event", "event")] {
        each("metal_waits.m", &[what], |run| {
            assert_longest(run, kind, what, LEAST_NS);
            assert_command_buffers(run);
        });
    }
    for what in ["late", "handed"] {
        each("metal_waits.m", &[what], |run| assert_longest(run, "event", "event", LEAST_NS));
    }
    each("metal_waits.m", &["queues"], |run| {
        assert_longest(run, "stream", "completed", LEAST_NS);
        let syncs = run.trace.table("syncs");
        assert_eq!(syncs.rows().filter(|row| row.text("kind") == "stream_wait").count(), 1, "{}", run.who);
    });
}

#[test]
fn an_export_has_dispatches_beside_their_commits() {
    each("metal_training.m", &["12"], |run| {
        let export = |out: &str| ["export", "--format", "kineto", "-o", out].map(str::to_owned);
        let trace = run.run.trace.display().to_string();
        run.scratch.gputrace(&[&export("out.json")[..], &[trace]].concat()).expect(0);
        let text = fs::read_to_string(run.scratch.path().join("out.json")).expect("the export");
        let all: Value = serde_json::from_str(&text).expect("the export is JSON");
        let events = all["traceEvents"].as_array().expect("events");
        let calls: Vec<&Value> = events.iter().filter(|event| event["cat"] == "metal").collect();
        let commits: Vec<i64> = calls
            .iter()
            .filter(|call| call["name"] == "[MTLCommandBuffer commit]")
            .map(|call| int(&call["args"], "correlation"))
            .collect();
        let dispatches: Vec<&&Value> = calls.iter().filter(|call| call["args"]["commit"].is_i64()).collect();
        assert_eq!(dispatches.len(), run.truth("dispatch").len(), "{}", run.who);
        assert!(dispatches.iter().all(|call| commits.contains(&int(&call["args"], "commit"))), "{}", run.who);
        assert!(events.iter().all(|event| event["cat"] != "cuda_driver"), "{}", run.who);
    });
}

#[test]
fn each_kind_of_copy_has_its_bytes() {
    each("metal_every.m", &["copies"], |run| {
        let table = run.trace.table("transfers");
        let mut bytes: Vec<i64> = sorted(&table, "start_ns").iter().map(|row| row.int("bytes")).collect();
        bytes.sort_unstable();
        // Five bytes, a set of 300, 4 rows of 64 in 2 images, 5 rows of 64, a texture of 64 x 64 pixels.
        assert_eq!(bytes, [5, 300, 320, 512, 16384], "{}", run.who);
        assert_command_buffers(run);
    });
}

#[test]
fn memory_is_counted_by_its_owners_last_release() {
    each("metal_every.m", &["memory"], |run| {
        let table = run.trace.table("device_memory");
        let of = |action: &str| bag(table.rows().filter(|r| r.text("action") == action).map(|r| r.int("bytes")));
        // A texture of 4,096 bytes takes a page of 16 KiB, as it says itself.
        let (heap, theirs, shared, managed, image, kept) = (1 << 20, 12_345, 11_111, 22_222, 16_384, 33_333);
        assert_eq!(of("alloc"), bag([heap, theirs, shared, managed, image, kept].into_iter()), "{}", run.who);
        // The heap gave out the buffer whose bytes nobody knows.
        assert_eq!(of("free"), bag([heap, theirs, shared, managed, image].into_iter()), "{}", run.who);
        let api = run.trace.table("api");
        assert_eq!(api.rows().filter(|row| row.text("class") == "free").count(), 1, "{}", run.who);
    });
}

#[test]
fn two_devices_are_told_apart() {
    each_with("metal_every.m", &["devices"], &[("FAKE_METAL_DEVICES", "2")], |run| {
        assert_command_buffers(run);
        let table = run.trace.table("command_buffers");
        let devices: Vec<_> =
            sorted(&table, "start_ns").iter().map(|row| (row.maybe_int("device"), row.int("dispatches"))).collect();
        assert_eq!(devices, [(Some(0), 1), (Some(1), 2)], "{}", run.who);
    });
}

#[test]
fn commits_of_metal_4_have_their_times_where_the_program_asks_for_none() {
    each("metal_every.m", &["metal4"], |run| {
        let table = run.trace.table("command_buffers");
        let seen: Vec<_> = sorted(&table, "start_ns")
            .iter()
            .map(|row| (row.int("command_buffers"), row.int("dispatches"), row.maybe_int("gpu_ns")))
            .collect();
        assert_eq!(seen.len(), 3, "{}: {seen:?}", run.who);
        for (nth, (buffers, dispatches, gpu_ns)) in seen.into_iter().enumerate() {
            assert_eq!((buffers, dispatches), (2, 2), "{}", run.who);
            let known = gpu_ns.map(|ns| (ns - 3_000_000).abs() <= ROUNDING_NS);
            assert_eq!(known, (nth < 2).then_some(true), "{}: {gpu_ns:?}", run.who);
        }
    });
}

#[test]
fn a_stream_of_mps_counts_the_command_buffers_underneath() {
    each("metal_every.m", &["mps"], |run| {
        assert_command_buffers(run);
        assert_eq!(run.trace.table("launches").len(), 6, "{}", run.who);
        assert_dispatches(run);
    });
}

#[test]
fn handlers_run_when_the_program_has_released_everything() {
    each("metal_odd.m", &["released"], |run| {
        assert_command_buffers(run);
        assert_eq!(run.truth("command_buffer").len(), 20, "{}", run.who);
    });
}

#[test]
fn commits_may_be_left_by_jumps_and_exceptions() {
    for way in ["jump", "throw"] {
        each("metal_odd.m", &[way], |run| {
            let commits = count(&run.process(), "commit");
            let whole = run.truth("command_buffer").len() as u64;
            assert_eq!((commits.recorded, commits.abandoned), (whole, 50), "{}", run.who);
            assert_command_buffers(run);
            // The program's own handler, and ours once.
            assert!(run.truth("command_buffer").iter().all(|line| int(line, "handlers") == 2), "{}", run.who);
        });
    }
    each("metal_odd.m", &["throw4"], |run| {
        let table = run.trace.table("command_buffers");
        let known: Vec<_> = table.rows().map(|row| row.maybe_int("gpu_ns").is_some()).collect();
        assert_eq!(known, [true; 3], "{}", run.who);
    });
}

#[test]
fn a_command_buffer_that_is_gone_when_its_commit_returns_is_not_asked_for_anything() {
    each("metal_odd.m", &["gone"], |run| {
        assert_command_buffers(run);
        let table = run.trace.table("command_buffers");
        assert!(table.rows().all(|row| row.int("labelled") == 1 && row.int("queue") != 0), "{}", run.who);
    });
}

#[test]
fn a_commit_allocates_nothing_but_what_metal_does_for_the_completion_handler() {
    each("metal_odd.m", &["allocations"], |run| {
        let counts: BTreeMap<_, _> =
            run.truth("allocations").iter().map(|line| (line["who"].to_string(), int(line, "count"))).collect();
        // 100 commits each; the simulated Metal's list of handlers grows by one.
        assert_eq!(counts["\"seen\""], counts["\"unseen\""] + 100, "{}", run.who);
    });
}

#[test]
fn a_commit_asks_its_command_buffer_for_nothing() {
    each("metal_odd.m", &["asks"], |run| {
        assert_eq!(run.run.text(), "asked 0\n".repeat(3) + "handled 3\n", "{}", run.who);
        assert_command_buffers(run);
    });
}

#[test]
fn through_a_layer_for_debugging_each_message_counts_once() {
    each_with("metal_training.m", &["12"], &[("FAKE_METAL_LAYER", "1")], |run| {
        assert_command_buffers(run);
        assert_dispatches(run);
        assert_memory(run);
        assert_eq!(run.trace.table("transfers").len(), run.truth("copy").len(), "{}", run.who);
        assert_eq!(run.waits("completed").len() as u64, count(&run.process(), "sync").recorded - 13, "{}", run.who);
    });
}

#[test]
fn another_ones_hooks_see_each_commit_once_before_and_after_ours() {
    for order in ["before", "after"] {
        each("metal_odd.m", &[order], assert_command_buffers);
    }
}

#[test]
fn a_device_that_vanishes_and_none_at_all_leave_the_program_as_it_is() {
    each("metal_odd.m", &["vanish"], |run| {
        let table = run.trace.table("command_buffers");
        let ends: Vec<_> = table.rows().map(|row| row.maybe_text("status")).collect();
        assert_eq!(ends, [Some("error")], "{}", run.who);
    });
    each_with("metal_odd.m", &["nothing"], &[("FAKE_METAL_DEVICES", "0")], |run| {
        assert_eq!(run.run.text(), "(nil) (nil)\nhandled 0\n", "{}", run.who);
        assert!(run.run.stderr.contains("too few Metal calls to judge"), "{}: {}", run.who, run.run.stderr);
    });
}

#[test]
fn what_is_paused_all_the_time_is_said_of_metal() {
    each_of("metal_training.m", &["2"], &[], &["--start-paused"], |run| {
        let said = "recording was off all the time, and no Metal call is known";
        assert!(run.run.stderr.contains(said), "{}: {}", run.who, run.run.stderr);
    });
}
