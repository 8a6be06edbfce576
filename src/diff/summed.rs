//! Where a trace keeps no single event: what the sums of all events tell is compared with the sums of the other trace, not with its rows.

use super::{OWN_PARTS, Part, Side, processes, tables};
use crate::analysis::{Analysis, answer_by_sums, has_sums_alone};

/// A comparison by sums.
#[derive(Debug, PartialEq)]
pub(crate) struct BySums {
    /// Which of the traces keeps no single event.
    pub(crate) without: &'static str,
    /// Whether they tell of anything that was asked for.
    pub(crate) compared: bool,
    /// Parts and analyses that the other one would have answered.
    pub(crate) not_compared: Vec<&'static str>,
}

/// What the sums of both traces tell; none where both keep single events.
pub(super) fn parts(
    sides: [&Side<'_>; 2],
    analyses: &[&'static dyn Analysis],
    own: &[&str],
) -> Option<(Vec<Part>, BySums)> {
    let without = match sides.map(|side| has_sums_alone(side.facts)) {
        [false, false] => return None,
        [true, false] => "before",
        [false, true] => "after",
        [true, true] => "either",
    };
    let names = sides.map(|side| processes::names(side.facts));
    let (mut parts, mut compared) = (Vec::new(), false);
    let other = without != "either";
    let mut not_compared: Vec<&'static str> =
        OWN_PARTS.into_iter().filter(|part| other && own.contains(part)).collect();
    for analysis in analyses {
        let [Some(before), Some(after)] = sides.map(|side| answer_by_sums(*analysis, side.facts)) else {
            let answered = sides.iter().any(|side| !has_sums_alone(side.facts) && analysis.answers(side.facts));
            not_compared.extend((answered && !not_compared.contains(&analysis.name())).then_some(analysis.name()));
            continue;
        };
        compared = true;
        let mut sections = [before, after];
        sections.iter_mut().zip(&names).for_each(|(section, names)| processes::rename(section, names));
        // A summary of sums has tables that one of single events has not.
        let keys = sections.each_ref().map(|of| of.tables.iter().map(|table| table.key).collect::<Vec<_>>());
        sections.iter_mut().for_each(|of| of.tables.retain(|table| keys.iter().all(|keys| keys.contains(&table.key))));
        let mut told = tables::parts(*analysis, &sections);
        // What only single events tell is listed once, not row by row.
        told.iter_mut().for_each(|part| part.rows.retain(|row| !row.unmeasured));
        told.retain(|part| !part.rows.is_empty());
        parts.extend(told);
    }
    Some((parts, BySums { without, compared, not_compared }))
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::KeptDetail;
    use gputrace_collectors::names::NameKind;
    use serde_json::json;

    use crate::analysis::{ALL, Facts};
    use crate::diff::{Diff, Side, json, needs, text};
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    /// Three launches and so many waits, in sums, and as rows unless nothing but sums was kept.
    fn made(waits: i64, rows: bool) -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        if rows {
            let mut thread = trace.thread(1, 11);
            (0..3).for_each(|_| thread.launch("gemm", 3_000));
            (0..waits).for_each(|_| thread.sync("cuStreamSynchronize", "stream", 20_000));
        } else if let Some(manifest) = &mut trace.manifest {
            manifest.detail = Some(KeptDetail { mode: "rollup".into(), ..KeptDetail::default() });
        }
        for (class, api, events, ns) in
            [("launch", "cuLaunchKernel", 3, 9_000), ("sync", "cuStreamSynchronize", waits, waits * 20_000)]
        {
            let api = trace.name(NameKind::Api, api);
            let values = json!({"api_id": api, "events": events, "timed": events, "total_ns": ns,
                "min_ns": 1, "max_ns": 20_000, "durations": format!("39:{events}")});
            trace.rollup(0, class, &values);
        }
        trace
    }

    fn compared<T>(traces: [&TestTrace; 2], filter: &Filter, with: impl FnOnce(&Diff) -> T) -> T {
        let opened = traces.map(TestTrace::open);
        let facts = [0, 1].map(|i| Facts::gather(&opened[i], filter, &needs(ALL, false)));
        let [before, after] =
            [0, 1].map(|i| Side { trace: "ab".chars().nth(i).into_iter().collect(), facts: &facts[i] });
        with(&Diff::of(&before, &after, ALL, &crate::diff::OWN_PARTS))
    }

    #[test]
    fn rows_of_one_trace_are_not_compared_with_the_sums_of_another() {
        for [before, after] in [[made(5, true), made(7, false)], [made(5, false), made(7, true)]] {
            compared([&before, &after], &Filter::default(), |diff| {
                let rows: Vec<_> = diff.parts.iter().flat_map(|part| &part.rows).collect();
                let waits: Vec<_> =
                    rows.iter().filter(|row| row.what == "waits").map(|row| (row.before, row.after)).collect();
                assert_eq!(waits, [(Some(5.0), Some(7.0))], "{:?}", diff.parts);
                assert!(diff.parts.iter().all(|part| !part.name.starts_with("launch-overhead")), "{:?}", diff.parts);
                assert!(rows.iter().all(|row| row.before.is_some() && row.after.is_some()), "{rows:?}");
                let said = text(diff, 100);
                assert!(said.contains("compared are the sums of all events") && said.contains("kernels"), "{said}");
                assert!(said.contains("no single event kept") && said.contains("sums tell no steps"), "{said}");
                let read: serde_json::Value = serde_json::from_str(&json(diff)).unwrap();
                let left: Vec<_> =
                    read["not_compared"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
                assert!(
                    read["by_sums"] == true && left.starts_with(&["steps", "kernels"]) && !left.contains(&"syncs"),
                    "{left:?}"
                );
            });
        }
    }

    #[test]
    fn two_traces_of_sums_are_compared_and_two_of_rows_by_their_rows() {
        compared([&made(5, false), &made(7, false)], &Filter::default(), |diff| {
            assert!(text(diff, 100).contains("which are all that both have"), "{}", text(diff, 100));
            assert!(diff.by_sums.as_ref().is_some_and(|sums| sums.not_compared.is_empty()), "{:?}", diff.by_sums);
        });
        compared([&made(5, true), &made(7, true)], &Filter::default(), |diff| {
            assert!(diff.by_sums.is_none() && !text(diff, 100).contains("sums of all events"), "{:?}", diff.by_sums);
        });
    }

    #[test]
    fn rows_that_are_left_are_not_compared_with_all_of_them() {
        let (mut left, whole) = (made(50, true), made(50, true));
        assert!(left.remove_before(gputrace_collectors::schema::TableId::Syncs, START + 500_000) > 0);
        compared([&left, &whole], &Filter::default(), |diff| {
            assert!(
                !diff.parts.iter().any(|part| part.name.starts_with("syncs.by") && !part.rows.is_empty()),
                "{:?}",
                diff.parts
            );
            let waits = diff.parts.iter().filter(|part| part.name == "syncs").flat_map(|part| &part.rows);
            assert_eq!(waits.filter(|row| row.what == "waits").count(), 0, "{:?}", diff.parts);
        });
    }

    #[test]
    fn a_window_of_it_is_not_compared_with_the_sums_of_all() {
        let window = Filter { to_ns: Some(START + 50_000), ..Filter::default() };
        compared([&made(5, true), &made(7, false)], &window, |diff| {
            let left = &diff.by_sums.as_ref().expect("by sums").not_compared;
            assert!(left.contains(&"syncs") && left.contains(&"launch-overhead"), "{left:?}");
            assert!(!diff.parts.iter().any(|part| part.name.starts_with("syncs")), "{:?}", diff.parts);
        });
    }
}
