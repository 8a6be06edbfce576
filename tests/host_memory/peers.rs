//! Other tools count the same: valgrind's memcheck and heaptrack on the same program, which allocates in every way.
//!
//! valgrind's counts are equal in all. It takes malloc's place in the program, and so do we: what libc and the loader allocate
//! for themselves before our constructor, only it would see; this program loads nothing that does. heaptrack has no hook for
//! memalign, and counts allocations of its own start, which a run of no rounds tells.

use std::process::Command;

use crate::util::{Scratch, needs, program_with};

const ROUNDS: u64 = 1000;

fn program() -> std::path::PathBuf {
    program_with("malloc_counted", "program", &["-fno-builtin"])
}

/// What was counted.
#[derive(Debug, PartialEq)]
struct Counts {
    allocations: u64,
    frees: u64,
    bytes: u64,
    live_bytes: u64,
    live_blocks: u64,
}

/// Our counts, and how many of the allocations were made by memalign.
fn ours() -> (Counts, u64) {
    let scratch = Scratch::new();
    let target = scratch.target(program()).arg(ROUNDS.to_string());
    let trace = target.options(["--malloc", "full"]).same().expect(0).read();
    trace.assert_balanced();
    let (names, table) = (trace.names(), trace.table("host_memory"));
    let of = |action: &str| {
        let rows = table.rows().filter(|row| row.text("action") == action);
        rows.fold((0, 0), |(calls, bytes), row| (calls + 1, bytes + row.int("bytes") as u64))
    };
    let ((allocations, bytes), (frees, freed)) = (of("alloc"), of("free"));
    let by_memalign = table.rows().filter(|row| names[&row.int("api_id")] == "memalign").count();
    let counts = Counts { allocations, frees, bytes, live_bytes: bytes - freed, live_blocks: allocations - frees };
    (counts, by_memalign as u64)
}

/// The whole number that stands before this text.
#[track_caller]
fn before(text: &str, what: &str) -> u64 {
    let number = text.split(what).next().filter(|head| head.len() < text.len());
    let number =
        number.and_then(|head| head.split_whitespace().next_back()).unwrap_or_else(|| panic!("no {what}: {text}"));
    number.replace(',', "").parse().unwrap_or_else(|_| panic!("{number} {what}"))
}

#[test]
fn valgrind_counts_the_same_allocations_frees_and_bytes() {
    if !needs(&["valgrind"]) {
        return;
    }
    // What libc would free at the end for valgrind's sake alone is left as it is.
    let mut command = Command::new("valgrind");
    command.arg("--run-libc-freeres=no").arg(program()).arg(ROUNDS.to_string());
    let said = String::from_utf8(command.output().expect("valgrind runs").stderr).expect("text");
    let counts = Counts {
        allocations: before(&said, " allocs,"),
        frees: before(&said, " frees,"),
        bytes: before(&said, " bytes allocated"),
        live_bytes: before(&said, " bytes in "),
        live_blocks: before(&said, " blocks\n"),
    };
    assert_eq!(ours().0, counts, "{said}");
    assert_eq!((counts.allocations, counts.live_blocks), (8 * ROUNDS, ROUNDS / 10));
}

#[test]
fn heaptrack_counts_the_same_allocations() {
    if !needs(&["heaptrack", "heaptrack_print"]) {
        return;
    }
    let scratch = Scratch::new();
    let allocations = |rounds: u64| {
        let file = scratch.path().join(format!("of{rounds}"));
        let mut command = Command::new("heaptrack");
        command.arg("-o").arg(&file).arg(program()).arg(rounds.to_string());
        assert!(command.output().expect("heaptrack runs").status.success());
        let written = std::fs::read_dir(scratch.path()).expect("our folder").flatten().map(|entry| entry.path());
        let name = format!("of{rounds}.");
        let mut written = written.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&name)));
        let print = Command::new("heaptrack_print").arg(written.next().expect("heaptrack's file")).output();
        let said = String::from_utf8(print.expect("heaptrack_print runs").stdout).expect("text");
        let (_, count) = said.split_once("calls to allocation functions: ").expect("a count of calls");
        before(count, " (")
    };
    let (ours, by_memalign) = ours();
    assert_eq!(by_memalign, ROUNDS);
    assert_eq!(ours.allocations - by_memalign, allocations(ROUNDS) - allocations(0));
}
