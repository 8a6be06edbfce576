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

/// Rows of these tables that were removed and are of what is reported, those of the table that lost the latest, for whatever limits; `in_steps`: of steady steps alone.
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
    let lacks: Vec<Removed> = lacks.filter(|of| reported(of) && concerned(of)).collect();
    let last = lacks.iter().max_by_key(|of| of.to_ns)?;
    // Two limits may have taken of one table.
    let of_table: Vec<&Removed> = lacks.iter().filter(|of| of.table == last.table).collect();
    let limits: Vec<&str> = of_table.iter().map(|of| of.limit.as_str()).collect();
    Some(Removed { rows: of_table.iter().map(|of| of.rows).sum(), limit: limits.join(" and "), ..last.clone() })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn two_limits_that_took_rows_of_one_table_are_both_named() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let removed = |limit: &str, rows, until_ns| Removed {
            limit: limit.to_owned(),
            table: "launches".to_owned(),
            rows,
            from_ns: START,
            to_ns: START + until_ns,
        };
        let about = trace.manifest.as_mut().expect("a manifest");
        about.removed = vec![removed("--max-size", 25, 900), removed("--keep-detail", 5, 700)];
        let (trace, filter) = (trace.open(), Filter::default());
        let facts = Facts::gather(&trace, &filter, &[]);
        let lacks = lacks(&facts, &[TableId::Launches], false).expect("rows were removed");
        assert_eq!((lacks.rows, lacks.limit.as_str(), lacks.to_ns), (30, "--max-size and --keep-detail", START + 900));
    }
}
