//! What a hooked message adds, in instructions, which do not depend on how busy the machine is: `benches/metal.py` counts them.

use std::process::Command;

use crate::util::{Scratch, apple_targets, gputrace, needs, repository};

/// Most instructions of a message: 60 ns at 0.150 ns for one, as docs/benchmarks.md has it, but for those that say why not there.
const MOST: [(&str, f64); 11] = [
    ("dispatch", 400.0),
    ("pipeline", 400.0),
    ("copy", 400.0),
    ("label", 400.0),
    ("buffer", 400.0),
    ("commit", 400.0),
    ("commits", 400.0),
    // An inner message; by where the stack begins libSystem is asked for it.
    ("encoder", 520.0),
    // However many are in flight.
    ("commit4", 560.0),
    ("commit4-200", 560.0),
    // Once for each command buffer, in Metal's own thread.
    ("completed", 1_050.0),
];
/// Two reads of the clock and the thread's state take 72: who adds less was not there.
const LEAST: f64 = 100.0;

#[test]
fn a_hooked_message_adds_no_more_than_is_said_by_its_instructions() {
    let Some((dylibs, _)) = apple_targets() else { return };
    if !needs(&["valgrind", "python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut bench = Command::new("python3");
    bench.arg(repository().join("benches/metal.py")).arg(gputrace());
    bench.arg(dylibs.join("x86_64-apple-darwin/release/libgputrace_shim.dylib"));
    let output = bench.args(MOST.map(|(kind, _)| kind)).env("TMPDIR", scratch.path()).output().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), 1 + MOST.len(), "{text}");
    // In the order of the script's kinds.
    let mut lines: Vec<&str> = text.lines().skip(1).collect();
    for (kind, most) in MOST {
        let place = lines.iter().position(|line| line.split_whitespace().next() == Some(kind));
        let line = lines.remove(place.unwrap_or_else(|| panic!("{kind}: {text}")));
        // Plain; added: all, shim, clock, state, look-ups, Metal. What Metal's list of handlers takes of malloc is as the heap lies.
        let numbers: Vec<f64> = line.split_whitespace().rev().map_while(|word| word.parse().ok()).collect();
        let [metal, .., added, _plain] = numbers[..] else { panic!("{line}") };
        assert!((LEAST..=most).contains(&(added - metal)), "{line}");
    }
}
