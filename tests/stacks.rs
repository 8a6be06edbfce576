//! Each costly wait names the line that caused it: the traced program writes down what Python itself says about the
//! stack of each of its waits, and the trace must say the same.
//!
//! Interpreters of other Debian releases run beside the machine's own: `ci/pythons` unpacks them, and
//! GPUTRACE_TEST_PYTHONS names their commands, separated by colons.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::util::{
    Driver, Finished, Row, Scratch, Target, Trace, driver_folder, lacks, linked_with, needs, program_with, repository,
};

/// Every interpreter that is here.
pub(crate) fn pythons() -> Vec<PathBuf> {
    let value = std::env::var("GPUTRACE_TEST_PYTHONS").unwrap_or_default();
    let mut all: Vec<PathBuf> = value.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
    if all.is_empty() {
        lacks("Python interpreters of other releases (GPUTRACE_TEST_PYTHONS)");
    }
    if needs(&["python3"]) {
        all.push("python3".into());
    }
    all
}

/// A frame as Python describes it: function, file, line.
type Frame = (String, String, Option<i64>);

/// The frames of a stack, innermost first, and whether it was cut.
type Stack = (Vec<Frame>, bool);

/// Every stack by its id.
fn stacks(trace: &Trace) -> HashMap<i64, Stack> {
    let frame = |row: &Row<'_>| {
        let file = row.maybe_text("file").unwrap_or_default().to_owned();
        ((row.text("function").to_owned(), file, row.maybe_int("line")), row.int("cut") == 1)
    };
    let (table, frames) = (trace.table("stacks"), trace.stacks(frame));
    let mut stacks: HashMap<i64, Stack> = HashMap::new();
    for id in table.rows().map(|row| row.int("stack_id")) {
        let (frames, cut): (Vec<Frame>, Vec<bool>) = frames.of(id).cloned().unzip();
        let [inner @ .., outermost] = &cut[..] else { panic!("a stack without frames") };
        assert!(!inner.contains(&true), "something stands behind the outermost frame that was taken");
        let other = stacks.insert(id, (frames, *outermost));
        assert!(other.is_none(), "a stack stands twice");
    }
    stacks
}

/// Stacks of the waits of each thread, in their order; none where a wait has none.
fn waits(trace: &Trace) -> HashMap<i64, Vec<Option<Stack>>> {
    let (names, stacks) = (trace.names(), stacks(trace));
    let mut rows: Vec<(i64, i64, Option<i64>)> = Vec::new();
    for row in trace.table("syncs").rows().filter(|row| names[&row.int("api_id")] == "cuStreamSynchronize") {
        rows.push((row.int("start_ns"), row.int("tid"), row.maybe_int("stack_id")));
    }
    rows.sort_unstable();
    let mut waits: HashMap<i64, Vec<_>> = HashMap::new();
    for (_, tid, id) in rows {
        waits.entry(tid).or_default().push(id.map(|id| stacks[&id].clone()));
    }
    waits
}

/// Longest function name and path in bytes that travel, as CPython keeps them.
const LONGEST: [usize; 2] = [1000, 4000];

/// A text, cut as the shim cuts it.
fn cut(text: &str, most: usize) -> String {
    let width = match text.chars().max().map_or(0, u32::from) {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    };
    text.chars().take(most / width).collect()
}

/// Runs the waits of `tests/programs/stacks.py`, and compares each with what the program says. Returns their number.
#[track_caller]
fn compare(target: Target<'_>) -> usize {
    let run = target.with_driver(Driver::Plain).options(["--stacks-over", "0"]).traced().expect(0);
    let mut found: HashMap<i64, _> = waits(&run.read()).into_iter().map(|(tid, all)| (tid, all.into_iter())).collect();
    let mut count = 0;
    for line in run.text().lines() {
        let wait: Value = serde_json::from_str(line).expect("the program writes JSON");
        let frames = wait["stack"].as_array().expect("a list").iter().map(|frame| {
            let text = |at: usize| cut(frame[at].as_str().expect("a text"), LONGEST[at]);
            (text(0), text(1), frame[2].as_i64())
        });
        let expected = Some((frames.collect::<Vec<_>>(), wait["cut"] == true));
        let thread = wait["thread"].as_i64().expect("a number");
        let got = found.get_mut(&thread).and_then(Iterator::next).unwrap_or_else(|| panic!("no wait for {line}"));
        assert_eq!(got, expected, "wait {count}, {}", wait["scenario"]);
        count += 1;
    }
    assert!(found.values_mut().all(|rest| rest.next().is_none()), "waits that the program did not make");
    count
}

fn script() -> PathBuf {
    repository().join("tests/programs/stacks.py")
}

#[test]
fn every_wait_has_the_stack_that_python_itself_says_in_each_version() {
    let scratch = Scratch::new();
    for python in pythons() {
        println!("{}", python.display());
        assert!(compare(scratch.target(python).arg(script())) > 80);
    }
}

#[test]
fn stacks_are_read_in_greenlets() {
    let environments = std::env::var("GPUTRACE_TEST_VENVS").unwrap_or_default();
    let pythons = environments.split(':').map(|folder| PathBuf::from(folder).join("bin/python"));
    let has_greenlet = |python: &PathBuf| {
        std::process::Command::new(python).args(["-c", "import greenlet"]).output().is_ok_and(|o| o.status.success())
    };
    match pythons.into_iter().find(has_greenlet) {
        Some(python) => assert_eq!(compare(Scratch::new().target(python).arg(script()).arg("greenlets")), 6),
        None => assert!(!lacks("greenlet (GPUTRACE_TEST_VENVS)")),
    }
}

#[test]
fn every_allocation_has_pythons_own_functions_among_the_native_ones() {
    let scratch = Scratch::new();
    for python in pythons() {
        println!("{}", python.display());
        let target = scratch.target(python).arg(script()).env("ALLOCATE", "1").with_driver(Driver::Plain);
        let run = target.options(["--malloc", "sample=16K"]).traced().expect(0);
        let trace = run.read();
        let stacks = trace.stacks(|row| {
            let file = row.maybe_text("file").unwrap_or_default().to_owned();
            let frame = (row.text("function").to_owned(), file, row.maybe_int("line"));
            let library = row.maybe_text("module").unwrap_or_default().to_owned();
            if row.text("language") == "python" { Ok(frame) } else { Err(library) }
        });
        let table = trace.table("host_memory");
        let blocks: Vec<_> = table.rows().filter(|r| r.text("action") == "alloc").collect();
        let (mut count, mut between) = (0, 0);
        for line in run.text().lines() {
            let said: Value = serde_json::from_str(line).expect("the program writes JSON");
            let (bytes, thread) = (said["bytes"].as_i64().expect("a number"), said["thread"].as_i64());
            let ours = |row: &&Row<'_>| (bytes..bytes + 900).contains(&row.int("bytes"));
            let block = blocks.iter().find(ours).unwrap_or_else(|| panic!("no block for {line}"));
            assert_eq!(Some(block.int("tid")), thread);
            let stack: Vec<&Result<Frame, String>> = stacks.of(block.maybe_int("stack_id").expect("a stack")).collect();
            assert!(stack[0].is_err(), "a native function called malloc");
            let got: Vec<&Frame> = stack.iter().filter_map(|frame| frame.as_ref().ok()).collect();
            let expected = said["stack"].as_array().expect("a list");
            let whole = stack.len() < 1024;
            assert!(if whole { got.len() == expected.len() } else { got.len() <= expected.len() }, "{line} {stack:?}");
            for (got, expected) in got.iter().zip(expected) {
                let text = |at: usize| cut(expected[at].as_str().expect("a text"), LONGEST[at]);
                assert_eq!(**got, (text(0), text(1), expected[2].as_i64()), "{}", said["scenario"]);
            }
            // Where C called Python, its functions stand between those of Python, but for the interpreter's own.
            let first = stack.iter().position(|frame| frame.is_ok()).expect("one of Python");
            let last = stack.iter().rposition(|frame| frame.is_ok()).expect("one of Python");
            let libraries: Vec<&String> = stack[first..last].iter().filter_map(|frame| frame.as_ref().err()).collect();
            let is_its_own = |library: &&&String| library.contains("/bin/python") || library.contains("libpython");
            assert_eq!(libraries.iter().find(is_its_own), None, "{line} {stack:?}");
            between += usize::from(!libraries.is_empty());
            count += 1;
        }
        assert!(count > 80 && between > 3, "{count} {between}");
    }
}

/// Runs a Python program that has `cuda`, the driver, and `launch()`, which launches a kernel.
#[track_caller]
fn run(scratch: &Scratch, options: &[&str], program: &str) -> Finished {
    let head = "import ctypes, time\ncuda = ctypes.CDLL('libcuda.so.1')\nc, m, f = (ctypes.c_void_p() for _ in range(3))\n\
        assert cuda.cuInit(0) == 0\ncuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\ncuda.cuCtxSetCurrent(c)\n\
        cuda.cuModuleLoadData(ctypes.byref(m), b'fakecuda:k')\ncuda.cuModuleGetFunction(ctypes.byref(f), m, b'k')\n\
        def launch():\n    assert cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0\n";
    let script = scratch.file("program.py", [head, program].concat());
    let target = scratch.target("python3").arg(script).with_instant_driver();
    target.options(options).traced().expect(0)
}

/// Of each launch: the line that called `launch`, and what its stack stands for.
fn launches(trace: &Trace) -> Vec<Option<(i64, i64)>> {
    let stacks = stacks(trace);
    let mut rows = Vec::new();
    for row in trace.table("launches").rows() {
        let line = row.maybe_int("stack_id").map(|id| stacks[&id].0[1].2.expect("a line"));
        rows.push((row.int("start_ns"), line.map(|line| (line, row.int("stack_launches")))));
    }
    rows.sort_unstable();
    rows.into_iter().map(|(_, launch)| launch).collect()
}

#[test]
fn launches_are_drawn_at_random_and_their_stacks_stand_for_all_of_them() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["--stacks-over", "1000000", "--launch-stacks", "20"];
    let program = "for _ in range(10000):\n    launch()\n    launch(); launch()\n";
    let launches = launches(&run(&scratch, &options, program).read());
    assert_eq!(launches.len(), 30_000);
    let drawn: Vec<(usize, i64)> = launches
        .iter()
        .enumerate()
        .filter_map(|(at, launch)| launch.filter(|(_, weight)| *weight > 0).map(|(line, _)| (at, line)))
        .collect();
    // 1,500 of them, with a deviation of 38; of every three launches one is on the first line.
    assert!((1200..1800).contains(&drawn.len()), "{}", drawn.len());
    let lines: Vec<i64> = drawn.iter().map(|(_, line)| *line).collect();
    let first = lines.iter().filter(|line| **line == lines.iter().copied().min().unwrap()).count();
    assert!((350..650).contains(&first), "{first} of {}", lines.len());
    assert!(launches.iter().flatten().all(|(_, weight)| *weight == 20 || *weight == 0));
    // Gaps are geometric: every 20th would give one gap only, and no two launches next to each other.
    let gaps: Vec<usize> = drawn.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps.contains(&1) && gaps.iter().any(|gap| *gap > 60), "{gaps:?}");
}

#[test]
fn a_launch_after_a_pause_names_the_line_that_follows_it() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["--stacks-over", "1000000", "--launch-stacks", "1000000000"];
    let program = "for _ in range(5):\n    time.sleep(0.001)\n    launch()\n    launch()\n";
    let launches = launches(&run(&scratch, &options, program).read());
    assert_eq!(launches.len(), 10);
    let after_pause: Vec<_> = launches.iter().step_by(2).collect();
    assert!(after_pause.iter().all(|launch| **launch == Some((13, 0))), "{after_pause:?}");
}

#[test]
fn a_call_that_fails_has_a_stack_however_short_it_was_and_the_first_of_each_result_always() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["--stacks-over", "1000000", "--launch-stacks", "1000000000"];
    let program = "p = ctypes.c_uint64()\ndef take(n):\n    return cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(n))\n\
        assert take(64) == 0\nassert take(1 << 50) == 2\nfor _ in range(1000):\n    take(1 << 50)\n\
        cuda.cuModuleLoadData(ctypes.byref(m), b'fakecuda:illegal_address')\n\
        cuda.cuModuleGetFunction(ctypes.byref(f), m, b'illegal_address')\n\
        launch()\nassert cuda.cuCtxSynchronize() == 700\ntake(64)\n";
    let run = run(&scratch, &options, program);
    let trace = run.read();
    let stacks = stacks(&trace);
    let mut taken: Vec<(i64, i64, Option<i64>)> = trace
        .table("device_memory")
        .rows()
        .map(|row| {
            let line = row.maybe_int("stack_id").map(|id| stacks[&id].0[1].2.expect("a line"));
            (row.int("start_ns"), row.int("result"), line)
        })
        .collect();
    taken.sort_unstable();
    assert_eq!((taken[0].1, taken[0].2), (0, None), "one that succeeds has none");
    assert_eq!((taken[1].1, taken[1].2), (2, Some(15)));
    // Of a thousand that fail one after the other, most have none: one in 10 ms.
    let with = taken.iter().filter(|(.., line)| line.is_some()).count();
    let span_ms = (taken[taken.len() - 1].0 - taken[0].0) / 1_000_000;
    assert!(with as i64 <= 3 + span_ms / 10, "{with} of {}, in {span_ms} ms", taken.len());
    // The report says which failure stays, and whose line was the first to see it.
    let section = scratch.section(&run, "api");
    let results = section["tables"]["by_result"]["rows"].as_array().expect("rows");
    let of = |code: i64| results.iter().find(|row| row["result"] == code).expect("a result");
    let line = |row: &Value| row["line"].as_str().unwrap_or_default().to_owned();
    assert_eq!((of(700)["sticky"].as_str(), of(2)["sticky"].as_str()), (Some("yes"), Some("no")));
    let text = |line: i64| format!("program.py:{line} ");
    assert!(line(of(2)).starts_with(&text(13)), "{}", line(of(2)));
    assert!(results.iter().any(|row| row["result"] == 700 && line(row).starts_with(&text(21))), "{results:?}");
}

#[test]
fn no_stacks_are_taken_when_none_are_wanted() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = "for _ in range(5):\n    time.sleep(0.001)\n    launch()\n    cuda.cuStreamSynchronize(None)\n";
    let trace = run(&scratch, &["--stacks", "off"], program).read();
    assert_eq!(trace.table("stacks").len(), 0);
    assert_eq!(trace.root().stacks, Default::default());
    let without = run(&scratch, &["--stacks-over", "0", "--launch-stacks", "0"], program).read();
    assert!(launches(&without).iter().all(|launch| launch.is_some_and(|(_, weight)| weight == 0)));
}

#[test]
fn a_forked_child_describes_its_stacks_anew() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = "import os\ndef wait():\n    cuda.cuStreamSynchronize(None)\nfor n in range(2):\n    wait()\n    \
        if n == 0 and os.fork() == 0:\n        wait()\n        os._exit(0)\nos.wait()\n";
    let trace = run(&scratch, &["--stacks-over", "0"], program).read();
    let waits = waits(&trace);
    assert_eq!(waits.len(), 2);
    let lines = |all: &Vec<Option<Stack>>| -> Vec<Option<i64>> {
        all.iter().map(|stack| stack.as_ref().expect("a stack").0[1].2).collect()
    };
    let mut lines: Vec<_> = waits.values().map(lines).collect();
    lines.sort();
    assert_eq!(lines, [vec![Some(15), Some(15)], vec![Some(17)]]);
}

/// Functions of the native stacks of all waits, in their order, innermost first, up to the first of libc's.
pub(crate) fn native(run: &Finished) -> Vec<Vec<String>> {
    let trace = run.read();
    let names = trace.names();
    let stacks = trace.stacks(|row| {
        assert_eq!(row.text("language"), "native");
        assert!(row.maybe_text("module").is_some() && row.maybe_int("offset").is_some());
        row.text("function").to_owned()
    });
    let mut waits = Vec::new();
    for row in trace.table("syncs").rows().filter(|row| names[&row.int("api_id")] == "cuStreamSynchronize") {
        let stack = stacks.of(row.int("stack_id")).cloned();
        let own = |function: &String| {
            !["", "start_thread", "__libc_start_call_main", "__libc_start_main"].contains(&function.as_str())
        };
        waits.push((row.int("start_ns"), stack.take_while(own).collect()));
    }
    waits.sort();
    waits.into_iter().map(|(_, stack)| stack).collect()
}

/// `tests/programs/native_stacks.c` without frame pointers.
fn native_program() -> PathBuf {
    let flags = ["-O2", "-fomit-frame-pointer", "-g"].map(str::to_owned);
    let library = ["-DLIBRARY", "-shared", "-fPIC"].map(str::to_owned);
    let library = program_with("native_stacks", "library.so", &[&flags[..], &library].concat());
    let linked = linked_with(&driver_folder(Driver::Plain), &[&library.display().to_string(), "-lpthread"]);
    program_with("native_stacks", "program", &[&flags[..], &linked].concat())
}

#[test]
fn a_wait_outside_of_python_has_the_native_functions_that_led_to_it() {
    let scratch = Scratch::new();
    let target = scratch.target(native_program()).args(["wait", "thread", "callback", "signal", "own_stack"]);
    let run = target.with_instant_driver().options(["--stacks-over", "0"]).same().expect(0);
    let chain = ["wait_here", "middle", "outer"];
    let with = |more: &[&str]| chain.iter().chain(more).map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let waits = native(&run);
    assert_eq!(waits[0], with(&["main"]));
    assert_eq!(waits[1], with(&["work"]));
    assert_eq!(waits[2], with(&["in_library", "main"]));
    assert_eq!(waits[3], ["wait_here", "on_signal"]);
    // Where a stack of the program's own making ends is not known: its caller alone is taken.
    assert_eq!(waits[4], ["wait_here"]);
    assert_eq!(run.read().root().stacks.none, 0);
}

#[test]
fn native_frames_have_lines_where_there_is_debugging_information() {
    let scratch = Scratch::new();
    let target = scratch.target(native_program()).arg("wait").with_instant_driver();
    let trace = target.options(["--stacks-over", "0"]).traced().expect(0).read();
    let source = std::fs::read_to_string(repository().join("tests/programs/native_stacks.c")).expect("the source");
    let mut seen = 0;
    for row in trace.table("stacks").rows().filter(|row| row.text("function") == "middle") {
        let line = source.lines().nth(row.int("line") as usize - 1).expect("a line of it");
        assert!(line.contains("wait_here(n + 1)") && row.text("file").ends_with("native_stacks.c"), "{line}");
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn debugging_information_that_is_not_here_is_asked_for_where_the_user_wants_that() {
    if !needs(&["objcopy", "sh"]) {
        return;
    }
    let scratch = Scratch::new();
    let place = |name: &str| scratch.path().join(name);
    let done = |command: &mut Command| assert!(command.status().expect("it runs").success(), "{command:?}");
    // The information apart, under a name that nothing in the program leads to, and a client that has it.
    let (program, apart, asked) = (place("stripped"), place("apart"), place("asked"));
    done(Command::new("objcopy").arg("--only-keep-debug").arg(native_program()).arg(&apart));
    done(Command::new("objcopy").arg("--strip-all").arg(native_program()).arg(&program));
    let client = place("debuginfod-find");
    let script = "#!/bin/sh\n[ \"$1\" = debuginfo ] || exit 1\necho \"$2\" >> \"$ASKED\"\n\
                  readelf -n \"$APART\" | grep -q \"Build ID: $2\" && echo \"$APART\"\n";
    std::fs::write(&client, script).expect("a script");
    done(Command::new("chmod").arg("+x").arg(&client));
    let path = format!("{}:{}", scratch.path().display(), std::env::var("PATH").unwrap_or_default());
    let middles = |options: &[&str]| {
        let target = scratch.target(&program).arg("wait").with_instant_driver().options(["--stacks-over", "0"]);
        let target = target.options(options).env("PATH", &path).env("ASKED", &asked).env("APART", &apart);
        let run = target.env("DEBUGINFOD_URLS", "http://127.0.0.1:1").traced().expect(0);
        let lines = run.read().table("stacks").rows().filter(|row| row.text("function") == "middle").count();
        (lines, run.stderr)
    };
    assert_eq!(middles(&[]).0, 0);
    assert!(!asked.exists(), "nobody is asked unless told");
    let (lines, said) = middles(&["--debuginfod"]);
    assert!(lines > 0 && asked.exists() && !said.contains("--debuginfod"), "{lines} {said}");
    // Where no server is named it is said, and nobody asked.
    let target = scratch.target("true").options(["--debuginfod"]).env("DEBUGINFOD_URLS", "");
    let said = target.traced().expect(0).stderr;
    assert!(said.contains("gputrace: --debuginfod asks nobody: DEBUGINFOD_URLS names no server"), "{said}");
}

#[test]
fn code_made_at_run_time_has_the_name_that_the_process_wrote_for_perf() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let scratch = Scratch::new();
    let program = program_with("made_code", "program", &linked_with(&driver_folder(Driver::Plain), &[]));
    let target = scratch.target(program).arg("LazyFunction:*made here").with_instant_driver();
    let run = target.options(["--stacks-over", "0"]).traced().expect(0);
    let trace = run.read();
    std::fs::remove_file(run.text().trim()).expect("the map that the program wrote");
    let table = trace.table("stacks");
    let made: Vec<_> = table.rows().filter(|row| row.maybe_text("module").is_none()).collect();
    assert_eq!(made.len(), 1);
    assert_eq!((made[0].text("language"), made[0].text("function")), ("native", "LazyFunction:*made here"));
    assert_eq!((made[0].maybe_text("file"), made[0].maybe_int("line")), (None, None));
    assert!(
        table.rows().any(|row| row.text("function") == "main"),
        "the caller of the code is found by its frame pointer"
    );
}

#[test]
fn a_stack_that_is_deeper_than_the_limit_says_that_it_was_cut() {
    let scratch = Scratch::new();
    let target = scratch.target(native_program()).arg("deep").with_instant_driver();
    let trace = target.options(["--stacks-over", "0"]).traced().expect(0).read();
    // Those of calls: the ones that only call others have fewer frames and are cut as well.
    let stacks = stacks(&trace);
    let ids = ["syncs", "launches", "api"].map(|table| trace.table(table));
    let ids = ids.iter().flat_map(|table| table.rows().filter_map(|row| row.maybe_int("stack_id")));
    let longest: Vec<(usize, bool)> = ids.map(|id| &stacks[&id]).map(|(frames, cut)| (frames.len(), *cut)).collect();
    assert!(longest.contains(&(128, true)), "{longest:?}");
    assert!(longest.iter().all(|(frames, cut)| *cut == (*frames == 128)), "{longest:?}");
}
