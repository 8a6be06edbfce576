//! `gputrace [record] -- COMMAND`: traces a command and its children.
//!
//! Everything that can fail is tried before the target starts; after that nothing of ours may change how it runs or
//! ends, and trouble is one line on stderr. The summary comes last, on stderr and in `TRACE/summary.txt`.

mod heir;
pub(super) mod memory;
pub(super) mod metrics;
mod stay;
pub(super) mod wanted;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use gputrace_collectors::{Config, DEBUGINFOD_CLIENT, Running};

use crate::cli::{HookRoute, MallocArgs, RecordArgs, Switch};
use heir::Heir;
pub(crate) use heir::live as live_as_heir;
use metrics::{Metrics, Prepared};
pub(crate) use wanted::DISABLE_FILE;

use crate::launch::brake::{Brake, CURE};
use crate::launch::exit::{Ending, Failure, NOT_FOUND, OWN_FAILURE};
use crate::launch::find_command::find_command;
use crate::launch::inherited::Inherited;
use crate::launch::inspect::{Inspection, Obstacle, inspect};
use crate::launch::names::host;
use crate::launch::session::{self, Session};
use crate::launch::signals::{self, Signals};
use crate::launch::spawn::{self, Program};
use crate::launch::trace_folder::TraceFolder;
use crate::launch::{environ, shim, standing};
use crate::{note, render, say, terminal};

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
    if let Some(summary) = recorded.summary.as_ref().filter(|_| !terminal::is_quiet()) {
        let stderr = std::io::stderr();
        let styled = terminal::is_styled(&stderr).then(|| render::dressed(summary));
        let _ = stderr.lock().write_all(styled.as_ref().unwrap_or(summary).as_bytes());
    }
    Ok(recorded.ending)
}

/// Runs the command and returns what came of it.
pub(crate) fn record(args: &RecordArgs) -> Result<Recorded> {
    let Some(name) = args.command.first() else {
        return Err(Failure::error(OWN_FAILURE, "no command given; put it after --: gputrace -- python train.py"));
    };
    args.check().map_err(|wrong| Failure::error(OWN_FAILURE, format!("{wrong}; see gputrace record --help")))?;
    let search = std::env::var_os("PATH");
    let path = find_command(name, search.as_deref()).map_err(|missing| missing.failure(name))?;
    if let Some(why) = switched_off() {
        say(&format!("tracing is switched off by {why}; the command runs untraced"));
        return Err(become_command(&path, args));
    }
    if let Some(other) = std::env::var_os("GPUTRACE").filter(|other| !other.is_empty()) {
        say(&format!("GPUTRACE={} switches nothing: only GPUTRACE=off switches tracing off", other.to_string_lossy()));
    }
    let brake = Brake::of(&path, args.command.get(1..).unwrap_or_default());
    if let Some((brake, faults)) = brake.as_ref().and_then(|brake| Some((brake, brake.engaged()?))) {
        let command = brake.command();
        say(&format!(
            "{command} died twice soon after its start while it was traced ({faults}) and runs untraced, without a trace; {CURE}"
        ));
        return Err(become_command(&path, args));
    }
    memory::check(args.segment_memory).map_err(|wrong| Failure::error(OWN_FAILURE, wrong))?;
    if args.debuginfod
        && let Some(lacks) = no_debuginfod(search.as_deref())
    {
        note(&format!("--debuginfod asks nobody: {lacks}"));
    }
    let inspection = inspect(&path, search.as_deref());
    if let Some(obstacle @ Obstacle::NoInterpreter(_)) = &inspection.obstacle {
        let name = name.to_string_lossy();
        return Err(Failure::error(NOT_FOUND, format!("{name}: {obstacle}; {}", obstacle.cure())));
    }
    let shim = shim::find_library(shim::SHIM).map_err(|missing| {
        Failure::error(OWN_FAILURE, format!("{} is {missing}; install it beside gputrace", shim::SHIM))
    })?;
    let engine = match args.hook {
        HookRoute::Inline => Some(shim::find_library(shim::ENGINE).map_err(|missing| {
            let cure = "install it beside gputrace, or leave --hook inline out";
            Failure::error(OWN_FAILURE, format!("{} is {missing}; {cure}", shim::ENGINE))
        })?),
        HookRoute::Auto | HookRoute::Symbols => None,
    };
    let prepared = metrics::prepare(&args.metrics)?;
    let folder = TraceFolder::claim(args.output.as_deref(), name)?;

    let wanted = signals::wanted();
    let inherited = Inherited::note_and_block(&wanted);
    let signals = Signals::open(&wanted).context("signals cannot be received")?;
    let libraries = Libraries { shim, engine };
    let about = About { path: &path, inspection: &inspection, libraries: &libraries, brake: brake.as_ref() };
    let run = start_run(args, &about, &folder.path, &inherited, prepared);
    let run = run.inspect_err(|_| folder.undo())?;
    Ok(stay::stay(args, run, &signals, &inspection, brake.as_ref()))
}

/// What is loaded into the target.
struct Libraries {
    shim: PathBuf,
    /// That of inline hooks, where they are asked for.
    engine: Option<PathBuf>,
}

/// What is known of the command before it starts.
struct About<'a> {
    path: &'a Path,
    inspection: &'a Inspection,
    libraries: &'a Libraries,
    brake: Option<&'a Brake>,
}

/// Everything that a started target needs until its end.
struct Run {
    target: u32,
    running: Running,
    session: Session,
    heir: Option<Heir>,
    metrics: Metrics,
    trace: PathBuf,
    started: Instant,
}

fn start_run(
    args: &RecordArgs,
    about: &About<'_>,
    trace: &Path,
    inherited: &Inherited,
    prepared: Prepared,
) -> Result<Run> {
    let About { path, inspection, libraries, brake } = *about;
    // The loader of a program that cannot be traced (a 32-bit one, say) says nothing about where the shim must lie.
    let loader = inspection.loader.as_deref().filter(|_| inspection.obstacle.is_none());
    let session = Session::new(&session::bases(), &libraries.shim, loader)?;
    let id = gputrace_collectors::new_launcher_id();
    let mut config = Config::new(trace.to_owned(), session.path(), host(), id);
    config.command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    wanted::configure(&mut config, args);
    let program =
        Program::new(path, &args.command, environment(args, inspection, &session, libraries.engine.as_deref())?)?;

    let heir = Heir::start(&mut config, &session, brake.filter(|_| inspection.obstacle.is_none()), prepared.endpoint());
    let running = match gputrace_collectors::start(config) {
        Ok(running) => running,
        Err(error) => {
            session.end(false);
            return Err(error).context("the collector did not start, nor did the command");
        }
    };
    let metrics = match prepared.begin(&running, &session.path()) {
        Ok(metrics) => metrics,
        Err(error) => {
            let _ = running.finish(None, Instant::now());
            session.end(false);
            return Err(error).context("metrics cannot be told, and the command did not start");
        }
    };
    let started = Instant::now();
    match program.spawn(inherited) {
        Ok(target) => {
            running.root(target);
            Ok(Run { target, running, session, heir, metrics, trace: trace.to_owned(), started })
        }
        Err(error) => {
            let _ = running.finish(None, Instant::now());
            session.end(false);
            Err(spawn::exec_failure(&args.command[0], &error))
        }
    }
}

fn environment(
    args: &RecordArgs,
    inspection: &Inspection,
    session: &Session,
    engine: Option<&Path>,
) -> Result<Vec<OsString>> {
    let mut inherited = spawn::environment();
    for (name, value) in &args.variables {
        environ::set(&mut inherited, name, value.as_bytes());
    }
    if inspection.obstacle.as_ref().is_some_and(|obstacle| !Obstacle::lets_children_be_traced(obstacle)) {
        return Ok(inherited);
    }
    // What a gputrace around this one asked for is not asked for here.
    let switches = MallocArgs::SWITCHES.iter().copied().chain([standing::AS_FILES]);
    switches.for_each(|name| environ::unset(&mut inherited, name));
    if args.nvtx == Switch::On {
        inherited = environ::with_nvtx(inherited, &session.preload());
    }
    if let Some(engine) = engine {
        inherited = environ::with_engine(inherited, &session.add_engine(engine)?);
    }
    let variables = wanted::variables(args, &session.path());
    Ok(environ::for_target(inherited, &session.preload(), session.path().as_os_str(), &variables))
}

/// What is missing for `--debuginfod`.
fn no_debuginfod(search: Option<&OsStr>) -> Option<String> {
    if std::env::var_os("DEBUGINFOD_URLS").is_none_or(|urls| urls.is_empty()) {
        return Some("DEBUGINFOD_URLS names no server".to_owned());
    }
    let client = find_command(OsStr::new(DEBUGINFOD_CLIENT), search);
    client.is_err().then(|| format!("{DEBUGINFOD_CLIENT} is not here (elfutils has it)"))
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
            spawn::exec_failure(&args.command[0], &program.exec())
        }
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(error: &anyhow::Error) -> i32 {
        error.downcast_ref::<Failure>().unwrap().code
    }

    #[test]
    fn no_command_is_our_own_failure() {
        let error = record(&RecordArgs::new(None, Vec::new())).err().unwrap();
        assert_eq!(code(&error), 125);
    }
}
