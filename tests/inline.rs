//! Calls that symbols do not reach: missed and named by `--hook symbols` and `auto`, seen once by `--hook inline`.
//!
//! The other tests of hooks run by the inline route as well: `ci/inline`.

use crate::routes::{assert_route, counted};
use crate::util::{Driver, Scratch, Target, driver_folder, library, linked_with, program, program_with};

/// Programs whose calls go past the symbols, and what the manifest says about them where they are missed.
fn past_symbols(scratch: &Scratch, driver: Driver) -> [(Target<'_>, &'static str, &'static str); 3] {
    let flags = linked_with(&driver_folder(driver), &["-shared", "-fPIC", "-Dmain=job"]);
    let library = program_with("cuda_routes", &format!("library-{driver:?}"), &flags);
    let opened = |way: &str| scratch.target(program("past_symbols")).arg(way).arg(&library).with_driver(driver);
    let walk = scratch.target(program("cuda_routes")).arg("walk").with_driver(driver);
    [
        (opened("deepbind"), "link", "RTLD_DEEPBIND: calls that it makes itself may be missing; --hook inline"),
        (opened("dlmopen"), "link", "(dlmopen): calls that it makes itself may be missing; --hook inline"),
        (walk, "walk", "no hook was reached: calls that went past the symbols"),
    ]
}

#[test]
fn calls_past_the_symbols_are_missed_without_inline_hooks_and_the_manifest_says_so() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        for (target, route, note) in past_symbols(&scratch, driver) {
            // A plain driver's own calls may come to our symbols, so that of its calls some are seen.
            if driver == Driver::Plain && route == "link" {
                continue;
            }
            for hook in ["symbols", "auto"] {
                let run = target.clone().options(["--hook", hook]).traced().expect(0);
                let (trace, said) = (run.read(), run.text());
                assert!(said.contains("launches=3 copies=2 sum=522240 result=0"), "{said}");
                assert_eq!(trace.table("launches").len(), 0, "{route}");
                let process = trace.root();
                assert!(process.notes.iter().any(|text| text.contains(note)), "{note}: {:?}", process.notes);
                assert_eq!(process.coverage.inline, None);
                let past: Vec<_> = process.coverage.past_symbols.iter().map(|past| past.how.as_str()).collect();
                let how: &[&str] = if note.contains("DEEPBIND") { &["RTLD_DEEPBIND"] } else { &["dlmopen"] };
                assert_eq!(past, if route == "link" { how } else { &[] });
                if let [past] = process.coverage.past_symbols.as_slice() {
                    // Named in the coverage, in the process's row and in the summary.
                    let file = past.library.rsplit('/').next().expect("a name");
                    assert!(file.starts_with("cuda_routes-library-"), "{past:?}");
                    let table = trace.table("processes");
                    assert!(table.rows().any(|row| row.maybe_text("past_symbols") == Some(past.library.as_str())));
                    let summary = format!("uncovered: calls of {} ({})", past.library, past.how);
                    assert!(run.whole_lines().contains(&summary), "{}", run.stderr);
                }
            }
        }
    }
}

#[test]
fn calls_past_the_symbols_are_seen_once_by_inline_hooks() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        for (target, route, missing) in past_symbols(&scratch, driver) {
            let (run, trace) = counted(&scratch, target.options(["--hook", "inline"]));
            assert_route(&run, &trace, route, "inline");
            assert_eq!(run.own_stderr(), "");
            let process = trace.root();
            assert!(!process.notes.iter().any(|text| text.contains(missing)), "{:?}", process.notes);
            let patched = process.coverage.inline.map_or(0, |inline| inline.patched);
            assert!(patched > 500, "{patched} functions");
        }
    }
}

#[test]
fn a_function_that_is_too_short_for_a_patch_is_left_whole_and_named() {
    let scratch = Scratch::new();
    let target = scratch.target(program("escape")).arg("nested").with_odd_driver().options(["--hook", "inline"]);
    let trace = target.same().read();
    // By its symbol it is seen all the same, and calls of the driver itself are no calls of the program.
    assert_eq!(trace.calls().get("cuLaunchKernel"), Some(&100));
    assert_eq!(trace.calls().get("cuInit"), Some(&1));
    trace.assert_balanced();
    let inline = trace.root().coverage.inline.expect("the driver was looked at");
    let left = |name: &str| inline.left.iter().find(|left| left.function == name).map(|left| left.why.clone());
    assert_eq!(left("cuInit").as_deref(), Some("too short for a jump"), "{inline:?}");
}

#[test]
fn a_function_that_another_library_defines_too_is_left_to_it() {
    let scratch = Scratch::new();
    let target = scratch.target(program("cuda_routes")).arg("dlopen").with_driver(Driver::Symbolic);
    let target = target.env("LD_PRELOAD", library("quota")).options(["--hook", "inline"]);
    let (run, trace) = counted(&scratch, target.clone());
    assert_eq!(run.text(), target.plain().text());
    let inline = trace.root().coverage.inline.expect("the driver was looked at");
    let left: Vec<_> = inline.left.iter().filter(|left| left.why == "another library defines it too").collect();
    assert!(left.iter().any(|left| left.function == "cuMemAlloc_v2"), "{inline:?}");
    assert!(left.len() < 10 && inline.patched > 500, "{inline:?}");
}

#[test]
fn forked_children_keep_the_patches_of_their_parent() {
    let scratch = Scratch::new();
    let run =
        scratch.target(program("forks")).arg("fork").with_odd_driver().options(["--hook", "inline"]).traced().expect(0);
    let trace = run.read();
    let patched = trace.manifest().processes.into_iter().filter(|process| process.coverage.inline.is_some()).count();
    assert!(patched > 1, "{patched} processes");
}

#[test]
fn a_program_without_a_driver_runs_as_it_does() {
    let scratch = Scratch::new();
    let run = scratch.target("sh").args(["-c", "echo out; echo err >&2; exit 7"]).options(["--hook", "inline"]).same();
    assert_eq!(run.status.code(), Some(7));
    assert_eq!(run.read().root().coverage.inline, None);
}
