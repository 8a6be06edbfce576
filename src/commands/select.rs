//! Which part of a trace a command is about: from options to a filter.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use crate::analysis::Facts;
use crate::cli::Select;
use crate::launch::exit::{Failure, USAGE};
use crate::trace::{Filter, NO_NAME, Spans, Trace, Want};

/// The rows that the user asked for.
pub(crate) fn filter(select: &Select, trace: &Trace) -> Result<Filter> {
    let at = |after: Option<Duration>| {
        after.map(|d| trace.began_ns().saturating_add(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
    };
    let step = select.step_name().cloned();
    let all =
        Filter { from_ns: at(select.from), to_ns: at(select.to), step, device: select.device, ..Filter::default() };
    if let (Some(from), Some(to)) = (select.from, select.to)
        && from >= to
    {
        return Err(wrong("--from must be less than --to"));
    }
    let mut filter = all.only(&trace.processes, &select.pid, &select.rank);
    if filter.processes.as_ref().is_some_and(|kept| kept.is_empty()) {
        let mut known: Vec<String> = trace.processes.iter().map(|p| p.label()).collect();
        known.dedup();
        known.truncate(20);
        let known = known.join(", ");
        return Err(wrong(format!("no process of the trace has that rank and pid; there are {known}")));
    }
    if let Some(wanted) = select.device {
        device(trace, &filter, wanted)?;
    }
    let mut within = Vec::new();
    if let Some((first, last)) = select.kept_steps() {
        within.push(Arc::new(steps(trace, &filter, first, last)?));
    }
    if let Some(name) = &select.range {
        within.push(Arc::new(ranges(trace, &filter, name)?));
    }
    filter.within = within;
    Ok(filter)
}

/// The time of these steps, in each process that has them.
fn steps(trace: &Trace, filter: &Filter, first: usize, last: usize) -> Result<Spans> {
    let facts = Facts::gather(trace, filter, &[]);
    let mut spans = Spans::default();
    for steps in &facts.steps.all {
        if let Some(span) = steps.between(first, last) {
            spans.add(steps.process_id, None, span);
        }
    }
    if spans.is_empty() {
        let most = facts.steps.all.iter().map(|steps| steps.count).max();
        let there = most.map_or("the trace has none".to_owned(), |most| format!("there are {most}, counted from 0"));
        return Err(wrong(format!("no step lies in {first}..{last}: {there}")));
    }
    Ok(spans.ordered())
}

/// The time inside ranges of this name, by thread.
fn ranges(trace: &Trace, filter: &Filter, name: &str) -> Result<Spans> {
    let mut ids = FxHashSet::default();
    let names = [Want { table: TableId::Names, columns: &["name_id", "kind", "name"] }];
    trace.scan(&names, filter, &mut |rows| {
        let (id, kind, text) = (rows.i64("name_id"), rows.texts("kind"), rows.texts("name"));
        ids.extend((0..rows.len).filter(|row| kind.get(*row) == "range" && text.get(*row) == name).map(|row| id[row]));
    });
    let mut spans = Spans::default();
    let wanted = [Want { table: TableId::Ranges, columns: &["tid", "end_ns", "name_id"] }];
    trace.scan(&wanted, filter, &mut |rows| {
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (start, id) = (rows.i64("start_ns"), rows.i64_or("name_id", NO_NAME));
        // One that is open to the end holds all that comes after it.
        let end = rows.i64_or("end_ns", i64::MAX);
        for row in (0..rows.len).filter(|row| ids.contains(&id[*row]) && start[*row] < end[*row]) {
            spans.add(process[row], Some(tid[row]), (start[row], end[row]));
        }
    });
    if spans.is_empty() {
        return Err(wrong(format!(
            "--range {name}: no range of that name; report --only ranges lists those that there are"
        )));
    }
    Ok(spans.ordered())
}

/// Fails when the ranges that the user calls steps are not in the trace.
pub(crate) fn found(select: &Select, facts: &Facts<'_>) -> Result<()> {
    match select.step_name() {
        Some(name) if !facts.steps.any_named() => {
            let problem = "no process has five ranges of that name";
            Err(wrong(format!("--step {name}: {problem}; report --only ranges lists the names that there are")))
        }
        _ => Ok(()),
    }
}

/// Fails when no row that the filter keeps is of this device.
fn device(trace: &Trace, filter: &Filter, device: i32) -> Result<()> {
    const DEVICE: &[&str] = &["device"];
    let tables =
        [TableId::Launches, TableId::Transfers, TableId::DeviceMemory, TableId::Kernels, TableId::DeviceCopies];
    let mut there = BTreeSet::new();
    let any = Filter { device: None, ..filter.clone() };
    trace.scan(&tables.map(|table| Want { table, columns: DEVICE }), &any, &mut |rows| {
        there.extend(rows.i32_or("device", -1).iter().copied().filter(|device| *device >= 0));
    });
    if there.contains(&device) {
        return Ok(());
    }
    let there: Vec<String> = there.iter().map(i32::to_string).collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    Err(wrong(format!("--device {device}: the trace has nothing of that GPU; of these it has: {there}")))
}

/// The user's mistake, not the trace's.
pub(crate) fn wrong(message: impl Into<String>) -> anyhow::Error {
    Failure::error(USAGE, message)
}
