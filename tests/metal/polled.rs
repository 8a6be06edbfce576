//! A host that waits by asking again and again.

use super::{each, int};

#[test]
fn questions_for_a_shared_events_value_are_counted_and_said_to_be_no_wait_of_the_trace() {
    each("metal_waits.m", &["polled"], |run| {
        let asked = int(run.truth("asked")[0], "times") as u64;
        let process = run.process();
        let hooks = process.coverage.hooks.iter().find(|hook| hook.name == "[MTLSharedEvent signaledValue]");
        assert_eq!(hooks.map(|hook| (hook.calls, hook.counted)), Some((asked, true)), "{}", run.who);
        let trace = run.run.trace.to_string_lossy();
        let report = run.scratch.gputrace(&["report", &trace, "--only", "syncs"]).expect(0);
        assert!(report.text().contains("which is counted and not timed"), "{}: {}", run.who, report.text());
    });
}
