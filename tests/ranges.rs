//! Ranges that programs name with NVTX: all of them, with what was said; and nobody else's tool is disturbed.
//!
//! The programs' `nvtx.h` is a copy of NVTX as libraries have it. NVIDIA's own package and libraries are tried where
//! `ci/install` has put them: GPUTRACE_NVTX_VENV, a virtual environment.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::util::{Finished, Scratch, count, lacks, library, needs, orphans, program, program_with, shim};

/// A range as a test wants to see it.
#[derive(Clone, Debug, Default, PartialEq, PartialOrd)]
struct Range {
    kind: String,
    name: String,
    domain: String,
    level: Option<i64>,
    category: Option<i64>,
    category_name: String,
    color: Option<i64>,
    integer: Option<i64>,
    ended: bool,
    tid: i64,
    pid: i64,
}

fn ranges(run: &Finished) -> Vec<Range> {
    let trace = run.read();
    trace.assert_balanced();
    let names = trace.names();
    let name = |id: Option<i64>| id.map_or_else(|| "-".to_owned(), |id| names[&id].clone());
    let table = trace.table("ranges");
    let mut all: Vec<(i64, Range)> = Vec::new();
    for row in table.rows() {
        let range = Range {
            kind: row.text("kind").to_owned(),
            name: name(row.maybe_int("name_id")),
            domain: name(row.maybe_int("domain_id")),
            level: row.maybe_int("level"),
            category: row.maybe_int("category"),
            category_name: name(row.maybe_int("category_id")),
            color: row.maybe_int("color"),
            integer: row.maybe_int("payload_int"),
            ended: row.maybe_int("end_ns").is_some(),
            tid: row.int("tid"),
            pid: row.int("pid"),
        };
        all.push((row.int("start_ns"), range));
    }
    all.sort_by(|a, b| a.partial_cmp(b).expect("no floats"));
    all.into_iter().map(|(_, range)| range).collect()
}

/// How often each name stands in the trace.
fn names(run: &Finished) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    ranges(run).into_iter().for_each(|range| *counts.entry(range.name).or_default() += 1);
    counts
}

#[test]
fn every_function_is_recorded_with_what_it_was_told() {
    let scratch = Scratch::new();
    let run = scratch.target(program("nvtx_every")).same().expect(0);
    let all = ranges(&run);
    let text: Vec<String> = all
        .iter()
        .map(|r| {
            let level = r.level.map_or(String::new(), |l| format!(" level {l}"));
            let category = r.category.map_or(String::new(), |c| format!(" category {c} {}", r.category_name));
            let color = r.color.map_or(String::new(), |c| format!(" color {c:x}"));
            let number = r.integer.map_or(String::new(), |n| format!(" number {n}"));
            format!("{} {} in {}{level}{category}{color}{number}", r.kind, r.name, r.domain)
        })
        .collect();
    let wanted = [
        "mark ex mark in - category 3 three color ff112233",
        "mark mark in -",
        "mark märk 🚀 in -",
        "start_end ex range in - category 3 three color ff112233",
        "start_end across threads in -",
        "start_end wide range in -",
        "push_pop ex push in - level 0 category 3 three color ff112233",
        "push_pop push in - level 1",
        "push_pop wide push in - level 2",
        "push_pop registered in domain level 0 category 3 domain's three number -7",
        "push_pop registriert in other domain level 0 category 4 - number 4000000000",
        "mark registriert in domain category 4 domain's four",
        "start_end registriert in domain category 4 domain's four number -9",
        "push_pop - in - level 0",
        "mark - in -",
        "mark - in -",
        "mark  in -",
    ];
    assert_eq!(text, wanted);
    assert!(all.iter().all(|range| range.ended));
    let floats: Vec<f64> = run
        .read()
        .table("ranges")
        .rows()
        .filter(|row| row.maybe_int("payload_int").is_none())
        .filter_map(|row| row.maybe_float("payload_float"))
        .collect();
    assert_eq!(floats.iter().sum::<f64>(), 1.75);
    let root = run.read().root();
    let injected: Vec<_> =
        root.coverage.hooks.iter().filter(|h| h.routes == ["injection"] && h.class == "range").collect();
    assert_eq!(injected.len(), 16, "{:?}", root.coverage.hooks);
    let threads = run.read().table("threads");
    assert!(threads.rows().any(|row| row.maybe_text("name") == Some("ender")), "a thread was named");
}

#[test]
fn ends_without_a_beginning_are_counted_and_end_nothing() {
    let scratch = Scratch::new();
    let run = scratch.target(program("nvtx_every")).arg("odd").same().expect(0);
    assert_eq!(ranges(&run).len(), 1);
    assert_eq!(orphans(&run.read().root()), 3);
}

#[test]
fn threads_lose_nothing_and_names_are_sent_once() {
    let scratch = Scratch::new();
    let run = scratch.target(program("nvtx_threads")).args(["6", "2000"]).options(["--segment-memory", "64M"]);
    let run = run.same().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let root = trace.root();
    let counts = count(&root, "range");
    assert_eq!((counts.seen, counts.recorded), (6 * 2000 * 8, 6 * 2000 * 8), "{counts:?}");
    let counts = names(&run);
    assert_eq!(counts["numbered"], 12_000);
    assert_eq!(counts["in a domain"], 12_000);
    assert_eq!(counts.len(), 2 + 6 * 20);
    assert!(counts.iter().all(|(name, n)| !name.starts_with("round") || *n == 200), "{counts:?}");
    let all = ranges(&run);
    assert!(all.iter().all(|range| range.ended));
    assert!(all.iter().all(|range| range.level.unwrap_or(0) == 0), "pushes of two domains do not nest");
    // A row of `names` a name: nothing was written twice.
    let written = trace.table("names").rows().filter(|row| row.text("kind") == "range").count();
    assert_eq!(written, counts.len());
}

#[test]
fn what_finds_no_room_is_dropped_and_what_is_left_is_right() {
    let scratch = Scratch::new();
    let target = scratch.target(program("nvtx_threads")).args(["8", "100000"]).options(["--segment-memory", "1M"]);
    let run = target.same().expect(0);
    let trace = run.read();
    let counts = count(&trace.root(), "range");
    assert_eq!(counts.seen, 8 * 100_000 * 8);
    assert!(counts.is_balanced() && counts.dropped > 0, "{counts:?}");
    // A range whose end was lost has none; no other one's end is taken for it. A round takes a microsecond or so, and
    // the program a few seconds.
    let (mut ended, mut long) = (0u64, 0u64);
    for row in trace.table("ranges").rows().filter(|row| row.text("kind") == "push_pop") {
        if let Some(end) = row.maybe_int("end_ns") {
            ended += 1;
            long += u64::from(end - row.int("start_ns") > 1_000_000_000);
        }
    }
    assert!(ended > 1000 && long == 0, "{long} of {ended} took more than a second");
}

#[test]
fn a_killed_program_leaves_its_open_ranges_without_an_end() {
    let scratch = Scratch::new();
    let run = scratch.target(program("nvtx_every")).arg("kill").same().expect(137);
    let all = ranges(&run);
    let open: Vec<&str> = all.iter().filter(|range| !range.ended).map(|range| range.name.as_str()).collect();
    assert_eq!(open, ["outer", "open"]);
    assert_eq!(all.iter().filter(|range| range.ended && range.name == "inner").count(), 5000);
    let counts = count(&run.read().root(), "range");
    assert_eq!((counts.seen, counts.recorded), (10_002, 10_002));
}

#[test]
fn a_forked_child_knows_what_its_parent_named() {
    let scratch = Scratch::new();
    let run = scratch.target(program("nvtx_every")).arg("fork").same().expect(0);
    let all = ranges(&run);
    let of = |name: &str| all.iter().filter(|range| range.name == name).cloned().collect::<Vec<_>>();
    let handed_down = of("handed down");
    assert_eq!((handed_down.len(), handed_down[0].domain.as_str()), (1, "before"), "{all:?}");
    let parents = of("parent");
    assert_eq!(parents.len(), 2);
    assert_ne!(parents[0].pid, parents[1].pid);
    assert!(all.iter().all(|range| range.ended && range.level == Some(0)), "{all:?}");
}

#[test]
fn nothing_is_paired_across_a_pause() {
    let scratch = Scratch::new();
    let run = scratch.target(program("nvtx_every")).arg("pause").same().expect(0);
    let all = ranges(&run);
    let seen: Vec<_> = all.iter().map(|r| (r.name.as_str(), r.domain.as_str(), r.ended)).collect();
    // The name of a domain that was made in the pause is known.
    assert_eq!(seen, [("before", "-", false), ("after", "made in a pause", true)]);
    assert_eq!(orphans(&run.read().root()), 1);
}

fn two() -> (PathBuf, PathBuf) {
    (program("nvtx_two"), program_with("nvtx_two", "library.so", &["-DLIBRARY", "-shared", "-fPIC"]))
}

#[test]
fn an_injection_that_was_set_before_gets_its_calls_and_its_handles() {
    let scratch = Scratch::new();
    let part = program_with("nvtx_tool", "part.so", &["-DPART", "-shared", "-fPIC"]);
    let (first, second) = two();
    let expected = BTreeMap::from([("plain", 2), ("registered", 2), ("numbered", 2), ("first", 1), ("second", 1)]);
    let expected: BTreeMap<String, u64> = expected.into_iter().map(|(n, c)| (n.to_owned(), c)).collect();
    for tool in [library("nvtx_tool"), part.clone()] {
        let run = scratch.target(&first).arg(&second).env("NVTX_INJECTION64_PATH", &tool).same().expect(0);
        assert_eq!(names(&run), expected, "{}", tool.display());
        // A tool that makes no domains gives none to the program, nor to us.
        let domain = if tool == part { "-" } else { "pair" };
        let registered = |r: &&Range| r.name == "registered";
        assert!(ranges(&run).iter().filter(registered).all(|r| r.domain == domain && r.ended));
    }
}

#[test]
fn an_injection_that_declines_or_is_not_there_changes_nothing() {
    let scratch = Scratch::new();
    let (first, second) = two();
    let target = scratch.target(first).arg(second);
    let runs = [
        target.clone().same(),
        target.clone().env("NVTX_INJECTION64_PATH", "").same(),
        target.clone().env("NVTX_INJECTION64_PATH", "/no/such/tool.so").same(),
        target.clone().env("NVTX_INJECTION64_PATH", "./.").same(),
        target.clone().env("NVTX_INJECTION64_PATH", shim()).same(),
        target.clone().env("NVTX_INJECTION64_PATH", library("nvtx_tool")).env("TOOL_DECLINES", "1").same(),
    ];
    for run in runs {
        let found = names(&run.expect(0));
        assert_eq!((found["plain"], found["registered"], found["numbered"]), (2, 2, 2));
    }
}

#[test]
fn with_nvtx_off_the_environment_and_the_tool_are_left_alone() {
    let scratch = Scratch::new();
    let print = |options: &[&str]| scratch.shell("echo $NVTX_INJECTION64_PATH $GPUTRACE_NVTX_NEXT").options(options);
    let tool = library("nvtx_tool");
    let with_tool = print(&["--nvtx", "off"]).env("NVTX_INJECTION64_PATH", &tool);
    assert_eq!(with_tool.traced().text(), format!("{}\n", tool.display()));
    assert_eq!(print(&["--nvtx", "off"]).traced().text(), "\n");
    assert!(print(&[]).traced().text().ends_with("/$LIB/libgputrace.so\n"));
    let run = scratch.target(program("nvtx_every")).options(["--nvtx", "off"]).same().expect(0);
    assert!(ranges(&run).is_empty());
}

#[test]
fn where_the_preload_was_taken_away_the_program_runs_on_untraced() {
    let scratch = Scratch::new();
    let (first, second) = two();
    let tool = library("nvtx_tool");
    let script = format!("env -u LD_PRELOAD {} {}", first.display(), second.display());
    let run = scratch.shell(&script).env("NVTX_INJECTION64_PATH", tool).same().expect(0);
    assert!(ranges(&run).is_empty());
    let run = scratch.shell(&format!("env -u LD_PRELOAD {}", program("nvtx_every").display())).same().expect(0);
    assert!(ranges(&run).is_empty());
    // Nor does it make a process of its own in the trace.
    let manifest = run.read().manifest();
    assert!(manifest.processes.iter().all(|p| !p.exe.ends_with("nvtx_every")), "{:?}", manifest.processes);
}

#[test]
fn a_shim_that_was_preloaded_by_another_path_records() {
    let scratch = Scratch::new();
    let every = program("nvtx_every");
    let link = scratch.path().join("another_name.so");
    std::os::unix::fs::symlink(shim(), &link).expect("a link");
    let copy = scratch.path().join("a_copy.so");
    std::fs::copy(shim(), &copy).expect("a copy");
    let plain = scratch.target(&every).plain().text();
    for other in [link, copy] {
        let run = scratch.shell(&format!("LD_PRELOAD={} {}", other.display(), every.display())).traced().expect(0);
        assert_eq!(run.text(), plain, "{}", run.stderr);
        assert_eq!(ranges(&run).len(), 17, "{}", other.display());
    }
}

#[test]
fn a_musl_program_goes_on_without_ranges() {
    if !needs(&["musl-gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let source = crate::util::repository().join("tests/programs/nvtx_every.c");
    let path = scratch.path().join("nvtx_musl");
    let mut compiler = std::process::Command::new("musl-gcc");
    let compiled = compiler.arg("-std=gnu11").arg(source).arg("-o").arg(&path).output().expect("musl-gcc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = scratch.target(path).traced().expect(0);
    assert!(run.text().starts_with("levels -24"), "{}", run.text());
}

#[test]
fn nvidias_own_package_and_libraries_are_recorded_in_full() {
    let Some(environment) = std::env::var_os("GPUTRACE_NVTX_VENV").map(PathBuf::from) else {
        lacks("NVIDIA's nvtx package (GPUTRACE_NVTX_VENV)");
        return;
    };
    let scratch = Scratch::new();
    let script = crate::util::repository().join("tests/programs/nvtx_python.py");
    let run = scratch.target(environment.join("bin/python")).arg(script).same().expect(0);
    assert!(run.text().contains("libnvToolsExt.so.1 [") && run.text().contains("libnvtx3interop.so.1 ["));
    let last = run.text().lines().last().expect("a line").to_owned();
    let done: BTreeMap<String, u64> = serde_json::from_str(&last).expect("it prints what it did");
    assert_eq!(names(&run), done);
    let all = ranges(&run);
    assert!(all.iter().all(|range| range.ended));
    let decorated = all.iter().find(|range| range.name == "decorated").expect("it was called");
    let said = (decorated.domain.as_str(), decorated.category_name.as_str(), decorated.color, decorated.integer);
    assert_eq!(said, ("package", "functions", Some(0xff), Some(7)));
}

#[test]
fn the_report_sums_ranges_by_name_and_knows_a_step_that_is_not_there() {
    let scratch = Scratch::new();
    let run = scratch.target(program("nvtx_threads")).args(["2", "10"]).traced().expect(0);
    let trace = run.trace.to_str().expect("a path");
    let json = scratch.gputrace(&["report", trace, "--only", "ranges", "--format", "json"]).expect(0);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let rows = json["analyses"]["ranges"]["tables"]["by_name"]["rows"].as_array().expect("rows");
    let numbered = rows.iter().find(|row| row["name"] == "numbered").expect("its name");
    assert_eq!((numbered["count"].as_u64(), numbered["kind"].as_str()), (Some(20), Some("start_end")));
    let in_a_domain = rows.iter().find(|row| row["domain"] == "threads").expect("its domain");
    assert!(in_a_domain["total_ns"].as_i64() >= in_a_domain["max_ns"].as_i64());
    let steps = scratch.gputrace(&["report", trace, "--step", "numbered"]).expect(0);
    assert!(steps.stderr.is_empty());
    let none = scratch.gputrace(&["report", trace, "--step", "nobody"]).expect(2);
    assert!(none.stderr.contains("no process has five ranges, kernels or calls of that name"), "{}", none.stderr);
}
