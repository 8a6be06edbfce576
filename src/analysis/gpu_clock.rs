//! Says where the GPU's times cannot be compared with the host's: nothing that is made of both holds there.

use super::Facts;
use super::section::Section;
use crate::render::{share, time};

/// Fewer kernels with their launch tell nothing.
const FEWEST: u64 = 10;
/// So large a part of them that begins before its launch is no accident.
const EARLY: f64 = 0.1;
/// No launch keeps every one of its kernels waiting so long.
const LATE_NS: i64 = 1_000_000_000;

/// What is wrong with the GPU's clock in a process, if anything is.
pub(crate) fn off(facts: &Facts<'_>, process_id: i64) -> Option<String> {
    let seen = facts.gpu_clock.of(process_id)?;
    let early = seen.early.count as f64 / seen.joined.max(1) as f64;
    let enough = seen.joined >= FEWEST;
    if enough && early >= EARLY {
        let by = time(seen.early.median() as f64);
        return Some(format!("{} of the kernels begin before their launch does, {by} in the median", share(early)));
    }
    // What is left of a window may be work of earlier launches.
    if facts.filter.is_window() {
        return None;
    }
    let (first, last) = facts.host.processes.get(&process_id).filter(|time| time.any())?.span_ns;
    if seen.span_ns.1 <= first {
        return Some(format!("all kernels ended {} before the first call", time((first - seen.span_ns.1) as f64)));
    }
    // Metal's times are the host's, and a program that leaves the rest to completion handlers makes no call after its last commit.
    if facts.is_metal(process_id) {
        return None;
    }
    if enough && seen.span_ns.0 >= last {
        return Some(format!("the first kernel began {} after the last call", time((seen.span_ns.0 - last) as f64)));
    }
    let late = enough && seen.soonest_ns >= LATE_NS;
    late.then(|| format!("no kernel begins sooner than {} after its launch", time(seen.soonest_ns as f64)))
}

/// The first process of which something is wrong, and what.
pub(crate) fn any_off(facts: &Facts<'_>) -> Option<(i64, String)> {
    facts.processes().find_map(|process| Some((process.process_id, off(facts, process.process_id)?)))
}

/// Says so in a section that is made of both clocks.
pub(super) fn note(section: &mut Section, facts: &Facts<'_>) {
    if let Some((process_id, what)) = any_off(facts) {
        let whose = facts.label(process_id);
        section.note(format!(
            "The GPU's clock is not the host's in {whose}: {what}. Nothing here that is made of both holds."
        ));
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::{ALL, Section, Value};
    use crate::trace::testing::{START, TestTrace};

    /// A loop whose GPU's clock is ahead by so much.
    fn report(name: &str, ahead: i64) -> Section {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..40 {
            let step = thread.range_begin();
            let begin = thread.now + 6_000;
            let end = thread.launch_running("gemm", 5_000, 7, (begin + ahead, 300_000)) - ahead;
            thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
            thread.range_end(None, "step", step, true);
        }
        let analysis = ALL.iter().find(|analysis| analysis.name() == name);
        trace.section(*analysis.expect("an analysis"))
    }

    #[test]
    fn a_gpu_whose_clock_is_off_is_not_judged_and_every_report_says_so() {
        for (ahead, what) in [
            (-5_000_000_000, "100 % of the kernels begin before their launch does, 5.00 s in the median"),
            (5_000_000_000, "the first kernel began 4.99 s after the last call"),
            (-100_000, "100 % of the kernels begin before their launch does, 94.0 us in the median"),
        ] {
            let summary = report("summary", ahead);
            let text = summary.literal.clone().unwrap_or_default();
            assert_eq!(summary.get("verdict"), &"UNKNOWN".into(), "{text}");
            assert!(text.contains(&format!("UNKNOWN: the GPU's clock is not the host's: {what}")), "{text}");
            assert!(summary.tables.iter().all(|table| table.key != "findings" || table.rows.is_empty()), "{text}");
            assert_eq!(summary.get("gpu_busy_ns"), &Value::Missing);
            let itself = report("self", ahead);
            let asked = itself.tables.iter().find(|table| table.key == "unanswered").expect("questions");
            assert!(asked.rows.iter().any(|row| row[0] == "what the GPU did while the host did something".into()));
            assert!(
                report("gpu-gaps", ahead)
                    .notes
                    .iter()
                    .any(|note| note.starts_with("The GPU's clock is not the host's"))
            );
        }
    }

    #[test]
    fn clocks_that_agree_are_not_suspected() {
        for ahead in [0, 30_000, -6_000] {
            let text = report("summary", ahead).literal.unwrap_or_default();
            assert!(!text.contains("clock"), "{text}");
            // The wait of each step costs 2 % of it, more or less.
            assert!(["HEALTHY", "GPU BOUND"].iter().any(|word| text.contains(&format!("\n{word}: "))), "{text}");
        }
    }
}
