//! Collectors that are killed at any point, and what is made of what they leave.

use std::fs;
use std::time::{Duration, Instant};

use gputrace_abi::event::text_kind;
use gputrace_collectors::recover::{Launcher, RecoverError, launchers, recover};
use gputrace_collectors::schema::TableId;
use gputrace_collectors::{Manifest, journal, manifest};

use crate::assert_exact;
use crate::faults::{collector, start, young, young_rows};
use crate::rows::{batches, count, values};
use crate::support::{Folder, Target, wait_until};

const LAUNCHER: u64 = 0xabc;

fn launcher() -> Launcher {
    Launcher { host: "node7".to_owned(), id: LAUNCHER }
}

fn read_manifest(folder: &Folder) -> Manifest {
    Manifest::read(&manifest::path(&folder.trace(), "node7", LAUNCHER)).unwrap()
}

/// Everything in the trace that a recovery is to leave none of.
fn leftovers(folder: &Folder) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.trace()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.to_string_lossy().into_owned();
            if entry.is_dir() {
                folders.push(entry);
            } else if [".part", ".journal", ".reserve", ".new"].iter().any(|end| name.ends_with(end)) {
                found.push(name);
            }
        }
    }
    found
}

/// Numbers that are as good as drawn.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *seed >> 33
}

/// Kills a collector after a time that follows from the seed, and recovers its trace.
fn one_round(seed: u64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let folder = Folder::new("killed");
    // Some files grow full, so that kills meet them being sealed.
    let mut command = collector(&folder);
    command.env("COLLECT_FILE_BYTES", [60_000, 400_000, 64 << 20][draw(&mut random) as usize % 3].to_string());
    let (mut child, _lines) = start(command);
    let target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    thread.text(text_kind::FUNCTION, 0xf0, 0, "kernel");
    let fast = draw(&mut random).is_multiple_of(2);
    let until = Instant::now() + Duration::from_millis(draw(&mut random) % 900);
    let mut written = 0u64;
    while Instant::now() < until {
        for _ in 0..if fast { 500 } else { 5 } {
            if thread.reserve(1) {
                thread.call("cuLaunchKernel", [0xf0, written, 0, 0]);
                written += 1;
            }
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What a reader makes of it before anybody has recovered it ...
    let mut before = values(&young(&folder, TableId::Launches), "stream");
    before.extend(values(&batches(&folder.trace(), "launches"), "stream"));
    before.sort_unstable();
    // ... is what is there afterwards, each event once, and the account says so.
    let manifest = recover(&folder.trace(), &launcher()).unwrap().expect("it was killed");
    let mut after = values(&batches(&folder.trace(), "launches"), "stream");
    after.sort_unstable();
    assert_eq!(after, before, "seed {seed}");
    assert!(
        after.iter().copied().eq(0..after.len() as i64),
        "seed {seed}: none twice, and none before the last missing"
    );
    assert!(after.len() as u64 <= written);
    assert_eq!(leftovers(&folder), Vec::<String>::new(), "seed {seed}");
    assert!(manifest.complete && manifest.is_cut_short(), "seed {seed}");
    assert_eq!(manifest, read_manifest(&folder));
    if let Some(launches) = manifest.processes.first().and_then(|process| process.accounting.get("launch")) {
        let lost = manifest.recovered.unwrap().lost;
        assert_eq!(launches.recorded, after.len() as u64, "seed {seed}");
        assert!(launches.dropped >= lost && launches.seen <= written, "seed {seed}: {launches:?}, {written}");
        for table in ["rollups", "rollup_names"] {
            let summed: i64 = values(&batches(&folder.trace(), table), "events").iter().sum();
            // None of them was on the disk in the first second.
            assert!(
                summed == 0 || summed as u64 == launches.recorded + launches.dropped,
                "seed {seed}: {table} {summed}"
            );
        }
    }
    assert_exact(&folder, &manifest);
    assert_eq!(recover(&folder.trace(), &launcher()).unwrap(), None, "a second time there is nothing to do");
}

#[test]
fn a_collector_that_is_killed_at_any_point_leaves_what_can_be_made_whole() {
    // More of them: GPUTRACE_KILLS=100.
    let rounds = std::env::var("GPUTRACE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(16);
    (1..=rounds).for_each(one_round);
}

#[test]
fn a_collector_at_work_is_left_alone_and_one_that_ended_needs_nothing() {
    let folder = Folder::new("at-work");
    let (mut child, _lines) = start(collector(&folder));
    assert_eq!(launchers(&folder.trace()).unwrap(), [launcher()]);
    let error = recover(&folder.trace(), &launcher()).unwrap_err();
    assert!(matches!(error, RecoverError::AtWork(_)), "{error}");
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(recover(&folder.trace(), &launcher()).unwrap(), None);
}

/// A trace with so many launches whose collector was killed.
fn killed(name: &str, launches: u64) -> Folder {
    let folder = Folder::new(name);
    let (mut child, _lines) = start(collector(&folder));
    let target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    for n in 0..launches {
        while !thread.reserve(1) {
            std::thread::yield_now();
        }
        thread.call("cuLaunchKernel", [0xf0, n, 0, 0]);
    }
    wait_until("the rows to be on disk", || young_rows(&folder, TableId::Launches) as u64 == launches);
    wait_until("the process to be on disk", || young_rows(&folder, TableId::Processes) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    folder
}

#[test]
fn a_torn_journal_is_told_and_what_stands_before_is_kept() {
    let folder = killed("torn", 300);
    let path = folder.trace().join("journal/node7-abc.journal");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], &whole[..whole.len().min(40)]].concat()).unwrap();
    assert!(journal::read(&path).unwrap().is_torn());
    let manifest = recover(&folder.trace(), &launcher()).unwrap().expect("it was killed");
    assert_eq!(count(&folder.trace(), "launches"), 300);
    assert!(manifest.notes.iter().any(|note| note.contains("ends in the middle")), "{:?}", manifest.notes);
}

#[test]
fn a_file_whose_end_is_missing_is_named_and_the_rest_is_kept() {
    let folder = killed("cut", 300);
    let cut = folder.trace().join("launches/host=node7/abc-000000.parquet");
    fs::create_dir_all(cut.parent().unwrap()).unwrap();
    fs::write(&cut, b"PAR1 and what came to the disk before the power went").unwrap();
    let manifest = recover(&folder.trace(), &launcher()).unwrap().expect("it was killed");
    let says = |note: &String| note.contains("abc-000000.parquet is damaged");
    assert!(manifest.notes.iter().any(says), "{:?}", manifest.notes);
    fs::remove_file(&cut).unwrap();
    assert_eq!(count(&folder.trace(), "launches"), 300);
}

#[test]
fn an_account_that_lost_its_contents_is_made_again_from_the_rows() {
    let folder = killed("no-account", 300);
    let path = manifest::path(&folder.trace(), "node7", LAUNCHER);
    fs::write(&path, "").unwrap();
    let manifest = recover(&folder.trace(), &launcher()).unwrap().expect("it was killed");
    let [process] = manifest.processes.as_slice() else { panic!("{:?}", manifest.processes) };
    assert_eq!((process.accounting["launch"].recorded, process.accounting["launch"].seen), (300, 300));
    assert_exact(&folder, &manifest);
    assert!(manifest.notes.iter().any(|note| note.contains("account was lost")), "{:?}", manifest.notes);
}

#[test]
fn a_recovery_that_stops_halfway_is_begun_anew() {
    // So many that they stand in an unfinished file.
    let folder = killed("halfway", 70_000);
    let taken = folder.trace().join("launches/host=node7/abc-000000.parquet");
    fs::create_dir_all(taken.join("in-the-way")).unwrap();
    let error = recover(&folder.trace(), &launcher()).unwrap_err().to_string();
    assert!(error.contains("irectory"), "{error}");
    assert_eq!(young_rows(&folder, TableId::Launches), 70_000, "a reader finds them all the same");
    fs::remove_dir_all(&taken).unwrap();
    let manifest = recover(&folder.trace(), &launcher()).unwrap().expect("it was killed");
    assert_eq!(count(&folder.trace(), "launches"), 70_000);
    assert_exact(&folder, &manifest);
    assert_eq!(leftovers(&folder), Vec::<String>::new());
}

#[test]
fn what_a_failing_disk_keeps_from_its_file_stays_in_the_journal() {
    let folder = Folder::new("failing");
    let running = crate::collect(&folder);
    let target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    for n in 0..300 {
        assert!(thread.reserve(1));
        thread.call("cuLaunchKernel", [0xf0, n, 0, 0]);
    }
    wait_until("the rows to be on disk", || young_rows(&folder, TableId::Launches) == 300);
    // Not for want of room: no room that the journal gives up would help.
    let taken = folder.trace().join("launches/host=node7/abc-000000.parquet");
    fs::create_dir_all(taken.join("in-the-way")).unwrap();
    let manifest = crate::finish(running);
    assert!(!manifest.complete, "{:?}", manifest.notes);
    assert!(
        manifest.notes.iter().any(|note| note.contains("gputrace recover makes them of the journal")),
        "{:?}",
        manifest.notes
    );
    fs::remove_dir_all(&taken).unwrap();
    // It was forked from us, and has the collector's lock.
    drop(target);
    let manifest = recover(&folder.trace(), &launcher()).unwrap().expect("it is not whole");
    assert_eq!(count(&folder.trace(), "launches"), 300);
    assert_eq!(manifest.recovered.unwrap().lost, 0);
    assert_exact(&folder, &manifest);
    assert_eq!(leftovers(&folder), Vec::<String>::new());
}
