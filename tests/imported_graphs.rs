//! Launches of CUDA graphs in traces of other profilers are told apart by graph, and `graphs` and `decode` answer for them.

use std::fs;

use serde_json::json;

use crate::imports::{imported, ints};
use crate::util::{Scratch, repository};

/// A loop that launches two graphs in turn, of three kernels and of two, and a kernel by itself.
fn kineto(number: bool, nodes: bool) -> String {
    let mut events = Vec::new();
    for launch in 0..40i64 {
        let (at, id, graph) = (launch * 1_000, launch + 1, launch % 2);
        let call = |name: &str, ts: i64, id: i64| {
            json!({ "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": 20,
                "args": { "correlation": id } })
        };
        events.push(call("cudaGraphLaunch", at, id));
        events.push(call("cudaLaunchKernel", at + 500, 1_000 + id));
        for kernel in 0..3 - graph {
            let mut args = json!({ "correlation": id, "device": 0, "stream": 7 });
            if number {
                args["graph id"] = json!(70 + graph);
            }
            if nodes {
                args["graph node id"] = json!(10 * graph + kernel + 1);
            }
            events.push(json!({ "ph": "X", "cat": "kernel", "name": format!("k{kernel}"), "pid": 0, "tid": 7,
                "ts": at + 50 + 20 * kernel, "dur": 10, "args": args }));
        }
        events
            .push(json!({ "ph": "X", "cat": "kernel", "name": "alone", "pid": 0, "tid": 7, "ts": at + 530, "dur": 10,
            "args": { "correlation": 1_000 + id, "device": 0, "stream": 7 } }));
    }
    json!({ "traceEvents": events }).to_string()
}

#[test]
fn launches_of_graphs_are_told_apart_by_what_the_gpu_did_for_them() {
    for (number, nodes) in [(true, true), (false, true), (false, false)] {
        let scratch = Scratch::new();
        let file = scratch.path().join("serve.json");
        fs::write(&file, kineto(number, nodes)).expect("a file");
        let (trace, _) = imported(&scratch, &file);
        let launches = trace.table("launches");
        let first = |column: &str| ints(&launches, column)[..6].to_vec();
        assert_eq!(first("graph_exec_id"), [Some(1), None, Some(2), None, Some(1), None], "{number} {nodes}");
        assert_eq!(first("kernels"), [3, 1, 2, 1, 3, 1].map(Some));
        let trace = scratch.path().join("imported");
        let args = ["report".as_ref(), trace.as_os_str(), "--only".as_ref(), "graphs,decode".as_ref()];
        let report = scratch.gputrace(&args).expect(0).text();
        let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in ["launches 40", "kernels a launch 2.5", "launches of graphs 40 graphs 2 interval p50 1.00 ms"] {
            assert!(report.contains(said), "{said}: {report}");
        }
    }
}

#[test]
fn a_graph_that_nsight_systems_traced_as_a_whole_is_one_operation_of_unknown_kernels() {
    let scratch = Scratch::new();
    let sql = fs::read_to_string(repository().join("tests/traces/nsys.sql")).expect("the SQL");
    let more = "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, \
            contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER); \
        INSERT INTO StringIds VALUES (20, 'cudaGraphLaunch_v10000'); \
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (20000, 20500, 0, (77 << 24) | 79, 31, 20, 0, NULL), \
            (30000, 30500, 0, (77 << 24) | 79, 32, 20, 0, NULL), (40000, 40500, 0, (77 << 24) | 79, 33, 20, 0, NULL); \
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (21000, 29000, 0, 1, 7, 31, 77 << 24, 5, 6), \
            (31000, 39000, 0, 1, 7, 32, 77 << 24, 5, 8), (41000, 49000, 0, 1, 7, 33, 77 << 24, 5, 6);";
    let file = scratch.path().join("graphs.sqlite");
    let base = rusqlite::Connection::open(&file).expect("a database");
    base.execute_batch(&(sql + more)).expect("SQL");
    let (trace, said) = imported(&scratch, &file);
    assert!(said.contains("3 launches of graphs were traced as a whole") && !said.contains("GRAPH_TRACE"), "{said}");
    let launches = trace.table("launches");
    assert_eq!(ints(&launches, "graph_exec_id")[2..], [Some(1), Some(2), Some(1)]);
    assert_eq!(ints(&launches, "kernels")[2..], [None, None, None]);
    assert_eq!(ints(&trace.table("kernels"), "gpu_ns")[2..], [8_000, 8_000, 8_000].map(Some));
}
