//! The summary of a trace that keeps no single event: what the sums of all events answer, and what they do not.

use crate::analysis::Facts;
use crate::analysis::passes::rollups::Sum;
use crate::analysis::section::{Column, Table, Unit, Value, column};
use crate::analysis::sums::{ROOM, alone, by_class, of_fewer};
use crate::render::{bytes, counted, number, time};

/// Processes that get lines.
const PROCESSES: usize = 4;
/// Classes that get a line, and what they are called.
const CLASSES: [(&str, &str); 13] = [
    ("launch", "launches"),
    ("commit", "commits"),
    ("sync", "waits, queries"),
    (ROOM, "new command buffers"),
    ("transfer", "copies, sets"),
    ("alloc", "allocations"),
    ("free", "frees"),
    ("module", "loading of code"),
    ("api", "other calls"),
    ("collective", "calls of NCCL"),
    ("os_wait", "system waits"),
    ("kernel", "kernels, on the GPU"),
    ("device_copy", "copies, on the GPU"),
];

/// What stands in place of verdict, steps and findings; nothing where there are single events.
pub(super) fn lines(facts: &Facts<'_>) -> Option<String> {
    let sums = of_processes(facts);
    if !alone(facts) || sums.is_empty() {
        return None;
    }
    let mut out = "UNKNOWN: no single event was kept, so there is no verdict; of all events the sums are:\n".to_owned();
    let whose = sums.len() > 1;
    for (process_id, classes) in sums.iter().take(PROCESSES) {
        if whose {
            out.push_str(&format!("{}\n", facts.label(*process_id)));
        }
        classes.iter().for_each(|(title, sum)| out.push_str(&line(title, sum)));
    }
    if sums.len() > PROCESSES {
        out.push_str(&format!(
            "{}: --format json\n",
            counted((sums.len() - PROCESSES) as f64, "more process", "more processes")
        ));
    }
    out.push_str(
        "not known without single events (--detail full, or windows=1s/60s): steps, findings, idle time of GPUs, hidden waits, \
         what memory was live when\n",
    );
    Some(out)
}

/// ` launches              12,000  total 12.3 ms  p50 352 ns  p99 5.63 us  max 4.03 ms`
fn line(title: &str, sum: &Sum) -> String {
    let mut out = format!(" {title:19} {:>12}", number(sum.events as f64));
    let quantiles = [("p50", sum.quantile_ns(0.5)), ("p99", sum.quantile_ns(0.99))];
    if sum.timed > 0 {
        out.push_str(&format!("  total {:>7}", time(sum.ns as f64)));
        for (name, ns) in quantiles.into_iter().filter_map(|(name, ns)| Some((name, ns?))) {
            out.push_str(&format!("  {name} {:>7}", time(ns)));
        }
        out.push_str(&format!("  max {:>7}", time(sum.max_ns as f64)));
        out.push_str(&of_fewer(sum).map(|fewer| format!("  {fewer}")).unwrap_or_default());
    }
    if sum.bytes > 0 {
        out.push_str(&format!("  {}", bytes(sum.bytes as f64)));
    }
    if sum.errors > 0 {
        out.push_str(&format!("  {} failed", number(sum.errors as f64)));
    }
    out + "\n"
}

type Classes = Vec<(&'static str, Sum)>;

/// The sums of each process that the filter keeps, the one with most events first; of classes in their order.
fn of_processes(facts: &Facts<'_>) -> Vec<(i64, Classes)> {
    let mut processes: Vec<(i64, Classes)> = Vec::new();
    let kept = |id: i64| facts.filter.processes.as_ref().is_none_or(|kept| kept.contains(&id));
    let sums = by_class(facts);
    let mut ids: Vec<i64> = sums.keys().map(|(id, _)| *id).filter(|id| kept(*id)).collect();
    ids.dedup();
    for id in ids {
        let of = |(class, title): &(&str, &'static str)| Some((*title, sums.get(&(id, (*class).to_owned()))?.clone()));
        let classes: Classes = CLASSES.iter().filter_map(of).filter(|(_, sum)| sum.events > 0).collect();
        if !classes.is_empty() {
            processes.push((id, classes));
        }
    }
    let events = |classes: &Classes| classes.iter().map(|(_, sum)| sum.events).sum::<i64>();
    processes.sort_by_key(|(id, classes)| (std::cmp::Reverse(events(classes)), facts.place(*id)));
    processes
}

/// The same for programs.
pub(super) fn table(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("what", "What", Unit::Text),
        column("events", "Events", Unit::Count),
        column("failed", "Failed", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("p50_ns", "Median", Unit::Ns),
        column("p99_ns", "p99", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
        column("bytes", "Bytes", Unit::BytesEach),
    ];
    let sums = if alone(facts) { of_processes(facts) } else { Vec::new() };
    let row = |process_id: i64, (title, sum): &(&str, Sum)| -> Vec<Value> {
        let timed = sum.timed > 0;
        vec![
            facts.label(process_id).into(),
            (*title).into(),
            sum.events.into(),
            sum.errors.into(),
            timed.then_some(sum.ns).into(),
            sum.quantile_ns(0.5).into(),
            sum.quantile_ns(0.99).into(),
            timed.then_some(sum.max_ns).into(),
            (sum.bytes > 0).then_some(sum.bytes).into(),
        ]
    };
    let rows = sums.iter().flat_map(|(id, classes)| classes.iter().map(move |of| row(*id, of)));
    Table::new("sums", "All events, in sums", &COLUMNS, rows.collect())
}
