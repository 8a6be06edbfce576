//! `gputrace attach`, where there is none.

use anyhow::Result;

use crate::cli::AttachArgs;
use crate::launch::exit::{Ending, Failure, OWN_FAILURE};

/// Says so.
pub(crate) fn run(_: AttachArgs) -> Result<Ending> {
    Err(Failure::error(OWN_FAILURE, "attach is for Linux; gputrace -- COMMAND traces a command here"))
}
