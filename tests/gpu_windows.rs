//! GPU times in windows: all of a window's work is in the trace, windows cost what the budget allows, and the ranks of a job
//! open theirs together.

use std::path::Path;

use crate::util::{Driver, Scratch, Target, Trace, driver_folder, linked_with_library, program, program_with};

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
    assert!(text.contains("the lines of GPU and host are of steps in these"), "{text}");
}

#[test]
fn steps_longer_than_windows_are_those_of_the_host() {
    let scratch = Scratch::new();
    // A step of 5,000 kernels and a pause takes some 280 ms. A window is 100 long, and longer only as a busy machine closes it late.
    let options = ["--gpu-window-every", "0.5", "--budget", "3"];
    let run = in_windows(&scratch, &["5", "5000", "50", "30000"], &options).traced().expect(0);
    let folder = run.trace.to_string_lossy();
    let arguments = ["report", &folder, "--only", "summary", "--format", "json"];
    let report: serde_json::Value = serde_json::from_str(&scratch.gputrace(&arguments).expect(0).text()).expect("JSON");
    let facts = &report["analyses"]["summary"]["facts"];
    let number = |name: &str| facts[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", run.stderr));
    assert!(number("steps") > 8.0 && number("launches") == 5000.0 && number("wait_ns") > 1e7, "{}", run.stderr);
    assert!(facts["gpu_busy_ns"].is_null() && run.whole_lines().contains("none holds a whole step"), "{}", run.stderr);
    let about = run.read().root().gpu_time.expect("CUPTI was asked");
    // Some nine; a busy machine has fewer, for a window that closes late has taken the budget of the next ones.
    assert!(about.windows >= 3, "{about:?}");
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
    // One may last longer by chance, where our thread gets no processor in time.
    let shortest = (1..windows.len()).map(length).min();
    assert!(shortest.is_some_and(|shortest| shortest * 2 < length(0)), "{windows:?}");
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

/// What devices did, as two simulated drivers say it: of a device that both processes share.
fn done(scratch: &Scratch) -> Vec<(i64, i64)> {
    let mut done: Vec<(i64, i64)> = Vec::new();
    for name in ["one.json", "two.json"] {
        let text = std::fs::read_to_string(scratch.path().join(name)).expect("the driver's truth");
        let truth: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let record = |record: &serde_json::Value| Some((record["start_ns"].as_i64()?, record["end_ns"].as_i64()?));
        done.extend(truth["device"].as_array().expect("records").iter().filter_map(record));
    }
    done.sort_unstable();
    done
}

/// Time that these spans cover, within some.
fn covered(spans: &[(i64, i64)], within: (i64, i64)) -> i64 {
    let (mut sum, mut upto) = (0, within.0);
    for (from, to) in spans {
        let to = (*to).min(within.1);
        sum += (to - (*from).max(upto)).max(0);
        upto = upto.max(to);
    }
    sum
}

/// Two processes with steps of 20 kernels of 50 us and a pause, on one GPU; the second one is there for a part of the time.
fn sharing(scratch: &Scratch, options: &[&str]) -> crate::util::Finished {
    let steps = program("steps");
    let of = |file: &str, seconds: &str| {
        let file = scratch.path().join(file);
        format!("FAKE_CUDA_TRUTH={} {} {seconds} 20 50 1500 > /dev/null", file.display(), steps.display())
    };
    let script = format!("{} & sleep 0.7; {}; wait", of("one.json", "3.5"), of("two.json", "2"));
    scratch.shell(&script).with_driver(Driver::Plain).options(options).traced().expect(0)
}

/// A fact, or a number of each row of a table, of the report.
fn report(scratch: &Scratch, run: &crate::util::Finished) -> serde_json::Value {
    let folder = run.trace.to_string_lossy();
    let arguments = ["report", &folder, "--only", "summary,gpu-utilisation,gpu-gaps", "--format", "json"];
    serde_json::from_str(&scratch.gputrace(&arguments).expect(0).text()).expect("JSON")
}

#[test]
fn the_work_of_processes_that_share_a_gpu_is_in_one_order() {
    let scratch = Scratch::new();
    let run = sharing(&scratch, &["--gpu-time", "full"]);
    let started: Vec<i64> = run.read().table("kernels").rows().map(|row| row.int("start_ns")).collect();
    assert!(started.is_sorted(), "{} kernels", started.len());
    let report = report(&scratch, &run);
    let facts = &report["analyses"]["gpu-utilisation"]["facts"];
    assert_eq!(facts["devices"], 1);
    let truth = covered(&done(&scratch), (0, i64::MAX)) as f64;
    let busy = facts["busy_ns"].as_f64().expect("a time");
    assert!((busy / truth - 1.0).abs() < 0.01, "{busy} {truth}");
}

#[test]
fn busy_and_idle_of_a_shared_gpu_make_the_step() {
    let scratch = Scratch::new();
    let run = sharing(&scratch, &["--gpu-time", "windows", "--gpu-window-every", "0.5", "--budget", "20"]);
    let report = report(&scratch, &run);
    let analyses = &report["analyses"];
    let facts = &analyses["summary"]["facts"];
    let of = |name: &str| facts[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", run.stderr));
    let (unit, own, idle) = (of("unit_ns"), of("gpu_busy_ns"), of("gpu_idle_ns"));
    assert!(((own + idle) / unit - 1.0).abs() < 0.02, "{own} {idle} {unit}: {}", run.stderr);
    // Known is what lies in windows of both, while both live: there the GPU was as busy as the drivers say.
    let windows = windows(&run.read());
    let first = windows.iter().map(|window| window.0).min().expect("windows");
    let (one, two): (Vec<(i64, i64, i64)>, Vec<_>) = windows.into_iter().partition(|window| window.0 == first);
    let both = one.iter().flat_map(|one| two.iter().map(move |two| (one.1.max(two.1), one.2.min(two.2))));
    let both: Vec<(i64, i64)> = both.filter(|(from, to)| from < to).collect();
    assert!(both.len() >= 2, "{one:?} {two:?}");
    let done = done(&scratch);
    let busy: i64 = both.iter().map(|span| covered(&done, *span)).sum();
    let share = 100.0 * busy as f64 / both.iter().map(|(from, to)| to - from).sum::<i64>() as f64;
    let per_step = 100.0 * of("gpu_busy_ns") / unit;
    assert!(share > 20.0 && per_step > 20.0 && share < 95.0, "{share} {per_step}");
    assert_eq!(analyses["gpu-utilisation"]["facts"]["devices"], 1);
}

/// The calls of the stand-in for CUPTI, in their order: function and moment.
pub(crate) fn cupti_calls(file: &Path) -> Vec<(String, i64)> {
    let text = std::fs::read_to_string(file).expect("the truth of CUPTI");
    let truth: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let call = |call: &serde_json::Value| Some((call["function"].as_str()?.to_owned(), call["ns"].as_i64()?));
    truth["calls"].as_array().expect("calls").iter().filter_map(call).collect()
}

fn finalized(calls: &[(String, i64)]) -> u64 {
    calls.iter().filter(|(function, _)| function == "cuptiFinalize").count() as u64
}

/// Steps of 200 short launches, 100,000 or more in a second.
const MANY: [&str; 4] = ["4", "200", "2", "100"];
const OFTEN: [&str; 4] = ["--gpu-window-every", "1", "--budget", "20"];
/// Such steps, and windows so far apart that it is worth while to take CUPTI off between them.
const APART: ([&str; 4], [&str; 4]) = (["7", "200", "2", "100"], ["--gpu-window-every", "2", "--budget", "20"]);

#[test]
fn cupti_is_taken_off_between_windows_and_put_on_again() {
    let scratch = Scratch::new();
    let file = scratch.path().join("cupti.json");
    let trace = in_windows(&scratch, &APART.0, &APART.1).env("FAKE_CUPTI_TRUTH", &file).traced().expect(0).read();
    let about = trace.root().gpu_time.expect("CUPTI was asked");
    let calls = cupti_calls(&file);
    assert!(about.windows >= 2 && about.detached >= 1 && about.stays.is_none(), "{about:?}");
    assert_eq!(about.detached, finalized(&calls), "{calls:?}");
    // Whatever happens between two windows, nothing is asked of a CUPTI that is not there.
    for after in calls.split(|(function, _)| function == "cuptiFinalize").skip(1) {
        let first = after.iter().find(|(function, _)| function.starts_with("cuptiActivity"));
        let registers = |function: &str| function.starts_with("cuptiActivityRegister");
        assert!(first.is_none_or(|(function, _)| registers(function)), "{calls:?}");
    }
    // Its numbers begin anew each time, and still find their calls.
    assert!(about.joined * 100 >= about.records * 90 && about.dropped == 0, "{about:?}");
    let budget = about.budget.expect("a budget");
    let switches_percent = about.detached as f64 * 0.01 / 7.5 * 100.0;
    assert!(budget.windows_percent.is_some_and(|percent| percent > switches_percent * 0.9), "{budget:?}");
}

#[test]
fn cupti_stays_where_the_program_has_graphs() {
    let scratch = Scratch::new();
    let file = scratch.path().join("cupti.json");
    // It would break them, and the program with them.
    let words = ["4", "200", "2", "100", "1"];
    let target = in_windows(&scratch, &words, &OFTEN).env("FAKE_CUPTI_TRUTH", &file);
    let run = target.traced().expect(0);
    let trace = run.read();
    let about = trace.root().gpu_time.expect("CUPTI was asked");
    assert!(about.stays.as_deref().is_some_and(|why| why.contains("CUDA graphs")), "{about:?} {}", run.stderr);
    assert!(about.windows >= 3 && about.given_up.is_none(), "{about:?}");
    // What it costs to have it there is in the cost.
    let budget = about.budget.clone().expect("a budget");
    let (attached, total) =
        (budget.attached_percent.expect("launches beside windows"), budget.total_percent.expect("a sum"));
    assert!(budget.attached_launches > 1000 && attached > 0.0, "{budget:?}");
    assert!(
        (total - budget.hooks_percent - attached - budget.windows_percent.expect("windows")).abs() < 1e-6,
        "{budget:?}"
    );
    assert!(
        trace.root().notes.iter().any(|note| note.contains("CUPTI stayed in the process")),
        "{:?}",
        trace.root().notes
    );
    let api = trace.table("api");
    let names = trace.names();
    let launched = api.rows().filter(|row| names[&row.int("api_id")].starts_with("cuStreamBeginCapture"));
    let graphs_ns = launched.map(|row| row.int("start_ns")).min().expect("a capture");
    assert!(
        cupti_calls(&file).iter().all(|(function, at)| function != "cuptiFinalize" || *at <= graphs_ns + 1_000_000)
    );
    assert!(trace.table("kernels").rows().any(|row| row.maybe_int("graph_node").is_some()), "{about:?}");
}

#[test]
fn no_window_opens_while_a_graph_is_captured() {
    let scratch = Scratch::new();
    let file = scratch.path().join("cupti.json");
    // The capture stays open for longer than two windows are apart.
    let words = ["3.5", "20", "10", "200", "0.5", "1.5"];
    let target = in_windows(&scratch, &words, &["--gpu-window-every", "0.5", "--budget", "20"]);
    let trace = target.env("FAKE_CUPTI_TRUTH", &file).traced().expect(0).read();
    let (api, names) = (trace.table("api"), trace.names());
    let moment = |name: &str| {
        let row = api.rows().find(|row| names[&row.int("api_id")].starts_with(name)).expect("a capture");
        row.int("start_ns")
    };
    // A window that opens in the moment in which the capture begins is no matter of this.
    let capture = moment("cuStreamBeginCapture") + 50_000_000..moment("cuStreamEndCapture");
    assert!(capture.end - capture.start > 1_000_000_000, "{capture:?}");
    let enables = cupti_calls(&file).into_iter().filter(|(function, _)| function == "cuptiActivityEnable");
    let (during, others): (Vec<_>, Vec<_>) = enables.partition(|(_, at)| capture.contains(at));
    assert!(during.is_empty() && others.len() >= 6, "{during:?} {capture:?}");
}

#[test]
fn auto_gives_cupti_up_before_the_first_graph_and_times_launches_from_then_on() {
    let scratch = Scratch::new();
    let file = scratch.path().join("cupti.json");
    let words = ["3", "200", "2", "100", "1"];
    let target = scratch.target(program("steps")).args(words).with_driver(Driver::Plain);
    let truth_file = scratch.path().join("truth.json");
    let target = target.env("FAKE_CUPTI_TRUTH", &file).env("FAKE_CUDA_TRUTH", &truth_file);
    let run = target.options(["--gpu-time", "auto"]).options(OFTEN).traced().expect(0);
    let trace = run.read();
    let about = trace.root().gpu_time.expect("CUPTI was asked");
    assert!(about.given_up.as_deref().is_some_and(|why| why.contains("CUDA graphs")), "{about:?} {}", run.stderr);
    assert!(about.windows >= 1 && about.records > 0, "{about:?}");
    let calls = cupti_calls(&file);
    assert_eq!(calls.last().map(|(function, _)| function.as_str()), Some("cuptiFinalize"), "{calls:?}");
    let events = about.events.expect("launches were timed");
    assert!(events.timed > 100, "{events:?}");
    // 200 kernels of 2 us in a step, and a pause: estimated of the time that events tell of.
    let folder = run.trace.to_string_lossy();
    let arguments = ["report", &folder, "--only", "gpu-utilisation", "--format", "json"];
    let report: serde_json::Value = serde_json::from_str(&scratch.gputrace(&arguments).expect(0).text()).expect("JSON");
    let facts = &report["analyses"]["gpu-utilisation"]["facts"];
    let busy_ns = trace.table("gpu_samples").rows().map(|row| row.int("gpu_ns")).sum::<i64>() as f64;
    assert!(facts["busy_ns"].as_f64().is_some_and(|ns| ns >= busy_ns), "{facts}");
    assert!(facts["range_ns"].as_f64().is_some_and(|ns| ns > 2.5e9), "of the whole run: {facts}");
    let (found, truth) = (facts["busy_percent"].as_f64().expect("a share"), crate::gpu_events::busy(&truth_file));
    assert!((found - truth).abs() < 3.0, "{found} {truth}: {report}");
    let row = &report["analyses"]["gpu-utilisation"]["tables"]["estimated_by_device"]["rows"][0];
    assert!(row["told"].as_f64().is_some_and(|told| told > 100.0), "windows are part of it: {row}");
    assert!(
        report["analyses"]["gpu-utilisation"]["notes"].to_string().contains("of which CUPTI told in windows"),
        "{report}"
    );
    let first = trace.table("gpu_samples").rows().map(|row| row.int("start_ns")).min().expect("a timed launch");
    assert!(calls.iter().all(|(_, at)| *at < first), "events before CUPTI was off: {first} {calls:?}");
}

#[test]
fn an_old_cupti_is_never_finalized() {
    let scratch = Scratch::new();
    let file = scratch.path().join("cupti.json");
    let old = |mode: &str| {
        let target = scratch.target(program("steps")).args(["2", "200", "2", "100"]).with_driver(Driver::Plain);
        let target = target.env("FAKE_CUPTI_VERSION", "12.4").env("FAKE_CUPTI_TRUTH", &file);
        let about = target.options(["--gpu-time", mode]).options(OFTEN).traced().expect(0).read().root().gpu_time;
        about.expect("CUPTI was asked")
    };
    let windows = old("windows");
    assert!(windows.stays.as_deref().is_some_and(|why| why.contains("12.6")), "{windows:?}");
    assert_eq!((finalized(&cupti_calls(&file)), windows.detached), (0, 0));
    std::fs::remove_file(&file).expect("the truth of CUPTI");
    let auto = old("auto");
    assert!(auto.given_up.as_deref().is_some_and(|why| why.contains("12.6")), "{auto:?}");
    assert!(auto.windows == 0 && auto.events.is_some_and(|events| events.timed > 100));
    assert!(!file.exists(), "CUPTI was called");
}

#[test]
fn a_cupti_that_somebody_else_uses_is_not_taken_from_them() {
    let scratch = Scratch::new();
    let file = scratch.path().join("cupti.json");
    let flags = linked_with_library("libcuda.so.1", &driver_folder(Driver::Plain), &[]);
    let profiled = program_with("profiled", "looked-up", &flags);
    let target = scratch.target(profiled).args(["3", "subscribe"]).with_driver(Driver::Plain);
    let target = target.env("FAKE_CUPTI_TRUTH", &file).options(["--gpu-time", "windows", "--gpu-window-every", "0.5"]);
    let trace = target.traced().expect(0).read();
    assert!(trace.root().gpu_time.is_some_and(|about| about.detached == 0));
    let calls = cupti_calls(&file);
    let subscribed = calls.iter().position(|(function, _)| function == "cuptiSubscribe").expect("a subscriber");
    assert_eq!(finalized(&calls[subscribed..]), 0, "{calls:?}");
}

#[test]
fn launches_are_timed_as_often_as_the_budget_allows() {
    let timed = |budget: &str| {
        let scratch = Scratch::new();
        // A graph of five short kernels, some thousand times a second.
        let target = scratch.target(program("steps")).args(["3", "5", "2", "0", "0.1"]).with_driver(Driver::Plain);
        let trace = target.options(["--gpu-time", "auto", "--budget", budget]).traced().expect(0).read();
        let graphs = trace.table("launches").rows().filter(|row| row.maybe_int("graph_exec_id").is_some()).count();
        let about = trace.root().gpu_time.expect("CUPTI was asked");
        (about.events.expect("launches were timed").timed as f64, graphs as f64)
    };
    let (timed_all, all) = timed("100");
    assert!(timed_all > all * 0.95, "{timed_all} of {all}");
    let (some, graphs) = timed("0.05");
    assert!(some > 20.0 && some < graphs * 0.6, "{some} of {graphs}");
}

#[test]
fn what_cupti_does_not_give_out_or_do_is_said() {
    let told = |words: &[&str], options: &[&str], failure: &str| {
        let scratch = Scratch::new();
        let file = scratch.path().join("cupti.json");
        let target = in_windows(&scratch, words, options).env("FAKE_CUPTI_FAIL", failure);
        let trace = target.env("FAKE_CUPTI_TRUTH", &file).traced().expect(0).read();
        let notes = trace.root().notes.join("\n");
        (trace.root().gpu_time.expect("CUPTI was asked"), notes, finalized(&cupti_calls(&file)))
    };
    // On a busy machine so few launches may come until the next window that CUPTI is not to be taken off at all.
    let mut runs = (0..5).map(|_| told(&APART.0, &APART.1, "cuptiFinalize:1"));
    let (about, notes, _) = runs.find(|(_, _, tried)| *tried > 0).expect("it was to be taken off");
    let stays = about.stays.as_deref();
    assert!(about.detached == 0 && stays.is_some_and(|why| why.contains("cuptiFinalize failed")), "{about:?} {notes}");
    let says = |failure: &str| {
        let (about, notes, _) = told(&MANY, &OFTEN, failure);
        (about, notes)
    };
    let (about, notes) = says("cuptiActivityFlushAll:1");
    assert!(about.given_up.is_some_and(|why| why.contains("cuptiActivityFlushAll")), "{notes}");
    assert!(about.events.is_some_and(|events| events.timed > 100), "{notes}");
    let (about, notes) = says("cuptiGetResultString:1");
    assert!(about.without_record <= 20 && notes.is_empty(), "{about:?} {notes}");
}
