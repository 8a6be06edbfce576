//! Reports on traces with odd content: every format holds, text is readable, JSON has all.

use gputrace_collectors::schema::TableId;
use serde_json::{Value as Json, json};

use super::{Format, Layout, Report};
use crate::analysis::{ALL, Facts, Need};
use crate::trace::Filter;
use crate::trace::testing::{START, TestTrace};

/// The whole report on a trace, in a format.
fn report(made: &TestTrace, format: Format) -> String {
    let (trace, filter) = (made.open(), Filter::default());
    let needs: Vec<Need> = ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect();
    let facts = Facts::gather(&trace, &filter, &needs);
    let sections = ALL.iter().map(|analysis| (*analysis, analysis.section(&facts))).collect();
    let report = Report {
        traces: vec!["trace".to_owned()],
        notes: vec!["kept in part".to_owned()],
        sections,
        problems: trace.problems(),
    };
    report.render(format, Layout { must_fit: true, ..Layout::PLAIN })
}

fn kernels(made: &TestTrace) -> (Vec<Json>, Json) {
    let json: Json = serde_json::from_str(&report(made, Format::Json)).unwrap();
    let table = &json["analyses"]["launch-overhead"]["tables"]["by_kernel"];
    (table["rows"].as_array().cloned().unwrap_or_default(), table["rows_left_out"].clone())
}

#[test]
fn names_are_readable_in_text_and_whole_in_json() {
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 1_000_000_000);
    let long = format!("kernel<{}>::run", "std::tuple<int, float>, ".repeat(450));
    let mut thread = made.thread(1, 11);
    for _ in 0..12 {
        thread.launch(&long, 5_000);
        thread.launch("evil\u{1b}[31m\nname\u{0}", 4_000);
        thread.launch("lost \u{fffd}\u{fffd} bytes", 3_000);
    }
    let text = report(&made, Format::Text);
    assert!(text.contains("kernel<..>::run") && text.contains("lost \u{fffd}\u{fffd} bytes"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    assert!(!report(&made, Format::Markdown).contains('\u{1b}'));
    let names: Vec<String> = kernels(&made).0.iter().map(|row| row["kernel"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, [long.as_str(), "evil\u{fffd}[31m\u{fffd}name\u{fffd}", "lost \u{fffd}\u{fffd} bytes"]);
}

#[test]
fn more_kernels_than_are_kept_apart_are_summed_and_the_rows_left_out_counted() {
    const KERNELS: i64 = 21_000;
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 1_000_000_000);
    let api = made.name(gputrace_collectors::names::NameKind::Api, "cuLaunchKernel");
    for kernel in 0..KERNELS {
        made.row(TableId::Names, json!({ "name_id": kernel + 10, "kind": "kernel", "name": format!("k{kernel}") }));
        let row = json!({
            "start_ns": START + kernel * 10_000, "api_ns": 2_000, "process_id": 1, "pid": 100, "tid": 11, "api_id": api,
            "name_id": kernel + 10, "device": 0, "grid_x": 1, "kernels": 1,
        });
        made.row(TableId::Launches, row);
    }
    let (rows, left_out) = kernels(&made);
    // 20,000 of their own, and one row for all others, which together took most.
    assert_eq!((rows.len(), left_out), (1000, json!(19_001)));
    assert_eq!((&rows[0]["kernel"], &rows[0]["calls"]), (&json!("(all others)"), &json!(1000)));
}

#[test]
fn a_clock_that_jumps_back_harms_no_report() {
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 1_000_000_000);
    let mut thread = made.thread(1, 11);
    for step in 0..40 {
        thread.launch("gemm", 5_000);
        thread.copy("HtoD", ("pageable", "device"), true, 4096, 30_000);
        thread.sync("cuStreamSynchronize", "stream", 20_000);
        // Once by much, once before the process began, and ever again by a little.
        thread.now -= [3_000, 900_000, 5_000_000_000][usize::from(step == 10) + usize::from(step == 20) * 2];
    }
    for format in [Format::Text, Format::Json, Format::Markdown] {
        let said = report(&made, format).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("cuLaunchKernel") || said.contains("gemm"), "{said}");
        assert!(!said.contains("NaN") && !said.contains("inf "), "{said}");
        assert_eq!(said.matches("calls of pid 100 lie up to").count(), 1, "{said}");
        assert!(said.contains("before it began: the clock was set while it ran"), "{said}");
    }
}

#[test]
fn a_stream_is_a_handle_in_tables_and_in_lines_over_time() {
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 1_000_000_000);
    let mut thread = made.thread(1, 11);
    for _ in 0..40 {
        let begin = thread.now + 9_000;
        thread.launch_running("gemm", 5_000, 0x200_0000_0010, (begin, 4_000));
    }
    let said = report(&made, Format::Text);
    let line = said.split("Over time (most in each span; After: since the trace began)").nth(1).expect("queue-length");
    assert!(line.lines().nth(1).is_some_and(|line| line.contains(" 0x20000000010 ")), "{line}");
    assert!(!said.contains("2,199,023,255,568"), "{said}");
}

/// What the page about JSON says of an analysis, in a section that may be about several.
fn documented(analysis: &str) -> &'static str {
    const PAGE: &str = include_str!("../../docs/report-json.md");
    let is_about =
        |section: &&str| section.lines().next().is_some_and(|head| head.split(", ").any(|of| of == analysis));
    PAGE.split("\n## ").find(is_about).unwrap_or_default()
}

#[test]
fn every_number_and_table_of_the_json_report_stands_on_its_page() {
    let trace = TestTrace::rich();
    let (trace, filter) = (trace.open(), Filter::default());
    let needs: Vec<_> = ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect();
    let facts = Facts::gather(&trace, &filter, &needs);
    // What rows by stack end with is said once.
    const BY_STACK: [&str; 4] = ["via", "place", "stack", "stack_id"];
    let mut missing = Vec::new();
    for analysis in ALL {
        let (section, page) = (analysis.section(&facts), documented(analysis.name()));
        let facts = section.facts.iter().map(|fact| fact.key);
        let tables = section.tables.iter().map(|table| table.key);
        let keys = facts.chain(tables).filter(|key| !page.contains(&format!("`{key}`")));
        missing.extend(keys.map(|key| format!("{}.{key}", analysis.name())));
        for table in &section.tables {
            let keys = table.columns.iter().map(|column| column.key).filter(|key| *key != "process");
            let said_once =
                |key: &str| table.columns.iter().any(|column| column.key == "stack") && BY_STACK.contains(&key);
            let keys = keys.filter(|key| !said_once(key) && !page.contains(&format!("`{key}`")));
            missing.extend(keys.map(|key| format!("{}.{}.{key}", analysis.name(), table.key)));
        }
    }
    assert!(missing.is_empty(), "not in docs/report-json.md: {missing:#?}");
}
