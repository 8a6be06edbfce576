//! What becomes of processes whose collector is another one than theirs: of another version, with another trace, in another namespace of pids, or
//! killed together with them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::faults::one_line;
use crate::standing::{Session, account};
use crate::util::{Driver, Scratch, Trace, count, driver_folder, gputrace, lacks, needs, poll, program};

const PATIENCE: Duration = Duration::from_secs(60);
/// Where a segment's version stands in it, and that of the oldest reader that reads it.
const VERSION_AT: u64 = 8;
const NEEDS_AT: u64 = 1140;

/// The one segment's file of a session.
fn segment(session: &Session<'_>) -> PathBuf {
    let entries = fs::read_dir(session.root.join("s")).expect("a session").flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
    let mut all: Vec<PathBuf> = entries.filter(named).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// What the gputrace that wrote it calls version 1, another one does not, whichever of the two is the newer.
fn is_told(session: &Session<'_>, version: u32, needs: u32) {
    let file = File::options().write(true).open(segment(session)).expect("a segment");
    for (at, word) in [(VERSION_AT, version), (NEEDS_AT, needs)] {
        file.write_all_at(&word.to_le_bytes(), at).expect("it can be written");
    }
}

#[test]
fn a_collector_that_is_killed_after_its_programs_ended_loses_nothing_uncounted() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let mut made = 0;
    // However long after that: what was read and not yet written, written and not yet let go of, and let go of.
    for (n, later_ms) in [0, 20, 100, 300, 600].into_iter().enumerate() {
        let file = session.file(&format!("count{n}"));
        let running = session.start(&file);
        session.until_made(&file, 300);
        made += session.stop(running, &file);
        let until = Instant::now() + Duration::from_millis(later_ms);
        poll(PATIENCE, || (Instant::now() >= until).then_some(())).expect("time");
        session.end(libc::SIGKILL);
        session.collect();
    }
    session.settle();
    assert_eq!(session.end(libc::SIGTERM).0, Some(0));
    let trace = Trace::open(&session.trace);
    trace.assert_balanced();
    let processes = trace.manifest().processes;
    let launched = processes.iter().filter_map(|process| process.accounting.get("launch"));
    assert_eq!(launched.map(|count| count.seen).sum::<u64>(), made);
    assert!(processes.iter().all(|process| !process.running), "{processes:?}");
    // Each has one row of itself.
    let mut ids: Vec<i64> = trace.table("processes").rows().map(|row| row.int("process_id")).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    // And one of its thread.
    let mut threads: Vec<i64> = trace.table("threads").rows().map(|row| row.int("process_id")).collect();
    threads.sort_unstable();
    assert_eq!(threads, ids);
}

#[test]
fn another_trace_of_the_session_has_what_came_after_the_first_one_which_is_made_whole() {
    for (signal, then_killed) in [(libc::SIGTERM, false), (libc::SIGTERM, true), (libc::SIGKILL, false)] {
        let scratch = Scratch::new();
        let mut session = Session::new(&scratch, &["--detail", "full"]);
        session.collect();
        let file = session.file("count");
        let running = session.start(&file);
        session.until_made(&file, 300);
        poll(PATIENCE, || (session.on_disk() >= 300).then_some(())).expect("some are on the disk");
        session.end(signal);
        session.until_made(&file, 100);
        let another = session.file("another");
        let first = std::mem::replace(&mut session.trace, another);
        session.collect();
        session.until_made(&file, 300);
        // Who goes on for its collector goes on with its account.
        if then_killed {
            poll(PATIENCE, || (session.on_disk() >= 300).then_some(())).expect("some are on the disk");
            session.end(libc::SIGKILL);
            session.collect();
            session.until_made(&file, 100);
        }
        let made = session.stop(running, &file);
        session.settle();
        assert_eq!(session.end(libc::SIGTERM).0, Some(0));
        let [before, after] = [&first, &session.trace].map(|path| Trace::open(path));
        before.assert_balanced();
        after.assert_balanced();
        assert!(before.manifest().complete);
        assert!(before.manifest().notes.iter().any(|note| note.contains("what came later is in ")));
        // What the first trace has is not lost in the second one; what was read last before a kill and not written is.
        let [(first_seen, lost, early), (seen, lost_later, late)] = [account(&before), account(&after)];
        let all = format!("{signal} {then_killed}: {early} and {lost}, {late} and {lost_later} of {made}");
        assert_eq!((first_seen, seen, early + lost + seen), (early + lost, late + lost_later, made), "{all}");
        assert!(early >= 300 && late >= 300, "{all}");
        assert!(signal == libc::SIGKILL || then_killed || (lost, lost_later) == (0, 0), "{all}");
    }
}

#[test]
fn whether_programs_that_run_already_record_is_said_where_it_is_not_what_a_collector_begins_with() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let file = session.file("count");
    let running = session.start(&file);
    session.until_made(&file, 100);
    let root = session.root.display().to_string();
    let off = "recording is off in a program that ran already, and stays so until: gputrace start ";
    let on = "recording is on in a program that ran already, and stays so until: gputrace stop ";
    // Told by whom, what the next one begins with, and what that one says of the program.
    type Turn = (&'static str, &'static [&'static str], Option<&'static str>);
    let turns: [Turn; 4] = [
        ("stop", &["--detail", "full"], Some(off)),
        ("stop", &["--detail", "full", "--start-paused"], None),
        ("start", &["--detail", "full", "--start-paused"], Some(on)),
        ("start", &["--detail", "full"], None),
    ];
    for (word, options, wanted) in turns {
        scratch.gputrace(&[word, &root]).expect(0);
        assert!(!session.end(libc::SIGTERM).1.contains("was killed"));
        session.options = options;
        session.collect();
        session.until_made(&file, 100);
        let is_there = |said: &str| [off, on].map(|line| said.matches(line).count());
        let (code, said) = session.end(libc::SIGTERM);
        assert_eq!(
            (code, is_there(&said)),
            (Some(0), is_there(wanted.unwrap_or_default())),
            "{word} {options:?}: {said}"
        );
        session.collect();
    }
    // Who goes on for one that was killed says so.
    session.end(libc::SIGKILL);
    session.collect();
    let (code, said) = session.end(libc::SIGTERM);
    let killed = "its collector was killed, or could not bring all to the disk: ";
    assert_eq!((code, said.matches(killed).count()), (Some(0), 1), "{said}");
    session.stop(running, &file);
}

#[test]
fn a_program_for_whose_ring_the_session_s_folder_has_no_room_runs_on_and_is_named() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &[]);
    // A file system in memory has less than the machine.
    session.root = PathBuf::from(format!("/dev/shm/gt-room-{}", std::process::id()));
    let too_large = scratch.gputrace(&["collect", &session.root.display().to_string(), "--segment-memory", "9T"]);
    one_line(&too_large.expect(2).stderr, "--segment-memory asks for 9.00 TiB for each process, and this machine has ");
    let df = Command::new("df").args(["--output=avail", "--block-size=1", "/dev/shm"]).output().expect("df").stdout;
    let free: u64 = String::from_utf8_lossy(&df).lines().last().and_then(|line| line.trim().parse().ok()).expect("df");
    let wanted: &str = Box::leak((free / 5).to_string().into_boxed_str());
    session.options = Box::leak(Box::new(["--segment-memory", wanted]));
    session.collect();
    let file = session.file("count");
    let running = session.start(&file);
    session.until_made(&file, 100);
    let manifest = || Trace::open(&session.trace).manifests().pop();
    let untraced = || manifest()?.untraced.into_iter().find(|process| process.pid == running.id() as i32);
    let reason = poll(PATIENCE, untraced).expect("it is in the trace as one that is not traced").reason;
    assert!(reason.contains("a tenth of what is free") && reason.contains("--segment-memory"), "{reason}");
    session.stop(running, &file);
    let (code, said) = session.end(libc::SIGTERM);
    assert_eq!((code, said.matches(&reason).count()), (Some(0), 1), "{said}");
    fs::remove_dir_all(&session.root).expect("it is ours");
}

#[test]
fn a_segment_s_file_that_is_cut_harms_neither_the_collector_nor_the_others() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let files = ["cut", "whole"].map(|name| session.file(name));
    let mut cut = session.start(&files[0]);
    session.until_made(&files[0], 200);
    let segment = segment(&session);
    let whole = session.start(&files[1]);
    session.until_made(&files[1], 200);
    File::options().write(true).open(segment).and_then(|file| file.set_len(4096)).expect("it is cut");
    session.until_made(&files[1], 300);
    // Whose own memory it was may not survive that.
    let _ = fs::write(files[0].with_extension("stop"), "");
    cut.wait().expect("it is our child");
    let made = session.stop(whole, &files[1]);
    session.settle();
    let (code, said) = session.end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{said}");
    let processes = Trace::open(&session.trace).manifest().processes;
    let of_pid = |pid: u32| processes.iter().find(|process| process.pid == pid as i32).expect("it is in the trace");
    assert!(of_pid(cut.id()).notes.iter().any(|note| note.starts_with("its segment's file was cut")), "{processes:?}");
    let report = scratch.gputrace(&["report", "trace", "--only", "summary"]).expect(0).text();
    let told = format!("note: process {} (", cut.id());
    assert!(report.contains(&told) && report.contains("its segment's file was cut: "), "{report}");
    let other = processes.iter().find(|process| process.pid != cut.id() as i32).expect("it is in the trace");
    assert_eq!((count(other, "launch").seen, count(other, "launch").recorded), (made, made));
}

#[test]
fn a_session_that_was_stopped_in_order_is_not_called_killed() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let file = session.file("count");
    let running = session.start(&file);
    session.until_made(&file, 100);
    let made = session.stop(running, &file);
    session.settle();
    session.end(libc::SIGTERM);
    // Its trace is the session's until that begins another one, and is whole then.
    let third = session.file("third");
    let held = scratch.gputrace(&["collect", &third.display().to_string(), "-o", "trace"]).expect(1);
    one_line(&held.stderr, "holds the trace of a session that was stopped: gputrace collect ");
    let another = session.file("another");
    let first = std::mem::replace(&mut session.trace, another);
    session.collect();
    session.end(libc::SIGTERM);
    let name = first.display().to_string();
    assert_eq!(Trace::open(&first).manifest().recovered, None);
    let report = scratch.gputrace(&["report", &name]).expect(0).text();
    assert!(
        !report.contains("killed") && report.contains("gputrace was stopped, and the trace made whole"),
        "{report}"
    );
    scratch.gputrace(&["check", &name, "--max", "summary.lost=0"]).expect(0);
    assert_eq!(account(&Trace::open(&first)), (made, 0, made));
    // One that is given up is whole too, where nothing of it runs.
    fs::remove_dir_all(&session.root).expect("it is ours");
    let said = scratch.gputrace(&["recover", &session.trace.display().to_string()]).expect(0).text();
    assert!(said.contains(": recovered: 0 events, which are all that were recorded"), "{said}");
    let twice = scratch.gputrace(&["collect", "s", "s"]).expect(2);
    one_line(&twice.stderr, "s: is named twice");
}

#[test]
fn a_process_whose_shim_is_of_another_version_runs_on_and_is_named_with_both() {
    let scratch = Scratch::new();
    for known in [false, true] {
        let mut session = Session::new(&scratch, &["--detail", "full"]);
        session.collect();
        let file = session.file(if known { "known" } else { "new" });
        if !known {
            session.end(libc::SIGTERM);
        }
        let running = session.start(&file);
        session.until_made(&file, 100);
        let pid = running.id();
        if known {
            session.end(libc::SIGTERM);
        }
        is_told(&session, 7, 7);
        session.collect();
        session.until_made(&file, 100);
        let manifest = || Trace::open(&session.trace).manifests().pop();
        let untraced = || manifest()?.untraced.into_iter().find(|process| process.pid == pid as i32);
        let untraced = poll(PATIENCE, untraced).expect("it is in the trace as one that is not traced");
        let both = "its shim speaks version 7 of the segment, this gputrace 1";
        assert!(untraced.reason.starts_with(both) && untraced.exe.contains("switched"), "{untraced:?}");
        let (code, said) = session.end(libc::SIGTERM);
        assert_eq!(code, Some(0));
        assert_eq!(said.lines().filter(|line| line.contains(&format!("is not traced: {both}"))).count(), 1, "{said}");
        // Whoever has its version goes on with it: what its ring has room for is not lost, and each of its calls counted.
        is_told(&session, 1, 1);
        session.collect();
        let made = session.stop(running, &file);
        session.settle();
        session.end(libc::SIGTERM);
        let trace = Trace::open(&session.trace);
        let (seen, lost, recorded) = account(&trace);
        assert_eq!((seen, recorded + lost), (made, made), "known before: {known}");
        for folder in [&session.root, &session.trace] {
            fs::remove_dir_all(folder).expect("ours");
        }
    }
}

#[test]
fn a_process_whose_shim_is_newer_is_collected_where_its_version_only_adds_something() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let file = session.file("newer");
    session.end(libc::SIGTERM);
    let running = session.start(&file);
    session.until_made(&file, 100);
    is_told(&session, 7, 1);
    session.collect();
    let made = session.stop(running, &file);
    session.settle();
    let (code, said) = session.end(libc::SIGTERM);
    assert!(code == Some(0) && !said.contains("is not traced"), "{said}");
    let trace = Trace::open(&session.trace);
    let (seen, lost, recorded) = account(&trace);
    assert_eq!((seen, recorded + lost), (made, made));
}

#[test]
fn a_collector_and_its_process_that_are_killed_at_once_leave_what_the_ring_holds_to_the_next_one() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let file = session.file("count");
    let mut running = session.start(&file);
    session.until_made(&file, 2000);
    running.kill().expect("it is our child");
    session.end(libc::SIGKILL);
    running.wait().expect("it is our child");
    let refused = scratch.gputrace(&["recover", &session.trace.to_string_lossy()]).expect(1);
    one_line(&refused.stderr, "its session goes on with it, and loses nothing");
    session.collect();
    session.settle();
    session.end(libc::SIGTERM);
    let trace = Trace::open(&session.trace);
    let made = crate::switching::made(&file).expect("a count") as u64;
    let (seen, lost, recorded) = account(&trace);
    // It says how many it made after each wait for some of them.
    assert!((made..made + 100).contains(&seen), "{seen} of {made}");
    // One that was being made when it was killed is not there.
    assert!(recorded + lost == seen || recorded + lost + 1 == seen, "{recorded} and {lost} of {seen}");
    trace.assert_balanced();
}

#[test]
fn processes_that_call_themselves_the_same_in_namespaces_of_their_own_have_each_its_own_end() {
    // SAFETY: the call only reads this process's credentials.
    if unsafe { libc::geteuid() } != 0 || !needs(&["unshare"]) {
        return;
    }
    if !Command::new("unshare").args(["-p", "-f", "true"]).status().is_ok_and(|status| status.success()) {
        lacks("the right to make a namespace of pids (unshare -p)");
        return;
    }
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    // Each lives for some milliseconds: with an odd number of launches it ends with 3, else with 0.
    let start = |steps: u32| {
        let mut command = Command::new(gputrace());
        command.arg("env").arg(&session.root).args(["--", "unshare", "-p", "-f"]).arg(program("incident"));
        command.arg(steps.to_string()).arg(if steps % 2 == 1 { "exit" } else { "nothing" });
        let command = command.env("LD_LIBRARY_PATH", driver_folder(Driver::Plain)).stdout(std::process::Stdio::null());
        (steps, command.spawn().expect("it starts"))
    };
    for _ in 0..3 {
        let all: Vec<_> = (1..=12).map(start).collect();
        for (steps, mut child) in all {
            let code = child.wait().expect("it is our child").code();
            assert_eq!(code, Some(if steps % 2 == 1 { 3 } else { 0 }));
        }
    }
    session.settle();
    session.end(libc::SIGTERM);
    let trace = Trace::open(&session.trace);
    let processes = trace.table("processes");
    let ends: std::collections::HashMap<i64, Option<i64>> =
        processes.rows().map(|row| (row.int("process_id"), row.maybe_int("exit_code"))).collect();
    let manifest = trace.manifests().remove(0);
    let incidents: Vec<_> = manifest.processes.iter().filter(|process| process.exe.ends_with("incident")).collect();
    assert_eq!(incidents.len(), 36);
    for process in incidents {
        let wanted = if count(process, "launch").seen % 2 == 1 { 3 } else { 0 };
        // Where the kernel tells nobody but the parent (before Linux 6.15) no end is known, and none is made up.
        let told = ends[&process.process_id];
        assert!(told.is_none_or(|code| code == wanted), "{process:?}: {told:?}");
    }
    let distinct = |pid: i32| manifest.processes.iter().filter(|process| process.pid == pid).count();
    assert!(manifest.processes.iter().all(|process| process.exe.ends_with("unshare") || distinct(process.pid) == 1));
}
