//! What ci/on-a-mac asks of traces is there to be found: its questions are put to traces of the simulated Metal.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;

use super::{each, int};
use crate::util::repository;

/// Hooks whose calls the script counts.
fn hooks() -> BTreeSet<String> {
    let script = std::fs::read_to_string(repository().join("ci/on-a-mac")).expect("ci/on-a-mac");
    let questions = script.lines().filter(|line| line.contains("asked ")).filter_map(|line| line.split_once(" hook "));
    let hook = |(_, words): (&str, &str)| match words.strip_prefix('\'') {
        Some(quoted) => quoted.split('\'').next().unwrap_or_default().to_owned(),
        None => words.split([' ', ';']).next().unwrap_or_default().to_owned(),
    };
    questions.map(hook).collect()
}

#[test]
fn the_checklist_for_a_mac_asks_for_hooks_by_the_names_that_traces_have() {
    let wanted = hooks();
    assert!(wanted.len() >= 7 && wanted.iter().any(|name| name.len() > 56), "{wanted:?}");
    let (found, runs) = (RefCell::new(BTreeSet::new()), RefCell::new(0));
    for (program, arguments) in [
        ("metal_training.m", "12"),
        ("metal_every.m", "copies"),
        ("metal_every.m", "textures"),
        ("metal_every.m", "memory"),
        ("metal_every.m", "metal4"),
        ("metal_every.m", "devices"),
        ("metal_every.m", "commands"),
        ("metal_waits.m", "event"),
        ("metal_waits.m", "scheduled"),
        ("metal_waits.m", "late"),
        ("metal_waits.m", "queues"),
    ] {
        each(program, &[arguments], |run| {
            *runs.borrow_mut() += 1;
            let asks = |words: &[&str]| {
                let mut ask = Command::new("python3");
                ask.arg(repository().join("ci/mac/ask.py")).arg(&run.run.trace).args(words);
                ask.output().expect("python3").status.success()
            };
            assert!(asks(&["balanced"]), "{}", run.who);
            let missing: Vec<String> = wanted.difference(&found.borrow()).cloned().collect();
            found.borrow_mut().extend(missing.into_iter().filter(|hook| asks(&["hook", hook, "1"])));
        });
    }
    if runs.into_inner() > 0 {
        assert_eq!(found.into_inner(), wanted);
    }
}

#[test]
fn the_checklist_for_a_mac_finds_the_kernels_in_the_baseline() {
    let script = std::fs::read_to_string(repository().join("ci/on-a-mac")).expect("ci/on-a-mac");
    let pattern = |kernels: i64| script.contains("^ *kernels +200( |$)").then(|| format!("^ *kernels +{kernels}( |$)"));
    each("metal_training.m", &["12"], |run| {
        let kernels: i64 = run.truth("command_buffer").iter().map(|line| int(line, "dispatches")).sum();
        let trace = run.run.trace.to_string_lossy();
        let report = run.scratch.gputrace(&["report", &trace, "--only", "metal-baseline"]).expect(0);
        let file = run.scratch.path().join("baseline.txt");
        std::fs::write(&file, report.text()).expect("a file");
        let mut grep = Command::new("grep");
        let found = grep.args(["-c", "-E", &pattern(kernels).expect("its pattern")]).arg(&file).output().expect("grep");
        // The fact and the table's row.
        assert_eq!(String::from_utf8_lossy(&found.stdout), "2\n", "{}: {kernels} in {}", run.who, report.text());
    });
}
