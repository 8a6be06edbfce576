//! What glibc's malloc holds for itself, asked by a thread of ours where somebody wants that.

use crate::util::{Scratch, Trace, program, system_library};

/// Values of a counter of malloc's.
fn told(trace: &Trace, name: &str) -> Vec<f64> {
    let table = trace.table("counters");
    let rows = table.rows().filter(|row| row.text("source") == "malloc" && row.text("name") == name);
    rows.map(|row| row.float("value")).collect()
}

#[test]
fn holes_between_blocks_are_free_in_the_arenas() {
    let scratch = Scratch::new();
    // 20 MB, every second block of which is freed: no neighbours that would become one.
    let target = scratch.target(program("mallocs")).args(["holes", "20000", "1000"]);
    let run = target.options(["--malloc-arenas", "0.05", "--counters", "off"]).same().expect(0);
    let trace = run.read();
    let most = |name: &str| told(&trace, name).into_iter().fold(0.0, f64::max);
    let (held, free) = (most("arenas"), most("arenas_free"));
    assert!((20e6..30e6).contains(&held) && (10e6..12e6).contains(&free), "{held} {free}");
    assert!(most("arenas_look") > 0.0 && most("arenas_at_end") < 1e6);
    let report = scratch.gputrace(&["report", &run.trace.to_string_lossy(), "--only", "host-memory"]).expect(0).text();
    assert!(report.contains("free in malloc's arenas, of what they hold"), "{report}");
    // Nobody asks unless told.
    let plain = scratch.target(program("mallocs")).args(["holes", "20", "1000"]).traced().expect(0);
    assert!(told(&plain.read(), "arenas").is_empty());
}

#[test]
fn another_allocator_has_no_arenas_to_ask_and_the_trace_says_so() {
    let Some(path) = system_library("libjemalloc.so.2") else { return };
    let scratch = Scratch::new();
    let target = scratch.target(program("mallocs")).args(["known", "5"]).env("LD_PRELOAD", &path);
    let trace = target.options(["--malloc-arenas", "0.05"]).same().read();
    let notes = trace.root().notes;
    assert!(notes.iter().any(|note| note.contains("--malloc-arenas")), "{notes:?}");
    assert!(told(&trace, "arenas").is_empty());
}
