//! What one of the traces has only in part, and what is therefore not compared: launches that were left out for a budget, and rows that
//! were removed to keep to a limit.

use gputrace_collectors::schema::{TABLES, TableId};

use super::quantities::{self, LAUNCH_TIME};
use super::{Change, KERNEL_LAUNCHES, KERNEL_TIMES, Part};
use crate::analysis::{ALL, Facts, Shed, loss, removed};

/// Takes back what is compared of it; `in_steps`: numbers are of steady steps, not of the run.
pub(super) fn take_back(parts: &mut [Part], traces: [&Facts<'_>; 2], in_steps: bool) {
    let shed = traces.iter().any(|facts| Shed::of(facts.processes()).is_some());
    for part in parts {
        let made_of: Vec<(&[TableId], bool)> =
            part.rows.iter().map(|row| (tables(part, row), shed && is_of_launches(part, row))).collect();
        for (row, (tables, of_launches)) in part.rows.iter_mut().zip(made_of) {
            let mut why = of_launches.then(|| "launches were left out to keep to --budget".to_owned());
            let values = [&mut row.before, &mut row.after].into_iter().zip(["before", "after"]);
            for ((value, name), facts) in values.zip(traces) {
                if let Some(lacks) = removed::lacks(facts, tables, in_steps) {
                    // What is left is no number of all of them.
                    *value = None;
                    why = Some(format!("rows of {} were removed {name} to keep to {}", lacks.table, lacks.limit));
                }
            }
            if let Some(why) = why {
                (row.unmeasured, row.beyond, row.note) = (true, None, Some(format!("not compared: {why}")));
            }
        }
        // Of what neither has all of there is nothing to show.
        let shown = |row: &Change| row.before.is_some() || row.after.is_some();
        let unknown = part.rows.iter().find(|row| !shown(row)).and_then(|row| row.note.clone());
        part.rows.retain(shown);
        part.note = part.note.take().or(unknown);
    }
}

/// The limits for which rows of a trace were removed.
pub(super) fn removed_of(facts: &Facts<'_>) -> String {
    let limits = loss::limits(facts.trace, &TABLES.map(|table| table.id));
    if limits.is_empty() { "none".to_owned() } else { limits }
}

/// The tables whose rows a number is made of; a metric of the run says itself what it lacks.
fn tables(part: &Part, row: &Change) -> &'static [TableId] {
    match part.name.as_str() {
        "steps" => quantities::tables(&row.what),
        name if name.ends_with(".per_step") => quantities::tables(&row.what),
        KERNEL_LAUNCHES => &[TableId::Launches],
        KERNEL_TIMES if part.title.contains(LAUNCH_TIME) => &[TableId::Launches],
        KERNEL_TIMES => &[TableId::Kernels],
        _ => &[],
    }
}

fn is_of_launches(part: &Part, row: &Change) -> bool {
    let is_metric = || {
        let analysis = ALL.iter().find(|analysis| analysis.name() == part.name);
        analysis.is_some_and(|of| of.metrics().iter().any(|metric| metric.of_launches && metric.key == row.what))
    };
    match part.name.as_str() {
        // The analysis of that name counts none.
        "steps" | KERNEL_LAUNCHES | KERNEL_TIMES => tables(part, row).contains(&TableId::Launches),
        name if name.ends_with(".per_step") => tables(part, row).contains(&TableId::Launches),
        name => name.starts_with("launch-overhead.") || is_metric(),
    }
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::{HookBudget, ShedPart};
    use gputrace_collectors::schema::TableId;

    use crate::diff::tests::{compared, made, row, text};
    use crate::trace::testing::START;

    #[test]
    fn launches_are_not_compared_where_some_were_left_out() {
        let (one, mut other) = (made(1, 1, "gemm"), made(2, 2, "gemm"));
        let part = ShedPart { what: "launches".into(), sampled_out: 9, ..ShedPart::default() };
        let budget = HookBudget { shed: vec![part], ..HookBudget::default() };
        other.manifest.as_mut().expect("a manifest").processes[0].budget = Some(budget);
        compared(&one, &other, |diff| {
            let launches = row(diff, "steps", "launches");
            assert!(launches.unmeasured && launches.beyond.is_none() && launches.note.is_some(), "{launches:?}");
            assert_eq!(row(diff, "steps", "waits").beyond, Some(true));
            assert!(
                diff.apart(16).contains(&"launches left out for --budget (0 / 9)".to_owned()),
                "{:?}",
                diff.apart(16)
            );
            assert!(text(diff).contains("not known"), "{}", text(diff));
        });
    }

    #[test]
    fn rows_that_were_removed_are_no_zero() {
        let (one, mut other) = (made(1, 1, "gemm"), made(2, 2, "gemm"));
        let why = "not compared: rows of launches were removed after to keep to --max-size";
        assert!(other.remove_before(TableId::Launches, START + 900_000_000) > 100);
        compared(&one, &other, |diff| {
            let launches = row(diff, "steps", "launches");
            assert_eq!((launches.before, launches.after, launches.beyond), (Some(3.0), None, None));
            assert_eq!(launches.note.as_deref(), Some(why));
            assert!(row(diff, "steps", "time in the driver").unmeasured);
            assert_eq!(row(diff, "steps", "waits").beyond, Some(true));
            let kernels = diff.parts.iter().filter(|part| part.name.starts_with("kernels."));
            assert!(kernels.flat_map(|part| &part.rows).all(|row| row.unmeasured), "{:?}", diff.parts);
            assert!(text(diff).contains("rows removed for (none / --max-size)"), "{}", text(diff));
        });
        compared(&other, &other, |diff| {
            let steps = diff.parts.iter().find(|part| part.name == "steps").expect("steps");
            assert!(
                steps.note.as_deref() == Some(why) && steps.rows.iter().all(|row| row.what != "launches"),
                "{steps:?}"
            );
        });
    }
}
