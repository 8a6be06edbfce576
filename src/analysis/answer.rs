//! From what an analysis is answered: single events where they are all there, the sums of all events where none was kept, and both
//! where some were removed.

use gputrace_collectors::schema::TableId;

use super::section::{Section, Table};
use super::sums::{DRIVER, alone, by_sums};
use super::{Analysis, Facts, loss};

/// Analyses that look at no single event.
pub(super) const OF_NO_EVENT: [&str; 6] = ["summary", "rollups", "counters", "node-health", "targets", "self"];
/// Analyses that sums answer in part.
const IN_PART: [&str; 5] = ["launch-overhead", "api", "syncs", "transfers", "device-memory"];

/// Whether a trace with sums alone has an answer of this analysis.
pub(crate) fn answers(analysis: &dyn Analysis) -> bool {
    OF_NO_EVENT.iter().chain(&IN_PART).any(|name| *name == analysis.name())
}

/// The answer of an analysis: from the sums, where these are all that there is.
pub(crate) fn answer(analysis: &dyn Analysis, facts: &Facts<'_>) -> Section {
    if OF_NO_EVENT.contains(&analysis.name()) {
        return analysis.section(facts);
    }
    if !alone(facts) {
        let section = of_chosen(analysis.section(facts), facts);
        let sums = lacks_rows(analysis, facts).then(|| of_all_events(analysis, facts)).flatten();
        return match sums {
            Some(sums) => beside(section, sums),
            None => section,
        };
    }
    by_sums(analysis, facts).unwrap_or_else(|| {
        let mut section = Section::default();
        section.note("No single event was kept (--detail), and this needs them.");
        section
    })
}

/// The same of a whole run whose rows were removed in part, and its sums were not.
pub(crate) fn of_all_events(analysis: &dyn Analysis, facts: &Facts<'_>) -> Option<Section> {
    (tells_all(analysis, facts) && is_summed(facts)).then(|| by_sums(analysis, facts)).flatten()
}

/// Of Metal's waits the sums do not tell those for room in a queue.
fn tells_all(analysis: &dyn Analysis, facts: &Facts<'_>) -> bool {
    !(analysis.name() == "syncs" && facts.processes().any(|process| facts.is_metal(process.process_id)))
}

/// What an analysis says without a look at any single event, to stand beside a trace that has none.
pub(crate) fn answer_by_sums(analysis: &dyn Analysis, facts: &Facts<'_>) -> Option<Section> {
    // What these say of a trace with single events takes these.
    let takes_events = matches!(analysis.name(), "targets" | "self");
    if OF_NO_EVENT.contains(&analysis.name()) && !takes_events {
        return Some(analysis.section(facts));
    }
    is_summed(facts).then(|| by_sums(analysis, facts)).flatten()
}

/// Whether rows that it counts were removed, and sums may tell of them.
pub(crate) fn lacks_rows(analysis: &dyn Analysis, facts: &Facts<'_>) -> bool {
    IN_PART.contains(&analysis.name()) && loss::is_removed(facts.trace, &DRIVER) && tells_all(analysis, facts)
}

/// An answer of the rows that are left, with the numbers that sums know of all that there were.
fn beside(mut section: Section, sums: Section) -> Section {
    for fact in sums.facts {
        match section.facts.iter_mut().find(|of| of.key == fact.key) {
            Some(of) => *of = fact,
            None => section.facts.push(fact),
        }
    }
    section.notes.retain(|note| !note.starts_with("No "));
    section.notes.insert(
        0,
        "Counts, totals and sums are of all events of the run, whatever rows were removed; everything else is of the rows that are left."
            .to_owned(),
    );
    for note in section.notes.iter_mut().filter(|note| note.starts_with("Removed ")) {
        *note = note.replace(", and not in the numbers above", "");
    }
    let new = |table: &Table| section.tables.iter().all(|of| of.key != table.key);
    let tables: Vec<Table> = sums.tables.into_iter().filter(new).collect();
    section.tables.splice(0..0, tables);
    section
}

/// Whether the whole run is reported, and the sums of all its events are there.
fn is_summed(facts: &Facts<'_>) -> bool {
    let filter = facts.filter;
    let whole = !filter.is_window() && filter.device.is_none() && filter.interval.is_none();
    whole && facts.rollups.range().is_some() && !loss::is_removed(facts.trace, &[TableId::Rollups])
}

/// Where only a part of the trace was asked for: what is not there may be elsewhere in it.
fn of_chosen(mut section: Section, facts: &Facts<'_>) -> Section {
    let none = |note: &&mut String| note.starts_with("No ") && !facts.filter.is_all();
    for note in section.notes.iter_mut().filter(none) {
        *note = note.replacen(" in this trace", " in what was chosen of this trace", 1);
    }
    section
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::names::NameKind;
    use serde_json::json;

    use super::*;
    use crate::analysis::ALL;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn where_rows_were_removed_counts_are_of_all_there_were() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, Some(0), START + 2_000_000_000);
        let api = trace.name(NameKind::Api, "cuStreamSynchronize");
        let values = json!({"api_id": api, "events": 10, "timed": 10, "total_ns": 1_000_000_000, "min_ns": 1,
            "max_ns": 100_000_000, "durations": "39:10"});
        trace.rollup(0, "sync", &values);
        let mut thread = trace.thread(1, 11);
        (0..10).for_each(|_| thread.sync("cuStreamSynchronize", "stream", 100_000_000));
        let gone = trace.remove_before(TableId::Syncs, START + 450_000_000);
        assert!((1..10).contains(&gone), "{gone}");
        let (opened, filter) = (trace.open(), Filter::default());
        let facts = Facts::gather(&opened, &filter, &ALL.iter().flat_map(|a| a.needs()).copied().collect::<Vec<_>>());
        let syncs = ALL.iter().find(|a| a.name() == "syncs").expect("syncs");
        let section = answer(*syncs, &facts);
        let waits = section.facts.iter().find(|fact| fact.key == "waits").map(|fact| fact.value.clone());
        assert_eq!(waits, Some(10i64.into()), "{:?}", section.facts);
        let keys: Vec<_> = section.tables.iter().map(|table| table.key).collect();
        assert!(keys.starts_with(&["sums"]) && keys.len() > 1, "{keys:?}");
        assert!(section.notes.iter().any(|note| note.contains("are of all events of the run")), "{:?}", section.notes);
        assert!(section.notes.iter().all(|note| !note.contains("not in the numbers above")), "{:?}", section.notes);
        // Of a window sums tell nothing.
        let window = Filter { to_ns: Some(START + 900_000_000), ..Filter::default() };
        let facts = Facts::gather(&opened, &window, &ALL.iter().flat_map(|a| a.needs()).copied().collect::<Vec<_>>());
        assert!(answer(*syncs, &facts).tables.iter().all(|table| table.key != "sums"));
    }
}
