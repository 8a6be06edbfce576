//! GPU times in windows: all of a window's work is in the trace, windows cost what the budget allows, and the ranks of a job
//! open theirs together.

use std::path::Path;

use crate::util::{Driver, Scratch, Target, Trace, program};

/// Begin and end of each window of each process.
fn windows(trace: &Trace) -> Vec<(i64, i64, i64)> {
    let row = |row: crate::util::Row<'_>| {
        assert_eq!(row.text("kind"), "window");
        (row.int("process_id"), row.int("start_ns"), row.int("start_ns") + row.int("window_ns"))
    };
    trace.table("gpu_windows").rows().map(row).collect()
}

/// When the calls began whose work the simulated device did.
fn issued(file: &Path) -> Vec<i64> {
    let text = std::fs::read_to_string(file).expect("the driver's truth");
    let truth: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    truth["device"].as_array().expect("records").iter().filter_map(|record| record["issued_ns"].as_i64()).collect()
}

fn in_windows<'a>(scratch: &'a Scratch, words: &[&str], options: &[&str]) -> Target<'a> {
    let target = scratch.target(program("steps")).args(words).with_driver(Driver::Plain);
    let target = target.env("FAKE_CUDA_TRUTH", scratch.path().join("truth.json"));
    target.options(["--gpu-time", "windows"]).options(options)
}

#[test]
fn a_window_holds_all_the_work_of_its_time_and_nothing_else() {
    let scratch = Scratch::new();
    let options = ["--gpu-window-every", "0.5", "--budget", "5"];
    let trace = in_windows(&scratch, &["2.5", "40"], &options).traced().expect(0).read();
    let about = trace.root().gpu_time.expect("CUPTI was asked");
    assert_eq!((about.dropped, about.without_time), (0, 0), "{about:?}");
    let windows = windows(&trace);
    assert!(windows.len() >= 3 && windows.len() as u64 == about.windows, "{windows:?}");
    // The clocks of the driver and of the trace are read one after the other; at a window's edges it is either.
    const EDGE: i64 = 200_000;
    let inside = |at: i64, edge: i64| windows.iter().any(|(_, from, to)| (from - edge..to + edge).contains(&at));
    let issued = issued(&scratch.path().join("truth.json"));
    let within = |edge: i64| issued.iter().filter(|at| inside(**at, edge)).count() as u64;
    assert!((within(-EDGE)..=within(EDGE)).contains(&about.records), "{about:?} {} {}", within(-EDGE), within(EDGE));
    assert!(about.records > 100 && about.records * 2 < issued.len() as u64, "{about:?} of {}", issued.len());
    assert!(about.joined * 100 >= about.records * 90, "{about:?}");
    assert!(about.early * 20 <= about.records, "{about:?}");
    let mut calls: Vec<i64> = Vec::new();
    for table in ["launches", "transfers"] {
        let work = |row: &crate::util::Row<'_>| inside(row.int("start_ns"), 0);
        calls.extend(trace.table(table).rows().filter(work).map(|row| row.int("correlation_id")));
    }
    let mut done: Vec<i64> = Vec::new();
    for table in ["kernels", "device_copies"] {
        done.extend(trace.table(table).rows().filter_map(|row| row.maybe_int("correlation_id")));
    }
    done.sort_unstable();
    let missing = calls.iter().filter(|call| done.binary_search(call).is_err()).count();
    assert!(missing * 10 <= calls.len(), "{missing} of {} calls in windows have no work", calls.len());
    trace.assert_balanced();
}

#[test]
fn what_lies_between_windows_is_no_idle_time() {
    let scratch = Scratch::new();
    // 20 kernels of 50 us, and a pause: in a step of some 2 ms the GPU works for one.
    let options = ["--gpu-window-every", "0.5", "--budget", "2"];
    let run = in_windows(&scratch, &["3", "20", "50", "1000"], &options).traced().expect(0);
    let trace = run.read();
    let folder = run.trace.to_string_lossy();
    let arguments = ["report", &folder, "--only", "summary,gpu-utilisation", "--format", "json"];
    let report: serde_json::Value = serde_json::from_str(&scratch.gputrace(&arguments).expect(0).text()).expect("JSON");
    let number = |of: &str, name: &str| {
        report["analyses"][of]["facts"][name].as_f64().unwrap_or_else(|| panic!("{name} of {of}"))
    };
    let summary = |name: &str| number("summary", name);
    // Steps of the whole run, and what the GPU did in those that lie in windows.
    assert!((summary("gpu_busy_ns") - 1e6).abs() < 2e4, "{}", summary("gpu_busy_ns"));
    assert_eq!(summary("gpu_operations"), 20.0);
    assert!((summary("unit_ns") - summary("gpu_idle_ns") - 1e6).abs() < 2e4);
    let (windows, truth) = (windows(&trace), issued(&scratch.path().join("truth.json")));
    let inside: i64 = windows.iter().map(|(_, from, to)| to - from).sum();
    let work = truth.iter().filter(|at| windows.iter().any(|(_, from, to)| (from..to).contains(at))).count();
    let share = work as f64 * 50_000.0 / inside as f64 * 100.0;
    let found = number("gpu-utilisation", "busy_percent");
    assert!((found - share).abs() < 5.0, "{found} {share}");
    let text = run.whole_lines();
    assert!(text.contains(" windows, ") && text.contains("budget 2 %"), "{text}");
}

#[test]
fn steps_longer_than_windows_are_those_of_the_host() {
    let scratch = Scratch::new();
    // A step of 3,000 kernels and a pause takes some 180 ms. No window is longer than 100.
    let options = ["--gpu-window-every", "0.5", "--budget", "0.1"];
    let run = in_windows(&scratch, &["5", "3000", "50", "30000"], &options).traced().expect(0);
    let folder = run.trace.to_string_lossy();
    let arguments = ["report", &folder, "--only", "summary", "--format", "json"];
    let report: serde_json::Value = serde_json::from_str(&scratch.gputrace(&arguments).expect(0).text()).expect("JSON");
    let facts = &report["analyses"]["summary"]["facts"];
    let number = |name: &str| facts[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", run.stderr));
    assert!(number("steps") > 10.0 && number("launches") == 3000.0 && number("wait_ns") > 1e7, "{}", run.stderr);
    assert!(facts["gpu_busy_ns"].is_null() && run.whole_lines().contains("none holds a whole step"), "{}", run.stderr);
    let about = run.read().root().gpu_time.expect("CUPTI was asked");
    assert!(about.windows >= 6, "{about:?}");
}

#[test]
fn windows_cost_what_the_budget_allows_and_the_trace_says_what_that_was() {
    let scratch = Scratch::new();
    // A record costs 50 us: a hundred times what it does on a real GPU.
    let target = in_windows(&scratch, &["3.5"], &["--gpu-window-every", "0.5", "--budget", "1"]);
    let trace = target.env("FAKE_CUPTI_COST_NS", "50000").traced().expect(0).read();
    let about = trace.root().gpu_time.expect("CUPTI was asked");
    let budget = about.budget.clone().expect("a budget");
    assert_eq!(budget.percent, 1.0);
    let measured = budget.host_ns.expect("enough launches to measure");
    assert!((20_000.0..150_000.0).contains(&measured), "{budget:?}");
    // The first window does not know yet what a record costs. Each later one keeps to the budget.
    let windows = windows(&trace);
    assert!(windows.len() >= 3, "{windows:?}");
    let length = |nth: usize| windows[nth].2 - windows[nth].1;
    assert!(length(windows.len() - 1) * 2 < length(0), "{windows:?}");
    assert!(budget.windows_percent.is_some() && budget.hooks_percent > 0.0, "{budget:?}");
}

#[test]
fn ranks_of_a_job_open_their_windows_together() {
    let scratch = Scratch::new();
    let words = format!("'{0}' 2.5 > /dev/null & sleep 0.2; '{0}' 2.5 > /dev/null; wait", program("steps").display());
    let target = scratch.shell(&words).with_driver(Driver::Plain);
    let target = target.options(["--gpu-time", "windows", "--gpu-window-every", "0.5", "--budget", "5"]);
    let trace = target.traced().expect(0).read();
    let windows = windows(&trace);
    let mut processes: Vec<i64> = windows.iter().map(|(process, ..)| *process).collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len(), 2, "{windows:?}");
    let of = |process: i64| windows.iter().filter(move |window| window.0 == process).skip(1);
    // Those that both had: a process that has begun or ended meanwhile has others.
    let together = of(processes[0]).filter(|one| of(processes[1]).any(|other| (one.1 - other.1).abs() < 100_000_000));
    let (together, fewest) = (together.count(), of(processes[0]).count().min(of(processes[1]).count()));
    assert!(fewest >= 2 && together * 3 >= fewest * 2, "{together} of {fewest}: {windows:?}");
}
