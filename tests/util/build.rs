//! Finds or builds, once per test run: the shim, the simulated driver, the programs in `tests/programs`.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Built things to test in place of this build's: those of a release, on a system that has no Rust.
fn given() -> Option<&'static Path> {
    static GIVEN: OnceLock<Option<PathBuf>> = OnceLock::new();
    GIVEN.get_or_init(|| std::env::var_os("GPUTRACE_TEST_PRODUCTS").map(PathBuf::from)).as_deref()
}

/// The command under test.
pub(crate) fn gputrace() -> &'static Path {
    static COMMAND: OnceLock<PathBuf> = OnceLock::new();
    let own = || PathBuf::from(env!("CARGO_BIN_EXE_gputrace"));
    COMMAND.get_or_init(|| given().map_or_else(own, |folder| folder.join("gputrace")))
}

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the tests keep what they compile.
fn workshop() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The folder of this profile's products.
fn products() -> &'static Path {
    gputrace().parent().expect("the command lies in a folder")
}

/// Held until it is dropped. Other processes with the same name wait.
pub(crate) struct FileLock(#[allow(dead_code, reason = "open, it holds the lock")] File);

/// Locks a name against other test processes.
pub(crate) fn file_lock(name: &str) -> FileLock {
    fs::create_dir_all(workshop()).expect("the target folder is writable");
    let path = workshop().join(format!("{name}.lock"));
    let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path).expect("the lock file opens");
    // SAFETY: the descriptor is open; the call only waits.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0, "{}", path.display());
    FileLock(file)
}

/// Builds the libraries that lie beside the command, as `cargo test` alone need not have done.
fn built() -> &'static Path {
    if let Some(folder) = given() {
        return folder;
    }
    static ERRORS: OnceLock<String> = OnceLock::new();
    let errors = ERRORS.get_or_init(|| {
        let _lock = file_lock("build");
        let mut cargo = Command::new(env!("CARGO"));
        let packages = [
            "gputrace-shim",
            "gputrace-inline",
            "fake-cuda",
            "fake-cuda-symbolic",
            "fake-cupti",
            "fake-nccl",
            "fake-nvml",
        ]
        .map(|name| ["-p", name]);
        cargo.args(["build", "--quiet"]).args(packages.as_flattened()).current_dir(repository());
        let target = products().parent().expect("profiles lie in the target folder");
        cargo.arg("--target-dir").arg(target);
        if products().ends_with("release") {
            cargo.arg("--release");
        }
        let output = cargo.output().expect("cargo runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { String::new() } else { errors }
    });
    assert!(errors.is_empty(), "{errors}");
    products()
}

/// The shim.
pub(crate) fn shim() -> PathBuf {
    built().join("libgputrace_shim.so")
}

/// Which build of the simulated driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Driver {
    /// Its own calls and addresses go through the loader, as in any C library: an interposer's come back.
    Plain,
    /// Linked -Bsymbolic as the vendor's: it only knows its own.
    Symbolic,
}

/// A folder for LD_LIBRARY_PATH in which the simulated driver is called libcuda.so.1, and the stand-in for CUPTI
/// libcupti.so.13.
pub(crate) fn driver_folder(driver: Driver) -> PathBuf {
    let library = match driver {
        Driver::Plain => "libfake_cuda.so",
        Driver::Symbolic => "libfake_cuda_symbolic.so",
    };
    let library = built().join(library);
    assert!(library.is_file(), "{} was not built", library.display());
    let folder = format!("{driver:?}").to_lowercase();
    folder_with(&folder, "libcupti.so.13", &built().join("libfake_cupti.so"));
    folder_with(&folder, "libcuda.so.1", &library)
}

/// A folder for LD_LIBRARY_PATH in which the stand-in for NVML is called libnvidia-ml.so.1.
pub(crate) fn nvml_folder() -> PathBuf {
    folder_with("nvml", "libnvidia-ml.so.1", &built().join("libfake_nvml.so"))
}

/// A folder for LD_LIBRARY_PATH in which the stand-in for NCCL is called libnccl.so.2.
pub(crate) fn nccl_folder() -> PathBuf {
    folder_with("nccl", "libnccl.so.2", &built().join("libfake_nccl.so"))
}

/// Flags that link all of the stand-in for NCCL into a library.
pub(crate) fn nccl_inside() -> Vec<String> {
    let archive = built().join("libfake_nccl.a");
    let parts = ["-Wl,--whole-archive", &archive.display().to_string(), "-Wl,--no-whole-archive", "-lm"];
    parts.map(str::to_owned).to_vec()
}

fn folder_with(name: &str, soname: &str, library: &Path) -> PathBuf {
    let folder = workshop().join("drivers").join(name);
    let _lock = file_lock("drivers");
    fs::create_dir_all(&folder).expect("the target folder is writable");
    let link = folder.join(soname);
    if fs::read_link(&link).ok().as_deref() != Some(library) {
        let _ = fs::remove_file(&link);
        symlink(library, &link).expect("the target folder is writable");
    }
    folder
}

/// The program of `tests/programs/<name>.c`.
pub(crate) fn program(name: &str) -> PathBuf {
    compiled::<&str>("cc", name, name, &[])
}

/// The same, compiled with other flags; `tag` tells it from others.
pub(crate) fn program_with<S: AsRef<OsStr>>(name: &str, tag: &str, flags: &[S]) -> PathBuf {
    compiled("cc", name, &format!("{name}-{tag}"), flags)
}

/// The same, by another compiler than cc.
pub(crate) fn program_by(compiler: &str, name: &str, tag: &str, flags: &[&str]) -> PathBuf {
    compiled(compiler, name, &format!("{name}-{compiler}-{tag}"), flags)
}

/// A program or library of `tests/programs/<name>.cc`.
pub(crate) fn cpp_program_with(name: &str, tag: &str, flags: &[&str]) -> PathBuf {
    compiled("c++", name, &format!("{name}-cpp-{tag}"), flags)
}

/// A shared library made of `tests/programs/<name>.c`.
pub(crate) fn library(name: &str) -> PathBuf {
    compiled("cc", name, &format!("lib{name}.so"), &["-shared", "-fPIC"])
}

/// Flags that link a program with the driver in this folder.
pub(crate) fn linked_with(folder: &Path, more: &[&str]) -> Vec<String> {
    linked_with_library("libcuda.so.1", folder, more)
}

/// Flags that link a program with the library of this name in this folder.
pub(crate) fn linked_with_library(name: &str, folder: &Path, more: &[&str]) -> Vec<String> {
    let link = ["-Wl,--no-as-needed".to_owned(), format!("-L{}", folder.display()), format!("-l:{name}")];
    link.into_iter().chain(more.iter().map(|flag| (*flag).to_owned())).collect()
}

/// Compiles a program or library of `tests/programs`.
fn compiled<S: AsRef<OsStr>>(compiler: &str, source: &str, product: &str, flags: &[S]) -> PathBuf {
    let sources = repository().join("tests/programs");
    let (extension, standard) = if compiler == "c++" { ("cc", "-std=c++17") } else { ("c", C_FLAGS[0]) };
    let source = sources.join(format!("{source}.{extension}"));
    let mut command = Command::new(compiler);
    command.arg(standard).args(&C_FLAGS[1..]).arg("-I").arg(&sources).arg(&source).args(flags).arg("-ldl");
    let mut inputs = files_in(&sources);
    inputs.retain(|file| *file == source || file.extension().is_some_and(|e| e == "h"));
    made(command, product, &inputs)
}

/// How all of our C is compiled.
pub(super) const C_FLAGS: [&str; 8] =
    ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-pthread"];

pub(super) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// What a compiler makes when an input is younger than the product, or the command is another; it need not say where.
pub(super) fn made(mut compiler: Command, product: &str, inputs: &[PathBuf]) -> PathBuf {
    static DONE: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let mut done = DONE.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
    if let Some(path) = done.get(product) {
        return path.clone();
    }
    let folder = workshop().join("programs");
    fs::create_dir_all(&folder).expect("the target folder is writable");
    let _lock = file_lock("programs");
    let path = folder.join(product);
    compiler.arg("-o").arg(&path);
    let recipe = format!("{compiler:?}");
    let note = folder.join(format!("{product}.recipe"));
    let young = inputs.iter().any(|file| changed(file) > changed(&path));
    if young || fs::read_to_string(&note).ok().as_ref() != Some(&recipe) {
        let output = compiler.output().expect("the compiler is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::write(&note, recipe).expect("the target folder is writable");
    }
    done.insert(product.to_owned(), path.clone());
    path
}

fn changed(file: &Path) -> Option<std::time::SystemTime> {
    fs::metadata(file).and_then(|m| m.modified()).ok()
}

/// Whether the programs that a test is about are here. In CI they must be; elsewhere the test says that it is skipped.
pub(crate) fn needs(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let here = |name: &&&str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let missing: Vec<_> = programs.iter().filter(|name| !here(name)).collect();
    lacks(&missing.iter().map(|name| **name).collect::<Vec<_>>().join(", "))
}

/// A library of the system by its file's name; where it is missing that is as with [`needs`].
pub(crate) fn system_library(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
    if found.is_none() {
        lacks(name);
    }
    found
}

/// What [`needs`] does about things that are missing; true when nothing is.
pub(crate) fn lacks(missing: &str) -> bool {
    if missing.is_empty() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "not installed: {missing}; .ci/run must install it");
    // Past the capture of a test's own output, which nobody sees of one that goes well; once for each thing that is not here.
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(missing.to_owned()) {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(std::io::stderr(), "skipped {test}, and all others that need it: not here: {missing}");
    }
    false
}

/// A shared library that is called libcuda.so.1, in a folder for LD_LIBRARY_PATH: `tests/programs/odd_driver.c`.
pub(crate) fn odd_driver_folder() -> PathBuf {
    let library = compiled("cc", "odd_driver", "libodd_driver.so", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    folder_with("odd", "libcuda.so.1", &library)
}

/// The functions that the shim hooks in the driver, but for cuGetProcAddress, which it answers and does not record.
pub(crate) fn hooked_functions() -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(shim()).output().expect("nm is installed");
    let text = String::from_utf8(output.stdout).expect("symbols are text");
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| name.starts_with("cu") && !name.starts_with("cupti"));
    names.map(str::to_owned).collect()
}

/// Copies a program. By another process: a child that another test forks meanwhile would hold the copy open for writing, and
/// nobody could run it as long.
pub(crate) fn copied(file: &Path, to: &Path) {
    let done = Command::new("cp").arg(file).arg(to).status().expect("cp runs");
    assert!(done.success(), "{}", to.display());
}
