//! `gputrace collect`: the collector of a session that is there whether it runs or not; and `gputrace env`, with what programs are started
//! to be traced by it.

mod brakes;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use gputrace_collectors::heir::standing::left;
use gputrace_collectors::manifest::{self, Manifest};
use gputrace_collectors::recover::{self, Launcher, TakeOverError};
use gputrace_collectors::{Config, Running, Warnings, take_over};

use self::brakes::Brakes;
use super::record::{memory, metrics, wanted};
use super::select::wrong;
use crate::cli::{CollectArgs, EnvArgs, EnvFormat, RecordArgs, Switch};
use crate::launch::exit::{Ending, Failure, OWN_FAILURE};
use crate::launch::find_command::find_command;
use crate::launch::inherited::Inherited;
use crate::launch::names::host;
use crate::launch::signals::{self, Signals};
use crate::launch::spawn::{self, Program};
use crate::launch::standing::{self, About, Standing};
use crate::launch::trace_folder::TraceFolder;
use crate::launch::{environ, links, others, shim};
use crate::{note, say};

/// How often warnings are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// Time for all to be on the disk when it is told to stop; who stops services waits for 90 s as a rule.
const PATIENCE: Duration = Duration::from_secs(60);

/// Collects until it is told to stop.
pub(crate) fn run(args: CollectArgs) -> Result<Ending> {
    // What a command that cannot be started leaves to gputrace is an error as any other here.
    let own = |failure: &Failure| (failure.code == OWN_FAILURE).then(|| Failure::error(1, failure.to_string()));
    collect(args).map_err(|error| error.downcast_ref().and_then(own).unwrap_or(error))
}

fn collect(args: CollectArgs) -> Result<Ending> {
    if cfg!(target_os = "macos") {
        return Err(wrong(
            "sessions that outlive gputrace are of Linux only; gputrace -- COMMAND traces a command here",
        ));
    }
    let CollectArgs { session, record } = args;
    if !record.command.is_empty() {
        return Err(wrong("collect starts no command: gputrace env -- COMMAND does, in the session"));
    }
    record.check().map_err(|what| wrong(format!("{what}; see gputrace collect --help")))?;
    memory::check(record.segment_memory).map_err(wrong)?;
    let shim = shim::find_library(shim::SHIM)
        .map_err(|missing| anyhow!("{} is {missing}; install it beside gputrace", shim::SHIM))?;
    let prepared = metrics::prepare(&record.metrics)?;
    let standing = Standing::open(&session.unwrap_or_else(standing::usual), &shim)?;

    let wanted_signals = signals::wanted();
    let _inherited = Inherited::note_and_block(&wanted_signals);
    let signals = Signals::open(&wanted_signals).context("signals cannot be received")?;
    let (running, trace) = match start(&record, &standing) {
        Ok(started) => started,
        Err(error) => {
            standing.undo();
            return Err(error);
        }
    };
    let metrics = prepared.begin(&running, &standing.path()).context("metrics cannot be told")?;
    note(&format!(
        "collecting {} into {}; programs are started with gputrace env {0}",
        standing.root().display(),
        trace.display()
    ));

    let warnings = running.warnings();
    let mut brakes = Brakes::new(standing.path(), running.faults());
    brakes.see();
    let dumps = record.detail.is_triggered().then(signals::dump_signal);
    while !is_told_to_end(&signals.wait(LOOK), dumps, &running) {
        warn(&warnings);
        brakes.see();
    }
    drop(metrics);
    let stopped = running.leave(Instant::now() + PATIENCE);
    brakes.see();
    warn(&warnings);
    match stopped {
        Some(processes) => {
            note(&format!(
                "stopped; {processes} processes record on into their rings, for the next gputrace collect {}; next: gputrace report {}",
                standing.root().display(),
                gputrace_collectors::quote(&trace.to_string_lossy())
            ));
            Ok(Ending::Code(0))
        }
        None => Err(anyhow!(
            "{}: not all of it could be written: the next gputrace collect goes on with what the disk has",
            trace.display()
        )),
    }
}

/// Goes on with what an earlier collector left, or begins.
fn start(record: &RecordArgs, standing: &Standing) -> Result<(Running, PathBuf)> {
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
                        "{}: its collector was killed: what that one had read last and not written counts as lost, of a program that runs once it has ended",
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
    let trace = match again {
        Some(before) => before.trace.clone(),
        None => std::path::absolute(&TraceFolder::claim(record.output.as_deref(), "collect".as_ref())?.path)?,
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

/// Sees to what signals ask for. True: to end.
fn is_told_to_end(came: &[signals::Signal], dumps: Option<i32>, running: &Running) -> bool {
    came.iter().filter(|signal| Some(signal.number) == dumps).for_each(|_| running.dump("a signal to gputrace"));
    came.iter().any(|signal| [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT].contains(&signal.number))
}

fn warn(warnings: &Warnings) {
    while let Some(warning) = warnings.take() {
        say(&warning);
    }
}

/// Prints the environment, or starts the command with it.
pub(crate) fn env(args: &EnvArgs) -> Result<Ending> {
    let root = std::path::absolute(args.session.clone().unwrap_or_else(standing::usual))?;
    let about = standing::about(&root)?;
    let (preload, session) = (links::preload(&root), standing::session(&root));
    if let Some(owner) = others::another_owner(&root) {
        say(&format!(
            "{} is of user {owner}: only what that user runs is traced in it, and this runs untraced",
            root.display()
        ));
    }
    if let Some(name) = args.command.first() {
        let mut inherited = spawn::environment();
        if about.nvtx {
            inherited = environ::with_nvtx(inherited, &preload);
        }
        let variables: Vec<(&str, String)> =
            about.variables.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let environment = environ::for_target(inherited, &preload, session.as_os_str(), &variables);
        let path = find_command(name, std::env::var_os("PATH").as_deref()).map_err(|missing| missing.failure(name))?;
        let program = Program::new(&path, &args.command, environment)?;
        return Err(spawn::exec_failure(name, &program.exec()));
    }
    let mut all =
        vec![(environ::PRELOAD.to_owned(), preload.clone()), ("GPUTRACE_SESSION".to_owned(), session.into_os_string())];
    if about.nvtx {
        all.push((environ::INJECTION.to_owned(), preload));
    }
    all.extend(about.variables.into_iter().map(|(name, value)| (name, OsString::from(value))));
    let mut out = std::io::stdout().lock();
    out.write_all(&printed(&all, args.format)).and_then(|()| out.flush()).context("cannot write to stdout")?;
    Ok(Ending::Code(0))
}

fn printed(all: &[(String, OsString)], format: EnvFormat) -> Vec<u8> {
    let mut text = Vec::new();
    match format {
        EnvFormat::Json => {
            let all: serde_json::Map<_, _> =
                all.iter().map(|(name, value)| (name.clone(), value.to_string_lossy().into())).collect();
            text.extend(serde_json::to_vec_pretty(&all).unwrap_or_default());
            text.push(b'\n');
        }
        EnvFormat::Plain => {
            for (name, value) in all {
                text.extend([name.as_bytes(), b"=", value.as_bytes(), b"\n"].concat());
            }
        }
        EnvFormat::Shell => {
            for (name, value) in all {
                // The session's path has no quotes, and of the rest nothing comes from outside.
                let quoted = value.to_string_lossy().replace('\'', "'\\''");
                let rest = if name == environ::PRELOAD { "\"${LD_PRELOAD:+:$LD_PRELOAD}\"" } else { "" };
                text.extend(format!("export {name}='{quoted}'{rest}\n").into_bytes());
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_printed_for_shells_files_and_programs() {
        let all =
            [(environ::PRELOAD.to_owned(), OsString::from("/s/$LIB/x.so")), ("A".to_owned(), OsString::from("it's"))];
        let said = |format| String::from_utf8(printed(&all, format)).unwrap();
        assert_eq!(said(EnvFormat::Plain), format!("{}=/s/$LIB/x.so\nA=it's\n", environ::PRELOAD));
        let shell = said(EnvFormat::Shell);
        assert!(
            shell.contains("='/s/$LIB/x.so'\"${LD_PRELOAD:+:$LD_PRELOAD}\"\n")
                && shell.ends_with("export A='it'\\''s'\n"),
            "{shell}"
        );
        let json: serde_json::Value = serde_json::from_str(&said(EnvFormat::Json)).unwrap();
        assert_eq!(json["A"], "it's");
    }
}
