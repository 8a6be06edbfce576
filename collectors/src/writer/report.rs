//! What the writer tells the drain and the launcher: what was lost, what was removed, what is wrong with the disk.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::stream::Sealed;
use crate::drain::Fault;
use crate::manifest::{Manifest, Removed, StoredTables};
use crate::share::{self, Share, add};

/// What is said where something could not be written.
pub(crate) fn trouble(trace: &Path, what: &str, error: &io::Error) -> String {
    let trace = trace.display();
    format!("{what} could not be written to {trace}: {error}; what finds no room is counted as dropped")
}

/// Files that were removed which the manifest names: in a run of weeks there are thousands.
const MOST_FILES: usize = 256;

/// What is said where the manifest is gone.
const REMOVED: &str = "the trace was removed while it was written: what had been written until then is gone";

/// What the writer tells everybody else.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Files that were removed to keep to limits: the last ones, and how many there were before.
    removed_files: VecDeque<String>,
    removed_before: u64,
    /// Files went since the manifest was last made.
    has_news: bool,
    /// What stood in them, by table.
    removed: Vec<Removed>,
    /// Whose events.
    removed_events: Vec<Share>,
    pub(crate) notes: Vec<String>,
    /// What the tables have at the end.
    pub(super) stored: StoredTables,
    /// Lines for the launcher to print.
    pub(crate) warnings: VecDeque<String>,
    /// Programs that a signal ended, for whoever keeps the brake.
    pub(crate) faults: VecDeque<Fault>,
    /// Rows that could not be stored.
    pub(crate) lost: Vec<Share>,
    /// The disk did not let the last files be whole: they and the journal are as a killed collector leaves them.
    pub(crate) left_unfinished: bool,
    /// Rows of `names` were among them.
    pub(crate) names_lost: bool,
}

/// The report, shared.
pub(crate) type Shared = Arc<Mutex<Report>>;

impl Report {
    /// Goes on with what an earlier collector's manifest says.
    pub(crate) fn go_on(&mut self, manifest: &Manifest) {
        self.removed_files = manifest.removed_files.iter().cloned().collect();
        self.removed_before = manifest.removed_before;
        self.removed.clone_from(&manifest.removed);
        share::from_text(&manifest.removed_events).for_each(|share| add(&mut self.removed_events, share));
    }

    /// Completes a manifest by what the writer knows.
    pub(crate) fn complete(&mut self, manifest: &mut Manifest) {
        if let Some(among) = manifest.among() {
            share::sum_up(&mut self.removed_events, &among);
            share::sum_up(&mut self.lost, &among);
        }
        manifest.stored.clone_from(&self.stored);
        manifest.removed_files = self.removed_files.iter().cloned().collect();
        manifest.removed_before = self.removed_before;
        manifest.removed = self.removed.clone();
        manifest.removed_events = share::to_text(&self.removed_events);
        self.notes.iter().for_each(|n| manifest.note(n));
        for share in &self.lost {
            manifest.lose(share);
        }
    }

    /// Whether the manifest lacks something that no event tells the drain.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
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

    /// A sealed file was removed to keep to this limit.
    pub(super) fn remove(&mut self, file: Sealed, limit: &str) {
        self.has_news = true;
        self.removed_files.push_back(file.name);
        if self.removed_files.len() > MOST_FILES {
            self.removed_files.pop_front();
            self.removed_before += 1;
        }
        file.shares.iter().for_each(|share| add(&mut self.removed_events, *share));
        let table = file.table.table().name;
        let at = self.removed.iter().position(|removed| removed.table == table && removed.limit == limit);
        let at = at.unwrap_or_else(|| {
            let (table, limit) = (table.to_owned(), limit.to_owned());
            self.removed.push(Removed { table, limit, rows: 0, from_ns: i64::MAX, to_ns: i64::MIN });
            self.removed.len() - 1
        });
        let of = &mut self.removed[at];
        of.rows += file.contents.rows;
        of.from_ns = of.from_ns.min(file.contents.from_ns);
        of.to_ns = of.to_ns.max(file.contents.to_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::Contents;
    use super::*;
    use crate::schema::TableId;

    #[test]
    fn of_thousands_of_files_that_went_the_manifest_names_the_last() {
        let mut report = Report::default();
        for n in 0..1000 {
            let contents = Contents { rows: 10, from_ns: n, to_ns: n + 1 };
            let name = n.to_string();
            let file = Sealed { table: TableId::Launches, name, bytes: 1, contents, shares: Vec::new() };
            report.remove(file, if n < 900 { "--max-size" } else { "--max-age" });
        }
        let mut manifest = Manifest::default();
        report.complete(&mut manifest);
        assert_eq!((manifest.removed_files.len(), manifest.removed_before), (MOST_FILES, 1000 - MOST_FILES as u64));
        assert_eq!(manifest.removed_files.last().map(String::as_str), Some("999"));
        let all: Vec<_> =
            manifest.removed.iter().map(|of| (of.limit.as_str(), of.rows, of.from_ns, of.to_ns)).collect();
        assert_eq!(all, [("--max-size", 9000, 0, 900), ("--max-age", 1000, 900, 1000)]);
        let mut next = Report::default();
        next.go_on(&manifest);
        let mut same = Manifest::default();
        next.complete(&mut same);
        assert_eq!((same.removed_files, same.removed_before), (manifest.removed_files, manifest.removed_before));
    }
}
