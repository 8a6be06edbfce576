//! The hang watch: what hangs is reported once, with where and with whom; what goes on is not; and the program runs on.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::Hang;

use crate::stacks::pythons;
use crate::util::{
    Driver, Finished, Scratch, Target, driver_folder, linked_with_library, nccl_folder, needs, odd_driver_folder, poll,
    program_with, repository,
};

const LONG: Duration = Duration::from_secs(120);
const HALF: [&str; 2] = ["--hang-after", "0.5"];

/// Hangs of the trace so far.
fn hangs(trace: &Path) -> Vec<Hang> {
    let files = fs::read_dir(trace.join("manifest")).into_iter().flatten().flatten().map(|entry| entry.path());
    let manifests =
        files.filter(|file| file.extension().is_some_and(|e| e == "json")).map(|file| Manifest::read(&file));
    manifests.flat_map(|manifest| manifest.map(|manifest| manifest.hangs).unwrap_or_default()).collect()
}

/// Waits until so many hangs were looked at.
#[track_caller]
fn reported(trace: &Path, count: usize) -> Vec<Hang> {
    let all = || Some(hangs(trace)).filter(|all| all.iter().filter(|hang| hang.report.is_some()).count() >= count);
    poll(LONG, all).unwrap_or_else(|| panic!("{count} hangs were to be reported: {:?}", hangs(trace)))
}

/// Lines of gputrace about hangs.
fn said(run: &Finished) -> Vec<&str> {
    run.stderr.lines().filter(|line| line.starts_with("gputrace: process ") && line.contains(" hangs: ")).collect()
}

/// A program of C that links the odd driver.
fn program<'a>(scratch: &'a Scratch, way: &str, until: &Path) -> Target<'a> {
    let flags = linked_with_library("libcuda.so.1", &odd_driver_folder(), &["-lpthread", "-O2"]);
    let target = scratch.target(program_with("cuda_hangs", "linked", &flags)).arg(way);
    target.with_odd_driver().env("ODD_DRIVER_UNTIL", until)
}

#[test]
fn a_wait_that_does_not_end_is_reported_once_with_line_and_stack_of_every_python_and_the_program_runs_on() {
    for python in pythons() {
        let scratch = Scratch::new();
        let until = scratch.path().join("until");
        let script = repository().join("tests/programs/hangs.py");
        let target = scratch.target(&python).arg(&script).with_odd_driver().env("ODD_DRIVER_UNTIL", &until);
        let started = target.options(HALF).start();
        let hang = reported(&started.trace, 1).remove(0);
        let who = python.display();
        assert_eq!(
            (hang.call.as_str(), hang.stream, hang.ended_ns),
            ("cuStreamSynchronize", Some(0x2a0), None),
            "{who}"
        );
        let source = fs::read_to_string(&script).expect("the script");
        let number = source.lines().position(|line| line.contains("the line that hangs")).expect("the line") + 1;
        let line = format!("{}:{number} step", script.display());
        assert_eq!(hang.line.as_deref(), Some(line.as_str()), "{who}: {hang:?}");
        let functions: Vec<_> = hang.stack.iter().map(|frame| frame.rsplit(' ').next().unwrap_or_default()).collect();
        assert_eq!(functions, ["step", "train", "<module>"], "{who}");
        let report =
            fs::read_to_string(started.trace.join(hang.report.as_ref().expect("a report"))).expect("it is there");
        assert!(report.contains("been in cuStreamSynchronize of stream 0x2a0 for "), "{who}: {report}");
        // The other thread has no row: it never called the driver.
        let idle =
            report.split("  thread ").find(|part| part.contains(" idle\n")).unwrap_or_else(|| panic!("{report}"));
        assert!(idle.contains("sleeping") && idle.contains("in futex"), "{who}: {idle}");
        fs::write(&until, "").expect("writable");
        let run = started.wait().expect(0);
        assert_eq!(run.text(), "before\nafter\n", "{who}");
        let lines = said(&run);
        assert_eq!(lines.len(), 1, "{who}: {}", run.stderr);
        assert!(run.stderr.contains(&format!("gputrace:   at {line} < ")), "{who}: {}", run.stderr);
        let [hang] = &hangs(&run.trace)[..] else { panic!("one hang") };
        assert!(hang.returned && hang.took_ns(0) >= 500_000_000, "{who}: {hang:?}");
    }
}

#[test]
fn a_process_that_nobody_may_look_into_is_told_by_what_it_said_before() {
    if !needs(&["python3", "setpriv"]) {
        return;
    }
    let scratch = Scratch::new();
    let (until, trace) = (scratch.path().join("until"), scratch.new_trace());
    let command = scratch.target("python3").arg(repository().join("tests/programs/hangs_shut.py")).with_odd_driver();
    let command = command.env("ODD_DRIVER_UNTIL", &until).options(HALF).traced_command(&trace);
    // The superuser may look into everything, unless it gives that up.
    // SAFETY: geteuid has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut outer = Command::new(if is_root { "setpriv" } else { "env" });
    outer.args(is_root.then_some(["--bounding-set", "-sys_ptrace"]).into_iter().flatten());
    outer.arg(command.get_program()).args(command.get_args()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    let child = outer.spawn().expect("it starts");
    let hang = reported(&trace, 1).remove(0);
    fs::write(&until, "").expect("writable");
    let output = child.wait_with_output().expect("our child");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"after\n", "{stderr}");
    assert!(hang.earlier && hang.line.as_ref().is_some_and(|line| line.ends_with(" earlier")), "{hang:?}");
    assert!(stderr.contains("gputrace:   last seen at "), "{stderr}");
    let report = fs::read_to_string(trace.join(hang.report.as_ref().expect("a report"))).expect("it is there");
    assert!(report.contains("frames are missing: its memory ") && report.contains("cannot be read"), "{report}");
    assert!(report.contains("the last stack that was taken of it:\n"), "{report}");
}

#[test]
fn a_wait_whose_stream_gets_work_is_no_hang_while_another_process_hangs() {
    let scratch = Scratch::new();
    let until = scratch.path().join("until");
    let started = program(&scratch, "steady", &until).options(["--hang-after", "2"]).start();
    let [hang] = &reported(&started.trace, 1)[..] else { panic!("one hang") };
    // The parent has waited for longer than its child, and is not reported.
    assert_eq!(hang.call, "cuCtxSynchronize");
    fs::write(&until, "").expect("writable");
    let run = started.wait().expect(0);
    assert_eq!((run.text().as_str(), said(&run).len()), ("begun\nok\n", 1), "{}", run.stderr);
}

#[test]
fn one_long_wait_for_many_kernels_is_no_hang_where_it_is_known_that_they_run() {
    let scratch = Scratch::new();
    let flags = linked_with_library("libcuda.so.1", &driver_folder(Driver::Plain), &[]);
    let target = scratch.target(program_with("cuda_long", "linked", &flags)).arg("40").with_driver(Driver::Plain);
    let target = target.options(["--hang-after", "2"]);
    // They take four seconds. Without a word of the GPU nobody can know that it works.
    let run = target.traced().expect(0);
    let [hang] = &hangs(&run.trace)[..] else { panic!("one hang: {}", run.stderr) };
    assert_eq!((hang.call.as_str(), hang.stream), ("cuStreamSynchronize", Some(1)));
    let run = target.options(["--gpu-time", "full"]).traced().expect(0);
    assert_eq!((hangs(&run.trace), said(&run).len()), (Vec::new(), 0), "{}", run.stderr);
}

#[test]
fn zero_means_never() {
    let scratch = Scratch::new();
    let until = scratch.path().join("until");
    let run = program(&scratch, "short", &until).options(["--hang-after", "0"]).traced().expect(0);
    assert_eq!((hangs(&run.trace), said(&run).len()), (Vec::new(), 0), "{}", run.stderr);
    // The same is a hang where a moment is one.
    let run = program(&scratch, "short", &until).options(["--hang-after", "0.1"]).traced().expect(0);
    assert!(matches!(&hangs(&run.trace)[..], [hang] if hang.returned), "{:?}", hangs(&run.trace));
}

#[test]
fn a_hang_is_a_moment_that_the_flight_recorder_keeps() {
    let scratch = Scratch::new();
    let until = scratch.path().join("until");
    let options = ["--flight-recorder", "30", "--hang-after", "0.1"];
    let run = program(&scratch, "short", &until).options(options).traced().expect(0);
    let [hang] = &hangs(&run.trace)[..] else { panic!("one hang: {:?}", hangs(&run.trace)) };
    let kept = run.read().manifest().detail.expect("a recorder").intervals;
    let why = format!("process {} hangs in {}", hang.pid, hang.call);
    assert!(kept.len() == 1 && kept[0].why == why && kept[0].from_ns <= hang.start_ns, "{kept:?}");
    run.read().assert_balanced();
}

#[test]
fn a_process_that_is_killed_in_its_hang_is_told_as_such() {
    let scratch = Scratch::new();
    let until = scratch.path().join("until");
    let started = program(&scratch, "killed", &until).options(HALF).start();
    let hang = reported(&started.trace, 1).remove(0);
    // Without Python its native frames are read, as far as the tables of unwinding lead.
    let place = |name: &str| hang.stack.iter().position(|frame| frame.split(' ').any(|word| word == name));
    assert!(place("for_ever").is_some() && place("for_ever") < place("main") && !hang.earlier, "{hang:?}");
    assert!(hang.stack.iter().all(|frame| !frame.contains("shim")), "ours are left out: {hang:?}");
    // SAFETY: the program that this test started, which hangs.
    assert_eq!(unsafe { libc::kill(hang.pid, libc::SIGKILL) }, 0);
    let run = started.wait().expect(137);
    let [hang] = &hangs(&run.trace)[..] else { panic!("one hang") };
    assert!(hang.ended_ns.is_some() && !hang.returned, "{hang:?}");
    let summary = run.whole_lines();
    assert!(
        summary.contains("cuCtxSynchronize hung for ") && summary.contains(", until its process ended"),
        "{summary}"
    );
}

#[test]
fn a_rank_that_does_not_come_to_a_collective_is_named() {
    let scratch = Scratch::new();
    let until = scratch.path().join("until");
    let flags = linked_with_library("libnccl.so.2", &nccl_folder(), &[]);
    let target = scratch.target(program_with("nccl_late", "linked", &flags)).arg(&until);
    let target = target.env("LD_LIBRARY_PATH", nccl_folder()).env("TMPDIR", scratch.path());
    let started = target.options(HALF).start();
    let hang = reported(&started.trace, 1).remove(0);
    assert_eq!((hang.call.as_str(), hang.rank), ("ncclAllReduce", Some(0)));
    assert_eq!(hang.missing.len(), 1, "{hang:?}");
    let missing = &hang.missing[0];
    assert!(missing.starts_with("rank 1 (process "), "{missing}");
    assert!(
        missing.ends_with("has not entered collective 3, ncclAllReduce, in which rank 0 is: it has entered 2"),
        "{missing}"
    );
    fs::write(&until, "").expect("writable");
    let run = started.wait().expect(0);
    assert_eq!((run.text().as_str(), said(&run).len()), ("ok\n", 1), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("gputrace:   {missing}\n")), "{}", run.stderr);
}
