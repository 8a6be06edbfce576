//! decode: how evenly a serving loop launches its graphs, and what the host does between two of them.

use gputrace_collectors::schema::TableId;
use std::cmp::Reverse;

use super::passes::replays::{Replays, UNKNOWN};
use super::passes::stats::Stats;
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need, Part, ProcessSteps};

/// The analysis.
pub(crate) struct Decode;

impl Analysis for Decode {
    fn name(&self) -> &'static str {
        "decode"
    }

    fn title(&self) -> &'static str {
        "Decode loop (launches of graphs)"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "A server that decodes launches a CUDA graph for each token or batch of tokens. Interval: from the begin \
                of one launch of a graph to the begin of the next, of each graph (graph_exec_id), and of each thread \
                whatever the graph. Between: from the end of a launch call to the begin of the next one, which is what the \
                host takes to sample, schedule and wait. p50, p90, p99; jitter is p99 - p50, and the standard deviation in \
                percent of the mean. Token steps: the steps of processes that launch graphs, with the host's time in a \
                usual one outside the driver and in waits; token p50 and p99 are of the process that launches most of them. Where \
                the host runs ahead these are the GPU's steps (--explain steps), so they and not the intervals tell when tokens come.",
            unit: "ns in JSON; rates are intervals of median length per second.",
            limits: "Intervals are the host's: when a graph was launched, not when it ran; of a host that runs ahead they are how fast \
                it gives work, until it waits for many at once. Between holds waits; the token steps \
                tell them apart. Pauses between requests are intervals too: they move the mean, p99 and the jitter, not the \
                median. A loop that launches kernels one by one has no graphs: look at steps.",
            source: "Inter-token latency as serving benchmarks call it (ITL, TPOT), on the host's side.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::GraphReplays]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("graph_launches", Count, "launches of CUDA graphs, without those under capture")
                .sums(&[TableId::Launches]),
            Metric::about("graphs", Count, "graphs that were launched, by process").sums(&[TableId::Launches]),
            Metric::cost("interval_p50_ns", Ns, "median time from one launch of a graph to the thread's next"),
            Metric::cost("interval_p90_ns", Ns, "90th percentile of the times from one launch of a graph to the next")
                .unsteady(),
            Metric::cost("interval_p99_ns", Ns, "99th percentile of the times from one launch of a graph to the next")
                .unsteady(),
            Metric::cost("between_p50_ns", Ns, "median time of the host between two launches of graphs"),
            Metric::cost("jitter_ns", Ns, "99th percentile of the intervals less their median").unsteady(),
            Metric::cost("token_p50_ns", Ns, "median token step, of the GPU where the host runs ahead of it"),
            Metric::cost("token_p99_ns", Ns, "99th percentile of the token steps").unsteady(),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.replays.graphs.iter().next().is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let (mut interval, mut between) = (Stats::default(), Stats::default());
        for (_, replays) in facts.replays.threads.iter() {
            interval.merge(&replays.interval);
            between.merge(&replays.between);
        }
        let launches: u64 = facts.replays.threads.iter().map(|(_, replays)| replays.launches).sum();
        let of = |share: f64| (interval.count > 0).then(|| interval.quantile(share));
        section.fact("graph_launches", "launches of graphs", Unit::Count, launches);
        section.fact("graphs", "graphs", Unit::Count, facts.replays.graphs.iter().count() as u64);
        section.fact("interval_p50_ns", "interval p50", Unit::Ns, of(0.5));
        section.fact("interval_p90_ns", "p90", Unit::Ns, of(0.9));
        section.fact("interval_p99_ns", "p99", Unit::Ns, of(0.99));
        let median = (between.count > 0).then(|| between.median());
        section.fact("between_p50_ns", "host between two launches, p50", Unit::Ns, median);
        section.fact("jitter_ns", "jitter (p99 - p50)", Unit::Ns, of(0.99).zip(of(0.5)).map(|(high, low)| high - low));
        let tokens =
            of_graphs(facts).max_by_key(|(steps, launches)| (*launches, Reverse(facts.place(steps.process_id))));
        let token = |share: f64| tokens.map(|(steps, _)| steps.quantile_ns(share));
        section.fact("token_p50_ns", "token step p50", Unit::Ns, token(0.5));
        section.fact("token_p99_ns", "token step p99", Unit::Ns, token(0.99));
        if tokens.is_some_and(|(steps, _)| steps.is_ahead()) {
            section.note(
                "The host runs ahead of the GPU: intervals are those of giving work, and tokens come as the token steps say, which are \
                 the GPU's.",
            );
        }
        if launches == 0 {
            section.note("No graphs were launched in this trace: for a loop that launches kernels, see steps.");
        }
        let threads = facts
            .replays
            .threads
            .iter()
            .map(|((process, tid), replays)| (vec![facts.label(*process).into(), tid.to_string().into()], replays));
        let head = [column("process", "Process", Unit::Text), column("tid", "Thread", Unit::Text)];
        section.table(table("by_thread", "By thread, whatever the graph", &head, threads.collect()));
        let graphs = facts.replays.graphs.iter().map(|((process, graph), replays)| {
            let graph = if *graph == UNKNOWN { Value::Missing } else { (*graph).into() };
            (vec![facts.label(*process).into(), graph], replays)
        });
        let head = [column("process", "Process", Unit::Text), column("graph_exec_id", "Graph", Unit::Count)];
        section.table(table("by_graph", "By graph", &head, graphs.collect()));
        section.table(token_steps(facts));
        section
    }
}

/// Rows by what names them, most launches first.
fn table(key: &'static str, title: &'static str, head: &[Column], mut rows: Vec<(Vec<Value>, &Replays)>) -> Table {
    const TIMES: [Column; 9] = [
        column("launches", "Launches", Unit::Count),
        column("interval_p50_ns", "Interval p50", Unit::Ns),
        column("interval_p90_ns", "p90", Unit::Ns),
        column("interval_p99_ns", "p99", Unit::Ns),
        column("interval_max_ns", "Max", Unit::Ns),
        column("jitter_percent", "Jitter", Unit::Percent),
        column("between_p50_ns", "Between p50", Unit::Ns),
        column("between_p99_ns", "Between p99", Unit::Ns),
        column("rate_per_s", "Rate", Unit::PerS),
    ];
    rows.sort_by_key(|(head, replays)| (Reverse(replays.launches), format!("{head:?}")));
    let row = |(mut row, replays): (Vec<Value>, &Replays)| {
        let (interval, between) = (&replays.interval, &replays.between);
        let known = |value: Value| if interval.count > 0 { value } else { Value::Missing };
        let jitter = if interval.mean() > 0.0 { 100.0 * interval.deviation() / interval.mean() } else { f64::NAN };
        row.push(replays.launches.into());
        row.extend([0.5, 0.9, 0.99].map(|share| known(interval.quantile(share).into())));
        row.extend([known(interval.max.into()), known(jitter.into())]);
        row.extend([0.5, 0.99].map(|share| known(between.quantile(share).into())));
        row.push(known((1e9 / interval.median() as f64).into()));
        row
    };
    let columns: Vec<Column> = head.iter().copied().chain(TIMES).collect();
    Table::new(key, title, &columns, rows.into_iter().map(row).collect())
}

/// The steps of processes that launch graphs in them, and how many they launch.
fn of_graphs<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = (&'a ProcessSteps, u64)> {
    let launches = |process: i64| -> u64 {
        facts.replays.threads.iter().filter(|((of, _), _)| *of == process).map(|(_, replays)| replays.steady).sum()
    };
    facts.steps.all.iter().map(move |steps| (steps, launches(steps.process_id))).filter(|(_, launches)| *launches > 0)
}

fn token_steps(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("steps", "Steps", Unit::Count),
        column("p50_ns", "p50", Unit::Ns),
        column("p90_ns", "p90", Unit::Ns),
        column("p99_ns", "p99", Unit::Ns),
        column("outside_ns", "Outside driver", Unit::Ns),
        column("wait_ns", "Waits", Unit::Ns),
        column("graphs_per_step", "Graphs a step", Unit::Count),
        column("clock", "Timed by", Unit::Text),
    ];
    let row = |(steps, graphs): (&ProcessSteps, u64)| -> Vec<Value> {
        let shares = facts.host.processes.get(&steps.process_id).map(|time| time.shares_ns()).unwrap_or_default();
        let per = steps.middle.max(1) as f64;
        let outside = steps.middle_host_ns - shares.iter().sum::<i64>() as f64 / per;
        vec![
            facts.label(steps.process_id).into(),
            (steps.sorted_ns.len() as u64).into(),
            steps.quantile_ns(0.5).into(),
            steps.quantile_ns(0.9).into(),
            steps.quantile_ns(0.99).into(),
            outside.max(0.0).into(),
            (shares[Part::Wait as usize] as f64 / per).into(),
            (graphs as f64 / steps.sorted_ns.len().max(1) as f64).into(),
            steps.whose().into(),
        ]
    };
    let rows = of_graphs(facts).map(row).collect();
    Table::new(
        "token_steps",
        "Token steps of processes that launch graphs, the host's time in a usual one",
        &COLUMNS,
        rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn intervals_are_told_by_graph_and_by_thread_and_the_host_between_them() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        for token in 0..40 {
            thread.launch_graph(Some(1 + token % 2), Some(10), 20_000);
            thread.host(if token == 30 { 980_000 } else { 380_000 });
            thread.sync("cuStreamSynchronize", "stream", 100_000);
        }
        let section = trace.section(&Decode);
        assert_eq!((section.get("graph_launches"), section.get("graphs")), (&Value::Int(40), &Value::Int(2)));
        assert_eq!(
            (section.get("interval_p50_ns"), section.get("interval_p99_ns")),
            (&Value::Int(500_000), &Value::Int(1_100_000))
        );
        assert_eq!(
            (section.get("between_p50_ns"), section.get("jitter_ns")),
            (&Value::Int(480_000), &Value::Int(600_000))
        );
        assert_eq!(section.cell("by_graph", 0, "interval_p50_ns"), &Value::Int(1_000_000));
        assert_eq!(section.cell("by_thread", 0, "rate_per_s"), &Value::Num(2_000.0));
        let cell = |column: &str| section.cell("token_steps", 0, column).clone();
        assert_eq!([cell("graphs_per_step"), cell("wait_ns")], [Value::Num(1.0), Value::Num(100_000.0)]);
        assert_eq!((section.get("token_p50_ns"), cell("clock")), (&Value::Int(500_000), "host".into()));
        assert!(section.notes.is_empty());
    }

    #[test]
    fn of_a_host_that_runs_ahead_the_gpu_tells_when_tokens_come() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 200_000_000);
        let mut thread = trace.thread(1, 11);
        let mut end = START + 20_000;
        for token in 0..60 {
            let step = thread.range_begin();
            thread.launch_graph(Some(1), Some(10), 8_000);
            end = thread.launch_running("sample", 5_000, 7, (end.max(thread.now + 6_000), 900_000));
            thread.host(5_000);
            if token % 10 == 9 {
                thread.sync("cuStreamSynchronize", "stream", end - thread.now);
            }
            thread.range_end(None, "step", step, true);
        }
        let section = trace.section(&Decode);
        let ns = |key: &str| if let Value::Int(ns) = section.get(key) { *ns } else { panic!("{key}") };
        assert!(ns("interval_p50_ns") < 30_000 && ns("token_p50_ns") == 900_000, "{section:?}");
        assert_eq!(section.cell("token_steps", 0, "clock"), &Value::from("GPU"));
        assert!(section.notes[0].starts_with("The host runs ahead of the GPU"), "{:?}", section.notes);
    }

    #[test]
    fn a_trace_without_graphs_says_where_to_look() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        trace.thread(1, 11).launch("k", 1_000);
        assert!(trace.section(&Decode).notes[0].ends_with("see steps."));
    }
}
