//! What a trace holds after a kill, on a full disk, in a folder that cannot be used; and that the target never pays.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::limits::{prefix, with_mounts};
use crate::recovering::{heir_of, kill, kill_with_heirs, words};
use crate::util::{Driver, Scratch, Trace, count, gputrace, poll, program, shim};

/// The number in a file that `victim` shares with us.
fn counted(file: &Path) -> Option<u64> {
    let bytes = fs::read(file).ok()?;
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
}

#[test]
fn a_hundred_killed_processes_lose_nothing_that_was_written() {
    let scratch = Scratch::new();
    let file = scratch.path().join("count");
    let target = scratch.target(program("killing")).arg(program("victim")).arg("100").arg(&file).with_instant_driver();
    let run = target.traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let launches = trace.table("launches");
    let mut rounds = 0;
    for line in run.text().lines() {
        let (pid, came_back) = line.split_once(' ').expect("PID COUNT");
        let (pid, came_back): (i32, u64) = (pid.parse().expect("a pid"), came_back.parse().expect("a count"));
        let process = trace.process(pid);
        let count = count(&process, "launch");
        assert_eq!(count.dropped, 0, "{count:?}");
        // The count is raised after the hook has returned: an event more may have been written, and one call more begun.
        assert!(count.recorded == came_back || count.recorded == came_back + 1, "{came_back} came back: {count:?}");
        assert!(count.in_flight <= 1 && count.seen <= came_back + 1, "{came_back} came back: {count:?}");
        let rows = launches.rows().filter(|row| row.int("process_id") == process.process_id).count() as u64;
        assert_eq!(rows, count.recorded);
        rounds += 1;
    }
    assert_eq!(rounds, 100);
}

#[test]
fn a_killed_command_ends_gputrace_with_the_signal_and_its_trace_is_whole() {
    let scratch = Scratch::new();
    for round in 0..5u64 {
        let file = scratch.path().join(format!("count{round}"));
        let target = scratch.target(program("victim")).arg(&file).arg("100000").with_instant_driver();
        let started = target.start();
        let wanted = 1 + round * 3000;
        poll(Duration::from_secs(30), || counted(&file).filter(|n| *n >= wanted)).expect("the victim works");
        let pid = child_of(started.pid());
        // SAFETY: the process is a child of our child, which has not waited for it.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        let run = started.wait().expect(137);
        let (came_back, trace) = (counted(&file).expect("a count"), run.read());
        let recorded = count(&trace.root(), "launch").recorded;
        assert!(recorded == came_back || recorded == came_back + 1, "{recorded} of {came_back}");
        assert_eq!(trace.manifest().root.and_then(|root| root.exit_signal), Some(9));
    }
}

/// The only child of a process.
pub(crate) fn child_of(pid: i32) -> i32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    // A copy of itself, which starts the heir and ends, is not meant: when it has ended it has no words.
    let is_another = |child: &i32| Some(words(*child)).is_some_and(|own| !own.is_empty() && own != words(pid));
    let read = || {
        let all = fs::read_to_string(&path).ok()?;
        all.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_another)
    };
    poll(Duration::from_secs(10), read).expect("gputrace has a child")
}

/// Calls in a report of the launches.
fn reported_launches(scratch: &Scratch, trace: &Path) -> u64 {
    reported_so_far(scratch, trace).expect("a count")
}

/// The same of a trace that may have none yet.
pub(crate) fn reported_so_far(scratch: &Scratch, trace: &Path) -> Option<u64> {
    let trace = trace.to_str().expect("a plain path");
    let run = scratch.gputrace(&["report", trace, "--only", "launch-overhead", "--format", "json"]).expect(0);
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    find_number(&report, &["calls", "launches", "count"])
}

/// The first number under one of these keys, breadth first.
fn find_number(value: &serde_json::Value, keys: &[&str]) -> Option<u64> {
    let mut level = vec![value];
    while !level.is_empty() {
        for object in level.iter().filter_map(|value| value.as_object()) {
            if let Some(number) = keys.iter().find_map(|key| object.get(*key)?.as_u64()) {
                return Some(number);
            }
        }
        let inner = level.iter().flat_map(|value| match value {
            serde_json::Value::Object(map) => map.values().collect::<Vec<_>>(),
            serde_json::Value::Array(all) => all.iter().collect(),
            _ => Vec::new(),
        });
        level = inner.collect();
    }
    None
}

#[test]
fn a_killed_collector_leaves_a_readable_trace_and_the_target_runs_on_to_its_end() {
    let scratch = Scratch::new();
    let file = scratch.path().join("count");
    // 2,500 launches, one in a millisecond or a little more.
    let output = scratch.path().join("output");
    let script = format!(
        "{} {} 2500 1000 >{}; echo $? >>{}",
        program("victim").display(),
        file.display(),
        output.display(),
        output.display()
    );
    let mut started = scratch.shell(&script).with_instant_driver().start_to_be_killed();
    let trace = started.trace.clone();
    poll(Duration::from_secs(30), || counted(&file).filter(|n| *n >= 300)).expect("the victim works");
    let early = counted(&file).expect("a count");
    // The promise is "at most the last second": what was recorded before a second ago must be there.
    let a_second_ago = std::time::Instant::now();
    poll(Duration::from_secs(30), || (a_second_ago.elapsed() > Duration::from_millis(1_050)).then_some(()))
        .expect("time");
    // And nobody goes on for it.
    kill_with_heirs(&mut started);
    let text = || fs::read_to_string(&output).ok().filter(|text| text.lines().count() == 2);
    let text = poll(Duration::from_secs(60), text).expect("the target runs to its end");
    assert_eq!(text, "launched 2500\n0\n");
    let reported = reported_launches(&scratch, &trace);
    assert!(reported >= early && reported <= 2500, "{reported} reported, {early} were there a second before the kill");
    let manifest = Trace::open(&trace).manifest();
    assert!(!manifest.complete);
    assert!(manifest.processes.iter().any(|process| process.exe.ends_with("victim")), "{:?}", manifest.processes);
    // Any report says that it is not all, also one without the summary, and of malloc until when it is.
    let folder = trace.to_str().expect("a plain path");
    for (analyses, says) in [
        ("launch-overhead,syncs", "The collector was killed"),
        ("host-leaks", "The collector was killed"),
        ("host-memory", "The collector was killed"),
        ("summary,host-memory", "the collector was killed"),
    ] {
        let report = scratch.gputrace(&["report", folder, "--only", analyses, "--width", "1000"]).expect(0).text();
        assert_eq!(report.matches(says).count(), 1, "{analyses}: {report}");
        assert_eq!(report.matches("was killed,").count(), 1, "{analyses}: {report}");
    }
    // Nobody works in the folder any more, and another run makes its own.
    let again = scratch.gputrace(&["-o", trace.to_str().expect("a plain path"), "--", "true"]).expect(125);
    one_line(&again.stderr, "holds the trace of a run that was killed; gputrace recover makes it whole");
}

#[test]
fn a_process_that_starts_after_the_collectors_death_runs_untraced() {
    let scratch = Scratch::new();
    let (go, output) = (scratch.path().join("go"), scratch.path().join("output"));
    let cuda = program("cuda_routes").display().to_string();
    let script = format!(
        "while ! test -e {go}; do :; done; {cuda} dlopen >{out}.new 2>&1; echo $? >>{out}.new; mv {out}.new {out}",
        go = go.display(),
        out = output.display()
    );
    let mut started = scratch.shell(&script).with_instant_driver().start_to_be_killed();
    poll(Duration::from_secs(30), || started.trace.join("manifest").is_dir().then_some(())).expect("it starts");
    child_of(started.pid());
    started.kill();
    scratch.file("go", "");
    let text = poll(Duration::from_secs(60), || fs::read_to_string(&output).ok()).expect("the target runs on");
    assert!(text.contains("launches=3") && text.ends_with("0\n"), "{text}");
}

#[test]
fn a_full_disk_is_one_clear_line_and_the_target_runs_on() {
    let scratch = Scratch::new();
    let disk = scratch.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    shim();
    let copy = scratch.path().join("copy");
    // 400,000 events need more than this disk has.
    let script = format!(
        "mount -t tmpfs -o size=256k none {disk} && {gputrace} --on-full block -o {disk}/t -- {threads} 4 50000; echo code $?; \
         {gputrace} report {disk}/t --only launch-overhead; echo report $?; cp -r {disk}/t {copy}",
        disk = disk.display(),
        copy = copy.display(),
        gputrace = gputrace().display(),
        threads = program("threads").display()
    );
    let Some(target) = with_mounts(&scratch, &script) else { return };
    let run = target.with_instant_driver().plain().expect(0);
    assert!(run.text().starts_with("threads 8 sum 8 failed 0\ncode 0\n"), "{}\n{}", run.text(), run.stderr);
    let complaints: Vec<_> =
        run.stderr.lines().filter(|line| line.contains("No space left") && !line.starts_with("note: ")).collect();
    assert!(!complaints.is_empty() && complaints.iter().all(|line| line.starts_with("gputrace: ")), "{}", run.stderr);
    assert!(complaints.len() <= 3, "said once, not again and again: {}", run.stderr);
    // Some of it fits and is kept; the manifest is whole and accounts for the rest, and the summary says so.
    let trace = Trace::open(&copy);
    trace.assert_balanced();
    assert!(trace.manifest().complete);
    let launches = count(&trace.root(), "launch");
    assert_eq!((launches.seen, launches.recorded + launches.dropped), (400_000, 400_000), "{launches:?}");
    assert!(launches.dropped > 0 && launches.recorded > 0, "{launches:?}");
    assert_eq!(trace.table("launches").len() as u64, launches.recorded);
    assert!(run.stderr.contains(" are lost: what is fine is not known"), "{}", run.stderr);
    assert!(!run.text().contains("report 101") && !run.stderr.contains("panicked"), "{}\n{}", run.text(), run.stderr);
}

#[test]
fn a_tiny_disk_makes_the_summary_say_what_is_lost_and_nothing_that_is_not_so() {
    let scratch = Scratch::new();
    let disk = scratch.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    shim();
    for kib in [4, 8, 16, 32, 64, 128] {
        for launches in [3u64, 5000] {
            let copy = scratch.path().join(format!("copy-{kib}-{launches}"));
            let script = format!(
                "mount -t tmpfs -o size={kib}k none {disk} && {gputrace} --on-full block -o {disk}/t -- {threads} 4 {launches}; \
                 echo code $?; cp -r {disk}/t {copy}",
                disk = disk.display(),
                copy = copy.display(),
                gputrace = gputrace().display(),
                threads = program("threads").display()
            );
            let Some(target) = with_mounts(&scratch, &script) else { return };
            let run = target.with_instant_driver().plain().expect(0);
            let text = format!("{kib} KiB, {launches} launches: {}", run.stderr);
            assert_eq!(run.text(), "threads 8 sum 8 failed 0\ncode 0\n", "{text}");
            for lie in ["exit not known", "no CUDA calls seen", "was killed", "no process could be traced"] {
                assert!(!text.contains(lie), "{text}");
            }
            // `lost 40,026 of 40,118`: what was seen is either in the files or told as lost.
            let words: Vec<&str> = text.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "lost").expect("the loss is told");
            let number = |word: &str| word.replace(',', "").parse::<u64>().expect("a number");
            let (lost, seen) = (number(words[at + 1]), number(words[at + 3]));
            assert!(seen >= 8 * launches && lost <= seen, "{text}");
            let rows = |table: &str| Trace::open(&copy).table(table).len() as u64;
            let missing = 8 * launches - rows("launches");
            assert!(lost >= missing, "{missing} launches are not there: {text}");
            if missing > 4 * launches {
                let word = text.lines().any(|line| line.starts_with("UNKNOWN: ") && line.contains(" lost"));
                assert!(word && !text.contains("checked, fine"), "{text}");
            }
            for left in ["summary.txt", "manifest"] {
                let files = fs::read_dir(copy.join(left)).map(|dir| dir.flatten().map(|entry| entry.path()).collect());
                for file in files.unwrap_or_else(|_| vec![copy.join(left)]) {
                    let empty = fs::metadata(&file).is_ok_and(|meta| meta.len() == 0);
                    assert!(!empty && !file.to_string_lossy().ends_with(".new"), "{}: {text}", file.display());
                }
            }
        }
    }
}

#[test]
fn a_disk_that_is_full_from_the_start_stops_us_before_the_target() {
    let scratch = Scratch::new();
    let disk = scratch.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    shim();
    let script = format!(
        "mount -t tmpfs -o size=16k none {disk} && head -c 16k /dev/zero >{disk}/full; {gputrace} -o {disk}/t -- echo ran",
        disk = disk.display(),
        gputrace = gputrace().display(),
    );
    let Some(target) = with_mounts(&scratch, &script) else { return };
    let run = target.plain().expect(125);
    assert_eq!(run.text(), "");
    one_line(&run.stderr, "No space left on device");
    assert_eq!(run.stderr.matches("No space left on device").count(), 1, "{}", run.stderr);
}

/// Asserts that something is one line of ours that says this.
#[track_caller]
pub(crate) fn one_line(text: &str, says: &str) {
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("gputrace: ") && text.contains(says), "{text}");
}

#[test]
fn a_limit_on_our_own_file_sizes_kills_neither_us_nor_the_target() {
    let scratch = Scratch::new();
    let (prefix, trace) = prefix(&scratch, "");
    let threads = program("threads").display().to_string();
    let script = format!("ulimit -f 100; {prefix} {threads} 4 50000; echo code $?");
    let run = scratch.shell(&script).with_instant_driver().plain().expect(0);
    assert!(run.text().ends_with("failed 0\ncode 0\n"), "{}\n{}", run.text(), run.stderr);
    assert!(trace.join("manifest").is_dir());
}

#[test]
fn a_folder_that_cannot_be_written_stops_us_before_the_target() {
    let scratch = Scratch::new();
    let place = scratch.path().join("read-only");
    fs::create_dir(&place).expect("a folder");
    shim();
    let command = format!("{} -o {}/t -- echo ran", gputrace().display(), place.display());
    let run = if is_root() {
        // Nothing is read-only for root but a read-only file system.
        let script = format!("mount -t tmpfs -o ro none {} && exec {command}", place.display());
        let Some(target) = with_mounts(&scratch, &script) else { return };
        target.plain()
    } else {
        fs::set_permissions(&place, fs::Permissions::from_mode(0o555)).expect("our own folder");
        scratch.shell(&command).plain()
    };
    let run = run.expect(125);
    assert_eq!(run.text(), "");
    one_line(&run.stderr, "read-only/t");
}

fn is_root() -> bool {
    // SAFETY: the call only reads this process's credentials.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn a_folder_with_the_trace_of_another_run_is_refused() {
    let scratch = Scratch::new();
    let run = scratch.target("true").traced().expect(0);
    let trace = run.trace.to_str().expect("a plain path").to_owned();
    let before = fs::read_dir(run.trace.join("manifest")).expect("a trace").count();
    let again = scratch.gputrace(&["-o", &trace, "--", "echo", "ran"]).expect(125);
    assert_eq!(again.text(), "");
    one_line(&again.stderr, "another run");
    assert_eq!(fs::read_dir(run.trace.join("manifest")).expect("a trace").count(), before);
    // Neither is a folder taken that holds something else.
    let other = scratch.path().join("other");
    fs::create_dir(&other).expect("a folder");
    fs::write(other.join("thesis.tex"), "precious").expect("a file");
    let run = scratch.gputrace(&["-o", other.to_str().expect("a plain path"), "--", "echo", "ran"]).expect(125);
    one_line(&run.stderr, "holds no trace");
}

#[test]
fn three_launchers_of_one_run_share_a_trace() {
    let scratch = Scratch::new();
    shim();
    let trace = scratch.path().join("shared");
    let cuda = program("cuda_routes").display().to_string();
    let one = |rank: u32| {
        format!("RANK={rank} LOCAL_RANK={rank} {} -o {} -- {cuda} dlopen & ", gputrace().display(), trace.display())
    };
    let script = format!("export SLURM_JOB_ID=7; {}{}{}wait", one(0), one(1), one(2));
    let run = scratch.shell(&script).with_driver(Driver::Plain).plain().expect(0);
    assert_eq!(run.text().lines().count(), 3, "{}\n{}", run.text(), run.stderr);
    let trace_read = Trace::open(&trace);
    assert_eq!(trace_read.manifests().len(), 3);
    assert!(trace_read.manifests().iter().all(|manifest| manifest.complete));
    let launches = trace_read.table("launches");
    let mut processes: Vec<i64> = launches.rows().map(|row| row.int("process_id")).collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!((launches.len(), processes.len()), (9, 3));
    let table = trace_read.table("processes");
    let mut ranks: Vec<_> = table.rows().map(|row| (row.maybe_int("rank"), row.maybe_int("local_rank"))).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [(Some(0), Some(0)), (Some(1), Some(1)), (Some(2), Some(2))]);
    trace_read.assert_balanced();
    assert_eq!(reported_launches(&scratch, &trace), 9);
}

/// Whether a process has ended; nobody may have waited for it.
fn gone_of(pid: i32) -> impl Fn() -> Option<()> {
    let path = format!("/proc/{pid}/environ");
    move || (!Path::new(&path).exists() || fs::read(&path).is_ok_and(|text| text.is_empty())).then_some(())
}

#[test]
fn sessions_are_removed_also_those_of_killed_launchers() {
    let scratch = Scratch::new();
    scratch.target("true").traced().expect(0);
    assert_eq!(scratch.sessions(), Vec::<std::path::PathBuf>::new());
    let mut started = scratch.target("sleep").arg("1000").start_to_be_killed();
    poll(Duration::from_secs(30), || (!scratch.sessions().is_empty()).then_some(())).expect("a session");
    let sleeper = child_of(started.pid());
    // One that is not awake yet when its launcher dies cannot go on.
    heir_of(&started);
    started.kill();
    assert_eq!(scratch.sessions().len(), 1);
    kill(sleeper);
    poll(Duration::from_secs(30), gone_of(sleeper)).expect("it ends");
    poll(Duration::from_secs(30), || scratch.sessions().is_empty().then_some(()))
        .expect("the heir removes the session");
    // Where there is none any more, the next launcher does.
    let mut started = scratch.target("sleep").arg("1000").start_to_be_killed();
    poll(Duration::from_secs(30), || (!scratch.sessions().is_empty()).then_some(())).expect("a session");
    let sleeper = child_of(started.pid());
    kill_with_heirs(&mut started);
    kill(sleeper);
    poll(Duration::from_secs(30), gone_of(sleeper)).expect("it ends");
    scratch.target("true").traced().expect(0);
    assert_eq!(scratch.sessions(), Vec::<std::path::PathBuf>::new());
}
