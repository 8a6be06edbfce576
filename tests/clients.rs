//! CUDA's own clients: its runtime of versions 12 and 13, and its Python bindings, on the simulated driver and on the
//! vendor's own library without a GPU. They behave as they do without us, and every look-up gives the right variant.
//!
//! `ci/install` unpacks them and says where they are: GPUTRACE_TEST_VENVS, virtual environments separated by colons, and
//! GPUTRACE_VENDOR_LIBCUDA, a libcuda.so.1.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::{Driver, Scratch, driver_folder, lacks, program, repository, truth};

/// The virtual environments; empty where there are none, which is an error in CI.
fn environments() -> Vec<PathBuf> {
    let value = std::env::var("GPUTRACE_TEST_VENVS").unwrap_or_default();
    let all: Vec<PathBuf> = value.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
    if all.is_empty() {
        lacks("CUDA's runtime and Python bindings (GPUTRACE_TEST_VENVS)");
    }
    all
}

/// The folder of the vendor's libcuda.so.1.
fn vendor() -> Option<PathBuf> {
    let Some(file) = std::env::var_os("GPUTRACE_VENDOR_LIBCUDA").map(PathBuf::from) else {
        lacks("the vendor's libcuda.so.1 (GPUTRACE_VENDOR_LIBCUDA)");
        return None;
    };
    assert!(file.is_file(), "GPUTRACE_VENDOR_LIBCUDA={} is no file", file.display());
    file.parent().map(Path::to_owned)
}

/// Folders with a libcuda.so.1, simulated and genuine.
fn drivers() -> Vec<PathBuf> {
    let simulated = [Driver::Plain, Driver::Symbolic].map(driver_folder);
    simulated.into_iter().chain(vendor()).collect()
}

/// The environment's libcudart.so.12 or .13.
#[track_caller]
fn runtime_of(environment: &Path) -> PathBuf {
    let mut folders = vec![environment.join("lib")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("libcudart.so.") {
                return path;
            }
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            }
        }
    }
    panic!("no libcudart in {}", environment.display());
}

#[test]
fn every_look_up_gives_the_function_that_it_gives_untraced() {
    let scratch = Scratch::new();
    for folder in drivers() {
        let library = folder.join("libcuda.so.1");
        let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().expect("nm is installed");
        let text = String::from_utf8(output.stdout).expect("symbols are text");
        let names =
            text.lines().filter_map(|line| line.split_whitespace().nth(2)).filter(|name| name.starts_with("cu"));
        let names: Vec<&str> = names.map(|name| name.split('@').next().unwrap_or(name)).collect();
        assert!(names.len() > 300, "{} exports of {}", names.len(), library.display());
        let list = scratch.file("names", names.join("\n"));
        let target = scratch.target(program("variants")).arg(&list).env("LD_LIBRARY_PATH", &folder);
        let text = target.same().text();
        // Nothing is unknown: every pointer is an exported function.
        let unknown: Vec<_> = text.lines().filter(|line| line.contains(" unknown")).take(5).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(text.contains("cuLaunchKernel 12000 2 cuLaunchKernel_ptsz 0"), "{}", library.display());
        assert!(text.contains("cuMemAlloc 12000 0 cuMemAlloc_v2 0"), "{}", library.display());
    }
}

#[test]
fn the_vendors_library_without_a_gpu_gives_its_own_errors() {
    let Some(folder) = vendor() else { return };
    let scratch = Scratch::new();
    for route in ["dlopen", "procaddr", "procaddr_ptsz", "default", "next", "dlmopen", "deepbind_cuda"] {
        let run = scratch.target(program("cuda_routes")).arg(route).env("LD_LIBRARY_PATH", &folder).same().expect(1);
        assert!(run.text().contains("cuInit(0) result=100"), "{}", run.text());
        let calls = run.read().calls();
        assert_eq!(calls.get("cuInit"), Some(&1), "{route}: {calls:?}");
        assert_eq!(run.read().table("api").rows().filter(|row| row.int("result") == 100).count(), 1);
    }
    // Calls with nothing but zeros: its answers are its own.
    scratch.target(program("cudart_like")).env("LD_LIBRARY_PATH", &folder).same();
}

#[test]
fn cudas_runtime_behaves_as_it_does_untraced() {
    let scratch = Scratch::new();
    for environment in environments() {
        let runtime = runtime_of(&environment);
        for folder in drivers() {
            let target = scratch.target(program("cudart_client")).arg(&runtime).env("LD_LIBRARY_PATH", &folder);
            let run = target.same();
            assert!(run.text().contains("cudaRuntimeGetVersion = 0"), "{}", run.text());
            let root = run.read().root();
            // It looked its functions up through us: some 440 of them.
            let looked_up =
                root.coverage.hooks.iter().filter(|hook| hook.routes.contains(&"procaddr".to_owned())).count();
            let uncovered = root.coverage.uncovered.len();
            assert!(
                looked_up > 50 && looked_up + uncovered > 200,
                "{looked_up} and {uncovered} on {}",
                folder.display()
            );
        }
    }
}

#[test]
fn no_function_that_cudas_runtime_fetches_and_that_matters_is_uncovered() {
    let scratch = Scratch::new();
    // Functions that only ask, or change nothing that the trace is about.
    let harmless =
        ["Get", "Query", "Attribute", "Advise", "CanAccess", "SetLimit", "PoolTrim", "SetAccess", "Export", "Import"];
    let matters = ["cuLaunch", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemFree", "Synchronize", "cuGraphLaunch"];
    for environment in environments() {
        let target = scratch.target(program("cudart_client")).arg(runtime_of(&environment));
        let run = target.with_driver(Driver::Symbolic).traced();
        let uncovered = run.read().root().coverage.uncovered;
        let missed = uncovered.iter().map(|symbol| symbol.symbol.as_str()).filter(|name| {
            matters.iter().any(|part| name.contains(part)) && !harmless.iter().any(|part| name.contains(part))
        });
        assert_eq!(missed.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

#[test]
fn cudas_python_bindings_do_their_work_and_every_launch_is_seen() {
    let scratch = Scratch::new();
    let client = repository().join("tests/programs/cuda_bindings_client.py");
    for environment in environments() {
        let python = environment.join("bin/python");
        for driver in [Driver::Plain, Driver::Symbolic] {
            let file = scratch.path().join("truth.json");
            let target = scratch.target(&python).arg(&client).arg("driver").with_driver(driver);
            let run = target.env("FAKE_CUDA_TRUTH", &file).same().expect(0);
            assert!(run.text().contains("launches=13 ok"), "{}", run.text());
            let trace = run.read();
            trace.assert_balanced();
            let launching = |name: &str| name.starts_with("cuLaunch") || name.starts_with("cuGraphLaunch");
            let expected: u64 = truth(&file).iter().filter(|(name, _)| launching(name)).map(|(_, count)| count).sum();
            assert_eq!(trace.table("launches").len() as u64, expected, "{}", run.text());
        }
        for folder in drivers() {
            scratch.target(&python).arg(&client).arg("runtime").env("LD_LIBRARY_PATH", folder).same();
        }
        if let Some(folder) = vendor() {
            scratch.target(&python).arg(&client).arg("driver").env("LD_LIBRARY_PATH", folder).same();
        }
    }
}
