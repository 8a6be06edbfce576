//! What a hooked message adds, in instructions, which do not depend on how busy the machine is: `benches/metal.py` counts them.

use std::process::Command;

use crate::util::{Scratch, apple_targets, gputrace, needs, repository};

/// 60 ns at 0.150 ns for an instruction, as docs/benchmarks.md has it.
const MOST: f64 = 400.0;
/// Two reads of the clock and the thread's state take 72: who adds less was not there.
const LEAST: f64 = 100.0;

#[test]
fn a_hooked_message_adds_no_more_than_60_ns_by_its_instructions() {
    let Some((dylibs, _)) = apple_targets() else { return };
    if !needs(&["valgrind", "python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut bench = Command::new("python3");
    bench.arg(repository().join("benches/metal.py")).arg(gputrace());
    bench.arg(dylibs.join("x86_64-apple-darwin/release/libgputrace_shim.dylib"));
    let kinds = ["dispatch", "pipeline", "copy", "buffer", "commit"];
    let output = bench.args(kinds).env("TMPDIR", scratch.path()).output().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), 1 + kinds.len(), "{text}");
    for line in text.lines().skip(1) {
        // Plain; added: all, shim, clock, state, look-ups, Metal. What Metal's list of handlers takes of malloc is as the heap lies.
        let numbers: Vec<f64> = line.split_whitespace().rev().map_while(|word| word.parse().ok()).collect();
        let [metal, .., added, _plain] = numbers[..] else { panic!("{line}") };
        assert!((LEAST..=MOST).contains(&(added - metal)), "{line}");
    }
}
