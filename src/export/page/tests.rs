//! What a page reads back is what the trace has.

use gputrace_collectors::schema::TableId;
use serde_json::json;

use super::reading::{back, told};
use super::*;
use crate::trace::testing::{START, TestTrace};

#[test]
fn every_bar_and_every_arrow_of_a_trace_comes_back_to_the_ns() {
    let mut made = TestTrace::rich();
    made.row(
        TableId::OsWaits,
        json!({ "start_ns": START + 5, "wait_ns": 50_000, "process_id": 1, "tid": 12, "kind": "poll" }),
    );
    let trace = made.open();
    let back = back(&gather(&trace, &Filter::default()));
    let seen = told(&trace);
    let mut all: Vec<_> = seen.slices.iter().map(|of| (of.0.clone(), of.1 - START, of.2 - START)).collect();
    let mut got: Vec<_> = back.bars.iter().map(|bar| (bar.name.clone(), bar.time.0, bar.time.1)).collect();
    all.sort();
    got.sort();
    assert!(all.len() > 500 && back.head["unit_ns"] == 1);
    assert_eq!(got, all);
    // Each kernel's arrow begins at the launch that it was made by, 5 us before.
    let kernels: Vec<_> = back.bars.iter().filter(|bar| bar.track.contains("stream") && bar.cause.is_some()).collect();
    assert_eq!(kernels.len(), 180);
    for kernel in kernels {
        let launch = &back.bars[kernel.cause.unwrap()];
        assert_eq!((launch.name.as_str(), launch.time.0), ("cuLaunchKernel", kernel.time.0 - 5_000), "{kernel:?}");
    }
    let values: usize = back.lines.iter().map(|line| line.1.len()).sum();
    assert!(values > 60 && back.lines.iter().any(|line| line.0 == "device memory in use"));
    for (name, points) in &back.lines {
        let most = seen.samples.iter().filter(|of| of.0 == *name).map(|of| of.2).fold(0.0, f64::max);
        let same = |at: i64, value: f64| {
            seen.samples.iter().any(|of| of.0 == *name && of.1 - START == at && (of.2 - value).abs() <= most / 8000.0)
        };
        assert!(points.iter().all(|(at, value)| same(*at, *value)), "{name}");
    }
}

/// A thread that launches kernels in steps of ten, with noise in all times as a real one has it.
fn many(launches: usize) -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    let mut state = 1u64;
    let mut noise = |most: i64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as i64 % most
    };
    let mut end = 0;
    for launch in 0..launches {
        thread.host(1_500 + noise(2_000));
        let (kernel, began) = (launch % 10, (thread.now + 4_000 + noise(500)).max(end + 900 + noise(200)));
        let length = 2_000 + 700 * kernel as i64;
        end = thread.launch_running(
            &format!("kernel_{kernel}"),
            2_000 + noise(900),
            7,
            (began, length + noise(length / 20)),
        );
        if kernel == 9 {
            thread.sync("cuStreamSynchronize", "stream", (end - thread.now).max(2_000) + 900);
        }
    }
    trace
}

/// That of a page that is too large to have room beyond its events.
const NARROW: Room = Room { each: 2.0, least: 0.0, rest: 0.0 };

#[test]
fn a_shown_event_takes_no_more_than_two_bytes_of_the_page_and_times_stay_near() {
    let made = many(60_000);
    let trace = made.open();
    let packed = gather_at_most(BARS, NARROW, &trace, &Filter::default());
    let back = back(&packed);
    assert_eq!(back.bars.len(), 126_000);
    let bytes = packed.bytes.len() as f64 * 4.0 / 3.0;
    assert!(bytes <= 2.0 * packed.shown as f64, "{} of {}", bytes, packed.shown);
    let unit = back.head["unit_ns"].as_i64().unwrap();
    assert!(unit > 1 && unit <= 512, "{unit}");
    let mut all: Vec<_> = told(&trace).slices.iter().map(|of| (of.1 - START, of.2 - START)).collect();
    let mut got: Vec<_> = back.bars.iter().map(|bar| bar.time).collect();
    all.sort_unstable();
    got.sort_unstable();
    let near = |a: i64, b: i64| (0..unit).contains(&(b - a));
    let away = got.iter().zip(&all).filter(|(a, b)| !near(a.0, b.0));
    assert_eq!(away.count(), 0);
    assert!(back.head["notes"][0].as_str().unwrap().starts_with("Times in the timeline are rounded"));
}

#[test]
fn while_a_page_has_room_its_times_are_exact() {
    let made = many(60_000);
    let trace = made.open();
    let packed = gather(&trace, &Filter::default());
    let back = back(&packed);
    let all = packed.bytes.len() as f64 * 4.0 / 3.0 + columns::PAGE.rest;
    assert!(back.head["unit_ns"] == 1 && all <= columns::PAGE.least, "{all}");
    assert!(!back.head["notes"].to_string().contains("rounded"));
    let shortest = back.bars.iter().map(|bar| bar.time.1 - bar.time.0).min();
    assert_eq!(shortest, told(&trace).slices.iter().map(|of| of.2 - of.1).min());
}

#[test]
fn of_more_than_fits_the_long_ones_and_all_counts_stay() {
    let made = many(30_000);
    let trace = made.open();
    let room = Room { rest: -49_152.0, ..NARROW };
    let packed = gather_at_most(30_000, room, &trace, &Filter::default());
    let bytes = packed.bytes.len() as f64 * 4.0 / 3.0;
    let back = back(&packed);
    assert!(back.bars.len() <= 30_000 && back.bars.len() > 6_000, "{}", back.bars.len());
    assert!(bytes <= 2.0 * packed.shown as f64 + 49_152.0, "{bytes} of {}", packed.shown);
    assert_eq!(back.bars.iter().map(|bar| bar.count).sum::<u64>(), 63_000);
    assert!(back.bars.iter().any(|bar| bar.count == 1) && back.bars.iter().any(|bar| bar.count > 1));
    let notes = back.head["notes"].to_string();
    assert!(notes.contains("are shown as runs"), "{notes}");
}

#[test]
fn an_empty_trace_has_an_empty_timeline() {
    let mut made = TestTrace::new();
    let packed = gather(&made.open(), &Filter::default());
    assert_eq!((packed.shown, back(&packed).bars.len()), (0, 0));
    made.process(1, 100, None, START + 1);
    let packed = gather(&made.open(), &Filter::default());
    assert_eq!((packed.shown, back(&packed).head["tracks"].to_string().as_str()), (0, "[]"));
}

#[test]
fn of_many_processes_the_busiest_are_shown_and_the_others_told() {
    let mut made = TestTrace::new();
    for process in 1..=200 {
        made.process(process, 1000 + process as i32, None, START + 1_000);
        let mut thread = made.thread(process, 11);
        (0..=process % 7).for_each(|_| thread.launch("k", 100));
    }
    let trace = made.open();
    let all = back(&gather(&trace, &Filter::default()));
    assert_eq!(all.head["processes"].as_array().unwrap().len(), PROCESSES);
    assert!(all.head["notes"].to_string().contains("136 processes are not in the timeline"), "{}", all.head["notes"]);
    let one = Filter { processes: Some([150].into_iter().collect()), ..Filter::default() };
    let one = back(&gather(&trace, &one));
    assert_eq!((one.head["processes"][0]["pid"].as_i64(), one.bars.len()), (Some(1150), 4));
}

#[test]
fn launches_and_their_work_fill_the_histograms_and_the_queue() {
    let made = many(1_000);
    let delays = back(&gather(&made.open(), &Filter::default())).head["delays"].clone();
    let sum = |name: &str| delays[name].as_array().unwrap().iter().map(|of| of[2].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("calls"), sum("starts")), (1_000, 1_000));
    assert!(delays["starts"][0][0].as_f64().unwrap() > 3_000.0, "{delays}");
    let means = delays["queue"]["means"].as_array().unwrap();
    assert!(means.len() > 10 && means.iter().any(|mean| mean.as_f64().unwrap() > 0.3), "{delays}");
}

#[test]
fn clocks_of_several_hosts_are_not_taken_for_one() {
    let mut made = TestTrace::new();
    (1..=2).for_each(|process| made.process(process, 100, None, START + 1_000));
    let said = |made: &TestTrace| back(&gather(&made.open(), &Filter::default())).head["notes"].to_string();
    assert!(!said(&made).contains("own clock"));
    made.row(
        TableId::Processes,
        json!({ "process_id": 3, "pid": 7, "host": "other", "exe": "/bin/x", "start_ns": START }),
    );
    assert!(said(&made).contains("own clock"), "{}", said(&made));
}

#[test]
fn times_that_cannot_be_are_no_reason_to_fail() {
    let mut made = many(50);
    for (start, length) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MAX), (0, i64::MAX), (i64::MIN, 0), (-1, -5)] {
        let call = json!({ "start_ns": start, "api_ns": length, "process_id": 1, "tid": 11, "correlation_id": start });
        let work =
            json!({ "start_ns": start, "gpu_ns": length, "process_id": 1, "stream": 7, "correlation_id": start });
        made.row(TableId::Launches, call);
        made.row(TableId::Kernels, work);
        made.row(TableId::Counters, json!({ "start_ns": start, "value": 1e300, "name": "x", "source": "proc" }));
    }
    let trace = made.open();
    for most in [1 << 20, 64] {
        let packed = gather_at_most(most, columns::PAGE, &trace, &Filter::default());
        assert!(packed.shown > 0 && !packed.bytes.is_empty());
    }
}
