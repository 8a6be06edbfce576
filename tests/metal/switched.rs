//! Recording that is switched on from outside while a program uses Metal.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::sorted;
use crate::util::{Finished, Processor, Row, Scratch, Started, Trace, apple_targets, count, poll};

const PATIENCE: Duration = Duration::from_secs(60);

/// Calls of a class that a running session has seen so far.
fn seen(trace: &Path, class: &str) -> Option<u64> {
    let manifests = trace.join("manifest").is_dir().then(|| Trace::open(trace).manifests())?;
    let all = manifests.iter().flat_map(|manifest| &manifest.processes);
    Some(all.map(|process| count(process, class).seen).sum())
}

/// The program, told this, once it has made its file; and the name of its session.
fn running(scratch: &Scratch, file: &Path, words: &[&str], options: &[&str]) -> Option<(Started, String)> {
    let (dylibs, _) = apple_targets()?;
    let target = Processor::X86.target(scratch, &dylibs, "metal_switched.m").arg(file).args(words);
    let started = target.options(["--malloc", "off"]).options(options).start();
    poll(PATIENCE, || file.exists().then_some(())).expect("the program has begun");
    let session = started.pid().to_string();
    Some((started, session))
}

#[test]
fn a_program_that_began_paused_is_recorded_from_start_on_and_again_after_stop() {
    let scratch = Scratch::new();
    let file = scratch.path().join("made");
    let Some((started, session)) = running(&scratch, &file, &[], &["--start-paused"]) else { return };
    let folder = started.trace.clone();
    let seen = || seen(&folder, "commit");
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
    let launches = trace.table("launches");
    assert!(launches.len() >= 40);
    // A thread that waits for its commits sees at the next one that it was stopped, and not when its chunk is full.
    let recorded = trace.manifest().detail.expect("it was off").intervals;
    let begins: Vec<i64> = launches.rows().map(|row| row.int("start_ns")).collect();
    let outside = |at: &&i64| !recorded.iter().any(|on| (on.from_ns..=on.to_ns).contains(*at));
    assert!(begins.iter().filter(outside).count() <= 2 * recorded.len(), "{recorded:?} {begins:?}");
}

/// The program, told this word, does something while recording is off; what it leaves. None where the dylibs were not built.
fn changed_while_off(scratch: &Scratch, word: &str) -> Option<Finished> {
    let file = scratch.path().join("made");
    let (started, session) = running(scratch, &file, &[word], &[])?;
    let folder = started.trace.clone();
    poll(PATIENCE, || seen(&folder, "commit").filter(|commits| *commits > 0)).expect("recording is on");
    scratch.gputrace(&["stop", &session]).expect(0);
    // The next commit sees it.
    let commits = || seen(&folder, "commit");
    let (mut before, mut same) = (commits(), 0);
    poll(PATIENCE, || {
        let now = commits();
        same = if now == before { same + 1 } else { 0 };
        before = now;
        (same > 3).then_some(())
    })
    .expect("recording is off");
    fs::write(file.with_extension("stop"), "").expect("a file");
    poll(PATIENCE, || file.with_extension("set").exists().then_some(())).expect("the program has changed something");
    scratch.gputrace(&["start", &session]).expect(0);
    fs::write(file.with_extension("go"), "").expect("a file");
    Some(started.wait().expect(0))
}

#[test]
fn dispatches_have_no_name_where_another_pipeline_was_set_while_recording_was_off() {
    let scratch = Scratch::new();
    let Some(run) = changed_while_off(&scratch, "changed") else { return };
    let trace = run.read();
    let (names, table) = (trace.names(), trace.table("dispatches"));
    let name = |row: &Row| row.maybe_int("name_id").map(|id| names[&id].clone());
    let seen: Vec<_> = sorted(&table, "start_ns").iter().map(name).collect();
    assert_eq!(seen, [None, Some("second".to_owned())]);
}

#[test]
fn command_buffers_have_no_label_that_may_have_changed_while_recording_was_off_nor_what_another_one_at_their_address_had()
 {
    let scratch = Scratch::new();
    let Some(run) = changed_while_off(&scratch, "renamed") else { return };
    assert_eq!(run.text(), "1\n", "the address was not used again");
    let trace = run.read();
    let (names, table) = (trace.names(), trace.table("command_buffers"));
    let of = |row: &Row| (row.maybe_int("name_id").map(|id| names[&id].clone()), row.int("dispatches"));
    let seen: Vec<_> = sorted(&table, "start_ns").iter().map(of).collect();
    let last = seen.len() - 3;
    assert_eq!(seen[last..], [(None, 0), (None, 0), (Some("after".to_owned()), 0)]);
    assert!(seen[..last].iter().all(|other| *other == (None, 0)), "{seen:?}");
}

#[test]
fn what_was_made_while_recording_was_paused_has_its_queue_and_that_ones_label() {
    let scratch = Scratch::new();
    let file = scratch.path().join("made");
    let Some((started, session)) = running(&scratch, &file, &["held"], &["--start-paused"]) else { return };
    scratch.gputrace(&["start", &session]).expect(0);
    let folder = started.trace.clone();
    poll(PATIENCE, || seen(&folder, "api").filter(|calls| *calls > 0)).expect("recording is on");
    fs::write(file.with_extension("stop"), "").expect("a file");
    let trace = started.wait().expect(0).read();
    trace.assert_balanced();
    let (names, table) = (trace.names(), trace.table("command_buffers"));
    let name = |row: &Row| row.maybe_int("queue_name_id").map(|id| names[&id].clone());
    let seen: Vec<_> = sorted(&table, "start_ns")
        .iter()
        .map(|row| (row.int("queue") != 0, name(row), row.int("dispatches")))
        .collect();
    // What was encoded while it was paused is not known.
    let row = |dispatches: i64| (true, Some("named before".to_owned()), dispatches);
    assert_eq!(seen, [row(0), row(2), row(2), row(2)]);
}
