//! Processes of two runs, by what is the same in both: a pid is not.

use rustc_hash::FxHashMap;

use crate::analysis::{Facts, Section, Value};
use crate::trace::Process;

/// Columns that name a process, or a process and its device, within its run.
const COLUMN: &str = "subject";

/// What each process that has no rank is called in a comparison: its program, and from the second of that program on its place among
/// them in the order of their start.
pub(super) fn names(facts: &Facts<'_>) -> FxHashMap<String, String> {
    let mut processes: Vec<&Process> = facts.processes().filter(|process| process.rank.is_none()).collect();
    processes.sort_by_key(|process| (process.start_ns, process.process_id));
    let mut seen: FxHashMap<&str, usize> = FxHashMap::default();
    let mut names = FxHashMap::default();
    for process in processes {
        if process.summed > 0 {
            names.insert(process.label(), "processes that ended".to_owned());
            continue;
        }
        let program = process.exe.rsplit('/').next().unwrap_or(&process.exe);
        let place = seen.entry(program).or_default();
        *place += 1;
        let name = if *place == 1 { program.to_owned() } else { format!("{program} ({place})") };
        // A process that executed another program keeps its pid, and its rows follow the first name.
        names.entry(process.label()).or_insert(name);
    }
    // Of several processes that have one rank, their place in that order tells which is which.
    let mut shared: Vec<&Process> = facts.processes().filter(|process| process.apart.is_some()).collect();
    shared.sort_by_key(|process| (process.rank, process.start_ns, process.process_id));
    for of_rank in shared.chunk_by(|one, next| one.rank == next.rank) {
        for (process, place) in of_rank.iter().zip(1..) {
            let name = format!("rank {} ({place})", process.rank.unwrap_or_default());
            names.entry(process.label()).or_insert(name);
        }
    }
    names
}

/// Gives the rows of a section these names: `pid 4711 on H200` becomes `python on H200`.
pub(super) fn rename(section: &mut Section, names: &FxHashMap<String, String>) {
    for table in &mut section.tables {
        let Some(at) = table.columns.iter().position(|column| column.key == COLUMN) else { continue };
        for row in &mut table.rows {
            let Value::Text(text) = &row[at] else { continue };
            let (label, rest) = match text.split_once(" on ") {
                Some((label, rest)) => (label, format!(" on {rest}")),
                None => (text.as_str(), String::new()),
            };
            if let Some(name) = names.get(label) {
                row[at] = Value::from(format!("{name}{rest}"));
            }
        }
    }
}
