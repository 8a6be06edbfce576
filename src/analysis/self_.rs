//! self: what this trace does not know: loss, coverage, stacks, clocks, and which questions it cannot answer.

use std::collections::BTreeMap;

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::{Count, Stacks};
use gputrace_collectors::schema::TableId;

use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::summary::Own;
use super::{Analysis, Explain, Facts, Metric, Need};
use super::{alignment, gpu_clock, gpu_cost, loss, unmatched};
use crate::render::{counted, number};

/// The analysis.
pub(crate) struct Itself;

impl Analysis for Itself {
    fn name(&self) -> &'static str {
        "self"
    }

    fn title(&self) -> &'static str {
        "What this trace does not know"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "From the manifest. Account by class of calls: seen = recorded + culled + left out + dropped + sampled out + in flight \
                + abandoned, over all processes; culled allocations are in the trace as sums (--cull); left out is what --detail did not keep. Cost: recorded events times the measured cost of one, and the reading of \
                graphs, by process and of its wall time; where CUPTI is at work for the whole run (--gpu-time full), which no budget bounds and nothing measures there, \
                cost_percent has its records at 0.6 us each as well, an estimate as measured on an H200; beside it what records of CUPTI and timed launches took of host and GPU, about: their \
                number times a price, of an H200 or measured in the run. Coverage: driver functions without a hook that the program \
                fetched, libraries opened past the symbols, tables of private functions, processes that could not be traced. \
                Overhead that CUPTI tells of: its own (buffers, flushes, instrumentation) and the driver's (loading of code at a first \
                launch, full queues); threads of CUPTI itself count too. Stacks that were taken, and those that could not be. What was removed to keep to --max-size, --max-age and --keep-detail. Clock \
                comparisons that were rejected; of processes with times of the GPU how far the clocks may be off each other (host: the most by which \
                its line was off, CUPTI and events: the longest that a comparison took), and work that began before its call by more; of Metal's GPUs whether their timestamps are the host's time, by pairs that were read together. Time of processes between their windows of GPU times, in which nothing is known of \
                the GPU. Questions that this trace cannot answer, each with how to get the answer.",
            unit: "counts of calls; ns in JSON.",
            limits: "The account is of the whole run and all its processes' calls, whatever --from and --to leave. Whether a \
                library that was opened past the symbols calls the driver is not known; nor whether calls went by private \
                tables. A process that was over before gputrace could look at it may be missing altogether.",
            source: "The trace's manifest; ARCHITECTURE.md says what must stay true of it.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::GpuClock, Need::Activities, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("seen", Count, "calls that began, of all classes"),
            Metric::cost("dropped", Count, "events that found no room").unsteady().of_losses(),
            Metric::cost("lost_percent", Percent, "events that found no room, of calls seen").unsteady().of_losses(),
            Metric::cost(
                "cost_percent",
                Percent,
                "cost of the tracing in the process where it is most, of its wall time, CUPTI's for a whole run too",
            )
            .unsteady(),
            Metric::cost("cupti_ns", Ns, "time that CUPTI itself took of threads, its own among them").unsteady(),
            Metric::cost("uncovered", Count, "driver functions that matter, were fetched and have no hook"),
            Metric::cost("past_symbols", Count, "libraries opened so that their own calls may be missing"),
            Metric::cost("untraced", Count, "processes that could not be traced"),
            Metric::cost("stacks_none", Count, "calls of which a stack was wanted and none could be taken").unsteady(),
            Metric::cost("stacks_unread", Count, "calls whose thread may run a Python that could not be read")
                .unsteady(),
            Metric::cost("stacks_lost", Count, "calls whose stack found no room").unsteady(),
            Metric::cost(
                "gpu_unknown_percent",
                Percent,
                "time between windows of GPU times, of the processes' wall time",
            )
            .unsteady(),
            Metric::cost("removed_rows", Count, "rows removed to keep to limits of size and age").unsteady(),
            Metric::cost("clock_rejected", Count, "comparisons of the clocks that were rejected").unsteady(),
            Metric::cost("unanswered", Count, "questions that this trace cannot answer").unsteady(),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let own = Own::of(facts);
        let known = || facts.processes().filter_map(|process| process.manifest.as_ref());
        let untraced = untraced(facts);
        let removed = loss::removed(facts.trace);
        let rejected: u64 = facts.trace.manifests().map(|manifest| manifest.clock.rejected).sum();
        let sum_of = |count: fn(&Stacks) -> u64| known().map(|process| count(&process.stacks)).sum::<u64>();
        let lost_stacks = sum_of(|stacks| stacks.lost);
        let questions = questions(facts);
        let cost = own.cost_ns.map_or(Value::Missing, |(ns, wall)| percent(ns, wall));
        section.fact("seen", "calls seen", Unit::Count, own.seen);
        section.fact("dropped", "lost", Unit::Count, own.dropped);
        section.fact("lost_percent", "of them", Unit::Percent, percent(own.dropped as f64, own.seen as f64));
        section.fact("cost_percent", "cost, of wall time", Unit::Percent, cost);
        let cupti = facts.activities.of("overhead").filter(|(key, _)| gpu_cost::OF_CUPTI.contains(&key.what.as_str()));
        let cupti = cupti.map(|(_, sum)| sum.ns).reduce(|sum, ns| sum + ns);
        section.fact("cupti_ns", "taken by CUPTI itself", Unit::Ns, cupti);
        section.fact("uncovered", "functions without a hook", Unit::Count, own.uncovered.len() as u64);
        section.fact("past_symbols", "libraries past the symbols", Unit::Count, own.past.len() as u64);
        section.fact(
            "untraced",
            "processes not traced",
            Unit::Count,
            facts.trace.manifests().map(Manifest::untraced_count).sum::<u64>(),
        );
        section.fact("gpu_unknown_percent", "GPU not known, of wall time", Unit::Percent, unknown_percent(facts));
        section.fact("stacks_none", "stacks not taken", Unit::Count, sum_of(|stacks| stacks.none));
        section.fact("stacks_unread", "Python not read", Unit::Count, sum_of(|stacks| stacks.unread));
        section.fact("stacks_lost", "stacks without room", Unit::Count, lost_stacks);
        section.fact(
            "removed_rows",
            "rows removed",
            Unit::Count,
            removed.iter().map(|removed| removed.rows).sum::<u64>(),
        );
        section.fact("clock_rejected", "clock comparisons rejected", Unit::Count, rejected);
        section.fact("unanswered", "questions without an answer", Unit::Count, questions.len() as u64);
        if !own.known {
            section.note("No manifest in this trace: what it lost and did not see is not known.");
        }
        if lost_stacks > 0 {
            section.note(format!(
                "{} have no stack: there were more different ones than are kept of a process. Samples (--malloc sample) have few.",
                counted(lost_stacks as f64, "call", "calls")
            ));
        }
        if own.incomplete {
            section
                .note("The collector was killed, or is still at work: the account is of what it had told until then.");
        }
        for summed in facts.trace.manifests().filter_map(|manifest| manifest.summed.as_ref()) {
            if summed.processes > 0 {
                section.note(format!(
                    "{} processes that ended have one account, their sum: the manifest names the last of so many.",
                    number(summed.processes as f64)
                ));
            }
            if summed.untraced > 0 {
                section.note(format!("{} more could not be traced than are named.", number(summed.untraced as f64)));
            }
        }
        if own.unbalanced > 0 {
            section.note(format!("{} processes have calls that are not accounted for.", own.unbalanced));
        }
        for removed in &removed {
            section.note(format!("Removed to keep to {}: {}.", removed.limit, loss::span(facts, removed)));
        }
        facts.trace.manifests().flat_map(|manifest| &manifest.notes).for_each(|note| section.note(note.as_str()));
        section.table(unanswered(&questions));
        section.table(by_class(facts));
        section.table(by_process(facts));
        section.table(gpu_cost::overhead(facts));
        section.table(gpu_cost::table(facts));
        section.table(alignment::table(facts));
        section.table(alignment::metal(facts));
        section.table(not_covered(facts));
        section.table(Table::new("untraced", "Processes that were not traced", &UNTRACED, untraced));
        section
    }
}

/// The part of the time of processes with windows of GPU times that lies between them; none where there are no windows.
fn unknown_percent(facts: &Facts<'_>) -> Value {
    let windowed = facts.processes().map(|process| process.process_id);
    let windowed = windowed.filter(|id| facts.filter.observed_of(*id).is_some());
    let sum = |(wall, known): (f64, f64), id: i64| (wall + facts.wall_ns(id), known + facts.gpu_wall_ns(id));
    let (wall_ns, known_ns) = windowed.fold((0.0, 0.0), sum);
    if wall_ns > 0.0 { percent(wall_ns - known_ns, wall_ns) } else { Value::Missing }
}

/// A question without an answer here, why, and how to get the answer.
type Question = (&'static str, &'static str, &'static str);

fn questions(facts: &Facts<'_>) -> Vec<Question> {
    let known = || facts.processes().filter_map(|process| process.manifest.as_ref());
    let seen = |class: &str| known().any(|process| process.accounting.get(class).is_some_and(|count| count.seen > 0));
    let no_malloc = facts.processes().all(|process| matches!(process.malloc_mode.as_str(), "" | "off"));
    let taken = known().any(|process| process.stacks.python + process.stacks.native > 0);
    let stacks = taken || facts.trace.may_hold(TableId::Stacks);
    let ranked = facts.processes().filter(|process| process.rank.is_some()).count();
    let account = known().next().is_some();
    // There are neither stacks nor waits for the system.
    let of_macos = cfg!(target_os = "macos") || facts.processes().any(|process| facts.is_metal(process.process_id));
    let all: [(bool, Question); 13] = [
        (
            !facts.trace.has_gpu_times(),
            (
                "when the GPU was busy or idle, and with which kernel",
                "no times of the GPU are recorded",
                "--gpu-time full or windows; gputrace import of a trace of torch.profiler or Nsight Systems",
            ),
        ),
        (
            facts.filter.observed.is_some(),
            (
                "what the GPU did between windows of GPU times",
                "it was recorded in windows, or not while another profiler had CUPTI: see gpu_unknown_percent",
                "record with --gpu-time full; or more of it with more --budget, or a shorter --gpu-window-every",
            ),
        ),
        (
            true,
            (
                "why a kernel is slow (occupancy, caches, stalls)",
                "only hardware counters know",
                if facts.is_metal_only() {
                    "Instruments, Metal System Trace"
                } else {
                    "Nsight Compute: see report --only targets"
                },
            ),
        ),
        (
            gpu_clock::any_off(facts).is_some(),
            (
                "what the GPU did while the host did something",
                "the GPU's clock is not the host's",
                "a trace whose profiler compares the clocks: report --only gpu-gaps says by how much they differ",
            ),
        ),
        (
            unmatched::any(facts).is_some(),
            (
                "how long GPUs were busy and idle",
                "launches have no kernel in the trace, or command buffers no time",
                "a trace with all of the GPU's records: report --only gpu-gaps says how many are missing",
            ),
        ),
        (
            !facts.trace.has_torch_memory() && !facts.is_metal_only(),
            (
                "which tensors live in PyTorch's allocator",
                "it takes whole blocks from the driver",
                "gputrace import of what torch.cuda.memory._dump_snapshot wrote",
            ),
        ),
        (
            facts.is_metal_only(),
            (
                "which kernel of a command buffer takes long",
                "Metal tells when a command buffer ran",
                "one dispatch to a command buffer, or Xcode's Metal System Trace",
            ),
        ),
        (
            facts.is_metal_only(),
            (
                "power, clock, temperature and memory traffic of the GPU",
                "IOReport and powermetrics are not asked",
                "sudo powermetrics --samplers gpu_power,thermal beside the run",
            ),
        ),
        (
            facts.steps.all.is_empty(),
            ("what a step takes", "no steps were found", "an NVTX range around the step, or report --step NAME"),
        ),
        (
            account && !stacks && !of_macos,
            ("which line made a call", "no stacks are in the trace", "record without --stacks off"),
        ),
        (
            account && !seen("os_wait") && !of_macos,
            ("what the host waits for beside the GPU", "no waits were looked at", "record without --os off"),
        ),
        (no_malloc, ("who allocates on the host", "malloc was not recorded", "record with --malloc sample or full")),
        (
            ranked == 1,
            ("which rank holds the others up", "one rank is here", "name the traces of all ranks: report A B ..."),
        ),
    ];
    all.into_iter().filter(|(missing, _)| *missing).map(|(_, question)| question).collect()
}

fn unanswered(questions: &[Question]) -> Table {
    const COLUMNS: [Column; 3] = [
        column("question", "Question", Unit::Text),
        column("why", "Why", Unit::Text),
        column("how", "How to get it", Unit::Text),
    ];
    let rows = questions.iter().map(|(question, why, how)| vec![(*question).into(), (*why).into(), (*how).into()]);
    Table::new("unanswered", "Questions that this trace cannot answer", &COLUMNS, rows.collect())
}

fn by_class(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 10] = [
        column("class", "Class", Unit::Text),
        column("seen", "Seen", Unit::Count),
        column("recorded", "Recorded", Unit::Count),
        column("culled", "Culled", Unit::Count),
        column("left_out", "Left out", Unit::Count),
        column("dropped", "Lost", Unit::Count),
        column("lost_percent", "Of seen", Unit::Percent),
        column("sampled_out", "Sampled out", Unit::Count),
        column("in_flight", "In flight", Unit::Count),
        column("abandoned", "Abandoned", Unit::Count),
    ];
    let mut classes: BTreeMap<&str, Count> = BTreeMap::new();
    for (class, count) in facts.processes().filter_map(|p| p.manifest.as_ref()).flat_map(|p| &p.accounting) {
        let sum = classes.entry(class).or_default();
        sum.seen += count.seen;
        sum.recorded += count.recorded;
        sum.culled += count.culled;
        sum.left_out += count.left_out;
        sum.dropped += count.dropped;
        sum.sampled_out += count.sampled_out;
        sum.in_flight += count.in_flight;
        sum.abandoned += count.abandoned;
    }
    let row = |(class, count): (&str, Count)| {
        vec![
            class.into(),
            count.seen.into(),
            count.recorded.into(),
            count.culled.into(),
            count.left_out.into(),
            count.dropped.into(),
            percent(count.dropped as f64, count.seen as f64),
            count.sampled_out.into(),
            count.in_flight.into(),
            count.abandoned.into(),
        ]
    };
    Table::new("by_class", "Account by class", &COLUMNS, classes.into_iter().map(row).collect())
}

fn by_process(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 10] = [
        column("process", "Process", Unit::Text),
        column("events", "Events", Unit::Count),
        column("cost_ns", "Cost of hooks", Unit::Ns),
        column("cost_percent", "Of wall", Unit::Percent),
        column("cupti_percent", "CUPTI, about", Unit::Percent),
        column("stacks_python", "Python stacks", Unit::Count),
        column("stacks_native", "Native", Unit::Count),
        column("stacks_none", "None", Unit::Count),
        column("stacks_unread", "Not read", Unit::Count),
        column("notes", "Notes", Unit::Name),
    ];
    let known = facts.processes().filter_map(|process| Some((process.process_id, process.manifest.as_deref()?)));
    let row = |(id, about): (i64, &gputrace_collectors::manifest::Process)| -> Vec<Value> {
        let of_wall = |ns: f64| percent(ns, facts.whole_wall_ns(id));
        vec![
            facts.label(id).into(),
            about.cost.events.into(),
            about.cost.total_ns.into(),
            about.cost.total_ns.map_or(Value::Missing, of_wall),
            about.gpu_time.as_ref().and_then(gpu_cost::whole_run_ns).map_or(Value::Missing, of_wall),
            about.stacks.python.into(),
            about.stacks.native.into(),
            about.stacks.none.into(),
            about.stacks.unread.into(),
            Some(about.notes.join("; ")).filter(|notes| !notes.is_empty()).into(),
        ]
    };
    Table::new("by_process", "Cost and stacks by process", &COLUMNS, known.map(row).collect())
}

fn not_covered(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 3] = [
        column("process", "Process", Unit::Text),
        column("name", "Not covered", Unit::Name),
        column("what", "What it is", Unit::Text),
    ];
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for process in facts.processes() {
        let Some(coverage) = process.manifest.as_ref().map(|about| &about.coverage) else { continue };
        let mut add = |name: &str, what: &str| rows.push(vec![process.label().into(), name.into(), what.into()]);
        coverage.uncovered.iter().for_each(|symbol| add(&symbol.symbol, "a driver function without a hook"));
        coverage.past_symbols.iter().for_each(|past| add(&past.library, &format!("a library opened by {}", past.how)));
        let tables = coverage.export_tables.iter().filter(|table| table.found);
        tables.for_each(|table| add(&table.id, "a table of private functions"));
        let left = coverage.inline.iter().flat_map(|inline| &inline.left);
        left.for_each(|left| add(&left.function, &format!("not patched: {}", left.why)));
    }
    Table::new("not_covered", "What may have passed by unseen", &COLUMNS, rows)
}

const UNTRACED: [Column; 3] =
    [column("pid", "pid", Unit::Text), column("exe", "Program", Unit::Name), column("reason", "Why", Unit::Text)];

fn untraced(facts: &Facts<'_>) -> Vec<Vec<Value>> {
    let all = facts.trace.manifests().flat_map(|manifest| &manifest.untraced);
    all.map(|one| vec![one.pid.to_string().into(), one.exe.as_str().into(), one.reason.as_str().into()]).collect()
}

#[cfg(test)]
mod tests;
