//! A program that profiles itself with CUPTI gets the same records whether gputrace is there or not.

use crate::util::{Driver, Scratch, driver_folder, linked_with_library, program_with};

/// What three rounds of `tests/programs/profiled.c` are made of.
const RECORDS: &str = "66 kernels (30 of the first, 780000 ns), 6 copies (24000 bytes), 6 sets (1800 bytes), 0 others, \
                       72 calls, 9 in graphs, 0 dropped";

fn told(text: &str) {
    for session in ["session 1", "session 2"] {
        assert!(text.contains(&format!("{session}: {RECORDS}\n")), "{text}");
    }
    assert!(text.ends_with("version 130001, done\n"), "{text}");
}

/// Runs it with CUPTI linked and looked up.
fn both(words: &[&str]) {
    let folder = driver_folder(Driver::Plain);
    let looked_up = linked_with_library("libcuda.so.1", &folder, &[]);
    let linked = linked_with_library("libcupti.so.13", &folder, &["-DLINKED", "-l:libcuda.so.1"]);
    for (tag, flags) in [("looked-up", looked_up), ("linked", linked)] {
        let scratch = Scratch::new();
        let target = scratch.target(program_with("profiled", tag, &flags)).args(words).with_driver(Driver::Plain);
        told(&target.same().expect(0).text());
    }
}

#[test]
fn a_program_that_profiles_itself_gets_the_same_records_when_it_is_traced() {
    both(&[]);
}

#[test]
fn a_profiler_that_subscribes_and_one_that_finalizes_get_the_same_too() {
    both(&["subscribe"]);
    both(&["finalize"]);
}
