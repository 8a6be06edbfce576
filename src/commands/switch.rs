//! `gputrace start` and `gputrace stop`: recording of a running session, on and off; and `gputrace set`, its limits and triggers.

use anyhow::Result;

use super::dump;
use super::select::wrong;
use crate::cli::{SetArgs, StartArgs, StopArgs};

/// Has the session record from now on, or as long and as often as is asked, and prints the folder of its trace.
pub(crate) fn start(args: &StartArgs) -> Result<()> {
    dump::request(args.session.as_deref(), &args.request().map_err(wrong)?)
}

/// Has the session record no more, and prints the folder of its trace.
pub(crate) fn stop(args: &StopArgs) -> Result<()> {
    dump::request(args.session.as_deref(), "stop")
}

/// Sets something of the session, and prints the folder of its trace.
pub(crate) fn set(args: &SetArgs) -> Result<()> {
    let (session, settings) = args.read().map_err(wrong)?;
    let words: Vec<String> = settings.iter().map(ToString::to_string).collect();
    dump::request(session, &format!("set {}", words.join(" ")))
}
