//! `gputrace collect`: the collector of sessions that are there whether it runs or not; and `gputrace env`, with what programs are started
//! to be traced by it.

mod brakes;
mod session;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use self::session::Session;
use super::record::{memory, metrics};
use super::select::wrong;
use crate::cli::{CollectArgs, EnvArgs, EnvFormat};
use crate::launch::exit::{Ending, Failure, OWN_FAILURE};
use crate::launch::find_command::find_command;
use crate::launch::inherited::Inherited;
use crate::launch::signals::{self, Signals};
use crate::launch::spawn::{self, Program};
use crate::launch::standing::{self, Standing};
use crate::launch::{environ, links, others, shim};
use crate::say;

/// How often warnings are looked for.
const LOOK: Duration = Duration::from_millis(250);

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
    let CollectArgs { sessions, record } = args;
    if !record.command.is_empty() {
        return Err(wrong("collect starts no command: gputrace env -- COMMAND does, in the session"));
    }
    record.check().map_err(|what| wrong(format!("{what}; see gputrace collect --help")))?;
    memory::check(record.segment_memory).map_err(wrong)?;
    let shim = shim::find_library(shim::SHIM)
        .map_err(|missing| anyhow!("{} is {missing}; install it beside gputrace", shim::SHIM))?;
    if sessions.len() > 1 && record.metrics.are_told() {
        return Err(wrong("metrics are of one session: with several, give each of them a gputrace collect of its own"));
    }
    let prepared = metrics::prepare(&record.metrics)?;
    let sessions = if sessions.is_empty() { vec![standing::usual()] } else { sessions };
    let opened = open_all(&sessions, &shim)?;

    let wanted_signals = signals::wanted();
    let _inherited = Inherited::note_and_block(&wanted_signals);
    let signals = Signals::open(&wanted_signals).context("signals cannot be received")?;
    let mut all = Session::start_all(&record, opened)?;
    let first = all.first().map(|session| prepared.begin(&session.running, &session.path()));
    let metrics = first.transpose().context("metrics cannot be told")?;

    let dumps = record.detail.is_triggered().then(signals::dump_signal);
    while !is_told_to_end(&signals.wait(LOOK), dumps, &all) {
        all.iter_mut().for_each(Session::look);
    }
    drop(metrics);
    Session::leave_all(all)
}

/// Opens all of them; none where one cannot be.
fn open_all(roots: &[PathBuf], shim: &Path) -> Result<Vec<Standing>> {
    let mut all: Vec<Standing> = Vec::new();
    for (place, root) in roots.iter().enumerate() {
        if roots[..place].contains(root) {
            all.into_iter().for_each(Standing::undo);
            return Err(wrong(format!("{}: is named twice", root.display())));
        }
        match Standing::open(root, shim) {
            Ok(standing) => all.push(standing),
            Err(error) => {
                all.into_iter().for_each(Standing::undo);
                return Err(error);
            }
        }
    }
    Ok(all)
}

/// Sees to what signals ask for. True: to end.
fn is_told_to_end(came: &[signals::Signal], dumps: Option<i32>, all: &[Session]) -> bool {
    for _ in came.iter().filter(|signal| Some(signal.number) == dumps) {
        all.iter().for_each(|session| session.running.dump("a signal to gputrace"));
    }
    came.iter().any(|signal| [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT].contains(&signal.number))
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
