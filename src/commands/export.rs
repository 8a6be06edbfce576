//! `gputrace export`: a trace in the formats of other tools.

use anyhow::{Context, Result, bail};

use super::select::{self, wrong};
use super::unfinished;
use crate::analysis::Shed;
use crate::cli::{ExportArgs, ExportAt, ExportFormat, ExportOf, ExportValue};
use crate::export::tables::Format;
use crate::render::counted;
use crate::trace::{Filter, Missing, Trace};
use crate::{export, note, progress, render};

/// Writes the files and names them. Fails after that when parts of the trace could not be read.
pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    args.check().map_err(wrong)?;
    let work = progress::of("looking");
    let trace = Trace::open(&args.traces)?;
    let filter = kept(args, &trace)?;
    select::tell(&trace, &filter);
    unfinished::of(&trace).iter().for_each(|unfinished| note(&unfinished.text));
    let (most, file) = (args.max_events, args.file());
    let (kind, at) = (args.kind(), args.at.unwrap_or(ExportAt::End));
    let of = kind.unwrap_or(ExportOf::Malloc);
    let value = args.value.unwrap_or(if of == ExportOf::Malloc { ExportValue::AllocSpace } else { of.main_value() });
    let (written, unit) = match args.format {
        ExportFormat::Perfetto => (export::perfetto::write(&trace, &filter, most, file), "events"),
        ExportFormat::Chrome => (export::chrome::write(&trace, &filter, most, file), "events"),
        ExportFormat::Kineto => (export::kineto(&trace, &filter, file), "events"),
        ExportFormat::Pprof => (export::stacks::pprof(&trace, &filter, file, of, at), "stacks"),
        ExportFormat::Folded => (export::stacks::folded(&trace, &filter, file, value, at), "stacks"),
        ExportFormat::Speedscope => {
            let values = args.value.map_or_else(|| export::stacks::weights(kind), |value| vec![value]);
            (export::stacks::speedscope(&trace, &filter, file, &values, at), "stacks")
        }
        ExportFormat::Sqlite => (export::sqlite::write(&trace, &filter, file), "rows"),
        ExportFormat::Csv => (export::tables::write(&trace, &filter, file, Format::Csv), "rows"),
        ExportFormat::Arrow => (export::tables::write(&trace, &filter, file, Format::Arrow), "rows"),
    };
    drop(work);
    let written = written.with_context(|| format!("cannot write the export {}", args.file().display()))?;
    for (file, number) in &written.files {
        let unit = if *number == 1 { unit.trim_end_matches('s') } else { unit };
        note(&format!("{}: {} {unit}", file.display(), render::number(*number as f64)));
    }
    let has_launches = !args.format.is_by_stack() || kind == Some(ExportOf::Calls);
    if let Some(shed) = Shed::of(trace.processes.iter()).filter(|_| has_launches) {
        note(&format!("{}: they are not in it", shed.text(&trace)));
    }
    written.left_out.iter().for_each(|text| note(text));
    written.outside.iter().for_each(|text| note(text));
    if written.open_ranges > 0 {
        note(&format!("{} left out", without_end(written.open_ranges)));
    }
    if written.ended_ranges > 0 {
        note(&format!("{} told to end with their process", without_end(written.ended_ranges)));
    }
    let problems = trace.problems();
    let missing = problems.iter().find(|problem| problem.missing != Missing::Nothing);
    // What could not be read is no reason to say that it was not recorded.
    if args.format.is_by_stack() && missing.is_none() && written.files.iter().all(|(_, number)| *number == 0) {
        note(nothing(kind, args.value.filter(|_| at == ExportAt::End)));
    }
    match missing {
        Some(problem) => bail!("the export is not whole: {problem}"),
        None => Ok(()),
    }
}

fn without_end(ranges: u64) -> String {
    counted(ranges as f64, "range without an end is", "ranges without an end are")
}

/// Why there is nothing by stack; `at_end`: the value that was looked at then.
fn nothing(kind: Option<ExportOf>, at_end: Option<ExportValue>) -> &'static str {
    match (kind, at_end) {
        (_, Some(ExportValue::InuseSpace | ExportValue::InuseObjects)) => {
            "nothing of malloc's is known to be in use at the end; --at peak has what was when there was most"
        }
        (None, _) => "nothing in this trace is known by stack",
        (Some(ExportOf::Malloc), _) => {
            "no malloc in this trace (recorded with --malloc off, or too little to be sampled); --of waits has the host's waits"
        }
        (Some(ExportOf::Waits), _) => "no waits of the host for the GPU in this trace",
        (Some(ExportOf::OsWaits), _) => {
            "no waits for the operating system in this trace (recorded with --os off, or none was long enough)"
        }
        (Some(ExportOf::Calls), _) => {
            "no driver call in this trace has a stack (recorded with --stacks off, or all were short)"
        }
    }
}

/// What is exported: all that is kept in the trace unless told, where a report is about one interval; and all that the GPU is
/// known to have done.
fn kept(args: &ExportArgs, trace: &Trace) -> Result<Filter> {
    let chosen = Filter { observed: None, ..select::filter(&args.select, trace)? };
    let select = &args.select;
    if select.interval.is_some() || select.from.is_some() || select.to.is_some() {
        return Ok(chosen);
    }
    let processes = chosen.asked.clone();
    Ok(Filter { from_ns: None, to_ns: None, interval: None, left_out_launchers: 0, processes, ..chosen })
}
