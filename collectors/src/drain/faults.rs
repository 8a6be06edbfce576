//! Programs of a session that outlives its collectors which a signal ended: whoever runs the collector decides whether they are traced
//! again.

use std::sync::PoisonError;

use super::Drain;
use crate::process::Process;

/// Deaths that nobody has asked for, at most.
const MOST: usize = 256;

/// A program that a signal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the executable, as the process itself saw it.
    pub exe: String,
    /// The first word of its command line that is no option.
    pub first_word: String,
    /// [`gputrace_abi::brake::key`] of both.
    pub program: u64,
    /// The signal.
    pub signal: i32,
    /// When it began, ns since the Unix epoch.
    pub start_ns: i64,
    /// When it ended.
    pub end_ns: i64,
}

/// Damaged processes that a reader is told of.
const MOST_TOLD: usize = 16;

impl Drain {
    /// Of a process whose segment was cut or written over nothing is to be relied on, and so of no sum that it is part of.
    pub(super) fn note_damage(&mut self, process: &Process, exe: &str) {
        let Some(damage) = process.damage() else { return };
        let told = self.manifest.notes.iter().filter(|note| note.ends_with(&damage)).count();
        if told < MOST_TOLD {
            self.manifest.note(&format!("process {} ({exe}): {damage}", process.pid));
        }
    }

    /// A process has ended. Those that were forked and called no exec are no programs of their own.
    pub(super) fn note_fault(&mut self, process: &Process) {
        let Some(fault) = process.fault(&self.clocks).filter(|_| self.config.collected) else { return };
        let mut report = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        report.faults.truncate(MOST - 1);
        report.faults.push_back(fault);
    }
}
