//! Calls that lie far outside of their process's life: the clock was set while it ran, or what is said of one of them is wrong.

use std::path::PathBuf;

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::Clock;

use super::Facts;
use crate::render::duration;
use crate::trace::{Problem, Trace};

/// Clocks are compared to far less than this, and a process is looked at soon after its end.
const FAR_NS: i64 = 1_000_000_000;

/// What an import says of its clock, of the file that a process comes from.
fn imported(trace: &Trace, process_id: i64) -> Option<&Clock> {
    let of = |manifest: &&Manifest| manifest.processes.iter().any(|process| process.process_id == process_id);
    trace.manifests().filter(|manifest| manifest.is_imported()).find(of).map(|manifest| &manifest.clock)
}

/// How far time runs back in a process, which mixes up what lies before and after.
pub(crate) fn back(facts: &Facts<'_>, process_id: i64) -> Option<String> {
    let ns = imported(facts.trace, process_id)?.back_ns?;
    Some(format!("the clock was set meanwhile: time runs back by {}", duration(ns as f64)))
}

/// Whether a time of a process holds a pause that dwarfs all else, which may be a jump of the clock.
pub(super) fn is_jump(trace: &Trace, process_id: i64, (from, to): (i64, i64)) -> bool {
    let pauses = imported(trace, process_id).map_or(&[][..], |clock| &clock.pauses);
    pauses.iter().any(|(begin, end)| from <= *begin && *end <= to)
}

/// Says it in one note, of the process where it is most; times across the jump mean nothing.
pub(super) fn note(facts: &Facts<'_>) {
    let beyond = |(id, time): (&i64, &super::ProcessTime)| {
        let process = facts.trace.process(*id).filter(|process| process.start_ns > 0 && time.any())?;
        let before = process.start_ns - time.span_ns.0;
        let after = process.end_ns.map_or(0, |end| time.span_ns.1 - end);
        let what = if before >= after { "before it began" } else { "after it ended" };
        Some((before.max(after), what, process.label())).filter(|(ns, ..)| *ns > FAR_NS)
    };
    let all: Vec<_> = facts.host.processes.iter().filter_map(beyond).collect();
    let Some((ns, what, label)) = all.iter().max() else { return };
    let others = if all.len() > 1 { format!(", and so in {} more", all.len() - 1) } else { String::new() };
    let text = format!(
        "calls of {label} lie up to {} {what}{others}: the clock was set while it ran, and times across that mean nothing",
        duration(*ns as f64)
    );
    facts.trace.problem(Problem::note(facts.trace.folders.first().cloned().unwrap_or_else(PathBuf::new), text));
}
