//! `gputrace check`: the exit code is the answer, and what was not measured does not pass. `gputrace diff`: what differs.

use std::fs;
use std::path::Path;

use crate::faults::one_line;
use crate::util::{Finished, Scratch, gputrace, program, shim};

/// A trace of the demo's loop, with steps.
fn demo(scratch: &Scratch, name: &str) {
    shim();
    scratch.target(gputrace()).args(["demo", "-o", name]).plain().expect(0);
}

fn check(scratch: &Scratch, arguments: &[&str]) -> Finished {
    scratch.gputrace(&[&["check"], arguments].concat())
}

#[test]
fn limits_hold_or_are_named_with_what_is_beyond_them() {
    let scratch = Scratch::new();
    demo(&scratch, "t");
    let run = check(&scratch, &["t", "--max", "summary.launches=60", "--min", "summary.steps=200"]).expect(0);
    assert_eq!((run.text().as_str(), run.stderr.as_str()), ("all 2 limits hold: t\n", ""));
    let run = check(&scratch, &["t", "--max", "summary.launches=48", "--max", "summary.waits=2"]).expect(1);
    let said = "exceeded      summary.launches: 60, at most 48: 12 (25 %) too much\n1 of 2 limits exceeded: t\n";
    assert_eq!((run.text().as_str(), run.stderr.as_str()), (said, ""));
    scratch.file("limits.toml", "[summary]\nlaunches = { max = 48, min = 1 }\nwaits.max = 2\n");
    let run = check(&scratch, &["t", "--limits", "limits.toml", "--junit", "out.xml"]).expect(1);
    assert!(run.text().contains("summary.launches: 60, at most 48"), "{}", run.text());
    let junit = fs::read_to_string(scratch.path().join("out.xml")).expect("the result");
    assert!(
        junit.contains("tests=\"3\" failures=\"1\" errors=\"0\"")
            && junit.contains("<failure message=\"60, at most 48")
    );
}

#[test]
fn a_trace_is_no_worse_than_itself_and_worse_than_a_better_one() {
    let scratch = Scratch::new();
    demo(&scratch, "t");
    // CI systems know a case by its name: what was measured is not in it.
    let before = ["t", "--against", "t", "--metric", "summary.launches", "--junit", "out.xml"];
    check(&scratch, &before).expect(0);
    let junit = fs::read_to_string(scratch.path().join("out.xml")).expect("the result");
    assert!(junit.contains("name=\"summary.launches as before\"") && !junit.contains("60"), "{junit}");
    // Nowhere to write to is not a limit that is exceeded, and what was found is told all the same.
    let nowhere = ["t", "--max", "summary.launches=60", "--junit", "no/such/folder.xml"];
    let run = check(&scratch, &nowhere).expect(2);
    assert!(run.text().starts_with("the limit holds"), "{}", run.text());
    one_line(&run.stderr, "cannot write the result to no/such/folder.xml");
    let run = check(&scratch, &["t", "--against", "t", "--tolerance", "0%"]).expect(0);
    assert!(run.text().contains(" limits hold: t"), "{}", run.text());
    // The whole run launches more than a part of it, which is worse for neither.
    let part = ["--from", "0", "--to", "0.3", "--min", "launch-overhead.launches=1"];
    check(&scratch, &[&["t"], &part[..]].concat()).expect(0);
    let routes = scratch.target(program("cuda_routes")).arg("dlopen").with_instant_driver().traced().expect(0).trace;
    let routes = routes.to_str().expect("a plain path");
    let run = check(&scratch, &[routes, "--against", "t", "--metric", "launch-overhead.launches"]).expect(1);
    assert!(run.text().contains("before, +- 5 % allowed"), "{}", run.text());
    // The other one has no steps: what it cannot answer and the base can does not pass.
    let run = check(&scratch, &[routes, "--against", "t", "--metric", "summary.step_p50_ns"]).expect(2);
    assert!(run.text().starts_with("not measured  summary.step_p50_ns"), "{}", run.text());
}

#[test]
fn what_only_one_of_two_traces_holds_is_named_and_is_no_failure_unless_it_was_asked_for() {
    let scratch = Scratch::new();
    demo(&scratch, "t");
    scratch.target(gputrace()).args(["demo", "-o", "host", "--gpu-time", "off"]).plain().expect(0);
    // Whatever the machine is busy with is allowed.
    let any = ["--tolerance", "100000%", "--floor", "100s", "--junit", "out.xml"];
    for traces in [["host", "--against", "t"], ["t", "--against", "host"]] {
        let run = check(&scratch, &[&traces[..], &any].concat()).expect(0);
        let said = run.text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("not compared summary.gpu_") && said.contains("has it; the other: no times of a GPU"),
            "{said}"
        );
        assert!(!said.contains("metal-baseline") && said.contains(" limits hold: "), "{said}");
        let junit = fs::read_to_string(scratch.path().join("out.xml")).expect("the result");
        assert!(junit.contains("errors=\"0\"") && junit.contains("<skipped message=\"only t has it"), "{junit}");
    }
    let named = ["host", "--against", "t", "--metric", "summary.gpu_idle_ns"];
    assert!(check(&scratch, &named).expect(2).text().starts_with("not measured  summary.gpu_idle_ns"));
}

#[test]
fn what_was_not_measured_does_not_pass() {
    let scratch = Scratch::new();
    let trace = scratch.target("true").options(["--malloc", "off"]).traced().expect(0).trace;
    let trace = trace.to_str().expect("a plain path");
    let asked = [
        "--max",
        "summary.launches=1",
        "--max",
        "launch-overhead.p99_ns=1s",
        "--max",
        "host-memory.peak_live_bytes=1T",
    ];
    let run = check(&scratch, &[&[trace], &asked[..], &["--junit", "out.xml"]].concat()).expect(2);
    for why in ["no steps were found", "No launches in this trace.", "--malloc off", "3 of 3 limits not measured"] {
        assert!(run.text().split_whitespace().collect::<Vec<_>>().join(" ").contains(why), "{why}: {}", run.text());
    }
    let junit = fs::read_to_string(scratch.path().join("out.xml")).expect("the result");
    assert!(junit.contains("failures=\"0\" errors=\"3\""), "{junit}");
}

#[test]
fn a_broken_trace_does_not_pass() {
    let scratch = Scratch::new();
    let run = scratch.target(program("cuda_routes")).arg("dlopen").with_instant_driver().traced().expect(0);
    let trace = run.trace.to_str().expect("a plain path");
    let asked = ["--max", "launch-overhead.launches=1000000"];
    check(&scratch, &[&[trace], &asked[..]].concat()).expect(0);
    let file = run.read().files("launches").remove(0);
    let bytes = fs::read(&file).expect("a file");
    fs::write(&file, &bytes[..bytes.len() / 2]).expect("our own file");
    let run = check(&scratch, &[&[trace], &asked[..]].concat()).expect(2);
    assert!(run.text().starts_with("not measured  launch-overhead.launches"), "{}", run.text());
    one_line(&run.stderr, "the check is not whole");
    // A table whose files are gone is as bad, be it one that no count of calls knows.
    fs::write(&file, &bytes).expect("our own file");
    check(&scratch, &[&[trace], &asked[..]].concat()).expect(0);
    for table in ["names", "rollups", "threads", "processes"] {
        let (there, aside) = (Path::new(trace).join(table), Path::new(trace).join("aside"));
        fs::rename(&there, &aside).expect("our own folder");
        let run = check(&scratch, &[&[trace], &asked[..]].concat()).expect(2);
        one_line(&run.stderr, &format!("{table}: none of its rows"));
        let report = scratch.gputrace(&["report", trace, "--only", "self,summary"]).expect(1);
        assert!(report.text().contains("UNKNOWN: parts of the trace could not be read"), "{}", report.text());
        fs::rename(&aside, &there).expect("our own folder");
    }
    for (name, says) in [("missing", "no trace at"), ("file", "is not a trace")] {
        scratch.file("file", "no trace");
        let run = check(&scratch, &[&[name], &asked[..]].concat()).expect(2);
        one_line(&run.stderr, says);
        assert_eq!(run.text(), "");
    }
}

#[test]
fn wrong_calls_get_one_line_that_says_what_to_do() {
    let scratch = Scratch::new();
    let wrong = |arguments: &[&str], says: &str| {
        let run = check(&scratch, arguments).expect(2);
        one_line(&run.stderr, says);
        assert_eq!(run.text(), "");
    };
    wrong(&["t", "--max", "summary.launch=1"], "the nearest are summary.launches");
    wrong(&["t", "--max", "summary.step_p50_ns=fast"], "such as 2ms");
    wrong(&["t", "--max", "summary.launches"], "expected METRIC=VALUE");
    wrong(&["t"], "no limit given");
    wrong(&["--max", "summary.launches=1"], "no trace given");
    wrong(&["t", "--limits", "no-such.toml"], "no-such.toml");
    wrong(&["t", "--tolerance", "5"], "--against");
    scratch.file("bad.toml", "summary.launches = {");
    wrong(&["t", "--limits", "bad.toml"], "bad.toml");
    scratch.file("most.toml", "summary.launches.most = 1");
    wrong(&["t", "--limits", "most.toml"], "max, min and tolerance");
    scratch.file("out.xml", "<testsuites tests=\"1\" errors=\"0\"/>");
    wrong(&["t", "--max", "summary.launch=1", "--junit", "out.xml"], "the nearest are summary.launches");
    let junit = fs::read_to_string(scratch.path().join("out.xml")).expect("the result");
    assert!(junit.contains("errors=\"1\"") && junit.contains("no such metric"), "CI shows it: {junit}");
    let list = check(&scratch, &["--list"]).expect(0).text();
    for name in ["summary.step_p50_ns", "summary.launches", "summary.waits", "device-memory.peak_bytes"] {
        assert!(list.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
    }
}

#[test]
fn a_comparison_names_what_differs_and_is_the_same_every_time() {
    let scratch = Scratch::new();
    demo(&scratch, "t");
    let same = scratch.gputrace(&["diff", "t", "t"]).expect(0).text();
    assert!(same.ends_with("\nno difference beyond spread\n"), "{same}");
    let routes = scratch.target(program("cuda_routes")).arg("dlopen").with_instant_driver().traced().expect(0).trace;
    let routes = routes.to_str().expect("a plain path");
    for format in ["text", "json", "markdown"] {
        let again = || scratch.gputrace(&["diff", "t", routes, "--format", format]).expect(0).text();
        assert_eq!(again(), again(), "{format}");
    }
    let text = scratch.gputrace(&["diff", "t", routes]).expect(0).text();
    assert!(text.contains("not the same: command (") && text.contains("no steps"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let only = scratch.gputrace(&["diff", "t", routes, "--only", "syncs"]).expect(0).text();
    assert!(only.contains("\nSynchronisation\n") && !only.contains("Launch overhead"), "{only}");
    let narrow = scratch.gputrace(&["diff", "t", routes, "--width", "80"]).expect(0).text();
    assert!(narrow != text && narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    one_line(&scratch.gputrace(&["diff", "t", "t", "--width", "79"]).expect(2).stderr, "80..=1000");
    one_line(&scratch.gputrace(&["diff", "t", "t", "--only", "lunches"]).expect(2).stderr, "lunches: no such part");
    one_line(&scratch.gputrace(&["diff", "t"]).expect(2).stderr, "AFTER");
    one_line(&scratch.gputrace(&["diff", "t", "missing"]).expect(1).stderr, "no trace at missing");
}
