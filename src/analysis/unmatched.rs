//! Says where launches have no kernel in the trace, though it has times of the GPU: time in which those kernels ran looks idle.
//!
//! Rows of operations that could not be read, or whose files somebody removed, are missing like them: what is left is no measurement.
//!
//! Not judged is what has another reason, and its own note: windows of GPU times, launches timed by events, rows removed to keep to a
//! size, and ranges or devices that the user chose. Graphs are not either: whose kernels they ran a profiler may leave out.

use gputrace_collectors::schema::TableId;

use super::section::{Section, Value};
use super::{Facts, gpu, loss, untimed};
use crate::render::{number, time};

/// Fewer launches without a kernel are no reason to doubt the others.
const FEWEST: u64 = 10;
/// Nor is a smaller part of them.
const SHARE: f64 = 0.01;
/// In a window, whose ends cut launches from their kernels.
const SHARE_OF_WINDOW: f64 = 0.1;

/// What is missing in a process, if so much is that its idle time of the GPU is not known.
pub(crate) fn missing(facts: &Facts<'_>, process_id: i64) -> Option<String> {
    if gpu::unread(facts).is_some() {
        return facts
            .gpu
            .as_ref()
            .filter(|gpu| gpu.any())
            .map(|_| "operations of the GPU could not be read".to_owned());
    }
    let filter = facts.filter;
    let elsewhere = filter.is_gapped() || filter.device.is_some() || filter.interval.is_some();
    let removed = || loss::is_removed(facts.trace, &[TableId::Kernels, TableId::CommandBuffers, TableId::Dispatches]);
    if elsewhere || facts.trace.gave_cupti_up() || !facts.trace.has_gpu_times() || removed() {
        return None;
    }
    if facts.is_metal(process_id) {
        return untimed::missing(facts, process_id);
    }
    let seen = facts.gpu_clock.any_of(process_id)?;
    let part = filter.is_window();
    let missing = seen.missing(part);
    let share = if part { SHARE_OF_WINDOW } else { SHARE };
    if missing.count < FEWEST || (missing.count as f64) <= share * seen.launches as f64 {
        return None;
    }
    let (first, _) = facts.host.processes.get(&process_id)?.span_ns;
    // What no later launch has, the trace lacks from then on.
    let ends = match seen.joined {
        0 => "; the trace has no kernel of this process".to_owned(),
        _ if missing.first_ns > seen.last_joined_ns => {
            format!("; the GPU's records end {} after the first call", time((seen.span_ns.1 - first) as f64))
        }
        _ => String::new(),
    };
    let (count, all) = (number(missing.count as f64), number(seen.launches as f64));
    Some(format!("{count} of {all} launches have no kernel in the trace{ends}"))
}

/// The first process in which so much is missing, and what.
pub(crate) fn any(facts: &Facts<'_>) -> Option<(i64, String)> {
    facts.processes().find_map(|process| Some((process.process_id, missing(facts, process.process_id)?)))
}

/// The same, but of rows that could not be read: of these [`gpu::unread_note`] tells.
fn told(facts: &Facts<'_>) -> Option<(i64, String)> {
    any(facts).filter(|_| gpu::unread(facts).is_none())
}

/// Says so in a section that tells how long GPUs were busy or idle.
pub(super) fn note(section: &mut Section, facts: &Facts<'_>) {
    if let Some((process_id, what)) = told(facts) {
        let whose = facts.label(process_id);
        section.note(format!(
            "In {whose} {what}: time in which they ran looks idle here, and no number here is a measurement."
        ));
    }
}

/// Says so in a section about launches, queues or streams: what it tells is told of the kernels that are there.
pub(super) fn note_of_rest(section: &mut Section, facts: &Facts<'_>) {
    if let Some((process_id, what)) = told(facts) {
        let whose = facts.label(process_id);
        section.note(format!(
            "In {whose} {what}: what is said of kernels here, and what is made of it, is of the others."
        ));
    }
}

/// Like [`note`], and takes its numbers for not known: a limit on them would hold, or fail, for what the trace lacks.
pub(super) fn withhold(section: &mut Section, facts: &Facts<'_>) {
    if any(facts).is_some() {
        section.facts.iter_mut().for_each(|fact| fact.value = Value::Missing);
    }
    note(section, facts);
}

#[cfg(test)]
mod tests {
    use crate::analysis::{ALL, Section, Value};
    use crate::trace::testing::{START, TestTrace};

    /// Which kernels the trace has.
    type Kept = fn(usize) -> bool;

    /// A loop of 60 steps whose launch and copy run on the GPU, the launches' kernels only where `kept` says so.
    fn looped(kept: impl Fn(usize) -> bool, waits: bool) -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        for number in 0..60 {
            let step = thread.range_begin();
            let begin = thread.now + 6_000;
            let copied = thread.copy_running("HtoD", 1 << 20, 4_000, (begin, 50_000));
            let end = copied + 300_000;
            match kept(number) {
                true => {
                    thread.launch_running("gemm", 5_000, 7, (copied, 300_000));
                }
                false => thread.launch("gemm", 5_000),
            }
            match waits {
                true => thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now),
                false => thread.host(end - thread.now),
            }
            thread.range_end(None, "step", step, true);
        }
        trace
    }

    fn report(trace: &TestTrace, name: &str) -> Section {
        let analysis = ALL.iter().find(|analysis| analysis.name() == name);
        trace.section(*analysis.expect("an analysis"))
    }

    #[test]
    fn launches_without_kernels_leave_the_gpus_idle_time_unknown_and_every_report_says_so() {
        let half = "30 of 60 launches have no kernel in the trace; the GPU's records end 10.8 ms after the first call";
        let cases: [(Kept, &str); 3] = [
            (|_| false, "60 of 60 launches have no kernel in the trace; the trace has no kernel of this process"),
            (|number| number < 30, half),
            (|number| number % 5 != 0, "12 of 60 launches have no kernel in the trace"),
        ];
        for (kept, what) in cases {
            let trace = looped(kept, true);
            let summary = report(&trace, "summary");
            let text = summary.literal.clone().unwrap_or_default();
            assert_eq!(summary.get("verdict"), &"UNKNOWN".into(), "{text}");
            assert!(text.contains(&format!("UNKNOWN: {what}")), "{text}");
            assert_eq!(summary.get("gpu_busy_ns"), &Value::Missing);
            for (name, metric) in [("gpu-gaps", "idle_percent"), ("gpu-utilisation", "busy_percent")] {
                let section = report(&trace, name);
                assert_eq!(section.get(metric), &Value::Missing, "{name}");
                assert!(section.notes.iter().any(|note| note.contains(what)), "{name}: {:?}", section.notes);
            }
        }
    }

    #[test]
    fn what_is_said_of_kernels_is_said_to_be_of_those_that_are_there() {
        let what = "In pid 100 12 of 60 launches have no kernel in the trace: what is said of kernels here, and what \
                    is made of it, is of the others.";
        let (whole, part) = (looped(|_| true, true), looped(|number| number % 5 != 0, true));
        for name in ["critical-path", "kernel-sequences", "launch-overhead", "queue-length", "streams", "targets"] {
            let notes = |trace: &TestTrace| report(trace, name).notes;
            assert_eq!(notes(&part).iter().filter(|note| *note == what).count(), 1, "{name}: {:?}", notes(&part));
            assert!(!notes(&whole).iter().any(|note| note.contains("no kernel")), "{name}: {:?}", notes(&whole));
        }
    }

    #[test]
    fn what_was_still_under_way_at_the_end_and_few_launches_are_no_reason_for_doubt() {
        let cases: [(Kept, bool); 3] = [(|_| true, true), (|number| number < 40, false), (|number| number != 20, true)];
        for (kept, waits) in cases {
            let trace = looped(kept, waits);
            assert_ne!(report(&trace, "summary").get("verdict"), &"UNKNOWN".into());
            assert_ne!(report(&trace, "gpu-gaps").get("idle_percent"), &Value::Missing);
        }
    }
}
