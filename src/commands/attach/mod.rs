//! `gputrace attach PID`: traces a process that runs already, until it ends or gputrace is told to let go of it.
//!
//! The session is one that outlives its collectors, as that of `collect`, with one process in it: its segment is a file in the session's folder,
//! which stays as long as the process does, so that whoever attaches later finds it. Each attach makes a trace of its own.

mod place;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gputrace_collectors::heir::standing::left;
use gputrace_collectors::recover::TakeOverError;
use gputrace_collectors::{CollectError, Config, Manifest, Running, Warnings, take_over};

use super::record::{DISABLE_FILE, metrics, wanted};
use crate::analysis::summary;
use crate::attach::check::{self, Target};
use crate::attach::keeper::Keeper;
use crate::cli::{AttachArgs, RecordArgs};
use crate::launch::exit::{Ending, Failure, OWN_FAILURE};
use crate::launch::inherited::Inherited;
use crate::launch::names::host;
use crate::launch::shim;
use crate::launch::signals::{self, Signals};
use crate::launch::standing::{self, About, Standing};
use crate::launch::trace_folder::TraceFolder;
use crate::{note, render, say, terminal};

/// How often it is looked whether the process is there, and for warnings.
const LOOK: Duration = Duration::from_millis(100);
/// The collector's time for its last files.
const SEAL: Duration = Duration::from_secs(60);

fn failed(why: impl Into<String>) -> anyhow::Error {
    Failure::error(OWN_FAILURE, why)
}

/// Traces the process.
pub(crate) fn run(mut args: AttachArgs) -> Result<Ending> {
    args.check().map_err(|what| failed(format!("{what}; see gputrace attach --help")))?;
    let duration = args.record.capture.duration.take();
    if Path::new(DISABLE_FILE).exists() {
        return Err(failed(format!("tracing is switched off by {DISABLE_FILE}")));
    }
    let target = check::look(args.pid).map_err(failed)?;
    let shim = shim::find_library(shim::SHIM)
        .map_err(|missing| failed(format!("{} is {missing}; install it beside gputrace", shim::SHIM)))?;
    // Before there are threads.
    let keeper = Keeper::start(target.pid).context("the process that attaches cannot be started")?;
    let prepared = metrics::prepare(&args.record.metrics)?;
    let root = place::of(&target, args.session.as_deref())?;
    let standing = Standing::open(&root, &shim)?;
    let wanted_signals = signals::wanted();
    let _inherited = Inherited::note_and_block(&wanted_signals);
    let signals = Signals::open(&wanted_signals).context("signals cannot be received")?;
    let mut work = Work { record: &args.record, target: &target, standing, keeper };
    let begun = work.begin(prepared);
    let attached = match begun {
        Ok(attached) => attached,
        Err(error) => {
            work.clear_away();
            return Err(error);
        }
    };
    note(&format!(
        "attached to process {} ({}): calls of {} functions of the driver are recorded into {}; Ctrl-C detaches",
        target.pid,
        target.name,
        attached.functions,
        attached.trace.display()
    ));
    let dumps = args.record.detail.is_triggered().then(signals::dump_signal);
    let until = duration.map(|duration| Instant::now() + duration);
    let warnings = attached.running.warnings();
    loop {
        let came = signals.wait(until.map_or(LOOK, |until| LOOK.min(until.saturating_duration_since(Instant::now()))));
        came.iter().filter(|s| Some(s.number) == dumps).for_each(|_| attached.running.dump("a signal to gputrace"));
        warn(&warnings);
        let told = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];
        if came.iter().any(|signal| told.contains(&signal.number))
            || until.is_some_and(|until| Instant::now() >= until)
            || !target.is_there()
        {
            break;
        }
    }
    Ok(work.end(attached))
}

impl Target {
    /// Whether it is still there.
    fn is_there(&self) -> bool {
        check::started(self.pid) == self.started && !check::is_over(self.pid)
    }
}

/// What is attached.
struct Attached {
    running: Running,
    metrics: metrics::Metrics,
    trace: PathBuf,
    functions: usize,
}

/// What it takes.
struct Work<'a> {
    record: &'a RecordArgs,
    target: &'a Target,
    standing: Standing,
    keeper: Keeper,
}

impl Work<'_> {
    /// Loads the shim, starts the collector, and leads the driver's functions to the shim's. Err: the process is as it was, but that the
    /// shim may be mapped in it.
    fn begin(&mut self, prepared: metrics::Prepared) -> Result<Attached> {
        let target = self.target;
        if !check::sees(target.pid, &self.standing.shim()) {
            return Err(failed(format!(
                "process {} ({}) does not see {} (it has another file system), or may not load a library from there; name a folder with \
                 --session that it sees under the same path",
                target.pid,
                target.name,
                self.standing.root().display()
            )));
        }
        self.end_earlier();
        let name = format!("attach-{}", target.name);
        let folder = TraceFolder::claim(self.record.output.as_deref(), name.as_ref())?;
        self.begin_in(&folder, prepared).inspect_err(|_| folder.undo())
    }

    fn begin_in(&mut self, folder: &TraceFolder, prepared: metrics::Prepared) -> Result<Attached> {
        let trace = std::path::absolute(&folder.path)?;
        let (target, session) = (self.target, self.standing.path());
        let refused =
            |why: String| failed(format!("process {} ({}) cannot be attached to: {why}", target.pid, target.name));
        let mut told = wanted::variables(self.record, &session);
        told.extend([("GPUTRACE_SESSION", session.display().to_string()), (standing::AS_FILES, "file".to_owned())]);
        let environment = told.iter().map(|(name, value)| format!("{name}={value}"));
        let environment = environment.chain(target.variables.iter().cloned()).collect();
        let shim = self.standing.shim().display().to_string();
        self.keeper.load(shim, environment).map_err(refused)?;

        let id = gputrace_collectors::new_launcher_id();
        let config = self.config(&trace, host(), id);
        let running = gputrace_collectors::start(config).context("the collector did not start")?;
        let about =
            About { pid: std::process::id(), trace: trace.clone(), host: host(), launcher_id: id, ..About::default() };
        let begun = self.standing.tell(&about).and_then(|()| {
            let metrics = prepared.begin(&running, &session).context("metrics cannot be told")?;
            Ok((metrics, self.keeper.patch().map_err(refused)?))
        });
        match begun {
            Ok((metrics, functions)) => Ok(Attached { running, metrics, trace, functions }),
            Err(error) => {
                let _ = running.finish(None, Instant::now());
                Err(error)
            }
        }
    }

    fn config(&self, trace: &Path, host: String, id: u64) -> Config {
        let mut config = Config::new(trace.to_owned(), self.standing.path(), host, id);
        wanted::configure(&mut config, self.record);
        config.command = std::env::args().collect();
        config.standing = true;
        config
    }

    /// Makes the trace whole that an earlier gputrace left, which was killed.
    fn end_earlier(&self) {
        let Ok(before) = standing::about(self.standing.root()) else { return };
        if !before.trace.join("manifest").is_dir() {
            return;
        }
        let config = self.config(&before.trace, before.host.clone(), before.launcher_id);
        let ended = match take_over(config, left(&self.standing.path())) {
            Ok(running) => running.finish(None, Instant::now() + SEAL).map(|_| true).map_err(anyhow::Error::from),
            Err(TakeOverError::Ended) => Ok(false),
            Err(error) => Err(error.into()),
        };
        match ended {
            Ok(true) => {
                note(&format!("{}: was left by a gputrace that was killed, and is whole now", before.trace.display()))
            }
            Ok(false) => {}
            Err(error) => say(&format!(
                "{}: cannot be made whole: {error:#}; gputrace recover tries it again",
                before.trace.display()
            )),
        }
    }

    /// Detaches, makes the trace whole, and prints its summary.
    fn end(mut self, attached: Attached) -> Ending {
        let Attached { running, metrics, trace, .. } = attached;
        let mut code = 0;
        for trouble in self.keeper.take_back().err().into_iter().flatten() {
            say(&format!("not all of it was detached: {trouble}"));
            code = OWN_FAILURE;
        }
        let warnings = running.warnings();
        warn(&warnings);
        let (manifest, trouble) = match running.finish(None, Instant::now() + SEAL) {
            Ok(manifest) => (Some(manifest), None),
            Err(CollectError::Account { manifest, source, path }) => (
                Some(*manifest),
                Some(format!("cannot write the account of the trace at {}: {source}", path.display())),
            ),
            Err(error) => (None, Some(error.to_string())),
        };
        drop(metrics);
        warn(&warnings);
        if let Some(trouble) = trouble {
            say(&format!("{trouble}; the trace in {} is cut short", trace.display()));
            code = OWN_FAILURE;
        }
        summarise(&trace, manifest);
        self.clear_away();
        Ending::Code(code)
    }

    /// Removes the session's folder where nothing in it is of any more use.
    fn clear_away(self) {
        let Work { target, standing, keeper, .. } = self;
        drop(keeper);
        if !target.is_there() || !place::holds_segment(&standing.path()) {
            standing.remove();
        }
    }
}

fn warn(warnings: &Warnings) {
    while let Some(warning) = warnings.take() {
        say(&warning);
    }
}

fn summarise(trace: &Path, manifest: Option<Manifest>) {
    match summary::at_end(trace, manifest) {
        Ok(text) if !terminal::is_quiet() => {
            let stderr = std::io::stderr();
            let styled = terminal::is_styled(&stderr).then(|| render::dressed(&text));
            let _ = stderr.lock().write_all(styled.as_ref().unwrap_or(&text).as_bytes());
        }
        Ok(_) => {}
        Err(error) => say(&format!("no summary: {error:#}; trace in {}", trace.display())),
    }
}
