//! The trace's counts are the driver's own, and each column holds what the program passed.

use std::collections::BTreeMap;
use std::time::Duration;

use gputrace_collectors::manifest::Count;

use crate::util::{Driver, Finished, Scratch, Trace, count, library, poll, program, truth};

#[test]
fn eight_threads_of_mixed_calls_are_counted_as_the_driver_counts() {
    let scratch = Scratch::new();
    for (driver, instant) in [(Driver::Plain, "0"), (Driver::Symbolic, "1")] {
        let file = scratch.path().join("truth.json");
        let target = scratch.target(program("cuda_threads")).args(["1000", "8"]).with_driver(driver);
        let target = target.env("FAKE_CUDA_TRUTH", &file).env("FAKE_CUDA_INSTANT", instant);
        let run = target.options(["--on-full", "block"]).traced().expect(0);
        assert!(run.text().ends_with("ok\n"), "{}", run.text());
        let trace = run.read();
        trace.assert_balanced();
        let calls = trace.calls();
        trace.assert_counts(&truth(&file));
        assert!(calls.values().sum::<u64>() > 50_000, "{calls:?}");
        let process = trace.root();
        // A thread of the simulated driver waits for work until the process ends.
        let complete =
            |(class, count): (&String, &Count)| count.dropped == 0 && (count.in_flight == 0 || class == "os_wait");
        assert!(process.accounting.iter().all(complete), "{process:?}");
        // Correlation ids are unique, and each thread's times are in order and do not overlap.
        let (mut ids, mut times) = (Vec::new(), BTreeMap::<i64, Vec<(i64, i64)>>::new());
        for table in ["launches", "syncs", "transfers", "device_memory", "api"] {
            for row in trace.table(table).rows() {
                ids.push(row.int("correlation_id"));
                times.entry(row.int("tid")).or_default().push((row.int("start_ns"), row.int("api_ns")));
            }
        }
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        assert_eq!(times.len(), 9, "eight threads and the first one");
        for calls in times.values_mut() {
            calls.sort_unstable();
            // Clock ticks become whole nanoseconds, which may be one more or less.
            assert!(calls.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0 + 1), "calls of a thread overlap");
        }
    }
}

#[test]
fn calls_that_are_only_counted_are_counted_exactly() {
    let scratch = Scratch::new();
    // More threads at once than there are blocks of counters.
    for threads in ["1", "200"] {
        let run = scratch.target(program("counting")).args([threads, "500"]).with_instant_driver().traced().expect(0);
        let trace = run.read();
        assert_eq!(run.text().lines().count(), 2);
        for line in run.text().lines() {
            let (pid, calls) = line.split_once(' ').expect("a process and its calls");
            let process = trace.process(pid.parse().expect("a number"));
            let calls: u64 = calls.parse().expect("a number");
            let hooks = &process.coverage.hooks;
            let hook = hooks.iter().find(|hook| hook.name == "cuDeviceGetAttribute").expect("the hook was reached");
            assert_eq!((hook.calls, hook.counted), (calls, true), "{threads} threads");
            // They were seen, and sampled out; cuInit, which the parent called, is an event.
            let api = count(&process, "api");
            assert!(api.sampled_out >= calls && api.seen == api.sampled_out + api.recorded, "{api:?}");
        }
        assert!(trace.table("api").rows().all(|row| row.text("class") == "api"));
        trace.assert_balanced();
    }
}

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    let scratch = Scratch::new();
    // The smallest segment, and four million events faster than anybody could read them.
    let target = scratch.target(program("threads")).args(["8", "100000"]).with_instant_driver();
    let run = target.options(["--segment-memory", "1M"]).same();
    let trace = run.read();
    trace.assert_balanced();
    let launches = count(&trace.root(), "launch");
    assert_eq!(launches.seen, 1_600_000, "{launches:?}");
    assert_eq!(launches.recorded + launches.dropped, launches.seen);
}

#[test]
fn on_full_block_loses_nothing() {
    let scratch = Scratch::new();
    let target = scratch.target(program("threads")).args(["4", "50000"]).with_instant_driver();
    let run = target.options(["--segment-memory", "1M", "--on-full", "block"]).same();
    let launches = count(&run.read().root(), "launch");
    assert_eq!((launches.recorded, launches.dropped), (400_000, 0), "{launches:?}");
}

#[test]
fn on_full_block_loses_nothing_while_the_collector_stands_still() {
    let scratch = Scratch::new();
    let target = scratch.target(program("standstill")).args(["stop", "40000"]).with_instant_driver();
    let run = target.options(["--segment-memory", "1M", "--on-full", "block"]).traced().expect(0);
    assert_eq!(run.text(), "stopped\nlaunched\n");
    let launches = count(&run.read().root(), "launch");
    assert_eq!((launches.recorded, launches.dropped), (40_000, 0), "{launches:?}");
}

#[test]
fn on_full_block_waits_for_nobody_when_the_collector_is_killed() {
    let scratch = Scratch::new();
    let file = scratch.path().join("launched");
    let target = scratch.target(program("standstill")).args(["kill", "40000"]).arg(&file).with_instant_driver();
    let mut started = target.options(["--segment-memory", "1M", "--on-full", "block"]).start_to_be_killed();
    started.is_killed();
    poll(Duration::from_secs(120), || file.exists().then_some(())).expect("the program goes on by itself");
}

/// `GRID NAME CAPTURED` lines of `cuda_names`, against the launches with these grids.
#[track_caller]
fn names_are_right(run: &Finished) {
    let trace = run.read();
    trace.assert_balanced();
    let names = trace.names();
    let table = trace.table("launches");
    let of_kernel = table.rows().filter(|row| row.int("grid_x") != 0);
    let seen: BTreeMap<i64, (&str, i64)> = of_kernel
        .map(|row| {
            let name = row.maybe_int("name_id").map_or("unknown", |id| names[&id].as_str());
            (row.int("grid_x"), (name, row.int("captured")))
        })
        .collect();
    let text = run.text();
    let expected: BTreeMap<i64, (&str, i64)> = text
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].parse().expect("a grid"), (words[1], words[2].parse().expect("0 or 1")))
        })
        .collect();
    assert!(expected.len() >= 25);
    assert_eq!(seen, expected);
}

#[test]
fn kernel_names_are_right_after_reloads_under_capture_and_from_every_loader_call() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        let run = scratch.target(program("cuda_names")).with_driver(driver).traced().expect(0);
        names_are_right(&run);
        let table = run.read().table("launches");
        let graphs = table.rows().filter(|row| row.int("grid_x") == 0);
        assert_eq!(graphs.inspect(|row| assert_eq!(row.maybe_int("name_id"), None)).count(), 5);
    }
}

#[test]
fn kernel_names_are_right_when_a_driver_gives_a_handle_to_another_function() {
    let scratch = Scratch::new();
    let run = scratch.target(program("cuda_names")).with_odd_driver().traced().expect(0);
    names_are_right(&run);
    let table = run.read().table("launches");
    let mut handles: Vec<i64> = table.rows().map(|row| row.int("function")).collect();
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), 3, "the driver used its handles again");
}

/// The values that `cuda_values` printed, and its trace.
fn values() -> (Scratch, BTreeMap<String, i64>, Trace) {
    let scratch = Scratch::new();
    let run = scratch.target(program("cuda_values")).with_driver(Driver::Symbolic).traced().expect(0);
    let text = run.text();
    let value = |line: &str| {
        let (key, value) = line.rsplit_once(' ').expect("KEY VALUE");
        (key.to_owned(), i64::from_str_radix(value, 16).expect("hexadecimal"))
    };
    let values = text.lines().map(value).collect();
    let trace = run.read();
    trace.assert_balanced();
    (scratch, values, trace)
}

#[test]
fn launches_hold_their_shape_stream_function_and_result() {
    let (_scratch, values, trace) = values();
    let table = trace.table("launches");
    let columns = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes", "stream", "result"];
    let rows: Vec<[i64; 9]> = table.rows().take(3).map(|row| columns.map(|column| row.int(column))).collect();
    let stream = values["stream"];
    assert_eq!(rows[0], [2_147_483_647, 65_535, 65_535, 1024, 1, 1, 232_448, stream, 0]);
    assert_eq!(rows[1], [1, 2, 3, 2, 8, 64, 0, 0, 0]);
    assert_eq!(rows[2], [1, 1, 1, 1024, 2, 1, 0, stream, values["refused"]]);
    assert!(table.rows().take(3).all(|row| row.int("function") == values["function"]));
    let captured: Vec<(i64, i64, i64)> =
        table.rows().skip(3).map(|row| (row.int("grid_x"), row.int("stream"), row.int("captured"))).collect();
    let joined = values["joined"];
    assert_eq!(captured, [(101, stream, 1), (102, joined, 1), (103, stream, 0), (104, joined, 0), (0, stream, 0)]);
    let graph = table.rows().last().expect("the graph's launch");
    assert_eq!(graph.int("function"), values["exec"]);
    assert!(table.rows().all(|row| row.int("context") == 1 && row.maybe_int("device") == Some(0)));
}

#[test]
fn copies_hold_their_direction_kinds_of_memory_and_bytes() {
    let (_scratch, values, trace) = values();
    let table = trace.table("transfers");
    let copies: BTreeMap<i64, _> =
        table.rows().filter(|r| r.text("kind") == "copy").map(|r| (r.int("bytes"), r)).collect();
    assert_eq!(copies.len(), 14);
    let expected = [
        (1, "HtoD", "pageable", "device", 0),
        (2, "HtoD", "pinned", "device", 0),
        (3, "HtoD", "pageable", "device", 1),
        (4, "HtoD", "pinned", "device", 1),
        (5, "HtoD", "pinned", "device", 1),
        (6, "DtoH", "device", "pinned", 1),
        (7, "DtoH", "device", "pageable", 0),
        (8, "DtoD", "device", "device", 0),
        (9, "DtoH", "device", "pinned", 0),
        (10, "DtoD", "device", "managed", 1),
        (11, "HtoD", "pageable", "device", 1),
        (12, "HtoH", "pinned", "pageable", 0),
        (13, "DtoD", "device", "device", 1),
        (15, "HtoD", "pageable", "device", 0),
    ];
    for (bytes, direction, source, destination, asynchronous) in expected {
        let row = copies[&bytes];
        let found = (row.text("direction"), row.text("src_kind"), row.text("dst_kind"), row.int("async"));
        assert_eq!(found, (direction, source, destination, asynchronous), "copy of {bytes} bytes");
        assert_eq!(row.int("stream"), if asynchronous == 1 { values["stream"] } else { 0 });
    }
    assert_eq!((copies[&3].int("src"), copies[&3].int("dst")), (values["pageable"] + 100, values["device"]));
    assert_eq!((copies[&8].int("src"), copies[&8].int("dst")), (values["device"], values["other"]));
    let sets: Vec<(i64, i64, i64)> = table
        .rows()
        .filter(|row| row.text("kind") == "set")
        .map(|row| (row.int("bytes"), row.int("async"), row.int("src")))
        .collect();
    assert_eq!(sets, [(14, 1, 7), (20, 0, 7), (300, 0, 9)]);
    assert!(table.rows().filter(|row| row.text("kind") == "set").all(|row| row.maybe_text("src_kind").is_none()));
}

#[test]
fn device_memory_holds_kinds_addresses_bytes_and_refusals() {
    let (_scratch, values, trace) = values();
    let table = trace.table("device_memory");
    let rows: Vec<(&str, &str, i64, i64, i64)> = table
        .rows()
        .map(|row| (row.text("action"), row.text("kind"), row.int("address"), row.int("bytes"), row.int("result")))
        .collect();
    const MB: i64 = 1 << 20;
    let expected = [
        ("alloc", "device", values["device"], MB, 0),
        ("alloc", "device", values["other"], 2 * MB, 0),
        ("alloc", "managed", values["managed"], MB, 0),
        ("alloc", "async", values["pooled"], 3 * MB, 0),
        ("alloc", "pinned", values["pinned"], MB, 0),
        ("alloc", "pinned", values["mapped"], MB, 0),
        ("alloc", "registered", values["registered"], MB, 0),
        ("alloc", "device", 0, 1 << 50, values["out of memory"]),
        ("free", "registered", values["registered"], MB, 0),
        ("free", "device", values["other"], 2 * MB, 0),
        ("free", "device", values["device"], MB, 0),
        ("free", "managed", values["managed"], MB, 0),
        ("free", "async", values["pooled"], 3 * MB, 0),
        ("free", "pinned", values["pinned"], MB, 0),
        ("free", "pinned", values["mapped"], MB, 0),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn waits_hold_what_they_wait_for() {
    let (_scratch, values, trace) = values();
    let table = trace.table("syncs");
    let rows: Vec<(&str, i64, i64, i64)> =
        table.rows().map(|r| (r.text("kind"), r.int("stream"), r.int("handle"), r.int("captured"))).collect();
    let (stream, joined) = (values["stream"], values["joined"]);
    let join = rows[3].2;
    let expected = [
        ("stream", stream, 0, 0),
        ("stream", stream, 0, 0),
        ("stream_wait", joined, values["event"], 1),
        ("stream_wait", stream, join, 1),
        ("query", 0, values["event"], 0),
        ("event", 0, values["event"], 0),
        ("stream", 0, 0, 0),
    ];
    assert_eq!(rows, expected);
    assert!(join != values["event"] && join != 0);
}

/// Nanoseconds since the Unix epoch.
fn now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock").as_nanos() as i64
}

#[test]
fn times_enclose_what_happened_on_each_clock() {
    let scratch = Scratch::new();
    let counter = format!("exec {} 20 2", program("cuda_threads").display());
    let monotonic = format!("GPUTRACE_CLOCK=monotonic {counter}");
    // Another library fakes the time, for the program but not for us.
    let faked = format!("LD_PRELOAD=$LD_PRELOAD:{} {monotonic}", library("fake_time").display());
    for command in [counter, monotonic, faked] {
        let before = now_ns();
        let run = scratch.shell(&command).with_driver(Driver::Plain).traced().expect(0);
        let after = now_ns();
        let table = run.read().table("syncs");
        assert!(table.len() >= 10);
        for row in table.rows() {
            let (start, end) = (row.int("start_ns"), row.int("start_ns") + row.int("api_ns"));
            assert!(before < start && start < end && end < after, "{command}: {before} {start} {end} {after}");
        }
    }
}

#[test]
fn a_kernels_wait_takes_as_long_as_the_kernel() {
    let scratch = Scratch::new();
    // Three kernels of 20 us and their synchronisation: the wait is what is left of them.
    let file = scratch.path().join("truth.json");
    let target = scratch.target(program("cuda_routes")).arg("dlopen").with_driver(Driver::Symbolic);
    let run = target.env("FAKE_CUDA_TRUTH", &file).traced().expect(0);
    let text = std::fs::read_to_string(&file).expect("the truth");
    let truth: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let kernels: Vec<_> =
        truth["device"].as_array().expect("operations").iter().filter(|o| o["kind"] == "kernel").collect();
    assert_eq!(kernels.len(), 3);
    let last = kernels.iter().filter_map(|kernel| kernel["end_ns"].as_i64()).max().expect("an end");
    let trace = run.read();
    let (launches, syncs) = (trace.table("launches"), trace.table("syncs"));
    // Each kernel begins after its launch began, and the synchronisation ends after the last kernel.
    for (launch, kernel) in launches.rows().zip(&kernels) {
        let start = kernel["start_ns"].as_i64().expect("a start");
        assert!(launch.int("start_ns") <= start, "{} {start}", launch.int("start_ns"));
    }
    let sync = syncs.rows().next().expect("a synchronisation");
    assert!(sync.int("start_ns") + sync.int("api_ns") >= last);
}
