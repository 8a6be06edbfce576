//! Rows that the manifest knows and the folder lacks, because somebody deleted them.
//!
//! Without this a report on such a trace would call launches fine that it never saw. What gputrace itself removed to
//! keep to limits of size and age is no damage: the manifest says from when to when it was, and so do the report's sections. The
//! manifest has each table's files since `stored` is in it; in an older one the accounts tell of tables that hold calls.

use std::path::Path;

use gputrace_collectors::Manifest;
use gputrace_collectors::schema::{TABLES, Table, TableId};

use super::Problem;
use super::files::Launcher;
use super::uses_metal;

/// Names the tables of a finished launcher of which files are gone.
pub(crate) fn name(folder: &Path, launcher: &Launcher, problem: &dyn Fn(Problem)) {
    let Some(manifest) = launcher.manifest.as_ref().filter(|m| m.complete && launcher.journal.is_none()) else {
        return;
    };
    let lost = |table: &Table, text: String| problem(Problem::lost(folder.join(table.name), text));
    // A folder that cannot be read is a problem of its own.
    let listed =
        |table: &Table| std::fs::read_dir(folder.join(table.name)).is_ok() || !folder.join(table.name).exists();
    if !manifest.stored.is_empty() {
        for table in TABLES.iter().filter(|table| listed(table)) {
            let Some(stored) = manifest.stored.get(table.name) else { continue };
            let files = stored.files.saturating_sub(launcher.sealed(table.id).len() as u64);
            if files == stored.files && files > 0 {
                lost(
                    table,
                    format!("none of its rows ({}) is in the trace any more: its files were removed", stored.rows),
                );
            } else if files > 0 {
                lost(
                    table,
                    format!("{files} of {} files are not in the trace any more: they were removed", stored.files),
                );
            }
        }
        return;
    }
    // No verdict calls the other calls fine (api), so their rows are not missed; most that is encoded is no dispatch.
    let is_looked_at = |id| match id {
        TableId::Api | TableId::Dispatches => false,
        // Of Metal, who did not have to wait for room, and the end of a heap's buffer, are other calls.
        TableId::Syncs | TableId::DeviceMemory => {
            !manifest.accounts().any(uses_metal) || launcher.sealed(TableId::Api).is_empty()
        }
        _ => true,
    };
    for table in TABLES.iter().filter(|table| is_looked_at(table.id)) {
        let name = table.name;
        let recorded = recorded(manifest, table.id.classes());
        let removed = manifest.removed.iter().any(|removed| removed.table == name);
        if recorded > 0 && launcher.sealed(table.id).is_empty() && !removed && listed(table) {
            lost(table, format!("{recorded} recorded events are not in the trace any more: their files were removed"));
        }
    }
}

fn recorded(manifest: &Manifest, classes: &[&str]) -> u64 {
    let accounts = manifest.accounts().flat_map(|p| &p.accounting);
    accounts.filter(|(class, _)| classes.contains(&class.as_str())).map(|(_, count)| count.kept()).sum()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use gputrace_collectors::manifest::{Count, Coverage, Hook, Process, Stored};

    use super::*;

    /// What is said of a process that recorded 12 events of a class in this hook, and left files of these tables.
    fn said(class: &str, hook: &str, tables: &[TableId]) -> Vec<String> {
        let count = Count { seen: 12, recorded: 12, ..Count::default() };
        let hooks = vec![Hook { name: hook.to_owned(), ..Hook::default() }];
        let coverage = Coverage { hooks, ..Coverage::default() };
        let process = Process { accounting: [(class.to_owned(), count)].into(), coverage, ..Process::default() };
        let manifest = Manifest { complete: true, processes: vec![process], ..Manifest::default() };
        let mut launcher = Launcher { manifest: Some(manifest), ..Launcher::default() };
        launcher.files.resize(TABLES.len(), Vec::new());
        tables.iter().for_each(|table| launcher.files[*table as usize].push("a-000000.parquet".into()));
        problems(&launcher)
    }

    fn problems(launcher: &Launcher) -> Vec<String> {
        let seen = RefCell::new(Vec::new());
        name(Path::new("trace"), launcher, &|problem| seen.borrow_mut().push(problem.to_string()));
        seen.into_inner()
    }

    #[test]
    fn every_table_is_held_against_what_the_manifest_has_of_it() {
        let stored = |name: &str, files, rows| (name.to_owned(), Stored { files, rows });
        let stored = [stored("kernels", 2, 40), stored("names", 1, 7), stored("threads", 1, 3)].into();
        let manifest = Manifest { complete: true, stored, ..Manifest::default() };
        let mut launcher = Launcher { manifest: Some(manifest), ..Launcher::default() };
        launcher.files.resize(TABLES.len(), Vec::new());
        let file = |launcher: &mut Launcher, table: TableId| launcher.files[table as usize].push("a".into());
        [TableId::Kernels, TableId::Threads].into_iter().for_each(|table| file(&mut launcher, table));
        let lines = problems(&launcher);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("trace/kernels: 1 of 2 files are not")), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("trace/names: none of its rows (7) is")), "{lines:?}");
        [TableId::Kernels, TableId::Names].into_iter().for_each(|table| file(&mut launcher, table));
        assert_eq!(problems(&launcher), Vec::<String>::new());
        // Of a launcher that is still at work, or was killed, nobody had the last word.
        let journal = Some("journal".into());
        assert_eq!(problems(&Launcher { manifest: launcher.manifest, journal, ..Launcher::default() }).len(), 0);
    }

    #[test]
    fn a_table_that_the_manifest_knows_and_the_folder_lacks_is_named() {
        let lines = said("launch", "cuLaunchKernel", &[TableId::Api]);
        assert!(lines.len() == 1 && lines[0].contains("12 recorded events"), "{lines:?}");
        assert_eq!(said("launch", "cuLaunchKernel", &[TableId::Launches]), Vec::<String>::new());
    }

    #[test]
    fn command_buffers_that_had_room_are_no_waits_that_are_missing() {
        let hook = "[MTLCommandQueue commandBuffer]";
        assert_eq!(said("sync", hook, &[TableId::Api]), Vec::<String>::new());
        assert_eq!(said("sync", hook, &[]).len(), 1);
        assert_eq!(said("sync", "cuStreamSynchronize", &[TableId::Api]).len(), 1);
    }
}
