//! Who goes on for a gputrace that was killed: there is always another one, it is heard, and it counts deaths.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::faults::child_of;
use crate::recovering::{all_with, heirs, holds, is_complete, kill, words};
use crate::util::{Driver, Scratch, Started, Target, Trace, count, poll, program};

/// How long anything here may take at most.
const LONG: Duration = Duration::from_secs(60);

/// The number in a file that `victim` shares with us.
fn counted(file: &Path) -> u64 {
    let bytes = fs::read(file).unwrap_or_default();
    bytes.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// A victim that works until it is killed.
struct Victim {
    started: Started,
    pid: i32,
    file: PathBuf,
    /// The words of its gputrace.
    words: Vec<u8>,
}

impl Victim {
    fn new(started: Started, file: PathBuf) -> Victim {
        poll(LONG, || (counted(&file) >= 300).then_some(())).expect("the victim works");
        let (pid, words) = (child_of(started.pid()), words(started.pid()));
        Victim { started, pid, file, words }
    }

    fn start(scratch: &Scratch) -> Victim {
        let file = scratch.path().join("count");
        Victim::new(target(scratch, &file).start_to_be_killed(), file)
    }

    /// An heir that is none of these, and has what it needs.
    fn heir(&self, known: &[i32]) -> i32 {
        let new = || heirs(&self.words).into_iter().find(|pid| !known.contains(pid));
        let heir = poll(LONG, new).expect("there is an heir");
        holds(heir, 1);
        heir
    }

    /// Ends it. Its trace misses nothing at its end, and nobody is left.
    fn end(self) -> Trace {
        let so_far = counted(&self.file);
        poll(LONG, || (counted(&self.file) >= so_far + 300).then_some(())).expect("it runs on");
        kill(self.pid);
        poll(LONG, || is_complete(&self.started.trace).then_some(())).expect("somebody seals the trace");
        poll(LONG, || all_with(&self.words).is_empty().then_some(())).expect("nobody is left");
        let trace = Trace::open(&self.started.trace);
        trace.assert_balanced();
        let (account, came_back) = (count(&trace.process(self.pid), "launch"), counted(&self.file));
        assert!(account.seen == came_back || account.seen == came_back + 1, "{came_back} came back: {account:?}");
        let (names, launches) = (trace.names(), trace.table("launches"));
        assert_eq!(launches.len() as u64, account.recorded);
        assert!(launches.rows().all(|row| row.maybe_int("name_id").is_some_and(|id| names[&id] == "spin_ns_0")));
        let last = launches.rows().map(|row| row.int("grid_x") as u64).max();
        assert!(last == Some(came_back) || last == Some(came_back + 1), "{came_back} came back: {last:?}");
        assert!(trace.manifest().recovered.is_some_and(|recovered| recovered.taken_over));
        trace
    }
}

fn target<'a>(scratch: &'a Scratch, file: &Path) -> Target<'a> {
    scratch.target(program("victim")).arg(file).args(["1000000", "1000"]).with_instant_driver()
}

#[test]
fn an_heir_that_is_killed_is_followed_by_another_one_which_knows_as_much() {
    let scratch = Scratch::new();
    let mut victim = Victim::start(&scratch);
    let heir = victim.heir(&[]);
    kill(heir);
    victim.heir(&[heir]);
    victim.started.kill();
    victim.end();
    poll(LONG, || scratch.sessions().is_empty().then_some(())).expect("the heir removes the session");
}

#[test]
fn an_heir_that_goes_on_and_is_killed_has_one_itself() {
    let scratch = Scratch::new();
    let mut victim = Victim::start(&scratch);
    let first = victim.heir(&[]);
    let killed = victim.started.pid();
    victim.started.kill();
    let second = victim.heir(&[first]);
    // It goes by its own pid, and is found by that of the dead one as well.
    let trace = victim.started.trace.display().to_string();
    let said = scratch.gputrace(&["report", &trace]).stderr;
    assert!(said.contains(&format!("is still being written, by gputrace {first}:")), "{said}");
    for pid in [first, killed] {
        let refused = scratch.gputrace(&["dump", &pid.to_string()]).expect(1).stderr;
        assert!(refused.contains("no flight recorder"), "{pid}: {refused}");
    }
    kill(first);
    victim.heir(&[first, second]);
    kill(second);
    victim.end();
}

#[test]
fn what_a_flight_recorder_left_out_is_not_lost_because_it_was_killed() {
    let scratch = Scratch::new();
    let file = scratch.path().join("count");
    let target = target(&scratch, &file).options(["--flight-recorder", "30"]);
    let mut victim = Victim::new(target.start_to_be_killed(), file);
    let heir = victim.heir(&[]);
    let trace = victim.started.trace.clone();
    let account = || {
        let manifests = trace.join("manifest").is_dir().then(|| Trace::open(&trace).manifests())?;
        let mut processes = manifests.into_iter().flat_map(|manifest| manifest.processes);
        processes.find(|process| process.pid == victim.pid).map(|process| count(&process, "launch"))
    };
    let before = poll(LONG, || account().filter(|account| account.left_out >= 1000)).expect("it waits in memory");
    victim.started.kill();
    victim.heir(&[heir]);
    kill(victim.pid);
    poll(LONG, || is_complete(&trace).then_some(())).expect("the heir seals the trace");
    let account = count(&Trace::open(&trace).process(victim.pid), "launch");
    assert!(account.is_balanced() && account.left_out >= before.left_out, "{before:?}, then {account:?}");
    assert!(account.dropped <= account.seen - before.left_out, "{before:?}, then {account:?}");
}

#[test]
fn it_is_said_on_stderr_who_was_killed_and_nobody_waits_for_its_end_because_of_an_heir() {
    let scratch = Scratch::new();
    let file = scratch.path().join("count");
    let (started, mut heard) = target(&scratch, &file).start_to_be_killed_and_heard();
    let mut victim = Victim::new(started, file);
    let (own, heir) = (victim.started.pid(), victim.heir(&[]));
    victim.started.kill();
    let trace = victim.started.trace.display();
    let said = format!(
        "gputrace: gputrace (process {own}) was killed, and process {heir} goes on; the summary will be in {trace}/summary.txt\n"
    );
    victim.heir(&[heir]);
    victim.end();
    let mut text = String::new();
    heard.read_to_string(&mut text).expect("text");
    assert_eq!(text, said);
}

#[test]
fn a_file_has_what_the_heir_says_behind_what_was_said_before() {
    let scratch = Scratch::new();
    let (file, said) = (scratch.path().join("count"), scratch.path().join("said"));
    // What the shell writes last stands behind the heir's line: both know how far the file goes.
    let script = format!(
        "exec 2>{said}; echo begun >&2; {gputrace} -o {trace} -- sh -c '{victim} {count} 6000 1000; echo ended >&2' &
        until test -e {count} && test $(od -An -tu8 -N8 {count}) -gt 300; do sleep 0.05; done
        kill -9 $!
        until grep -q ended {said}; do sleep 0.05; done",
        said = said.display(),
        gputrace = crate::util::gputrace().display(),
        trace = scratch.new_trace().display(),
        victim = program("victim").display(),
        count = file.display(),
    );
    crate::util::shim();
    scratch.shell(&script).with_instant_driver().plain().expect(0);
    let text = fs::read_to_string(&said).expect("a file");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0] == "begun" && lines.last() == Some(&"ended"), "{text}");
    assert_eq!(lines.iter().filter(|line| line.contains(") was killed, and process ")).count(), 1, "{text}");
}

/// One run of a command that faults after its gputrace was killed. Whether it was seen how it ended.
fn fault(scratch: &Scratch) -> bool {
    let file = scratch.path().join("count");
    let _ = fs::remove_file(&file);
    let started = target(scratch, &file).env("XDG_STATE_HOME", scratch.path().join("state")).start_to_be_killed();
    let mut victim = Victim::new(started, file);
    victim.heir(&[]);
    victim.started.kill();
    // SAFETY: numbers only; the process is known to be ours.
    assert_eq!(unsafe { libc::kill(victim.pid, libc::SIGSEGV) }, 0);
    poll(LONG, || all_with(&victim.words).is_empty().then_some(())).expect("nobody is left");
    Trace::open(&victim.started.trace).manifest().root.is_some_and(|root| root.exit_signal == Some(libc::SIGSEGV))
}

#[test]
fn a_death_that_only_the_heir_saw_counts_for_the_brake() {
    let scratch = Scratch::new();
    for _ in 0..2 {
        if !fault(&scratch) {
            // Before Linux 6.15 nobody but its parent is told how a process ended.
            return;
        }
    }
    let doctor = scratch.target(crate::util::gputrace()).arg("doctor");
    let text = doctor.env("XDG_STATE_HOME", scratch.path().join("state")).plain().text();
    assert!(text.lines().any(|line| line.starts_with("note  brake  ") && line.contains("died twice")), "{text}");
}

#[test]
fn a_trace_that_is_removed_while_it_is_written_goes_on_in_a_new_folder_and_says_so() {
    let scratch = Scratch::new();
    let file = scratch.path().join("count");
    let (started, mut heard) = target(&scratch, &file).start_to_be_killed_and_heard();
    let victim = Victim::new(started, file);
    let manifest = victim.started.trace.join("manifest");
    poll(LONG, || manifest.is_dir().then_some(())).expect("a trace");
    // As one step: who removes file by file meets new ones.
    fs::rename(&victim.started.trace, scratch.path().join("away")).expect("it is ours");
    let again = || fs::read_dir(&manifest).ok()?.flatten().next();
    poll(LONG, again).expect("the account is written again");
    kill(victim.pid);
    let Victim { started, .. } = victim;
    let trace = started.trace.clone();
    let mut text = String::new();
    heard.read_to_string(&mut text).expect("text");
    drop(started);
    let said = "the trace was removed while it was written: what had been written until then is gone";
    assert_eq!(text.lines().filter(|line| *line == format!("gputrace: {said}")).count(), 1, "{text}");
    let trace = Trace::open(&trace);
    assert!(trace.manifest().complete && trace.manifest().notes.iter().any(|note| note == said));
}

#[test]
fn who_goes_on_has_one_row_of_each_window_of_gpu_times() {
    let scratch = Scratch::new();
    let target = scratch.target(program("incident")).args(["120000", "nothing"]).with_driver(Driver::Plain);
    let mut started = target.options(["--gpu-time", "full"]).start_to_be_killed();
    let trace = started.trace.to_string_lossy().into_owned();
    let known = || {
        let found = scratch.gputrace(&["report", &trace, "--only", "gpu-utilisation"]);
        found.text().contains("GPU times are known in 1 window").then_some(())
    };
    poll(LONG, known).expect("the window that is open is told of");
    let (pid, words) = (child_of(started.pid()), words(started.pid()));
    started.kill();
    let taken = || Trace::open(&started.trace).manifest().recovered.filter(|recovered| recovered.taken_over);
    poll(LONG, taken).expect("somebody goes on");
    kill(pid);
    poll(LONG, || is_complete(&started.trace).then_some(())).expect("somebody seals the trace");
    poll(LONG, || all_with(&words).is_empty().then_some(())).expect("nobody is left");
    let windows = Trace::open(&started.trace).table("gpu_windows");
    let found: Vec<_> = windows.rows().map(|row| (row.int("start_ns"), row.int("window_ns"))).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    // Who goes on numbers calls by the driver's calls, of which some were lost, and not by those of malloc: steps are found by these numbers.
    let trace = Trace::open(&started.trace);
    let process = trace.process(pid);
    let seen = |classes: &[&str]| classes.iter().map(|class| count(&process, class).seen).sum::<u64>();
    let (calls, of_malloc) = (seen(&["api", "launch", "module", "sync"]), seen(&["host_alloc", "host_free"]));
    let last = trace.table("launches").rows().map(|row| row.int("correlation_id") as u64 & 0xffff_ffff).max();
    // What waited in the ring then is counted twice.
    assert!(of_malloc > calls && last.is_some_and(|last| last < 2 * calls), "{last:?}: {calls}, {of_malloc}");
}
