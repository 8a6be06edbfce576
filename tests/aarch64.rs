//! The shim on aarch64, by an emulator: it is loaded into that processor's programs, and this machine's collector
//! drains their rings.
//!
//! `ci/aarch64` builds the shim and the simulated driver and says where they are: GPUTRACE_AARCH64. The emulator runs no
//! second program by exec, and it does not wipe memory in forked children; what `_Fork` and raw clone need is proven
//! natively.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gputrace_collectors::manifest::Inline;

use crate::inherited::assert_launches;
use crate::routes::{BY_LOOKUP, assert_route, counted};
use crate::stacks::native;
use crate::util::{Scratch, Target, count, lacks, linked_with, needs, program_by};

const COMPILER: &str = "aarch64-linux-gnu-gcc";
const SYSTEM: &str = "/usr/aarch64-linux-gnu";

/// Where the libraries for aarch64 are. None where they are not built, which is an error in CI.
fn libraries() -> Option<PathBuf> {
    if !needs(&[COMPILER, "qemu-aarch64"]) {
        return None;
    }
    let Some(folder) = std::env::var_os("GPUTRACE_AARCH64").map(PathBuf::from) else {
        lacks("the shim for aarch64 (GPUTRACE_AARCH64)");
        return None;
    };
    assert!(folder.join("libgputrace_shim.so").is_file(), "GPUTRACE_AARCH64={} holds no shim", folder.display());
    Some(folder)
}

/// A program of `tests/programs` with a driver, emulated. Without gputrace around it its shim finds no session.
fn emulated<'a>(scratch: &'a Scratch, libraries: &Path, name: &str, driver: &Path) -> Target<'a> {
    emulated_with(scratch, libraries, name, driver, &[])
}

/// The same with more options of the emulator.
fn emulated_with<'a>(scratch: &'a Scratch, libraries: &Path, name: &str, driver: &Path, more: &[&str]) -> Target<'a> {
    emulated_program(scratch, libraries, &program_by(COMPILER, name, "", &[]), driver, more)
}

/// A folder for LD_LIBRARY_PATH with this driver.
fn folder_of(scratch: &Scratch, driver: &Path) -> PathBuf {
    let folder = scratch.path().join("driver");
    let _ = std::fs::create_dir(&folder);
    let _ = std::fs::remove_file(folder.join("libcuda.so.1"));
    symlink(driver, folder.join("libcuda.so.1")).expect("a link");
    folder
}

/// The same of a program that is made already.
fn emulated_program<'a>(
    scratch: &'a Scratch,
    libraries: &Path,
    program: &Path,
    driver: &Path,
    more: &[&str],
) -> Target<'a> {
    let folder = folder_of(scratch, driver);
    let preload = format!("LD_PRELOAD={}", libraries.join("libgputrace_shim.so").display());
    // The emulator itself is this machine's program; only what it emulates is to be traced.
    let target = scratch.target("env").args([
        "-u",
        "LD_PRELOAD",
        "-u",
        "LD_AUDIT",
        "qemu-aarch64",
        "-L",
        SYSTEM,
        "-E",
        &preload,
    ]);
    let target = target.args(more);
    // The emulated counter is another than this machine's.
    target.arg(program).env("LD_LIBRARY_PATH", folder).env("GPUTRACE_CLOCK", "monotonic")
}

fn odd_driver() -> PathBuf {
    program_by(COMPILER, "odd_driver", "library", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"])
}

#[test]
fn each_lookup_sees_each_call_once() {
    let Some(libraries) = libraries() else { return };
    let scratch = Scratch::new();
    let driver = libraries.join("libfake_cuda.so");
    for (route, reached_by) in BY_LOOKUP.into_iter().filter(|(route, _)| *route != "python") {
        let (run, trace) = counted(&scratch, emulated(&scratch, &libraries, "cuda_routes", &driver).arg(route));
        assert_route(&run, &trace, route, reached_by);
    }
}

#[test]
fn inline_hooks_see_what_goes_past_the_symbols_and_what_does_not_once() {
    let Some(libraries) = libraries() else { return };
    let scratch = Scratch::new();
    let driver = libraries.join("libfake_cuda.so");
    let audit = format!("LD_AUDIT={}", libraries.join("libgputrace_inline.so").display());
    for (route, least) in [("walk", 1), ("dlopen", 3), ("procaddr", 3)] {
        let target = emulated_with(&scratch, &libraries, "cuda_routes", &driver, &["-E", &audit]).arg(route);
        let run = target.options(["--hook", "inline"]).same();
        assert!(run.text().contains("launches=3 copies=2 sum=522240 result=0"), "{}", run.text());
        let trace = run.read();
        // Functions of which the first instructions cannot be moved are seen by their symbols only.
        let launches = trace.table("launches").len();
        let inline = trace.root().coverage.inline.expect("the driver was looked at");
        assert!(
            launches <= 3 && (launches >= least || left(&inline, "cuLaunchKernel")),
            "{route}: {launches}, {inline:?}"
        );
        assert!(inline.patched > 100, "{route}: {inline:?}");
        trace.assert_balanced();
    }
}

fn left(inline: &Inline, function: &str) -> bool {
    inline.left.iter().any(|left| left.function == function)
}

#[test]
fn libraries_are_found_through_the_callers_own_run_path() {
    let Some(libraries) = libraries() else { return };
    let scratch = Scratch::new();
    let hidden = scratch.path().join("hidden");
    std::fs::create_dir(&hidden).expect("a folder");
    let needed = hidden.join("libneeded.so");
    let inner = ["-DINNER", "-shared", "-fPIC", "-Wl,-soname,libneeded.so"];
    std::fs::copy(program_by(COMPILER, "lookup", "inner", &inner), &needed).expect("a copy");
    std::fs::copy(&needed, hidden.join("libinner.so")).expect("a copy");
    let run_path = format!("-Wl,-rpath,{}", hidden.display());
    let flags =
        ["-DPLUGIN", "-shared", "-fPIC", &run_path, "-Wl,--no-as-needed", needed.to_str().expect("a plain path")];
    let plugin = program_by(COMPILER, "lookup", &format!("plugin-{}", std::process::id()), &flags);
    let run = emulated(&scratch, &libraries, "lookup", &odd_driver()).arg(&plugin).same();
    assert!(run.text().contains("from the plugin: inner, next inner's, default found"), "{}", run.text());
    std::fs::remove_file(plugin).expect("our own file");
}

#[test]
fn threads_that_call_all_at_once_are_counted_exactly() {
    let Some(libraries) = libraries() else { return };
    let scratch = Scratch::new();
    let driver = libraries.join("libfake_cuda.so");
    let target = emulated(&scratch, &libraries, "cuda_threads", &driver).args(["100", "8"]);
    counted(&scratch, target.env("FAKE_CUDA_INSTANT", "1"));
    // One after the other, each with its own rows; thread-local memory begins empty.
    let run = emulated(&scratch, &libraries, "threads", &odd_driver()).args(["200", "10"]).same();
    let trace = run.read();
    trace.assert_balanced();
    assert_eq!(count(&trace.root(), "launch").recorded, 4_000);
}

#[test]
fn calls_may_be_left_by_jumps_signals_and_cancellation() {
    let Some(libraries) = libraries() else { return };
    let scratch = Scratch::new();
    for (way, left) in [("longjmp", 100), ("siglongjmp", 20), ("handler", 0), ("cancel", 20), ("cancel_async", 20)] {
        let run = emulated(&scratch, &libraries, "escape", &odd_driver()).arg(way).same();
        let trace = run.read();
        trace.assert_balanced();
        assert_eq!(count(&trace.root(), "launch").recorded, 100, "{way}");
        assert_eq!(count(&trace.root(), "sync").abandoned, left, "{way}");
    }
}

#[test]
fn forked_children_have_rows_of_their_own() {
    let Some(libraries) = libraries() else { return };
    let scratch = Scratch::new();
    for (way, processes) in [("fork", 5), ("threads", 2)] {
        let run = emulated(&scratch, &libraries, "forks", &odd_driver()).arg(way).traced().expect(0);
        assert_launches(&run, processes);
    }
}

#[test]
fn allocations_and_errno_are_the_programs_own() {
    let Some(libraries) = libraries() else { return };
    let scratch = Scratch::new();
    for mode in ["off", "sample=1", "full"] {
        let driver = libraries.join("libfake_cuda.so");
        emulated(&scratch, &libraries, "errnos", &driver).options(["--malloc", mode]).same();
    }
    let run = emulated(&scratch, &libraries, "mallocs", &odd_driver()).args(["known", "50"]);
    let trace = run.options(["--malloc", "full"]).same().read();
    trace.assert_balanced();
    let blocks = trace.table("host_memory");
    let ours = blocks.rows().filter(|row| row.text("action") == "alloc" && row.int("bytes") == 70_001);
    assert_eq!(ours.count(), 50);
}

#[test]
fn the_functions_that_led_to_a_wait_are_found_where_return_addresses_are_signed_too() {
    let Some(libraries) = libraries() else { return };
    let scratch = Scratch::new();
    let driver = libraries.join("libfake_cuda.so");
    let folder = folder_of(&scratch, &driver).display().to_string();
    // As most distributions have it for their libraries. The emulated processor signs.
    for protection in ["none", "standard"] {
        let flags = ["-O2", "-fomit-frame-pointer", "-g", &format!("-mbranch-protection={protection}")];
        let own = std::process::id();
        let library = [&flags[..], &["-DLIBRARY", "-shared", "-fPIC"]].concat();
        let library = program_by(COMPILER, "native_stacks", &format!("{protection}-{own}.so"), &library);
        let linked = linked_with(Path::new(&folder), &[&library.display().to_string(), "-lpthread"]);
        let linked: Vec<&str> = flags.into_iter().chain(linked.iter().map(String::as_str)).collect();
        let program = program_by(COMPILER, "native_stacks", &format!("{protection}-{own}"), &linked);
        let target =
            emulated_program(&scratch, &libraries, &program, &driver, &[]).args(["wait", "thread", "callback"]);
        let run = target.options(["--stacks-over", "0"]).same().expect(0);
        let waits = native(&run);
        let with = |more: &[&str]| {
            ["wait_here", "middle", "outer"].iter().chain(more).map(|name| (*name).to_owned()).collect()
        };
        let wanted: [Vec<String>; 3] = [with(&["main"]), with(&["work"]), with(&["in_library", "main"])];
        assert_eq!(waits, wanted, "{protection}");
        for file in [library, program] {
            std::fs::remove_file(file).expect("our own file");
        }
    }
}
