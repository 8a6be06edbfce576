//! Files are sealed in time, and the oldest go when there are too many.

use std::time::{Duration, Instant};

use gputrace_abi::event::Event;
use gputrace_abi::layout::malloc_mode;
use gputrace_collectors::{Manifest, start};

use crate::rows::{count, files};
use crate::support::{Folder, Memory, Target, hook, monotonic_ns, wait_until};
use crate::{assert_exact, config, finish};

/// Writes launches that do not compress, and waits until the rings are empty.
fn write(target: &Target, events: u64) {
    let mut thread = target.thread(1);
    let mut random = 1u64;
    for _ in 0..events {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        while !thread.reserve(1) {
            std::thread::yield_now();
        }
        thread.call("cuLaunchKernel", [random, random >> 7, random >> 13, random >> 3]);
    }
    thread.exit();
}

#[test]
fn a_file_is_sealed_at_its_size() {
    let folder = Folder::new("size");
    let mut config = config(&folder);
    config.file_bytes = 1 << 20;
    let running = start(config).unwrap();
    let mut target = Target::new(&folder.session());
    write(&target, 400_000);
    wait_until("a second file", || files(&folder.trace(), "launches").len() >= 2);
    target.exit(0);
    assert_exact(&folder, &finish(running));
    let names: Vec<_> = files(&folder.trace(), "launches");
    assert!(names[0].ends_with("launches/host=node7/abc-000000.parquet"), "{names:?}");
}

#[test]
fn a_file_is_sealed_at_its_age() {
    let folder = Folder::new("age");
    let mut config = config(&folder);
    config.file_age = Duration::from_millis(300);
    let running = start(config).unwrap();
    let mut target = Target::new(&folder.session());
    write(&target, 10);
    wait_until("the first file", || files(&folder.trace(), "launches").len() == 1);
    write(&target, 10);
    target.exit(0);
    assert_exact(&folder, &finish(running));
    assert_eq!(count(&folder.trace(), "launches"), 20);
}

#[test]
fn the_oldest_files_go_and_the_manifest_says_which() {
    let folder = Folder::new("most");
    let mut config = config(&folder);
    (config.file_bytes, config.max_size) = (1 << 20, 3 << 20);
    let running = start(config).unwrap();
    let mut target = Target::new(&folder.session());
    write(&target, 600_000);
    let first = folder.trace().join("launches/host=node7/abc-000000.parquet");
    wait_until("files to go", || !first.exists() && !files(&folder.trace(), "launches").is_empty());
    target.exit(0);
    let manifest = finish(running);
    assert!(!manifest.removed_files.is_empty());
    assert_eq!(manifest.removed_files[0], "launches/host=node7/abc-000000.parquet");
    assert!(manifest.removed_files.iter().all(|f| !folder.trace().join(f).exists()));
    assert_eq!((count(&folder.trace(), "processes"), manifest.processes[0].balanced), (1, true));
    assert!(count(&folder.trace(), "names") > 0);
    // Which rows went is told, and with those that stayed they are all.
    let [removed] = manifest.removed.as_slice() else { panic!("{:?}", manifest.removed) };
    assert!(removed.table == "launches" && removed.from_ns < removed.to_ns, "{removed:?}");
    assert_eq!(
        removed.rows + count(&folder.trace(), "launches") as u64,
        manifest.processes[0].accounting["launch"].recorded
    );
}

#[test]
fn finishing_ends_at_its_deadline() {
    let folder = Folder::new("deadline");
    let running = start(config(&folder)).unwrap();
    let mut target = Target::new(&folder.session());
    write(&target, 100);
    target.exit(0);
    // A deadline that has passed gives up what is not on disk; the trace is readable all the same.
    let manifest = running.finish(None, Instant::now()).unwrap();
    assert_eq!(manifest.processes.len(), 1);
}

#[test]
fn through_days_detail_ages_into_its_sums_and_these_go_later() {
    let folder = Folder::new("days");
    let mut config = config(&folder);
    // A second is ten hours.
    let hours = |hours: u64| Some(Duration::from_secs(hours * 3600));
    (config.speed, config.keep_detail, config.max_age) = (36_000, hours(10), hours(40));
    config.file_age = Duration::from_millis(50);
    let at = gputrace_collectors::manifest::path(&folder.trace(), &config.host, config.launcher_id);
    let running = start(config).unwrap();
    let mut target = Target::with(&folder.session(), Memory::monotonic(16 << 20, malloc_mode::OFF));
    let removed = |table: &str, limit: &str| {
        let manifest = Manifest::read(&at).unwrap_or_default();
        let of = manifest.removed.iter().find(|removed| removed.table == table && removed.limit == limit);
        of.map_or(0, |removed| removed.rows)
    };
    for round in 1..=3 {
        let mut thread = target.thread(1);
        for _ in 0..100 {
            let start = monotonic_ns();
            let payload = [1, 2, 3, 4];
            let event = Event { hook: hook("cuLaunchKernel"), start, end: start + 3, payload, ..Event::default() };
            assert!(thread.event(event));
        }
        thread.exit();
        wait_until("detail to go", || removed("launches", "--keep-detail") == round * 100);
        // One row at least for each round, which lie hours apart.
        wait_until("its sums to go", || removed("rollups", "--max-age") >= round);
    }
    target.exit(0);
    let manifest = finish(running);
    assert!(manifest.processes[0].balanced && manifest.processes[0].accounting["launch"].recorded == 300);
    assert_eq!(files(&folder.trace(), "launches").len() + count(&folder.trace(), "launches"), 0);
    assert!(count(&folder.trace(), "names") > 0, "what others mean stays");
    let limits: Vec<_> = manifest.removed.iter().filter(|of| of.table == "launches").map(|of| &of.limit).collect();
    assert_eq!(limits, ["--keep-detail"]);
}
