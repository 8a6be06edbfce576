//! Calls that lie far outside of their process's life: the clock was set while it ran, or what is said of one of them is wrong.

use std::path::PathBuf;

use gputrace_collectors::manifest::Clock;

use super::Facts;
use crate::render::duration;
use crate::trace::{Problem, Trace};

/// Clocks are compared to far less than this, and a process is looked at soon after its end.
const FAR_NS: i64 = 1_000_000_000;

/// What an import says of its clock, of the file that a process comes from.
fn imported(trace: &Trace, process_id: i64) -> Option<&Clock> {
    trace.manifest_of(process_id).filter(|manifest| manifest.is_imported()).map(|manifest| &manifest.clock)
}

/// How far time runs back in a process, which mixes up what lies before and after.
pub(crate) fn back(facts: &Facts<'_>, process_id: i64) -> Option<String> {
    let ns = imported(facts.trace, process_id)?.back_ns?;
    Some(format!("the clock was set meanwhile: time runs back by {}", duration(ns as f64)))
}

/// The same of all imported processes whose clock may have jumped.
pub(super) fn pauses(trace: &Trace) -> impl Iterator<Item = (i64, Vec<(i64, i64)>)> {
    let imported = |process_id| imported(trace, process_id).filter(|clock| !clock.pauses.is_empty());
    let ids = trace.processes.iter().map(|process| process.process_id);
    ids.filter_map(move |id| Some((id, imported(id)?.pauses.clone())))
}

/// Whether a time of a process holds a pause that dwarfs all else, which may be a jump of the clock.
pub(super) fn is_jump(trace: &Trace, process_id: i64, (from, to): (i64, i64)) -> bool {
    let pauses = imported(trace, process_id).map_or(&[][..], |clock| &clock.pauses);
    pauses.iter().any(|(begin, end)| from <= *begin && *end <= to)
}

/// How much of a time of a process lies in such pauses, ns.
pub(super) fn jumped_ns(trace: &Trace, process_id: i64, (from, to): (i64, i64)) -> i64 {
    let pauses = imported(trace, process_id).map_or(&[][..], |clock| &clock.pauses);
    pauses.iter().map(|(begin, end)| (*end.min(&to) - *begin.max(&from)).max(0)).sum()
}

/// The parts of a time of a process that lie beside them.
pub(super) fn without_jumps(trace: &Trace, process_id: i64, (from, to): (i64, i64)) -> Vec<(i64, i64)> {
    let mut pauses = imported(trace, process_id).map_or(&[][..], |clock| &clock.pauses).to_vec();
    pauses.sort_unstable();
    let mut parts = Vec::new();
    let mut at = from;
    for (begin, end) in pauses {
        parts.push((at, begin.min(to)));
        at = at.max(end);
    }
    parts.push((at, to));
    parts.retain(|(from, to)| from < to);
    parts
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

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::IMPORTED;

    use crate::analysis::{ALL, Value};
    use crate::trace::testing::{START, TestTrace};

    const JUMP_NS: i64 = 7_200_000_000_000;

    /// A number of an analysis of a loop of 52 steps of 412 us, whose clock jumps in the 30th; `told` by its import.
    fn metric(told: bool, name: &str, metric: &str) -> f64 {
        let mut trace = TestTrace::new();
        let mut jumped = START;
        trace.process(1, 100, None, START + JUMP_NS + 30_000_000);
        let mut thread = trace.thread(1, 11);
        for step in 0..52 {
            let began = thread.range_begin();
            let end = thread.launch_running("k", 5_000, 7, (thread.now + 6_000, 300_000));
            thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
            if step == 30 {
                jumped = thread.now;
                thread.host(JUMP_NS);
            }
            thread.host(100_000);
            thread.range_end(None, "step", began, true);
        }
        let about = trace.manifest.as_mut().expect("a manifest");
        about.clock.kind = IMPORTED.to_owned();
        about.clock.pauses = if told { vec![(jumped, jumped + JUMP_NS)] } else { Vec::new() };
        let analysis = ALL.iter().find(|analysis| analysis.name() == name).expect("an analysis");
        match trace.section(*analysis).get(metric) {
            Value::Num(ns) => *ns,
            Value::Int(ns) => *ns as f64,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_jump_is_in_no_gap_and_no_range_and_no_mean() {
        for (name, number, most) in [
            ("gpu-gaps", "idle_ns", 6e6),
            ("gpu-utilisation", "range_ns", 25e6),
            ("summary", "gpu_idle_mean_ns", 120e3),
            ("summary", "step_mean_ns", 420e3),
        ] {
            let [told, untold] = [true, false].map(|told| metric(told, name, number));
            assert!((1e3..most).contains(&told), "{name}.{number} {told}");
            assert!(untold > 1e9, "{name}.{number} {untold}");
        }
        assert!(metric(true, "gpu-utilisation", "busy_percent") > 70.0);
        assert!(metric(true, "syncs", "waits_wall_percent") > 30.0);
    }
}
