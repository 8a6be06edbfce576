//! Who watches a session is told what its processes did, whatever of it is kept.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use gputrace_abi::event::{pack_block, pack_grid, text_kind};
use gputrace_abi::layout::malloc_mode;
use gputrace_collectors::detail::Detail;
use gputrace_collectors::live::Snapshot;
use gputrace_collectors::{Config, control_path, start};

use crate::support::{Folder, Memory, Target, wait_until};
use crate::{assert_exact, collect, config, finish};

/// What the session answers at its socket.
fn ask(folder: &Folder) -> Snapshot {
    let mut stream = UnixStream::connect(control_path(&folder.session())).unwrap();
    stream.write_all(b"live\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let line =
        answer.strip_prefix("ok ").and_then(|rest| rest.strip_suffix('\n')).unwrap_or_else(|| panic!("{answer}"));
    assert!(!line.contains('\n'));
    Snapshot::parse(line).unwrap()
}

/// Asks until something is so.
fn until(folder: &Folder, what: &str, mut is_so: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    let mut last = Snapshot::default();
    wait_until(what, || {
        last = ask(folder);
        is_so(&last)
    });
    last
}

fn events(snapshot: &Snapshot, kind: &str) -> u64 {
    let all = snapshot.processes.iter().map(|process| &process.sums).chain([&snapshot.others]);
    all.filter_map(|sums| sums.kinds.get(kind)).map(|kind| kind.events).sum()
}

#[test]
fn a_client_is_told_what_a_process_did_and_what_it_is_doing() {
    for detail in [Detail::Full, Detail::Rollup] {
        let folder = Folder::new("live");
        let running = start(Config { detail, rollup: None, ..config(&folder) }).unwrap();
        let mut target = Target::with(&folder.session(), Memory::new(8 << 20, malloc_mode::OFF));
        // Names of kernels are counted from the first question on.
        assert_eq!(ask(&folder).hot.expect("it was asked for").kernels, []);
        let mut thread = target.thread(41);
        thread.text(text_kind::FUNCTION, 0xf0, 0, "_Z4gemmPf");
        for n in 0..10 {
            thread.call("cuLaunchKernel", [0xf0, 7, pack_grid(3, 2, 1), pack_block(128, 4, 1, 0)]);
            thread.call("cuMemAlloc_v2", [n << 20, 0, 0, 1 << 20]);
        }
        for n in 0..4 {
            thread.call("cuMemFree_v2", [n << 20, 0, 0, 0]);
        }
        thread.begin("cuStreamSynchronize");
        let snapshot = until(&folder, "the calls to be told", |told| {
            (events(told, "launch"), events(told, "alloc"), events(told, "free")) == (10, 10, 4)
        });
        let [process] = snapshot.processes.as_slice() else { panic!("{snapshot:?}") };
        assert_eq!((process.pid, process.recording, process.threads), (target.pid, true, 1));
        assert_eq!(
            (snapshot.command.as_slice(), snapshot.trace),
            (&["train".to_owned()][..], folder.trace().display().to_string())
        );
        assert_eq!((process.sums.device_memory_bytes, &process.gpu), (6 << 20, &None));
        let launches = &process.sums.kinds["launch"];
        assert_eq!((launches.seen, launches.timed, launches.durations.count(), launches.dropped), (10, 10, 10, 0));
        let waits = &process.sums.kinds["sync"];
        assert_eq!((waits.running, waits.events), (1, 0));
        assert!(waits.running_ns > 0);
        let hot = snapshot.hot.expect("it was asked for");
        let kernels: Vec<_> = hot.kernels.iter().map(|kernel| (kernel.name.as_deref(), kernel.launches)).collect();
        assert_eq!(kernels, [(Some("_Z4gemmPf"), 10)]);
        // Another thread of the collector's process is told the same, and what has ended stays in the sums.
        target.kill();
        let source = running.live();
        wait_until("its end to be told", || source.snapshot(false).is_some_and(|told| told.ended == 1));
        let told = source.snapshot(false).unwrap();
        assert_eq!((events(&told, "launch"), told.processes.len(), told.others.kinds["launch"].seen), (10, 0, 10));
        let manifest = finish(running);
        assert_exact(&folder, &manifest);
        assert!(source.snapshot(false).is_none(), "the session is over");
    }
}

#[test]
fn an_answer_that_is_longer_than_a_socket_takes_is_whole_and_a_client_that_does_not_read_holds_up_nobody() {
    let folder = Folder::new("live-long");
    let running = collect(&folder);
    let processes: Vec<Target> = (0..40).map(|_| Target::new(&folder.session())).collect();
    let deaf: Vec<UnixStream> = (0..20)
        .map(|_| {
            let mut stream = UnixStream::connect(control_path(&folder.session())).unwrap();
            stream.write_all(b"live\n").unwrap();
            // Once its answer has begun the next one asks: of so many at once some are refused.
            stream.read_exact(&mut [0; 3]).unwrap();
            stream
        })
        .collect();
    for (process, n) in processes.iter().zip(1..) {
        let mut thread = process.thread(n);
        for name in ["cuLaunchKernel", "cuStreamSynchronize", "cuMemcpyAsync", "cuMemAlloc_v2", "cuMemFree_v2"] {
            (0..50).for_each(|_| assert!(thread.call(name, [0; 4])));
        }
    }
    let snapshot = until(&folder, "all calls to be told", |told| events(told, "free") == 40 * 50);
    assert_eq!(snapshot.processes.len(), 40);
    drop(deaf);
    drop(processes);
    finish(running);
}
