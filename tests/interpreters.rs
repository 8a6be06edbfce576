//! Python where it is not a program of its own with one interpreter: inside another program, several at once, ending.
//!
//! The stacks are read from the interpreter's memory, so each place where that memory may not be what it usually is must be
//! as harmless as the others, and no stack may say what was not so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::stacks::pythons;
use crate::util::{Scratch, Trace, lacks, library, needs, program_with, repository};

/// Language and functions of a stack, innermost first.
type Said = (String, Vec<String>);

/// What each wait's stack says, in the order of the waits; none where it has none.
fn waits(trace: &Trace) -> Vec<Option<Said>> {
    let names = trace.names();
    let stacks = trace.stacks(|row| (row.text("language").to_owned(), row.text("function").to_owned()));
    let said =
        |id: i64| (stacks.innermost(id).0.clone(), stacks.of(id).map(|(_, function)| function.clone()).collect());
    let mut rows: Vec<(i64, Option<Said>)> = Vec::new();
    for row in trace.table("syncs").rows().filter(|row| names[&row.int("api_id")] == "cuStreamSynchronize") {
        rows.push((row.int("start_ns"), row.maybe_int("stack_id").map(said)));
    }
    rows.sort();
    rows.into_iter().map(|(_, said)| said).collect()
}

fn script(name: &str) -> PathBuf {
    repository().join("tests/programs").join(name)
}

#[test]
fn waits_in_subinterpreters_have_a_stack_that_is_so_or_none() {
    for python in pythons() {
        let scratch = Scratch::new();
        let target = scratch.target(&python).arg(script("subinterpreters.py")).with_instant_driver();
        let run = target.options(["--stacks-over", "0"]).same().expect(0);
        let waits = waits(&run.read());
        assert_eq!(waits.len().to_string(), run.text().trim(), "{}", python.display());
        let own = ["in_subinterpreter", "<module>", "run", "main"];
        let threading =
            ["Thread.run", "Thread._bootstrap", "Thread._bootstrap_inner", "_bootstrap", "_bootstrap_inner"];
        for (language, functions) in waits.iter().flatten().filter(|(language, _)| language == "python") {
            let known = functions.iter().all(|f| own.contains(&f.as_str()) || threading.contains(&f.as_str()));
            assert!(known, "{}: {language} {functions:?}", python.display());
        }
        let innermost: BTreeSet<_> =
            waits[..waits.len() - 1].iter().map(|w| w.as_ref().map(|s| s.1[0].as_str())).collect();
        println!("{}: {innermost:?}", python.display());
        // Python 3.12 and newer answer with the interpreter that runs; before, with the one that began.
        let newer = waits.len() > 100;
        assert!(!newer || innermost == BTreeSet::from([Some("in_subinterpreter")]), "{innermost:?}");
    }
}

#[test]
fn a_program_that_embeds_python_has_pythons_stacks_in_it_and_native_ones_around_it() {
    let folder = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let found = std::fs::read_dir(folder).expect("the system's libraries").flatten().find(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.starts_with("libpython3.") && name.ends_with(".so.1.0")
    });
    let Some(found) = found else {
        lacks("a libpython to embed (libpython3.11)");
        return;
    };
    let scratch = Scratch::new();
    let program = program_with("embeds_python", "program", &["-O1", "-ldl"]);
    let target = scratch.target(program).arg(found.path()).with_instant_driver();
    let run = target.options(["--stacks-over", "0"]).same().expect(0);
    assert_eq!(run.text(), "done\n");
    let innermost: Vec<_> = waits(&run.read()).into_iter().map(|w| w.map(|(l, f)| (l, f[0].clone()))).collect();
    let stack = |language: &str, function: &str| Some((language.to_owned(), function.to_owned()));
    let (native, python) = (stack("native", "wait_in_c"), stack("python", "in_python"));
    assert_eq!(innermost, [native.clone(), python.clone(), native.clone(), python, native]);
}

#[test]
fn threads_that_end_and_an_interpreter_that_ends_are_not_disturbed() {
    if !needs(&["python3"]) {
        return;
    }
    for round in 0..3 {
        for python in pythons() {
            let scratch = Scratch::new();
            let target = scratch.target(&python).arg(script("endings.py")).arg(library("late_waits"));
            let run = target.with_instant_driver().options(["--stacks-over", "0"]).traced().expect(0);
            assert_eq!(run.text(), "20\n", "round {round} of {}: {}", python.display(), run.stderr);
            // A thread's last wait comes when Python has forgotten it.
            let waits = waits(&run.read());
            let late = waits.iter().flatten().filter(|(_, functions)| functions[0] == "wait_at_the_end");
            assert!(late.clone().all(|(language, _)| language == "native"));
            assert_eq!(late.count(), 20, "{}", python.display());
        }
    }
}
