//! `gputrace export`: a trace in the formats of other tools.

use anyhow::{Context, Result, bail};

use crate::cli::{ExportArgs, ExportFormat};
use crate::trace::{Missing, Trace};
use crate::{export, say};

/// Writes the files and names them. Fails after that when parts of the trace could not be read.
pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    let trace = Trace::open(&args.traces)?;
    let written = match args.format {
        ExportFormat::Kineto => export::kineto(&trace, &args.output),
    };
    let written = written.with_context(|| format!("cannot write the export {}", args.output.display()))?;
    for (file, events) in &written.files {
        say(&format!("{}: {events} events", file.display()));
    }
    if written.open_ranges > 0 {
        say(&format!("{} ranges without an end are left out", written.open_ranges));
    }
    match trace.problems().iter().find(|problem| problem.missing != Missing::Nothing) {
        Some(problem) => bail!("the export is not whole: {problem}"),
        None => Ok(()),
    }
}
