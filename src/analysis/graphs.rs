//! What the reports say of graphs: kernels beside calls, and a table of the graphs that were launched.

use super::Facts;
use super::launch_overhead::{TIMES, times};
use super::passes::kernels::Kernels;
use super::section::{Column, Section, Table, Unit, Value, column};

/// Kernels of a process's launches per step: the mean over the steps of usual duration; none without steps.
pub(super) fn per_step(facts: &Facts<'_>, process_id: i64, kernels: &Kernels) -> Value {
    match facts.steps.of(process_id).filter(|steps| steps.middle > 0) {
        Some(steps) if kernels.unknown == 0 => (kernels.middle as f64 / steps.middle as f64).into(),
        _ => Value::Missing,
    }
}

/// Adds the kernels of all launches.
pub(super) fn facts_of(section: &mut Section, facts: &Facts<'_>) {
    let sum = |of: fn(&Kernels) -> u64| -> u64 { facts.launches.processes.iter().map(|(_, p)| of(&p.kernels)).sum() };
    let unknown = sum(|kernels| kernels.unknown);
    section.fact("kernels", "kernels launched", Unit::Count, sum(|kernels| kernels.all));
    section.fact("graph_launches", "launches of graphs", Unit::Count, sum(|kernels| kernels.graphs));
    section.fact("unknown_graph_launches", "of graphs not seen being made", Unit::Count, unknown);
    if unknown > 0 {
        section.note(format!(
            "{unknown} launches of graphs whose instantiation was not recorded, or not read in full: their kernels are missing \
             in every count of kernels"
        ));
    }
}

/// Adds the graphs that were launched, most time first.
pub(super) fn table(section: &mut Section, facts: &Facts<'_>, whole_ns: f64) {
    let mut graphs: Vec<_> = facts.launches.graphs.0.iter().collect();
    graphs.sort_by_key(|(key, replays)| (std::cmp::Reverse(replays.calls.sum), **key));
    let row = |((process, graph), replays): (&(i64, i64), &super::passes::kernels::Replays)| {
        let known = *graph >= 0;
        let mut row = vec![
            facts.label(*process).into(),
            if known { Value::from(*graph) } else { Value::Missing },
            if known { Value::from(replays.kernels) } else { Value::Missing },
        ];
        row.extend(times(&replays.calls, whole_ns));
        row
    };
    let names = [
        column("process", "Process", Unit::Text),
        column("graph_exec_id", "Graph", Unit::Count),
        column("kernels", "Kernels", Unit::Count),
    ];
    let columns: Vec<Column> = names.into_iter().chain(TIMES).collect();
    section.table(Table::new("by_graph", "By graph", &columns, graphs.into_iter().map(row).collect()));
}

#[cfg(test)]
mod tests {
    use crate::analysis::launch_overhead::LaunchOverhead;
    use crate::analysis::section::Value;
    use crate::analysis::summary::Summary;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn a_replayed_graph_is_one_launch_and_all_its_kernels() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.launch("gemm", 2_000);
        thread.launch_graph(Some(1), Some(40), 5_000);
        thread.launch_graph(Some(1), Some(40), 5_000);
        thread.launch_graph(Some(2), Some(0), 1_000);
        let section = trace.section(&LaunchOverhead);
        assert_eq!((section.get("launches"), section.get("kernels")), (&Value::Int(4), &Value::Int(81)));
        assert_eq!(section.get("graph_launches"), &Value::Int(3));
        assert_eq!(section.cell("by_graph", 0, "kernels"), &Value::Int(80));
        assert_eq!(section.cell("by_graph", 0, "calls"), &Value::Int(2));
        assert_eq!(section.cell("by_graph", 1, "kernels"), &Value::Int(0));
        assert!(section.notes.is_empty());
    }

    #[test]
    fn a_step_has_so_many_calls_and_so_many_kernels() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..40 {
            thread.launch("gemm", 1_000);
            thread.launch_graph(Some(1), Some(40), 5_000);
            thread.host(100_000);
            thread.sync("cuStreamSynchronize", "stream", 50_000);
        }
        assert_eq!(trace.section(&LaunchOverhead).cell("by_process", 0, "kernels_per_step"), &Value::Num(41.0));
        let summary = trace.section(&Summary);
        assert_eq!((summary.get("launches"), summary.get("kernels")), (&Value::Num(2.0), &Value::Num(41.0)));
        let text = summary.literal.expect("the summary is a text");
        assert!(text.contains(" 2 launches of 41 kernels, median "), "{text}");
    }

    #[test]
    fn graphs_that_were_not_seen_being_made_are_named_and_not_guessed() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.launch("gemm", 2_000);
        thread.launch_graph(None, None, 5_000);
        let section = trace.section(&LaunchOverhead);
        assert_eq!((section.get("kernels"), section.get("unknown_graph_launches")), (&Value::Int(1), &Value::Int(1)));
        assert_eq!(section.cell("by_graph", 0, "kernels"), &Value::Missing);
        assert!(section.notes[0].starts_with("1 launches of graphs whose instantiation was not recorded"));
    }
}
