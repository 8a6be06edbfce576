//! What the GPU did, by CUPTI's records: each kernel, copy and set is in the trace, with the time that the simulated device
//! took and the call that gave it; and whoever else uses CUPTI gets what it gets without us.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gputrace_collectors::manifest::GpuTime;

use crate::util::{Driver, Scratch, Target, Trace, driver_folder, linked_with_library, poll, program, program_with};

/// Work of one kind: when it began, how long it took, bytes, when its call began and in which thread.
type Work = (i64, i64, i64, i64, i64);

/// What the simulated device did, by kind (and a kernel's name).
fn truth(file: &Path) -> BTreeMap<String, Vec<Work>> {
    let text = std::fs::read_to_string(file).expect("the driver's truth");
    let truth: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut all = BTreeMap::<String, Vec<Work>>::new();
    for record in truth["device"].as_array().expect("records") {
        let number = |name: &str| record[name].as_i64().unwrap_or_else(|| panic!("{name} of {record}"));
        let (begin, end) = (number("start_ns"), number("end_ns"));
        let kind = record["kind"].as_str().expect("a kind");
        let name = if kind == "kernel" { record["name"].as_str().expect("a name") } else { kind };
        all.entry(name.to_owned()).or_default().push((
            begin,
            end - begin,
            number("bytes"),
            number("issued_ns"),
            number("tid"),
        ));
    }
    all
}

/// The same out of a trace; calls are found by correlation.
fn traced(trace: &Trace) -> BTreeMap<String, Vec<Work>> {
    let names = trace.names();
    let mut calls = BTreeMap::new();
    for table in ["launches", "transfers"] {
        for row in trace.table(table).rows() {
            calls.insert(row.int("correlation_id"), (row.int("start_ns"), row.int("tid")));
        }
    }
    let mut all = BTreeMap::<String, Vec<Work>>::new();
    for table in ["kernels", "device_copies"] {
        for row in trace.table(table).rows() {
            let is_kernel = table == "kernels";
            let name = match is_kernel {
                true => names[&row.int("name_id")].clone(),
                false => row.text("kind").to_owned(),
            };
            let bytes = if is_kernel { 0 } else { row.int("bytes") };
            let (called, tid) = row.maybe_int("correlation_id").map_or((0, 0), |id| calls[&id]);
            all.entry(name).or_default().push((row.int("start_ns"), row.int("gpu_ns"), bytes, called, tid));
        }
    }
    all
}

/// What the manifest says of the command's process.
fn about(trace: &Trace) -> GpuTime {
    trace.root().gpu_time.expect("CUPTI was asked")
}

/// Both are the same: number and times of each, and the thread and time of the call, but for so many percent.
fn assert_same(found: &BTreeMap<String, Vec<Work>>, truth: &BTreeMap<String, Vec<Work>>, percent: usize) {
    let count = |all: &BTreeMap<String, Vec<Work>>| -> BTreeMap<String, usize> {
        all.iter().map(|(name, of)| (name.clone(), of.len())).collect()
    };
    assert_eq!(count(found), count(truth));
    for (name, truth) in truth {
        let (mut found, mut truth) = (found[name].clone(), truth.clone());
        found.sort_unstable();
        truth.sort_unstable();
        let mut others = 0;
        for (ours, theirs) in found.iter().zip(&truth) {
            // Two clocks were read at one moment each, and ticks are whole ns.
            assert!(
                (ours.0 - theirs.0).abs() <= 50_000 && (ours.1 - theirs.1).abs() <= 2,
                "{name}: {ours:?} {theirs:?}"
            );
            assert_eq!(ours.2, theirs.2, "{name}: bytes");
            others += usize::from(ours.4 != theirs.4 || ours.3 > theirs.3 + 50_000);
        }
        assert!(others * 100 <= truth.len() * percent, "{name}: {others} of {} have another call", truth.len());
    }
}

fn full<'a>(scratch: &'a Scratch, name: &str, words: &[&str]) -> Target<'a> {
    let target = scratch.target(program(name)).args(words).with_driver(Driver::Plain);
    target.env("FAKE_CUDA_TRUTH", scratch.path().join("truth.json")).options(["--gpu-time", "full"])
}

#[test]
fn every_piece_of_work_has_its_time_and_its_call() {
    for (version, threads) in [("11.8", "1"), ("12.4", "1"), ("13.0", "4"), ("13.5", "1")] {
        let scratch = Scratch::new();
        let target = full(&scratch, "cuda_threads", &["60", threads]).env("FAKE_CUPTI_VERSION", version);
        let run = target.env("FAKE_CUPTI_DRIFT_PPM", "20").traced().expect(0);
        let trace = run.read();
        let about = about(&trace);
        assert_eq!((about.dropped, about.without_time), (0, 0), "{about:?}");
        // Threads that give the same at the same moment, stopped anywhere, are told apart by their streams, once these are known.
        let alone = threads == "1";
        assert!(about.joined == about.records || !alone && about.joined * 100 >= about.records * 95, "{about:?}");
        assert_same(&traced(&trace), &truth(&scratch.path().join("truth.json")), if alone { 0 } else { 25 });
        trace.assert_balanced();
        let windows = trace.table("gpu_windows");
        let ends: Vec<(&str, &str)> = windows.rows().map(|row| (row.text("kind"), row.text("ended_by"))).collect();
        assert_eq!(ends, [("full", "end")]);
    }
}

#[test]
fn a_flush_may_give_back_more_buffers_than_there_are() {
    let scratch = Scratch::new();
    let run = || {
        // 4,000 kernels stand in 200 buffers, which take a second to come; there are 64.
        let target = scratch.target(program("steps")).args(["0.001", "4000", "1", "0"]).with_driver(Driver::Plain);
        let target = target.env("FAKE_CUPTI_BUFFER_MS", "5").env("FAKE_CUPTI_BUFFER_RECORDS", "20");
        let trace = target.options(["--gpu-time", "full", "--on-full", "block"]).traced().expect(0).read();
        let about = about(&trace);
        (about.dropped, about.without_record, about.records >= 4000)
    };
    // On a loaded machine the thread that reads may stand in CUPTI behind a launch that waits for it; then it is two seconds and the rest.
    let runs: Vec<_> = (0..3).map(|_| run()).take_while(|run| *run != (0, 0, true)).collect();
    assert!(runs.len() < 3, "{runs:?}");
}

#[test]
fn records_for_which_there_is_no_buffer_are_counted_to_the_last_one() {
    let scratch = Scratch::new();
    let file = scratch.path().join("cupti.json");
    let run = || {
        // A record a buffer: they are gone long before they are read, and the last ones for good.
        let target = scratch.target(program("steps")).args(["0.001", "4000", "1", "0"]).with_driver(Driver::Plain);
        let target = target.env("FAKE_CUPTI_BUFFER_RECORDS", "1").env("FAKE_CUPTI_TRUTH", &file);
        let about = about(&target.options(["--gpu-time", "full"]).traced().expect(0).read());
        let truth: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("JSON");
        assert_eq!(Some(about.dropped), truth["dropped"].as_u64(), "{about:?}");
        about.dropped
    };
    // Launches, and what making them cost. Where the program does not get to run they are read in time.
    let most = (0..5).map(|_| run()).find(|dropped| *dropped > 1000);
    assert!(most.is_some(), "nothing found no buffer in any of the runs");
}

/// How a kernel was launched, and what follows of it on a multiprocessor of capability 9.0, which holds 2,048 threads (64 warps),
/// 32 blocks, 65,536 registers in four parts, and 228 KiB of shared memory, of which each block takes 1 KiB for the system.
const SHAPES: [(&str, &str, &str, f64, Option<&str>); 7] = [
    // 8 blocks of 256 threads take 2,048 threads, and 65,536 registers.
    ("spin_us_9_regs_32", "256", "0", 100.0, None),
    // 64 x 32 registers of a warp are 2,048: a part of 16,384 holds 8 warps, all four hold 32, which are 4 blocks.
    ("spin_us_8_regs_64", "256", "0", 50.0, Some("registers")),
    // 33 x 32 = 1,056 are rounded up to 1,280: 12 warps in a part, 48 of 64.
    ("spin_us_7_regs_33", "128", "0", 75.0, Some("registers")),
    // 48 KiB declared and 8 KiB more, 57 KiB with the system's: 4 blocks of 4 warps.
    ("spin_us_6_shared_49152", "128", "8192", 25.0, Some("shared memory")),
    // 32 blocks of one warp.
    ("spin_us_5", "32", "0", 50.0, Some("blocks")),
    // 3 blocks of 20 warps are 60; a fourth would be too many, and registers would do for 6.
    ("spin_us_4_regs_16", "640", "0", 93.75, Some("warps")),
    // 2 blocks by registers (8 warps in a part, 16 of a block), and by 114 KiB of shared memory.
    ("spin_us_3_regs_64", "512", "115712", 50.0, Some("registers, shared memory")),
];

#[test]
fn kernels_have_their_occupancy_and_what_limits_it() {
    let scratch = Scratch::new();
    let words: Vec<&str> = SHAPES.iter().flat_map(|(name, block, shared, ..)| [*name, *block, *shared]).collect();
    let run = full(&scratch, "cuda_shapes", &words).traced().expect(0);
    let (trace, folder) = (run.read(), run.trace.to_string_lossy());
    let names = trace.names();
    let kernels = trace.table("kernels");
    let mut found: Vec<(&str, f64, Option<&str>)> = kernels
        .rows()
        .map(|row| {
            let name = names[&row.int("name_id")].as_str();
            (name, row.float("occupancy_percent"), row.maybe_text("occupancy_limiter"))
        })
        .collect();
    found.sort_by(|one, other| other.0.cmp(one.0));
    assert_eq!(found, SHAPES.map(|(name, _, _, percent, limiter)| (name, percent, limiter)));
    // The report computes the same for itself, of what any source says.
    let run = scratch.gputrace(&["report", &folder, "--only", "occupancy", "--format", "json"]).expect(0);
    let report: serde_json::Value = serde_json::from_str(&run.text()).expect("JSON");
    let rows =
        report["analyses"]["occupancy"]["tables"]["by_configuration"]["rows"].as_array().cloned().unwrap_or_default();
    assert_eq!(rows.len(), SHAPES.len(), "{report}");
    for row in rows {
        let known = found.iter().find(|(name, ..)| row["kernel"] == *name).expect("a kernel");
        assert_eq!((row["occupancy_percent"].as_f64(), row["limiter"].as_str()), (Some(known.1), known.2), "{row}");
    }
}

#[test]
fn a_kernels_queue_delay_runs_from_the_end_of_its_call() {
    let scratch = Scratch::new();
    // Three kernels behind one of 300 ms.
    let words = ["spin_us_300000", "1", "0", "spin_us_2", "1", "0", "spin_us_2", "1", "0", "spin_us_2", "1", "0"];
    let trace = full(&scratch, "cuda_shapes", &words).traced().expect(0).read();
    let launches = trace.table("launches");
    let ends: BTreeMap<i64, i64> =
        launches.rows().map(|row| (row.int("correlation_id"), row.int("start_ns") + row.int("api_ns"))).collect();
    let kernels = trace.table("kernels");
    assert_eq!(kernels.len(), 4);
    for row in kernels.rows() {
        let late = row.int("start_ns") - ends[&row.int("correlation_id")];
        assert_eq!(row.maybe_int("queue_ns"), Some(late).filter(|ns| *ns >= 0));
        assert!(late > 0 || row.int("gpu_ns") > 100_000_000, "{late} ns behind a long kernel");
    }
}

#[test]
fn nodes_of_graphs_have_the_call_that_launched_the_graph() {
    let scratch = Scratch::new();
    let run = full(&scratch, "cuda_graphs", &[]).traced().expect(0);
    let trace = run.read();
    let about = about(&trace);
    assert_eq!((about.joined, about.dropped), (about.records, 0), "{about:?}");
    let (found, truth) = (traced(&trace), truth(&scratch.path().join("truth.json")));
    let counts =
        |all: &BTreeMap<String, Vec<Work>>| all.iter().map(|(name, of)| (name.clone(), of.len())).collect::<Vec<_>>();
    assert_eq!(counts(&found), counts(&truth));
    let nodes = trace.table("kernels").rows().filter(|row| row.maybe_int("graph_node").is_some()).count();
    assert!(nodes > 0, "no kernel of a graph");
}

#[test]
fn records_that_cupti_loses_or_has_no_time_for_are_counted() {
    let scratch = Scratch::new();
    let target = full(&scratch, "cuda_threads", &["60", "2"]);
    let target = target.env("FAKE_CUPTI_DROP", "10").env("FAKE_CUPTI_INVALID", "7").env("FAKE_CUPTI_SHUFFLE", "1");
    let trace = target.traced().expect(0).read();
    let about = about(&trace);
    let truth: usize = truth(&scratch.path().join("truth.json")).values().map(Vec::len).sum();
    assert_eq!(about.records + about.dropped, truth as u64, "{about:?}");
    assert!(about.dropped > 0 && about.without_time > 0, "{about:?}");
    assert_eq!(about.joined, about.records - about.without_time, "{about:?}");
    assert_eq!((trace.table("kernels").len() + trace.table("device_copies").len()) as u64, about.joined);
}

#[test]
fn a_program_that_profiles_itself_is_stood_aside_for() {
    let folder = driver_folder(Driver::Plain);
    let looked_up = linked_with_library("libcuda.so.1", &folder, &[]);
    let linked = linked_with_library("libcupti.so.13", &folder, &["-DLINKED", "-l:libcuda.so.1"]);
    for (tag, flags) in [("looked-up", looked_up), ("linked", linked)] {
        for words in [&[][..], &["3", "subscribe"], &["3", "finalize"]] {
            let scratch = Scratch::new();
            let target = scratch.target(program_with("profiled", tag, &flags)).args(words).with_driver(Driver::Plain);
            // The same output as without us, which `tests/profilers.rs` compares with what it must be.
            let run = target.options(["--gpu-time", "full"]).same().expect(0);
            let trace = run.read();
            let about = about(&trace);
            let first = if words.contains(&"subscribe") { "cuptiSubscribe" } else { "cuptiActivityRegisterCallbacks" };
            assert_eq!(about.aside.first().map(String::as_str), Some(first), "{tag}: {about:?}");
            let windows = trace.table("gpu_windows");
            let window = windows.rows().next().expect("a window before");
            assert_eq!(window.text("ended_by"), "aside", "{tag}");
            // From then on it is theirs, and again with their next.
            let times = &about.aside_times;
            assert_eq!(times[0].from_ns, window.int("start_ns") + window.int("window_ns"), "{tag}: {about:?}");
            assert!(times.windows(2).all(|two| two[0].to_ns.is_some_and(|to_ns| to_ns <= two[1].from_ns)), "{about:?}");
        }
    }
}

#[test]
fn what_measures_pairs_of_events_is_not_in_the_programs_own_profile() {
    let looked_up = linked_with_library("libcuda.so.1", &driver_folder(Driver::Plain), &[]);
    let profiled = program_with("profiled", "looked-up", &looked_up);
    for how in ["events", "auto"] {
        for words in [&["3", "plain"][..], &["3", "finalize"]] {
            for _ in 0..3 {
                let scratch = Scratch::new();
                let target = scratch.target(&profiled).args(words).with_driver(Driver::Plain);
                target.options(["--gpu-time", how]).same().expect(0);
            }
        }
    }
}

#[test]
fn a_program_that_brings_its_own_copy_of_cupti_is_told_how_both_use_the_same() {
    let folder = driver_folder(Driver::Plain);
    let profiled = program_with("profiled", "looked-up", &linked_with_library("libcuda.so.1", &folder, &[]));
    for words in [&["3", "plain"][..], &["3", "plain", "subscribe"], &["3", "plain", "finalize"]] {
        let scratch = Scratch::new();
        let copy = scratch.path().join("libtheirs.so");
        std::fs::copy(folder.join("libcupti.so.13"), &copy).expect("a copy");
        let target = || {
            let target = scratch.target(&profiled).args(words).with_driver(Driver::Plain);
            target.env("PROFILED_CUPTI", &copy).options(["--gpu-time", "full"])
        };
        // The driver serves one copy to a process, and ours was first.
        let run = target().traced();
        assert!(run.text().contains("= 39"), "{words:?}: {}", run.text());
        let path = copy.display();
        let remedy = format!("({path}) was called after gputrace had used another one");
        let notes = run.read().root().notes;
        assert!(
            notes.iter().any(|note| note.contains(&remedy) && note.contains(&format!("GPUTRACE_CUPTI={path}"))),
            "{notes:?}"
        );
        let run = target().env("GPUTRACE_CUPTI", &copy).same().expect(0);
        let about = about(&run.read());
        assert!(!about.aside.is_empty() && about.records > 0 && about.other_copy.is_none(), "{words:?}: {about:?}");
    }
}

#[test]
fn a_cupti_that_keeps_its_own_clock_is_followed() {
    let scratch = Scratch::new();
    let target = full(&scratch, "cuda_threads", &["60", "1"]);
    let target = target.env("FAKE_CUPTI_FAIL", "cuptiActivityRegisterTimestampCallback:1");
    // From its first moments on, in which no pace is known yet: of this one a tenth of a second is 200 us.
    let trace = target.env("FAKE_CUPTI_DRIFT_PPM", "2000").traced().expect(0).read();
    let about = about(&trace);
    assert!(about.clock_error_ns.is_some_and(|ns| ns < 1_000_000), "{about:?}");
    assert_eq!(about.joined, about.records, "{about:?}");
    assert_same(&traced(&trace), &truth(&scratch.path().join("truth.json")), 0);
}

#[test]
fn what_cupti_refuses_is_said_and_harms_nobody() {
    let says = |target: Target<'_>| {
        let run = target.same().expect(0);
        let trace = run.read();
        assert_eq!(trace.table("kernels").len(), 0);
        trace.assert_balanced();
        about(&trace).refused.unwrap_or_default()
    };
    let scratch = Scratch::new();
    let target = || full(&scratch, "cuda_graphs", &[]);
    let privileges = says(target().env("FAKE_CUPTI_FAIL", "cuptiActivityEnable:35"));
    assert!(privileges.contains("INSUFFICIENT_PRIVILEGES"), "{privileges}");
    let callbacks = says(target().env("FAKE_CUPTI_FAIL", "cuptiActivityRegisterCallbacks:1"));
    assert!(callbacks.contains("cuptiActivityRegisterCallbacks failed with CUPTI's result 1"), "{callbacks}");
    let missing = says(target().env("GPUTRACE_CUPTI", "/nonexistent/libcupti.so.13"));
    assert!(missing.contains("no library of CUPTI"), "{missing}");
    let injected = target().env("CUDA_INJECTION64_PATH", "/opt/tool.so").traced().expect(0).read();
    assert_eq!(about(&injected).aside, ["CUDA_INJECTION64_PATH"]);
    // No set of ours may be given beside the tool, so what timing takes by itself is not known.
    assert!(about(&injected).events.is_some_and(|events| events.assumed > 0));
    assert!(injected.root().notes.iter().any(|note| note.contains("could not be measured")));
    assert_eq!(injected.table("kernels").len(), 0);
}

#[test]
fn what_the_clocks_may_be_off_is_stated() {
    let scratch = Scratch::new();
    let run = full(&scratch, "cuda_threads", &["60", "1"]).traced().expect(0);
    let (about, clock) = (about(&run.read()), run.read().manifest().clock);
    let error = clock.error_ns.expect("a clock that is converted");
    assert!(error < 100_000 && about.clock_error_ns.is_none(), "{clock:?}");
    assert!(about.alignment_error_ns.is_some_and(|ns| ns <= error) && about.violations == 0, "{about:?}");
    let found = scratch.section(&run, "self");
    let row = &found["tables"]["clocks"]["rows"][0];
    assert_eq!(
        (row["alignment_error_ns"].as_u64(), row["violations"].as_u64()),
        (about.alignment_error_ns, Some(0)),
        "{found}"
    );
}

#[test]
fn a_process_that_is_killed_loses_only_what_was_not_told() {
    let scratch = Scratch::new();
    // Where buffers come back by themselves the first word of what is settled comes after a second, or two.
    let script = format!("{} 100000000 2 & sleep 3; kill -KILL $!; wait $!; true", program("cuda_threads").display());
    let options = ["--gpu-time", "full", "--on-full", "block"];
    let target = scratch.shell(&script).with_driver(Driver::Plain).options(options);
    let run = target.traced().expect(0);
    let trace = run.read();
    let manifest = trace.manifest();
    let about = manifest.processes.iter().find_map(|process| process.gpu_time.clone()).expect("CUPTI was asked");
    let rows = trace.table("kernels").len() + trace.table("device_copies").len();
    assert!(rows > 100 && rows as u64 <= about.records, "{rows} rows, {about:?}");
    // A call that runs when the process is killed leaves no event.
    assert!(about.joined * 100 >= about.records * 99, "{about:?}");
    let windows = trace.table("gpu_windows");
    let ends: Vec<(&str, i64)> =
        windows.rows().map(|row| (row.text("ended_by"), row.int("start_ns") + row.int("window_ns"))).collect();
    // What came after its last word is not known, and no idle time.
    let known = about.known_until_ns.expect("it was cut off");
    assert_eq!(ends, [("unknown", known)]);
    let process = manifest.processes.iter().find(|process| process.gpu_time.is_some()).expect("it").process_id;
    let processes = trace.table("processes");
    let killed = processes.rows().find(|row| row.int("process_id") == process).map_or(0, |row| row.int("end_ns"));
    let notes: Vec<String> = manifest.processes.iter().flat_map(|process| process.notes.clone()).collect();
    assert!(notes.iter().any(|note| note.contains("ended without a word")), "{notes:?}");
    let found = scratch.section(&run, "gpu-utilisation");
    assert!(found["notes"].to_string().contains("GPU times are known in 1 window"), "{found}");
    let range = found["facts"]["range_ns"].as_f64().expect("a range");
    let first = trace.table("kernels").rows().map(|row| row.int("start_ns")).min().expect("kernels");
    assert!(first < known && known < killed, "{first} {known} {killed}");
    assert!(range <= (known - first) as f64 + 50e6, "{range} {}", known - first);
}

#[test]
fn a_trace_that_is_still_written_knows_the_gpu_as_far_as_it_was_told_of() {
    let scratch = Scratch::new();
    let target = scratch.target(program("incident")).args(["120000", "nothing"]).with_driver(Driver::Plain);
    let run = target.options(["--gpu-time", "full"]).start();
    let trace = run.trace.to_string_lossy();
    let report = |name: &str| {
        let found = scratch.gputrace(&["report", &trace, "--only", name]);
        (found.code() == 0).then(|| found.text())
    };
    let known = poll(Duration::from_secs(60), || {
        report("gpu-utilisation").filter(|text| text.contains("GPU times are known in 1 window"))
    });
    assert!(known.is_some(), "{:?}", report("gpu-utilisation"));
    let summary = report("summary").expect("it can be read");
    assert!(!summary.contains("estimated") && summary.contains("GPU   busy"), "{summary}");
    // SAFETY: a process of ours that runs.
    unsafe { libc::kill(run.pid(), libc::SIGTERM) };
    let trace = run.wait().expect(143).read();
    let windows = trace.table("gpu_windows");
    let ends: Vec<&str> = windows.rows().map(|row| row.text("ended_by")).collect();
    assert_eq!(ends.len(), 1, "of those that were open no row stays: {ends:?}");
}

#[test]
fn records_that_come_by_themselves_are_not_waited_for() {
    // A graph of a thousand short kernels, and a flush that takes longer than all of our buffers last: none may be made meanwhile.
    // A machine on which no buffer is full for 200 ms sees one in time.
    let lost = || {
        let scratch = Scratch::new();
        let target = scratch.target(program("steps")).args(["3", "1000", "1", "0", "0"]).with_driver(Driver::Plain);
        let target = target.env("FAKE_CUPTI_FLUSH_MS", "4000").options(["--gpu-time", "full", "--on-full", "block"]);
        let trace = target.traced().expect(0).read();
        let launches = trace.table("launches");
        let given: i64 = launches.rows().filter_map(|row| row.maybe_int("kernels")).sum();
        given - about(&trace).records as i64
    };
    assert!((0..3).any(|_| lost() == 0));
}
