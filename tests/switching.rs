//! Recording that is switched on and off: by the program's profiler calls, and from outside.

use std::path::Path;
use std::time::Duration;

use gputrace_collectors::manifest::Interval;
use serde_json::Value;

use crate::limits::with_mounts;
use crate::recovering::{heir_of, holds, is_complete};
use crate::util::{
    Driver, Scratch, Target, Trace, count, driver_folder, linked_with_library, poll, program, program_with,
};

pub(crate) fn switched<'a>(scratch: &'a Scratch, scenario: &str) -> Target<'a> {
    let flags = linked_with_library("libcuda.so.1", &driver_folder(Driver::Plain), &["-l:libcuda.so.1"]);
    let target = scratch.target(program_with("switched", "linked", &flags)).arg(scenario);
    target.with_driver(Driver::Plain).options(["--malloc", "off"])
}

pub(crate) fn intervals(trace: &Trace) -> Vec<Interval> {
    let detail = trace.manifest().detail.expect("recording was off for a while");
    assert_eq!(detail.mode, "switched");
    detail.intervals
}

/// Grids of all launches, in their order, each run of equal ones once.
pub(crate) fn grids(trace: &Trace) -> Vec<(i64, usize)> {
    let mut runs: Vec<(i64, usize)> = Vec::new();
    for row in trace.table("launches").rows() {
        match runs.last_mut() {
            Some((grid, count)) if *grid == row.int("grid_x") => *count += 1,
            _ => runs.push((row.int("grid_x"), 1)),
        }
    }
    runs
}

#[test]
fn what_lies_between_the_profilers_calls_is_recorded_and_nothing_else() {
    let scratch = Scratch::new();
    let run = switched(&scratch, "profiler").options(["--capture-range", "cudaProfilerApi"]).same();
    let trace = run.read();
    trace.assert_balanced();
    assert_eq!(grids(&trace), [(50, 50), (25, 25)]);
    let intervals = intervals(&trace);
    let inside = |at: i64| intervals.iter().any(|interval| (interval.from_ns..interval.to_ns).contains(&at));
    let launches = trace.table("launches");
    assert!(launches.rows().all(|row| inside(row.int("start_ns"))), "{intervals:?}");
    // Kernels have their names though their module was loaded before.
    let names = trace.names();
    assert!(launches.rows().all(|row| names[&row.int("name_id")] == "spin_us_40"));
    let path = run.trace.to_string_lossy().into_owned();
    let report = scratch.gputrace(&["report", &path, "--only", "launch-overhead", "--format", "json"]).expect(0).text();
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let said = report["analyses"]["launch-overhead"]["facts"]["launches"].as_i64().expect("launches");
    assert_eq!((said, intervals.len()), (25, 2), "{intervals:?}");
}

#[test]
fn a_run_in_which_recording_was_never_on_says_so() {
    let scratch = Scratch::new();
    let run = switched(&scratch, "profiler").options(["--start-paused"]).traced().expect(0);
    assert!(run.stderr.contains("UNKNOWN: recording was off all the time"), "{}", run.stderr);
    assert!(intervals(&run.read()).is_empty());
    // What was not measured does not pass.
    let path = run.trace.to_string_lossy().into_owned();
    let check = scratch.gputrace(&["check", &path, "--max", "syncs.waits=0", "--max", "api.failed=0"]).expect(2).text();
    assert!(check.contains("no single event was kept") && check.contains("2 of 2 limits not measured"), "{check}");
}

#[test]
fn without_being_asked_the_profilers_calls_change_nothing() {
    let scratch = Scratch::new();
    let trace = switched(&scratch, "profiler").same().read();
    assert_eq!(grids(&trace), [(100, 100), (50, 50), (100, 100), (25, 25), (10, 10)]);
    assert_eq!(trace.manifest().detail, None);
}

pub(crate) fn made(file: &Path) -> Option<i64> {
    Some(i64::from_le_bytes(std::fs::read(file).ok()?.get(..8)?.try_into().ok()?))
}

/// Launches that the trace has so far.
fn recorded(trace: &Path) -> Option<u64> {
    let manifests = trace.join("manifest").is_dir().then(|| Trace::open(trace).manifests())?;
    let processes = manifests.iter().flat_map(|manifest| &manifest.processes);
    Some(processes.map(|process| count(process, "launch").seen).sum())
}

#[test]
fn a_session_is_switched_on_and_off_while_it_runs() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let scratch = Scratch::new();
    let file = scratch.path().join("made");
    let started = switched(&scratch, "loop").arg(&file).options(["--start-paused"]).start();
    let trace = started.trace.clone();
    let until_made = |more: i64| {
        let from = made(&file).unwrap_or(0);
        poll(PATIENCE, || made(&file).filter(|now| *now >= from + more)).expect("the program goes on")
    };
    let session = started.pid().to_string();
    let tell = |word: &str| {
        let told = scratch.gputrace(&[word, &session]).expect(0).text();
        assert_eq!(Path::new(told.trim_end()), trace.canonicalize().expect("the trace"), "{word}");
    };
    until_made(500);
    let early = made(&file).expect("a count");
    tell("start");
    poll(PATIENCE, || recorded(&trace).filter(|seen| *seen >= 200)).expect("launches are recorded");
    tell("stop");
    let stopped = made(&file).expect("a count");
    until_made(3000);
    let paused = made(&file).expect("a count");
    tell("start");
    until_made(300);
    std::fs::write(file.with_extension("stop"), "").expect("a file");
    let run = started.wait().expect(0);
    let all = made(&file).expect("a count") as u64;
    let trace = run.read();
    trace.assert_balanced();
    let seen = count(&trace.root(), "launch").seen;
    // A thread that records sees that it is to stop when a call takes longer, or 511 events later.
    let most = (stopped - early) as u64 + 600 + all - paused as u64 + 10;
    assert!((500..=most).contains(&seen), "{seen} of {all}: not before {early}, until {stopped}, from {paused}");
    let intervals = intervals(&trace);
    assert_eq!(intervals.len(), 2, "{intervals:?}");
    let starts: Vec<i64> = trace.table("launches").rows().map(|row| row.int("start_ns")).collect();
    let inside =
        |interval: &Interval| starts.iter().filter(|at| (interval.from_ns..interval.to_ns).contains(at)).count();
    assert!(inside(&intervals[0]) >= 200 && inside(&intervals[1]) >= 290, "{intervals:?}");
}

#[test]
fn a_dump_over_time_in_which_recording_was_off_is_of_the_parts_in_which_it_was_on() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let scratch = Scratch::new();
    let file = scratch.path().join("made");
    let started = switched(&scratch, "loop").arg(&file).options(["--flight-recorder", "60"]).start();
    let session = started.pid().to_string();
    let tell = |word: &str| drop(scratch.gputrace(&[word, &session]).expect(0));
    let until_made = |more: i64| {
        let from = made(&file).unwrap_or(0);
        poll(PATIENCE, || made(&file).filter(|now| *now >= from + more)).expect("the program goes on")
    };
    until_made(700);
    tell("stop");
    until_made(2000);
    tell("start");
    until_made(700);
    tell("dump");
    std::fs::write(file.with_extension("stop"), "").expect("a file");
    let run = started.wait().expect(0);
    run.read().assert_balanced();
    let text = run.whole_lines();
    assert!(text.contains("single events kept: 2 intervals in which recording was on; "), "{text}");
    for part in 1..=2 {
        assert!(text.contains(&format!("gputrace dump, part {part} of 2 in which recording was on")), "{text}");
    }
    // A report is of the last one: the pause is no time of the program's.
    let trace = run.trace.to_string_lossy().into_owned();
    let found = scratch.gputrace(&["report", &trace, "--only", "launch-overhead", "--format", "json"]).expect(0).text();
    assert!(found.contains("this is number 2, the last one"), "{found}");
}

#[test]
fn limits_of_a_session_are_set_while_it_runs_all_or_none() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let scratch = Scratch::new();
    let file = scratch.path().join("made");
    let started = switched(&scratch, "loop").arg(&file).start();
    let trace = started.trace.clone();
    let session = started.pid().to_string();
    poll(PATIENCE, || made(&file).filter(|now| *now >= 100)).expect("the program goes on");
    let set = |words: &[&str]| scratch.gputrace(&[&["set", &session], words].concat());
    let refused = |words: &[&str], code: i32, says: &str| {
        let told = set(words).expect(code);
        assert!(told.stderr.contains(says), "{words:?}: {}", told.stderr);
    };
    refused(&["budget=1"], 2, "what may be set is dump-gpu-idle");
    refused(&[], 2, "expected KEY=VALUE");
    refused(&["hang-after=1h", "dump-slow=10"], 1, "it has no flight recorder");
    refused(&["keep-detail=2d", "max-age=1d"], 1, "keep-detail must be shorter");
    let told = set(&["keep-detail=1s", "hang-after=2m"]).expect(0).text();
    assert_eq!(Path::new(told.trim_end()), trace.canonicalize().expect("the trace"));
    refused(&["max-age=1s"], 1, "keep-detail must be shorter");
    // The limit holds for a trace that had none: its first files go.
    let gone = || {
        let manifests = trace.join("manifest").is_dir().then(|| Trace::open(&trace).manifests())?;
        manifests[0].removed.iter().find(|of| of.limit == "--keep-detail" && of.table == "launches").map(|of| of.rows)
    };
    assert!(poll(PATIENCE, gone).is_some_and(|rows| rows > 0));
    std::fs::write(file.with_extension("stop"), "").expect("a file");
    let run = started.wait().expect(0);
    let notes = run.read().manifest().notes;
    let set: Vec<&String> = notes.iter().filter(|note| note.starts_with("gputrace set ")).collect();
    assert!(set.len() == 1 && set[0].starts_with("gputrace set keep-detail=1 hang-after=120 after "), "{notes:?}");
}

/// One run that is switched on, perhaps off again, and then loses its gputrace: its intervals, and its trace.
fn killed(scratch: &Scratch, stop: bool) -> (Vec<Interval>, Trace) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let file = scratch.path().join(if stop { "stopped" } else { "made" });
    let mut started = switched(scratch, "loop").arg(&file).options(["--start-paused"]).start_to_be_killed();
    let until_made = |more: i64| {
        let from = made(&file).unwrap_or(0);
        poll(PATIENCE, || made(&file).filter(|now| *now >= from + more)).expect("the program goes on")
    };
    let session = started.pid().to_string();
    until_made(500);
    scratch.gputrace(&["start", &session]).expect(0);
    poll(PATIENCE, || recorded(&started.trace).filter(|seen| *seen >= 200)).expect("launches are recorded");
    if stop {
        scratch.gputrace(&["stop", &session]).expect(0);
    }
    holds(heir_of(&started), 1);
    started.kill();
    let going_on = || Trace::open(&started.trace).manifest().recovered;
    poll(PATIENCE, going_on).expect("the heir goes on");
    until_made(300);
    std::fs::write(file.with_extension("stop"), "").expect("a file");
    poll(PATIENCE, || is_complete(&started.trace).then_some(())).expect("the heir seals the trace");
    let trace = Trace::open(&started.trace);
    trace.assert_balanced();
    (intervals(&trace), trace)
}

#[test]
fn what_was_recorded_is_on_the_disk_when_stop_says_so_and_an_heir_knows_of_when() {
    let scratch = Scratch::new();
    let (intervals, trace) = killed(&scratch, true);
    let account = count(&trace.root(), "launch");
    // A thread sees that it is to stop up to 511 events later: what came after the answer may be lost.
    assert!(account.recorded >= 200 && account.dropped <= 511, "{account:?}");
    assert_eq!(intervals.len(), 1, "{intervals:?}");
    let killed_ns = trace.manifest().recovered.expect("it was").killed_ns;
    assert!(intervals[0].to_ns <= killed_ns, "{intervals:?}, killed at {killed_ns}");
    let (intervals, trace) = killed(&scratch, false);
    assert_eq!(intervals.len(), 1, "it went on: {intervals:?}");
    let launches = trace.table("launches");
    let last = launches.rows().map(|row| row.int("start_ns")).max().expect("launches");
    let first = launches.rows().map(|row| row.int("start_ns")).min().expect("launches");
    let killed_ns = trace.manifest().recovered.expect("it was").killed_ns;
    assert!(last > killed_ns && last < intervals[0].to_ns, "{intervals:?}, the last at {last}");
    // Not from the process's start on: that was paused for 500 launches.
    let of_process = trace.table("processes").rows().map(|row| row.int("start_ns")).max().expect("a process");
    assert!(intervals[0].from_ns <= first && intervals[0].from_ns > of_process, "{intervals:?}, the first at {first}");
}

#[test]
fn an_administrators_file_that_comes_during_the_run_ends_recording_and_not_the_program() {
    let scratch = Scratch::new();
    let (file, trace) = (scratch.path().join("count"), scratch.new_trace());
    crate::util::shim();
    let gputrace = crate::util::gputrace();
    // The program runs until the collector has said that recording is off, and for 2,000 launches more.
    let script = format!(
        "mount -t tmpfs none /etc && {gputrace} -o {trace} -- {victim} {file} 1000000 500 2>{said} &
        own=$!
        until test -e {file} && test $(od -An -tu8 -N8 {file}) -gt 300; do sleep 0.05; done
        mkdir /etc/gputrace && : >/etc/gputrace/disable
        until grep -q 'recording is off' {said}; do sleep 0.05; done
        most=$(($(od -An -tu8 -N8 {file}) + 2000))
        until test $(od -An -tu8 -N8 {file}) -gt $most; do sleep 0.05; done
        {gputrace} start {trace} 2>{said}.start; echo start $?
        kill $own; wait $own; echo ended $?",
        gputrace = gputrace.display(),
        trace = trace.display(),
        victim = program("victim").display(),
        file = file.display(),
        said = scratch.path().join("said").display(),
    );
    let Some(target) = with_mounts(&scratch, &script) else { return };
    let run = target.with_instant_driver().plain();
    let said = std::fs::read_to_string(scratch.path().join("said")).expect("a file");
    let refused = std::fs::read_to_string(scratch.path().join("said.start")).expect("a file");
    assert_eq!(run.text(), "start 1\nended 143\n", "{said} {refused}");
    assert!(refused.contains("an administrator switched recording off"), "{refused}");
    let trace = Trace::open(&trace);
    trace.assert_balanced();
    let (seen, all) = (count(&trace.root(), "launch").seen, made(&file).expect("a count") as u64);
    // A thread that records sees that it is to stop up to 511 events later.
    assert!(seen >= 300 && seen + 1400 < all, "{seen} of {all}");
    assert_eq!(intervals(&trace).len(), 1);
}
