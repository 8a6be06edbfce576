//! `gputrace report`: prints what the analyses find in a trace.

use anyhow::{Result, bail};

use crate::cli::ReportArgs;

/// Prints the report.
pub(crate) fn run(args: ReportArgs) -> Result<()> {
    bail!("{}: no analysis is built in", args.traces.len())
}
