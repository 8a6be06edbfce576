//! A collector that is killed, and a disk that is full.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use arrow::array::RecordBatch;
use gputrace_abi::event::text_kind;
use gputrace_collectors::schema::TableId;
use gputrace_collectors::{Manifest, journal, manifest};

use crate::assert_exact;
use crate::rows::{batches, count, values};
use crate::support::{Folder, Target, wait_until};

/// The example `collect`, which cargo builds with the tests.
pub(crate) fn collector(folder: &Folder) -> Command {
    let mut at: PathBuf = std::env::current_exe().unwrap();
    at.pop();
    at.pop();
    let mut command = Command::new(at.join("examples/collect"));
    command.arg(folder.trace()).arg(folder.session()).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Starts it and waits until it listens.
pub(crate) fn start(mut command: Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, lines)
}

/// Rows of a table in the journal.
pub(crate) fn young(folder: &Folder, table: TableId) -> Vec<RecordBatch> {
    let path = folder.trace().join("journal/node7-abc.journal");
    let Ok(journal) = journal::read(&path) else { return Vec::new() };
    journal.map(Result::unwrap).filter(|(t, _)| *t == table).map(|(_, batch)| batch).collect()
}

pub(crate) fn young_rows(folder: &Folder, table: TableId) -> usize {
    young(folder, table).iter().map(RecordBatch::num_rows).sum()
}

#[test]
fn a_killed_collector_leaves_a_trace_that_misses_only_what_came_last() {
    // Few rows stand in the journal itself; many in an unfinished file that the journal completes.
    for events in [10, 300_000u64] {
        let folder = Folder::new("sigkill");
        let (mut child, _lines) = start(collector(&folder));
        let target = Target::new(&folder.session());
        let mut thread = target.thread(1);
        thread.text(text_kind::FUNCTION, 0xf0, 0, "kernel");
        for n in 0..events {
            while !thread.reserve(1) {
                std::thread::yield_now();
            }
            thread.call("cuLaunchKernel", [0xf0, n, 0, 0]);
        }
        let all = || young_rows(&folder, TableId::Launches) + count(&folder.trace(), "launches");
        wait_until("the rows to be on disk", || all() == events as usize);
        wait_until("the process to be on disk", || young_rows(&folder, TableId::Processes) == 1);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut streams: Vec<i64> = values(&young(&folder, TableId::Launches), "stream");
        streams.extend(values(&batches(&folder.trace(), "launches"), "stream"));
        streams.sort();
        assert_eq!(streams, (0..events as i64).collect::<Vec<_>>());
        assert!(young_rows(&folder, TableId::Names) >= 2);
        let manifest = Manifest::read(&manifest::path(&folder.trace(), "node7", 0xabc)).unwrap();
        assert!(!manifest.complete);
    }
}

#[test]
fn a_full_disk_costs_rows_that_are_counted_and_nothing_else() {
    let folder = Folder::new("enospc");
    let mut command = collector(&folder);
    // A limit on the size of files stands for a disk without room: writes fail, in the middle of a file.
    // SAFETY: async-signal-safe calls only.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 600_000, rlim_max: 600_000 };
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            if libc::setrlimit(libc::RLIMIT_FSIZE, &limit) == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    let (mut child, mut lines) = start(command);
    let mut target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    let mut random = 1u64;
    for _ in 0..400_000 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        while !thread.reserve(1) {
            std::thread::yield_now();
        }
        thread.call("cuLaunchKernel", [random, random >> 9, random >> 5, random >> 3]);
    }
    for n in 0..100 {
        thread.call("cuStreamSynchronize", [n; 4]);
    }
    thread.exit();
    target.exit(0);
    drop(child.stdin.take());
    let mut said = String::new();
    lines.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(said.contains("could not be written"), "{said}");
    let manifest = Manifest::read(&manifest::path(&folder.trace(), "node7", 0xabc)).unwrap();
    let launches = manifest.processes[0].accounting["launch"];
    assert!(launches.dropped > 0 && launches.is_balanced(), "{launches:?}");
    assert_exact(&folder, &manifest);
    assert!(manifest.notes.iter().any(|n| n.contains("could not be written")));
}
