//! `gputrace export`: a trace in the formats of other tools.

use anyhow::{Context, Result, bail};

use super::select::wrong;
use crate::analysis::Shed;
use crate::cli::{ExportArgs, ExportAt, ExportFormat, ExportValue};
use crate::export::heap::{At, What};
use crate::trace::{Missing, Trace};
use crate::{export, say};

/// Writes the files and names them. Fails after that when parts of the trace could not be read.
pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    args.check().map_err(wrong)?;
    let trace = Trace::open(&args.traces)?;
    let at = match args.at {
        None | Some(ExportAt::End) => At::End,
        Some(ExportAt::Peak) => At::Peak,
    };
    let what = match args.value {
        None | Some(ExportValue::AllocSpace) => What::AllocSpace,
        Some(ExportValue::AllocObjects) => What::AllocObjects,
        Some(ExportValue::InuseSpace) => What::InuseSpace,
        Some(ExportValue::InuseObjects) => What::InuseObjects,
    };
    let (written, unit) = match args.format {
        ExportFormat::Kineto => (export::kineto(&trace, &args.output), "events"),
        ExportFormat::Pprof => (export::heap::pprof(&trace, &args.output, at), "stacks"),
        ExportFormat::Folded => (export::heap::folded(&trace, &args.output, what, at), "stacks"),
    };
    let written = written.with_context(|| format!("cannot write the export {}", args.output.display()))?;
    for (file, number) in &written.files {
        say(&format!("{}: {number} {unit}", file.display()));
    }
    if let Some(shed) = Shed::of(trace.processes.iter()).filter(|_| args.format == ExportFormat::Kineto) {
        say(&format!("{}: they are not in it", shed.text(&trace)));
    }
    if written.open_ranges > 0 {
        say(&format!("{} ranges without an end are left out", written.open_ranges));
    }
    if written.files.iter().all(|(_, number)| *number == 0) && args.format != ExportFormat::Kineto {
        say(match what {
            What::InuseSpace | What::InuseObjects if at == At::End => {
                "nothing of malloc's is known to be in use at the end; --at peak has what was when there was most"
            }
            _ => "no malloc in this trace (recorded with --malloc off, or too little to be sampled)",
        });
    }
    match trace.problems().iter().find(|problem| problem.missing != Missing::Nothing) {
        Some(problem) => bail!("the export is not whole: {problem}"),
        None => Ok(()),
    }
}
