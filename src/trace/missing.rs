//! Rows that the manifest knows and the folder lacks, because somebody deleted them.
//!
//! Without this a report on such a trace would call launches fine that it never saw. What gputrace itself removed to
//! keep to `--max-size` is no damage: the manifest says from when to when it was, and so do the report's sections.

use std::path::Path;

use gputrace_collectors::Manifest;
use gputrace_collectors::schema::{TABLES, TableId};

use super::Problem;
use super::files::Launcher;

/// Names the tables of a finished launcher that are gone altogether.
pub(crate) fn name(folder: &Path, launcher: &Launcher, problem: &dyn Fn(Problem)) {
    let Some(manifest) = launcher.manifest.as_ref().filter(|m| m.complete && launcher.journal.is_none()) else {
        return;
    };
    // No verdict calls the other calls fine (api), so their rows are not missed; most that is encoded is no dispatch.
    for table in TABLES.iter().filter(|table| !matches!(table.id, TableId::Api | TableId::Dispatches)) {
        let name = table.name;
        let recorded = recorded(manifest, table.id.classes());
        let removed = manifest.removed.iter().any(|removed| removed.table == name);
        // A folder that cannot be read is a problem of its own.
        let listed = std::fs::read_dir(folder.join(name)).is_ok() || !folder.join(name).exists();
        if recorded > 0 && launcher.sealed(table.id).is_empty() && !removed && listed {
            let text = format!("{recorded} recorded events are not in the trace any more: their files were removed");
            problem(Problem::lost(folder.join(name), text));
        }
    }
}

fn recorded(manifest: &Manifest, classes: &[&str]) -> u64 {
    let accounts = manifest.processes.iter().flat_map(|p| &p.accounting);
    accounts.filter(|(class, _)| classes.contains(&class.as_str())).map(|(_, count)| count.recorded).sum()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use gputrace_collectors::manifest::{Count, Process};

    use super::*;

    #[test]
    fn a_table_that_the_manifest_knows_and_the_folder_lacks_is_named() {
        let launches = Count { seen: 12, recorded: 12, ..Count::default() };
        let process = Process { accounting: [("launch".to_owned(), launches)].into(), ..Process::default() };
        let manifest = Manifest { complete: true, processes: vec![process], ..Manifest::default() };
        let mut launcher = Launcher { manifest: Some(manifest), ..Launcher::default() };
        let problems = |launcher: &Launcher| {
            let seen = RefCell::new(Vec::new());
            name(Path::new("trace"), launcher, &|problem| seen.borrow_mut().push(problem.to_string()));
            seen.into_inner()
        };
        let said = problems(&launcher);
        assert!(said.len() == 1 && said[0].contains("12 recorded events"), "{said:?}");
        launcher.files.resize(TABLES.len(), vec!["launches/host=h/a-000000.parquet".into()]);
        assert_eq!(problems(&launcher), Vec::<String>::new());
    }
}
