//! Programs built with a sanitizer run, and report what is wrong with them, as they do alone: as the command itself,
//! which is started without us, and as children, into which the loader puts the shim.

use crate::util::{Finished, Scratch, count, needs, program_by};

/// Compiler, flag, and the fault that this sanitizer reports.
const BUILDS: [(&str, &str, &str); 9] = [
    ("gcc", "address", "overflow"),
    ("gcc", "leak", "leak"),
    ("gcc", "thread", "race"),
    ("gcc", "undefined", "undefined"),
    ("clang", "address", "overflow"),
    ("clang", "leak", "leak"),
    ("clang", "memory", "uninitialised"),
    ("clang", "thread", "race"),
    ("clang", "undefined", "undefined"),
];

fn build(compiler: &str, sanitizer: &str) -> String {
    let flags = ["-fPIE", "-pie", &format!("-fsanitize={sanitizer}")];
    program_by(compiler, "sanitized", sanitizer, &flags).display().to_string()
}

/// A report without what differs from run to run: addresses, pids, and how far a thread has got.
fn without_numbers(report: &str) -> String {
    let mut text = String::new();
    let mut rest = report;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        let hexadecimal = number.strip_prefix("0x").unwrap_or(number);
        text += before;
        text.push('#');
        rest = hexadecimal.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    // Whether a thread that raced has ended by the time of the report is chance.
    (text + rest).replace(", finished)", ", running)")
}

/// Runs it in a traced shell, and in a plain one.
#[track_caller]
fn as_a_child(scratch: &Scratch, program: &str, fault: &str) -> Finished {
    let target = scratch.shell(&format!("{program} {fault}; echo ended with $?")).with_odd_driver();
    let (plain, traced) = (target.plain(), target.traced());
    assert_eq!(plain.text(), traced.text(), "{program} {fault}: {}", traced.stderr);
    assert_eq!(without_numbers(&plain.stderr), without_numbers(&traced.own_stderr()), "{program} {fault}");
    traced
}

#[test]
fn a_sound_program_with_a_sanitizer_runs_as_it_does_alone() {
    let scratch = Scratch::new();
    for (compiler, sanitizer, _) in BUILDS {
        if !needs(&[compiler]) {
            continue;
        }
        let program = build(compiler, sanitizer);
        let direct = scratch.target(&program).arg("sound").with_odd_driver();
        assert_eq!(direct.plain().expect(7).text(), direct.traced().expect(7).text());
        let run = as_a_child(&scratch, &program, "sound");
        assert!(run.text().ends_with("ended with 7\n"), "{program}: {}", run.text());
        let process = run.read().manifest().processes.iter().find(|p| p.exe.contains("sanitized")).cloned();
        let process = process.expect("the child is in the trace");
        assert_eq!(count(&process, "launch").recorded, 16_000, "{program}");
        // Reports name the callers of malloc, so that we are none; this one leaves malloc alone.
        let recorded = count(&process, "host_alloc").recorded;
        assert_eq!(recorded != 0, sanitizer == "undefined", "{program}: {recorded}");
    }
}

#[test]
fn what_a_sanitizer_reports_is_what_it_reports_of_the_program_alone() {
    let scratch = Scratch::new();
    for (compiler, sanitizer, fault) in BUILDS {
        if needs(&[compiler]) {
            let run = as_a_child(&scratch, &build(compiler, sanitizer), fault);
            let report = run.own_stderr();
            assert!(
                report.contains("anitizer") || report.contains("runtime error"),
                "{compiler} {sanitizer}: {report}"
            );
        }
    }
}
