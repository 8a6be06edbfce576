//! The brake: a command that dies twice by a fault soon after its start is not traced again until somebody says so.

use crate::util::{Finished, Scratch, Target};

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
        assert!(line.ends_with("runs untraced; gputrace doctor --clear-brake traces it again"), "{line}");
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
