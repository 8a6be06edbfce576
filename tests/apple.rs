//! The shim for macOS, executed: its machine code for both processors, in programs of Linux whose dynamic loader is
//! `tests/fakes/macho`. This machine's collector reads its ring.
//!
//! What is the real loader's own doing, and the real libSystem's, only a Mac can show.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use gputrace_collectors::manifest::Process;

use crate::util::{Finished, Scratch, Target, apple_targets, count, imports_of_apple, repository};

/// Tries something for both processors.
fn each(name: &str, attempt: impl Fn(&str, &dyn for<'a> Fn(&'a Scratch) -> Target<'a>)) {
    let Some((dylibs, processors)) = apple_targets() else { return };
    for processor in processors {
        processor.tries(|| attempt(&format!("{processor:?}"), &|scratch| processor.target(scratch, &dylibs, name)));
    }
}

/// The processes of a trace that the shim for macOS told of: programs that ran under `env`.
fn guests(run: &Finished) -> Vec<Process> {
    let processes = run.read().manifest().processes;
    processes.into_iter().filter(|process| process.exe.contains("guest.c")).collect()
}

/// How often each function gave a block of each of the sizes that nobody else uses.
fn allocations(run: &Finished, process: &Process) -> BTreeMap<(String, i64), u64> {
    let trace = run.read();
    let (names, table) = (trace.names(), trace.table("host_memory"));
    let own = table.rows().filter(|row| row.int("process_id") == process.process_id && row.text("action") == "alloc");
    let mut all = BTreeMap::new();
    for row in own.filter(|row| (70_000..70_100).contains(&row.int("bytes"))) {
        *all.entry((names[&row.int("api_id")].clone(), row.int("bytes"))).or_default() += 1;
    }
    all
}

fn family(times: u64) -> BTreeMap<(String, i64), u64> {
    let each = [
        ("malloc", 70_001),
        ("calloc", 70_021),
        ("realloc", 70_003),
        ("realloc", 70_004),
        ("aligned_alloc", 70_016),
        ("posix_memalign", 70_007),
        ("valloc", 70_005),
        ("malloc", 70_006),
        ("reallocf", 70_008),
        ("malloc", 70_009),
    ];
    each.into_iter().map(|(function, bytes)| ((function.to_owned(), bytes), times)).collect()
}

#[test]
fn ci_does_not_pass_without_the_libraries_of_macos_unless_told_to() {
    let scratch = Scratch::new();
    let rustup = scratch.path().join("rustup");
    fs::write(&rustup, "#!/bin/sh\nexit 1\n").expect("a rustup that is offline");
    fs::set_permissions(&rustup, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let path = format!("{}:{}", scratch.path().display(), std::env::var("PATH").expect("a PATH"));
    let ends = |variables: &[(&str, &str)]| {
        let mut script = Command::new(repository().join("ci/apple/run"));
        script.arg(scratch.path()).env("PATH", &path).env_remove("CI").env_remove("GPUTRACE_WITHOUT_APPLE");
        let output = script.envs(variables.iter().copied()).output().expect("bash runs");
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).contains("GPUTRACE_WITHOUT_APPLE"))
    };
    assert_eq!(ends(&[]), (Some(0), false));
    assert_eq!(ends(&[("CI", "true")]), (Some(1), true));
    assert_eq!(ends(&[("CI", "true"), ("GPUTRACE_WITHOUT_APPLE", "1")]), (Some(0), false));
}

#[test]
fn every_import_has_a_function_of_this_system_behind_it() {
    let known = fs::read_to_string(repository().join("tests/fakes/macho/imports.c")).expect("the loader's list");
    let is_known = |symbol: &str| {
        // What the loader binds at once needs no binder.
        let name = symbol.strip_prefix('_').unwrap_or_default();
        let forms = [format!("\"{symbol}\""), format!("SAME({name})"), format!("THUNK({name})")];
        symbol == "dyld_stub_binder" || forms.iter().any(|form| known.contains(form))
    };
    let missing: Vec<_> = imports_of_apple().into_iter().filter(|symbol| !is_known(symbol)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_allocation_is_recorded_with_its_function_and_size() {
    each("guest.c", |who, guest| {
        let scratch = Scratch::new();
        let run = guest(&scratch).args(["allocate", "50"]).options(["--malloc", "full"]).same();
        run.read().assert_balanced();
        let [process] = &guests(&run)[..] else { panic!("{who}: {:?}", run.read().manifest().processes) };
        assert_eq!(allocations(&run, process), family(50), "{who}");
    });
}

#[test]
fn nothing_is_recorded_where_nobody_asked_for_it() {
    each("guest.c", |who, guest| {
        let scratch = Scratch::new();
        let run = guest(&scratch).args(["allocate", "50"]).options(["--malloc", "off"]).same();
        let [process] = &guests(&run)[..] else { panic!("{who}: {:?}", run.read().manifest().processes) };
        assert_eq!(count(process, "host_alloc").seen, 0, "{who}");
    });
}

#[test]
fn programs_end_as_they_do_alone() {
    each("guest.c", |who, guest| {
        for way in ["exit", "_exit", "_Exit", "return"] {
            let scratch = Scratch::new();
            let run = guest(&scratch).args([way, "7"]).same().expect(7);
            let [process] = &guests(&run)[..] else { panic!("{who}: {way}") };
            assert!(process.balanced && !process.running, "{who}: {way}: {process:?}");
        }
    });
}

#[test]
fn children_have_segments_of_their_own() {
    each("guest.c", |who, guest| {
        let scratch = Scratch::new();
        let run = guest(&scratch).args(["fork", "20"]).options(["--malloc", "full"]).same();
        run.read().assert_balanced();
        let mut counts: Vec<_> = guests(&run).iter().map(|process| allocations(&run, process)).collect();
        counts.sort_by_key(|all| all.values().sum::<u64>());
        assert_eq!(counts, [family(20), family(21), family(22)], "{who}");
    });
}

#[test]
fn children_with_an_empty_environment_are_traced() {
    let Some((dylibs, [native, _])) = apple_targets() else { return };
    // The emulator starts no programs for its own processor.
    let scratch = Scratch::new();
    for way in ["bare", "titled"] {
        // A user may have set variables that begin like ours.
        let guest = native.target(&scratch, &dylibs, "guest.c");
        let names: Vec<String> = (0..20).map(|n| format!("GPUTRACE_OF_THE_USER_{n}")).collect();
        let guest = names.iter().fold(guest, |guest, name| guest.env(name, "1"));
        let run = guest.args([way, "20"]).options(["--malloc", "full"]).same().expect(0);
        let mut counts: Vec<_> = guests(&run).iter().map(|process| allocations(&run, process)).collect();
        counts.sort_by_key(|all| all.values().sum::<u64>());
        assert_eq!(counts[counts.len() - 4..], [family(20), family(21), family(22), family(23)], "{way}");
    }
}

#[test]
fn threads_are_recorded_until_their_last_destructor() {
    each("guest.c", |who, guest| {
        let scratch = Scratch::new();
        let run = guest(&scratch).args(["threads", "200"]).options(["--malloc", "full"]).same();
        run.read().assert_balanced();
        let [process] = &guests(&run)[..] else { panic!("{who}: {:?}", run.read().manifest().processes) };
        let all = allocations(&run, process);
        let of = |bytes| all.get(&("malloc".to_owned(), bytes)).copied().unwrap_or_default();
        assert_eq!((of(70_001), of(70_002)), (8 * 200, 8 * 3), "{who}");
    });
}

#[test]
fn errno_is_the_programs_own() {
    each("guest.c", |_, guest| {
        for mode in ["off", "sample=1", "full"] {
            let scratch = Scratch::new();
            let run = guest(&scratch).arg("errno").options(["--malloc", mode]).same();
            assert_eq!(run.text(), "77 (nil) 12 78\n");
        }
    });
}

#[test]
fn a_limit_on_files_leaves_the_program_as_it_is() {
    each("guest.c", |who, guest| {
        let scratch = Scratch::new();
        let target = guest(&scratch).args(["allocate", "5"]);
        let limited = target.through(&["sh", "-c", "ulimit -f 64; exec \"$@\"", "sh"]);
        let run = limited.traced().expect(0);
        assert_eq!(run.text(), "done\n", "{who}");
        assert!(run.stderr.contains("RLIMIT_FSIZE leaves no room"), "{who}: {}", run.stderr);
    });
}

#[test]
fn a_dylib_for_both_processors_is_one_for_each() {
    let Some((dylibs, processors)) = apple_targets() else { return };
    let universal = dylibs.join("libgputrace_shim.dylib");
    for processor in processors {
        let scratch = Scratch::new();
        let target = processor.target_with(&scratch, &universal, "guest.c").args(["allocate", "5"]);
        let run = target.options(["--malloc", "full"]).same();
        let [process] = &guests(&run)[..] else { panic!("{processor:?}") };
        assert_eq!(allocations(&run, process), family(5), "{processor:?}");
    }
}

#[test]
fn without_a_session_nothing_is_made() {
    each("guest.c", |who, guest| {
        let scratch = Scratch::new();
        let run = guest(&scratch).args(["allocate", "5"]).plain().expect(0);
        assert_eq!((run.text().as_str(), run.stderr.as_str()), ("done\n", ""), "{who}");
        assert!(scratch.sessions().is_empty(), "{who}");
    });
}
