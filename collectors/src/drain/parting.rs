//! What is let go of a process that has ended: the file of its segment, and what the heir holds of it.
//!
//! Not before the disk has its rows and its account. Whoever goes on for a collector that was killed would find neither the process's
//! last counts nor its end, and could not say what is lost.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError};

use super::Drain;
use crate::process::Process;

/// The disk is not asked more often, nor for more than a hundredth of the time, unless so many wait.
const AGE: Duration = Duration::from_millis(250);
const SHARE: u32 = 100;
const MANY: usize = 512;

/// A process that has ended, and was read to its end.
struct Gone {
    id: i64,
    file: Option<PathBuf>,
    kept: Option<PathBuf>,
}

/// Those of which something is there still.
pub(super) struct Parting {
    waiting: Vec<Gone>,
    /// The writer was told to bring these to the disk.
    asked: Option<(Receiver<bool>, Vec<Gone>)>,
    at: Instant,
    takes: Duration,
}

impl Default for Parting {
    fn default() -> Parting {
        Parting { waiting: Vec::new(), asked: None, at: Instant::now(), takes: Duration::ZERO }
    }
}

impl Drain {
    /// A process's rings were read to their end, and it was described.
    pub(super) fn part_from(&mut self, mut process: Process) {
        if self.config.standing && process.ended_ns.is_none() {
            // It runs on with its segment: a later collector finds it there, and what it told once.
            return process.close_account();
        }
        self.parting.waiting.push(Gone { id: process.id, file: process.file.take(), kept: process.kept.take() });
    }

    /// Lets go of what the disk has by now.
    pub(super) fn let_written_go(&mut self) {
        if let Some((written, gone)) = self.parting.asked.take() {
            match written.try_recv() {
                Err(TryRecvError::Empty) => self.parting.asked = Some((written, gone)),
                Ok(true) => gone.into_iter().for_each(|gone| self.let_go(gone)),
                // The disk is full. Later it may not be.
                Ok(false) | Err(TryRecvError::Disconnected) => self.parting.waiting.extend(gone),
            }
        }
        let due =
            self.parting.at.elapsed() >= AGE.max(self.parting.takes * SHARE) || self.parting.waiting.len() >= MANY;
        if self.parting.asked.is_none() && !self.parting.waiting.is_empty() && due {
            let gone = std::mem::take(&mut self.parting.waiting);
            let begun = Instant::now();
            self.take_names_again();
            self.send_rows(false);
            let written = self.bring_to_disk();
            (self.parting.at, self.parting.takes) = (begun, begun.elapsed());
            self.parting.asked = Some((written, gone));
        }
    }

    /// The same at the end, when the disk has all.
    pub(super) fn let_all_go(&mut self) {
        let asked = self.parting.asked.take().map(|(_, gone)| gone).unwrap_or_default();
        let waiting = std::mem::take(&mut self.parting.waiting);
        asked.into_iter().chain(waiting).for_each(|gone| self.let_go(gone));
    }

    fn let_go(&mut self, gone: Gone) {
        self.will.ended(gone.id);
        if let Some(file) = &gone.file {
            self.arrivals.forget(file);
        }
        if let Some(kept) = &gone.kept {
            let _ = std::fs::remove_file(kept);
        }
    }
}
