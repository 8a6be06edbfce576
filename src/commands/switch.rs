//! `gputrace start` and `gputrace stop`: recording of a running session, on and off; and `gputrace set`, its limits and triggers.

use anyhow::Result;

use super::dump;
use super::select::wrong;
use crate::cli::{SetArgs, SwitchArgs};

/// Tells the session, and prints the folder of its trace.
pub(crate) fn run(args: &SwitchArgs, word: &str) -> Result<()> {
    dump::request(args.session.as_deref(), word)
}

/// Sets something of the session, and prints the folder of its trace.
pub(crate) fn set(args: &SetArgs) -> Result<()> {
    let (session, settings) = args.read().map_err(wrong)?;
    let words: Vec<String> = settings.iter().map(ToString::to_string).collect();
    dump::request(session, &format!("set {}", words.join(" ")))
}
