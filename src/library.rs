//! The command's modules as a library, for the fuzzer alone (`fuzz/Cargo.toml` names this file): the command is none.
#![allow(dead_code, unused_imports, reason = "of the command only what reads is asked for")]

mod analysis;
#[cfg(target_os = "linux")]
mod attach;
mod check;
mod cli;
mod commands;
mod diff;
mod export;
mod findings;
mod fuzzed;
mod import;
mod launch;
mod metrics;
mod new_file;
mod progress;
mod render;
mod spilled;
mod terminal;
mod top;
mod trace;

pub(crate) use terminal::{note, say};

/// Runs a target of the collectors, or of the command.
#[cfg(fuzzing)]
pub fn run(target: &str, data: &[u8]) {
    let all = gputrace_collectors::fuzzed::TARGETS.iter().chain(&fuzzed::TARGETS);
    all.into_iter().find(|(name, _)| *name == target).expect("a target").1(data);
}
