//! Which part of a trace a command is about: from options to a filter.

use std::time::Duration;

use anyhow::Result;

use crate::analysis::Facts;
use crate::cli::Select;
use crate::launch::exit::{Failure, USAGE};
use crate::trace::{Filter, Trace};

/// The rows that the user asked for.
pub(crate) fn filter(select: &Select, trace: &Trace) -> Result<Filter> {
    let at = |after: Option<Duration>| {
        after.map(|d| trace.began_ns().saturating_add(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
    };
    let all = Filter { from_ns: at(select.from), to_ns: at(select.to), processes: None, step: select.step.clone() };
    if let (Some(from), Some(to)) = (select.from, select.to)
        && from >= to
    {
        return Err(wrong("--from must be less than --to"));
    }
    let filter = all.only(&trace.processes, &select.pid, &select.rank);
    if filter.processes.as_ref().is_some_and(|kept| kept.is_empty()) {
        let mut known: Vec<String> = trace.processes.iter().map(|p| p.label()).collect();
        known.dedup();
        known.truncate(20);
        let known = known.join(", ");
        return Err(wrong(format!("no process of the trace has that rank and pid; there are {known}")));
    }
    Ok(filter)
}

/// Fails when the ranges that the user calls steps are not in the trace.
pub(crate) fn found(select: &Select, facts: &Facts<'_>) -> Result<()> {
    match &select.step {
        Some(name) if !facts.steps.any_named() => {
            let problem = "no process has five ranges of that name";
            Err(wrong(format!("--step {name}: {problem}; report --only ranges lists the names that there are")))
        }
        _ => Ok(()),
    }
}

/// The user's mistake, not the trace's.
pub(crate) fn wrong(message: impl Into<String>) -> anyhow::Error {
    Failure::error(USAGE, message)
}
