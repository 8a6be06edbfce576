//! What the analyses of malloc by stack share: the stacks of all processes, largest first, and how a row shows one.

use super::passes::allocations::{Amount, AtStack, OfProcess};
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Facts, apart, loss};
use crate::trace::{NO_STACK, OTHER_STACKS, Site};
use gputrace_collectors::Manifest;
use gputrace_collectors::schema::TableId;

/// Stands in place of a site for allocations of which no stack is known.
pub(super) const NONE: &str = "(no stack)";
/// Stacks of each of which there is little.
const OTHERS: &str = "(other stacks)";
/// Stacks of a table: each has all of its frames in JSON.
const MOST: usize = 200;

/// The first columns of a table by stack.
pub(super) const PROCESS: Column = column("process", "Process", Unit::Text);
/// Whose line.
pub(super) const SITE: Column = column("site", "Line", Unit::Text);
/// The last ones.
pub(super) const PLACE: Column = column("place", "File", Unit::Name);
/// Where several rows are of one line, what tells them apart.
pub(super) const VIA: Column = column("via", "Via", Unit::Name);
/// All of the stack.
pub(super) const STACK: Column = column("stack", "Stack", Unit::Stack);
/// Its id, in digits, of which programs that read JSON keep all.
pub(super) const STACK_ID: Column = column("stack_id", "Id", Unit::Stack);

/// A stack of a process.
#[derive(Clone, Copy)]
pub(crate) struct OfStack<'a> {
    /// The process.
    pub(crate) process_id: i64,
    /// The stack's id, or [`NO_STACK`].
    pub(crate) stack_id: i64,
    /// What it did.
    pub(crate) stack: &'a AtStack,
    /// What its process did.
    pub(crate) process: &'a OfProcess,
}

/// Less is what rounding left of sums and differences of weights.
const DUST: f64 = 0.5;

/// All stacks of which there is some of a quantity, most first; others together last.
pub(super) fn largest<'a>(facts: &'a Facts<'_>, of: impl Fn(&OfStack<'a>) -> f64) -> Vec<OfStack<'a>> {
    let all = facts.allocations.stacks.iter().filter_map(|((process_id, stack_id), stack)| {
        let process = facts.allocations.processes.get(process_id)?;
        Some(OfStack { process_id: *process_id, stack_id: *stack_id, stack, process })
    });
    let mut all: Vec<(f64, OfStack<'a>)> = all.map(|stack| (of(&stack), stack)).filter(|(of, _)| *of > DUST).collect();
    all.sort_by(|(a_of, a), (b_of, b)| {
        let others = |stack: &OfStack<'_>| stack.stack_id == OTHER_STACKS;
        (others(a).cmp(&others(b)))
            .then_with(|| b_of.total_cmp(a_of))
            .then_with(|| (facts.place(a.process_id), a.stack_id).cmp(&(facts.place(b.process_id), b.stack_id)))
    });
    all.into_iter().map(|(_, stack)| stack).collect()
}

impl<'a> AsRef<OfStack<'a>> for OfStack<'a> {
    fn as_ref(&self) -> &OfStack<'a> {
        self
    }
}

impl OfStack<'_> {
    /// Its site, where it is known.
    pub(crate) fn site<'a>(&self, facts: &'a Facts<'_>) -> Option<&'a Site> {
        facts.stacks.get(self.stack_id)
    }

    /// Its site as it is shown.
    pub(super) fn named(&self, facts: &Facts<'_>) -> String {
        let none = if self.stack_id == OTHER_STACKS { OTHERS } else { NONE };
        self.site(facts).map_or_else(|| none.to_owned(), Site::short)
    }

    /// A row: process, line, these values, what tells it apart, file, all of the stack and its id.
    fn row<const N: usize>(&self, facts: &Facts<'_>, values: [Value; N], via: Option<String>) -> Vec<Value> {
        let site = self.site(facts);
        let id = (self.stack_id >= 0).then(|| self.stack_id.to_string());
        let head = [facts.label(self.process_id).into(), self.named(facts).into()];
        let tail = [via.into(), site.map(Site::place).into(), facts.stacks.whole(self.stack_id).into(), id.into()];
        head.into_iter().chain(values).chain(tail).collect()
    }

    /// Of its allocations those that lived shortly.
    pub(super) fn short(&self, facts: &Facts<'_>) -> Amount {
        let mut short = self.stack.short;
        if sees_each_call(facts, self.process_id) {
            short.add(self.stack.before_next);
        }
        short
    }
}

/// A table by stack of the first of `all`: its name and title, and what stands between a row's site and what tells it apart.
pub(super) fn table<'a, T: AsRef<OfStack<'a>>, const N: usize>(
    facts: &Facts<'_>,
    all: &[T],
    [name, title]: [&'static str; 2],
    columns: &'static [Column],
    values: impl Fn(&T) -> [Value; N],
) -> Table {
    let shown = &all[..all.len().min(MOST)];
    let stacks: Vec<OfStack<'a>> = shown.iter().map(|row| *row.as_ref()).collect();
    let ways = apart::ways(facts, &stacks);
    let rows = shown.iter().zip(stacks).zip(ways).map(|((row, of), via)| of.row(facts, values(row), via)).collect();
    Table { left_out: all.len() - shown.len(), ..Table::new(name, title, columns, rows) }
}

/// Whether every call of malloc in a process has its own row, so that it is known which is the next one of a thread.
pub(super) fn sees_each_call(facts: &Facts<'_>, process_id: i64) -> bool {
    let full = facts.trace.process(process_id).is_some_and(|process| process.malloc_mode.starts_with("full"));
    full && facts.allocations.processes.get(&process_id).is_some_and(|process| process.culled == 0.0)
}

/// A whole number of estimated blocks or calls.
pub(super) fn whole(number: f64) -> Value {
    Value::from(number.round().max(0.0) as i64)
}

/// Less of an estimate is nothing, and what weights that were added and taken off left of their last digits.
const LEAST_BYTES: f64 = 0.5;

fn beyond_rounding(bytes: f64) -> f64 {
    if bytes < LEAST_BYTES { 0.0 } else { bytes }
}

/// Bytes; what rows of several threads brought in another order is none.
pub(super) fn bytes(bytes: f64) -> Value {
    Value::from(beyond_rounding(bytes))
}

/// A part of a quantity in each steady step of a process, where there are steps.
pub(super) fn per_step(facts: &Facts<'_>, process_id: i64, steady: f64) -> Option<f64> {
    let steps = facts.steps.of(process_id)?.sorted_ns.len();
    (steps > 0).then(|| steady / steps as f64)
}

/// Two standard deviations of an estimate, in percent of it; not known where events were lost or removed.
pub(super) fn error_percent(facts: &Facts<'_>, amount: Amount) -> Value {
    let known = has_errors(facts) && amount.bytes >= LEAST_BYTES;
    known.then(|| 100.0 * amount.error_bytes() / amount.bytes).into()
}

/// The same in bytes.
pub(super) fn error_bytes(facts: &Facts<'_>, amount: Amount) -> Value {
    has_errors(facts).then(|| amount.error_bytes()).into()
}

/// Whether estimates have an error that is known: not where events were lost or removed.
fn has_errors(facts: &Facts<'_>) -> bool {
    let dropped = loss::Loss::of(facts, &[TableId::HostMemory]).is_some_and(|loss| loss.dropped > 0);
    !dropped && !is_removed(facts)
}

/// Whether old rows of malloc were removed to keep to a limit.
pub(super) fn is_removed(facts: &Facts<'_>) -> bool {
    loss::is_removed(facts.trace, &[TableId::HostMemory])
}

/// Says that there is nothing, where there is nothing, and what is missing. Whether there is something.
pub(super) fn begin(section: &mut Section, facts: &Facts<'_>) -> bool {
    let any = facts.allocations.processes.iter().next().is_some();
    if !any {
        section.note(nothing(facts));
    } else if facts.allocations.stacks.iter().all(|((_, stack_id), _)| *stack_id == NO_STACK) {
        section
            .note("No allocation has a stack: none were taken (--stacks off, --malloc-stacks off, an older version).");
    }
    loss::note(section, facts, "events of malloc and free", TableId::HostMemory);
    any
}

/// One free in so many has a block from before the trace in any program.
const FEW: u64 = 100;

/// Says of how many frees the allocation is not known, where every call is recorded and they are more than a few.
pub(super) fn note_unknown_frees(section: &mut Section, facts: &Facts<'_>) {
    let hosts = facts.host_memory.processes.iter().map(|(_, host)| host.frees);
    let (all, unknown) = hosts.fold((0, 0), |sum, frees| (sum.0 + frees.0, sum.1 + frees.1));
    if !facts.filter.is_window() && unknown > all / FEW {
        section.note(format!(
            "{} of {} frees are of blocks whose allocation is not known in their process: from before it was traced, in a child of fork its parent's, or by ways that \
             are not recorded (an allocator's own functions, libc's __libc_malloc, pointers to operator new, what a library's constructors allocate).",
            crate::render::number(unknown as f64),
            crate::render::number(all as f64),
        ));
    }
}

/// Whether beginnings of blocks are told late, so that more stand side by side than did.
fn begins_early(facts: &Facts<'_>) -> bool {
    let early = |manifest: &Manifest| manifest.host_memory.cull_ns.is_some() && !manifest.host_memory.stacks;
    facts.trace.manifests().any(early)
}

/// Title of a peak.
pub(super) fn peak_title(facts: &Facts<'_>) -> &'static str {
    if begins_early(facts) { "most live at once (about)" } else { "most live at once" }
}

/// Says that beginnings are early.
pub(super) fn note_early_starts(section: &mut Section, facts: &Facts<'_>) {
    if begins_early(facts) {
        section.note(
            "With --cull and without stacks the beginnings of blocks below a KiB may be early, by up to 5 ms and more where the collector had \
             to wait: where a thread replaces many within that time, and frees none of another thread's, the peak may have both the old ones and the \
             new. Without --cull, or with stacks, it is exact.",
        );
    }
}

/// The error of a peak: not known where blocks begin early.
pub(super) fn of_peak(facts: &Facts<'_>, error: Value) -> Value {
    if begins_early(facts) { Value::Missing } else { error }
}

/// Says where samples were made rare to keep to a budget, and what that means for what lives.
pub(super) fn note_rare_samples(section: &mut Section, facts: &Facts<'_>) {
    let budgets = facts.trace.manifests().flat_map(Manifest::accounts).filter_map(|process| process.budget.as_ref());
    let parts = budgets.flat_map(|budget| &budget.shed).filter(|part| part.what == "malloc");
    if let Some(times) = parts.filter_map(|part| part.one_in).max() {
        section.note(format!(
            "To keep to --budget samples of malloc lay up to {times} times as far apart for some time: of what was allocated then and \
             lives only that is known on which one fell, and of the rest the errors say nothing.",
        ));
    }
}

/// Why there is nothing.
pub(super) fn nothing(facts: &Facts<'_>) -> String {
    if is_removed(facts) {
        let limits = loss::limits(facts.trace, &[TableId::HostMemory]);
        return format!("No malloc or free is left in this trace: older rows were removed to keep to {limits}.");
    }
    if let Some(reason) = loss::unread(facts, &[TableId::HostMemory]) {
        return format!("No malloc or free could be read in this trace: {reason}");
    }
    if loss::is_incomplete(facts.trace) {
        return "No malloc or free in what had been written of this trace.".to_owned();
    }
    let all = || facts.trace.manifests().flat_map(Manifest::accounts);
    let refused = all().find_map(|process| process.reason.as_ref().filter(|reason| reason.contains("malloc")));
    let untraced = facts.trace.manifests().flat_map(|manifest| &manifest.untraced).next();
    match (refused, untraced) {
        (Some(reason), _) => format!("No malloc or free in this trace: {reason}."),
        (None, Some(one)) if all().next().is_none() => {
            format!("No malloc or free in this trace: {} was not traced ({}).", one.exe, one.reason)
        }
        _ => "No malloc or free in this trace (recorded with --malloc off, or too little to be sampled).".to_owned(),
    }
}

/// Less than this by malloc is no word at the end of a run that did not ask for each call.
const WORTH_A_LINE: f64 = (16 << 20) as f64;

/// What malloc gave to the process that had most live at once, in a line for a run that is about nothing else; none where it is little.
pub(crate) fn line(facts: &Facts<'_>) -> Option<String> {
    use crate::render::{bytes, share};
    let processes = facts.allocations.processes.iter();
    let (id, process) = processes.max_by(|(_, a), (_, b)| a.peak.bytes.total_cmp(&b.peak.bytes))?;
    let all = process.sums.all.bytes;
    let asked = facts.trace.process(*id).is_some_and(|process| process.malloc_mode == "full");
    if !asked && all < WORTH_A_LINE || all <= 0.0 {
        return None;
    }
    let at_peak = |of: &OfStack<'_>| if of.process_id == *id { of.stack.at_peak(of.process).bytes } else { 0.0 };
    let of_most = largest(facts, at_peak);
    let first = of_most.first().and_then(|of| Some((at_peak(of), of.site(facts)?)));
    let by = first.map_or_else(String::new, |(part, site)| {
        format!(" ({} by {})", share(part / process.peak.bytes.max(1.0)), site.short())
    });
    let about = if asked { "" } else { "about " };
    let early = if begins_early(facts) { "about " } else { "" };
    let limits = loss::limits(facts.trace, &[TableId::HostMemory]);
    let left = if limits.is_empty() { String::new() } else { format!(", in the rows that {limits} left") };
    let loss = facts.trace.process(*id).and_then(|process| loss::Loss::of_process(process, &[TableId::HostMemory]));
    let lost = loss.filter(|loss| loss.dropped > 0);
    let lost = lost.map_or_else(String::new, |loss| {
        format!(", without the {} of its events that were lost", share(1.0 - loss.kept()))
    });
    let name = match (facts.program(*id), facts.allocations.processes.iter().count()) {
        (None, _) => facts.label(*id),
        (Some(program), 1) => program,
        (Some(program), many) => format!("{program} ({}, of {many} processes that with most live)", facts.label(*id)),
    };
    Some(format!(
        "malloc of {name}: {about}{} allocated, most live {early}{}{by}, {} live at the end{left}{lost}\n",
        bytes(all),
        bytes(process.peak.bytes),
        bytes(beyond_rounding(process.live.bytes)),
    ))
}

/// Whether an analysis of malloc has something to say.
pub(super) fn any(facts: &Facts<'_>) -> bool {
    facts.allocations.processes.iter().next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::analysis::Need;
    use crate::analysis::host_memory::HostMemory;
    use crate::trace::testing::{START, TestTrace};
    use crate::trace::{Filter, Trace};

    #[test]
    fn a_run_about_nothing_else_is_told_what_malloc_held_where_that_was_much() {
        for (bytes, told) in [(1 << 20, false), (64 << 20, true)] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 200_000_000);
            let load = trace.stack("load", "/home/u/data.py", 31);
            let mut thread = trace.thread(1, 11);
            thread.malloc_at(load, bytes, bytes as f64);
            thread.malloc_at(load, bytes / 2, bytes as f64 / 2.0);
            let trace = trace.open();
            let filter = Filter::default();
            let facts = Facts::gather(&trace, &filter, &[Need::Allocations]);
            let expected = "malloc of python: about 96.0 MiB allocated, most live 96.0 MiB (100 % by data.py:31 load), \
                96.0 MiB live at the end\n";
            assert_eq!(line(&facts), told.then(|| expected.to_owned()));
        }
    }

    #[test]
    fn a_peak_of_blocks_that_begin_early_is_about_right() {
        for (stacks, told) in [(true, "most live 1.00 KiB, "), (false, "most live about 1.00 KiB, ")] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000);
            trace.set(TableId::Processes, "malloc_mode", &serde_json::json!("full"));
            trace.thread(1, 11).malloc("alloc", 1024, 1024.0);
            let recorded = &mut trace.manifest.as_mut().unwrap().host_memory;
            (recorded.stacks, recorded.cull_ns) = (stacks, Some(10_000_000));
            let (trace, filter) = (trace.open(), Filter::default());
            let line = line(&Facts::gather(&trace, &filter, &[Need::Allocations])).unwrap();
            assert!(line.contains(told), "{line}");
        }
    }

    #[test]
    fn of_a_damaged_file_the_share_that_is_here_is_not_known() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        (0..4).for_each(|_| trace.thread(1, 11).malloc("alloc", 1000, 1000.0));
        let folder = trace.write_parts(2).to_owned();
        let file = std::fs::read_dir(folder.join("host_memory/host=node")).unwrap().next().unwrap().unwrap().path();
        std::fs::write(&file, "PAR1").unwrap();
        let (trace, filter) = (Trace::open(&[folder]).unwrap(), Filter::default());
        let section = HostMemory.section(&Facts::gather(&trace, &filter, HostMemory.needs()));
        assert_eq!((section.get("rows"), section.get("kept_percent")), (&Value::Int(2), &Value::Missing));
    }

    #[test]
    fn frees_of_blocks_that_nobody_saw_are_told_where_they_are_many() {
        for (unknown, told) in [(0, false), (1, true)] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000);
            trace.set(TableId::Processes, "malloc_mode", &serde_json::json!("full"));
            let mut thread = trace.thread(1, 11);
            let block = thread.malloc_at(7, 64, 64.0);
            thread.free_block(&block);
            (0..unknown).for_each(|_| thread.host_memory("free", 0, 0.0, serde_json::json!({})));
            let section = trace.section(&HostMemory);
            let says = section.notes.iter().any(|note| note.starts_with("1 of 2 frees are of blocks"));
            assert_eq!(says, told, "{:?}", section.notes);
        }
    }

    #[test]
    fn what_rounding_leaves_of_weights_is_nothing_and_has_no_error() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let folder = trace.write_parts(1).to_owned();
        let (trace, filter) = (Trace::open(&[folder]).unwrap(), Filter::default());
        let facts = Facts::gather(&trace, &filter, &[]);
        let mut amount = Amount::of(1000, 500_000.0, 1);
        amount.bytes = 4e-8;
        assert_eq!((bytes(amount.bytes), error_percent(&facts, amount)), (0.0.into(), Value::Missing));
    }
}
