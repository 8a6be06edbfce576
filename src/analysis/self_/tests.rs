//! What a trace says of itself.

use gputrace_collectors::manifest;

use super::*;
use crate::trace::testing::{START, TestTrace};

#[test]
fn what_was_lost_and_not_seen_is_named() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, Some(0), START + 1_000_000_000);
    let about = trace.manifest.as_mut().expect("a manifest");
    let untraced = manifest::Untraced { pid: 7, exe: "/bin/busybox".into(), reason: "static".into() };
    about.untraced.push(untraced);
    about.clock.rejected = 2;
    about.removed.push(manifest::Removed {
        table: "launches".into(),
        limit: "--max-size".into(),
        rows: 30,
        from_ns: START,
        to_ns: START + 9,
    });
    let process = &mut about.processes[0];
    let past = manifest::Past { library: "libmine.so".into(), how: "RTLD_DEEPBIND".into() };
    process.coverage.past_symbols.push(past);
    process.stacks = manifest::Stacks { python: 5, none: 4, unread: 3, lost: 2, ..manifest::Stacks::default() };
    let section = trace.section(&Itself);
    let number = |key: &str| section.get(key).clone();
    assert_eq!([number("seen"), number("dropped"), number("untraced")], [1000, 10, 1].map(Value::Int));
    let stacks = ["stacks_none", "stacks_unread", "stacks_lost"].map(number);
    assert_eq!(stacks, [4, 3, 2].map(Value::Int));
    assert!(section.notes.iter().any(|note| note.starts_with("2 calls have no stack")), "{:?}", section.notes);
    assert_eq!([number("clock_rejected"), number("removed_rows")], [2, 30].map(Value::Int));
    assert_eq!((number("lost_percent"), number("past_symbols")), (Value::Num(1.0), Value::Int(1)));
    assert_eq!(section.cell("by_class", 0, "dropped"), &Value::Int(10));
    assert_eq!(section.cell("not_covered", 0, "name"), &"libmine.so".into());
    assert_eq!(section.cell("untraced", 0, "reason"), &"static".into());
    assert!(section.notes.iter().any(|note| note.starts_with("Removed to keep to --max-size")));
}

#[test]
fn time_between_windows_of_gpu_times_is_not_known_and_how_much_that_is() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    trace.process(2, 200, None, START + 1_000_000_000);
    for at in [100, 600] {
        let row = serde_json::json!({
            "start_ns": START + at * 1_000_000, "window_ns": 25_000_000, "process_id": 1, "pid": 100, "kind": "window",
            "ended_by": "window",
        });
        trace.row(TableId::GpuWindows, row);
    }
    trace.thread(1, 11).launch_running("k", 2_000, 7, (START + 110_000_000, 5_000));
    let opened = trace.open();
    let filter = crate::trace::Filter::of(&opened);
    let section = Itself.section(&Facts::gather(&opened, &filter, Itself.needs()));
    let questions = section.tables.iter().find(|table| table.key == "unanswered").expect("questions");
    let asked = "what the GPU did between windows of GPU times".into();
    assert!(questions.rows.iter().any(|row| row[0] == asked), "{:?}", questions.rows);
    // Of the run of the process with windows; the other one has none and gave no work.
    // What was given before a window is waited for nowhere: the first one is known from its first work on, the second one not.
    assert_eq!(section.get("gpu_unknown_percent"), &Value::Num(98.5));
    assert_eq!(TestTrace::rich().section(&Itself).get("gpu_unknown_percent"), &Value::Missing);
}

#[test]
fn overhead_is_told_apart_by_whose_it_is() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    for (at, (what, ns)) in
        (0..).zip([("buffer_flush", 4_000_000), ("lazy_loading", 9_000_000), ("buffer_flush", 1_000_000)])
    {
        let row = serde_json::json!({
            "start_ns": START + at, "activity_ns": ns, "process_id": 1, "pid": 100, "kind": "overhead", "what": what,
        });
        trace.row(TableId::GpuActivity, row);
    }
    let section = trace.section(&Itself);
    assert_eq!(section.get("cupti_ns"), &Value::Int(5_000_000));
    let row = |row| ["what", "whose", "count", "total_ns"].map(|of| section.cell("overhead", row, of).clone());
    assert_eq!(row(0), ["lazy_loading".into(), "the driver".into(), Value::Int(1), Value::Int(9_000_000)]);
    assert_eq!(row(1), ["buffer_flush".into(), "CUPTI".into(), Value::Int(2), Value::Int(5_000_000)]);
    assert_eq!(section.cell("overhead", 1, "wall_percent"), &Value::Num(0.5));
    assert_eq!(TestTrace::rich().section(&Itself).get("cupti_ns"), &Value::Missing);
}

#[test]
fn nobody_is_told_to_record_what_macos_does_not_have() {
    let advised = |metal: bool| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        trace.thread(1, 11).launch("gemm", 5_000);
        let process = trace.manifest.as_mut().and_then(|m| m.processes.first_mut()).expect("a process");
        let name = if metal { "[MTLCommandBuffer commit]" } else { "cuLaunchKernel" }.to_owned();
        process.coverage.hooks.push(gputrace_collectors::manifest::Hook { name, calls: 1, ..Default::default() });
        let text = format!("{:?}", trace.section(&Itself).tables);
        ["--stacks off", "--os off", "IOReport and powermetrics are not asked"].map(|option| text.contains(option))
    };
    assert_eq!([advised(true), advised(false)], [[false, false, true], [true, true, false]]);
}

#[test]
fn questions_without_an_answer_come_with_the_way_to_it() {
    let all = TestTrace::rich().section(&Itself);
    let asked = |section: &Section| {
        let table = section.tables.iter().find(|table| table.key == "unanswered").expect("questions");
        table.rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>()
    };
    assert!(!asked(&all).contains(&"what a step takes".into()), "{:?}", asked(&all));
    let none = TestTrace::new().section(&Itself);
    assert!(asked(&none).contains(&"what a step takes".into()));
    assert!(asked(&none).contains(&"when the GPU was busy or idle, and with which kernel".into()));
    assert!(asked(&none).contains(&"who allocates on the host".into()));
    // Stacks that an import brought are not in the account of any process.
    let lines = Value::from("which line made a call");
    let mut with = TestTrace::new();
    with.process(1, 100, None, START + 1_000_000);
    assert!(asked(&with.section(&Itself)).contains(&lines));
    with.stack("main", "/home/u/train.py", 44);
    assert!(!asked(&with.section(&Itself)).contains(&lines));
    assert_eq!(all.get("unanswered"), &Value::from(asked(&all).len() as u64));
}
