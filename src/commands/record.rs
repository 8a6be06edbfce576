//! `gputrace [record] -- COMMAND`: traces a command and its children.
//!
//! Everything that can fail is tried before the target starts; after that nothing of ours may change how it runs or
//! ends, and trouble is one line on stderr. The summary comes last, on stderr and in `TRACE/summary.txt`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use gputrace_collectors::{Config, Manifest, Running, Untraced};

use crate::analysis::summary;
use crate::cli::{Malloc, OnFull, RecordArgs};
use crate::launch::exit::{Ending, Failure, NOT_EXECUTABLE, NOT_FOUND, OWN_FAILURE};
use crate::launch::find_command::{Missing, find_command};
use crate::launch::inherited::Inherited;
use crate::launch::inspect::{Inspection, Obstacle, inspect};
use crate::launch::names::{Place, default_name, host};
use crate::launch::session::{self, Session};
use crate::launch::signals::Signals;
use crate::launch::spawn::{self, Program};
use crate::launch::supervise::{HURRIED, Supervisor};
use crate::launch::watch::{self, Watch};
use crate::launch::{environ, processes, shim, trace_folder};
use crate::say;

/// With this file an administrator switches tracing off for a machine. The shim looks for it as well.
pub(crate) const DISABLE_FILE: &str = "/etc/gputrace/disable";
/// The collector's time for its last files when nobody is in a hurry.
const SEAL: Duration = Duration::from_secs(60);
/// Survivors that are named one by one.
const NAMED_SURVIVORS: usize = 3;

/// What `record` leaves behind for the one who called it.
pub(crate) struct Recorded {
    /// How the target ended.
    pub(crate) ending: Ending,
    /// Folder of the trace; none when tracing is switched off.
    pub(crate) trace: PathBuf,
    /// The summary, if there is one and nobody was in too much of a hurry for it.
    pub(crate) summary: Option<String>,
}

/// Runs the command and prints the summary.
pub(crate) fn run(args: RecordArgs) -> Result<Ending> {
    let recorded = record(&args)?;
    if let Some(summary) = &recorded.summary {
        let _ = std::io::stderr().write_all(summary.as_bytes());
    }
    Ok(recorded.ending)
}

/// Runs the command and returns what came of it.
pub(crate) fn record(args: &RecordArgs) -> Result<Recorded> {
    let Some(name) = args.command.first() else {
        return Err(Failure::new(OWN_FAILURE, "no command given; put it after --: gputrace -- python train.py"));
    };
    let search = std::env::var_os("PATH");
    let path = find_command(name, search.as_deref()).map_err(|missing| not_runnable(name, &missing))?;
    if let Some(why) = switched_off() {
        say(&format!("tracing is switched off by {why}; the command runs untraced"));
        return Err(become_command(&path, args));
    }
    let inspection = inspect(&path, search.as_deref());
    let shim = shim::find_library(shim::SHIM).map_err(|places| {
        let places = shim::places_text(&places);
        Failure::new(OWN_FAILURE, format!("{} is not in {places}; install it beside gputrace", shim::SHIM))
    })?;
    let folder = Folder::claim(args, name)?;

    let wanted = Signals::wanted();
    let inherited = Inherited::note_and_block(&wanted);
    let signals = Signals::open(&wanted).context("no signalfd can be made")?;
    let run = start_run(args, &path, &inspection, &shim, &folder.path, &inherited);
    let run = run.inspect_err(|_| folder.undo())?;
    Ok(stay(args, run, &signals, &inspection))
}

/// Everything that a started target needs until its end.
struct Run {
    target: u32,
    running: Running,
    session: Session,
    trace: PathBuf,
}

fn start_run(
    args: &RecordArgs,
    path: &Path,
    inspection: &Inspection,
    shim: &Path,
    trace: &Path,
    inherited: &Inherited,
) -> Result<Run> {
    // The loader of a program that cannot be traced (a 32-bit one, say) says nothing about where the shim must lie.
    let loader = inspection.loader.as_deref().filter(|_| inspection.obstacle.is_none());
    let session = Session::new(&session::bases(), shim, loader)?;
    let id = gputrace_collectors::new_launcher_id();
    let mut config = Config::new(trace.to_owned(), session.path(), host(), id);
    config.command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    config.max_size = args.max_size;
    env!("CARGO_PKG_VERSION").clone_into(&mut config.tool_version);
    let program = Program::new(path, &args.command, environment(args, inspection, &session))?;

    let running = match gputrace_collectors::start(config) {
        Ok(running) => running,
        Err(error) => {
            session.end(false);
            return Err(error).context("the collector did not start, nor did the command");
        }
    };
    match program.spawn(inherited) {
        Ok(target) => {
            running.root(target);
            Ok(Run { target, running, session, trace: trace.to_owned() })
        }
        Err(error) => {
            let _ = running.finish(None, Instant::now());
            session.end(false);
            Err(exec_failed(&args.command[0], &error))
        }
    }
}

/// Stays with the target to its end and after it.
fn stay(args: &RecordArgs, run: Run, signals: &Signals, inspection: &Inspection) -> Recorded {
    let Run { target, running, session, trace } = run;
    if let Some(obstacle) = &inspection.obstacle {
        let exe = inspection.program().display().to_string();
        say(&format!("{exe} is not traced: {obstacle}; {}", obstacle.cure()));
        running.untraced(Untraced { pid: target as i32, exe, reason: obstacle.to_string() });
    }
    session::sweep(&session::bases());
    let mut supervisor = Supervisor::new(signals, target);
    let mut watch = Watch::new(session.root().to_owned(), target, inspection.obstacle.is_some());
    let ending = supervisor.until_end(watch::FIRST, || {
        let (found, next) = watch.look();
        found.into_iter().for_each(|process| running.untraced(process));
        warn(&running);
        next
    });
    let ended = Instant::now();
    let grace = if supervisor.is_interrupted() { args.grace.min(HURRIED) } else { args.grace };
    let survivors = supervisor.wait_for_descendants(session.root(), grace);
    let survivors_text = survivors_text(&survivors);

    let hurried = supervisor.is_interrupted();
    let deadline = if hurried { ended + HURRIED } else { Instant::now() + SEAL };
    warn(&running);
    let manifest = running.finish(Some(ending.info()), deadline);
    session.end(!survivors.is_empty());
    let summary = match manifest {
        Err(error) => Some(format!("gputrace: {error}; trace in {}\n", trace.display())),
        Ok(_) if supervisor.is_hurried() => None,
        Ok(manifest) => summarise(&trace, &manifest, &mut supervisor, hurried.then_some(deadline)),
    };
    let summary = summary.map(|text| format!("{}{text}", survivors_text.unwrap_or_default()));
    Recorded { ending, trace, summary }
}

/// The summary, also written into the trace. None: it is not wanted any more.
fn summarise(
    trace: &Path,
    manifest: &Manifest,
    supervisor: &mut Supervisor,
    deadline: Option<Instant>,
) -> Option<String> {
    let (at_work, of) = trace_folder::others_at_work(trace, manifest);
    if at_work > 0 {
        // The launcher that ends last reports on all of them.
        return Some(format!(
            "gputrace: trace in {}; {at_work} of {of} launchers are still at work\n",
            trace.display()
        ));
    }
    // In a thread of its own, because a large trace takes its time and Ctrl-C must end that.
    let (sender, receiver) = mpsc::channel();
    let path = trace.to_owned();
    std::thread::spawn(move || sender.send(summary::at_end(&path)));
    let result = loop {
        match receiver.recv_timeout(Duration::from_millis(5)) {
            Ok(result) => break result,
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                if late || supervisor.is_told_to_end(Duration::ZERO) {
                    return None;
                }
            }
        }
    };
    let text = match result {
        Ok(text) => text.trim_end().to_owned() + "\n",
        Err(error) => return Some(format!("gputrace: no summary: {error:#}; trace in {}\n", trace.display())),
    };
    if let Err(error) = fs::write(trace.join("summary.txt"), &text) {
        say(&format!("{}: cannot be written: {error}", trace.join("summary.txt").display()));
    }
    Some(text)
}

/// What the collector has to say now, a line each.
fn warn(running: &Running) {
    while let Some(warning) = running.warning() {
        say(&warning);
    }
}

fn survivors_text(survivors: &[u32]) -> Option<String> {
    if survivors.is_empty() {
        return None;
    }
    let named = survivors.iter().take(NAMED_SURVIVORS).map(|pid| format!("{pid} {}", processes::name(*pid)));
    let mut named = named.collect::<Vec<_>>().join(", ");
    if survivors.len() > NAMED_SURVIVORS {
        named.push_str(", ...");
    }
    let (processes, they) =
        if survivors.len() == 1 { ("process outlives", "it runs") } else { ("processes outlive", "they run") };
    Some(format!("gputrace: {} {processes} the command ({named}); {they} on untraced\n", survivors.len()))
}

/// The folder of the trace, and whether it was made here.
struct Folder {
    path: PathBuf,
    made: bool,
}

impl Folder {
    fn claim(args: &RecordArgs, name: &OsStr) -> Result<Folder> {
        let Some(pattern) = &args.output else {
            return Ok(Folder {
                path: trace_folder::make_default(&default_name(name, SystemTime::now()))?,
                made: true,
            });
        };
        let path = match pattern.to_str() {
            Some(text) => Place::here().expand(text)?,
            None => pattern.clone(),
        };
        let made = !path.exists();
        trace_folder::claim(&path, trace_folder::run_id().as_deref())?;
        Ok(Folder { path, made })
    }

    /// Removes what was made for a command that then did not start.
    fn undo(&self) {
        if self.made {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn environment(args: &RecordArgs, inspection: &Inspection, session: &Session) -> Vec<OsString> {
    let mut inherited = spawn::environment();
    for (name, value) in &args.variables {
        environ::set(&mut inherited, name, value.as_bytes());
    }
    if inspection.obstacle.as_ref().is_some_and(|obstacle| !Obstacle::lets_children_be_traced(obstacle)) {
        return inherited;
    }
    let malloc = match args.malloc {
        Malloc::Off => "off".to_owned(),
        Malloc::Sample(bytes) => format!("sample:{bytes}"),
        Malloc::Full => "full".to_owned(),
    };
    let on_full = match args.on_full {
        OnFull::Drop => "drop",
        OnFull::Block => "block",
    };
    let variables = [
        ("GPUTRACE_MALLOC", malloc),
        ("GPUTRACE_SEGMENT_MEMORY", args.segment_memory.to_string()),
        ("GPUTRACE_ON_FULL", on_full.to_owned()),
    ];
    environ::for_target(inherited, &session.preload(), session.path().as_os_str(), &variables)
}

/// What switches tracing off here, if something does.
fn switched_off() -> Option<String> {
    if Path::new(DISABLE_FILE).exists() {
        return Some(DISABLE_FILE.to_owned());
    }
    (std::env::var_os("GPUTRACE").as_deref() == Some(OsStr::new("off"))).then(|| "GPUTRACE=off".to_owned())
}

/// Becomes the command itself, as if gputrace had not been there; comes back only with an error.
fn become_command(path: &Path, args: &RecordArgs) -> anyhow::Error {
    let nothing: libc::sigset_t = {
        // SAFETY: plain data, for which zeros are valid: the empty set.
        unsafe { std::mem::zeroed() }
    };
    let inherited = Inherited::note_and_block(&nothing);
    match Program::new(path, &args.command, spawn::environment()) {
        Ok(program) => {
            inherited.restore();
            exec_failed(&args.command[0], &program.exec())
        }
        Err(error) => error.into(),
    }
}

fn not_runnable(name: &OsStr, missing: &Missing) -> anyhow::Error {
    let name = name.to_string_lossy();
    match missing {
        Missing::NotFound if name.contains('/') => Failure::new(NOT_FOUND, format!("{name}: no such file")),
        Missing::NotFound => Failure::new(NOT_FOUND, format!("{name}: command not found in PATH")),
        Missing::Folder(path) => Failure::new(NOT_EXECUTABLE, format!("{}: is a folder", path.display())),
        Missing::NotExecutable(path) => Failure::new(
            NOT_EXECUTABLE,
            format!("{0}: not executable; chmod +x {0}, or name its interpreter", path.display()),
        ),
    }
}

fn exec_failed(name: &OsStr, error: &std::io::Error) -> anyhow::Error {
    let name = name.to_string_lossy();
    match error.raw_os_error() {
        Some(libc::ENOENT) => Failure::new(NOT_FOUND, format!("{name}: its interpreter or loader does not exist")),
        Some(libc::ENOEXEC) => {
            Failure::new(NOT_EXECUTABLE, format!("{name}: neither a program for this machine nor a script"))
        }
        Some(libc::EAGAIN | libc::ENOMEM) => Failure::new(OWN_FAILURE, format!("{name}: cannot be started: {error}")),
        _ => Failure::new(NOT_EXECUTABLE, format!("{name}: cannot be executed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(error: &anyhow::Error) -> i32 {
        error.downcast_ref::<Failure>().unwrap().code
    }

    #[test]
    fn what_cannot_run_gives_the_exit_codes_of_env() {
        let name = OsStr::new("x");
        assert_eq!(code(&not_runnable(name, &Missing::NotFound)), 127);
        assert_eq!(code(&not_runnable(name, &Missing::Folder("/".into()))), 126);
        assert_eq!(code(&not_runnable(name, &Missing::NotExecutable("x".into()))), 126);
        let failed = |errno| code(&exec_failed(name, &std::io::Error::from_raw_os_error(errno)));
        assert_eq!(failed(libc::ENOENT), 127);
        assert_eq!(failed(libc::ENOEXEC), 126);
        assert_eq!(failed(libc::EACCES), 126);
        assert_eq!(failed(libc::EAGAIN), 125);
    }

    #[test]
    fn no_command_is_our_own_failure() {
        let error = record(&RecordArgs::new(None, Vec::new())).err().unwrap();
        assert_eq!(code(&error), 125);
    }

    #[test]
    fn survivors_are_counted_and_the_first_ones_named() {
        assert_eq!(survivors_text(&[]), None);
        let one = survivors_text(&[std::process::id()]).unwrap();
        assert!(one.starts_with("gputrace: 1 process outlives") && one.contains("it runs on untraced"), "{one}");
        let many = survivors_text(&[1, 2, 3, 4]).unwrap();
        assert!(many.contains("4 processes") && many.contains("..."), "{many}");
    }
}
