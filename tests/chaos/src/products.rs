//! What rounds are made of: gputrace and its libraries, the simulated drivers, the victim. Built here unless they are given.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::Driver;

/// Where everything is.
#[derive(Clone, Debug)]
pub(crate) struct Products {
    /// The command.
    pub(crate) gputrace: PathBuf,
    /// The program that is traced.
    pub(crate) victim: PathBuf,
    /// Folder with the simulated driver and the stand-in for CUPTI.
    simulated: PathBuf,
    /// Folder with the odd driver.
    odd: PathBuf,
    /// The engine of inline hooks lies beside the command.
    pub(crate) inline: bool,
}

impl Products {
    /// Builds what is not given, and compiles the victim.
    pub(crate) fn find(gputrace: Option<PathBuf>) -> Result<Products, String> {
        let own = std::env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
        let folder = own.parent().ok_or("this program lies in no folder")?;
        let gputrace = match gputrace {
            Some(given) => fs::canonicalize(&given).map_err(|error| format!("{}: {error}", given.display()))?,
            None => built(folder)?,
        };
        let beside = gputrace.parent().ok_or("gputrace lies in no folder")?;
        for name in ["libgputrace_shim.so", "libfake_cuda.so", "libfake_cupti.so"] {
            if !beside.join(name).is_file() {
                return Err(format!("{name} is not beside {}: cargo build --release --workspace", gputrace.display()));
            }
        }
        let workshop = folder.join(format!("chaos-{}", std::process::id()));
        let (simulated, odd) = (workshop.join("simulated"), workshop.join("odd"));
        for folder in [&simulated, &odd] {
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        for (name, library) in [("libcuda.so.1", "libfake_cuda.so"), ("libcupti.so.13", "libfake_cupti.so")] {
            let _ = fs::remove_file(simulated.join(name));
            symlink(beside.join(library), simulated.join(name)).map_err(|error| format!("{name}: {error}"))?;
        }
        let root = repository();
        let programs = root.join("tests/programs");
        let victim = workshop.join("victim");
        compile(&root.join("tests/chaos/victim/victim.c"), &victim, &programs, &["-lrt"])?;
        let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
        compile(&programs.join("odd_driver.c"), &odd.join("libcuda.so.1"), &programs, &flags)?;
        let inline = beside.join("libgputrace_inline.so").is_file();
        Ok(Products { gputrace, victim, simulated, odd, inline })
    }

    /// The folder in which a program finds this driver.
    pub(crate) fn driver(&self, driver: Driver) -> &Path {
        if driver == Driver::Odd { &self.odd } else { &self.simulated }
    }

    /// Removes what was made for this run.
    pub(crate) fn remove(&self) {
        if let Some(workshop) = self.victim.parent() {
            let _ = fs::remove_dir_all(workshop);
        }
    }
}

/// The repository's root.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

/// The command as a release has it: what is timed and dropped by a slower one is not what users have.
fn built(folder: &Path) -> Result<PathBuf, String> {
    let target = folder.parent().ok_or("profiles lie in the target folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--release", "--workspace", "--target-dir"]).arg(target).current_dir(repository());
    let done = build.status().map_err(|error| format!("cargo does not run: {error}"))?;
    if !done.success() {
        return Err("gputrace could not be built".to_owned());
    }
    Ok(target.join("release/gputrace"))
}

fn compile(source: &Path, product: &Path, include: &Path, flags: &[&str]) -> Result<(), String> {
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=gnu11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
        "-pthread",
        "-I",
    ]);
    compiler.arg(include).arg(source).arg("-o").arg(product).args(flags).arg("-ldl");
    let done = compiler.output().map_err(|error| format!("cc does not run: {error}"))?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}
