//! The checklist for a person with a Mac runs to its end anywhere, and no point of it stops the next one.

use std::process::Command;

use crate::util::{Scratch, repository};

fn rows(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn elsewhere_each_point_is_told_to_be_for_a_mac() {
    let output = Command::new(repository().join("ci/on-a-mac")).output().expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = rows(&String::from_utf8_lossy(&output.stdout));
    assert!(rows.len() > 25, "{rows:?}");
    assert!(rows.iter().all(|row| row.len() == 4 && row[2] == "not a Mac" && row[3] == "-"), "{rows:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_machine_on_which_nothing_works_gets_a_row_for_each_point() {
    let scratch = Scratch::new();
    // It says that it is a Mac, and has nothing that a Mac has.
    let tool = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a tool");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    };
    tool("uname", "[ \"$1\" = -s ] && echo Darwin || echo arm64");
    ["arch", "cargo", "clang", "codesign", "sw_vers", "sysctl"].into_iter().for_each(|name| tool(name, "exit 1"));
    let path = format!("{}:/usr/bin:/bin", scratch.path().display());
    let mut script = Command::new(repository().join("ci/on-a-mac"));
    // A folder of its own for what the points write, so that it goes with the test's.
    script.env("PATH", path).env("TMPDIR", scratch.path()).env("GPUTRACE_ON_A_MAC", scratch.path().join("none"));
    let output = script.output().expect("bash runs");
    assert_eq!(output.status.code(), Some(1));
    let rows = rows(&String::from_utf8_lossy(&output.stdout));
    assert!(rows.len() > 25, "{rows:?}");
    assert!(rows.iter().all(|row| row.len() == 4), "{rows:?}");
    let builds = rows.iter().find(|row| row[0].starts_with("builds")).expect("the first point");
    assert_eq!(builds[3], "NO");
}
