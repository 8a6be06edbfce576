//! What the writer tells the drain and the launcher: what was lost, what was removed, what is wrong with the disk.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::stream::Sealed;
use crate::manifest::{Manifest, Removed, StoredTables};
use crate::share::{self, Share, add};

/// What is said where something could not be written.
pub(crate) fn trouble(trace: &Path, what: &str, error: &io::Error) -> String {
    let trace = trace.display();
    format!("{what} could not be written to {trace}: {error}; what finds no room is counted as dropped")
}

/// What is said where the manifest is gone.
const REMOVED: &str = "the trace was removed while it was written: what had been written until then is gone";

/// What the writer tells everybody else.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Files that were removed for the size limit.
    removed_files: Vec<String>,
    /// What stood in them, by table.
    removed: Vec<Removed>,
    /// Whose events.
    removed_events: Vec<Share>,
    pub(crate) notes: Vec<String>,
    /// What the tables have at the end.
    pub(super) stored: StoredTables,
    /// Lines for the launcher to print.
    pub(crate) warnings: VecDeque<String>,
    /// Rows that could not be stored.
    pub(crate) lost: Vec<Share>,
    /// Rows of `names` were among them.
    pub(crate) names_lost: bool,
}

/// The report, shared.
pub(crate) type Shared = Arc<Mutex<Report>>;

impl Report {
    /// Goes on with what an earlier collector's manifest says.
    pub(crate) fn go_on(&mut self, manifest: &Manifest) {
        self.removed_files.clone_from(&manifest.removed_files);
        self.removed.clone_from(&manifest.removed);
        self.removed_events = share::from_text(&manifest.removed_events).collect();
    }

    /// Completes a manifest by what the writer knows.
    pub(crate) fn complete(&self, manifest: &mut Manifest) {
        manifest.stored.clone_from(&self.stored);
        manifest.removed_files = self.removed_files.clone();
        manifest.removed = self.removed.clone();
        manifest.removed_events = share::to_text(&self.removed_events);
        self.notes.iter().for_each(|n| manifest.note(n));
        for share in &self.lost {
            manifest.lose(share);
        }
    }

    /// Sees whether somebody removed the trace while it is written. It is said once, and goes on in a new folder.
    pub(super) fn see_removal(&mut self, manifest_at: &Path, manifest: &mut Manifest) {
        if manifest_at.exists() || manifest_at.parent().is_some_and(|folder| fs::create_dir_all(folder).is_err()) {
            return;
        }
        if !self.notes.iter().any(|note| note == REMOVED) {
            self.notes.push(REMOVED.to_owned());
            self.warnings.push_back(REMOVED.to_owned());
        }
        manifest.note(REMOVED);
    }

    pub(super) fn lose(&mut self, shares: &[Share]) {
        for share in shares {
            add(&mut self.lost, *share);
        }
    }

    /// A sealed file was removed.
    pub(super) fn remove(&mut self, file: Sealed) {
        self.removed_files.push(file.name);
        file.shares.iter().for_each(|share| add(&mut self.removed_events, *share));
        let table = file.table.table().name;
        let of = match self.removed.iter().position(|removed| removed.table == table) {
            Some(at) => &mut self.removed[at],
            None => {
                self.removed.push(Removed { table: table.to_owned(), from_ns: i64::MAX, ..Removed::default() });
                let last = self.removed.len() - 1;
                &mut self.removed[last]
            }
        };
        of.rows += file.contents.rows;
        of.from_ns = of.from_ns.min(file.contents.from_ns);
        of.to_ns = of.to_ns.max(file.contents.to_ns);
    }
}
