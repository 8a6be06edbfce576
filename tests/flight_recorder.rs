//! Single events that are kept only around moments worth it, or in windows: what is on the disk, what the account says, and
//! what a report takes the time in between for.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gputrace_collectors::manifest::{Interval, KeptDetail};

use crate::util::{Driver, Scratch, Started, Target, Trace, driver_folder, gputrace, nvml_folder, poll, program};

/// What the trace of the only launcher says of its single events.
fn kept(trace: &Trace) -> KeptDetail {
    trace.manifest().detail.expect("not all is kept")
}

/// Where the calls of all classes went: seen, recorded, left out.
fn sums(trace: &Trace) -> [u64; 3] {
    let counts = trace.root().accounting.into_values();
    counts.fold([0; 3], |sum, c| [sum[0] + c.seen, sum[1] + c.recorded, sum[2] + c.left_out])
}

/// When the rows of tables of single events began.
fn starts(trace: &Trace) -> Vec<i64> {
    let tables = ["launches", "syncs", "transfers", "device_memory", "api", "os_waits", "host_memory"];
    tables.iter().flat_map(|t| trace.table(t).rows().map(|row| row.int("start_ns")).collect::<Vec<_>>()).collect()
}

/// Each row began in one of the intervals.
#[track_caller]
fn assert_inside(trace: &Trace, intervals: &[Interval]) {
    let outside = |at: &i64| !intervals.iter().any(|i| (i.from_ns..i.to_ns).contains(at));
    assert_eq!(starts(trace).iter().filter(|at| outside(at)).count(), 0, "{intervals:?}");
}

fn incident<'a>(scratch: &'a Scratch, words: &[&str], options: &[&str]) -> Target<'a> {
    scratch.target(program("incident")).args(words).with_driver(Driver::Plain).options(options)
}

fn json(scratch: &Scratch, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&scratch.gputrace(arguments).expect(0).text()).expect("JSON")
}

#[test]
fn an_error_of_the_driver_keeps_what_came_before_it_with_the_call_itself() {
    let scratch = Scratch::new();
    let run = incident(&scratch, &["2500", "error", "1500"], &["--flight-recorder", "1"]).traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let detail = kept(&trace);
    let [interval] = detail.intervals.as_slice() else { panic!("{detail:?}") };
    assert!(
        interval.why.starts_with("cuMemAlloc_v2 returned 2 (CUDA_ERROR_OUT_OF_MEMORY) in process "),
        "{interval:?}"
    );
    assert_inside(&trace, &detail.intervals);
    let failed: Vec<i64> = trace.table("device_memory").rows().map(|row| row.int("result")).collect();
    assert_eq!(failed, [2]);
    // A second before it and one after it; the program ran longer, before and after.
    assert_eq!(interval.to_ns - interval.from_ns - 2_000_000_000, 0);
    let launches: Vec<i64> = trace.table("launches").rows().map(|row| row.int("start_ns")).collect();
    assert!(launches.len() > 100 && launches.len() < 4000, "{}", launches.len());
    let [seen, recorded, left_out] = sums(&trace);
    assert!(left_out > 0 && recorded > 0 && seen >= recorded + left_out, "{seen} {recorded} {left_out}");
    scratch.gputrace(&["report", &run.trace.to_string_lossy()]).expect(0);
    let text = run.whole_lines();
    assert!(text.contains("single events kept: 1 dump; ") && text.contains("cuMemAlloc_v2 returned 2"), "{text}");
}

#[test]
fn a_wait_far_longer_than_usual_keeps_itself_and_what_it_waited_for() {
    let scratch = Scratch::new();
    let options = ["--flight-recorder", "1", "--dump-slow", "3"];
    let run = incident(&scratch, &["1000", "slow", "10"], &options).traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let detail = kept(&trace);
    // A machine that is busy elsewhere may have had others.
    let slow = |why: &str| why.contains("cuCtxSynchronize took ") && why.contains(" us are usual");
    assert!(detail.intervals.iter().any(|interval| slow(&interval.why)), "{detail:?}");
    assert_inside(&trace, &detail.intervals);
    let longest = trace.table("syncs").rows().map(|row| row.int("api_ns")).max().expect("waits");
    let burst = trace.table("launches").rows().filter(|row| row.int("block_x") == 32).count();
    assert!(longest > 200_000_000 && burst == 5000, "{longest} ns, {burst} launches");
}

/// A program that has the device until NVML has been read so often, ten times a second.
fn nvml<'a>(scratch: &'a Scratch, readings: &str, options: &[&str]) -> Target<'a> {
    let read = scratch.path().join("read");
    let libraries = [driver_folder(Driver::Plain), nvml_folder()].map(|folder| folder.display().to_string()).join(":");
    let target =
        scratch.target(program("cuda_until")).arg(&read).options(["--counters", "10", "--flight-recorder", "60"]);
    let target = target.options(options).env("LD_LIBRARY_PATH", libraries).env("FAKE_NVML_READ", read);
    target.env("FAKE_NVML_READINGS", readings)
}

/// Why intervals were kept, in order.
fn whys(trace: &Trace) -> Vec<String> {
    kept(trace).intervals.into_iter().map(|interval| interval.why).collect()
}

#[test]
fn a_critical_xid_error_and_a_gpu_that_idles_after_it_was_busy_are_moments() {
    const DEVICE: &str = "GPU-66616b65-2d63-7564-612d-6770752d3030";
    let scratch = Scratch::new();
    let run = nvml(&scratch, "4", &[]).env("FAKE_NVML_XID", "79").traced().expect(0);
    assert_eq!(whys(&run.read()), [format!("Xid 79 on {DEVICE}")]);
    let scratch = Scratch::new();
    let idle = |options: &[&str]| {
        let target = nvml(&scratch, "9", options).env("FAKE_NVML_WORK", "idle").env("FAKE_NVML_BUSY", "2");
        whys(&target.traced().expect(0).read())
    };
    let told = idle(&["--dump-gpu-idle", "300ms"]);
    assert!(told.len() == 1 && told[0].starts_with(&format!("{DEVICE} has run nothing for 0.")), "{told:?}");
    assert_eq!(idle(&[]), Vec::<String>::new());
}

#[test]
fn a_kernel_that_is_launched_for_the_first_time_late_is_a_moment() {
    let run = |options: &[&str]| {
        let scratch = Scratch::new();
        let run = incident(&scratch, &["700", "slow", "10"], &[&["--flight-recorder", "1"], options].concat());
        whys(&run.traced().expect(0).read())
    };
    let told = run(&["--dump-new-kernel", "500ms"]);
    assert!(told.len() == 1 && told[0].contains(" launched spin_us_100 for the first time, after "), "{told:?}");
    assert_eq!(run(&["--dump-new-kernel", "10m"]), Vec::<String>::new());
    assert_eq!(run(&[]), Vec::<String>::new());
}

#[test]
fn a_run_in_which_nothing_happens_keeps_no_single_event_and_says_so() {
    let scratch = Scratch::new();
    let run = incident(&scratch, &["50", "nothing"], &["--flight-recorder"]).traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    assert_eq!((starts(&trace).len(), kept(&trace).intervals.len()), (0, 0));
    let text = run.whole_lines();
    assert!(text.contains("UNKNOWN: no single event was kept, so there is no verdict"), "{text}");
    assert!(text.contains("single events kept: 0 dumps; 0 of "), "{text}");
    // What a report can say is that, and nothing of idle or missing calls.
    let report = scratch.gputrace(&["report", &run.trace.to_string_lossy()]).expect(0).text();
    assert!(report.starts_with("no single event was kept"), "{report}");
}

#[test]
fn a_crash_and_an_exit_that_is_no_success_keep_the_end() {
    for (what, code, why) in
        [("crash", 139, "the command was ended by signal 11"), ("exit", 3, "the command ended with exit code 3")]
    {
        let scratch = Scratch::new();
        let run = incident(&scratch, &["200", what], &["--detail", "triggered"]).traced().expect(code);
        let trace = run.read();
        trace.assert_balanced();
        let detail = kept(&trace);
        let whys: Vec<&str> = detail.intervals.iter().map(|interval| interval.why.as_str()).collect();
        assert_eq!(whys, [why]);
        // The run was shorter than what is held back: all of it is there.
        assert_eq!(trace.table("launches").len(), 200, "{what}");
        assert_eq!(sums(&trace)[2], 0, "{what}");
    }
}

#[test]
fn a_child_that_crashes_is_worth_keeping_and_one_that_is_told_to_end_is_not() {
    for (end, why) in [("crash", Some(" was ended by signal 11")), ("term", None)] {
        let scratch = Scratch::new();
        // The command itself ends well, and nobody waits for the child before: older kernels forget then how it ended.
        let script = format!("'{}' 100 {end} > /dev/null & exec sleep 3", program("incident").display());
        let target = scratch.shell(&script).with_driver(Driver::Plain).options(["--flight-recorder"]);
        let trace = target.traced().expect(0).read();
        trace.assert_balanced();
        let whys: Vec<String> = kept(&trace).intervals.into_iter().map(|interval| interval.why).collect();
        match why {
            Some(why) => {
                assert!(whys.len() == 1 && whys[0].starts_with("process ") && whys[0].ends_with(why), "{whys:?}")
            }
            None => assert!(whys.is_empty(), "{whys:?}"),
        }
        assert_eq!(trace.table("launches").len(), if why.is_some() { 100 } else { 0 });
    }
}

#[test]
fn what_the_gpu_did_is_kept_with_the_calls_that_caused_it() {
    let scratch = Scratch::new();
    let options = ["--flight-recorder", "1", "--gpu-time", "full"];
    let trace = incident(&scratch, &["1500", "error", "1500"], &options).traced().expect(0).read();
    trace.assert_balanced();
    let [interval] = kept(&trace).intervals.try_into().expect("one dump");
    let inside = |at: i64| (interval.from_ns..interval.to_ns).contains(&at);
    let calls = |table: &str, column: &str| -> Vec<i64> {
        trace.table(table).rows().filter_map(|row| row.maybe_int(column)).collect()
    };
    assert!(calls("kernels", "start_ns").into_iter().all(inside));
    let (launched, ran) = (calls("launches", "correlation_id"), calls("kernels", "correlation_id"));
    let missing = launched.iter().filter(|call| !ran.contains(call)).count();
    // A kernel begins a little after its call: of the last one before the end it may be outside.
    assert!(launched.len() > 100 && missing <= 1, "{missing} of {}", launched.len());
}

#[test]
fn the_account_of_a_killed_collector_does_not_claim_what_was_held_back() {
    let scratch = Scratch::new();
    let mut started = incident(&scratch, &["1000000", "nothing"], &["--flight-recorder"]).start_to_be_killed();
    until_launched(&started, 2000);
    started.kill();
    let trace = Trace::open(&started.trace);
    let process = &trace.manifest().processes[0];
    // SAFETY: the pid is that of a process of ours that runs.
    unsafe { libc::kill(process.pid, libc::SIGKILL) };
    // What was read last was in no batch yet.
    let count = process.accounting["launch"];
    assert!(count.left_out > 0 && count.left_out > count.recorded, "{count:?}");
    let report = scratch.gputrace(&["report", &started.trace.to_string_lossy(), "--only", "self"]).text();
    assert!(report.starts_with("no single event was kept"), "{report}");
}

/// Waits until a session has read a number of launches.
fn until_launched(started: &Started, launches: u64) {
    let read = || {
        let manifests = Trace::open(&started.trace).manifests();
        let all = manifests.iter().flat_map(|m| &m.processes).filter_map(|p| p.accounting.get("launch"));
        (all.map(|count| count.seen).sum::<u64>() >= launches).then_some(())
    };
    let there = || started.trace.join("manifest").is_dir().then_some(());
    poll(Duration::from_secs(60), there).expect("a trace");
    poll(Duration::from_secs(60), read).expect("launches");
}

#[test]
fn a_dump_can_be_read_while_the_run_goes_on_and_so_can_a_second_one() {
    let scratch = Scratch::new();
    let started = incident(&scratch, &["1000000", "nothing"], &["--flight-recorder"]).start();
    until_launched(&started, 100);
    let folder = started.trace.canonicalize().expect("the trace");
    let (pid, trace) = (started.pid().to_string(), folder.to_string_lossy().into_owned());
    let target = Trace::open(&started.trace).manifests()[0].processes[0].pid.to_string();
    let report = |arguments: &[&str]| json(&scratch, &[&["report", &trace, "--format", "json"], arguments].concat());
    for (number, session) in [pid.as_str(), target.as_str()].into_iter().enumerate() {
        assert_eq!(scratch.gputrace(&["dump", session]).expect(0).text(), format!("{trace}\n"));
        let note = report(&["--only", "launch-overhead"])["notes"][0].as_str().expect("a note").to_owned();
        let said = if number == 0 { "in one interval (" } else { "in 2 intervals; this is number 2, the last one (" };
        assert!(note.contains(said) && note.contains("gputrace dump"), "{note}");
    }
    // By its trace, and as the only one of its user.
    assert_eq!(scratch.gputrace(&["dump", &trace]).expect(0).text(), format!("{trace}\n"));
    let count = |arguments: &[&str]| {
        let report = report(&[&["--only", "launch-overhead"], arguments].concat());
        report["analyses"]["launch-overhead"]["facts"]["launches"].as_f64().expect("launches")
    };
    assert!(count(&["--interval", "1"]) >= 100.0);
    let wrong = scratch.gputrace(&["report", &trace, "--interval", "9"]).expect(2).stderr;
    assert!(wrong.contains("the trace has 3 intervals"), "{wrong}");
    // SAFETY: the pid is that of a process of ours that runs.
    unsafe { libc::kill(target.parse().expect("a pid"), libc::SIGTERM) };
    let run = started.wait().expect(128 + libc::SIGTERM);
    run.read().assert_balanced();
    let whys: Vec<String> = kept(&run.read()).intervals.into_iter().map(|interval| interval.why).collect();
    assert_eq!(whys[..3], ["gputrace dump"; 3], "{whys:?}");
    assert!(whys.last().expect("the end").contains("the command was ended by signal 15"), "{whys:?}");
    let over = scratch.gputrace(&["dump", &trace]).expect(2).stderr;
    assert!(over.contains("no running session of this user and host writes to this trace"), "{over}");
}

#[test]
fn a_signal_to_gputrace_asks_for_a_dump_and_the_target_is_not_told() {
    let scratch = Scratch::new();
    let started = incident(&scratch, &["1000000", "nothing"], &["--flight-recorder", "60"]).start();
    until_launched(&started, 50);
    let pids = (started.pid(), Trace::open(&started.trace).manifests()[0].processes[0].pid);
    // SAFETY: the pid is that of a process of ours that runs.
    unsafe { libc::kill(pids.0, libc::SIGRTMAX()) };
    let interval = || kept(&Trace::open(&started.trace)).intervals.into_iter().next();
    let interval = poll(Duration::from_secs(60), interval).expect("a dump");
    assert_eq!(interval.why, "a signal to gputrace");
    // The signal would have ended it.
    // SAFETY: the pid is that of a process of ours that runs.
    unsafe { libc::kill(pids.1, libc::SIGTERM) };
    let run = started.wait().expect(128 + libc::SIGTERM);
    run.read().assert_balanced();
    assert!(run.read().table("launches").len() >= 50);
}

#[test]
fn a_session_that_keeps_all_has_nothing_to_dump() {
    let scratch = Scratch::new();
    let started = incident(&scratch, &["1000000", "nothing"], &[]).start();
    until_launched(&started, 10);
    let refused = scratch.gputrace(&["dump", &started.pid().to_string()]).expect(1).stderr;
    assert!(refused.contains("it has no flight recorder"), "{refused}");
    let target = Trace::open(&started.trace).manifests()[0].processes[0].pid;
    // SAFETY: the pid is that of a process of ours that runs.
    unsafe { libc::kill(target, libc::SIGKILL) };
    started.wait().expect(128 + libc::SIGKILL);
}

/// When the calls began whose work the simulated device did.
fn issued(file: &Path) -> Vec<i64> {
    let text = fs::read_to_string(file).expect("the driver's truth");
    let truth: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    truth["device"].as_array().expect("records").iter().filter_map(|record| record["issued_ns"].as_i64()).collect()
}

#[test]
fn windows_hold_all_rows_that_begin_in_them_and_none_else() {
    let scratch = Scratch::new();
    let truth = scratch.path().join("truth.json");
    let target = incident(&scratch, &["1500", "nothing"], &["--detail", "windows=200ms/1s"]);
    let run = target.env("FAKE_CUDA_TRUTH", &truth).traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let (period, length) = (1_000_000_000, 200_000_000);
    assert!(starts(&trace).iter().all(|at| at.rem_euclid(period) < length));
    // The driver's clock is read a little after ours: at a window's edges it is either.
    const EDGE: i64 = 10_000_000;
    let inside = |at: &&i64, edge: i64| (**at + edge).rem_euclid(period) < length + 2 * edge;
    let issued = issued(&truth);
    let (least, most) =
        (issued.iter().filter(|at| inside(at, -EDGE)).count(), issued.iter().filter(|at| inside(at, EDGE)).count());
    let launches = trace.table("launches").len();
    assert!((least..=most).contains(&launches) && least > 0, "{least} {launches} {most}");
    let count = trace.root().accounting["launch"];
    assert_eq!((count.recorded, count.recorded + count.left_out), (launches as u64, 1500));
    // A report is about one of them.
    let report =
        scratch.gputrace(&["report", &run.trace.to_string_lossy(), "--only", "launch-overhead"]).expect(0).text();
    let head = report.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        head.starts_with("single events were kept in ") && head.contains(", a window of the wall clock)"),
        "{head}"
    );
}

#[test]
fn rollups_alone_keep_no_single_event_and_the_account_balances() {
    let scratch = Scratch::new();
    let run = incident(&scratch, &["300", "exit"], &["--detail", "rollup"]).traced().expect(3);
    let trace = run.read();
    trace.assert_balanced();
    assert_eq!(starts(&trace).len(), 0);
    assert_eq!(trace.root().accounting["launch"].left_out, 300);
    assert!(trace.table("names").len() > 0 && trace.table("processes").len() == 1);
}

#[test]
fn a_flight_recorder_with_little_memory_says_how_much_it_could_hold() {
    let scratch = Scratch::new();
    let options = ["--flight-recorder", "60", "--flight-recorder-memory", "30K"];
    let run = incident(&scratch, &["3000", "exit"], &options).traced().expect(3);
    let trace = run.read();
    trace.assert_balanced();
    assert!(run.whole_lines().contains("--flight-recorder-memory allows for more"), "{}", run.stderr);
    let detail = kept(&trace);
    assert!(detail.held_ns.is_some_and(|held| held < 60_000_000_000), "{detail:?}");
    assert_inside(&trace, &detail.intervals);
    assert!(trace.table("launches").len() < 3000);
    assert!(sums(&trace)[2] > 0);
}

#[test]
fn options_that_say_nothing_beside_each_other_are_refused() {
    let scratch = Scratch::new();
    let refused = |options: &[&str]| {
        let run = Command::new(gputrace()).args(options).args(["--", "true"]).current_dir(scratch.path()).output();
        let run = run.expect("gputrace runs");
        (run.status.code(), String::from_utf8_lossy(&run.stderr).into_owned())
    };
    for options in [
        &["--flight-recorder", "--detail", "rollup"][..],
        &["--flight-recorder-memory", "1G"],
        &["--detail", "windows=2s/1s"],
        &["--flight-recorder", "0"],
        &["--dump-slow", "10"],
    ] {
        let (code, text) = refused(options);
        assert!(code == Some(125) && text.lines().count() == 1, "{options:?}: {code:?} {text}");
    }
}
