//! System calls of gputrace fail, one after the other, with each error that a machine in trouble gives: the command is not
//! harmed, what is wrong is said, and what was written stays readable.

use std::fs;

use crate::util::{Scratch, Trace, library, program};

const FULL: [(&str, i32); 6] = [
    ("ENOSPC", libc::ENOSPC),
    ("EDQUOT", libc::EDQUOT),
    ("EIO", libc::EIO),
    ("EROFS", libc::EROFS),
    ("EMFILE", libc::EMFILE),
    ("ENOMEM", libc::ENOMEM),
];
/// Calls that write the trace: with each of the errors.
const WRITING: [&str; 6] = ["ftruncate64", "mkdir", "open64", "pwrite64", "rename", "write"];
/// Calls by which processes come and end: with two.
const OTHERS: [&str; 17] = [
    "accept4",
    "bind",
    "epoll_create1",
    "epoll_ctl",
    "eventfd",
    "fallocate",
    "flock",
    "listen",
    "memfd_create",
    "mmap",
    "opendir",
    "poll",
    "recvmsg",
    "sendmsg",
    "socket",
    "socketpair",
    "unlink",
];

/// One run in which a call fails for ever after so many. Whether anything was said.
fn one(scratch: &Scratch, call: &str, (name, number): (&str, i32), after: u32) -> bool {
    let what = format!("{call} fails with {name} after {after}");
    let target = scratch.target(program("threads")).arg("2").arg("300").with_instant_driver();
    let target =
        target.env("FAIL_CALL", call).env("FAIL_ERRNO", number.to_string()).env("FAIL_AFTER", after.to_string());
    let run = target.env("LD_PRELOAD", library("failing_calls")).traced();
    let own: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("gputrace: ")).collect();
    assert!(!run.stderr.contains("panicked"), "{what}: {}", run.stderr);
    match run.status.code() {
        // It ran, as it always does.
        Some(0) => assert_eq!(run.text(), "threads 4 sum 4 failed 0\n", "{what}: {}", run.stderr),
        // We could not start; then it did not start either, and one line says why.
        Some(125) => {
            assert_eq!((run.text(), own.len()), (String::new(), 1), "{what}: {}", run.stderr);
            return true;
        }
        other => panic!("{what}: {other:?}, {}", run.stderr),
    }
    // Each trouble is said once.
    let mut once = own.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), own.len(), "{what}: {}", run.stderr);
    if fs::read_dir(run.trace.join("manifest")).into_iter().flatten().count() == 0 {
        return !own.is_empty();
    }
    // What there is can be read, and is what the account says.
    let report = scratch.gputrace(&["report", run.trace.to_str().expect("a plain path"), "--only", "launch-overhead"]);
    assert!(
        matches!(report.status.code(), Some(0 | 1)) && !report.stderr.contains("panicked"),
        "{what}: {}",
        report.stderr
    );
    let trace = Trace::open(&run.trace);
    for manifest in trace.manifests().iter().filter(|manifest| manifest.complete) {
        let launches = manifest.processes.iter().filter_map(|process| process.accounting.get("launch"));
        let recorded: u64 = launches.map(|count| count.recorded).sum();
        assert_eq!(trace.table("launches").len() as u64, recorded, "{what}: {}", run.stderr);
    }
    !own.is_empty()
}

#[test]
fn calls_that_write_the_trace_may_fail_with_any_error() {
    let scratch = Scratch::new();
    for call in WRITING {
        let said = FULL.map(|error| [0, 12].map(|after| one(&scratch, call, error, after)));
        // Room that cannot be taken back, and what wakes somebody up who looks by himself soon, need no word.
        let needs_none = matches!(call, "ftruncate64" | "write");
        assert!(needs_none || said.iter().all(|[at_once, _]| *at_once), "{call}: {said:?}");
    }
}

#[test]
fn calls_by_which_processes_come_and_end_may_fail() {
    let scratch = Scratch::new();
    for call in OTHERS {
        for error in [FULL[4], FULL[5]] {
            for after in [0, 3] {
                one(&scratch, call, error, after);
            }
        }
    }
}
