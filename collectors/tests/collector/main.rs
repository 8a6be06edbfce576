//! The collector as a whole: processes that send segments on one side, files on the other.

#[path = "../support/rows.rs"]
mod rows;
#[path = "../support/mod.rs"]
mod support;

mod accounting;
mod arrivals;
mod detail;
mod faults;
mod limits;
mod live;
mod many;
mod metal;
mod ranges;
mod recover;
mod tables;

use std::time::{Duration, Instant};

use gputrace_collectors::{Config, ExitStatusInfo, Manifest, Running, start};
use support::Folder;

/// The usual configuration for a test.
fn config(folder: &Folder) -> Config {
    let mut config = Config::new(folder.trace(), folder.session(), "node7".to_owned(), 0xabc);
    config.command = vec!["train".to_owned()];
    config
}

/// A collector with the usual configuration.
fn collect(folder: &Folder) -> Running {
    start(config(folder)).unwrap()
}

/// Ends a collector.
fn finish(running: Running) -> Manifest {
    let status = ExitStatusInfo { code: Some(7), ..ExitStatusInfo::default() };
    running.finish(Some(status), Instant::now() + Duration::from_secs(120)).unwrap()
}

/// Every class of every process is balanced, and the files hold what the manifest says.
fn assert_exact(folder: &Folder, manifest: &Manifest) {
    let mut recorded = 0;
    for process in manifest.accounts() {
        for (class, count) in &process.accounting {
            assert!(count.is_balanced(), "{class}: {count:?}");
            // Most messages that encode have no row of their own.
            recorded += if class == "encode" { 0 } else { count.recorded };
        }
        assert!(process.balanced);
    }
    let tables = ["launches", "syncs", "transfers", "device_memory", "host_memory", "api"];
    let rows: usize = tables.iter().map(|table| rows::count(&folder.trace(), table)).sum();
    // A range that has ended is two events.
    let ranges = rows::batches(&folder.trace(), "ranges");
    let both = rows::numbers(&ranges, "end_ns").into_iter().zip(rows::texts(&ranges, "kind"));
    let events: usize = both.map(|(end, kind)| if end.is_some() && kind != "mark" { 2 } else { 1 }).sum();
    assert_eq!((rows + events) as u64, recorded);
}
