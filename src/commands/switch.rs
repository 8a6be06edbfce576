//! `gputrace start` and `gputrace stop`: recording of a running session, on and off.

use anyhow::Result;

use super::dump;
use crate::cli::SwitchArgs;

/// Tells the session, and prints the folder of its trace.
pub(crate) fn run(args: &SwitchArgs, word: &str) -> Result<()> {
    dump::request(args.session.as_deref(), word)
}
