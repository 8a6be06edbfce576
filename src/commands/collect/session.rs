//! One session at work: its collector, from what an earlier one left to what the next one finds.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use gputrace_collectors::heir::standing::left;
use gputrace_collectors::manifest::{self, Manifest};
use gputrace_collectors::recover::{self, Launcher, TakeOverError};
use gputrace_collectors::{Config, Running, Warnings, take_over};

use super::super::record::wanted;
use super::brakes::Brakes;
use crate::cli::{RecordArgs, Switch};
use crate::launch::exit::Ending;
use crate::launch::names::host;
use crate::launch::standing::{self, About, Standing};
use crate::launch::trace_folder::TraceFolder;
use crate::{note, say};

/// Time for all to be on the disk when it is told to stop; who stops services waits for 90 s as a rule.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session whose collector is at work.
pub(super) struct Session {
    standing: Standing,
    pub(super) running: Running,
    trace: PathBuf,
    warnings: Warnings,
    brakes: Brakes,
    /// Somebody removed its folder.
    gone: bool,
}

impl Session {
    /// Starts all, or none. Those that begin anew write to one trace.
    pub(super) fn start_all(record: &RecordArgs, standings: Vec<Standing>) -> Result<Vec<Session>> {
        let (mut all, mut failed): (Vec<Session>, _) = (Vec::new(), None);
        for standing in standings {
            if failed.is_some() {
                standing.undo();
                continue;
            }
            let shared = all.first().map(|first| first.trace.as_path());
            match start(record, &standing, shared) {
                Ok((running, trace)) => all.push(Session::new(standing, running, trace)),
                Err(error) => {
                    standing.undo();
                    failed = Some(error);
                }
            }
        }
        let Some(failed) = failed else { return Ok(all) };
        Session::leave_all(all)?;
        Err(failed)
    }

    fn new(standing: Standing, running: Running, trace: PathBuf) -> Session {
        note(&format!(
            "collecting {} into {}; programs are started with gputrace env {0}",
            standing.root().display(),
            trace.display()
        ));
        let mut brakes = Brakes::new(standing.path(), running.faults());
        brakes.see();
        Session { warnings: running.warnings(), brakes, standing, running, trace, gone: false }
    }

    /// GPUTRACE_SESSION.
    pub(super) fn path(&self) -> PathBuf {
        self.standing.path()
    }

    /// Says what there is to say, and sees to programs that died.
    pub(super) fn look(&mut self) {
        while let Some(warning) = self.warnings.take() {
            say(&warning);
        }
        self.brakes.see();
        if !self.gone && !self.standing.is_there() {
            self.gone = true;
            say(&format!(
                "{}: the session's folder was removed: no program finds it any more; stop this collector, and start it again for a new one",
                self.standing.root().display()
            ));
        }
    }

    /// Brings all to the disk, and leaves what runs to the next collector.
    pub(super) fn leave_all(all: Vec<Session>) -> Result<Ending> {
        let deadline = Instant::now() + PATIENCE;
        let mut ending = Ok(Ending::Code(0));
        for session in all {
            if let Err(error) = session.leave(deadline)
                && let Err(earlier) = std::mem::replace(&mut ending, Err(error))
            {
                say(&format!("{earlier:#}"));
            }
        }
        ending
    }

    fn leave(mut self, deadline: Instant) -> Result<()> {
        let stopped = self.running.leave(deadline);
        self.look();
        let Some(processes) = stopped else {
            return Err(anyhow!(
                "{}: not all of it could be written: the next gputrace collect goes on with what the disk has",
                self.trace.display()
            ));
        };
        let report = format!("next: gputrace report {}", gputrace_collectors::quote(&self.trace.to_string_lossy()));
        note(&match self.gone {
            true => format!("stopped; {report}"),
            false => format!(
                "stopped; {processes} processes record on into their rings, for the next gputrace collect {}; {report}",
                self.standing.root().display()
            ),
        });
        Ok(())
    }
}

/// Goes on with what an earlier collector left, or begins.
/// `shared`: the trace of another session, where nothing else says which one this one's is.
fn start(record: &RecordArgs, standing: &Standing, shared: Option<&Path>) -> Result<(Running, PathBuf)> {
    let before = standing::about(standing.root()).ok();
    let again =
        before.as_ref().filter(|before| record.output.as_ref().is_none_or(|output| is_same(output, &before.trace)));
    if let Some(before) = again.filter(|before| before.trace.join("manifest").is_dir()) {
        let stopped = account(before).is_none_or(|manifest| manifest.stopped_ns.is_some());
        let config = config(record, standing, &before.trace, before.launcher_id);
        match take_over(Config { host: before.host.clone(), ..config }, left(&standing.path())) {
            Ok(running) => {
                tell(record, standing, before)?;
                if !stopped {
                    note(&format!(
                        "{}: its collector was killed, or could not bring all to the disk: what that one had read and not written counts as lost, of a \
                         program that runs once it has ended",
                        before.trace.display()
                    ));
                }
                return Ok((running, before.trace.clone()));
            }
            // Somebody made it whole, or removed it.
            Err(TakeOverError::Ended) => {}
            Err(error) => return Err(error).context("the session cannot be gone on with"),
        }
    }
    // What processes left of another trace is not of this one's account: they are adopted as they are found.
    let trace = match (again, shared) {
        (Some(before), _) => before.trace.clone(),
        (None, Some(shared)) => shared.to_owned(),
        (None, None) => std::path::absolute(&TraceFolder::claim(record.output.as_deref(), "collect".as_ref())?.path)?,
    };
    let id = gputrace_collectors::new_launcher_id();
    let mut config = config(record, standing, &trace, id);
    if let Some(before) = before.as_ref().filter(|before| again.is_none() && before.trace.join("manifest").is_dir()) {
        end(before, &trace, &mut config);
    }
    let running = gputrace_collectors::start(config).context("the collector did not start")?;
    tell(record, standing, &About { trace: trace.clone(), host: host(), launcher_id: id, ..About::default() })?;
    Ok((running, trace))
}

/// Makes the trace whole that the session's earlier collector left, for this one begins `another`, and is told what that one's account has.
fn end(before: &About, another: &Path, config: &mut Config) {
    let launcher = Launcher { host: before.host.clone(), id: before.launcher_id };
    let old = before.trace.display();
    let mut account = account(before);
    let stopped_ns = account.as_ref().and_then(|manifest| manifest.stopped_ns);
    match recover::end(&before.trace, &launcher, another) {
        Ok(None) => {}
        Ok(Some(whole)) => {
            let another = another.display();
            note(&match stopped_ns {
                Some(_) => format!("{old}: ended; what comes now is in {another}"),
                None => format!(
                    "{old}: ended, its collector was killed: what that one had read last and not written counts as lost in {another}, \
                     which has what comes now"
                ),
            });
            account = Some(whole);
        }
        Err(error) => say(&format!(
            "{old}: the session's earlier trace could not be made whole: {error}; see gputrace recover {old}"
        )),
    }
    if let Some(account) = account {
        let killed_ns = account.recovered.map(|recovered| recovered.killed_ns);
        config.ended_before_ns = stopped_ns.or(killed_ns).or(account.ended_ns);
        let accounts = account.processes.into_iter().map(|process| (process.process_id, process.accounting));
        config.accounts_before = accounts.collect();
    }
}

/// What the session's earlier collector wrote last of what it knew.
fn account(before: &About) -> Option<Manifest> {
    Manifest::read(&manifest::path(&before.trace, &before.host, before.launcher_id)).ok()
}

fn is_same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

fn config(record: &RecordArgs, standing: &Standing, trace: &Path, id: u64) -> Config {
    let mut config = Config::new(trace.to_owned(), standing.path(), host(), id);
    wanted::configure(&mut config, record);
    config.command = std::env::args().collect();
    (config.standing, config.collected) = (true, true);
    config.begin_paused = record.capture.begins_paused();
    config
}

/// Leaves in the session's folder what programs are to be started with, and what the next collector must know.
fn tell(record: &RecordArgs, standing: &Standing, of: &About) -> Result<()> {
    let variables = wanted::variables(record, &standing.path()).into_iter();
    let variables = variables.chain([(standing::AS_FILES, "file".to_owned())]);
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).collect();
    standing.tell(&About { pid: std::process::id(), variables, nvtx: record.nvtx == Switch::On, ..of.clone() })
}
