//! A session that outlives its collectors: what is traced while one is stopped, killed or has not come yet is in the trace, and nothing
//! is there twice.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::faults::one_line;
use crate::switching::{grids, made};
use crate::util::{
    Driver, Scratch, Trace, count, driver_folder, gputrace, linked_with_library, poll, program, program_with, shim,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A session in a scratch folder.
pub(crate) struct Session<'a> {
    scratch: &'a Scratch,
    pub(crate) root: PathBuf,
    pub(crate) trace: PathBuf,
    collector: Option<Child>,
    pub(crate) options: &'static [&'static str],
    /// Of the collector's environment.
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(scratch: &'a Scratch, options: &'static [&'static str]) -> Session<'a> {
        shim();
        let (root, trace) = (scratch.path().join("session"), scratch.path().join("trace"));
        Session { scratch, root, trace, collector: None, options, variables: Vec::new() }
    }

    /// Starts a collector, and waits until it is at work.
    pub(crate) fn collect(&mut self) {
        let mut command = Command::new(gputrace());
        command
            .arg("collect")
            .arg(&self.root)
            .args(self.options)
            .arg("-o")
            .arg(&self.trace)
            .envs(self.variables.iter().cloned())
            .current_dir(self.scratch.path());
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("gputrace starts");
        self.collector = Some(child);
        self.until_answered_by(self.collector());
    }

    /// Waits until the collector with this pid has it, which may have others before.
    pub(crate) fn until_answered_by(&self, pid: u32) {
        poll(PATIENCE, || self.ask("ping").filter(|said| said.starts_with(&pid.to_string()))).expect("it answers");
    }

    /// The process that collects.
    pub(crate) fn collector(&self) -> u32 {
        self.collector.as_ref().expect("it was started").id()
    }

    fn ask(&self, word: &str) -> Option<String> {
        use std::io::Write;
        let mut stream = std::os::unix::net::UnixStream::connect(self.root.join("s/control")).ok()?;
        writeln!(stream, "{word}").ok()?;
        let mut said = String::new();
        stream.read_to_string(&mut said).ok()?;
        Some(said.strip_prefix("ok ")?.to_owned())
    }

    /// Ends the collector by a signal: its exit code, and what it said.
    pub(crate) fn end(&mut self, signal: i32) -> (Option<i32>, String) {
        let mut child = self.collector.take().expect("it was started");
        // SAFETY: the child was not waited for, so its pid is its own.
        unsafe { libc::kill(child.id() as i32, signal) };
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        (child.wait().expect("it is our child").code(), said)
    }

    /// A program that launches until it is told to stop.
    pub(crate) fn start(&self, file: &Path) -> Child {
        self.start_by(&[], file)
    }

    /// The same by way of other programs: words before its own.
    pub(crate) fn start_by(&self, before: &[&str], file: &Path) -> Child {
        let flags = linked_with_library("libcuda.so.1", &driver_folder(Driver::Plain), &["-l:libcuda.so.1"]);
        let program = program_with("switched", "linked", &flags);
        let mut command = Command::new(gputrace());
        command.arg("env").arg(&self.root).arg("--").args(before).arg(program).arg("loop").arg(file);
        command.env("LD_LIBRARY_PATH", driver_folder(Driver::Plain)).stdout(Stdio::null()).spawn().expect("it starts")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Waits until it has made so many launches more.
    pub(crate) fn until_made(&self, file: &Path, more: i64) {
        let from = made(file).unwrap_or(0);
        poll(PATIENCE, || made(file).filter(|now| *now >= from + more)).expect("the program goes on");
    }

    /// Has the program end; how many launches it made.
    pub(crate) fn stop(&self, mut child: Child, file: &Path) -> u64 {
        fs::write(file.with_extension("stop"), "").expect("a file");
        assert!(child.wait().expect("it is our child").success());
        made(file).expect("a count") as u64
    }

    /// Launches that a report of the trace knows, which reads what the collector has written so far.
    pub(crate) fn on_disk(&self) -> i64 {
        let trace = self.trace.to_string_lossy();
        let report = self.scratch.gputrace(&["report", &trace, "--only", "launch-overhead", "--format", "json"]);
        let report: serde_json::Value = serde_json::from_str(&report.expect(0).text()).expect("JSON");
        report["analyses"]["launch-overhead"]["facts"]["launches"].as_i64().unwrap_or(0)
    }

    fn segments(&self) -> usize {
        let entries = fs::read_dir(self.root.join("s")).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().contains("seg-")).count()
    }

    /// Waits until all programs' ends were seen.
    pub(crate) fn settle(&self) {
        poll(PATIENCE, || (self.segments() == 0).then_some(())).expect("the segments of those that ended go");
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        for file in fs::read_dir(self.scratch.path()).into_iter().flatten().flatten() {
            let _ = fs::write(file.path().with_extension("stop"), "");
        }
        if self.collector.is_some() {
            self.end(libc::SIGKILL);
        }
    }
}

/// Launches of each process that the trace knows: seen, and lost.
pub(crate) fn launches(trace: &Trace) -> Vec<(u64, u64)> {
    let manifests = trace.manifests();
    assert_eq!(manifests.len(), 1, "one collector goes on for the other");
    let mut all: Vec<_> =
        manifests[0].processes.iter().map(|process| count(process, "launch")).map(|c| (c.seen, c.dropped)).collect();
    all.sort_unstable();
    all
}

/// Launches of the one process that the trace knows: seen, lost, and those that have a row.
pub(crate) fn account(trace: &Trace) -> (u64, u64, u64) {
    let [(seen, lost)] = launches(trace)[..] else { panic!("{:?}", launches(trace)) };
    (seen, lost, grids(trace).iter().map(|(_, count)| *count as u64).sum())
}

/// Launches in the sums of a trace.
fn summed(trace: &Trace, table: &str) -> u64 {
    trace.summed(table).iter().filter(|((_, class), _)| class == "launch").map(|(_, count)| *count).sum()
}

#[test]
fn a_collector_is_stopped_and_another_goes_on_and_nothing_is_missing_or_twice() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let (first, second) = (session.file("first"), session.file("second"));
    let early = session.start(&first);
    session.until_made(&first, 500);
    let (code, said) = session.end(libc::SIGTERM);
    assert!(code == Some(0) && said.contains("stopped; 1 processes record on"), "{code:?} {said}");
    // Nobody collects: one runs on, another one comes.
    session.until_made(&first, 300);
    let late = session.start(&second);
    session.until_made(&second, 200);
    session.collect();
    session.until_made(&first, 300);
    let made = [session.stop(early, &first), session.stop(late, &second)];
    session.settle();
    assert_eq!(session.end(libc::SIGTERM).0, Some(0));
    let trace = Trace::open(&session.trace);
    let mut wanted = made.map(|launches| (launches, 0));
    wanted.sort_unstable();
    assert_eq!(launches(&trace), wanted);
    let recorded: usize = grids(&trace).iter().map(|(_, count)| count).sum();
    assert_eq!(recorded as u64, made[0] + made[1], "each launch has one row");
    let manifest = trace.manifest();
    assert_eq!(manifest.recovered, None);
    assert!(
        manifest.notes.iter().any(|note| note.contains("was stopped for") && note.contains("went on")),
        "{:?}",
        manifest.notes
    );
    trace.assert_balanced();
    let path = session.trace.to_string_lossy().into_owned();
    scratch.gputrace(&["report", &path, "--only", "launch-overhead"]).expect(0);
}

#[test]
fn after_a_killed_collector_the_next_one_goes_on() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let file = session.file("count");
    let running = session.start(&file);
    session.until_made(&file, 2000);
    // What is on the disk is not lost.
    poll(PATIENCE, || (session.on_disk() * 4 > made(&file)? * 3).then_some(())).expect("most of it is on the disk");
    session.end(libc::SIGKILL);
    session.until_made(&file, 300);
    session.collect();
    session.until_made(&file, 300);
    let made = session.stop(running, &file);
    session.settle();
    assert_eq!(session.end(libc::SIGTERM).0, Some(0));
    let trace = Trace::open(&session.trace);
    let recovered = trace.manifest().recovered.expect("it was killed");
    assert!(recovered.taken_over, "{recovered:?}");
    let (seen, lost, recorded) = account(&trace);
    assert_eq!(seen, made);
    assert_eq!(recorded, made - lost, "rows and losses are all launches");
    assert!(lost < made / 2, "{lost} of {made} lost");
    trace.assert_balanced();
}

#[test]
fn programs_start_before_any_collector_and_end_before_it_comes() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    session.end(libc::SIGTERM);
    let file = session.file("count");
    let running = session.start(&file);
    session.until_made(&file, 100);
    let made = session.stop(running, &file);
    assert_eq!(session.segments(), 1);
    session.collect();
    session.settle();
    session.end(libc::SIGTERM);
    assert_eq!(launches(&Trace::open(&session.trace)), [(made, 0)]);
}

#[test]
fn sums_are_all_that_is_kept_unless_told_and_they_are_exact() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &[]);
    session.collect();
    let file = session.file("count");
    let running = session.start(&file);
    session.until_made(&file, 500);
    session.end(libc::SIGTERM);
    session.until_made(&file, 200);
    session.collect();
    session.until_made(&file, 500);
    let made = session.stop(running, &file);
    session.settle();
    session.end(libc::SIGTERM);
    let trace = Trace::open(&session.trace);
    assert_eq!(trace.table("launches").len(), 0);
    assert_eq!(launches(&trace), [(made, 0)]);
    assert_eq!(summed(&trace, "rollups"), made);
}

#[test]
fn sums_are_exact_after_a_killed_collector_too_and_recover_leaves_its_trace_to_the_next_one() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &[]);
    session.collect();
    let file = session.file("count");
    let running = session.start(&file);
    for _ in 0..3 {
        session.until_made(&file, 2000);
        session.end(libc::SIGKILL);
        let refused = scratch.gputrace(&["recover", &session.trace.to_string_lossy()]).expect(1);
        one_line(&refused.stderr, "its session goes on with it");
        session.until_made(&file, 200);
        session.collect();
    }
    session.until_made(&file, 500);
    let made = session.stop(running, &file);
    session.settle();
    session.end(libc::SIGTERM);
    let trace = Trace::open(&session.trace);
    assert_eq!(launches(&trace).iter().map(|(seen, _)| *seen).collect::<Vec<_>>(), [made]);
    for table in ["rollups", "rollup_names"] {
        assert_eq!(summed(&trace, table), made, "{table}");
    }
}

#[test]
fn a_running_session_is_asked_by_its_folder() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full", "--start-paused"]);
    session.collect();
    let file = session.file("count");
    let running = session.start(&file);
    session.until_made(&file, 200);
    let root = session.root.to_string_lossy().into_owned();
    let from = made(&file).expect("a count");
    let told = scratch.gputrace(&["start", &root]).expect(0).text();
    assert_eq!(Path::new(told.trim_end()).canonicalize().ok(), session.trace.canonicalize().ok());
    session.until_made(&file, 200);
    assert!(scratch.gputrace(&["top", &root, "--once"]).expect(0).text().contains("switched"));
    let made = session.stop(running, &file) as i64;
    session.settle();
    session.end(libc::SIGTERM);
    one_line(&scratch.gputrace(&["top", &root, "--once"]).expect(1).stderr, "no collector is at work there");
    let recorded: usize = grids(&Trace::open(&session.trace)).iter().map(|(_, count)| count).sum();
    assert!(recorded >= 200 && recorded as i64 <= made - from + 5, "{recorded} of {from}..{made}");
}

#[test]
fn a_session_in_a_folder_of_its_own_is_found_by_its_trace_its_programs_and_its_collector() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let file = session.file("count");
    let running = session.start(&file);
    session.until_made(&file, 200);
    let trace = session.trace.to_string_lossy().into_owned();
    let collector = session.collector.as_ref().expect("it runs").id().to_string();
    for name in [&trace, &running.id().to_string(), &collector] {
        let text = scratch.gputrace(&["top", name, "--once"]).expect(0).text();
        assert!(
            text.contains("1 process") && text.contains("switched") && !text.contains("FINISHED"),
            "{name}: {text}"
        );
        for word in ["stop", "start"] {
            let told = scratch.gputrace(&[word, name]).expect(0).text();
            assert_eq!(Path::new(told.trim_end()).canonicalize().ok(), session.trace.canonicalize().ok(), "{name}");
        }
    }
    let report = scratch.gputrace(&["report", &trace, "--only", "syncs"]).expect(0);
    assert!(report.stderr.contains("is still being written"), "{}", report.stderr);
    // Nobody is there: the trace is what there is, and who traces the program would be its folder's next collector.
    session.end(libc::SIGTERM);
    assert!(scratch.gputrace(&["top", &trace, "--once"]).expect(0).text().contains("FINISHED: the whole run"));
    one_line(&scratch.gputrace(&["stop", &trace]).expect(2).stderr, &session.root.to_string_lossy());
    one_line(
        &scratch.gputrace(&["stop", &running.id().to_string()]).expect(1).stderr,
        "no collector is at work there; gputrace collect ",
    );
    session.collect();
    session.stop(running, &file);
    session.settle();
    session.end(libc::SIGTERM);
}

#[test]
fn an_image_ends_where_the_exec_of_the_next_one_is() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    let file = session.file("count");
    // A shell that waits for the collector to see it, then another one that does not.
    let (waits, at_once) = ("sleep 1; exec \"$@\"", "exec \"$@\"");
    let child = session.start_by(&["sh", "-c", waits, "sh", "sh", "-c", at_once, "sh"], &file);
    session.until_made(&file, 200);
    let top = || scratch.gputrace(&["top", &session.root.to_string_lossy(), "--once"]).expect(0).text();
    let head = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    // The shell's sleep is one process more, which has ended as well.
    let told = poll(Duration::from_secs(5), || Some(top()).filter(|text| head(text).contains("1 process, 3 ended")));
    let text = told.unwrap_or_else(top);
    assert!(head(&text).contains("1 process, 3 ended"), "{text}");
    let pid = child.id() as i64;
    let made = session.stop(child, &file);
    session.settle();
    session.end(libc::SIGTERM);
    let trace = Trace::open(&session.trace);
    let processes = trace.table("processes");
    let images = processes.rows().filter(|row| row.int("pid") == pid);
    let mut times: Vec<_> = images.map(|row| (row.int("start_ns"), row.int("end_ns"))).collect();
    times.sort_unstable();
    assert!(times.len() == 3 && times.windows(2).all(|two| two[0].1 == two[1].0), "{times:?}");
    assert_eq!(launches(&trace).iter().map(|(seen, _)| *seen).sum::<u64>(), made);
}

#[test]
fn an_environment_is_for_shells_too() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--malloc", "full", "--malloc-stacks", "off", "--detail", "full"]);
    session.collect();
    let counted = program("malloc_counted").display().to_string();
    let root = session.root.display().to_string();
    let script = format!(
        "eval \"$('{}' env {root})\"; case $LD_PRELOAD in *:*) exit 9;; esac; exec {counted} 10",
        gputrace().display()
    );
    let run = scratch.shell(&script).plain();
    assert_eq!(run.expect(0).stderr, "");
    session.settle();
    session.end(libc::SIGTERM);
    let manifest = Trace::open(&session.trace).manifest();
    let traced =
        manifest.processes.iter().find(|process| process.exe.ends_with("malloc_counted")).expect("it is in the trace");
    assert!(count(traced, "host_alloc").recorded > 0);
    let plain = scratch.gputrace(&["env", &root, "--format", "plain"]).expect(0).text();
    assert!(plain.lines().any(|line| line == "GPUTRACE_SEGMENT=file") && plain.starts_with("LD_PRELOAD=/"), "{plain}");
}

#[test]
fn what_is_wrong_with_a_session_is_one_line() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &[]);
    let root = session.root.display().to_string();
    one_line(&scratch.gputrace(&["env", &root]).expect(1).stderr, "no session; gputrace collect");
    session.collect();
    let busy = scratch.gputrace(&["collect", &root]).expect(1);
    one_line(&busy.stderr, "is at work there; stop it first");
    session.end(libc::SIGTERM);
    one_line(&scratch.gputrace(&["collect", &root, "--", "true"]).expect(2).stderr, "gputrace env -- COMMAND");
    let other = scratch.path().join("other");
    fs::create_dir(&other).expect("a folder");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o777)).expect("it is ours");
    one_line(&scratch.gputrace(&["collect", &other.display().to_string()]).expect(1).stderr, "chmod 700");
    // A command that there is not.
    let run = scratch.gputrace(&["env", &root, "--", "no-such-command"]).expect(127);
    one_line(&run.stderr, "no-such-command");
}

#[test]
fn a_collector_that_does_not_start_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let refused = |root: &Path| {
        let run = scratch.gputrace(&["collect", &root.display().to_string(), "-o", "/proc/no/trace"]).expect(1);
        one_line(&run.stderr, "/proc/no/trace");
    };
    let new = scratch.path().join("new");
    refused(&new);
    assert!(!new.exists());
    let empty = scratch.path().join("empty");
    fs::create_dir(&empty).expect("a folder");
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o700)).expect("it is ours");
    refused(&empty);
    let mode = fs::metadata(&empty).expect("it stays").permissions().mode();
    assert_eq!((fs::read_dir(&empty).expect("it is ours").count(), mode & 0o777), (0, 0o700));
    // A session that was there stays.
    let mut session = Session::new(&scratch, &[]);
    session.collect();
    session.end(libc::SIGTERM);
    refused(&session.root);
    assert!(session.root.join("about.json").is_file() && session.root.join("s").is_dir());
}
