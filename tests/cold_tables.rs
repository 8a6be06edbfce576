//! Stacks never wait for a disk: where a library's unwinding tables are not in memory they are fetched beside the program, and stacks
//! come when they are there.

use std::collections::HashSet;

use crate::util::{Scratch, lacks, program, program_with};

#[test]
fn a_stack_waits_for_no_disk_and_comes_when_its_tables_are_in_memory() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let scratch = Scratch::new();
    // A file of its own, on the disk where programs are built: it was read by nobody but the linker.
    let library = program_with("cold_tables", "library.so", &["-DLIBRARY", "-O1", "-shared", "-fPIC"]);
    let target = scratch.target(program("cold_tables")).arg(&library);
    let run = target.options(["--malloc", "sample=1", "--stacks", "on"]).traced().expect(0);
    let said = run.text();
    if said.starts_with("warm") {
        lacks("a file system whose pages can be put out of memory, for target/");
        return;
    }
    assert_eq!(said, "cold\nwaited 0\n");
    let trace = run.read();
    let own: HashSet<i64> = trace
        .table("stacks")
        .rows()
        .filter(|row| row.text("function") == "cold_allocate")
        .map(|row| row.int("stack_id"))
        .collect();
    let table = trace.table("host_memory");
    let blocks = table.rows().filter(|row| row.text("action") == "alloc" && row.int("bytes") == 123_457);
    let has: Vec<bool> = blocks.map(|row| row.maybe_int("stack_id").is_some_and(|id| own.contains(&id))).collect();
    assert_eq!(has.len(), 61);
    assert!(has.last() == Some(&true), "its stack came in the end: {has:?}");
}
