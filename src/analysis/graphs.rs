//! graphs: what CUDA graphs hold, what making and changing them costs, and whether launching them repays it.
//!
//! What launch-overhead says of graphs stands here too: kernels beside calls, and the graphs that were launched.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_collectors::schema::TableId;

use super::launch_overhead::{TIMES, times};
use super::passes::kernels::{Kernels, Replays};
use super::passes::stats::Stats;
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need, loss};

/// The analysis.
pub(crate) struct Graphs;

impl Analysis for Graphs {
    fn name(&self) -> &'static str {
        "graphs"
    }

    fn title(&self) -> &'static str {
        "CUDA graphs"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Graphs by process and instantiation (graph_exec_id): kernels and other nodes of a launch, launches, the \
                time of a launch call, updates. Calls that make, change and end graphs, with their time. A launch of a \
                graph saves what as many launches of single kernels take (their median in the same process) less what it \
                takes itself; the mean instantiation is repaid after so many launches. Launched once: its instantiation \
                was not repaid, unless one launch saved as much.",
            unit: "ns in JSON, of the host; nodes and launches are counts.",
            limits: "What a graph saves on the GPU (gaps between its kernels) is not in the saving, nor what capturing it \
                took. The cost of an instantiation is the mean over the process. Kernels in bodies of conditional nodes run \
                as often as the device decides. Where no single kernel is launched, the saving is not known. 20,000 graphs \
                are told apart. In imported traces a graph is told by what its launches did on the GPU: its number, or its \
                nodes' numbers, where the profiler wrote them; what was not launched is not known there.",
            source: "Nsight Systems, CUDA graph trace; CUDA programming guide, CUDA Graphs; tables graphs and launches.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::GraphsMade, Need::Launches, Need::Loading]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("instantiations", Count, "calls that instantiate a graph")
                .sums(&[TableId::Graphs, TableId::Launches]),
            Metric::cost("instantiations_ns", Ns, "time in calls that instantiate graphs")
                .sums(&[TableId::Graphs, TableId::Launches])
                .unsteady(),
            Metric::about("updates", Count, "calls that change an instantiated graph")
                .sums(&[TableId::Graphs, TableId::Launches]),
            Metric::cost("updates_ns", Ns, "time in calls that change instantiated graphs")
                .sums(&[TableId::Graphs, TableId::Launches])
                .unsteady(),
            Metric::cost("steady_instantiations", Count, "graphs instantiated in steady steps").sums(&[
                TableId::Graphs,
                TableId::Launches,
                TableId::Ranges,
            ]),
            Metric::about("graph_launches", Count, "launches of graphs").sums(&[TableId::Launches]),
            Metric::use_of("kernels_per_launch", Count, "kernels that a launch of a graph gives the GPU, mean"),
            Metric::cost("launched_once", Count, "graphs that were launched once").sums(&[TableId::Launches]),
            Metric::cost("never_launched", Count, "graphs that were instantiated and not launched")
                .sums(&[TableId::Graphs, TableId::Launches]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        let launched = facts.launches.graphs.0.iter().next().is_some();
        launched || facts.graphs.graphs.iter().next().is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let made = calls(facts, |name| driver(name).starts_with("cuGraphInstantiate"));
        let changed = calls(facts, updates);
        let sum = |calls: &BTreeMap<i64, Stats>| {
            calls.values().fold((0, 0), |sum, stats| (sum.0 + stats.count, sum.1 + stats.sum))
        };
        let replays = || facts.launches.graphs.0.iter().map(|(_, replays)| replays);
        let launches: u64 = replays().map(|replays| replays.calls.count).sum();
        let kernels: u64 = replays().map(|replays| replays.kernels).sum();
        let rows = rows(facts);
        let launched = |count: u64| rows.iter().filter(|row| row.key.1 >= 0 && row.launches() == count).count() as u64;
        let steady = facts.graphs.graphs.iter().filter(|(_, graph)| graph.steady);
        section.fact("instantiations", "instantiations", Unit::Count, sum(&made).0);
        section.fact("instantiations_ns", "time in them", Unit::Ns, sum(&made).1);
        section.fact("steady_instantiations", "of them in steady steps", Unit::Count, steady.count() as u64);
        section.fact("updates", "updates", Unit::Count, sum(&changed).0);
        section.fact("updates_ns", "time in them", Unit::Ns, sum(&changed).1);
        section.fact("graph_launches", "launches", Unit::Count, launches);
        let each = (launches > 0).then(|| kernels as f64 / launches as f64);
        section.fact("kernels_per_launch", "kernels a launch", Unit::Count, each);
        section.fact("launched_once", "graphs launched once", Unit::Count, launched(1));
        section.fact("never_launched", "graphs never launched", Unit::Count, launched(0));
        if rows.is_empty() {
            section.note("No CUDA graphs in this trace.");
        }
        section.table(by_graph(facts, &rows, &made));
        section.table(by_function(facts));
        loss::note(&mut section, facts, "launches", TableId::Launches);
        section
    }
}

/// A function of the runtime, which imported traces have, by the name that the driver's is told by.
fn driver(name: &str) -> std::borrow::Cow<'_, str> {
    name.strip_prefix("cuda").map_or(name.into(), |rest| format!("cu{rest}").into())
}

/// Whether a function of this name changes an instantiated graph.
fn updates(name: &str) -> bool {
    let name = driver(name);
    let sets = name.starts_with("cuGraphExec") && name.contains("NodeSet");
    name.starts_with("cuGraphExecUpdate") || name == "cuGraphNodeSetEnabled" || sets
}

/// Calls of functions, by process.
fn calls(facts: &Facts<'_>, which: impl Fn(&str) -> bool) -> BTreeMap<i64, Stats> {
    let mut sums: BTreeMap<i64, Stats> = BTreeMap::new();
    for ((process, _), calls) in facts.loading.calls.iter().filter(|((_, api), _)| which(&facts.names.full(*api))) {
        sums.entry(*process).or_default().merge(&calls.api);
    }
    sums
}

/// A graph that was made or launched.
struct Row<'a> {
    key: (i64, i64),
    made: Option<&'a super::passes::graphs::Graph>,
    replays: Option<&'a Replays>,
}

impl Row<'_> {
    fn launches(&self) -> u64 {
        self.replays.map_or(0, |replays| replays.calls.count)
    }
}

/// All graphs, most launches first.
fn rows<'a>(facts: &'a Facts<'_>) -> Vec<Row<'a>> {
    let mut rows: BTreeMap<(i64, i64), Row<'a>> = BTreeMap::new();
    for (key, graph) in facts.graphs.graphs.iter() {
        rows.insert(*key, Row { key: *key, made: Some(graph), replays: None });
    }
    for (key, replays) in facts.launches.graphs.0.iter() {
        rows.entry(*key).or_insert(Row { key: *key, made: None, replays: None }).replays = Some(replays);
    }
    let mut rows: Vec<Row<'_>> = rows.into_values().collect();
    rows.sort_by_key(|row| (Reverse(row.launches()), facts.place(row.key.0), row.key));
    rows
}

/// What the launch of a single kernel usually takes, by process.
fn single(facts: &Facts<'_>, process: i64) -> Option<f64> {
    let mut all = Stats::default();
    let kernels = |api: i64| driver(&facts.names.full(api)).starts_with("cuLaunchKernel");
    for ((of, _, api), stats) in facts.launches.calls.iter().filter(|((of, ..), _)| *of == process) {
        if *of == process && kernels(*api) {
            all.merge(stats);
        }
    }
    (all.count > 0).then(|| all.median() as f64)
}

fn by_graph(facts: &Facts<'_>, rows: &[Row<'_>], made: &BTreeMap<i64, Stats>) -> Table {
    const COLUMNS: [Column; 11] = [
        column("process", "Process", Unit::Text),
        column("graph_exec_id", "Graph", Unit::Count),
        column("launches", "Launches", Unit::Count),
        column("kernels", "Kernels", Unit::Count),
        column("other_nodes", "Other nodes", Unit::Count),
        column("updates", "Updates", Unit::Count),
        column("launch_ns", "Launch, mean", Unit::Ns),
        column("saved_ns", "Saved a launch", Unit::Ns),
        column("repaid_after", "Repaid after", Unit::Count),
        column("repaid", "Repaid", Unit::Text),
        column("conditional_kernels", "In conditions", Unit::Count),
    ];
    let singles: BTreeMap<i64, Option<f64>> = rows.iter().map(|row| (row.key.0, single(facts, row.key.0))).collect();
    let row = |row: &Row<'_>| -> Vec<Value> {
        let (process, graph) = row.key;
        let mean = row.replays.map(|replays| replays.calls.mean());
        let kernels = match (row.replays, row.made) {
            (Some(replays), _) if graph >= 0 => Some(replays.kernels as f64 / replays.calls.count.max(1) as f64),
            (_, made) => made.map(|made| made.kernels as f64),
        };
        let saved = kernels.zip(singles.get(&process).copied().flatten()).zip(mean);
        let saved = saved.map(|((kernels, single), mean)| kernels * single - mean);
        let cost = made.get(&process).map(Stats::mean);
        let after = saved.zip(cost).filter(|(saved, _)| *saved > 0.0).map(|(saved, cost)| (cost / saved).ceil());
        vec![
            facts.label(process).into(),
            Some(graph).filter(|graph| *graph >= 0).into(),
            row.launches().into(),
            kernels.into(),
            row.made.map(|made| made.others).into(),
            row.made.map(|made| made.updates).into(),
            mean.into(),
            saved.into(),
            after.into(),
            saved.zip(cost).map(|(saved, cost)| saved * row.launches() as f64 >= cost).into(),
            row.made.map(|made| made.conditional_kernels).filter(|kernels| *kernels > 0).into(),
        ]
    };
    let title = "By graph, most launches first";
    Table::new("by_graph", title, &COLUMNS, rows.iter().map(row).collect())
}

fn by_function(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 7] = [
        column("process", "Process", Unit::Text),
        column("api", "Function", Unit::Name),
        column("total_ns", "Total", Unit::Ns),
        column("calls", "Calls", Unit::Count),
        column("med_ns", "Med", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
        column("usual_steps_ns", "In usual steps", Unit::Ns),
    ];
    let named = facts.loading.calls.iter().map(|(key, calls)| (key, facts.names.full(key.1), calls));
    let mut calls: Vec<_> = named.filter(|(_, name, _)| name.starts_with("cuGraph")).collect();
    calls.sort_by_key(|(key, _, calls)| (Reverse(calls.api.sum), facts.place(key.0), **key));
    let row = |((process, _), name, calls): &(&(i64, i64), String, &super::LoadingCalls)| {
        vec![
            facts.label(*process).into(),
            name.as_str().into(),
            calls.api.sum.into(),
            calls.api.count.into(),
            calls.api.median().into(),
            calls.api.max.into(),
            calls.middle.1.into(),
        ]
    };
    let title = "Calls that make, change and end graphs";
    Table::new("by_function", title, &COLUMNS, calls.iter().map(row).collect())
}

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
    graphs.sort_by_key(|(key, replays)| (Reverse(replays.calls.sum), facts.place(key.0), **key));
    let row = |((process, graph), replays): (&(i64, i64), &Replays)| {
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
    use gputrace_collectors::schema::TableId;
    use serde_json::json;

    use super::Graphs;
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

    #[test]
    fn a_graph_is_repaid_when_its_launches_save_what_making_it_took() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        for (graph, updates) in [(1, 0), (2, 3), (3, 0)] {
            let row = json!({
                "start_ns": START, "process_id": 1, "graph_exec_id": graph, "action": "instantiate", "kernels": 40,
                "memcpys": 1, "memsets": 1, "updates": updates, "complete": true,
            });
            trace.row(TableId::Graphs, row);
        }
        let mut thread = trace.thread(1, 11);
        (0..3).for_each(|_| thread.other("cuGraphInstantiateWithFlags", "api", 300_000));
        thread.other("cuGraphExecUpdate_v2", "api", 9_000);
        thread.launch("gemm", 2_000);
        (0..20).for_each(|_| thread.launch_graph(Some(1), Some(40), 20_000));
        thread.launch_graph(Some(2), Some(40), 20_000);
        let section = trace.section(&Graphs);
        assert_eq!(
            (section.get("instantiations"), section.get("instantiations_ns")),
            (&Value::Int(3), &Value::Int(900_000))
        );
        assert_eq!((section.get("updates"), section.get("updates_ns")), (&Value::Int(1), &Value::Int(9_000)));
        assert_eq!((section.get("launched_once"), section.get("never_launched")), (&Value::Int(1), &Value::Int(1)));
        assert_eq!(section.get("kernels_per_launch"), &Value::Num(40.0));
        let row = |row: usize| {
            ["launches", "saved_ns", "repaid_after", "repaid"]
                .map(|column| section.cell("by_graph", row, column).clone())
        };
        assert_eq!(row(0), [Value::Int(20), Value::Num(60_000.0), Value::Num(5.0), "yes".into()]);
        assert_eq!(row(1), [Value::Int(1), Value::Num(60_000.0), Value::Num(5.0), "no".into()]);
        assert_eq!(row(2), [Value::Int(0), Value::Missing, Value::Missing, Value::Missing]);
        assert_eq!(section.cell("by_graph", 1, "updates"), &Value::Int(3));
    }
}
