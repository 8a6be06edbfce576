//! Rows that the manifest knows and the folder lacks: deleted by hand, or removed to keep to `--max-size`.
//!
//! Without this a report on such a trace would call launches fine that it never saw.

use std::path::Path;

use gputrace_collectors::Manifest;
use gputrace_collectors::schema::TableId;

use super::Problem;
use super::files::Launcher;

/// Tables and the classes whose events are their rows.
const CLASSES: [(TableId, &str, &[&str]); 5] = [
    (TableId::Launches, "launches", &["launch"]),
    (TableId::Syncs, "syncs", &["sync"]),
    (TableId::Transfers, "transfers", &["transfer"]),
    (TableId::DeviceMemory, "device_memory", &["alloc", "free"]),
    (TableId::HostMemory, "host_memory", &["host_alloc", "host_free"]),
];

/// Names the tables of a finished launcher that are gone altogether, and says when old files were removed.
pub(crate) fn name(folder: &Path, launcher: &Launcher, problem: &dyn Fn(Problem)) {
    let Some(manifest) = launcher.manifest.as_ref().filter(|m| m.complete && launcher.journal.is_none()) else {
        return;
    };
    for (table, name, classes) in CLASSES {
        let recorded = recorded(manifest, classes);
        if recorded > 0 && launcher.sealed(table).is_empty() {
            let text = format!("{recorded} recorded events are not in the trace any more: their files were removed");
            problem(Problem::lost(folder.join(name), text));
        }
    }
    if !manifest.removed_files.is_empty() {
        let text = format!("{} older files were removed to keep to --max-size", manifest.removed_files.len());
        problem(Problem::note(folder, text));
    }
}

fn recorded(manifest: &Manifest, classes: &[&str]) -> u64 {
    let accounts = manifest.processes.iter().flat_map(|p| &p.accounting);
    accounts.filter(|(class, _)| classes.contains(&class.as_str())).map(|(_, count)| count.recorded).sum()
}
