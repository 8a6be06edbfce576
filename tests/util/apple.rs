//! The shim for macOS in programs of Linux: `tests/fakes/macho` is their dynamic loader, `tests/fakes/metal` their GPU.
//!
//! `ci/apple/run` builds the shim and says where it is: GPUTRACE_APPLE_DYLIBS.

use std::ffi::OsString;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::build::{C_FLAGS, files_in, made};
use super::run::{Scratch, Target};
use super::{lacks, needs, repository};

/// Code of macOS keeps frame pointers, which the shim follows.
const FRAME_POINTERS: &str = "-fno-omit-frame-pointer";

/// Whose machine code is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processor {
    /// By this machine itself.
    X86,
    /// By an emulator.
    Arm,
}

impl Processor {
    /// Does it; with the emulator up to three times, until it goes well. Of programs with threads it ends one in some hundreds by
    /// itself, those that nobody traces too.
    pub(crate) fn tries(self, attempt: impl Fn()) {
        let goes_wrong = || self == Processor::Arm && catch_unwind(AssertUnwindSafe(&attempt)).is_err();
        if self == Processor::X86 || (goes_wrong() && goes_wrong()) {
            attempt();
        }
    }

    fn compiler(self) -> &'static str {
        match self {
            Processor::X86 => "gcc",
            Processor::Arm => "aarch64-linux-gnu-gcc",
        }
    }

    fn dylib(self) -> &'static str {
        match self {
            Processor::X86 => "x86_64-apple-darwin/release/libgputrace_shim.dylib",
            Processor::Arm => "aarch64-apple-darwin/release/libgputrace_shim.dylib",
        }
    }

    /// The library that makes a program of Linux one of macOS. `patched`: its own calls of malloc's family are led elsewhere with
    /// the program's, those before the shim's constructor too.
    fn system(self, patched: bool) -> PathBuf {
        let fakes = repository().join("tests/fakes");
        // Metal first: as on macOS, its classes are there before the loader runs initialisers.
        let inputs: Vec<PathBuf> = ["metal", "macho"].iter().flat_map(|name| files_in(&fakes.join(name))).collect();
        let sources = inputs.iter().filter(|file| file.extension().is_some_and(|e| e != "h"));
        let mut command = Command::new(self.compiler());
        command
            .args(C_FLAGS)
            .args([FRAME_POINTERS, "-shared", "-fPIC", "-Wl,-z,defs"])
            .args(sources)
            .args(["-lobjc", "-lm"]);
        if patched {
            command.arg("-DPATCHED").args(PATCHED.map(|name| format!("-Wl,--wrap={name}")));
        }
        let name = if patched { "libfake_macos_patched" } else { "libfake_macos" };
        made(command, &format!("{name}-{}.so", self.compiler()), &inputs)
    }

    /// The program of `tests/programs/<name>`.
    fn program(self, name: &str, patched: bool) -> PathBuf {
        let (programs, system) = (repository().join("tests/programs"), self.system(patched));
        let source = programs.join(name);
        let mut inputs = files_in(&programs);
        inputs.retain(|file| *file == source || file.extension().is_some_and(|e| e == "h"));
        inputs.push(system.clone());
        let mut command = Command::new(self.compiler());
        command.args(C_FLAGS).arg(FRAME_POINTERS).args(name.ends_with(".m").then_some("-fobjc-exceptions"));
        command.arg("-I").arg(repository().join("tests/fakes/metal")).arg(source).arg(&system);
        let folder = system.parent().expect("it lies in a folder").display().to_string();
        command.args([&format!("-Wl,-rpath,{folder}"), "-Wl,--no-as-needed", "-lobjc", "-lm"]);
        command.args(listed("interposed").iter().map(|symbol| format!("-Wl,--wrap={}", &symbol[1..])));
        made(command, &format!("{name}{}-{}", if patched { "-patched" } else { "" }, self.compiler()), &inputs)
    }

    /// The program of `tests/programs/<name>` with this shim in it.
    pub(crate) fn target<'a>(self, scratch: &'a Scratch, dylibs: &Path, name: &str) -> Target<'a> {
        self.target_with(scratch, &dylibs.join(self.dylib()), name)
    }

    /// The same on a system whose own calls of malloc's family come to the shim, as dyld may patch its shared cache.
    pub(crate) fn patched<'a>(self, scratch: &'a Scratch, dylibs: &Path, name: &str) -> Target<'a> {
        self.running(scratch, &dylibs.join(self.dylib()), &self.program(name, true))
    }

    /// The same with this file as the shim.
    pub(crate) fn target_with<'a>(self, scratch: &'a Scratch, dylib: &Path, name: &str) -> Target<'a> {
        self.running(scratch, dylib, &self.program(name, false))
    }

    /// A program with this file as the shim. What gputrace puts into programs of Linux is taken out again.
    fn running<'a>(self, scratch: &'a Scratch, dylib: &Path, program: &Path) -> Target<'a> {
        let mut insert = OsString::from("DYLD_INSERT_LIBRARIES=");
        insert.push(dylib);
        let target = scratch.target("env");
        let target = target.args(["LD_PRELOAD", "LD_AUDIT", "NVTX_INJECTION64_PATH"].iter().flat_map(|n| ["-u", n]));
        let target = match self {
            Processor::X86 => target.arg(insert),
            // The emulated counter is another than this machine's.
            Processor::Arm => target
                .env("GPUTRACE_CLOCK", "monotonic")
                .args(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E"])
                .arg(insert),
        };
        target.arg(program)
    }
}

/// What of malloc's family dyld keeps patchable inside its shared cache, as far as its published source says.
const PATCHED: [&str; 6] = ["calloc", "free", "malloc", "posix_memalign", "realloc", "valloc"];

/// Lines of a list in ci/apple.
fn listed(list: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join("ci/apple").join(list)).expect("a list in ci/apple");
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// What the shim may import on macOS.
pub(crate) fn imports_of_apple() -> Vec<String> {
    listed("imports")
}

/// The folder of the dylibs, and the processors whose programs can be run. None where they were not built.
pub(crate) fn apple_targets() -> Option<(PathBuf, [Processor; 2])> {
    if !needs(&["gcc", "aarch64-linux-gnu-gcc", "qemu-aarch64"]) {
        return None;
    }
    let Some(folder) = std::env::var_os("GPUTRACE_APPLE_DYLIBS").map(PathBuf::from) else {
        lacks("the shim for macOS (GPUTRACE_APPLE_DYLIBS)");
        return None;
    };
    // ci/apple/run says why it cannot build it, and in CI only who says so does without.
    if folder.as_os_str().is_empty() {
        let told = std::env::var_os("GPUTRACE_WITHOUT_APPLE").is_some_and(|value| !value.is_empty());
        assert!(told || std::env::var_os("CI").is_none(), "no shim for macOS; GPUTRACE_WITHOUT_APPLE=1 does without");
        eprintln!("skipped: the shim for macOS cannot be built here");
        return None;
    }
    let both = [Processor::X86, Processor::Arm];
    for processor in both {
        let dylib = folder.join(processor.dylib());
        assert!(dylib.is_file(), "no {}", dylib.display());
        if let Some(newer) = newer_source(&dylib, &sources_of(&dylib)) {
            panic!("{} is older than {}: run ci/apple/run again", dylib.display(), newer.display());
        }
    }
    Some((folder, both))
}

/// What a library was made of, as cargo wrote it down beside it; in this tree, wherever the library came from.
fn sources_of(library: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(library.with_extension("d")).unwrap_or_default();
    let own = |path: &str| Some(repository().join(&path[path.find("/shim/")? + 1..]));
    text.split_once(": ").map_or("", |(_, sources)| sources).split_whitespace().filter_map(own).collect()
}

/// A source that was changed after the library was built, if there is one: what is executed is not what is written.
fn newer_source(library: &Path, sources: &[PathBuf]) -> Option<PathBuf> {
    let changed = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    let built = changed(library)?;
    sources.iter().find(|source| changed(source).is_some_and(|at| at > built)).cloned()
}

#[test]
fn a_shim_for_macos_that_is_older_than_its_sources_is_noticed() {
    let scratch = Scratch::new();
    let touch = |name: &str, seconds: u64| {
        let path = scratch.path().join(name);
        let file = fs::File::create(&path).expect("a file");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("its time");
        path
    };
    let (library, old, new) = (touch("lib.dylib", 20), touch("old.rs", 10), touch("new.rs", 30));
    assert_eq!(newer_source(&library, std::slice::from_ref(&old)), None);
    assert_eq!(newer_source(&library, &[old, new.clone()]), Some(new));
    let listed = "/elsewhere/lib.dylib: /elsewhere/shim/abi/src/ring.rs /elsewhere/shim/src/lib.rs /other/crate.rs\n";
    fs::write(library.with_extension("d"), listed).expect("a list");
    let own = ["shim/abi/src/ring.rs", "shim/src/lib.rs"].map(|file| repository().join(file));
    assert_eq!(sources_of(&library), own);
    assert!(newer_source(&library, &own).is_some(), "they are younger than 1970");
}
