//! Pairs of host and GPU time, and command buffers that lie where they cannot.

use gputrace_collectors::manifest::GpuClock;

use super::*;

/// What a process does, and what the manifest says then of its only device; and its notes.
fn clock_of(name: &str, act: impl FnOnce(&mut Thread<'_>)) -> (Folder, GpuClock, Vec<String>) {
    let folder = Folder::new(name);
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut one = target.thread(1);
    act(&mut one);
    target.exit(0);
    let mut process = finish(running).processes.remove(0);
    assert_eq!(process.gpu_clocks.len(), 1, "{:?}", process.gpu_clocks);
    (folder, process.gpu_clocks.remove(0), process.notes)
}

fn commit_new(one: &mut Thread<'_>, buffer: u64) {
    room(one, buffer);
    commit(one, buffer);
}

/// Ago, on a clock that is so far ahead.
fn ago(ns: i64, ahead_ns: i64) -> u64 {
    (ns - ahead_ns) as u64
}

#[test]
fn a_command_buffer_that_begins_before_its_commit_is_counted_where_the_clocks_are_not_so_far_off() {
    let (folder, clock, notes) = clock_of("metal-early", |one| {
        one.gpu_clock(1, 0, 200);
        commit_new(one, 0x1000);
        one.gpu_times(0x1000, 50_000_000, 0, DONE);
        commit_new(one, 0x2000);
        one.gpu_times(0x2000, 10, 0, DONE);
    });
    assert_eq!((clock.joined, clock.early, clock.violations, clock.corrected), (2, 1, 1, 0), "{clock:?}");
    assert_eq!((clock.pairs, clock.runs_as_host), (1, Some(true)), "{clock:?}");
    assert!((40_000_000..=50_000_000).contains(&clock.earliest_ns), "{clock:?}");
    assert!(notes[0].starts_with("1 of 2 command buffers on GPU 0 begin before their commit"), "{notes:?}");
    // What it says is kept.
    assert!(values(&table(&folder, "command_buffers"), "gpu_ns").contains(&50_000_000));
}

#[test]
fn a_clock_that_begins_anew_in_the_midst_is_followed_from_then_on() {
    // Minutes behind, and then hours, as a GPU's that slept.
    const BEHIND_NS: [i64; 2] = [-100_000_000_000, -10_000_000_000_000];
    let (folder, clock, _) = clock_of("metal-anew", |one| {
        for (nth, behind_ns) in BEHIND_NS.into_iter().enumerate() {
            one.gpu_clock(1, behind_ns, 200);
            // One that says nothing: reading it took a minute.
            one.gpu_clock(1, 5, 60_000_000_000);
            let buffer = 0x1000 * (nth as u64 + 1);
            commit_new(one, buffer);
            let begin_ns = ago(100, behind_ns);
            one.gpu_times(buffer, begin_ns, begin_ns - 50, DONE);
        }
    });
    assert_eq!((clock.pairs, clock.runs_as_host), (2, Some(false)), "{clock:?}");
    assert_eq!((clock.joined, clock.corrected, clock.violations), (2, 2, 0), "{clock:?}");
    assert_eq!(values(&table(&folder, "command_buffers"), "gpu_ns"), [50, 50]);
}

#[test]
fn times_that_fit_neither_way_are_none() {
    let (folder, clock, _) = clock_of("metal-nowhere", |one| {
        one.gpu_clock(1, -100_000_000_000, 200);
        commit_new(one, 0x1000);
        one.gpu_times(0x1000, ago(100, 7_000_000_000), ago(50, 7_000_000_000), DONE);
    });
    assert_eq!((clock.joined, clock.corrected), (0, 0), "{clock:?}");
    assert_eq!(numbers(&table(&folder, "command_buffers"), "gpu_ns"), [None]);
}
