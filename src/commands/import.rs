//! `gputrace import`: traces of other profilers into a trace of ours.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use gputrace_collectors::Manifest;

use crate::cli::ImportArgs;
use crate::import::device_times;
use crate::launch::exit::{Failure, USAGE};
use crate::{import, note, progress};

/// Imports each file as a launcher of its own.
pub(crate) fn run(args: &ImportArgs) -> Result<()> {
    let work = progress::of("reading");
    if args.files.iter().any(|file| device_times::is_one(file)) {
        let added = device_times::add(&args.output, &args.files)?;
        drop(work);
        let without = match added.without_call {
            0 => String::new(),
            n => format!("; {n} of them without a call in the trace"),
        };
        note(&format!(
            "{} operations of the simulated GPU added to {}{without}",
            added.operations,
            args.output.display()
        ));
        return Ok(());
    }
    check(&args.output)?;
    let made = !args.output.exists();
    for (imported, file) in args.files.iter().enumerate() {
        match import::import(file, &args.output) {
            Ok(text) => note(&text),
            // A trace of some of the files would look like one of all.
            Err(error) if made => {
                let _ = fs::remove_dir_all(&args.output);
                return Err(match imported {
                    0 => error,
                    n => error.context(format!("nothing is left of the {n} that were imported before")),
                });
            }
            Err(error) => return Err(error),
        }
    }
    drop(work);
    note(&format!("next: gputrace report {}", gputrace_collectors::quote(&args.output.to_string_lossy())));
    Ok(())
}

/// The trace must be new, or one of imports: what was recorded is left alone.
fn check(trace: &Path) -> Result<()> {
    let wrong =
        |what: &str| Err(Failure::error(USAGE, format!("{} {what}; name another one with -o", trace.display())));
    if !trace.exists() {
        return Ok(());
    }
    if !trace.is_dir() {
        return wrong("exists and is no folder");
    }
    let manifests: Vec<PathBuf> =
        fs::read_dir(trace.join("manifest")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let imported = |path: &PathBuf| Manifest::read(path).is_ok_and(|manifest| manifest.is_imported());
    if manifests.is_empty() && fs::read_dir(trace).is_ok_and(|mut entries| entries.next().is_some()) {
        return wrong("exists and is not empty");
    }
    if !manifests.iter().all(imported) {
        return wrong("exists and was recorded, not imported");
    }
    Ok(())
}
