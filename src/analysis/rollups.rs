//! rollups: all events of the run, also those of which no single one is in the trace.

use std::collections::BTreeMap;

use gputrace_collectors::schema::TableId;

use super::passes::rollups::{Rollups, Sum, What};
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need, loss};
use crate::render::number;
use crate::trace::Site;

/// The analysis.
pub(crate) struct AllEvents;

/// Classes whose course over time is shown.
const OVER_TIME: [&str; 5] = ["launch", "commit", "sync", "transfer", "kernel"];
/// Classes of calls that use a GPU: where one is, no event of another one is none.
const USES: [&str; 9] = ["launch", "commit", "sync", "transfer", "alloc", "free", "module", "api", "encode"];

/// Classes of which each call is recorded, unless there is a reason.
const RECORDED: [&str; 8] = ["launch", "commit", "sync", "transfer", "alloc", "free", "module", "collective"];

impl Analysis for AllEvents {
    fn name(&self) -> &'static str {
        "rollups"
    }

    fn title(&self) -> &'static str {
        "All events, in sums"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "From the tables rollups and rollup_names, which hold every event of the run in sums, whatever became of the single ones \
                (removed for --max-size or --keep-detail, sampled out, left out for --budget, dropped). By class: events, how many a second over the whole \
                range, durations. By kernel, range, function and line, the most time first. Over time: parts of equal length, events by \
                when they began. Launches are commits where the program uses Metal. Errors are results of CUDA and NCCL other than success and not ready.",
            unit: "ns in JSON, of host calls the time inside the original function, of kernels that on the GPU; events, where a range that \
                ends is two; bytes.",
            limits: "Quantiles are known to 12.5 %. Times are of events that have a duration: of sampled mallocs those that were timed. A call \
                counts whole where it began. The first and the last part of the time may be shorter than the others; time in which recording was off is time like any other. --from and --to leave whole periods (rollups a second, rollup_names a minute, unless --rollup \
                says otherwise), and ranges or steps cannot be cut out. The same work stands on the host (launch) and on the GPU (kernel).",
            source: "gputrace schema rollups; the manifest's accounts, which have the same sums.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Rollups]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("range_ns", Ns, "time that the sums cover"),
            Metric::about("events", Count, "events of all classes"),
            Metric::about("errors", Count, "calls of CUDA and NCCL that failed"),
            Metric::about("launches_per_s", PerS, "launches a second, over the whole range"),
            Metric::cost("launch_ns_p50", Ns, "median of a launch").unsteady(),
            Metric::cost("launch_ns_p99", Ns, "99 of 100 launches take no longer").unsteady(),
            Metric::about("sync_ns", Ns, "time in synchronisation calls"),
            Metric::cost("sync_ns_p99", Ns, "99 of 100 synchronisation calls take no longer").unsteady(),
            Metric::about("transfer_bytes", Bytes, "bytes that calls copied or set"),
            Metric::about("kernel_ns", Ns, "time of kernels on the GPU, as far as it was recorded"),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.rollups.range().is_some() && facts.filter.within.is_empty()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let all = &facts.rollups;
        if !facts.filter.within.is_empty() {
            section.note("Sums of periods cannot be cut to ranges or steps.");
            return section;
        }
        if all.range().is_none() && facts.filter.is_window() && facts.trace.may_hold(TableId::Rollups) {
            section.note("No whole period begins in this part of the run: sums are of periods of a second, unless --rollup says otherwise.");
            return section;
        }
        if all.range().is_none() {
            section.note(if facts.trace.problems().iter().any(|problem| problem.lost_rows()) {
                "No sums that can be read: see the problems with the trace."
            } else if loss::is_incomplete(facts.trace) {
                "No sums in this trace: gputrace was killed before it wrote any (or recorded with --rollup off)."
            } else {
                "No sums in this trace (recorded with --rollup off, imported, or by an older version)."
            });
            return section;
        }
        let range_ns = range_ns(facts);
        let per_s = |count: i64| count as f64 / (range_ns as f64 / 1e9);
        // Commits of Metal's are launches in all reports.
        let launches =
            ["launch", "commit"].into_iter().filter_map(|class| all.of(class)).fold(Sum::default(), |mut all, sum| {
                all.add(sum);
                all
            });
        let used = USES.iter().any(|class| all.of(class).is_some());
        let of = |class: &str, number: fn(&Sum) -> i64| all.of(class).map(number).or(used.then_some(0));
        section.fact("range_ns", "range", Unit::Ns, range_ns);
        section.fact("events", "events", Unit::Count, all.classes().map(|(_, sum)| sum.events).sum::<i64>());
        section.fact("errors", "failed calls", Unit::Count, all.classes().map(|(_, sum)| sum.errors).sum::<i64>());
        section.fact("launches_per_s", "launches a second", Unit::PerS, used.then(|| per_s(launches.events)));
        section.fact("launch_ns_p50", "launch, median", Unit::Ns, launches.quantile_ns(0.5));
        section.fact("launch_ns_p99", "launch, p99", Unit::Ns, launches.quantile_ns(0.99));
        section.fact("sync_ns", "in synchronisation", Unit::Ns, of("sync", |sum| sum.ns));
        let longest = all.of("sync").and_then(|sum| sum.quantile_ns(0.99));
        section.fact("sync_ns_p99", "synchronisation, p99", Unit::Ns, longest);
        section.fact("transfer_bytes", "copied", Unit::Bytes, of("transfer", |sum| sum.bytes));
        section.fact("kernel_ns", "kernels", Unit::Ns, all.of("kernel").map(|sum| sum.ns));
        section.table(by_class(all, per_s));
        section.table(by_what(facts));
        section.table(over_time(facts));
        section.notes.extend(only_counted(facts));
        loss::removed_note(&mut section, facts, &[TableId::Rollups, TableId::RollupNames]);
        section
    }
}

/// The time that the sums cover, ns: the first and the last period as far as the run was there.
fn range_ns(facts: &Facts<'_>) -> i64 {
    let Some((from, to)) = facts.rollups.range() else { return 0 };
    // Of a run that did not end, and of one whose clock was set back, the periods are all that is known.
    let ended = facts.trace.ended_ns().filter(|ended| *ended > from).unwrap_or(to);
    to.min(ended).saturating_sub(from.max(facts.trace.began_ns())).max(1)
}

/// Says of how many events no more is known than that there were so many: they are in no row of the second table.
fn only_counted(facts: &Facts<'_>) -> Option<String> {
    let removed = facts.trace.manifests().flat_map(|manifest| &manifest.removed);
    // Cut to a time, or by a limit, the two tables are not of the same events.
    if facts.filter.is_window() || removed.into_iter().any(|removed| removed.table.starts_with("rollup")) {
        return None;
    }
    let of_recorded = |(class, _): &(&str, &Sum)| RECORDED.contains(class);
    let mut missing: BTreeMap<&str, i64> =
        facts.rollups.classes().filter(of_recorded).map(|(class, sum)| (class, sum.events)).collect();
    for (class, _, sum) in told(facts) {
        missing.entry(class).and_modify(|events| *events -= sum.events);
    }
    let named: Vec<String> = missing
        .into_iter()
        .filter(|(_, events)| *events > 0)
        .map(|(class, events)| format!("{class} {}", number(events as f64)))
        .collect();
    (!named.is_empty()).then(|| {
        format!(
            "Only counted, and so not among kernels, ranges and functions: {}. Such calls were not to be recorded (sampling, --budget), \
             found no room, or were read last by a gputrace that was killed.",
            named.join(", ")
        )
    })
}

/// What is told by kernel, range, function and line.
fn told<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = (&'a str, &'a What, &'a Sum)> {
    facts.rollups.what().filter(|(_, _, sum)| sum.timed > 0)
}

/// Columns at the end of both tables: total, mean, median, p99, longest, bytes.
fn sizes(sum: &Sum) -> [Value; 6] {
    let timed = sum.timed > 0;
    [
        timed.then_some(sum.ns).into(),
        sum.mean_ns().into(),
        sum.quantile_ns(0.5).into(),
        sum.quantile_ns(0.99).into(),
        timed.then_some(sum.max_ns).into(),
        some(sum.bytes),
    ]
}

const TOTAL: Column = column("total_ns", "Total", Unit::Ns);
const MEAN: Column = column("avg_ns", "Mean", Unit::Ns);
const MEDIAN: Column = column("p50_ns", "Median", Unit::Ns);
const P99: Column = column("p99_ns", "p99", Unit::Ns);
const LONGEST: Column = column("max_ns", "Max", Unit::Ns);
const BYTES: Column = column("bytes", "Bytes", Unit::BytesEach);
const EVENTS: Column = column("events", "Events", Unit::Count);
const ERRORS: Column = column("errors", "Failed", Unit::Count);
const CLASS: Column = column("class", "Class", Unit::Text);

fn some(bytes: i64) -> Value {
    (bytes > 0).then_some(bytes).into()
}

fn by_class(all: &Rollups, per_s: impl Fn(i64) -> f64) -> Table {
    const COLUMNS: [Column; 10] = [
        CLASS,
        EVENTS,
        column("events_per_s", "A second", Unit::PerS),
        ERRORS,
        TOTAL,
        MEAN,
        MEDIAN,
        P99,
        LONGEST,
        BYTES,
    ];
    let mut classes: Vec<_> = all.classes().collect();
    classes.sort_by_key(|(class, sum)| (std::cmp::Reverse(sum.ns), *class));
    let rows = classes.into_iter().map(|(class, sum)| {
        let mut row: Vec<Value> = vec![class.into(), sum.events.into(), per_s(sum.events).into(), sum.errors.into()];
        row.extend(sizes(sum));
        row
    });
    Table::new("by_class", "By class", &COLUMNS, rows.collect())
}

/// What events are about, in words: kernel or range, else the function; and the line, where it is known.
fn named(facts: &Facts<'_>, what: &What) -> [Value; 2] {
    let known = |id: i64| (id >= 0).then(|| facts.names.full(id));
    let name = known(what.name_id).or_else(|| known(what.api_id));
    let line = facts.stacks.get(what.stack_id).map(Site::short);
    [name.into(), line.into()]
}

fn by_what(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 11] = [
        CLASS,
        column("name", "What", Unit::Name),
        column("site", "Line", Unit::Name),
        EVENTS,
        ERRORS,
        TOTAL,
        MEAN,
        MEDIAN,
        P99,
        LONGEST,
        BYTES,
    ];
    let mut all: Vec<_> = told(facts).collect();
    all.sort_by_key(|(class, what, sum)| (std::cmp::Reverse(sum.ns), *class, what.name_id, what.api_id, what.stack_id));
    let rows = all.into_iter().map(|(class, what, sum)| {
        let mut row: Vec<Value> = vec![class.into()];
        row.extend(named(facts, what));
        row.extend([sum.events.into(), sum.errors.into()]);
        row.extend(sizes(sum));
        row
    });
    Table::new("by_what", "By kernel, range, function and line", &COLUMNS, rows.collect())
}

fn over_time(facts: &Facts<'_>) -> Table {
    let all = &facts.rollups;
    // Periods begin at whole seconds of the clock, the first one before the run as a rule.
    let first_ns = all.range().map_or(0, |(from, _)| from - facts.trace.began_ns());
    const COLUMNS: [Column; 7] = [
        column("start_ns", "From", Unit::Ns),
        column("launches_per_s", "Launches a second", Unit::PerS),
        column("launch_ns_p99", "Launch p99", Unit::Ns),
        column("sync_ns", "In waits", Unit::Ns),
        column("transfer_bytes", "Copied", Unit::BytesEach),
        column("kernel_ns", "Kernels", Unit::Ns),
        column("errors", "Failed", Unit::Count),
    ];
    let part_s = (all.part_ns() as f64 / 1e9).max(1e-9);
    let rows = all.over_time(&OVER_TIME).map(|(start_ns, sums)| {
        let [mut launch, commit, sync, transfer, kernel] =
            [0, 1, 2, 3, 4].map(|n| sums.get(n).cloned().unwrap_or_default());
        launch.add(&commit);
        let errors = launch.errors + sync.errors + transfer.errors;
        vec![
            (first_ns + start_ns).max(0).into(),
            (launch.events as f64 / part_s).into(),
            launch.quantile_ns(0.99).into(),
            sync.ns.into(),
            some(transfer.bytes),
            kernel.ns.into(),
            errors.into(),
        ]
    });
    Table::new("by_part", "Over time (From: since the trace began)", &COLUMNS, rows.collect())
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::names::NameKind;
    use serde_json::json;

    use super::*;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    fn trace() -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, Some(0), START + 10_000_000_000);
        let (launch, kernel) = (trace.name(NameKind::Api, "cuLaunchKernel"), trace.name(NameKind::Kernel, "gemm"));
        let sync = trace.name(NameKind::Api, "cuStreamSynchronize");
        for second in 0..4 {
            // 1,792 to 2,047 ns, and one of 4,096 or more.
            let launches = json!({"api_id": launch, "name_id": kernel, "events": 1000, "errors": second, "timed": 900,
                "total_ns": 1_800_000, "max_ns": 4_500, "durations": "39:899 44:1"});
            let waits = json!({"api_id": sync, "events": 2, "timed": 2, "total_ns": 500_000_000, "max_ns": 499_999_999,
                "durations": "1:1 111:1"});
            trace.rollup(second * 1_000_000_000, "launch", &launches);
            trace.rollup(second * 1_000_000_000, "sync", &waits);
        }
        trace
    }

    #[test]
    fn sums_are_added_up_by_class_and_by_kernel() {
        let section = trace().section(&AllEvents);
        assert_eq!(section.get("events"), &Value::Int(4008));
        assert_eq!(section.get("errors"), &Value::Int(6));
        assert_eq!(section.get("launches_per_s"), &Value::Num(1000.0));
        assert_eq!(section.get("launch_ns_p50"), &Value::Num(1920.0));
        assert_eq!(section.get("sync_ns"), &Value::Int(2_000_000_000));
        let of = |row, column| section.cell("by_class", row, column).clone();
        assert_eq!([of(0, "class"), of(0, "avg_ns")], ["sync".into(), Value::Num(250_000_000.0)]);
        assert_eq!([of(1, "class"), of(1, "max_ns")], ["launch".into(), Value::Int(4500)]);
        let of = |row, column| section.cell("by_what", row, column).clone();
        assert_eq!([of(0, "name"), of(0, "events")], ["cuStreamSynchronize".into(), Value::Int(8)]);
        assert_eq!([of(1, "name"), of(1, "events")], ["gemm".into(), Value::Int(4000)]);
    }

    #[test]
    fn what_was_only_counted_is_said_to_be() {
        let mut trace = trace();
        assert!(trace.section(&AllEvents).notes.is_empty());
        trace.rollup(1_000_000_000, "launch", &json!({"events": 1500, "timed": 0}));
        let notes = trace.section(&AllEvents).notes;
        assert!(
            notes.iter().any(|note| note.starts_with("Only counted") && note.contains(": launch 1,500. ")),
            "{notes:?}"
        );
    }

    #[test]
    fn commits_are_launches_and_what_there_was_none_of_is_zero() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 2_000_000_000);
        let commit = trace.name(NameKind::Api, "[MTLCommandBuffer commit]");
        let sums = json!({"api_id": commit, "events": 10, "timed": 10, "total_ns": 18_000, "max_ns": 2_000, "durations": "39:10"});
        trace.rollup(0, "commit", &sums);
        let section = trace.section(&AllEvents);
        assert_eq!(section.cell("by_part", 0, "launches_per_s"), section.get("launches_per_s"));
        assert!(matches!(section.get("launches_per_s"), Value::Num(number) if *number > 0.0));
        assert_eq!(section.get("launch_ns_p50"), &Value::Num(1920.0));
        assert_eq!([section.get("sync_ns"), section.get("transfer_bytes")], [&Value::Int(0); 2]);
        assert_eq!(section.get("sync_ns_p99"), &Value::Missing);
        assert_eq!(section.get("kernel_ns"), &Value::Missing, "of the GPU's own time nothing was recorded");
    }

    #[test]
    fn parts_of_the_time_hold_what_began_in_them() {
        let section = trace().section(&AllEvents);
        let parts = section.tables.iter().find(|table| table.key == "by_part").unwrap();
        assert_eq!(parts.rows.len(), 4);
        assert_eq!(section.cell("by_part", 3, "errors"), &Value::Int(3));
        assert_eq!(section.cell("by_part", 3, "start_ns"), &Value::Int(3_000_000_000));
    }

    #[test]
    fn parts_of_a_span_begin_where_it_does() {
        let made = trace();
        let opened = made.open();
        let filter = Filter { from_ns: Some(START + 2_000_000_000), ..Filter::whole(&opened) };
        let section = AllEvents.section(&Facts::gather(&opened, &filter, AllEvents.needs()));
        assert_eq!(section.cell("by_part", 0, "start_ns"), &Value::Int(2_000_000_000));
        assert_eq!(section.cell("by_part", 1, "errors"), &Value::Int(3));
        let filter = Filter { from_ns: Some(START + 3_500_000_000), ..Filter::whole(&opened) };
        let section = AllEvents.section(&Facts::gather(&opened, &filter, AllEvents.needs()));
        assert!(section.notes[0].starts_with("No whole period begins in this part"), "{:?}", section.notes);
    }

    #[test]
    fn without_sums_it_says_why() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        assert!(trace.section(&AllEvents).notes[0].starts_with("No sums in this trace"));
    }
}
