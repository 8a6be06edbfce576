//! `gputrace top` in a real terminal: what it shows of a run, what keys do, and that the terminal is as it was when it has ended.
//!
//! tmux is the terminal: it takes keys, changes its size, and says what stands on its screen.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::faults::one_line;
use crate::util::{Driver, Finished, Scratch, Started, gputrace, needs, poll, program};

const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a shell in it.
struct Terminal {
    server: String,
}

impl Terminal {
    fn new(scratch: &Scratch, width: u32, height: u32) -> Terminal {
        let terminal = Terminal { server: scratch.path().join("tmux").display().to_string() };
        let size = ["-x".to_owned(), width.to_string(), "-y".to_owned(), height.to_string()];
        let mut arguments: Vec<String> = ["-f", "/dev/null", "new-session", "-d"].map(str::to_owned).into();
        arguments.extend(size);
        // A shell that says nothing of its own but when it is ready.
        let sessions = format!("XDG_RUNTIME_DIR={}", scratch.path().join("run").display());
        let shell = ["env", "-u", "ENV", "-u", "NO_COLOR", "TERM=screen", "PS1=READY$ ", &sessions, "sh"];
        arguments.extend(shell.map(str::to_owned));
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        terminal.tmux(&words);
        terminal.until("READY$", |screen| screen.contains("READY$"));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.args(["-S", &self.server]).args(arguments).env("LC_ALL", "C.UTF-8").env_remove("TMUX");
        tmux.output().expect("tmux runs")
    }

    /// What stands on the screen.
    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// Waits until the screen is so.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let found = poll(PATIENCE, || Some(self.screen()).filter(|screen| is_so(screen)));
        found.unwrap_or_else(|| panic!("no {what} on the screen:\n{}", self.screen()))
    }

    fn keys(&self, keys: &[&str]) {
        let mut arguments = vec!["send-keys"];
        arguments.extend(keys);
        self.tmux(&arguments);
    }

    /// Runs a line in the shell.
    fn run(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.keys(&["Enter"]);
    }

    fn resize(&self, width: u32, height: u32) {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// The terminal is as it was: the first screen, the cursor there, lines and their echo are the terminal's own.
    #[track_caller]
    fn is_as_it_was(&self, code: i32) {
        self.until("word of its end", |screen| screen.contains(&format!("ended {code};")));
        let state = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(String::from_utf8_lossy(&state.stdout).trim(), "0 1", "alternate screen, cursor");
        self.run("stty -a; echo all''said");
        let screen = self.until("modes of the terminal", |screen| screen.contains("allsaid"));
        let modes = screen.lines().find(|line| line.contains("icanon")).unwrap_or_default();
        let has = |mode: &str| modes.split_whitespace().any(|word| word == mode);
        assert!(["isig", "icanon", "echo"].into_iter().all(has), "{screen}");
        self.run("clear");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // This server is the one of this socket.
        self.tmux(&["kill-server"]);
    }
}

/// A program that launches until it is told to end, or for two minutes and more: nobody tells it where a test fails.
fn launches(scratch: &Scratch) -> Started {
    let target = scratch.target(program("incident")).args(["120000", "nothing"]).with_driver(Driver::Plain);
    target.options(["--gpu-time", "full", "--stacks-over", "0"]).start()
}

/// Tells gputrace, and with it the program, to end.
fn end(run: Started) {
    // SAFETY: a process of ours that runs.
    unsafe { libc::kill(run.pid(), libc::SIGTERM) };
    run.wait().expect(143);
}

/// The line that starts top and says how it ended.
fn top(arguments: &str) -> String {
    format!("{} top {arguments}; echo \"ended $?;\"", gputrace().display())
}

fn quoted(path: &Path) -> String {
    gputrace_collectors::quote(&path.to_string_lossy())
}

#[test]
fn a_run_is_shown_while_it_runs_keys_are_obeyed_and_the_terminal_is_given_back() {
    if !needs(&["tmux"]) {
        return;
    }
    let scratch = Scratch::new();
    let run = launches(&scratch);
    let terminal = Terminal::new(&scratch, 160, 40);
    terminal.run(&top(&format!("{} --interval 0.2", run.pid())));
    let screen = terminal.until("launches, busy time and kernels", |screen| {
        let busy = screen.lines().any(|line| line.contains("incident") && line.contains(" % "));
        // The head knows that once CUPTI has told, which takes some tenths of a second.
        let head = screen.contains("GPU busy");
        head && busy && screen.contains("COMMAND") && screen.contains("KERNEL (last ")
    });
    assert!(screen.contains("h help, q quit"), "{screen}");
    terminal.keys(&["h"]);
    terminal.until("help", |screen| screen.contains("look less often"));
    terminal.keys(&["x", "Tab", "p"]);
    terminal.until("pause", |screen| screen.contains("PAUSED") && screen.contains("by time"));
    terminal.keys(&["p", "BTab", "/"]);
    terminal.run("no such text");
    terminal.until("filter", |screen| screen.contains("nothing holds that text"));
    terminal.keys(&["Escape"]);
    terminal.until("all again", |screen| !screen.contains("nothing holds that text") && screen.contains("incident"));
    for (width, height) in [(80, 24), (80, 10), (40, 10), (20, 5), (2, 2)] {
        terminal.resize(width, height);
        let what = format!("screen of {width} x {height}");
        terminal.until(&what, |screen| {
            let fits = screen.lines().all(|line| line.chars().count() as u32 <= width);
            let foot = height < 6 || screen.trim_end().lines().count() as u32 == height;
            fits && foot && !screen.trim().is_empty()
        });
    }
    terminal.resize(160, 40);
    terminal.until("all of it again", |screen| screen.contains("COMMAND") && screen.contains("CALL SITE"));
    terminal.keys(&["q"]);
    terminal.is_as_it_was(0);
    terminal.run(&top(&run.pid().to_string()));
    terminal.until("the run", |screen| screen.contains("COMMAND"));
    terminal.keys(&["C-c"]);
    terminal.is_as_it_was(0);
    end(run);
}

#[test]
fn control_z_gives_the_terminal_to_the_shell_and_fg_comes_back() {
    if !needs(&["tmux"]) {
        return;
    }
    let scratch = Scratch::new();
    let run = launches(&scratch);
    let terminal = Terminal::new(&scratch, 100, 30);
    terminal.run(&top(&run.pid().to_string()));
    let is_shown = |screen: &str| screen.contains("LAUNCH/S") && screen.contains("incident");
    for _ in 0..2 {
        terminal.until("the run", is_shown);
        terminal.keys(&["C-z"]);
        // 128 and SIGTSTP.
        terminal.is_as_it_was(148);
        terminal.run("fg; echo \"ended $?;\"");
    }
    terminal.until("the run again", is_shown);
    terminal.keys(&["q"]);
    terminal.is_as_it_was(0);
    end(run);
}

#[test]
fn a_signal_that_ends_programs_ends_it_and_gives_the_terminal_back() {
    if !needs(&["tmux"]) {
        return;
    }
    let scratch = Scratch::new();
    let run = launches(&scratch);
    let terminal = Terminal::new(&scratch, 100, 30);
    let note = scratch.path().join("pid");
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let command = format!("echo $$ > {}; exec {} top", quoted(&note), gputrace().display());
        // The only session is meant where none is named.
        terminal.run(&format!("sh -c '{command}'; echo \"ended $?;\""));
        terminal.until("the run", |screen| screen.contains("LAUNCH/S") && screen.contains("incident"));
        let pid: i32 = std::fs::read_to_string(&note).expect("it was written").trim().parse().expect("a pid");
        // SAFETY: a process that we had started.
        unsafe { libc::kill(pid, signal) };
        terminal.is_as_it_was(code);
    }
    end(run);
}

#[test]
fn the_end_of_the_session_is_said_and_the_picture_stays() {
    if !needs(&["tmux"]) {
        return;
    }
    let scratch = Scratch::new();
    let run = launches(&scratch);
    let trace = run.trace.clone();
    let terminal = Terminal::new(&scratch, 120, 30);
    terminal.run(&top(&quoted(&trace)));
    terminal.until("the run", |screen| screen.contains("incident") && screen.contains("LAUNCH/S"));
    end(run);
    let screen = terminal.until("the end", |screen| screen.contains("THE SESSION HAS ENDED: gputrace report"));
    assert!(screen.contains("LAUNCH/S"), "{screen}");
    terminal.keys(&["Escape"]);
    terminal.is_as_it_was(0);
    // Now the trace is finished: the same words show the whole run.
    terminal.run(&top(&quoted(&trace)));
    terminal
        .until("a still picture", |screen| screen.contains("FINISHED: the whole run") && screen.contains("incident"));
    terminal.keys(&["q"]);
    terminal.is_as_it_was(0);
}

/// The cells of the process in a frame of text, which stand before its command; the command stands in the heading too.
fn cells(text: &str, command: &str) -> Option<Vec<String>> {
    let fronts = text.lines().filter_map(|line| Some(line.split_once(command)?.0.replace(" %", "%")));
    let mut rows = fronts.map(|front| front.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    rows.find(|row| row.len() > 4)
}

#[test]
fn one_frame_as_text_tells_what_the_program_does() {
    let scratch = Scratch::new();
    let run = launches(&scratch);
    let once = |arguments: &[&str]| scratch.target(gputrace()).arg("top").args(arguments).plain();
    // The session is there before its program launches anything.
    let command = program("incident").display().to_string();
    let launched = |text: &str| cells(text, &command).is_some_and(|row| row[3].ends_with('%'));
    let hot = |text: &str| launched(text) && text.contains("GPU TIME") && text.contains("spin_us_2");
    let told = poll(PATIENCE, || Some(once(&["--interval", "0.5"])).filter(|told| hot(&told.text())));
    let text = told.expect("launches").expect(0).text();
    let row = cells(&text, &command).expect("it launches");
    let per_s: f64 = row[2].parse().expect("launches in a second");
    // A step takes a millisecond at least.
    assert!(per_s > 10.0 && per_s < 1000.0, "{text}");
    assert!(row[3].ends_with('%') && row[4].ends_with('%'), "{text}");
    // By the program's own pid as well, and as plain text for a dumb terminal.
    let pid = row[0].clone();
    assert!(once(&[&pid, "--once"]).expect(0).text().contains("/incident"));
    let trace = run.trace.clone();
    end(run);
    let text = once(&[&trace.display().to_string()]).expect(0).text();
    assert!(text.contains("FINISHED: the whole run") && launched(&text), "{text}");
    assert_eq!(cells(&text, &command).map(|row| row[0].clone()), Some(pid));
}

#[test]
fn what_cannot_be_watched_is_said_in_one_line_with_what_to_do() {
    let scratch = Scratch::new();
    let said = |arguments: &[&str], code: i32, says: &str| {
        let run = scratch.target(gputrace()).arg("top").args(arguments).plain().expect(code);
        assert_eq!(run.text(), "", "{arguments:?}");
        one_line(&run.stderr, says);
    };
    said(&[], 2, "no session of this user is running");
    said(&["3999999"], 2, "there is no process 3999999");
    said(&["1"], 2, "process 1 is no gputrace, and no running session of this user traces it");
    said(&["nonsense"], 2, "nonsense: no session, no pid and no trace");
    std::fs::create_dir_all(scratch.path().join("empty/manifest")).expect("our own folder");
    said(&["empty"], 1, "empty");
    said(&["--interval", "0"], 2, "expected seconds from 0.1 to 3600");
    said(&["--sort", "luck"], 2, "luck");
}

#[test]
fn a_trace_without_sums_is_shown_from_its_rows_and_tells_the_same() {
    let scratch = Scratch::new();
    let shown = |options: &[&str]| {
        let target = scratch.target(program("incident")).args(["300", "nothing"]).with_driver(Driver::Plain);
        let run = target.options(["--gpu-time", "full"]).options(options.iter().copied()).traced().expect(0);
        scratch.target(gputrace()).arg("top").arg(run.trace.display().to_string()).plain().expect(0).text()
    };
    let (sums, rows) = (shown(&[]), shown(&["--rollup", "off"]));
    assert!(rows.contains("from its rows") && !sums.contains("from its rows"), "{rows}");
    let hot = |text: &str| text.lines().skip_while(|line| !line.contains("GPU TIME")).nth(1).map(str::to_owned);
    let name = |text: &str| hot(text).and_then(|line| line.split_whitespace().last().map(str::to_owned));
    assert_eq!(name(&rows), name(&sums), "{rows}");
    // A trace of nothing is one as well.
    let run = scratch.target("true").options(["--rollup", "off"]).traced().expect(0);
    let text = scratch.target(gputrace()).arg("top").arg(run.trace.display().to_string()).plain().expect(0).text();
    assert!(text.contains("FINISHED: the whole run") && text.contains("true"), "{text}");
}

#[test]
fn of_a_finished_trace_the_shares_are_those_of_the_report() {
    let scratch = Scratch::new();
    for options in [&["--gpu-time", "full"][..], &["--gpu-time", "full", "--rollup", "off"]] {
        let target = scratch.target(program("incident")).args(["300", "nothing"]).with_driver(Driver::Plain);
        let run = target.options(options.iter().copied()).traced().expect(0);
        let text = scratch.target(gputrace()).arg("top").arg(run.trace.display().to_string()).plain().expect(0).text();
        let row = cells(&text, &program("incident").display().to_string()).expect("its process");
        let told = |cell: &str| cell.trim_end_matches('%').parse::<f64>().unwrap_or_else(|_| panic!("{cell}: {text}"));
        let waits = scratch.section(&run, "syncs")["facts"]["waits_wall_percent"].as_f64().expect("waits");
        let busy = scratch.section(&run, "gpu-utilisation")["facts"]["busy_percent"].as_f64().expect("a GPU");
        assert!((told(&row[4]) - waits).abs() < 2.0, "{waits} % of the time waits: {text}");
        // The report's time of a GPU begins with its first work.
        assert!((told(&row[3]) - busy).abs() < 5.0, "{busy} % busy: {text}");
    }
}

#[test]
fn a_gpu_that_processes_share_is_as_busy_as_the_report_says() {
    let scratch = Scratch::new();
    // Busy for about two thirds of a second.
    let program = format!("{} 1 20 100 1000", quoted(&program("steps")));
    let told = |run: &Finished| {
        let text = scratch.target(gputrace()).arg("top").arg(run.trace.display().to_string()).plain().expect(0).text();
        let busy = text.split_once("GPU busy ").and_then(|(_, rest)| rest.split_once(" %"));
        busy.and_then(|(percent, _)| percent.parse::<f64>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let traced = |line: &str, options: &[&str]| {
        let target = scratch.target("sh").args(["-c", line]).with_driver(Driver::Plain);
        target.options(["--gpu-time", "full"]).options(options.iter().copied()).traced().expect(0)
    };
    let one_by_one = format!("{program}; sleep 1; {program}");
    for line in [&one_by_one, &format!("{program} & {program}; wait")] {
        let run = traced(line, &[]);
        let busy = scratch.section(&run, "gpu-utilisation")["facts"]["busy_percent"].as_f64().expect("a GPU");
        assert!((20.0..95.0).contains(&busy) && (told(&run) - busy).abs() <= 0.5, "{busy} % busy: {} %", told(&run));
    }
    // Of sums the report says nothing: each process has the GPU work most of its own time, and nobody does in the second between.
    let (run, rows) = (traced(&one_by_one, &["--detail", "rollup"]), traced(&one_by_one, &[]));
    assert!((told(&run) - told(&rows)).abs() < 15.0, "{} and {}", told(&run), told(&rows));
}
