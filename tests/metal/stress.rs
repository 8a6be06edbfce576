//! Many threads commit at once, into rings that are too small: each command buffer keeps what is its own.

use std::collections::BTreeMap;

use super::{Run, bag, on_each, sorted};
use crate::util::{Processor, Row, count};

/// Commits of each thread under stress, where they are to be more or fewer: 125000 make a million. Then this machine's own
/// processor makes them, and no emulator.
fn wanted_commits() -> Option<u64> {
    std::env::var("GPUTRACE_METAL_COMMITS").ok().map(|commits| commits.parse().expect("a number of commits"))
}

/// A number of a line of the truth: of a million lines nobody makes values of all.
fn number(line: &str, field: &str) -> i64 {
    let (_, behind) = line.split_once(&format!("\"{field}\":")).unwrap_or_else(|| panic!("no {field} in {line}"));
    behind
        .split([',', '}'])
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("{field} of {line}"))
}

/// Each command buffer has its own row, dispatch and time on the GPU: of each address one after the other, as they ran there.
#[track_caller]
fn assert_each_is_its_own(run: &Run) {
    // Two clocks are read one after the other by threads that may be stopped in between.
    const APART_NS: i64 = 100_000;
    let pair = run.trace.manifest().clock.pairs[0];
    let epoch_ns = pair.realtime_ns as i64 - pair.monotonic_ns as i64;
    let mut ran: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for line in run.lines("command_buffer") {
        ran.entry(number(line, "object")).or_default().push(number(line, "start_ns") + epoch_ns);
    }
    ran.values_mut().for_each(|ran| ran.sort_unstable());
    let launches = run.trace.table("launches");
    let commits: BTreeMap<i64, i64> =
        launches.rows().map(|row| (row.int("correlation_id"), row.int("function"))).collect();
    let buffers = run.trace.table("command_buffers");
    let mut told: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for row in sorted(&buffers, "start_ns") {
        let (commit, at) = (row.int("correlation_id"), row.maybe_int("gpu_start_ns"));
        let what = (row.int("dispatches"), row.int("compute_encoders"), row.maybe_text("status"), row.int("labelled"));
        assert_eq!(what, (1, 1, Some("completed"), 0), "{}: {commit}", run.who);
        told.entry(commits[&commit]).or_default().push(at.unwrap_or_else(|| panic!("{}: {commit}: no time", run.who)));
    }
    for (object, ran) in &ran {
        let told = told.get(object).map_or(&[][..], Vec::as_slice);
        assert_eq!(told.len(), ran.len(), "{}: {object:x}", run.who);
        let apart = ran.iter().zip(told).map(|(ran, told)| (ran - told).abs()).max();
        assert!(apart <= Some(APART_NS), "{}: {object:x}: {apart:?} ns", run.who);
    }
    let dispatches = run.trace.table("dispatches");
    let of_dispatches: BTreeMap<i64, u64> = bag(dispatches.rows().filter_map(|row| row.maybe_int("correlation_id")));
    assert_eq!(of_dispatches, bag(commits.keys().copied()), "{}", run.who);
}

/// Eight threads make so many commits each.
fn assert_eight_threads_lose_nothing(commits: u64, (queues, how): (&str, &str), processors: &[Processor]) {
    let arguments = ["8", &commits.to_string(), queues, how];
    // The smallest memory: threads wait for room, and are read only in parts.
    let options = ["--segment-memory", "1M", "--on-full", "block"];
    let variables = [("FAKE_METAL_TRUTH_OF", "command_buffer")];
    on_each(processors, "metal_stress.m", &arguments, &variables, &options, |run| {
        let whole = 8 * commits;
        let left = if how == "waits" { 0 } else { 8 * (commits / 10) };
        let seen = if how == "waits" { 0 } else { whole + left };
        assert_eq!(run.run.text(), format!("{whole} completed, {left} caught, {seen} seen\n"), "{}", run.who);
        let process = run.process();
        let counted = count(&process, "commit");
        assert_eq!((counted.recorded, counted.abandoned, counted.dropped), (whole, left, 0), "{}", run.who);
        assert_eq!(process.notes, Vec::<String>::new(), "{}", run.who);
        assert_each_is_its_own(run);
    });
}

#[test]
fn eight_threads_lose_nothing_however_full_their_rings_are() {
    let wanted = wanted_commits();
    let processors: &[Processor] = if wanted.is_some() { &[Processor::X86] } else { &[Processor::X86, Processor::Arm] };
    for way in [("one", "waits"), ("each", "waits"), ("each", "before"), ("each", "after")] {
        assert_eight_threads_lose_nothing(wanted.unwrap_or(1_000), way, processors);
    }
}

#[test]
fn eight_threads_lose_nothing_of_metal_4() {
    let commits = wanted_commits().unwrap_or(500);
    let processors: &[Processor] = if commits > 1_000 { &[Processor::X86] } else { &[Processor::X86, Processor::Arm] };
    let options = ["--segment-memory", "1M", "--on-full", "block"];
    on_each(processors, "metal_stress.m", &["8", &commits.to_string(), "each", "four"], &[], &options, |run| {
        let whole = 8 * commits;
        let process = run.process();
        let counted = count(&process, "commit");
        assert_eq!((counted.recorded, counted.abandoned, counted.dropped), (whole, 0, 0), "{}", run.who);
        assert_eq!(process.notes, Vec::<String>::new(), "{}", run.who);
        let table = run.trace.table("command_buffers");
        let what = |row: &Row| (row.int("command_buffers"), row.int("dispatches"), row.maybe_int("gpu_ns").is_some());
        assert!(table.rows().all(|row| what(&row) == (3, 6, true)), "{}", run.who);
        let dispatches = run.trace.table("dispatches");
        let of = bag(dispatches.rows().map(|row| row.maybe_int("correlation_id").unwrap_or(-1)));
        let wanted: BTreeMap<i64, u64> = table.rows().map(|row| (row.int("correlation_id"), 6)).collect();
        assert_eq!(of, wanted, "{}", run.who);
    });
}

#[test]
fn a_million_commits_lose_nothing_where_exceptions_leave_each_tenth() {
    if wanted_commits().is_none() {
        assert_eight_threads_lose_nothing(125_000, ("each", "before"), &[Processor::X86]);
    }
}
