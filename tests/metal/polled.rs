//! A host that waits by asking again and again.

use super::{each, int};

#[test]
fn questions_how_far_the_gpu_is_are_counted_and_said_to_be_no_wait_of_the_trace() {
    for (way, message) in [("polled", "[MTLSharedEvent signaledValue]"), ("asked", "[MTLCommandBuffer status]")] {
        each("metal_waits.m", &[way], |run| {
            let asked = int(&run.truth("asked")[0], "times") as u64;
            let process = run.process();
            // What the handler of ours asks is not among them.
            let hooks = process.coverage.hooks.iter().find(|hook| hook.name == message);
            assert_eq!(hooks.map(|hook| (hook.calls, hook.counted)), Some((asked, true)), "{}", run.who);
            let trace = run.run.trace.to_string_lossy();
            let report = run.scratch.gputrace(&["report", &trace, "--only", "syncs"]).expect(0);
            let said = format!("{message} was called");
            assert!(report.text().contains(&said), "{}: {}", run.who, report.text());
            assert!(report.text().contains("which is counted and not timed"), "{}: {}", run.who, report.text());
        });
    }
}
