//! A replayed graph is one launch and all its kernels, whatever became of its handle; and no capture is disturbed.
//!
//! The truth is what the program says it put into its graphs, and what the simulated device ran.

use std::collections::BTreeMap;
use std::path::Path;

use crate::util::{Driver, Finished, Row, Scratch, Trace, program, truth};

const DRIVERS: [Driver; 2] = [Driver::Plain, Driver::Symbolic];

/// Columns of `graphs` that count nodes.
const KINDS: [&str; 16] = [
    "kernels",
    "memcpys",
    "memsets",
    "hosts",
    "child_graphs",
    "empties",
    "event_waits",
    "event_records",
    "semaphores",
    "mem_allocs",
    "mem_frees",
    "batch_mem_ops",
    "conditionals",
    "others",
    "conditional_nodes",
    "conditional_kernels",
];

/// Lines that begin with this word.
fn lines<'a>(text: &'a str, word: &str) -> Vec<Vec<&'a str>> {
    let rest = text.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    rest.map(|rest| rest.split(' ').collect()).collect()
}

/// The launches of graphs, in order: number of the instantiation (0: none) and kernels (-1: not known).
fn replays(trace: &Trace, process: Option<i64>) -> Vec<(i64, i64)> {
    let (names, table) = (trace.names(), trace.table("launches"));
    let graphs = table.rows().filter(|row| names[&row.int("api_id")].starts_with("cuGraphLaunch"));
    let ours = graphs.filter(|row| process.is_none_or(|id| row.int("process_id") == id));
    let launched =
        |row: &Row<'_>| (row.maybe_int("graph_exec_id").unwrap_or(0), row.maybe_int("kernels").unwrap_or(-1));
    let mut found: Vec<_> = ours.map(|row| (row.int("start_ns"), launched(&row))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, launched)| launched).collect()
}

/// The kernels that the simulated device ran.
fn ran(truth: &Path) -> i64 {
    let text = std::fs::read_to_string(truth).expect("the driver wrote what it did");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let device = value["device"].as_array().expect("what the device did");
    device.iter().filter(|done| done["kind"] == "kernel").count() as i64
}

/// Kernels by name of the last rows about this graph, and whether the counts are those of bodies.
fn kernels(trace: &Trace, graph: i64, column: &str) -> BTreeMap<String, i64> {
    let (names, table) = (trace.names(), trace.table("graph_kernels"));
    let of = || table.rows().filter(|row| row.int("graph_exec_id") == graph);
    let last = of().map(|row| row.int("start_ns")).max();
    let rows = of().filter(|row| Some(row.int("start_ns")) == last && row.int(column) > 0);
    rows.map(|row| (names[&row.int("name_id")].clone(), row.int(column))).collect()
}

/// Asserts that each launch and each graph is as the program says.
#[track_caller]
fn as_the_program_says(run: &Finished, trace: &Trace) {
    let text = run.text();
    let launches = lines(&text, "launch").into_iter();
    let said: Vec<(i64, i64)> =
        launches.map(|words| (words[0].parse().expect("a graph"), words[1].parse().expect("kernels"))).collect();
    assert!(!said.is_empty());
    assert_eq!(replays(trace, None), said);
    let graphs = trace.table("graphs");
    for words in lines(&text, "graph") {
        let number: i64 = words[0].parse().expect("a graph");
        let made = |row: &Row<'_>| row.int("graph_exec_id") == number && row.text("action") == "instantiate";
        let row = graphs.rows().find(made).expect("the instantiation is in the table");
        let mut counts: BTreeMap<&str, i64> = KINDS.iter().map(|kind| (*kind, 0)).collect();
        let (mut named, mut in_bodies) = (BTreeMap::new(), BTreeMap::new());
        for word in &words[1..] {
            let (what, nodes) = word.split_once('=').expect("WHAT=NODES");
            let nodes = nodes.parse().expect("a number");
            match what.split_once(':') {
                Some(("kernel", name)) => _ = named.insert(name.to_owned(), nodes),
                Some(("body", name)) => _ = in_bodies.insert(name.to_owned(), nodes),
                _ => _ = counts.insert(what, nodes),
            }
        }
        assert_eq!(
            KINDS.iter().map(|kind| (*kind, row.int(kind))).collect::<BTreeMap<_, _>>(),
            counts,
            "graph {number}"
        );
        assert_eq!(row.int("complete"), 1, "graph {number}");
        if lines(&text, "updated").is_empty() {
            assert_eq!(
                (kernels(trace, number, "nodes"), kernels(trace, number, "conditional_nodes")),
                (named, in_bodies)
            );
        }
    }
}

/// Runs a scenario on both drivers, and checks what does not depend on it.
fn scenario(arguments: &[&str], check: impl Fn(&Finished, &Trace, &Path)) {
    let scratch = Scratch::new();
    for driver in DRIVERS {
        let file = scratch.path().join("truth.json");
        let target = scratch.target(program("cuda_graphs")).args(arguments).with_driver(driver);
        let target = target.env("FAKE_CUDA_TRUTH", &file).env("FAKE_CUDA_INSTANT", "1");
        let run = target.options(["--on-full", "block"]).traced().expect(0);
        let trace = run.read();
        trace.assert_balanced();
        trace.assert_counts(&truth(&file));
        check(&run, &trace, &file);
    }
}

/// The kernels of all launches, which are those that the device ran.
#[track_caller]
fn all_kernels_ran(trace: &Trace, truth: &Path) {
    let launched: i64 = trace.table("launches").rows().map(|row| row.int("kernels")).sum();
    assert_eq!(launched, ran(truth));
    assert!(launched > 0);
}

#[test]
fn every_function_that_instantiates_tells_what_the_graph_holds_and_each_replay_how_many_kernels() {
    scenario(&["variants"], |run, trace, truth| {
        as_the_program_says(run, trace);
        all_kernels_ran(trace, truth);
        assert_eq!(lines(&run.text(), "launch").len(), 21);
        let cost = trace.root().cost;
        assert!(cost.graphs_ns.is_some_and(|ns| ns > 0.0 && cost.total_ns > Some(ns)), "{cost:?}");
    });
}

#[test]
fn kernels_of_graphs_in_graphs_are_counted_with_those_around_them() {
    scenario(&["children"], |run, trace, truth| {
        as_the_program_says(run, trace);
        all_kernels_ran(trace, truth);
    });
}

#[test]
fn names_that_no_call_has_told_are_asked_for_beside_an_open_capture_too() {
    scenario(&["unseen"], |run, trace, truth| {
        as_the_program_says(run, trace);
        all_kernels_ran(trace, truth);
    });
}

#[test]
fn bodies_of_conditional_nodes_are_told_apart_from_what_every_replay_runs() {
    scenario(&["conditionals"], |run, trace, truth| {
        as_the_program_says(run, trace);
        // What a body runs is no launch of the host's: in each of three rounds three times two, one of a switch, and ours.
        assert_eq!(trace.table("launches").rows().map(|row| row.int("kernels")).sum::<i64>(), 3);
        assert_eq!(ran(truth), 3 * (1 + 3 * 2 + 1));
    });
}

#[test]
fn updates_are_counted_and_keep_the_identity() {
    scenario(&["updates"], |run, trace, truth| {
        as_the_program_says(run, trace);
        all_kernels_ran(trace, truth);
        let (text, graphs) = (run.text(), trace.table("graphs"));
        for words in lines(&text, "updates") {
            let (graph, updates): (i64, i64) =
                (words[0].parse().expect("a graph"), words[1].parse().expect("a number"));
            let rows = graphs.rows().filter(|row| row.int("graph_exec_id") == graph);
            assert_eq!(rows.map(|row| row.int("updates")).sum::<i64>(), updates);
        }
        let untouched = graphs.rows().filter(|row| row.int("graph_exec_id") == 2);
        assert_eq!(
            untouched.map(|row| (row.text("action"), row.int("updates"))).collect::<Vec<_>>(),
            [("instantiate", 0)]
        );
        let last = kernels(trace, 1, "nodes");
        assert_eq!(last, BTreeMap::from([("third_0".to_owned(), 1), ("third_1".to_owned(), 1)]));
    });
}

#[test]
fn a_handle_that_was_used_before_is_the_graph_that_it_is_now() {
    let rounds = 9000; // the simulated driver gives a handle again after 4,096 others
    scenario(&["reuse", &rounds.to_string()], |run, trace, truth| {
        as_the_program_says(run, trace);
        all_kernels_ran(trace, truth);
        let graphs = trace.table("graphs");
        let mut handles: Vec<i64> = graphs.rows().map(|row| row.int("exec")).collect();
        assert_eq!(handles.len(), rounds);
        handles.sort_unstable();
        handles.dedup();
        assert!(handles.len() < rounds, "no handle came back");
    });
}

#[test]
fn a_large_graph_is_counted_whole_and_says_which_names_are_cut() {
    scenario(&["large", "20000"], |run, trace, truth| {
        assert_eq!(replays(trace, None), [(1, 20_000)]);
        assert!(run.text().contains("launch 1 20000"));
        all_kernels_ran(trace, truth);
        let (graphs, table) = (trace.table("graphs"), trace.table("graph_kernels"));
        let row = graphs.rows().next().expect("the graph");
        assert_eq!((row.int("kernels"), row.int("complete")), (20_000, 0));
        // 480 of 600 names, each in 33 or 34 nodes.
        assert_eq!(table.len(), 480);
        assert!(table.rows().all(|row| (33..=34).contains(&row.int("nodes")) && row.maybe_int("name_id").is_some()));
    });
}

#[test]
fn graphs_made_and_changed_while_recording_is_paused_are_known_when_it_goes_on() {
    let scratch = Scratch::new();
    for driver in DRIVERS {
        let run = scratch.target(program("cuda_graphs")).arg("paused").with_driver(driver).traced().expect(0);
        let trace = run.read();
        trace.assert_balanced();
        as_the_program_says(&run, &trace);
    }
}

#[test]
fn forked_processes_have_graphs_of_their_own() {
    let scratch = Scratch::new();
    for driver in DRIVERS {
        let target = scratch.target(program("cuda_graphs")).arg("forked").with_driver(driver);
        let run = target.env("FAKE_CUDA_INSTANT", "1").traced().expect(0);
        let trace = run.read();
        trace.assert_balanced();
        let parent = trace.root().process_id;
        assert_eq!(replays(&trace, Some(parent)), [(1, 3), (1, 3)]);
        let ids =
            trace.manifest().processes.iter().map(|p| p.process_id).filter(|id| *id != parent).collect::<Vec<_>>();
        let mut others: Vec<_> = ids.into_iter().map(|id| replays(&trace, Some(id))).collect();
        others.sort();
        // The one that inherited an executable graph does not know it, or the driver refused.
        let inherited: Vec<_> = others.iter().filter(|own| **own != [(1, 4)]).flatten().collect();
        assert!(others.contains(&vec![(1, 4)]), "{others:?}");
        assert!(inherited.iter().all(|launched| matches!(launched, (0, -1 | 0))), "{others:?}");
    }
}

#[test]
fn captures_in_every_mode_stay_valid_under_every_option_and_illegal_calls_spoil_them_as_ever() {
    let scratch = Scratch::new();
    let options = ["--malloc", "full", "--stacks-over", "1", "--launch-stacks", "1", "--on-full", "block"];
    for driver in DRIVERS {
        let target = scratch.target(program("cuda_graphs")).arg("strict").with_driver(driver);
        let target = target.env("FAKE_CUDA_INSTANT", "1");
        let plain = target.plain().expect(0).text();
        // The driver is strict: what is illegal in a mode fails, and spoils the capture.
        let expected = "the thread's own mode is 1
mode 0 how 0
end 0
mode 0 how 1
end 0
mode 0 how 2
query from another thread: 900
end 901
mode 0 how 3
query: 900
end 901
mode 1 how 0
end 0
mode 1 how 1
end 0
mode 1 how 2
query from another thread: 0
end 0
mode 1 how 3
query: 900
end 901
mode 2 how 0
end 0
mode 2 how 1
end 0
mode 2 how 2
query from another thread: 0
end 0
mode 2 how 3
query: 0
end 0
";
        assert_eq!(plain, expected);
        for options in [&options[..], &[]] {
            let run = target.clone().options(options).traced().expect(0);
            assert_eq!(run.text(), expected);
            let trace = run.read();
            trace.assert_balanced();
            // What was captured launched nothing, and graphs that other threads made meanwhile were read.
            let table = trace.table("launches");
            assert_eq!(
                table.rows().filter(|row| row.int("captured") == 1).map(|row| row.int("kernels")).sum::<i64>(),
                0
            );
            assert!(trace.table("graphs").rows().all(|row| row.int("complete") == 1));
            assert!(replays(&trace, None).iter().all(|(graph, kernels)| *graph > 0 && matches!(kernels, 6 | 3000)));
        }
    }
}
