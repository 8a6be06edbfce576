//! Sums of all events: exactly what the single ones are, and what remains when those are gone.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::recovering::kill_with_heirs;
use crate::util::{Scratch, Trace, count, poll, program};

/// Events, time, shortest, longest and failed calls.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums([i64; 5]);

impl Sums {
    fn add(&mut self, [events, ns, least, most, failed]: [i64; 5]) {
        let [all, sum, min, max, bad] = self.0;
        let min = if all == 0 { least } else { min.min(least) };
        self.0 = [all + events, sum + ns, min, max.max(most), bad + failed];
    }
}

/// Single calls by function.
fn single(trace: &Trace) -> BTreeMap<i64, Sums> {
    let mut sums: BTreeMap<i64, Sums> = BTreeMap::new();
    for table in ["launches", "syncs", "transfers", "device_memory", "api"] {
        for row in trace.table(table).rows() {
            let (ns, result) = (row.int("api_ns"), row.int("result"));
            let failed = i64::from(result != 0 && result != 600);
            sums.entry(row.int("api_id")).or_default().add([1, ns, ns, ns, failed]);
        }
    }
    sums
}

/// The same from a table of sums, whose histograms hold as many as are timed.
fn summed(trace: &Trace, table: &str) -> BTreeMap<i64, Sums> {
    let mut sums: BTreeMap<i64, Sums> = BTreeMap::new();
    let table = trace.table(table);
    let of_driver = |class: &str| ["launch", "sync", "transfer", "alloc", "free", "api", "module"].contains(&class);
    for row in table.rows().filter(|row| of_driver(row.text("class"))) {
        let Some(api) = row.maybe_int("api_id") else { continue };
        let parts = row.text("durations").split(' ').filter_map(|part| part.split_once(':'));
        assert_eq!(parts.map(|(_, n)| n.parse::<i64>().expect("a count")).sum::<i64>(), row.int("timed"));
        let values = ["events", "total_ns", "min_ns", "max_ns", "errors"].map(|column| row.int(column));
        sums.entry(api).or_default().add(values);
    }
    sums
}

#[test]
fn a_program_without_a_gpu_of_which_only_sums_are_kept_was_recorded_all_the_same() {
    let scratch = Scratch::new();
    // What malloc did is left out as well, and tells nothing of the driver.
    for options in [&["--detail", "rollup", "--malloc", "full"][..], &["--flight-recorder"]] {
        let said = scratch.shell("true").options(options).traced().expect(0).whole_lines();
        assert!(said.contains("no process loaded the driver"), "{options:?}: {said}");
        assert!(!said.contains("recording was off"), "{options:?}: {said}");
    }
}

#[test]
fn sums_are_those_of_the_single_calls_by_function() {
    let scratch = Scratch::new();
    for (name, arguments) in [("cuda_every", &["dlsym"][..]), ("cuda_values", &[]), ("threads", &["4", "20000"])] {
        let target = scratch.target(program(name)).args(arguments).with_instant_driver();
        let trace = target.options(["--on-full", "block", "--malloc", "full"]).traced().expect(0).read();
        trace.assert_balanced();
        let calls = single(&trace);
        assert!(calls.len() >= 3, "{name}: {calls:?}");
        assert_eq!(summed(&trace, "rollups"), calls, "{name}");
        assert_eq!(summed(&trace, "rollup_names"), calls, "{name}");
    }
}

#[test]
fn periods_begin_at_multiples_of_their_length_and_hold_what_began_in_them() {
    let scratch = Scratch::new();
    let run = scratch.target(program("victim")).arg(scratch.path().join("count")).args(["2500", "1000"]);
    let trace = run.with_instant_driver().options(["--rollup", "2"]).traced().expect(0).read();
    let mut launches: BTreeMap<i64, i64> = BTreeMap::new();
    for row in trace.table("launches").rows() {
        *launches.entry(row.int("start_ns").div_euclid(2_000_000_000)).or_default() += 1;
    }
    let mut summed: BTreeMap<i64, i64> = BTreeMap::new();
    for row in trace.table("rollups").rows().filter(|row| row.text("class") == "launch") {
        assert_eq!((row.int("period_ns"), row.int("start_ns") % 2_000_000_000), (2_000_000_000, 0));
        *summed.entry(row.int("start_ns") / 2_000_000_000).or_default() += row.int("events");
    }
    assert!(launches.len() >= 2, "{launches:?}");
    assert_eq!(summed, launches);
    let long = trace.table("rollup_names");
    assert!(long.rows().all(|row| row.int("period_ns") == 120_000_000_000));
}

#[test]
fn what_is_removed_for_the_size_of_the_trace_is_still_counted() {
    let scratch = Scratch::new();
    let target = scratch.target(program("threads")).args(["4", "200000"]).with_instant_driver();
    let run = target.options(["--on-full", "block", "--max-size", "256K", "--malloc", "off"]).traced().expect(0);
    let trace = run.read();
    let launches = count(&trace.root(), "launch");
    let rows = trace.table("launches").rows().count() as u64;
    assert!(launches.recorded == 1_600_000 && rows < launches.recorded, "{rows} of {launches:?}");
    let found = scratch.section(&run, "rollups");
    let classes = found["tables"]["by_class"]["rows"].as_array().expect("classes");
    let launch = classes.iter().find(|row| row["class"] == "launch").expect("launches");
    assert_eq!((launch["events"].as_u64(), launch["errors"].as_i64()), (Some(1_600_000), Some(0)));
}

#[test]
fn detail_that_has_aged_is_told_and_its_sums_stay() {
    let scratch = Scratch::new();
    let (victim, folder) = (program("victim"), scratch.path().display().to_string());
    // The command lives until its first launches have gone.
    let wait = format!("while ! grep -qs 'table.: .launche[s]' {folder}/*/manifest/*.json; do sleep 0.1; done");
    let target =
        scratch.shell(&format!("'{}' {folder}/count 100 1000; {wait}", victim.display())).with_instant_driver();
    let run = target.options(["--keep-detail", "1s", "--max-age", "1d", "--malloc", "off"]).traced().expect(0);
    let trace = run.read();
    assert!(trace.manifest().processes.iter().all(|process| process.balanced));
    assert_eq!(trace.table("launches").rows().count(), 0);
    let launches: i64 =
        trace.table("rollups").rows().filter(|row| row.text("class") == "launch").map(|row| row.int("events")).sum();
    assert!(launches >= 100, "{launches}");
    let says = "oldest detail removed to keep to --keep-detail: ";
    assert!(run.stderr.lines().any(|line| line.starts_with(says) && line.contains("launches ")), "{}", run.stderr);
    let path = run.trace.to_str().expect("a plain path");
    let report = scratch.gputrace(&["report", path, "--only", "launch-overhead"]).expect(0).text();
    assert!(report.contains("Removed to keep to --keep-detail: launches"), "{report}");
    // Numbers of all launches are those of the sums, here as in limits.
    let limit = format!("launch-overhead.launches={launches}");
    let shown =
        |launches: i64| report.lines().any(|line| line.split_whitespace().eq(["launches", &launches.to_string()]));
    assert!(shown(launches), "{report}");
    scratch.gputrace(&["check", path, "--max", &limit, "--min", &limit]).expect(0);
}

#[test]
fn sums_are_of_the_whole_run_whatever_single_events_were_kept() {
    let scratch = Scratch::new();
    for detail in ["rollup", "triggered"] {
        let target = scratch.target(program("threads")).args(["4", "20000"]).with_instant_driver();
        let run = target.options(["--on-full", "block", "--malloc", "off", "--detail", detail]).traced().expect(0);
        let trace = run.read();
        trace.assert_balanced();
        assert_eq!(trace.table("launches").rows().count(), 0);
        let found = scratch.section(&run, "rollups");
        assert_eq!(found["facts"]["launches_per_s"].as_f64().map(|n| n > 1000.0), Some(true), "{found}");
        let classes = found["tables"]["by_class"]["rows"].as_array().expect("classes");
        let launch = classes.iter().find(|row| row["class"] == "launch").expect("launches");
        assert_eq!(launch["events"].as_u64(), Some(160_000));
        // And the report itself leads there.
        let path = run.trace.to_string_lossy().into_owned();
        let report = scratch.gputrace(&["report", &path]).expect(0).text();
        assert!(report.contains("rollups has the sums of all"), "{report}");
        // What sums can answer the other analyses do, limits too; what they cannot tell is not called absent.
        let first = report.split("\n\n").nth(1).unwrap_or_default();
        assert!(first.contains("launches") && first.contains("160,000"), "{first}");
        assert!(!report.contains("No launches") && report.contains("Not known without single events"), "{report}");
        let calls = scratch.section(&run, "launch-overhead");
        let function = &calls["tables"]["sums"]["rows"][0];
        assert_eq!((calls["facts"]["launches"].as_u64(), function["calls"].as_u64()), (Some(160_000), Some(160_000)));
        assert_eq!(function["api"], "cuLaunchKernel");
        let limits = ["--max", "launch-overhead.launches=160000", "--max", "api.failed=0"];
        scratch.gputrace(&[&["check", &path][..], &limits].concat()).expect(0);
        let steady = ["check", &path, "--max", "device-memory.steady_allocations=0"];
        assert!(scratch.gputrace(&steady).expect(2).text().contains("not measured"));
    }
}

#[test]
fn a_killed_collector_leaves_the_sums_of_all_but_the_last_two_seconds() {
    let scratch = Scratch::new();
    let file = scratch.path().join("count");
    let target = scratch.target(program("victim")).arg(&file).args(["8000", "1000"]).with_instant_driver();
    let mut started = target.start_to_be_killed();
    let counted = || Some(i64::from_le_bytes(std::fs::read(&file).ok()?.get(..8)?.try_into().ok()?));
    poll(Duration::from_secs(30), || counted().filter(|n| *n >= 3000)).expect("the victim works");
    let early = counted().expect("a count");
    let read = std::time::Instant::now();
    poll(Duration::from_secs(30), || (read.elapsed() > Duration::from_millis(1_700)).then_some(())).expect("time");
    kill_with_heirs(&mut started);
    let late = counted().expect("a count");
    let trace = started.trace.to_string_lossy().into_owned();
    let report = scratch.gputrace(&["report", &trace, "--only", "rollups", "--format", "json"]).text();
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let classes = &report["analyses"]["rollups"]["tables"]["by_class"]["rows"];
    let classes = classes.as_array().unwrap_or_else(|| panic!("no classes: {report}"));
    let launch = classes.iter().find(|row| row["class"] == "launch").expect("launches");
    let events = launch["events"].as_i64().expect("a number");
    assert!((early..=late + 1).contains(&events), "{events} summed, {early} were there, {late} at the kill");
}

#[test]
fn without_rollups_there_are_none_and_other_lengths_are_refused() {
    let scratch = Scratch::new();
    let run = scratch
        .target(program("cuda_every"))
        .arg("dlsym")
        .with_instant_driver()
        .options(["--rollup", "off"])
        .traced()
        .expect(0);
    assert!(run.read().files("rollups").is_empty() && run.read().files("rollup_names").is_empty());
    let found = scratch.section(&run, "rollups");
    assert!(found["notes"][0].as_str().expect("a note").contains("--rollup off"), "{found}");
    for wrong in ["0", "0.5", "3601", "fast"] {
        let refused = scratch.gputrace(&["--rollup", wrong, "--", "true"]);
        assert!(refused.stderr.contains("expected a number of seconds from 1 to 3600, or off"), "{}", refused.stderr);
    }
}
