//! Says where the GPU's work is known in part on Metal: command buffers without a time, and dispatches of which no commit was seen.
//!
//! Time in which they ran looks idle. What the GPU gave up is no such work: that has a finding of its own.

use super::Facts;
use super::passes::metal::Buffers;
use crate::render::{counted, number};

/// A smaller part leaves what is said of the rest a measurement: what still ran at the end, for instance.
const SHARE: f64 = 0.05;
/// In a window, whose ends cut commits from what they held.
const SHARE_OF_WINDOW: f64 = 0.1;

/// What is not known in a process, if it is so much.
pub(super) fn missing(facts: &Facts<'_>, process_id: i64) -> Option<String> {
    let own = facts.metal.processes.get(&process_id)?;
    let share = if facts.filter.is_window() { SHARE_OF_WINDOW } else { SHARE };
    let much = |part: u64, all: u64| part as f64 > share * all as f64;
    let dispatches: u64 =
        facts.metal.kernels.iter().filter(|((of, _), _)| *of == process_id).map(|(_, of)| of.count).sum();
    // Where commits have no row, lost or left by exceptions, one of those may be theirs.
    let manifest = facts.trace.process(process_id).and_then(|process| process.manifest.as_ref());
    let commits = manifest.and_then(|manifest| manifest.accounting.get("commit"));
    let unseen = commits.is_some_and(|commits| commits.dropped + commits.abandoned > 0);
    let stray = if unseen { own.stray + own.discarded } else { own.stray };
    if much(own.untimed, own.count) {
        let all = counted(own.count as f64, "command buffer", "command buffers");
        let have = if own.untimed == 1 { "has" } else { "have" };
        return Some(format!("{} of {all} {have} no time on the GPU", number(own.untimed as f64)));
    }
    much(stray, dispatches).then(|| {
        let all = counted(dispatches as f64, "dispatch", "dispatches");
        let have = if stray == 1 { "has" } else { "have" };
        format!("{} of {all} {have} no commit in the trace", number(stray as f64))
    })
}

/// How many have no time, in words, if any have none.
pub(super) fn said(buffers: impl Fn(fn(&Buffers) -> u64) -> u64) -> Option<String> {
    let (untimed, open) = (buffers(|own| own.untimed), buffers(|own| own.open));
    (untimed > 0).then(|| {
        let all = counted(untimed as f64, "command buffer has", "command buffers have");
        let why = match open {
            0 => "their times were not told or cannot be theirs",
            _ => "still under way at the end, or of commits of Metal 4's with options of the program's own",
        };
        format!("{all} no time on the GPU: {why}.")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::analysis::{ALL, Section, Value};
    use crate::trace::testing::{START, TestTrace};
    use gputrace_collectors::manifest::{Count, Removed};
    use gputrace_collectors::schema::TableId;

    fn report(trace: &TestTrace, name: &str) -> Section {
        let analysis = ALL.iter().find(|analysis| analysis.name() == name);
        trace.section(*analysis.expect("an analysis"))
    }

    /// Command buffers of 300 us one after the other, of which only some have a time.
    fn committed(timed: impl Fn(usize) -> bool) -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        for nth in 0..60 {
            let begin = thread.now + 10_000;
            thread.commit_commands("gemm", 4, timed(nth).then_some((begin, 300_000)));
            thread.sync("[MTLCommandBuffer waitUntilCompleted]", "stream", begin + 304_000 - thread.now);
        }
        trace
    }

    #[test]
    fn command_buffers_without_times_leave_what_the_gpu_did_unknown() {
        let trace = committed(|nth| nth % 3 != 0);
        let what = "20 of 60 command buffers have no time on the GPU";
        let summary = report(&trace, "summary");
        let text = summary.literal.clone().unwrap_or_default();
        assert!(text.contains(&format!("UNKNOWN: {what}")), "{text}");
        assert_eq!(summary.get("gpu_busy_ns"), &Value::Missing);
        assert!(summary.tables.iter().all(|table| table.key != "findings" || table.rows.is_empty()), "{text}");
        for name in ["gpu-gaps", "gpu-utilisation", "metal-baseline"] {
            let notes = report(&trace, name).notes;
            assert!(notes.iter().any(|note| note.contains(what)), "{name}: {notes:?}");
        }
        let baseline = report(&trace, "metal-baseline");
        assert_eq!(
            ["utilisation_percent", "gap_mean_ns", "efficiency_percent"].map(|key| baseline.get(key)),
            [&Value::Missing; 3]
        );
        assert_eq!(baseline.get("kernels"), &Value::Int(240));
    }

    #[test]
    fn the_last_command_buffer_may_still_run_at_the_end() {
        let trace = committed(|nth| nth != 59);
        let text = report(&trace, "summary").literal.unwrap_or_default();
        assert!(!text.contains("no time on the GPU"), "{text}");
        assert_ne!(report(&trace, "metal-baseline").get("utilisation_percent"), &Value::Missing);
    }

    #[test]
    fn steps_of_a_program_that_ends_while_the_last_run_are_not_told_by_the_gpu() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        let first = thread.now + 10_000;
        for nth in 0..60 {
            let gpu = (first + nth * 300_000, 300_000);
            let step = thread.range_begin();
            thread.commit_commands("gemm", 4, (nth < 40).then_some(gpu));
            thread.host(10_000);
            thread.range_end(None, "step", step, true);
        }
        let summary = report(&trace, "summary");
        let text = summary.literal.clone().unwrap_or_default();
        assert!(text.contains("UNKNOWN: 20 of 60 command buffers have no time on the GPU"), "{text}");
        assert!(!text.contains("step of the GPU") && !text.contains("OUTLIER"), "{text}");
    }

    #[test]
    fn what_was_removed_for_the_size_limit_is_neither_fine_nor_said_not_to_have_completed() {
        let mut trace = committed(|_| true);
        for table in [TableId::Launches, TableId::CommandBuffers, TableId::Kernels, TableId::Dispatches] {
            trace.clear(table);
            let removed = Removed {
                limit: "--max-size".into(),
                table: table.table().name.into(),
                rows: 60,
                from_ns: START,
                to_ns: START + 9,
            };
            trace.manifest.as_mut().expect("a manifest").removed.push(removed);
        }
        let text = report(&trace, "summary").literal.unwrap_or_default();
        assert!(text.contains("most launches were removed to keep to --max-size, --max-age or --keep-detail: what is fine is not known"), "{text}");
        assert!(!text.contains("checked, fine") && !text.contains("seen to complete"), "{text}");
    }

    #[test]
    fn when_copies_ran_within_command_buffers_is_not_known() {
        let mut trace = committed(|_| true);
        trace.thread(1, 11).copy("HtoD", ("pinned", "device"), true, 8, 4_000);
        let section = report(&trace, "transfers");
        assert_eq!(section.get("copies"), &Value::Int(1));
        assert_eq!(["gpu_ns", "exposed_ns", "beside_kernels_ns"].map(|key| section.get(key)), [&Value::Missing; 3]);
    }

    #[test]
    fn dispatches_that_were_committed_where_nobody_saw_it_leave_it_unknown_too() {
        let mut trace = committed(|_| true);
        let stray = json!({"start_ns": START, "api_ns": 10, "process_id": 1, "pid": 1, "tid": 11, "kind": "threads", "size_x": 64});
        (0..10).for_each(|_| trace.row(TableId::Dispatches, stray.clone()));
        let text = report(&trace, "summary").literal.unwrap_or_default();
        assert!(text.contains("UNKNOWN: 10 of 70 dispatches have no commit in the trace"), "{text}");
        let baseline = report(&trace, "metal-baseline");
        assert_eq!((baseline.get("kernels"), baseline.get("utilisation_percent")), (&Value::Int(240), &Value::Missing));
        assert_eq!(report(&trace, "dispatches").get("stray"), &Value::Int(10));
    }

    #[test]
    fn command_buffers_that_were_never_committed_gave_the_gpu_nothing() {
        let mut trace = committed(|_| true);
        let discarded = json!({"start_ns": START, "api_ns": 10, "process_id": 1, "pid": 1, "tid": 11, "kind": "threads", "size_x": 64, "discarded": true});
        (0..30).for_each(|_| trace.row(TableId::Dispatches, discarded.clone()));
        let text = report(&trace, "summary").literal.unwrap_or_default();
        assert!(!text.contains("UNKNOWN"), "{text}");
        let dispatches = report(&trace, "dispatches");
        assert_eq!((dispatches.get("stray"), dispatches.get("discarded")), (&Value::Missing, &Value::Int(30)));
        assert_eq!(report(&trace, "metal-baseline").get("kernels"), &Value::Int(240));
        // Their commits may be among those that were lost.
        let count = Count { seen: 61, recorded: 60, dropped: 1, ..Count::default() };
        trace.manifest.as_mut().expect("a manifest").processes[0].accounting.insert("commit".to_owned(), count);
        let text = report(&trace, "summary").literal.unwrap_or_default();
        assert!(text.contains("30 of 90 dispatches have no commit in the trace"), "{text}");
    }
}
