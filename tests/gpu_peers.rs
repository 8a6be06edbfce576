//! To put CUPTI on a process or to take it off waits for all kernels that run, with all launches held up. Kernels that wait for another
//! process (NCCL's, those that use its memory) may wait for one of these launches: so neither is done any more once there are such.

use crate::gpu_windows::cupti_calls;
use crate::util::{Driver, Scratch, program};

/// Many launches, and after 1.5 of 4 seconds memory of another process.
const WORDS: [&str; 7] = ["4", "200", "2", "100", "99", "0", "1.5"];

/// The calls of CUPTI before that memory is opened and after, and what the manifest says.
fn with_a_peer(how: &str) -> (Vec<String>, Vec<String>, gputrace_collectors::manifest::GpuTime) {
    let scratch = Scratch::new();
    let file = scratch.path().join("cupti.json");
    let target = scratch.target(program("steps")).args(WORDS).with_driver(Driver::Plain).env("FAKE_CUPTI_TRUTH", &file);
    let options = ["--gpu-time", how, "--gpu-window-every", "1", "--budget", "20"];
    let trace = target.options(options).traced().expect(0).read();
    let (api, names) = (trace.table("api"), trace.names());
    let opened = api.rows().find(|row| names[&row.int("api_id")].starts_with("cuIpcOpenMemHandle"));
    let opened_ns = opened.expect("memory of another process").int("start_ns");
    let (before, after): (Vec<_>, Vec<_>) = cupti_calls(&file).into_iter().partition(|(_, at)| *at < opened_ns);
    let names = |calls: Vec<(String, i64)>| calls.into_iter().map(|(function, _)| function).collect();
    (names(before), names(after), trace.root().gpu_time.expect("CUPTI was asked"))
}

#[test]
fn auto_takes_cupti_off_before_the_first_peer_and_times_launches_from_then_on() {
    let (before, after, about) = with_a_peer("auto");
    assert!(about.given_up.as_deref().is_some_and(|why| why.contains("wait for other processes")), "{about:?}");
    assert_eq!(before.last().map(String::as_str), Some("cuptiFinalize"), "{before:?}");
    assert!(after.is_empty(), "{after:?}");
    assert!(about.windows >= 1 && about.events.as_ref().is_some_and(|events| events.timed > 100), "{about:?}");
}

#[test]
fn windows_put_cupti_on_before_the_first_peer_and_leave_it_there() {
    let (before, after, about) = with_a_peer("windows");
    let place = |calls: &[String], name: &str| calls.iter().rposition(|function| function == name);
    let (on, off) = (place(&before, "cuptiActivityRegisterCallbacks"), place(&before, "cuptiFinalize"));
    assert!(on > off, "it is there: {before:?}");
    assert_eq!(place(&after, "cuptiFinalize"), None, "{after:?}");
    assert!(about.windows >= 2 && after.iter().any(|function| function == "cuptiActivityEnable"), "{about:?}");
    assert!(about.stays.as_deref().is_some_and(|why| why.contains("wait for other processes")), "{about:?}");
    assert!(about.given_up.is_none() && about.joined * 100 >= about.records * 90, "{about:?}");
}
