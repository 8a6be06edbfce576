//! `gputrace demo`: the whole way from a program to a report, on a machine without a GPU.
//!
//! It traces `demo_loop.rs`, run by this same executable, with the simulated driver in the place of the vendor's, and
//! prints the report. The trace is an ordinary one and stays.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::record::record;
use super::report;
use crate::cli::{DemoArgs, GpuTime, RecordArgs, ReportArgs};
use crate::launch::exit::{Ending, Failure, OWN_FAILURE};
use crate::launch::{names, shim};

/// The loop runs for little more than a second.
const WINDOW_EVERY: Duration = Duration::from_millis(500);
/// Where the simulated driver writes what its device did, in each process.
const TRUTH: &str = "truth-%p.json";

/// The folder in which the target finds the simulated driver under the driver's name; removed at the end.
struct DriverFolder(PathBuf);

impl DriverFolder {
    /// Libraries, each with the name by which it is found.
    fn new(libraries: &[(PathBuf, &str)]) -> Result<DriverFolder> {
        let id = gputrace_collectors::new_launcher_id();
        let path = std::env::temp_dir().join(format!("gputrace-demo-{id:x}"));
        let shown = path.display().to_string();
        fs::DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("{shown}: cannot be made"))?;
        let folder = DriverFolder(path);
        for (library, name) in libraries {
            symlink(library, folder.0.join(name)).with_context(|| format!("{shown}: not writable"))?;
        }
        Ok(folder)
    }
}

impl Drop for DriverFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Traces the loop and prints the report.
pub(crate) fn run(args: DemoArgs) -> Result<Ending> {
    let mut libraries = vec![(library("the simulated driver", shim::FAKE_DRIVER)?, "libcuda.so.1")];
    if matches!(args.gpu_time, Some(GpuTime::Auto | GpuTime::Windows | GpuTime::Full)) {
        libraries.push((library("the stand-in for CUPTI", shim::FAKE_CUPTI)?, "libcupti.so.13"));
    }
    let folder = DriverFolder::new(&libraries)?;
    let mut search = folder.0.clone().into_os_string();
    if let Some(given) = std::env::var_os("LD_LIBRARY_PATH").filter(|given| !given.is_empty()) {
        search.push(":");
        search.push(given);
    }
    let exe = shim::own_path().context("the path of gputrace itself is not known")?;
    let output = args.output.unwrap_or_else(|| PathBuf::from(default_output()));
    let mut options = RecordArgs::new(Some(output), vec![exe.into_os_string(), OsString::from("__demo-target")]);
    let truth = folder.0.join(TRUTH);
    options.variables = vec![("LD_LIBRARY_PATH", search)];
    match args.gpu_time {
        // The device's own account of what it did takes the place of what CUPTI would have told.
        None => {
            options.variables.push(("FAKE_CUDA_TRUTH", truth.into_os_string()));
            options.simulated = Some(folder.0.clone());
        }
        Some(how) => options.gpu_time = how,
    }
    if matches!(args.gpu_time, Some(GpuTime::Auto | GpuTime::Windows)) {
        options.gpu_window_every = Some(WINDOW_EVERY);
    }
    let recorded = record(&options)?;
    if recorded.ending == Ending::Code(0) {
        report::run(ReportArgs::new(recorded.trace))?;
    }
    Ok(recorded.ending)
}

/// A library that lies beside this executable.
fn library(what: &str, name: &str) -> Result<PathBuf> {
    shim::find_library(name).map_err(|missing| {
        let cure = "in a checkout build it with: cargo build --release --workspace";
        Failure::error(OWN_FAILURE, format!("{what} {name} is {missing}; {cure}"))
    })
}

fn default_output() -> String {
    names::default_name("demo".as_ref(), std::time::SystemTime::now())
}
