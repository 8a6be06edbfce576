//! What a hooked message adds, in instructions, which do not depend on how busy the machine is: `benches/metal.py` counts them.

use std::process::Command;

use crate::util::{Scratch, apple_targets, gputrace, needs, repository};

/// Most instructions of a message: 60 ns, which are 400 at 0.150 ns for one, as docs/benchmarks.md has it, and what the heap and the place of
/// the stack add by chance.
const MOST: f64 = 412.0;
/// What takes longer, and why.
const LONGER: [(&str, f64); 2] = [
    // Once for each command buffer, in Metal's own thread: no message. 200 of them are of pairs of clocks that are read again.
    ("completed", 1050.0),
    // Hooks of nine classes, once in a process.
    ("first", f64::INFINITY),
];
/// Most that the simulated Metal takes to answer what the shim asks; more, or less than nothing, is its malloc, by how the heap lies.
const ANSWERS: f64 = 42.0;
/// Most that reading clocks takes. A pair of them is read again where the machine did something else in between: then it is more, by chance.
const CLOCKS: f64 = 60.0;
/// Messages that are only counted take 54: who adds less was not there.
const LEAST: f64 = 50.0;
/// Lines of messages that there must be.
const KINDS: usize = 60;

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
    let output = bench.arg("--counts").env("TMPDIR", scratch.path()).output().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines.len(), KINDS, "{text}");
    for (kind, _) in LONGER {
        assert!(lines.iter().any(|line| line.split_whitespace().next() == Some(kind)), "{kind}: {text}");
    }
    for line in lines {
        let kind = line.split_whitespace().next().unwrap_or_default();
        let most = LONGER.iter().find(|(longer, _)| *longer == kind).map_or(MOST, |(_, most)| *most);
        // Plain; added: all, shim, clock, state, look-ups, Metal.
        let numbers: Vec<f64> = line.split_whitespace().rev().map_while(|word| word.parse().ok()).collect();
        let [metal, _, _, clock, _, added, _plain] = numbers[..] else { panic!("{line}") };
        let ours = added - metal + metal.clamp(0.0, ANSWERS) - clock + clock.min(CLOCKS);
        assert!((LEAST..=most).contains(&ours), "{line}");
    }
}
