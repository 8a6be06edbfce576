//! What reads bytes that others wrote, each as a function of any bytes: for the fuzzer, and for a test that plays what it found.
//!
//! As `collectors/src/fuzzed`, and not part of the command either. A profile is imported with all that follows: what it holds becomes rows
//! of a new trace, or is named, or is an error.

use std::fs;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches};
use gputrace_collectors::manifest::Manifest;

use crate::cli::{Action, Cli};
use crate::launch::{inspect, macho};
use crate::{commands, import};

#[cfg(test)]
#[path = "../fuzz/shared/short.rs"]
mod short;

/// A target's name, and what it does with an input.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// The targets, sorted.
pub(crate) const TARGETS: [Target; 5] =
    [("executable", executable), ("kineto", kineto), ("nsys", nsys), ("report", report), ("torch", torch)];

/// A folder that is as fast as memory where there is one, for the time of one input.
struct Folder(PathBuf);

impl Folder {
    fn new(target: &str) -> Folder {
        let shared = PathBuf::from("/dev/shm");
        let root = if shared.is_dir() { shared } else { std::env::temp_dir() };
        let folder = root.join(format!("gputrace-fuzz-{target}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("room");
        Folder(folder)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        path.parent().map(fs::create_dir_all).transpose().expect("room");
        fs::write(&path, bytes).expect("room");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program or a script, as the launcher and `doctor` look at it.
fn executable(data: &[u8]) {
    // A script may name any interpreter; that one is not the input's.
    if data.starts_with(b"#!") {
        return;
    }
    let folder = Folder::new("executable");
    let found = inspect::inspect(&folder.file("program", data), None);
    assert!(found.obstacle.is_none_or(|obstacle| !obstacle.to_string().is_empty() && !obstacle.cure().contains('\0')));
    let _ = macho::read(data);
}

/// A profile of torch.profiler, plain or compressed.
fn kineto(data: &[u8]) {
    imported("kineto", "rank0.json", data);
}

/// A database of Nsight Systems.
fn nsys(data: &[u8]) {
    imported("nsys", "report.sqlite", data);
}

/// A memory snapshot of PyTorch.
fn torch(data: &[u8]) {
    imported("torch", "snapshot.pickle", data);
}

/// Imports a file: all files that this makes lie in the trace, and the manifest can be read.
fn imported(target: &str, name: &str, data: &[u8]) {
    let folder = Folder::new(target);
    let (file, trace) = (folder.file(name, data), folder.0.join("trace"));
    match import::import(&file, &trace) {
        Ok(said) => {
            assert!(said.contains("imported"));
            let accounts = fs::read_dir(trace.join("manifest")).expect("an account").flatten();
            accounts.for_each(|account| drop(Manifest::read(&account.path()).expect("a manifest")));
        }
        Err(error) => assert!(!format!("{error:#}").is_empty()),
    }
    let beside = fs::read_dir(&folder.0).expect("our own").count();
    assert!(beside <= 2, "a file and a trace");
}

/// A trace with an account of any bytes, and no rows: a report of each kind, whatever the account claims.
fn report(data: &[u8]) {
    let folder = Folder::new("report");
    folder.file("trace/manifest/h-1.json", data);
    let path = |name: &str| folder.0.join(name).into_os_string();
    for format in ["json", "html"] {
        let words = ["gputrace", "report", "--format", format].map(Into::into);
        let words = words.into_iter().chain([path("trace"), "-o".into(), path("report")]);
        let parsed = Cli::command().try_get_matches_from(words).expect("words that are known");
        let Action::Report(args) = Cli::from_arg_matches(&parsed).expect("the same").action else { return };
        let _ = commands::report::run(args);
    }
}

#[cfg(test)]
#[test]
fn inputs_that_broke_a_reader_once_and_changes_of_them_are_read_to_an_end() {
    for (target, run) in TARGETS {
        short::play(target, run);
    }
}
