//! Each way by which programs reach the driver: every call is seen, once, and the manifest says how it was reached.

use std::collections::BTreeSet;

use gputrace_collectors::manifest::Process;

use crate::util::{
    Driver, Finished, Scratch, Target, Trace, driver_folder, hooked_functions, library, linked_with, needs, program,
    program_with, test_hook, truth,
};

/// Runs with a truth file; asserts that the trace counts as the driver did, and nothing was lost.
#[track_caller]
pub(crate) fn counted(scratch: &Scratch, target: Target<'_>) -> (Finished, Trace) {
    let file = scratch.path().join("truth.json");
    let _ = std::fs::remove_file(&file);
    let run = target.env("FAKE_CUDA_TRUTH", &file).traced().expect(0);
    let trace = run.read();
    trace.assert_counts(&truth(&file));
    trace.assert_balanced();
    (run, trace)
}

#[track_caller]
fn routes_of(process: &Process, function: &str) -> Vec<String> {
    let hooks = &process.coverage.hooks;
    let hook = hooks.iter().find(|hook| hook.name == function).unwrap_or_else(|| panic!("no {function} in {hooks:?}"));
    hook.routes.clone()
}

/// What `cuda_routes` does by every route.
#[track_caller]
pub(crate) fn assert_route(run: &Finished, trace: &Trace, route: &str, reached_by: &str) {
    assert_eq!(
        run.text().lines().next(),
        Some(format!("route={route} launches=3 copies=2 sum=522240 result=0").as_str())
    );
    let names = trace.names();
    let launches = trace.table("launches");
    assert_eq!(launches.len(), 3);
    for launch in launches.rows() {
        assert_eq!(names[&launch.int("name_id")], "spin_us_20");
        let shape = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes", "result"];
        assert_eq!(shape.map(|column| launch.int(column)), [4, 2, 1, 128, 1, 1, 256, 0]);
    }
    let mut routes = routes_of(&trace.root(), "cuLaunchKernel");
    // Where the function itself is patched, how its symbol was found is told only of look-ups.
    if reached_by != "inline" && test_hook().is_some_and(|hook| hook == "inline") {
        // A function that another library defines too is left to it.
        routes.pop_if(|route| route == "inline");
        let linked = reached_by == "export" && routes.is_empty();
        routes.extend(linked.then(|| "export".to_owned()));
    }
    assert_eq!(routes, [reached_by]);
}

/// The routes of `cuda_routes` other than linking, and how a hook says that it was reached by them.
pub(crate) const BY_LOOKUP: [(&str, &str); 11] = [
    ("dlopen", "dlsym"),
    ("dlopen_local", "dlsym"),
    ("default", "dlsym"),
    // dlsym(RTLD_NEXT) of the program itself finds the first library after it: our export.
    ("next", "export"),
    ("dlvsym", "dlsym"),
    ("procaddr", "procaddr"),
    ("procaddr_self", "procaddr"),
    ("procaddr_v1", "procaddr"),
    ("deepbind_cuda", "dlsym"),
    ("dlmopen", "dlsym"),
    ("python", "procaddr"),
];

fn each_lookup_sees_each_call_once(driver: Driver) {
    let scratch = Scratch::new();
    for (route, reached_by) in BY_LOOKUP {
        let target = scratch.target(program("cuda_routes")).arg(route).with_driver(driver);
        let (run, trace) = counted(&scratch, target);
        assert_route(&run, &trace, route, reached_by);
    }
}

#[test]
fn each_lookup_sees_each_call_once_in_a_driver_bound_to_itself() {
    each_lookup_sees_each_call_once(Driver::Symbolic);
}

#[test]
fn each_lookup_sees_each_call_once_in_a_driver_that_finds_our_hooks() {
    each_lookup_sees_each_call_once(Driver::Plain);
}

#[test]
fn per_thread_variants_are_told_from_the_others() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        let target = scratch.target(program("cuda_routes")).arg("procaddr_ptsz").with_driver(driver);
        let (_, trace) = counted(&scratch, target);
        assert_eq!(trace.calls().get("cuLaunchKernel_ptsz"), Some(&3));
        // Their stream 0 is the thread's own.
        assert!(trace.table("launches").rows().all(|launch| launch.int("stream") == 2));
    }
}

#[test]
fn a_linked_program_is_seen_with_lazy_binding_and_without() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        for binding in ["lazy", "now"] {
            let flags = linked_with(&driver_folder(driver), &["-Wl,-z", &format!("-Wl,{binding}")]);
            let linked = program_with("cuda_routes", &format!("{driver:?}-{binding}"), &flags);
            let (run, trace) = counted(&scratch, scratch.target(linked).arg("link").with_driver(driver));
            assert_route(&run, &trace, "link", "export");
        }
    }
}

#[test]
fn a_preloaded_driver_is_seen() {
    let scratch = Scratch::new();
    let driver = driver_folder(Driver::Symbolic).join("libcuda.so.1");
    let target = scratch.target(program("cuda_routes")).arg("link").env("LD_PRELOAD", driver);
    let (run, trace) = counted(&scratch, target);
    assert_route(&run, &trace, "link", "export");
}

#[test]
fn pythons_ctypes_is_seen() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
import ctypes
cu = ctypes.CDLL("libcuda.so.1")
context, module, function, memory = (ctypes.c_void_p() for _ in range(4))
find = cu.cuGetProcAddress_v2
launch, status = ctypes.c_void_p(), ctypes.c_int()
assert cu.cuInit(0) == 0
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cu.cuCtxSetCurrent(context) == 0
assert cu.cuModuleLoadData(ctypes.byref(module), b"fakecuda:spin_us_20") == 0
assert cu.cuModuleGetFunction(ctypes.byref(function), module, b"spin_us_20") == 0
assert find(b"cuLaunchKernel", ctypes.byref(launch), 12000, ctypes.c_uint64(0), ctypes.byref(status)) == 0
by_lookup = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)(launch.value)
for call in cu.cuLaunchKernel, by_lookup:
    assert call(function, 4, 2, 1, 128, 1, 1, 256, None, None, None) == 0
assert cu.cuCtxSynchronize() == 0
print("launched 2")
"#;
    let target = scratch.target("python3").args(["-c", script]).with_driver(Driver::Symbolic);
    let (run, trace) = counted(&scratch, target);
    assert_eq!(run.text(), "launched 2\n");
    assert_eq!(trace.table("launches").len(), 2);
}

#[test]
fn a_client_that_works_as_cudas_runtime_does_is_seen() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        let target = scratch.target(program("cudart_like")).with_driver(driver);
        let (run, trace) = counted(&scratch, target.clone());
        assert_eq!(run.text(), target.plain().text());
        assert_eq!(trace.table("launches").len(), 6);
        assert!(trace.table("launches").rows().all(|launch| launch.maybe_int("name_id").is_some()));
    }
}

#[test]
fn tables_of_private_functions_are_listed() {
    let scratch = Scratch::new();
    let run = scratch.target(program("cudart_like")).with_driver(Driver::Symbolic).traced().expect(0);
    let coverage = run.read().root().coverage;
    let tables: Vec<_> = coverage.export_tables.iter().map(|table| (table.id.as_str(), table.found)).collect();
    let expected = [("6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", true), ("01020300-0000-0000-0000-000000000000", false)];
    assert_eq!(tables, expected);
    assert!(coverage.uncovered.is_empty(), "{:?}", coverage.uncovered);
}

/// A file with one X(name) per hooked function, for `cuda_zeros`.
fn symbols(scratch: &Scratch) -> String {
    let lines: String = hooked_functions().iter().map(|name| format!("X({name})\n")).collect();
    let file = scratch.file("symbols.h", lines);
    format!("-DSYMBOLS=\"{}\"", file.display())
}

/// Asserts that exactly the hooked functions were called, each once; `more` were called once more to prepare.
#[track_caller]
fn assert_each_once(trace: &Trace, more: &[&str]) {
    let expected = hooked_functions().into_iter().map(|name| (name.clone(), 1 + more.contains(&name.as_str()) as u64));
    let expected: BTreeSet<_> = expected.collect();
    let calls: BTreeSet<_> = trace.calls().into_iter().collect();
    let differ: Vec<_> = calls.symmetric_difference(&expected).collect();
    assert!(differ.is_empty(), "{differ:?}");
    trace.assert_balanced();
}

#[test]
fn each_hook_is_seen_once_by_each_look_up() {
    let scratch = Scratch::new();
    let zeros = program_with("cuda_zeros", "plain", &[symbols(&scratch)]);
    for driver in [Driver::Plain, Driver::Symbolic] {
        for route in ["dlsym", "default", "next"] {
            let target = scratch.target(&zeros).arg(route).with_driver(driver).env("FAKE_CUDA_INSTANT", "1");
            let (run, trace) = counted(&scratch, target);
            assert!(!run.text().contains("not reached"), "{}", run.text());
            assert_each_once(&trace, &["cuInit"]);
        }
    }
}

#[test]
fn each_hook_is_seen_once_in_a_linked_program() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        let mut flags = linked_with(&driver_folder(driver), &["-DLINK", "-Wno-builtin-declaration-mismatch"]);
        flags.push(symbols(&scratch));
        let zeros = program_with("cuda_zeros", &format!("{driver:?}"), &flags);
        let target = scratch.target(zeros).arg("link").with_driver(driver).env("FAKE_CUDA_INSTANT", "1");
        let (_, trace) = counted(&scratch, target);
        assert_each_once(&trace, &["cuInit"]);
    }
}

#[test]
fn each_hook_is_seen_once_by_dlvsym() {
    let scratch = Scratch::new();
    // No driver's symbols have versions; this stand-in's have, and its functions do nothing.
    let functions: String =
        hooked_functions().iter().map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
    let source = scratch.file("versioned.c", functions);
    let driver = scratch.path().join("libcuda.so.1");
    let flags = ["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-Wl,--default-symver", "-o"];
    let cc = std::process::Command::new("cc").args(flags).arg(&driver).arg(&source).status().expect("cc is installed");
    assert!(cc.success());
    let zeros = program_with("cuda_zeros", "plain", &[symbols(&scratch)]);
    let run = scratch.target(zeros).arg("dlvsym").env("LD_LIBRARY_PATH", scratch.path()).traced().expect(0);
    assert!(!run.text().contains("not reached"), "{}", run.text());
    let trace = run.read();
    assert_each_once(&trace, &["cuInit"]);
    assert_eq!(routes_of(&trace.root(), "cuMemAlloc_v2"), ["dlvsym"]);
}

#[test]
fn every_exported_function_gives_what_it_gives_untraced_and_each_hook_sees_it_once() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        for route in ["dlsym", "procaddr"] {
            let target = scratch.target(program("cuda_every")).arg(route).with_driver(driver);
            let target = target.env("FAKE_CUDA_VERSION", "13050");
            let (run, trace) = counted(&scratch, target.clone());
            assert_eq!(run.text(), target.plain().text());
            let calls = trace.calls();
            let missing: BTreeSet<_> =
                hooked_functions().into_iter().filter(|name| !calls.contains_key(name)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }
}

#[test]
fn another_interposer_of_dlsym_and_of_look_ups_stays_in_the_chain() {
    let scratch = Scratch::new();
    let quota = library("quota");
    for (route, reached_by) in [("dlopen", "dlsym"), ("procaddr", "procaddr"), ("default", "dlsym")] {
        for driver in [Driver::Plain, Driver::Symbolic] {
            let target = scratch.target(program("cuda_routes")).arg(route).with_driver(driver);
            let target = target.env("LD_PRELOAD", &quota);
            let (run, trace) = counted(&scratch, target.clone());
            assert_route(&run, &trace, route, reached_by);
            let said = run.text().lines().nth(1).map(str::to_owned);
            assert_eq!(
                said.as_deref().map(|line| line.starts_with("quota: 1 allocations, 3 launches")),
                Some(true),
                "{said:?}"
            );
            assert_eq!(run.text(), target.plain().text());
        }
    }
}

#[test]
fn a_library_that_binds_deeply_is_noted() {
    let scratch = Scratch::new();
    for (route, noted) in [("deepbind_cuda", true), ("dlopen", false)] {
        let run = scratch.target(program("cuda_routes")).arg(route).with_driver(Driver::Symbolic).traced().expect(0);
        let notes = run.read().root().notes;
        assert_eq!(notes.iter().any(|note| note.contains("RTLD_DEEPBIND")), noted, "{notes:?}");
    }
}

#[test]
fn the_drivers_calls_of_its_own_functions_are_no_calls_of_the_program() {
    let scratch = Scratch::new();
    let run = scratch.target(program("escape")).arg("nested").with_odd_driver().traced().expect(0);
    let trace = run.read();
    // Five launches inside each of 20 synchronisations, then 100 of the program's own.
    assert_eq!(trace.calls().get("cuLaunchKernel"), Some(&100));
    assert_eq!(trace.calls().get("cuCtxSynchronize"), Some(&21));
    assert_eq!(trace.root().nested, 100);
    trace.assert_balanced();
}

#[test]
fn cuda_does_not_appear_where_there_is_none() {
    let scratch = Scratch::new();
    let run = scratch.target(program("dl_errors")).traced().expect(0);
    let found: Vec<_> = run.text().lines().filter(|line| line.starts_with("the driver")).map(str::to_owned).collect();
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|line| line.contains(": not found")), "{found:?}");
    assert!(run.read().calls().is_empty());
}
