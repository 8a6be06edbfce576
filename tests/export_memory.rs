//! Exports take no more memory for what differs in a trace, of which formats have tables: stacks, names, processes.

use std::process::Command;

use crate::util::{Scratch, gputrace, needs, repository};

/// What an export may take, whatever the trace.
const MOST_KIB: u64 = 128 << 10;

/// `benches/exports.py`, with fewer of each than its own, of which the formats took twice as much as they may when all was kept in memory.
#[test]
fn an_export_stays_within_128_mib_however_many_stacks_names_and_processes_a_trace_has() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut bench = Command::new("python3");
    bench.arg(repository().join("benches/exports.py")).arg(gputrace()).arg(scratch.path());
    let output = bench.args(["50000", "150000", "15000"]).output().expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(rows.len(), 3 * 9, "{text}");
    let most = |row: &&Vec<&str>| row[3].parse::<u64>().expect("KiB") > MOST_KIB;
    assert_eq!(rows.iter().find(most), None, "{text}");
}
