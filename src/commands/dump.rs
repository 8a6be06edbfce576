//! `gputrace dump`: has a running session keep what just happened, and waits until that is in its trace.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gputrace_collectors::control_path;

use super::select::wrong;
use crate::cli::DumpArgs;
use crate::launch::session::{self, Found};
use crate::launch::{processes, standing, whose};

/// A session answers a dump when a second has passed, and what the GPU did was told; a slow disk may take longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long one may take to say which process it is.
const HEIRS_PATIENCE: Duration = Duration::from_secs(5);

/// A session at work, as it speaks of itself.
struct Live {
    found: Found,
    trace: PathBuf,
    command: String,
}

/// Asks the session and prints the folder of its trace.
pub(crate) fn run(args: &DumpArgs) -> Result<()> {
    request(args.session.as_deref(), "dump")
}

/// The session that is named, or the only one of this user.
pub(super) fn find(session: Option<&str>) -> Result<Found> {
    let all = in_usual_places();
    match session {
        Some(name) => named(name, all),
        None => only(live(all, PATIENCE)),
    }
}

fn in_usual_places() -> Vec<Found> {
    let mut all = session::find(&session::bases());
    all.extend(standing::find(&standing::usual()));
    all
}

/// The session that writes to a trace.
pub(super) fn writer(trace: &Path, patience: Duration) -> Option<Found> {
    writer_of(&trace.canonicalize().ok()?, in_usual_places(), patience)
}

/// The same of these, and of those that the trace itself names, which are this user's.
fn writer_of(real: &Path, mut all: Vec<Found>, patience: Duration) -> Option<Found> {
    let told = whose::of_trace(real).found.into_iter().filter_map(|found| allowed(found).ok());
    for found in told {
        if !all.contains(&found) {
            all.push(found);
        }
    }
    let same = |live: &Live| live.trace.canonicalize().is_ok_and(|trace| trace == real);
    live(all, patience).into_iter().find(same).map(|live| live.found)
}

/// Asks the session that is named, or the only one, and prints its answer.
pub(super) fn request(session: Option<&str>, word: &str) -> Result<()> {
    let session = find(session)?;
    let trace = ask(&session, word, PATIENCE).with_context(|| format!("session of gputrace {}", session.pid))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{trace}").and_then(|()| out.flush()).context("cannot write to stdout")
}

/// The only session of this user.
fn only(live: Vec<Live>) -> Result<Found> {
    match live.as_slice() {
        [] => Err(wrong(
            "no session of this user is running in a usual place; name one by its pid, its folder or its trace",
        )),
        [one] => Ok(one.found.clone()),
        several => {
            let of = |live: &Live| format!("{} ({})", live.found.pid, live.command);
            let list = several.iter().map(of).collect::<Vec<_>>().join(", ");
            Err(wrong(format!("{} sessions are running; name one by its pid: {list}", several.len())))
        }
    }
}

/// The session that is meant by its folder, by a pid, or by its trace.
fn named(name: &str, all: Vec<Found>) -> Result<Found> {
    if let Ok(pid) = name.parse::<u32>() {
        return by_pid(pid, all);
    }
    let path = Path::new(name);
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let meant = |found: &&Found| {
        let own = found.path.canonicalize().unwrap_or_else(|_| found.path.clone());
        real == own || real == own.join("s") || found.path.file_name() == Some(path.as_os_str())
    };
    if let Some(found) = all.iter().find(meant) {
        return allowed(found.clone());
    }
    if let Some(found) = standing::find(&real) {
        return allowed(found);
    }
    writer_of(&real, all, PATIENCE).ok_or_else(|| match real.join("manifest").is_dir() {
        true => {
            let told = whose::of_trace(&real).roots.pop();
            let was = told.map_or(String::new(), |root| format!("; that of gputrace collect is {}", root.display()));
            wrong(format!("{name}: no running session of this user and host writes to this trace{was}"))
        }
        false => wrong(format!("{name}: no session, no pid and no trace")),
    })
}

fn by_pid(pid: u32, all: Vec<Found>) -> Result<Found> {
    if let Some(found) = all.iter().find(|found| found.pid == pid) {
        return allowed(found.clone());
    }
    let traces = |found: &Found| processes::referring_to(&found.path, 0).contains(&pid);
    if let Some(live) = live(all.clone(), HEIRS_PATIENCE).into_iter().find(|live| live.found.pid == pid) {
        return allowed(live.found);
    }
    match all.into_iter().find(traces).or_else(|| whose::of_process(pid)) {
        Some(found) => allowed(found),
        None if processes::stat(pid).is_some() => Err(wrong(format!(
            "process {pid} is no gputrace, and no running session of this user traces it, as far as can be seen from here; name the \
             session by its folder, where it has one of its own"
        ))),
        None => Err(wrong(format!("there is no process {pid}"))),
    }
}

/// Refuses what is another user's: its socket would not let us in.
fn allowed(found: Found) -> Result<Found> {
    // SAFETY: the call only reads this process's credentials.
    let own = unsafe { libc::geteuid() };
    if found.owner != own && own != 0 {
        let (pid, owner) = (found.pid, found.owner);
        return Err(wrong(format!("the session of gputrace {pid} is another user's ({owner}): only they can ask it")));
    }
    Ok(found)
}

/// The sessions that answer; others are over, or another user's.
fn live(all: Vec<Found>, patience: Duration) -> Vec<Live> {
    let answers = |found: Found| {
        let answer = ask(&found, "ping", patience).ok()?;
        let mut parts = answer.splitn(3, '\t');
        // Not the pid in the folder's name, where that one was killed and another goes on.
        let pid = parts.next()?.parse().ok()?;
        let (trace, command) = (PathBuf::from(parts.next()?), parts.next()?.to_owned());
        Some(Live { found: Found { pid, ..found }, trace, command })
    };
    all.into_iter().filter_map(answers).collect()
}

/// A session that has ended; or one without a collector, of which this is the folder.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.as_ref().map_or_else(|| "it is over".to_owned(), |root| {
    format!("no collector is at work there; gputrace collect {} goes on with it", root.display())
}))]
pub(super) struct Over(Option<PathBuf>);

/// Connects to a session. One that has just been made may not listen yet.
fn connect(session: &Found, patience: Duration) -> Result<UnixStream> {
    const AGAIN: Duration = Duration::from_millis(10);
    let (path, began) = (control_path(&session.session()), Instant::now());
    loop {
        match UnixStream::connect(&path).map_err(|error| (error.kind(), error)) {
            Ok(stream) => return Ok(stream),
            Err((ErrorKind::NotFound, _)) if session.is_alive() && began.elapsed() < patience => {
                std::thread::sleep(AGAIN);
            }
            Err((ErrorKind::NotFound | ErrorKind::ConnectionRefused, _)) => {
                let stays = standing::said(&session.path).is_ok();
                return Err(Over(stays.then(|| session.path.clone())).into());
            }
            Err((_, error)) => bail!("it cannot be asked: {error}"),
        }
    }
}

/// Asks a session, waits so long, and returns what it says.
pub(super) fn ask(session: &Found, request: &str, patience: Duration) -> Result<String> {
    let mut stream = connect(session, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(format!("{request}\n").as_bytes()).context("it does not listen")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("it does not answer")?;
    match answer.trim_end_matches('\n').split_once(' ') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("error", text)) => bail!("{text}"),
        _ => bail!("it ended before it could answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::exit::Failure;
    use crate::launch::testing::Folder;

    fn found(folder: &Folder, pid: u32) -> Found {
        // SAFETY: the call only reads this process's credentials.
        Found { pid, path: folder.path().join(format!("gputrace-{pid}-abcdef")), owner: unsafe { libc::geteuid() } }
    }

    fn code_and_text(error: &anyhow::Error) -> (i32, String) {
        (error.downcast_ref::<Failure>().map_or(1, |failure| failure.code), format!("{error:#}"))
    }

    #[test]
    fn whoever_names_no_session_that_runs_is_told_in_one_line() {
        let folder = Folder::new("dump");
        let over = found(&folder, 4_000_000);
        folder.file("old/manifest/h-1.json", b"{}", 0o600);
        let old = folder.path().join("old").display().to_string();
        let said = |name: &str| code_and_text(&named(name, vec![over.clone()]).unwrap_err());
        assert_eq!(said("3999999"), (2, "there is no process 3999999".to_owned()));
        assert!(said("1").1.contains("process 1 is no gputrace"));
        assert!(said(&old).1.ends_with("no running session of this user and host writes to this trace"));
        assert_eq!(said("nonsense"), (2, "nonsense: no session, no pid and no trace".to_owned()));
        assert_eq!(code_and_text(&only(Vec::new()).err().unwrap()).0, 2);
        assert_eq!(named("gputrace-4000000-abcdef", vec![over.clone()]).unwrap(), over);
        let refused = ask(&over, "ping", PATIENCE).unwrap_err();
        assert_eq!((code_and_text(&refused), refused.is::<Over>()), ((1, "it is over".to_owned()), true));
    }

    #[test]
    fn several_sessions_are_listed_with_what_they_trace() {
        let folder = Folder::new("dump-several");
        let live = |pid| Live { found: found(&folder, pid), trace: PathBuf::new(), command: format!("train {pid}") };
        assert_eq!(only(vec![live(7)]).unwrap().pid, 7);
        let (code, text) = code_and_text(&only(vec![live(7), live(8)]).unwrap_err());
        assert_eq!((code, text.contains("7 (train 7), 8 (train 8)")), (2, true), "{text}");
    }
}
