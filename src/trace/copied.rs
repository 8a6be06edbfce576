//! Files that stand in a trace twice: somebody copied a trace into another, or names both.
//!
//! A launcher has an id of its own and numbers its files, so a file of the same table, launcher and number, as long as the
//! other, is the same one, whatever folder it is in. A launcher whose folder was removed meanwhile goes on in a new one: its
//! files there have other numbers, and stay.

use std::path::Path;

use gputrace_collectors::schema::TABLES;
use rustc_hash::FxHashSet;

use super::Problem;
use super::files::Launcher;

/// The files of all folders so far: launcher, table, name and length.
#[derive(Default)]
pub(super) struct Seen(FxHashSet<(String, usize, String, u64)>);

impl Seen {
    /// Takes the copies out of what was found in a folder, and says so. Of a launcher that is there twice in it, the one with its
    /// account stays.
    pub(super) fn leave_out(&mut self, folder: &Path, found: &mut Vec<Launcher>, problem: &dyn Fn(Problem)) {
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_by_key(|at| found[*at].manifest.is_none());
        let mut copies = vec![false; found.len()];
        for at in order {
            let launcher = &mut found[at];
            let (mut count, id) = (0, launcher.id.clone());
            let mut is_new = |table: usize, file: &Path| {
                // A journal is named after its host as well, which a copy may have lost.
                let numbered = file.file_name().filter(|_| table < TABLES.len());
                let name = numbered.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let length = file.metadata().map_or(0, |about| about.len());
                let is_new = self.0.insert((id.clone(), table, name, length));
                count += usize::from(!is_new);
                is_new
            };
            for (table, files) in launcher.files.iter_mut().enumerate() {
                files.retain(|file| is_new(table, file));
            }
            launcher.journal = launcher.journal.take().filter(|journal| is_new(TABLES.len(), journal));
            if count == 0 {
                continue;
            }
            copies[at] = launcher.files.iter().all(Vec::is_empty) && launcher.journal.is_none();
            let files = if count == 1 { "a file".to_owned() } else { format!("{count} files") };
            let (host, id) = (&launcher.host, &launcher.id);
            problem(Problem::note(folder, format!("{files} of {host}-{id} are in the trace twice, and counted once")));
        }
        let mut copies = copies.into_iter();
        found.retain(|_| !copies.next().unwrap_or(false));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use crate::analysis::{Facts, Need};
    use crate::trace::testing::{START, TestTrace};
    use crate::trace::{Filter, Trace};

    fn copy(from: &Path, to: &Path) {
        let entries: Vec<PathBuf> = fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()).collect();
        fs::create_dir_all(to).unwrap();
        for entry in entries {
            let to = to.join(entry.file_name().unwrap());
            match entry.is_dir() {
                true => copy(&entry, &to),
                false => _ = fs::copy(&entry, &to).unwrap(),
            }
        }
    }

    /// Launches, processes and notes.
    fn of(folders: &[PathBuf]) -> (u64, usize, usize) {
        let trace = Trace::open(folders).unwrap();
        let filter = Filter::default();
        let facts = Facts::gather(&trace, &filter, &[Need::Launches]);
        assert!(trace.problems().iter().all(|problem| !problem.lost_rows()), "{:?}", trace.problems());
        (facts.launches.processes.iter().map(|(_, of)| of.count).sum(), trace.processes.len(), trace.problems().len())
    }

    #[test]
    fn a_copy_of_a_trace_is_counted_once_wherever_it_lies() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 1_000_000_000);
        let mut thread = made.thread(1, 11);
        (0..30).for_each(|_| thread.launch("k", 2_000));
        let trace = made.write_parts(2).to_owned();
        let alone = of(std::slice::from_ref(&trace));
        assert_eq!((alone.0, alone.2), (30, 0));
        // Inside of the trace, as its tables' folders stand there, and beside it.
        let inside = trace.join("backup");
        copy(&trace, &inside);
        assert_eq!(of(std::slice::from_ref(&trace)), alone);
        assert_eq!(of(&[trace.clone(), inside]), (alone.0, alone.1, 1));
        copy(&trace.join("launches/host=node"), &trace.join("launches/host=node (copy)"));
        assert_eq!(of(std::slice::from_ref(&trace)), (alone.0, alone.1, 1));
    }
}
