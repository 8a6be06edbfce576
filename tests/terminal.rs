//! What gputrace says beside its results: bars that come and go, nothing with --quiet, styles where they are wanted and nowhere else.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::faults::one_line;
use crate::util::{Scratch, gputrace, on_a_terminal, shim};

/// Whoever waits for so long has seen a bar, which comes after a second.
const LONG: Duration = Duration::from_millis(2500);
const ESCAPE: char = '\u{1b}';

/// A profile with so many launches, each with its kernel.
fn profile(scratch: &Scratch, launches: u32) -> PathBuf {
    let mut text = String::from("{\"schemaVersion\": 1, \"traceEvents\": [\n");
    for id in 1..=launches {
        let at = id * 20;
        let _ = write!(
            text,
            "{{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":7,\"tid\":7,\"ts\":{at},\"dur\":3,\"args\":{{\"correlation\":{id}}}}},\n\
             {{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k{}\",\"pid\":0,\"tid\":7,\"ts\":{},\"dur\":9,\"args\":{{\"correlation\":{id},\"stream\":7,\"device\":0}}}},\n",
            id % 50,
            at + 8,
        );
    }
    let text = text.trim_end_matches(",\n").to_owned() + "\n]}\n";
    scratch.file(&format!("profile{launches}.json"), text)
}

fn command(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new(gputrace());
    command.args(arguments).current_dir(scratch.path());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn long_work_has_a_bar_that_is_gone_before_the_result() {
    let scratch = Scratch::alone();
    // However fast this machine is: as much as makes both commands long.
    let mut launches = 60_000;
    let (file, report) = loop {
        let file = profile(&scratch, launches).to_string_lossy().into_owned();
        let trace = format!("piped{launches}");
        let timed = |arguments: &[&str]| {
            let began = Instant::now();
            let done = scratch.gputrace(arguments).expect(0);
            assert!(!done.stderr.contains(ESCAPE) && !done.stderr.contains('\r'), "{}", done.stderr);
            assert!(!done.text().contains(ESCAPE) && !done.stderr.contains("reading"), "{}", done.stderr);
            (began.elapsed(), done.stdout)
        };
        let (import, _) = timed(&["import", &file, "-o", &trace]);
        let (report, text) = timed(&["report", &trace]);
        if import.min(report) > LONG {
            break (file, text);
        }
        launches *= 2;
    };
    let bar = |raw: &str, what: &str| raw.contains(&format!("gputrace: {what}")) && raw.contains(" %  ");
    let shown = on_a_terminal(command(&scratch, &["import", &file, "-o", "t"]));
    assert_eq!(shown.code, Some(0), "{}", shown.raw);
    assert!(bar(&shown.raw, "reading ") && shown.raw.contains("MiB"), "{}", shown.raw);
    let [imported, next] = shown.lines.as_slice() else { panic!("{:?}", shown.lines) };
    assert!(imported.contains(" events imported") && next.starts_with("gputrace: next: "), "{:?}", shown.lines);

    let shown = on_a_terminal(command(&scratch, &["report", "t"]));
    assert!(shown.code == Some(0) && bar(&shown.raw, "reading"), "{}", shown.raw);
    assert_eq!(shown.lines, [""; 0], "the bar is gone");
    let same = |text: &[u8]| String::from_utf8_lossy(text).lines().count();
    assert_eq!(same(&shown.stdout), same(&report), "a bar is no part of the result");

    let quiet = on_a_terminal(command(&scratch, &["--quiet", "report", "t"]));
    assert_eq!((quiet.raw.as_str(), quiet.stdout), ("", shown.stdout), "and with --quiet there is none");
    let quiet = on_a_terminal(command(&scratch, &["import", "--quiet", &file, "-o", "quiet"]));
    assert_eq!((quiet.raw.as_str(), quiet.code), ("", Some(0)));
}

#[test]
fn what_is_short_has_no_bar() {
    let scratch = Scratch::new();
    let file = profile(&scratch, 10).to_string_lossy().into_owned();
    let shown = on_a_terminal(command(&scratch, &["import", &file, "-o", "t"]));
    assert!(shown.code == Some(0) && !shown.raw.contains("reading"), "{}", shown.raw);
}

#[test]
fn with_quiet_errors_are_said_and_nothing_else() {
    let scratch = Scratch::new();
    shim();
    let said = |arguments: &[&str], code: i32| {
        let done = scratch.gputrace(arguments).expect(code);
        (done.text(), done.stderr)
    };
    let nothing = (String::new(), String::new());
    assert_eq!(said(&["--quiet", "-o", "t", "--", "/bin/sh", "-c", "exit 3"], 3), nothing);
    assert!(scratch.path().join("t/summary.txt").exists(), "who wants it later finds it");
    let noisy = said(&["record", "--quiet", "-o", "u", "--", "/bin/sh", "-c", "echo out; echo err >&2"], 0);
    assert_eq!(noisy, ("out\n".to_owned(), "err\n".to_owned()), "what the command says it says");
    assert_eq!(said(&["--quiet", "recover", "t"], 0), nothing);
    assert_eq!(said(&["export", "t", "--format", "csv", "-o", "csv", "--quiet"], 0), nothing);
    let file = profile(&scratch, 10).to_string_lossy().into_owned();
    assert_eq!(said(&["import", &file, "-o", "i", "--quiet"], 0), nothing);
    let (report, rest) = said(&["--quiet", "report", "t"], 0);
    assert!(report.contains("exit 3") && rest.is_empty(), "{report} {rest}");
    for (arguments, code, error) in [
        (&["--quiet", "report", "nowhere"][..], 1, "nowhere"),
        (&["--quiet", "recover", "nowhere"], 2, "no trace"),
        (&["--quiet", "--", "no-such-command"], 127, "command not found"),
        (&["--quiet", "report", "t", "--no-such-option"], 2, "--no-such-option"),
        (&["--quiet"], 125, "no command given"),
        (&["--color", "never", "lunch"], 125, "lunch: no such subcommand"),
    ] {
        one_line(&said(arguments, code).1, error);
    }
}

#[test]
fn text_is_styled_at_a_terminal_or_where_it_is_asked_for_and_its_words_stay() {
    let scratch = Scratch::new();
    shim();
    scratch.target(gputrace()).args(["demo", "-o", "t"]).plain().expect(0);
    let with = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = command(&scratch, arguments);
        command.envs(variables.iter().copied());
        let done = command.output().expect("it runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text")
    };
    let plain = with(&["report", "t"], &[]);
    assert!(!plain.contains(ESCAPE) && plain.contains("\nHOST BOUND: "), "{plain}");
    let styled = with(&["--color", "always", "report", "t"], &[]);
    assert!(styled.contains("\u{1b}[33mHOST BOUND\u{1b}[0m: "), "{styled}");
    assert!(styled.starts_with("\u{1b}[1mgputrace: ") && styled.contains("\n\u{1b}[1m1 the GPU waits"), "{styled}");
    let words = ["\u{1b}[1m", "\u{1b}[33m", "\u{1b}[32m", "\u{1b}[0m"];
    assert_eq!(words.iter().fold(styled.clone(), |text, style| text.replace(style, "")), plain);
    assert_eq!(with(&["report", "t", "--color=always"], &[("NO_COLOR", "1")]), styled, "who asks is answered");
    assert_eq!(with(&["report", "t"], &[("CLICOLOR_FORCE", "1")]), styled);
    assert_eq!(with(&["report", "t"], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), plain);
    assert_eq!(with(&["report", "t", "--color", "never"], &[("CLICOLOR_FORCE", "1")]), plain);
    for format in ["json", "markdown", "html"] {
        assert!(!with(&["report", "t", "--format", format, "--color", "always"], &[]).contains(ESCAPE), "{format}");
    }
    let help = |color: &str| with(&["report", "--help", "--color", color], &[]).contains(ESCAPE);
    assert!(help("always") && !help("auto") && !help("never"));

    let record = |options: &[&str], trace: &str| {
        let mut command = command(&scratch, &[options, &["-o", trace, "--", "true"]].concat());
        command.env("XDG_RUNTIME_DIR", scratch.path());
        on_a_terminal(command)
    };
    let shown = record(&[], "at-terminal");
    assert!(shown.raw.contains("\u{1b}[1mgputrace: true  exit 0"), "{}", shown.raw);
    let kept = std::fs::read_to_string(scratch.path().join("at-terminal/summary.txt")).expect("a summary");
    assert!(!kept.contains(ESCAPE), "{kept}");
    assert!(!record(&["--color", "never"], "never").raw.contains(ESCAPE));
}
