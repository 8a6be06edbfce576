//! What is missing from an analysis: events that found no room, and old rows that were removed to keep to limits of size and age.
//!
//! The account is of whole processes: how much of a loss lies in the span that `--from` and `--to` leave is not known.

use std::collections::BTreeSet;

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::{Removed, ShedPart};
use gputrace_collectors::schema::TableId;

use super::{Analysis, Facts, Need, Section};
use crate::render::{duration, number, share};
use crate::trace::{Problem, Process, Trace};

/// Events that were wanted, and those that found no room.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Loss {
    /// Recorded, each or in sums, and what `--detail` left out of that.
    pub(crate) recorded: u64,
    /// Dropped.
    pub(crate) dropped: u64,
}

/// Beyond this share of lost events nothing is called fine, and nothing is said to grow.
const MOST_LOST: f64 = 0.01;

impl Loss {
    /// Of the events whose rows are in these tables, in the processes that the filter keeps. None: no manifest says.
    pub(crate) fn of(facts: &Facts<'_>, tables: &[TableId]) -> Option<Loss> {
        let mut loss = None;
        for process in facts.processes() {
            loss = loss.or(process.manifest.as_ref().map(|_| Loss::default()));
            let of_process = Loss::of_process(process, tables);
            if let (Some(sum), Some(more)) = (&mut loss, of_process) {
                *sum = Loss { recorded: sum.recorded + more.recorded, dropped: sum.dropped + more.dropped };
            }
        }
        loss
    }

    /// Of the calls that findings are about.
    pub(crate) fn of_driver_calls(facts: &Facts<'_>) -> Option<Loss> {
        Loss::of(facts, &[TableId::Launches, TableId::Syncs, TableId::Transfers, TableId::DeviceMemory])
    }

    /// The same of one process.
    pub(crate) fn of_process(process: &Process, tables: &[TableId]) -> Option<Loss> {
        let accounts = &process.manifest.as_ref()?.accounting;
        let classes = tables.iter().flat_map(|table| table.classes());
        let counts = classes.filter_map(|class| accounts.get(*class));
        let sum = counts.fold(Loss::default(), |sum, count| Loss {
            recorded: sum.recorded + count.kept() + count.left_out,
            dropped: sum.dropped + count.dropped,
        });
        Some(sum)
    }

    /// The share that is lost, where that is too much to go by what is left.
    pub(crate) fn too_much(self) -> Option<f64> {
        Some(1.0 - self.kept()).filter(|lost| *lost > MOST_LOST)
    }

    /// The share of the events that is there.
    pub(crate) fn kept(self) -> f64 {
        let all = self.recorded + self.dropped;
        if all == 0 { 1.0 } else { self.recorded as f64 / all as f64 }
    }
}

/// Whether the pass counts or sums calls that launch kernels, or goes by their order.
fn is_of_launches(need: Need) -> bool {
    use Need::{Api, Critical, Launched, Launches, Ops, Ranges, Ranks, StepSums};
    matches!(need, Api | Critical | Launched | Launches | Ops | Ranges | Ranks | StepSums)
}

/// Launches of kernels that have no row, to keep to `--budget`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shed {
    /// How many.
    pub(crate) launches: u64,
    from_ns: i64,
    /// None: the end.
    to_ns: Option<i64>,
}

impl Shed {
    /// Those of some processes; none where all launches have a row.
    pub(crate) fn of<'p>(processes: impl Iterator<Item = &'p Process>) -> Option<Shed> {
        let parts = parts(processes).filter(|part| part.what == "launches" && part.sampled_out > 0);
        let shed = parts.map(|part| Shed { launches: part.sampled_out, from_ns: part.from_ns, to_ns: part.to_ns });
        shed.reduce(|one, other| Shed {
            launches: one.launches + other.launches,
            from_ns: one.from_ns.min(other.from_ns),
            to_ns: one.to_ns.zip(other.to_ns).map(|(one, other)| one.max(other)),
        })
    }

    /// `to keep to --budget 1,234 launches of kernels were left out between 1.00 s and the end`
    pub(crate) fn text(&self, trace: &Trace) -> String {
        let after = |at: i64| duration(at.saturating_sub(trace.began_ns()).max(0) as f64);
        let until = self.to_ns.map_or("the end".to_owned(), after);
        let (number, from) = (number(self.launches as f64), after(self.from_ns));
        format!("to keep to --budget {number} launches of kernels were left out between {from} and {until}")
    }
}

/// What was left out of processes to keep to the budget.
fn parts<'p>(processes: impl Iterator<Item = &'p Process>) -> impl Iterator<Item = &'p ShedPart> {
    processes.filter_map(|process| process.manifest.as_ref()?.budget.as_ref()).flat_map(|budget| &budget.shed)
}

/// From when on launches of a process were left out to keep to a budget; none: all of them have a row.
pub(crate) fn thinned_from(process: &Process) -> Option<i64> {
    Shed::of(std::iter::once(process)).map(|shed| shed.from_ns)
}

/// Why steps are not known of some process that the filter keeps: its launches were left out, and nothing else marks its steps.
pub(crate) fn steps_unknown(facts: &Facts<'_>) -> Option<String> {
    let without = |process: &&Process| facts.steps.of(process.process_id).is_none();
    let shed = Shed::of(facts.processes().filter(without))?;
    Some(format!("steps are not known: {}, and {STEP_CURE}", shed.text(facts.trace)))
}

/// What marks no step where launches were left out, and what to do.
pub(crate) const STEP_CURE: &str = "no wait, copy or range marks them for sure: record with a larger --budget or without one, \
    or name what a step begins with, which is no launch (--step NAME)";

/// Whether calls of a process have no stack because that would have cost more than the budget.
pub(crate) fn stacks_are_shed(process: &Process) -> bool {
    parts(std::iter::once(process)).any(|part| part.what == "stacks" && part.sampled_out > 0)
}

/// Says in the section of an analysis of launches that some were left out to keep to the budget, if some were.
pub(crate) fn note_shed(section: &mut Section, facts: &Facts<'_>, needs: &[Need]) {
    let shed = Shed::of(facts.processes()).filter(|_| needs.iter().any(|need| is_of_launches(*need)));
    if let Some(shed) = shed {
        let mut text = shed.text(facts.trace);
        text.replace_range(..1, "T");
        section.note(format!(
            "{text}: {}. The manifest counts them by function.",
            if needs.iter().any(|need| matches!(need, Need::Launches | Need::StepSums)) {
                "numbers of launches, and times in their calls, are estimates, in which a launch counts for those that it was drawn from"
            } else {
                "what is counted or summed of launches is without them"
            }
        ));
    }
}

/// Whether the account of a collector is not its last one.
pub(crate) fn is_incomplete(trace: &Trace) -> bool {
    trace.manifests().any(Manifest::is_cut_short)
}

/// Why what there is is not all, where a collector did not come to its end.
pub(crate) fn why_incomplete(trace: &Trace) -> &'static str {
    if trace.manifests().any(|manifest| !manifest.complete) {
        "the collector was killed, had no room for its account, or is still at work"
    } else {
        "the collector was killed, and the trace recovered"
    }
}

/// The same in a sentence, with what that means for what is reported; none where the trace is whole.
pub(crate) fn incomplete(trace: &Trace) -> Option<String> {
    let why = why_incomplete(trace).replacen('t', "T", 1);
    let cure = if trace.manifests().any(|manifest| !manifest.complete) {
        " gputrace recover makes a trace whole whose gputrace is gone."
    } else {
        ""
    };
    is_incomplete(trace).then(|| {
        format!(
            "{why}: here is what it had written. The last second before that, and all that came after it, may be missing.{cure}"
        )
    })
}

/// Says in the first section of a report that the trace is not whole, where none of its analyses says so by itself.
pub(crate) fn note_incomplete(sections: &mut [(&dyn Analysis, Section)], trace: &Trace) {
    let says_so = |(analysis, _): &(&dyn Analysis, Section)| matches!(analysis.name(), "summary" | "self");
    if !sections.iter().any(says_so) {
        let first = sections.first_mut().map(|(_, section)| section);
        first.into_iter().zip(incomplete(trace)).for_each(|(section, text)| section.note(text));
    }
}

/// Says in a section that some of a table's events are missing, if some are, and `what` they are.
pub(crate) fn note(section: &mut Section, facts: &Facts<'_>, what: &str, table: TableId) {
    if let Some(loss) = Loss::of(facts, &[table]).filter(|loss| loss.dropped > 0) {
        let (lost, all) = (number(loss.dropped as f64), number((loss.dropped + loss.recorded) as f64));
        let whole = if facts.filter.is_window() { " (of the whole run; of this window it is not known)" } else { "" };
        let killed = facts.trace.manifests().any(|manifest| !manifest.kills.is_empty() || manifest.recovered.is_some());
        let (why, advice) = if disk_was_full(facts.trace) {
            (
                "found no room and are lost",
                " The disk was full: record with -o on one with more room, or bound the trace with --max-size.",
            )
        } else if killed {
            // Of rings that were full meanwhile as well: which is not known.
            ("are lost, for gputrace was killed", "")
        } else {
            (
                "found no room and are lost",
                " Record with a larger --segment-memory, or with --on-full block to lose none.",
            )
        };
        section.note(format!(
            "{lost} of {all} {what} {why}{whole}: the numbers above rest on the other {} and are too low.{advice}",
            share(loss.kept())
        ));
    }
    unread_note(section, facts, what, &[table]);
    removed_note(section, facts, &[table]);
}

/// Whether old rows of any of these tables were removed for the size limit.
pub(crate) fn is_removed(trace: &Trace, tables: &[TableId]) -> bool {
    removed(trace).iter().any(|of| tables.iter().any(|table| of.table == table.table().name))
}

/// The limits for which old rows of these tables were removed, in words: of a trace of which some were.
pub(crate) fn limits(trace: &Trace, tables: &[TableId]) -> String {
    let of = |removed: &Removed| tables.iter().any(|table| removed.table == table.table().name);
    let all: BTreeSet<String> = removed(trace).into_iter().filter(of).map(|removed| removed.limit).collect();
    all.into_iter().collect::<Vec<_>>().join(" and ")
}

/// Says in a section that old rows of its tables were removed to keep to a limit, where that is so.
pub(super) fn removed_note(section: &mut Section, facts: &Facts<'_>, tables: &[TableId]) {
    let removed =
        removed(facts.trace).into_iter().filter(|of| tables.iter().any(|table| of.table == table.table().name));
    let spans: Vec<String> = removed.map(|removed| span(facts, &removed)).collect();
    if !spans.is_empty() {
        let spans = spans.join(", ");
        let limits = limits(facts.trace, tables);
        section.note(format!("Removed to keep to {limits}, and not in the numbers above: {spans}."));
    }
}

/// Says in a section that rows of its tables could not be read, where that is so, and `what` they are.
pub(super) fn unread_note(section: &mut Section, facts: &Facts<'_>, what: &str, tables: &[TableId]) {
    if let Some(problem) = unread(facts, tables) {
        section.note(format!("Some {what} could not be read and are not in the numbers above: {problem}"));
    }
}

/// Why rows of these tables could not be read, if some could not: the first reason, and how many more there are.
pub(crate) fn unread(facts: &Facts<'_>, tables: &[TableId]) -> Option<String> {
    let within = |problem: &Problem| {
        let inside = facts.trace.folders.iter().find_map(|folder| problem.path.strip_prefix(folder).ok());
        let first = inside.and_then(|path| path.components().next()).map(|part| part.as_os_str().to_owned());
        // A journal, and the manifest of another version, stand for rows of any table.
        first.is_none_or(|first| {
            first == "journal" || first == "manifest" || tables.iter().any(|of| first == of.table().name)
        })
    };
    let lost: Vec<Problem> = facts.trace.problems().into_iter().filter(|p| p.lost_rows() && within(p)).collect();
    let more = if lost.len() > 1 { format!(" (and {} more)", lost.len() - 1) } else { String::new() };
    lost.first().map(|problem| format!("{problem}{more}"))
}

/// Whether rows could not be written: the writer notes it, and counts what found no room as dropped.
pub(crate) fn disk_was_full(trace: &Trace) -> bool {
    trace.manifests().flat_map(|manifest| &manifest.notes).any(|note| note.contains("could not be written"))
}

/// Whether a collector of the process was killed within a time: what it had read last of it is lost.
pub(crate) fn is_gap(trace: &Trace, process_id: i64, (from, to): (i64, i64)) -> bool {
    let Some(manifest) = trace.manifest_of(process_id) else { return false };
    let last = manifest.recovered.map(|recovered| recovered.killed_ns);
    // It wrote its account between two looks at the rings: what it had read last is from a little before that.
    manifest.kills.iter().copied().chain(last).any(|at| from < at && to > at.saturating_sub(LOOK_NS))
}

/// Rings are looked at more often than that.
const LOOK_NS: i64 = 100_000_000;

/// What was removed to keep to limits of size and age: by table and limit, over all launchers.
pub(crate) fn removed(trace: &Trace) -> Vec<Removed> {
    let mut all: Vec<Removed> = Vec::new();
    for removed in trace.manifests().flat_map(|manifest| &manifest.removed) {
        match all.iter_mut().find(|known| known.table == removed.table && known.limit == removed.limit) {
            Some(known) => {
                known.rows += removed.rows;
                known.from_ns = known.from_ns.min(removed.from_ns);
                known.to_ns = known.to_ns.max(removed.to_ns);
            }
            None => all.push(removed.clone()),
        }
    }
    all
}

/// `launches 0 ns .. 3.20 s (1,234 rows)`: times since the trace began.
pub(crate) fn span(facts: &Facts<'_>, removed: &Removed) -> String {
    let after = |at: i64| duration(at.saturating_sub(facts.trace.began_ns()).max(0) as f64);
    let rows = number(removed.rows as f64);
    // A row of sums begins where its period does, the first one before the run.
    if removed.to_ns <= facts.trace.began_ns() {
        return format!("{} of the run's begin ({rows} rows)", removed.table);
    }
    format!("{} {} .. {} ({rows} rows)", removed.table, after(removed.from_ns), after(removed.to_ns))
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest;

    use crate::analysis::host_memory::HostMemory;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn what_went_with_a_killed_gputrace_did_not_find_too_little_room() {
        let notes = |kills: Vec<i64>| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000_000);
            let about = trace.manifest.as_mut().expect("a manifest");
            about.kills = kills;
            let count = manifest::Count { seen: 100, recorded: 90, dropped: 10, ..manifest::Count::default() };
            about.processes[0].accounting.insert("host_alloc".to_owned(), count);
            trace.thread(1, 11).malloc("alloc", 4096, 4096.0);
            trace.section(&HostMemory).notes.join("\n")
        };
        let full = notes(Vec::new());
        assert!(full.contains("found no room and are lost") && full.contains("--segment-memory"), "{full}");
        let killed = notes(vec![START + 500_000_000]);
        assert!(
            killed.contains("are lost, for gputrace was killed") && !killed.contains("--segment-memory"),
            "{killed}"
        );
    }
}
