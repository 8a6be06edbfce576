//! Metrics of snapshots made for it: what is summed, what is told of one process, and what the names promise.

use std::collections::BTreeSet;

use super::*;
use crate::live::{Device, Gpu};

fn kind(seen: u64, ns: i64) -> live::Kind {
    let mut durations = crate::rollups::Durations::default();
    durations.add(ns as u64);
    live::Kind { seen, events: 1, timed: 1, total_ns: ns, bytes: 8, dropped: 2, durations, ..live::Kind::default() }
}

fn process(pid: i32, rank: Option<i32>) -> Process {
    let mut process = Process { process_id: pid.into(), pid, rank, exe: "/bin/x".to_owned(), ..Process::default() };
    process.start_ns = 1_000_000_000;
    process.command = "y".repeat(500);
    process.sums.kinds.insert("launch".into(), kind(10, 3_000));
    process.sums.kinds.insert("kernel".into(), kind(0, 9_000));
    process.sums.device_memory_bytes = 100;
    process.sums.cost_ns = Some(5e6);
    let device = Device { ordinal: Some(0), uuid: Some("GPU-1".to_owned()), busy_ns: 4_000_000_000 };
    process.gpu = Some(Gpu { observed_ns: 8_000_000_000, devices: vec![device] });
    process
}

fn snapshot() -> Snapshot {
    let mut all = Snapshot {
        at_ns: 2_000_000_000,
        processes: vec![process(7, Some(0)), process(8, None)],
        ..Snapshot::default()
    };
    all.others.kinds.insert("launch".into(), kind(1_000, 5_000_000));
    all.devices = vec![Device { ordinal: None, uuid: Some("GPU-1".to_owned()), busy_ns: 6_000_000_000 }];
    all
}

/// The value of a metric whose labels hold all of these.
fn value(all: &[Family], name: &str, wanted: &[(&str, &str)]) -> Option<Value> {
    let family = all.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("{name}: no such metric"));
    let has = |point: &&Point| {
        wanted.iter().all(|(n, v)| point.labels.iter().any(|(name, value)| name == n && **value == **v))
    };
    let mut found = family.points.iter().filter(has);
    let first = found.next().map(|point| point.value.clone());
    assert!(found.next().is_none(), "{name}: several have {wanted:?}");
    first
}

fn number(all: &[Family], name: &str, wanted: &[(&str, &str)]) -> Option<f64> {
    match value(all, name, wanted)? {
        Value::Number(number) => Some(number),
        Value::Histogram(_) => panic!("{name}: a histogram"),
    }
}

#[test]
fn sums_are_of_all_processes_those_that_ended_among_them() {
    let all = families(&snapshot());
    let launch = [("class", "launch")];
    assert_eq!(number(&all, "gputrace_calls_total", &launch), Some(1_020.0));
    assert_eq!(number(&all, "gputrace_events_dropped_total", &launch), Some(6.0));
    assert_eq!(number(&all, "gputrace_calls_total", &[("class", "kernel")]), None, "the GPU's work is no call");
    assert_eq!(number(&all, "gputrace_device_memory_bytes", &[]), Some(200.0));
    assert_eq!(number(&all, "gputrace_gpu_busy_seconds_total", &[("device", "GPU-1")]), Some(6.0));
    assert_eq!(number(&all, "gputrace_tracing_cost_seconds_total", &[]), Some(0.01));
    let Some(Value::Histogram(took)) = value(&all, "gputrace_call_duration_seconds", &launch) else { panic!() };
    assert_eq!((took.count(), took.sum_seconds), (3, 0.005_006));
    let below = |seconds: f64| took.cumulative().filter(|(end, _)| *end <= seconds).map(|(_, count)| count).max();
    assert_eq!((below(2.1e-6), below(4.1e-6), below(1.0)), (Some(0), Some(2), Some(3)));
    assert!(value(&all, "gputrace_gpu_operation_duration_seconds", &[("class", "kernel")]).is_some());
}

#[test]
fn of_a_process_that_runs_there_are_values_of_its_own() {
    let all = families(&snapshot());
    let own = [("pid", "7"), ("rank", "0")];
    assert_eq!(number(&all, "gputrace_process_calls_total", &own), Some(10.0));
    assert_eq!(number(&all, "gputrace_process_gpu_busy_seconds_total", &own), Some(4.0));
    assert_eq!(number(&all, "gputrace_process_gpu_observed_seconds_total", &own), Some(8.0));
    assert_eq!(number(&all, "gputrace_process_cost_ratio", &own), Some(0.005));
    assert_eq!(number(&all, "gputrace_process_start_timestamp_seconds", &[("pid", "8"), ("rank", "")]), Some(1.0));
    assert_eq!(number(&all, "gputrace_processes", &[]), Some(2.0));
    let mut idle = snapshot();
    idle.processes[0].sums.kinds.clear();
    let none = number(&families(&idle), "gputrace_process_events_dropped_total", &own).unwrap();
    assert!(none == 0.0 && none.is_sign_positive(), "{none}");
}

#[test]
fn a_thousand_processes_are_not_a_thousand_times_as_much() {
    let mut all = snapshot();
    all.processes = (0..1_000).map(|pid| process(pid, (pid >= 990).then_some(pid))).collect();
    let families = families(&all);
    assert_eq!(number(&families, "gputrace_calls_total", &[("class", "launch")]), Some(11_000.0));
    for family in &families {
        assert!(family.points.len() <= MOST_PROCESSES, "{}: {}", family.name, family.points.len());
        assert!(family.points.iter().flat_map(|point| &point.labels).all(|(_, value)| value.len() <= COMMAND + 2));
    }
    assert!(number(&families, "gputrace_process_recording", &[("rank", "999")]).is_some(), "ranks come first");
}

#[test]
fn the_one_process_that_uses_the_gpu_is_among_those_with_values_and_then_those_with_most_calls() {
    let mut all = snapshot();
    let waits = |pid: i32, seen: u64| {
        let mut process = process(pid, Some(pid).filter(|pid| *pid < 10));
        process.sums.kinds = [("os_wait".into(), kind(seen, 0))].into();
        process
    };
    all.processes = (0..200).map(|pid| waits(pid, 5)).collect();
    all.processes[150] = process(150, None);
    all.processes[170] = waits(170, 500);
    let chosen = |all: &Snapshot| -> Vec<i32> { processes(all).iter().map(|(process, _)| process.pid).collect() };
    let first = chosen(&all);
    assert_eq!((first[0], &first[1..11], first[11]), (150, &(0..10).collect::<Vec<_>>()[..], 170));
    assert_eq!(first.len(), MOST_PROCESSES);
    // A few calls more or less change nothing.
    all.processes[199] = waits(199, 7);
    assert_eq!(chosen(&all), first);
}

#[test]
fn names_follow_the_conventions() {
    let all = families(&snapshot());
    let mut names = BTreeSet::new();
    for Family { name, kind, unit, help, points } in &all {
        assert!(names.insert(name.to_string()), "{name} is there twice");
        assert!(name.starts_with("gputrace_") && help.ends_with('.') && help.len() > 10, "{name}: {help}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_info"), *kind == Kind::Info, "{name}");
        assert!(*kind != Kind::Histogram || *unit == "seconds", "{name}");
        let base = name.strip_suffix("_total").unwrap_or(name);
        assert!(unit.is_empty() || base.ends_with(&format!("_{unit}")), "{name}: {unit}");
        let other =
            ["milliseconds", "microseconds", "nanoseconds", "percent", "ns", "ms", "us", "kb", "mb", "kib", "mib"];
        assert!(name.split('_').all(|word| !other.contains(&word)), "{name}: no base unit");
        let labels: BTreeSet<&Labels> = points.iter().map(|point| &point.labels).collect();
        assert_eq!(labels.len(), points.len(), "{name}: two values have the same labels");
    }
}
