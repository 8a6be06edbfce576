//! What malloc refuses, and what programs do wrongly with it, is as it is without us, in each mode.

use crate::util::{Scratch, count, program_with};

const MODES: [&str; 4] = ["off", "sample", "sample=1", "full"];

fn program() -> std::path::PathBuf {
    program_with("malloc_odd", "program", &["-fno-builtin", "-w", "-lpthread"])
}

/// How many blocks of this size were recorded, and freed again, where samples lie so far apart that hardly one escapes.
fn sampled(what: &str, bytes: i64) -> [usize; 2] {
    let scratch = Scratch::new();
    let run = scratch.target(program()).arg(what).options(["--malloc", "sample=1000"]).same().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let table = trace.table("host_memory");
    ["alloc", "free"]
        .map(|action| table.rows().filter(|row| row.int("bytes") == bytes && row.text("action") == action).count())
}

#[test]
fn sizes_that_no_memory_has_do_not_keep_others_from_being_sampled() {
    assert_eq!(sampled("absurd", 33_001), [2000; 2]);
}

#[test]
fn the_first_allocation_of_a_thread_is_sampled_as_any_other() {
    assert_eq!(sampled("first", 34_001), [20; 2]);
}

#[test]
fn sizes_that_are_refused_are_refused_with_errno_and_take_no_block() {
    let scratch = Scratch::new();
    for mode in MODES {
        let run = scratch.target(program()).arg("refused").options(["--malloc", mode]).same().expect(0);
        for line in ["malloc of 1 TiB: none, errno 12", "realloc to 1 TiB: none, errno 12, as it was", "free: errno 77"]
        {
            assert!(run.text().contains(line), "{mode}: {line} is not in\n{}", run.text());
        }
        let trace = run.read();
        trace.assert_balanced();
        let table = trace.table("host_memory");
        assert!(table.rows().all(|row| row.int("bytes") < 1 << 30), "{mode}: a block that was not given");
        if mode == "full" {
            let of = |bytes: i64| {
                let rows = table.rows().filter(|row| row.int("bytes") == bytes);
                rows.map(|row| row.text("action").to_owned()).collect::<Vec<_>>()
            };
            // One that could not grow is allocated and freed as often as the books say.
            let block = of(31_001);
            let allocs = block.iter().filter(|action| *action == "alloc").count();
            assert!(allocs >= 1 && block.len() == 2 * allocs, "{block:?}");
            assert_eq!(of(31_002), ["alloc", "free"]);
        }
    }
}

#[test]
fn a_program_that_reaches_its_limit_of_memory_is_told_so() {
    let scratch = Scratch::new();
    for mode in MODES {
        let run = scratch.target(program()).arg("limited").options(["--malloc", mode]).same().expect(0);
        assert!(run.text().starts_with("refused, errno 12\n"), "{mode}: {}", run.text());
        assert_eq!(count(&run.read().root(), "host_alloc").dropped, 0, "{mode}");
    }
}

#[test]
fn a_corrupted_heap_ends_the_program_as_it_does_alone() {
    let scratch = Scratch::new();
    for how in ["twice", "overrun", "wild"] {
        for mode in MODES {
            let run = scratch.target(program()).arg(how).options(["--malloc", mode]).same().expect(128 + 6);
            run.read().assert_balanced();
        }
    }
}

#[test]
fn allocations_before_our_constructor_and_after_our_destructor_are_the_programs_own() {
    let scratch = Scratch::new();
    let library = program_with("malloc_odd", "early.so", &["-DEARLY", "-shared", "-fPIC", "-fno-builtin", "-w"]);
    let linked = ["-fno-builtin", "-w", "-lpthread", "-Wl,--no-as-needed", library.to_str().expect("a plain path")];
    let with = program_with("malloc_odd", "with-early", &linked);
    for mode in MODES {
        let target = scratch.target(&with).arg("late").options(["--malloc", mode]);
        let run = target.same().expect(0);
        // What stdout has buffered is written after the destructors of libraries.
        assert_eq!(run.text(), "late\ndone\n", "{mode}");
        run.read().assert_balanced();
        // Preloaded, before us and behind.
        let (library, program) = (library.display(), program());
        for order in [format!("{library}:$LD_PRELOAD"), format!("$LD_PRELOAD:{library}")] {
            let target = scratch.shell(&format!("LD_PRELOAD={order} exec {} late", program.display()));
            let run = target.options(["--malloc", mode]).same().expect(0);
            let trace = run.read();
            trace.assert_balanced();
            if mode == "full" {
                let table = trace.table("host_memory");
                let counts = [30_001, 30_002, 30_003, 32_001, 32_002].map(|bytes| {
                    let rows = || table.rows().filter(|row| row.int("bytes") == bytes);
                    ["alloc", "free"].map(|action| rows().filter(|row| row.text("action") == action).count())
                });
                // A library behind us begins before us: nothing is known then of what is wanted. All else is seen to the end.
                let first = if order.ends_with("$LD_PRELOAD") { [100, 100] } else { [0, 0] };
                assert_eq!(counts, [first, [100, 100], [100, 0], [1, 1], [1, 1]], "{order}");
            }
        }
    }
}
