//! `gputrace top`: what a running session is doing, or what a finished trace did.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use gputrace_collectors::live::Snapshot;

use super::dump::{self, Over};
use crate::cli::TopArgs;
use crate::launch::exit::Ending;
use crate::launch::session::Found;
use crate::top::{self, Ask, News, Options};
use crate::trace::Trace;

/// A session answers between two passes; one that does not within this time is stopped, or its machine is far too busy.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shows it until a key ends it, or prints one frame.
pub(crate) fn run(args: &TopArgs) -> Result<Ending> {
    let options = Options { interval: args.interval, sort: args.sort.clone() };
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let once = args.once || dumb || !std::io::stdout().is_terminal();
    let signal = match dump::find(args.session.as_deref()) {
        Ok(session) => {
            let pid = session.pid;
            let of = || format!("session of gputrace {pid}");
            if once {
                print(&top::once(asks(session), &options).with_context(of)?)?;
                return Ok(Ending::Code(0));
            }
            // What refuses at once is no session to look at.
            match asks(session.clone())() {
                News::Now(_) => top::show(asks(session), &options)?,
                News::Over(why) | News::Silent(why) => return Err(anyhow::anyhow!(why).context(of())),
            }
        }
        Err(error) => {
            // A trace to which nobody writes any more is finished.
            let folder = args.session.as_deref().map(Path::new).filter(|path| path.join("manifest").is_dir());
            let view = still(folder.ok_or(error)?)?;
            if once {
                print(&top::still_text(&view, &options))?;
                return Ok(Ending::Code(0));
            }
            top::show_still(&view, &options)?
        }
    };
    Ok(signal.map_or(Ending::Code(0), Ending::Signal))
}

/// The picture of a finished trace.
fn still(folder: &Path) -> Result<top::View> {
    Trace::read(&[PathBuf::from(folder)], |trace| Ok(top::of_trace(trace, &folder.display().to_string())))
}

/// Asks the session how it is doing.
fn asks(session: Found) -> Ask {
    Box::new(move || match dump::ask(&session, "live", PATIENCE) {
        Ok(text) => match Snapshot::parse(&text) {
            Ok(snapshot) => News::Now(Box::new(snapshot)),
            Err(why) => News::Silent(why),
        },
        Err(error) if error.is::<Over>() => News::Over(error.to_string()),
        Err(error) => News::Silent(format!("{error:#}")),
    })
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to stdout")
}
