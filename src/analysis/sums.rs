//! What analyses of calls say of a trace that keeps no single event: numbers from the sums of all events.
//!
//! With `--detail rollup`, or a flight recorder that had nothing to keep, tables of calls are empty, and `rollups` is not. Counts, times,
//! failures and bytes follow from that exactly, medians to 12.5 %; whatever goes by the order of calls does not, and is left out
//! rather than called absent.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_collectors::schema::TableId;

use super::passes::rollups::Sum;
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Facts, torch_memory};
use crate::render::number;

/// Tables of driver calls.
pub(super) const DRIVER: [TableId; 5] =
    [TableId::Launches, TableId::Syncs, TableId::Transfers, TableId::DeviceMemory, TableId::Api];

/// Whether sums are all that there is to report.
pub(crate) fn alone(facts: &Facts<'_>) -> bool {
    facts.trace.keeps_no_event() && facts.rollups.range().is_some() && facts.filter.within.is_empty()
}

/// The answer from the sums; none of an analysis that they do not tell of.
pub(super) fn by_sums(analysis: &dyn Analysis, facts: &Facts<'_>) -> Option<Section> {
    let mut section = Section::default();
    match analysis.name() {
        "launch-overhead" => launches(&mut section, facts),
        "api" => api(&mut section, facts),
        "syncs" => syncs(&mut section, facts),
        "transfers" => transfers(&mut section, facts),
        "device-memory" => device_memory(&mut section, facts),
        _ => return None,
    }
    Some(section)
}

/// Sums of a function of a process.
pub(crate) struct Called {
    process_id: i64,
    api: String,
    /// Class of its calls, as in the accounts.
    pub(crate) class: String,
    /// Their sums.
    pub(crate) sum: Sum,
}

/// The calls whose rows would be in these tables, by process and function, most time first.
fn called(facts: &Facts<'_>, tables: &[TableId]) -> Vec<Called> {
    let classes: Vec<&str> = tables.iter().flat_map(|table| table.classes()).copied().collect();
    let kept = |process_id: i64| facts.filter.processes.as_ref().is_none_or(|kept| kept.contains(&process_id));
    let callers =
        facts.rollups.callers().filter(|(class, caller, _)| classes.contains(class) && kept(caller.process_id));
    let mut all: Vec<Called> = callers
        .map(|(class, caller, sum)| Called {
            process_id: caller.process_id,
            api: facts.names.full(caller.api_id),
            class: class.to_owned(),
            sum: sum.clone(),
        })
        .collect();
    all.sort_by(|a, b| {
        let key = |of: &Called| (Reverse(of.sum.ns), of.process_id);
        key(a).cmp(&key(b)).then_with(|| (&a.class, &a.api).cmp(&(&b.class, &b.api)))
    });
    all
}

/// Asking a queue of Metal's for a command buffer: a wait where there is no room in it, and mostly none. No class of the trace's.
pub(crate) const ROOM: &str = "room";

/// Sums of the classes of each process, in the order of processes and of classes.
pub(crate) fn by_class(facts: &Facts<'_>) -> BTreeMap<(i64, String), Sum> {
    let mut sums: BTreeMap<(i64, String), Sum> = BTreeMap::new();
    for (class, caller, sum) in facts.rollups.callers() {
        let asks = class == "sync" && facts.names.full(caller.api_id).starts_with("[MTLCommandQueue commandBuffer");
        let class = if asks { ROOM } else { class };
        sums.entry((caller.process_id, class.to_owned())).or_default().add(sum);
    }
    sums
}

/// Says that times are of fewer events than there are: the others were counted only, as those are that a collector had read and not
/// written when it was killed.
pub(crate) fn of_fewer(sum: &Sum) -> Option<String> {
    (sum.timed > 0 && sum.timed < sum.events).then(|| format!("(times of {} of them)", number(sum.timed as f64)))
}

fn summed<'a>(calls: impl IntoIterator<Item = &'a Called>) -> Sum {
    calls.into_iter().fold(Sum::default(), |mut all, of| {
        all.add(&of.sum);
        all
    })
}

/// Wall time of the processes that made these calls, ns.
fn wall_ns(facts: &Facts<'_>, calls: &[Called]) -> f64 {
    let mut processes: Vec<i64> = calls.iter().map(|of| of.process_id).collect();
    processes.sort_unstable();
    processes.dedup();
    processes.into_iter().map(|id| facts.wall_ns(id)).sum()
}

fn launches(section: &mut Section, facts: &Facts<'_>) {
    let calls = called(facts, &[TableId::Launches]);
    let all = summed(&calls);
    section.fact("launches", "launches", Unit::Count, all.events);
    section.fact("total_ns", "time in launch calls", Unit::Ns, all.ns);
    let share = percent(all.ns as f64, wall_ns(facts, &calls));
    section.fact("wall_percent", "share of wall time", Unit::Percent, share);
    section.fact("med_ns", "median call", Unit::Ns, all.quantile_ns(0.5));
    section.fact("p99_ns", "99th percentile", Unit::Ns, all.quantile_ns(0.99));
    functions(section, facts, &calls);
    note(section, "steps, threads, outliers, and when kernels began");
}

fn api(section: &mut Section, facts: &Facts<'_>) {
    // Functions that are only counted have one sum without a name; the account names them.
    let counted = super::api::counted(facts);
    let calls: Vec<Called> =
        called(facts, &DRIVER).into_iter().filter(|of| of.sum.timed > 0 || of.class != "api").collect();
    let all = summed(&calls);
    section.fact("calls", "driver calls", Unit::Count, all.events);
    section.fact("total_ns", "time in them, over all threads", Unit::Ns, all.ns);
    section.fact("functions", "functions, by process", Unit::Count, calls.len() as u64);
    section.fact("failed", "calls that failed", Unit::Count, all.errors);
    section.fact("counted_only", "calls counted only", Unit::Count, counted.iter().map(|(_, n)| n).sum::<u64>());
    functions(section, facts, &calls);
    section.table(super::api::counted_only(facts, &counted));
    note(section, "threads, and which result a call that failed had");
}

fn syncs(section: &mut Section, facts: &Facts<'_>) {
    let calls = called(facts, &[TableId::Syncs]);
    // Others ask, or make a stream wait.
    let waits = summed(calls.iter().filter(|of| of.api.contains("Synchronize") || waits_for_metal(&of.api)));
    section.fact("waits", "waits of the host", Unit::Count, waits.events);
    section.fact("waits_ns", "time in them", Unit::Ns, waits.ns);
    functions(section, facts, &calls);
    let metal = facts.processes().any(|process| facts.is_metal(process.process_id));
    let room = if metal { "waits for room in a queue, " } else { "" };
    note(
        section,
        &format!("{room}copies, sets, frees and allocations that waited too, spinning, and idle time of the GPU"),
    );
}

/// Whether a message of Metal makes the host wait, for a command buffer or a shared event. One that asks a queue for a command buffer may
/// have waited for room in it, which a sum does not tell.
fn waits_for_metal(api: &str) -> bool {
    api.contains(" waitUntil")
}

fn transfers(section: &mut Section, facts: &Facts<'_>) {
    let calls = called(facts, &[TableId::Transfers]);
    let (sets, copies): (Vec<&Called>, Vec<&Called>) =
        calls.iter().partition(|of| of.api.contains("emset") || of.api.contains(" fillBuffer:"));
    let (sets, copies, all) = (summed(sets), summed(copies), summed(&calls));
    section.fact("copies", "copies", Unit::Count, copies.events);
    section.fact("copied_bytes", "bytes copied", Unit::Bytes, copies.bytes);
    section.fact("sets", "sets", Unit::Count, sets.events);
    section.fact("api_ns", "time in the calls", Unit::Ns, all.ns);
    let share = percent(all.ns as f64, wall_ns(facts, &calls));
    section.fact("wall_percent", "share of wall time", Unit::Percent, share);
    functions(section, facts, &calls);
    note(section, "kinds of memory, small copies, what copies waited for, and bandwidth");
}

fn device_memory(section: &mut Section, facts: &Facts<'_>) {
    let calls = called(facts, &[TableId::DeviceMemory]);
    let of = |class: &str| summed(calls.iter().filter(|of| of.class == class));
    let (allocations, frees, wall) = (of("alloc"), of("free"), wall_ns(facts, &calls));
    let cost_ns = allocations.ns + frees.ns;
    section.fact("allocations", "allocation calls", Unit::Count, allocations.events);
    section.fact("frees", "free calls", Unit::Count, frees.events);
    section.fact("allocated_bytes", "bytes taken in all", Unit::Bytes, allocations.bytes);
    section.fact("cost_ns", "time in the calls", Unit::Ns, cost_ns);
    section.fact("cost_wall_percent", "share of wall time", Unit::Percent, percent(cost_ns as f64, wall));
    let per_s = (wall > 0.0).then(|| allocations.events as f64 * 1e9 / wall);
    section.fact("allocations_per_s", "allocation calls in a second", Unit::PerS, per_s);
    section.fact("failed_allocations", "allocations that failed", Unit::Count, allocations.errors);
    functions(section, facts, &calls);
    torch_memory::add(section, facts);
    note(section, "what was live when, what was never freed, and what steady steps allocate");
}

fn note(section: &mut Section, missing: &str) {
    section.note(format!(
        "No single event was kept (--detail): these are sums of all calls, medians and percentiles to one eighth. Not known \
         without single events: {missing}. Lines and kernels: gputrace report --only rollups."
    ));
}

/// The table of functions, and whether their times are of all calls.
fn functions(section: &mut Section, facts: &Facts<'_>, calls: &[Called]) {
    section.table(by_function(facts, calls));
    let all = summed(calls);
    if of_fewer(&all).is_some() {
        section.note(format!(
            "Times are of {} of {} calls: the others were counted and not timed, as functions that only ask, launches that were sampled, \
             and what a collector had read and not written when it was killed.",
            number(all.timed as f64),
            number(all.events as f64)
        ));
    }
}

fn by_function(facts: &Facts<'_>, calls: &[Called]) -> Table {
    const COLUMNS: [Column; 12] = [
        column("process", "Process", Unit::Text),
        column("api", "Function", Unit::Name),
        column("class", "Class", Unit::Text),
        column("time_percent", "Time %", Unit::Percent),
        column("total_ns", "Total", Unit::Ns),
        column("calls", "Calls", Unit::Count),
        column("failed", "Failed", Unit::Count),
        column("avg_ns", "Avg", Unit::Ns),
        column("med_ns", "Med", Unit::Ns),
        column("p99_ns", "p99", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
        column("bytes", "Bytes", Unit::BytesEach),
    ];
    let whole_ns = summed(calls).ns as f64;
    let row = |of: &Called| -> Vec<Value> {
        let sum = &of.sum;
        vec![
            facts.label(of.process_id).into(),
            of.api.as_str().into(),
            of.class.as_str().into(),
            percent(sum.ns as f64, whole_ns),
            sum.ns.into(),
            sum.events.into(),
            sum.errors.into(),
            sum.mean_ns().into(),
            sum.quantile_ns(0.5).into(),
            sum.quantile_ns(0.99).into(),
            (sum.timed > 0).then_some(sum.max_ns).into(),
            (sum.bytes > 0).then_some(sum.bytes).into(),
        ]
    };
    Table::new("sums", "By function, in sums", &COLUMNS, calls.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::KeptDetail;
    use gputrace_collectors::names::NameKind;
    use serde_json::json;

    use super::*;
    use crate::analysis::answer::{OF_NO_EVENT, answer};
    use crate::analysis::{ALL, Need};
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    fn made(rollup: bool) -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, Some(0), START + 2_000_000_000);
        if let Some(manifest) = trace.manifest.as_mut().filter(|_| rollup) {
            manifest.detail = Some(KeptDetail { mode: "rollup".into(), ..KeptDetail::default() });
        }
        let calls = [
            ("launch", "cuLaunchKernel", 1000, 0, 2_000_000, 0),
            ("sync", "cuStreamSynchronize", 10, 0, 1_000_000_000, 0),
            ("sync", "cuEventQuery", 90, 0, 90_000, 0),
            ("transfer", "cuMemcpyHtoD_v2", 4, 1, 6_000_000, 4096),
            ("transfer", "cuMemsetD8_v2", 5, 0, 5_000, 640),
            ("alloc", "cuMemAlloc_v2", 3, 2, 90_000, 1024),
            ("free", "cuMemFree_v2", 2, 0, 10_000, 1024),
        ];
        for (class, api, events, errors, ns, bytes) in calls {
            let api = trace.name(NameKind::Api, api);
            let values = json!({"api_id": api, "events": events, "errors": errors, "timed": events, "total_ns": ns, "bytes": bytes,
                "min_ns": 1, "max_ns": ns, "durations": format!("39:{events}")});
            trace.rollup(0, class, &values);
        }
        trace
    }

    fn sections(trace: &TestTrace) -> Vec<(&'static str, Section)> {
        let (trace, filter) = (trace.open(), Filter::of(&trace.open()));
        let needs: Vec<Need> = ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect();
        let facts = Facts::gather(&trace, &filter, &needs);
        ALL.iter().map(|analysis| (analysis.name(), answer(*analysis, &facts))).collect()
    }

    #[test]
    fn calls_that_are_known_in_sums_alone_are_counted_and_what_they_cannot_tell_is_named() {
        let all = sections(&made(true));
        let of = |name: &str| &all.iter().find(|(of, _)| *of == name).unwrap().1;
        let number = |name: &str, key: &str| match of(name).get(key) {
            Value::Int(value) => *value,
            other => panic!("{name}.{key}: {other:?}"),
        };
        let numbers = [
            ("launch-overhead", "launches", 1000),
            ("api", "calls", 1114),
            ("api", "failed", 3),
            ("syncs", "waits", 10),
            ("syncs", "waits_ns", 1_000_000_000),
            ("transfers", "copies", 4),
            ("transfers", "copied_bytes", 4096),
            ("transfers", "sets", 5),
            ("device-memory", "allocations", 3),
            ("device-memory", "failed_allocations", 2),
        ];
        numbers.into_iter().for_each(|(name, key, value)| assert_eq!(number(name, key), value, "{name}.{key}"));
        assert_eq!(of("launch-overhead").get("wall_percent"), &Value::Num(0.1));
        assert_eq!(of("api").cell("sums", 0, "api"), &Value::from("cuStreamSynchronize"));
        assert_eq!(of("transfers").cell("sums", 0, "failed"), &Value::Int(1));
        for (name, section) in all.iter().filter(|(name, _)| !OF_NO_EVENT.contains(name)) {
            let notes = section.notes.join(" ");
            assert!(notes.contains("No single event was kept") && !notes.contains("in this trace"), "{name}: {notes}");
        }
        let targets = of("targets");
        let passed = targets.tables[0].rows.iter().filter(|row| row[2] == "pass".into());
        let passed: Vec<&Value> = passed.map(|row| &row[0]).collect();
        assert_eq!(passed, [&Value::from("99th percentile of launch calls")], "what is not known passes no threshold");
    }

    #[test]
    fn times_that_are_of_some_of_the_calls_are_not_called_those_of_all() {
        let mut trace = made(true);
        // As what a killed collector left is completed: counted, and no more.
        trace.rollup(0, "sync", &json!({"events": 50, "errors": 0, "timed": 0, "total_ns": 0, "bytes": 0}));
        let all = sections(&trace);
        let notes = |name: &str| all.iter().find(|(of, _)| *of == name).unwrap().1.notes.join(" ");
        assert!(notes("syncs").contains("Times are of 100 of 150 calls"), "{}", notes("syncs"));
        assert!(!notes("launch-overhead").contains("Times are of"), "{}", notes("launch-overhead"));
        let sum = |timed, events| {
            let mut sum = Sum::default();
            (sum.timed, sum.events) = (timed, events);
            sum
        };
        assert_eq!(of_fewer(&sum(3, 4)).as_deref(), Some("(times of 3 of them)"));
        assert_eq!((of_fewer(&sum(4, 4)), of_fewer(&sum(0, 4))), (None, None));
    }

    #[test]
    fn command_buffers_that_were_asked_for_are_no_waits() {
        let mut trace = made(true);
        let api = trace.name(NameKind::Api, "[MTLCommandQueue commandBuffer]");
        let values = json!({"api_id": api, "events": 1500, "errors": 0, "timed": 1500, "total_ns": 1_500_000, "bytes": 0, "min_ns": 1,
            "max_ns": 1_000, "durations": "39:1500"});
        trace.rollup(0, "sync", &values);
        let (trace, filter) = (trace.open(), Filter::of(&trace.open()));
        let facts = Facts::gather(
            &trace,
            &filter,
            &ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect::<Vec<_>>(),
        );
        let events: Vec<i64> = by_class(&facts)
            .iter()
            .filter(|((_, class), _)| ["sync", ROOM].contains(&class.as_str()))
            .map(|(_, sum)| sum.events)
            .collect();
        assert_eq!(events, [1500, 100], "by name: room, sync");
    }

    #[test]
    fn a_trace_of_single_events_is_reported_from_these() {
        let all = sections(&made(false));
        let launches = &all.iter().find(|(name, _)| *name == "launch-overhead").unwrap().1;
        assert_eq!(launches.notes, ["No launches in this trace."]);
    }
}
