//! What entries jump by and read is written into them once it is known, where it may be.

use crate::util::{Row, Scratch, Target, library, program, program_with};

/// What the program says of its three functions is this, and all its blocks are told.
fn check(target: Target<'_>, mode: &str, jumps: &str) {
    let run = target.options(mode.split(' ')).traced().expect(0);
    let told: Vec<String> = run.text().lines().map(str::to_owned).collect();
    let of = |name: &str| format!("{name}: {jumps}");
    assert_eq!(told, [of("malloc"), of("free"), of("calloc"), "code that can be written to: 0".to_owned()], "{mode}");
    let trace = run.read();
    trace.assert_balanced();
    let table = trace.table("host_memory");
    let wanted = if mode == OFF { 0 } else { 1000 };
    // Who sums up short lives does it with these, too, and says only of which power of two their sizes are.
    let alike = |row: &Row<'_>| row.int("bytes").leading_zeros() == 35_001_i64.leading_zeros();
    let culled: i64 =
        table.rows().filter(|row| row.text("action") == "culled" && alike(row)).map(|row| row.int("calls")).sum();
    for action in ["alloc", "free"] {
        let own = table.rows().filter(|row| row.int("bytes") == 35_001 && row.text("action") == action);
        let all = own.count() as i64 + culled;
        assert!((wanted..wanted + 10).contains(&all) && (culled > 0 || all == wanted), "{mode}: {all} of {action}");
    }
}

const OFF: &str = "--malloc off";
const MODES: [&str; 4] = [OFF, "--malloc sample=1000", "--malloc full", "--malloc full --malloc-stacks off --cull 10"];

#[test]
fn entries_jump_straight_to_libc() {
    let scratch = Scratch::new();
    for mode in MODES {
        check(scratch.target(program("straight")), mode, "to libc");
    }
}

#[test]
fn they_do_where_the_name_stands_for_a_stub_of_the_program() {
    let scratch = Scratch::new();
    for mode in MODES {
        check(scratch.target(program_with("straight", "no-pie", &["-fno-pie", "-no-pie"])), mode, "to libc");
    }
}

#[test]
fn where_no_code_may_be_written_entries_stay_as_they_are() {
    let scratch = Scratch::new();
    for mode in MODES {
        check(scratch.target(program("straight")).arg("denied"), mode, "by a word");
    }
}

#[test]
fn where_another_thread_runs_them_entries_stay_as_they_are() {
    let scratch = Scratch::new();
    for mode in MODES {
        check(scratch.target(program("straight")).env("LD_PRELOAD", library("early_thread")), mode, "by a word");
    }
}
