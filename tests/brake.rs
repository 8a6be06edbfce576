//! The brake: a command that dies twice by a fault soon after its start is not traced again until somebody says so.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::util::{Finished, Scratch, Target, gputrace, poll, shim};

/// State is kept in the scratch folder: other tests keep none.
fn target<'a>(scratch: &'a Scratch, signal: &str) -> Target<'a> {
    scratch
        .shell("echo here; kill -$SIGNAL $$")
        .env("SIGNAL", signal)
        .env("XDG_STATE_HOME", scratch.path().join("state"))
}

fn doctor(scratch: &Scratch, arguments: &[&str]) -> Finished {
    let doctor = scratch.target(crate::util::gputrace()).arg("doctor").args(arguments);
    doctor.env("XDG_STATE_HOME", scratch.path().join("state")).plain()
}

#[test]
fn a_command_that_faults_twice_runs_untraced_with_its_own_end_until_the_brake_is_cleared() {
    let scratch = Scratch::new();
    let first = target(&scratch, "SEGV").traced().expect(139);
    assert!(first.trace.is_dir() && !first.stderr.contains("untraced"), "{}", first.stderr);
    let second = target(&scratch, "ABRT").traced().expect(134);
    let said = "gputrace: that was the second time that it died soon after its start: it runs untraced from now on; ";
    assert!(second.trace.is_dir() && second.stderr.contains(said), "{}", second.stderr);
    for (signal, code) in [("SEGV", 139), ("TERM", 143)] {
        let braked = target(&scratch, signal).traced().expect(code);
        assert_eq!(braked.text(), "here\n");
        let [line] = &braked.stderr.lines().collect::<Vec<_>>()[..] else { panic!("{}", braked.stderr) };
        assert!(line.contains("died twice soon after its start while it was traced (SIGSEGV, SIGABRT)"), "{line}");
        assert!(
            line.ends_with("runs untraced, without a trace; gputrace doctor --clear-brake traces it again"),
            "{line}"
        );
        assert!(!braked.trace.exists());
    }
    let asked = doctor(&scratch, &[]);
    assert!(asked.text().lines().any(|line| line.starts_with("note  brake  ") && line.contains("sh echo here; kill -$SIGNAL $$ died twice")));
    let cleared = doctor(&scratch, &["--clear-brake"]).expect(0);
    assert!(cleared.text().ends_with("sh echo here; kill -$SIGNAL $$ is traced again\n"), "{}", cleared.text());
    assert!(target(&scratch, "SEGV").traced().expect(139).trace.is_dir());
    assert_eq!(doctor(&scratch, &["--clear-brake"]).expect(0).text(), "no command was braked here\n");
}

#[test]
fn other_ends_and_a_state_that_cannot_be_kept_engage_nothing() {
    let scratch = Scratch::new();
    for _ in 0..3 {
        assert!(target(&scratch, "KILL").traced().expect(137).trace.is_dir());
        let nowhere = target(&scratch, "SEGV").env("XDG_STATE_HOME", "/dev/null");
        let nowhere = nowhere.traced().expect(139);
        assert!(nowhere.trace.is_dir() && nowhere.stderr.contains("this death does not count"), "{}", nowhere.stderr);
    }
}

#[test]
fn a_program_of_a_session_that_faults_twice_is_started_untraced_until_the_brake_is_cleared() {
    let scratch = Scratch::new();
    shim();
    let (root, state) = (scratch.path().join("session"), scratch.path().join("state"));
    let of = |words: &[&str]| {
        let mut command = Command::new(gputrace());
        command.args(words).env("XDG_STATE_HOME", &state).current_dir(scratch.path()).stdin(Stdio::null());
        command
    };
    let root_text = root.to_str().expect("text");
    let collect =
        || Collector(of(&["collect", root_text, "-o", "trace"]).stderr(Stdio::piped()).spawn().expect("it starts"));
    let signs = || {
        let entries = fs::read_dir(root.join("s")).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("braked-")).count()
    };
    let deaths = || {
        let files = fs::read_dir(state.join("gputrace/brake")).into_iter().flatten().flatten();
        let files = files.flat_map(|host| fs::read_dir(host.path()).into_iter().flatten().flatten());
        files.map(|file| fs::read_to_string(file.path()).unwrap_or_default().lines().count()).sum::<usize>()
    };
    // Whether the shim is at work in it: it has made a segment.
    let run = || {
        // The program's first word is no UTF-8.
        let script = OsStr::from_bytes(b"ls $GPUTRACE_SESSION | grep -c -- seg-$$-; kill -SEGV $$; : \xff");
        let out = of(&["env", root_text, "--", "/bin/sh", "-c"]).arg(script).output().expect("it runs");
        String::from_utf8_lossy(&out.stdout).trim() != "0"
    };
    let patience = Duration::from_secs(30);
    let mut collector = collect();
    poll(patience, || root.join("about.json").exists().then_some(())).expect("it is at work");
    for nth in 1..=2 {
        assert!(run());
        if poll(patience, || (deaths() == nth).then_some(())).is_none() && nth == 1 && !kernel_tells() {
            // Before Linux 6.15 nobody but its parent is told how a process ended.
            return;
        }
        assert_eq!(deaths(), nth);
    }
    poll(patience, || (signs() == 1).then_some(())).expect("a sign");
    assert!(!run(), "it is started untraced");
    // Also while no collector is there, and under the next one.
    // SAFETY: the child was not waited for, so its pid is its own.
    unsafe { libc::kill(collector.0.id() as i32, libc::SIGTERM) };
    let mut said = String::new();
    collector.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    collector.0.wait().expect("it is our child");
    assert!(said.contains("/bin/sh") || said.contains("dash"), "{said}");
    assert!(said.contains("died the second time soon after its start: it is started untraced from now on; gputrace doctor --clear-brake"), "{said}");
    assert!(!run());
    let told = of(&["report", "trace"]).output().expect("it runs");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let head = told.lines().find(|line| line.starts_with("gputrace: ")).unwrap_or_default();
    assert!(head.contains("  a session of ") && !head.contains("signal"), "{told}");
    assert!(told.contains("\ngputrace collect was stopped: ") && !told.contains("was killed"), "{told}");
    let _next = collect();
    poll(patience, || root.join("s/control").exists().then_some(())).expect("it is at work");
    assert!(!run());
    let cleared = of(&["doctor", "--clear-brake"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&cleared.stdout).contains("is traced again"));
    poll(patience, || (signs() == 0).then_some(())).expect("the collector takes the sign away");
    assert!(run());
}

/// A collector that does not outlive its test.
struct Collector(Child);

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process that is no child of ours tells how it ended: from Linux 6.15 on.
fn kernel_tells() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|number| number.trim().parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}
