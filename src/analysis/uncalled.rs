//! Says where most kernels have no launch in the trace: what the host does between launches, and what the GPU waits for, is not known.
//!
//! The mirror of [`super::unmatched`]. Not judged is what has another reason, and its own note: launches that were lost, left out or
//! removed, and parts of a run.

use gputrace_collectors::schema::TableId;

use super::section::Section;
use super::{Facts, Loss, Shed, loss};
use crate::render::number;

/// Fewer kernels without a launch are no reason to doubt the others.
const FEWEST: u64 = 10;

/// How many kernels of a process have no launch, if most have none.
pub(crate) fn calls(facts: &Facts<'_>, process_id: i64) -> Option<String> {
    let launches = [TableId::Launches];
    let own = || facts.trace.process(process_id);
    let lost = || {
        loss::unread(facts, &launches).is_some()
            || loss::is_removed(facts.trace, &launches)
            || own().and_then(|own| Loss::of_process(own, &launches)).is_some_and(|loss| loss.dropped > 0)
            || Shed::of(own().into_iter()).is_some()
    };
    if facts.filter.is_window() || facts.filter.is_gapped() || facts.is_metal(process_id) || lost() {
        return None;
    }
    let seen = facts.gpu_clock.any_of(process_id)?;
    let count = seen.uncalled().filter(|count| *count >= FEWEST)?;
    let (count, all) = (number(count as f64), number(seen.kernels as f64));
    Some(format!("{count} of {all} kernels have no launch in the trace"))
}

/// Says so in a section that is made of launches and kernels.
pub(super) fn note(section: &mut Section, facts: &Facts<'_>) {
    let of = |process: &crate::trace::Process| Some((process.process_id, calls(facts, process.process_id)?));
    if let Some((process_id, what)) = facts.processes().find_map(of) {
        let whose = facts.label(process_id);
        section.note(format!("In {whose} {what}: why GPUs are idle, and what launching takes, is not known there."));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::analysis::{ALL, Section};
    use crate::trace::testing::{START, TestTrace};
    use gputrace_collectors::schema::TableId;

    /// A loop of 60 steps of ten kernels, which name their launches or none; these may be missing.
    fn looped(named: bool, launched: bool) -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..60 {
            let step = thread.range_begin();
            let mut end = thread.now + 6_000;
            for _ in 0..10 {
                end = thread.launch_running("gemm", 5_000, 7, (end, 300_000));
            }
            thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
            thread.range_end(None, "step", step, true);
        }
        if !named {
            trace.set(TableId::Kernels, "correlation_id", &json!(0));
        }
        if !launched {
            trace.clear(TableId::Launches);
        }
        trace
    }

    fn report(trace: &TestTrace, name: &str) -> Section {
        let analysis = ALL.iter().find(|analysis| analysis.name() == name);
        trace.section(*analysis.expect("an analysis"))
    }

    #[test]
    fn kernels_without_launches_leave_launches_and_waits_unknown() {
        for named in [true, false] {
            let trace = looped(named, false);
            let summary = report(&trace, "summary");
            let text = summary.literal.clone().unwrap_or_default();
            assert_eq!(summary.get("verdict"), &"UNKNOWN".into(), "{text}");
            assert!(text.contains("UNKNOWN: 600 of 600 kernels have no launch in the trace"), "{text}");
            let fine = text.split("checked, fine: ").nth(1).unwrap_or_default().split("not known").next();
            assert!(fine.is_some_and(|fine| !fine.contains("launches") && !fine.contains("waits")), "{text}");
            assert!(text.contains("not known: launches and waits"), "{text}");
            assert!(!text.contains("median kernel 0"), "{text}");
            for name in ["gpu-gaps", "queue-length", "critical-path"] {
                let notes = report(&trace, name).notes;
                assert!(
                    notes.iter().any(|note| note.contains("600 of 600 kernels have no launch")),
                    "{name}: {notes:?}"
                );
            }
        }
    }

    #[test]
    fn kernels_of_graphs_and_of_launches_that_are_there_are_not_doubted() {
        assert_ne!(report(&looped(true, true), "summary").get("verdict"), &"UNKNOWN".into());
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for call in 0..100 {
            let begin = thread.now + 9_000;
            thread.launch_graph(Some(5), Some(4), 5_000);
            (0..4).for_each(|n| thread.ran("k", begin + n * 10_000, 9_000, (11 << 32) + 2 * call));
            thread.sync("cuStreamSynchronize", "stream", 60_000);
        }
        let text = report(&trace, "summary").literal.unwrap_or_default();
        assert!(!text.contains("have no launch"), "{text}");
    }
}
