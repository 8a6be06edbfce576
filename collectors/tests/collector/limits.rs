//! Files are sealed in time, and the oldest go when there are too many.

use std::time::{Duration, Instant};

use gputrace_collectors::start;

use crate::rows::{count, files};
use crate::support::{Folder, Target, wait_until};
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
