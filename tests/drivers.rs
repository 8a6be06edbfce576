//! Drivers that are older or newer than the lists, closed, opened again or replaced: the program runs as it does without
//! us, and the trace says what it misses.

use std::fs;
use std::path::PathBuf;

use crate::util::{Driver, Scratch, driver_folder, library, linked_with, program, program_with};

/// A driver of CUDA 10.2 in a folder of its own, under the name that drivers have.
fn old_driver(scratch: &Scratch, folder: &str) -> PathBuf {
    let folder = scratch.path().join(folder);
    fs::create_dir_all(&folder).expect("the folder is writable");
    let file = folder.join("libcuda.so.1");
    fs::copy(library("old_driver"), &file).expect("the folder is writable");
    file
}

#[test]
fn a_driver_older_than_any_look_up_by_version_is_traced_and_gets_no_functions_that_it_lacks() {
    let scratch = Scratch::new();
    let run = scratch.target(program("drivers")).arg(old_driver(&scratch, "old")).same().expect(0);
    assert!(run.text().contains("cuGetProcAddress_v2: dlsym no"), "{}", run.text());
    assert!(run.text().contains("version 10020, results 0 0 0 0 0 0 0 0 0 0,"), "{}", run.text());
    let trace = run.read();
    let processes = trace.table("processes");
    let process = processes.rows().next().expect("the process");
    assert_eq!((process.maybe_int("driver_version"), process.maybe_int("runtime_version")), (Some(10020), None));
    let calls = trace.calls();
    assert_eq!(
        ["cuInit", "cuLaunchKernel", "cuCtxSynchronize", "cuMemFree_v2"].map(|name| calls.get(name)),
        [Some(&1); 4]
    );
    // Neither a context nor a name could be asked for, and nothing is made up.
    assert!(trace.table("launches").rows().all(|launch| launch.int("context") == 0));
    trace.assert_balanced();
}

#[test]
fn a_driver_that_says_that_it_is_older_than_11_0_is_noted_and_one_of_today_is_not() {
    let scratch = Scratch::new();
    let file = driver_folder(Driver::Plain).join("libcuda.so.1");
    for (version, noted) in [("10020", true), ("11000", false), ("13000", false)] {
        let run = scratch.target(program("drivers")).arg(&file).env("FAKE_CUDA_VERSION", version).same().expect(0);
        assert!(run.text().contains(&format!("version {version}, results 0 0")), "{}", run.text());
        let trace = run.read();
        let notes = trace.root().notes;
        assert_eq!(notes.iter().any(|note| note.contains("older than this gputrace knows")), noted, "{notes:?}");
        assert_eq!(trace.calls().get("cuLaunchKernel"), Some(&1));
        trace.assert_balanced();
    }
}

#[test]
fn functions_of_a_driver_newer_than_the_lists_pass_by_and_are_named() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        let file = driver_folder(driver).join("libcuda.so.1");
        let target = scratch.target(program("drivers")).arg(file).env("FAKE_CUDA_VERSION", "14000");
        let run = target.same().expect(0);
        assert!(run.text().contains("cuNextYearsFunction: dlsym yes, cuGetProcAddress yes"), "{}", run.text());
        assert!(run.text().contains("next year's function 801"), "{}", run.text());
        let trace = run.read();
        let process = trace.root();
        let processes = trace.table("processes");
        let row = processes.rows().find(|row| row.int("process_id") == process.process_id).expect("its row");
        assert_eq!(row.maybe_text("uncovered"), Some("cuNextYearsFunction"));
        let uncovered = &process.coverage.uncovered;
        let named: Vec<_> = uncovered.iter().map(|symbol| (symbol.symbol.as_str(), symbol.version)).collect();
        assert_eq!(named, [("cuNextYearsFunction", 14000)]);
        let newer = |note: &String| note.starts_with("the driver is of CUDA 14.0, newer than");
        assert!(process.notes.iter().any(newer), "{:?}", process.notes);
    }
}

#[test]
fn a_function_that_only_dlsym_was_asked_for_is_named_too() {
    let scratch = Scratch::new();
    let file = driver_folder(Driver::Symbolic).join("libcuda.so.1");
    // At the version of today cuGetProcAddress does not hand it out.
    let run = scratch.target(program("drivers")).arg(file).env("FAKE_CUDA_VERSION", "13000").same().expect(0);
    assert!(run.text().contains("cuNextYearsFunction: dlsym yes, cuGetProcAddress no"), "{}", run.text());
    let uncovered = run.read().root().coverage.uncovered;
    let named: Vec<_> = uncovered.iter().map(|symbol| (symbol.symbol.as_str(), symbol.version)).collect();
    assert_eq!(named, [("cuNextYearsFunction", 0)]);
}

#[test]
fn a_driver_that_is_closed_and_opened_again_is_traced_each_time() {
    let scratch = Scratch::new();
    let file = old_driver(&scratch, "old");
    let run = scratch.target(program("drivers")).args([&file, &file, &file]).same().expect(0);
    let trace = run.read();
    assert_eq!(trace.calls().get("cuLaunchKernel"), Some(&3));
    assert_eq!(trace.root().coverage.uncovered, []);
    trace.assert_balanced();
}

#[test]
fn a_driver_that_is_replaced_while_the_program_runs_works_and_is_named_as_not_covered() {
    let scratch = Scratch::new();
    let (first, second) = (old_driver(&scratch, "first"), old_driver(&scratch, "second"));
    let run = scratch.target(program("drivers")).args([&first, &second]).same().expect(0);
    assert_eq!(run.text().matches("version 10020, results 0 0 0 0 0 0 0 0 0 0,").count(), 2);
    let trace = run.read();
    assert_eq!(trace.calls().get("cuLaunchKernel"), Some(&1));
    let notes = trace.root().notes;
    assert!(notes.iter().any(|note| note.contains("second copy of the driver")), "{notes:?}");
    trace.assert_balanced();
}

#[test]
fn a_first_call_takes_no_lock_of_the_loader_and_leaves_its_errors() {
    let scratch = Scratch::new();
    let folder = driver_folder(Driver::Plain);
    let flags = linked_with(&folder, &["-DLIBRARY", "-shared", "-fPIC", "-lpthread"]);
    let library = program_with("first_call", "library.so", &flags);
    let program = program_with("first_call", "program", &linked_with(&folder, &["-ldl"]));
    let run = scratch.target(&program).with_instant_driver().same().expect(0);
    assert_eq!(run.text(), "the error is there\n");
    // The thread that opens the library has the lock, and waits for the one that calls.
    let run = scratch.target(&program).arg(&library).with_instant_driver().same().expect(0);
    assert_eq!(run.text(), "opened\n");
}
