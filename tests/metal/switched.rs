//! Recording that is switched on from outside while a program uses Metal.

use std::fs;
use std::time::Duration;

use crate::util::{Processor, Scratch, Trace, apple_targets, count, poll};

#[test]
fn a_program_that_began_paused_is_recorded_from_start_on_and_again_after_stop() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let Some((dylibs, _)) = apple_targets() else { return };
    let scratch = Scratch::new();
    let file = scratch.path().join("made");
    let target = Processor::X86.target(&scratch, &dylibs, "metal_switched.m").arg(&file);
    let started = target.options(["--malloc", "off", "--start-paused"]).start();
    let session = started.pid().to_string();
    poll(PATIENCE, || file.exists().then_some(())).expect("the program commits");
    let folder = started.trace.clone();
    let seen = || {
        let manifests = folder.join("manifest").is_dir().then(|| Trace::open(&folder).manifests())?;
        let all = manifests.iter().flat_map(|manifest| &manifest.processes);
        Some(all.map(|process| count(process, "commit").seen).sum::<u64>())
    };
    // Twice: from the beginning, and after it was stopped.
    for turn in 0..2 {
        let before = seen().unwrap_or_default();
        scratch.gputrace(&["start", &session]).expect(0);
        poll(PATIENCE, || seen().filter(|now| *now >= before + 20)).unwrap_or_else(|| panic!("commits of turn {turn}"));
        scratch.gputrace(&["stop", &session]).expect(0);
    }
    fs::write(file.with_extension("stop"), "").expect("a file");
    let trace = started.wait().expect(0).read();
    trace.assert_balanced();
    assert!(trace.table("launches").len() >= 40);
}
