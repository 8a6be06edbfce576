//! Runs a program under gputrace and without, in a folder of its own.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::trace::Trace;
use super::turns::Turn;
use super::{Driver, driver_folder, gputrace, odd_driver_folder, shim};

/// Nothing here takes this long; a run that does hangs, and is ended.
const HANGS: Duration = Duration::from_secs(180);

/// Where gputrace keeps what it remembers of earlier runs, in a test's folder.
const STATE: &str = "state-of-programs";

/// A folder of a test's own, removed when the test has passed.
pub(crate) struct Scratch {
    path: PathBuf,
    traces: AtomicU32,
    _turn: Turn,
}

impl Scratch {
    /// A new folder. Its path is short, because the session's socket lies below it.
    pub(crate) fn new() -> Scratch {
        Scratch::with(Turn::shared())
    }

    /// For a test that keeps every processor busy: no other runs until it is dropped.
    pub(crate) fn alone() -> Scratch {
        Scratch::with(Turn::alone())
    }

    fn with(turn: Turn) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("gt-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("the temporary folder is writable");
        Scratch { path, traces: AtomicU32::new(0), _turn: turn }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file in it.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, content).expect("the folder is writable");
        path
    }

    /// A name for a trace, not used before.
    pub(crate) fn new_trace(&self) -> PathBuf {
        self.path.join(format!("trace{}", self.traces.fetch_add(1, Ordering::Relaxed)))
    }

    /// A program to run here.
    pub(crate) fn target(&self, program: impl AsRef<OsStr>) -> Target<'_> {
        // Programs that die again and again are what many tests are about: gputrace is not to remember one for the next.
        let _ = fs::remove_dir_all(self.path.join(STATE));
        Target {
            scratch: self,
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            options: Vec::new(),
            variables: Vec::new(),
            folder: self.path.clone(),
            input: None,
            own_group: false,
        }
    }

    /// A script for /bin/sh.
    pub(crate) fn shell(&self, script: &str) -> Target<'_> {
        self.target("/bin/sh").args(["-c", script])
    }

    /// gputrace itself with these arguments, not as a tracer of something.
    pub(crate) fn gputrace<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Finished {
        self.target(gputrace()).args(arguments).plain()
    }

    /// A section of the report on a run.
    pub(crate) fn section(&self, run: &Finished, name: &str) -> serde_json::Value {
        let trace = run.trace.to_string_lossy();
        let report = self.gputrace(&["report", &trace, "--only", name, "--format", "json"]).expect(0).text();
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        report["analyses"][name].clone()
    }

    /// Sessions that were left behind.
    pub(crate) fn sessions(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path.join("run")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("left for a look: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The route of hooks by which CI runs tests once more (GPUTRACE_TEST_HOOK), if it does.
pub(crate) fn test_hook() -> Option<OsString> {
    std::env::var_os("GPUTRACE_TEST_HOOK")
}

/// A program, and how to run it.
#[derive(Clone)]
pub(crate) struct Target<'a> {
    scratch: &'a Scratch,
    program: OsString,
    arguments: Vec<OsString>,
    options: Vec<OsString>,
    variables: Vec<(OsString, Option<OsString>)>,
    folder: PathBuf,
    input: Option<PathBuf>,
    own_group: bool,
}

impl Target<'_> {
    /// One more argument.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub(crate) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Options of gputrace, when it runs under it.
    pub(crate) fn options<S: AsRef<OsStr>>(mut self, options: impl IntoIterator<Item = S>) -> Self {
        self.options.extend(options.into_iter().map(|o| o.as_ref().to_owned()));
        self
    }

    /// A variable of its environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), Some(value.as_ref().to_owned())));
        self
    }

    /// A file as its standard input, which is empty otherwise.
    pub(crate) fn stdin(mut self, file: &Path) -> Self {
        self.input = Some(file.to_owned());
        self
    }

    /// The same by way of a program that runs what its arguments name.
    pub(crate) fn through<S: AsRef<OsStr>>(mut self, launcher: &[S]) -> Self {
        let words = launcher.iter().map(|word| word.as_ref().to_owned());
        let mut words: Vec<OsString> = words.chain([self.program]).chain(self.arguments).collect();
        self.program = words.remove(0);
        self.arguments = words;
        self
    }

    /// Runs it in a process group of its own, as a shell does.
    pub(crate) fn own_group(mut self) -> Self {
        self.own_group = true;
        self
    }

    /// Lets it find the simulated driver.
    pub(crate) fn with_driver(self, driver: Driver) -> Self {
        self.env("LD_LIBRARY_PATH", driver_folder(driver))
    }

    /// Lets it find the driver of `tests/programs/odd_driver.c`.
    pub(crate) fn with_odd_driver(self) -> Self {
        self.env("LD_LIBRARY_PATH", odd_driver_folder())
    }

    /// The simulated driver as most tests want it: calls take no time.
    pub(crate) fn with_instant_driver(self) -> Self {
        self.with_driver(Driver::Plain).env("FAKE_CUDA_INSTANT", "1")
    }

    fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        // What cargo sets for tests, and what a traced test run would bring along, is none of the program's business.
        for name in ["LD_LIBRARY_PATH", "LD_PRELOAD", "GPUTRACE", "GPUTRACE_SESSION"] {
            command.env_remove(name);
        }
        let run = self.scratch.path.join("run");
        fs::create_dir_all(&run).expect("the folder is writable");
        command.env("XDG_RUNTIME_DIR", run);
        command.env("XDG_STATE_HOME", self.scratch.path.join(STATE));
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let open = |file: &PathBuf| Stdio::from(fs::File::open(file).expect("the input is there"));
        let input = self.input.as_ref().map_or_else(Stdio::null, open);
        command.current_dir(&self.folder).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.own_group {
            command.process_group(0);
        }
        let reset = || {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                // SAFETY: async-signal-safe, and the child has one thread.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // Whoever runs the tests may ignore these (nohup, a shell's background job), and a program cannot die by a
        // signal that was ignored when it started.
        // SAFETY: the closure makes async-signal-safe calls only.
        unsafe { command.pre_exec(reset) };
        command
    }

    /// Runs it to its end without gputrace.
    pub(crate) fn plain(&self) -> Finished {
        let mut command = self.command(&self.program);
        command.args(&self.arguments);
        // A file that a test has just written is busy as long as a program that another test starts has yet to be executed.
        let mut tries = 0..100;
        let child = loop {
            match command.spawn() {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && tries.next().is_some() => {
                    thread::sleep(Duration::from_millis(10));
                }
                other => break other.unwrap_or_else(|e| panic!("{:?}: {e}", self.program)),
            }
        };
        wait(child, PathBuf::new())
    }

    /// The command line that runs it under gputrace, with its trace in `trace`.
    pub(crate) fn traced_command(&self, trace: &Path) -> Command {
        shim(); // it must have been built
        let mut command = self.command(gputrace().as_os_str());
        if let Some(hook) = test_hook().filter(|_| self.options.iter().all(|option| option != "--hook")) {
            command.arg("--hook").arg(hook);
        }
        command.args(&self.options).arg("-o").arg(trace).arg("--").arg(&self.program).args(&self.arguments);
        command
    }

    /// Starts it under gputrace.
    pub(crate) fn start(&self) -> Started {
        let trace = self.scratch.new_trace();
        let child = self.traced_command(&trace).spawn().expect("gputrace starts");
        Started { child: Some(child), trace }
    }

    /// Starts it under gputrace, which is to be killed: nobody listens to what it or its orphans say.
    pub(crate) fn start_to_be_killed(&self) -> Started {
        let trace = self.scratch.new_trace();
        let mut command = self.traced_command(&trace);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("gputrace starts");
        Started { child: Some(child), trace }
    }

    /// The same, and it is heard what is said on stderr.
    pub(crate) fn start_to_be_killed_and_heard(&self) -> (Started, ChildStderr) {
        let trace = self.scratch.new_trace();
        let mut command = self.traced_command(&trace);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("gputrace starts");
        let heard = child.stderr.take().expect("it is piped");
        (Started { child: Some(child), trace }, heard)
    }

    /// Runs it to its end under gputrace.
    pub(crate) fn traced(&self) -> Finished {
        self.start().wait()
    }

    /// Runs it without and with gputrace: the same output, byte for byte, and the same end. Returns the traced run.
    pub(crate) fn same(&self) -> Finished {
        let plain = self.plain();
        let traced = self.traced();
        if plain.stdout != traced.stdout {
            let (plain, text) = (plain.text(), traced.text());
            let differs = plain.lines().zip(text.lines()).find(|(a, b)| a != b);
            panic!(
                "stdout differs, {} and {} lines, first: {differs:?}; stderr: {}",
                plain.lines().count(),
                text.lines().count(),
                traced.stderr
            );
        }
        assert_eq!(plain.stderr, traced.own_stderr(), "stderr differs");
        assert_eq!(plain.status, traced.status, "the end differs; stderr: {}", traced.stderr);
        traced
    }
}

/// gputrace at work.
pub(crate) struct Started {
    child: Option<Child>,
    /// Where its trace will be.
    pub(crate) trace: PathBuf,
}

impl Started {
    /// Pid of gputrace.
    pub(crate) fn pid(&self) -> i32 {
        self.child.as_ref().map_or(0, |child| child.id() as i32)
    }

    /// Ends it as the kernel's OOM killer does, without its targets.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("killed once");
        child.kill().expect("it is our child");
        assert_eq!(child.wait().expect("it is our child").signal(), Some(libc::SIGKILL));
    }

    /// The same of one that may have ended by itself.
    pub(crate) fn kill_anyhow(&mut self) {
        let mut child = self.child.take().expect("killed once");
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
    }

    /// Waits until somebody else has killed it.
    pub(crate) fn is_killed(&mut self) {
        let mut child = self.child.take().expect("killed once");
        assert_eq!(child.wait().expect("it is our child").signal(), Some(libc::SIGKILL));
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Finished {
        wait(self.child.take().expect("waited for once"), self.trace.clone())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A run that is over.
pub(crate) struct Finished {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// What it wrote.
    pub(crate) stdout: Vec<u8>,
    /// What it wrote there.
    pub(crate) stderr: String,
    /// Where the trace is.
    pub(crate) trace: PathBuf,
}

impl Finished {
    /// stdout as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What stderr would be without gputrace's summary, which comes last.
    pub(crate) fn own_stderr(&self) -> String {
        let summary = fs::read_to_string(self.trace.join("summary.txt")).unwrap_or_default();
        self.stderr.strip_suffix(&summary).unwrap_or(&self.stderr).to_owned()
    }

    /// Stderr with each line whole: the summary breaks long ones, as a path makes them, and goes on with two spaces.
    pub(crate) fn whole_lines(&self) -> String {
        self.stderr.replace("\n  ", " ")
    }

    /// Exit code, or 128 + signal.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().or_else(|| self.status.signal().map(|s| s + 128)).unwrap_or(-1)
    }

    /// Panics with all that is known unless the exit code is this.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Finished {
        assert_eq!(self.code(), code, "stdout: {}\nstderr: {}", self.text(), self.stderr);
        self
    }

    /// The trace.
    #[track_caller]
    pub(crate) fn read(&self) -> Trace {
        Trace::open(&self.trace)
    }
}

fn wait(mut child: Child, trace: PathBuf) -> Finished {
    let mut out = child.stdout.take().expect("piped");
    let mut err = child.stderr.take().expect("piped");
    let read_out = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.read_to_end(&mut bytes);
        bytes
    });
    let read_err = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = err.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let hung = poll(HANGS, || child.try_wait().expect("it is our child").map(|_| ())).is_none();
    if hung {
        let _ = child.kill();
    }
    let status = child.wait().expect("it is our child");
    let (stdout, stderr) = (read_out.join().unwrap_or_default(), read_err.join().unwrap_or_default());
    assert!(!hung, "did not end; stdout: {}\nstderr: {stderr}", String::from_utf8_lossy(&stdout));
    Finished { status, stdout, stderr, trace }
}

/// Asks again and again until there is an answer, but not for ever.
pub(crate) fn poll<T>(bound: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if start.elapsed() > bound {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
