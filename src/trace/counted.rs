//! How much of a trace's files a scan has read, for whoever watches: in bytes of the files, each as far as its rows are.

use std::fs;
use std::path::Path;

use super::Launcher;
use crate::progress::{self, Unit};
use gputrace_collectors::schema::TableId;

/// Begins a scan of these tables.
pub(super) fn begin(launchers: &[Launcher], tables: &[TableId]) {
    if !progress::is_seen() {
        return;
    }
    let of_table = |launcher: &Launcher, table: TableId| {
        let files = launcher.sealed(table).iter().chain(&launcher.journal);
        files.map(|file| size(file)).sum::<u64>()
    };
    let all = launchers.iter().flat_map(|launcher| tables.iter().map(move |table| of_table(launcher, *table))).sum();
    progress::stage(&progress::in_part("reading"), Some((all, Unit::Bytes)));
}

/// Ends it: what was read is made something of.
pub(super) fn end() {
    progress::stage(&progress::in_part("adding up"), None);
}

/// A file that is being read. When this goes all of it counts, however little of it was wanted.
pub(super) struct Counted {
    bytes: u64,
    rows: u64,
    read: u64,
    told: u64,
}

impl Counted {
    /// Of this file.
    pub(super) fn new(path: &Path) -> Counted {
        Counted { bytes: if progress::is_seen() { size(path) } else { 0 }, rows: 0, read: 0, told: 0 }
    }

    /// So many of its rows will be read.
    pub(super) fn expect(&mut self, rows: u64) {
        self.rows = rows;
    }

    /// So many more were.
    pub(super) fn add(&mut self, rows: usize) {
        self.read += rows as u64;
        let done = (u128::from(self.bytes) * u128::from(self.read) / u128::from(self.rows.max(1))) as u64;
        self.tell(done.min(self.bytes));
    }

    fn tell(&mut self, done: u64) {
        if done > self.told {
            progress::step(done - self.told);
            self.told = done;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.tell(self.bytes);
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |about| about.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_by_its_rows_and_in_the_end_as_a_whole() {
        let mut file = Counted { bytes: 1_000, rows: 4, read: 0, told: 0 };
        file.add(1);
        assert_eq!(file.told, 250);
        file.add(9);
        assert_eq!(file.told, 1_000, "no more than it has");
        let mut unknown = Counted { bytes: 10, rows: 0, read: 0, told: 0 };
        unknown.add(0);
        assert_eq!(unknown.told, 0);
    }
}
