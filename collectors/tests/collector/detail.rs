//! Where not every single event is kept: what is on the disk, what the account says, and who may ask for more.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use gputrace_abi::event::Event;
use gputrace_abi::layout::malloc_mode;
use gputrace_collectors::detail::{Detail, QUEUE_BYTES, Triggers};
use gputrace_collectors::{Config, control_path, start};

use crate::rows::{batches, count, values};
use crate::support::{Folder, Memory, Target, hook, monotonic_ns, wait_until};
use crate::{assert_exact, config, finish};

const LAUNCHES: u64 = 30_000;

fn with(folder: &Folder, detail: Detail) -> Config {
    Config { detail, ..config(folder) }
}

/// Calls of several classes, as fast as the rings take them; gives how many there were.
fn call(target: &Target, times: u64) -> u64 {
    let mut thread = target.thread(1);
    for n in 0..times {
        for name in ["cuLaunchKernel", "cuStreamSynchronize", "cuMemAlloc_v2", "cuMemFree_v2", "cuStreamCreate"] {
            while !thread.reserve(1) {
                thread::yield_now();
            }
            thread.call(name, [n; 4]);
        }
    }
    thread.exit();
    times * 5
}

/// What the session answers to a request.
fn ask(folder: &Folder, request: &str) -> String {
    let mut stream = UnixStream::connect(control_path(&folder.session())).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn with_rollups_alone_no_single_event_is_on_the_disk_and_each_is_accounted_for() {
    let folder = Folder::new("rollup");
    let running = start(with(&folder, Detail::Rollup)).unwrap();
    let mut target = Target::new(&folder.session());
    let calls = call(&target, LAUNCHES / 5);
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let counts = &manifest.processes[0].accounting;
    assert_eq!(counts.values().map(|count| count.left_out).sum::<u64>(), calls);
    assert_eq!(counts.values().map(|count| count.recorded).sum::<u64>(), 0);
    assert!(["launches", "syncs", "device_memory", "api"].iter().all(|table| count(&folder.trace(), table) == 0));
    assert!(count(&folder.trace(), "names") > 0 && count(&folder.trace(), "processes") == 1);
    assert_eq!(manifest.detail.unwrap().mode, "rollup");
}

#[test]
fn windows_hold_the_rows_that_begin_in_them_and_the_account_is_exact() {
    let folder = Folder::new("windows");
    let (length, period) = (Duration::from_millis(3), Duration::from_millis(10));
    let running = start(with(&folder, Detail::Windows { length, period })).unwrap();
    let mut target = Target::new(&folder.session());
    let mut calls = 0;
    // Longer than several windows and the time between them.
    for _ in 0..20 {
        calls += call(&target, LAUNCHES / 100);
        thread::sleep(Duration::from_millis(5));
    }
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let counts = &manifest.processes[0].accounting;
    let (recorded, left) = counts.values().fold((0, 0), |(r, l), count| (r + count.recorded, l + count.left_out));
    assert_eq!(recorded + left, calls);
    assert!(recorded > 0 && left > 0, "{recorded} {left}");
    for table in ["launches", "syncs", "device_memory", "api"] {
        let starts = values(&batches(&folder.trace(), table), "start_ns");
        assert!(starts.iter().all(|at| at.rem_euclid(10_000_000) < 3_000_000), "{table}");
    }
}

#[test]
fn a_dump_is_on_the_disk_when_it_is_answered_and_a_second_one_too() {
    let folder = Folder::new("dump");
    let detail = Detail::Triggered { before: Duration::from_secs(30), bytes: QUEUE_BYTES, also: Triggers::default() };
    let running = start(with(&folder, detail)).unwrap();
    let mut target = Target::new(&folder.session());
    let mut calls = 0;
    for dump in 1..=2 {
        calls += call(&target, LAUNCHES / 5);
        target.wait_until_read();
        assert_eq!(ask(&folder, "dump"), format!("ok {}\n", folder.trace().display()));
        let manifest = std::fs::read_dir(folder.trace().join("manifest")).unwrap().next().unwrap().unwrap().path();
        let manifest = gputrace_collectors::Manifest::read(&manifest).unwrap();
        assert_eq!(manifest.detail.unwrap().intervals.len(), dump);
        let recorded: u64 = manifest.processes[0].accounting.values().map(|count| count.recorded).sum();
        assert_eq!(recorded, calls, "in dump {dump}");
        let journal = folder.trace().join("journal/node7-abc.journal");
        assert!(gputrace_collectors::journal::read(&journal).is_ok());
    }
    assert!(ask(&folder, "ping").ends_with("\ttrain\n"));
    assert!(ask(&folder, "reboot").starts_with("error reboot"));
    // The end is one more: the command exits with 7.
    target.exit(7);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let whys: Vec<String> = manifest.detail.unwrap().intervals.into_iter().map(|interval| interval.why).collect();
    assert_eq!(whys, ["gputrace dump", "gputrace dump", "the command ended with exit code 7"]);
    assert!(!control_path(&folder.session()).exists());
}

#[test]
fn what_else_is_worth_keeping_is_set_while_it_runs_and_nothing_where_a_part_is_refused() {
    let folder = Folder::new("set");
    let detail = Detail::Triggered { before: Duration::from_secs(30), bytes: QUEUE_BYTES, also: Triggers::default() };
    let running = start(with(&folder, detail)).unwrap();
    let mut target = Target::with(&folder.session(), Memory::monotonic(16 << 20, malloc_mode::OFF));
    // Waits of nothing, and one of two milliseconds: a moment only where somebody asks for it.
    let wait = |count: u64, ns: u64| {
        let mut thread = target.thread(1);
        for _ in 0..count {
            let start = monotonic_ns();
            let event = Event { hook: hook("cuStreamSynchronize"), start, end: start + ns, ..Event::default() };
            assert!(thread.event(event));
        }
        thread.exit();
        target.wait_until_read();
        // What was read is made rows, and looked at, before this is answered.
        assert!(ask(&folder, "stop").starts_with("ok") && ask(&folder, "start").starts_with("ok"));
    };
    assert!(ask(&folder, "set dump-slow=3 dump-gpu-idle=1").contains("this session reads no counters"));
    wait(300, 1_000);
    wait(1, 5_000_000);
    assert!(ask(&folder, "set dump-slow=3").starts_with("ok"));
    wait(300, 1_000);
    wait(1, 5_000_000);
    assert!(ask(&folder, "set dump-slow=off").starts_with("ok"));
    wait(1, 9_000_000);
    target.exit(0);
    let manifest = finish(running);
    let whys: Vec<String> = manifest.detail.unwrap().intervals.into_iter().map(|interval| interval.why).collect();
    // The end may come within its second, and then makes it longer.
    let all = whys.join("; ");
    assert_eq!((all.matches("took 5000 us").count(), all.matches("took 9000 us").count()), (1, 0), "{all}");
    assert_eq!(manifest.notes.iter().filter(|note| note.starts_with("gputrace set ")).count(), 2);
}

#[test]
fn without_anything_held_back_a_dump_is_refused() {
    let folder = Folder::new("no-recorder");
    let running = start(config(&folder)).unwrap();
    assert!(ask(&folder, "dump").contains("no flight recorder"));
    finish(running);
}

#[test]
fn the_bytes_that_wait_are_bounded_and_what_they_pushed_out_is_left_out() {
    let folder = Folder::new("bytes");
    let detail = Detail::Triggered { before: Duration::from_secs(3600), bytes: 256 << 10, also: Triggers::default() };
    let running = start(with(&folder, detail)).unwrap();
    let mut target = Target::new(&folder.session());
    let calls = call(&target, LAUNCHES);
    target.wait_until_read();
    wait_until("rows on the disk", || ask(&folder, "dump").starts_with("ok"));
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let detail = manifest.detail.clone().unwrap();
    assert!(detail.held_ns.is_some_and(|held| held < 3_600_000_000_000), "{detail:?}");
    let counts = &manifest.processes[0].accounting;
    let (recorded, left) = counts.values().fold((0, 0), |(r, l), count| (r + count.recorded, l + count.left_out));
    assert!(recorded + left == calls && left > calls / 4 && recorded > 0, "{recorded} {left}");
    // The first interval claims no more than there is.
    let starts = values(&batches(&folder.trace(), "launches"), "start_ns");
    assert!(starts.iter().all(|at| *at >= detail.intervals[0].from_ns));
}
