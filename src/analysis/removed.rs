//! Why a number is not known where rows that it counts were removed to keep to a limit: what is left is no sum of the run.
//!
//! Medians, shares and other numbers that a part of the run has as well are of what is left. So is what is about steps nearly all of which
//! began after the last row that was removed (tables lose their oldest files one by one), and what is about a span of time after it.

use gputrace_collectors::manifest::Removed;
use gputrace_collectors::schema::TableId;

use super::{Facts, Metric, loss};
use crate::render::{duration, number};

/// A smaller part of the steady steps changes no number of a step by more than `check` allows.
const FEW: f64 = 0.05;

/// Rows of these tables that were removed and are of what is reported, those of the latest time; `in_steps`: of steady steps alone.
pub(crate) fn lacks(facts: &Facts<'_>, tables: &[TableId], in_steps: bool) -> Option<Removed> {
    let (from_ns, to_ns) = (facts.filter.from_ns.unwrap_or(i64::MIN), facts.filter.to_ns.unwrap_or(i64::MAX));
    let counted = |of: &Removed| tables.iter().any(|table| of.table == table.table().name);
    let reported = |of: &Removed| of.to_ns >= from_ns && of.from_ns < to_ns;
    let concerned = |of: &Removed| match facts.steps.all.as_slice() {
        [] => true,
        steps if in_steps => steps
            .iter()
            .map(|steps| steps.steady_span())
            .any(|(first_ns, end_ns)| (of.to_ns.saturating_sub(first_ns)) as f64 > FEW * (end_ns - first_ns) as f64),
        _ => true,
    };
    let lacks = loss::removed(facts.trace).into_iter().filter(counted);
    lacks.filter(|of| reported(of) && concerned(of)).max_by_key(|of| of.to_ns)
}

/// Why a metric has no value for want of rows; none where it has all of them.
pub(crate) fn why(facts: &Facts<'_>, metric: &Metric) -> Option<String> {
    let last = lacks(facts, metric.sums, metric.in_steps)?;
    let until = duration(last.to_ns.saturating_sub(facts.trace.began_ns()).max(0) as f64);
    Some(format!(
        "{} rows of {} were removed to keep to {}, the last of {until} after the begin: what is left is not all of it",
        number(last.rows as f64),
        last.table,
        last.limit
    ))
}
