//! A traced program cannot tell that it is traced: what it prints, how it ends, what its calls return.

use crate::util::{Driver, Scratch, Target, count, library, needs, program, program_with, system_library};

/// Ways to look at memory: options of gputrace.
const MEMORY: [&[&str]; 5] = [
    &["--malloc", "off"],
    &["--malloc", "sample"],
    &["--malloc", "sample=1"],
    &["--malloc", "full"],
    &["--malloc", "full", "--mmap"],
];

/// All that can be seen of it, and what is seen unless told otherwise.
const MOST_AND_DEFAULT: [&[&str]; 2] = [MEMORY[4], &[]];

#[test]
fn exit_codes_are_passed_on() {
    let scratch = Scratch::new();
    for code in [0, 1, 2, 42, 124, 125, 126, 127, 128, 137, 255] {
        scratch.shell(&format!("exit {code}")).same().expect(code);
    }
    scratch.shell("exit 42").options(MEMORY[4]).same().expect(42);
}

#[test]
fn a_signal_that_ends_the_program_ends_gputrace_in_the_same_way() {
    let scratch = Scratch::new();
    for (name, number) in
        [("HUP", 1), ("INT", 2), ("ABRT", 6), ("KILL", 9), ("USR1", 10), ("SEGV", 11), ("PIPE", 13), ("TERM", 15)]
    {
        let run = scratch.shell(&format!("ulimit -c 0; kill -{name} $$")).own_group().same().expect(128 + number);
        let root = run.read().manifest().root.expect("a root");
        assert_eq!((root.exit_code, root.exit_signal), (None, Some(number)));
    }
}

#[test]
fn a_shell_shows_128_and_the_signals_number() {
    let scratch = Scratch::new();
    let trace = scratch.new_trace();
    let gputrace = crate::util::gputrace().display();
    crate::util::shim();
    let script = format!("{gputrace} -o {} -- sh -c 'kill -TERM $$' 2>/dev/null; echo $?", trace.display());
    assert_eq!(scratch.shell(&script).plain().text(), "143\n");
}

#[test]
fn every_byte_of_output_is_passed_on() {
    let scratch = Scratch::new();
    let all = (0..=255u8).map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let script = format!("printf '{all}'; seq 1 200000; printf '{all}' >&2; printf 'no newline'");
    for memory in MOST_AND_DEFAULT {
        scratch.shell(&script).options(memory).same();
    }
}

#[test]
fn standard_input_reaches_the_program() {
    let scratch = Scratch::new();
    let input: String = (0..100_000).map(|n| format!("{n}\n")).collect();
    let file = scratch.file("input", &input);
    let run = scratch.target("cat").stdin(&file).same();
    assert_eq!(run.text(), input);
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let scratch = Scratch::new();
    crate::util::shim();
    for closed in ["<&-", "<&- 2>&-"] {
        let gputrace = crate::util::gputrace().display().to_string();
        let script = |prefix: &str| format!("{prefix} ls -l /proc/self/fd {closed} | awk '{{print $9}}' | sort -n");
        let traced = script(&format!("{gputrace} -o {} --", scratch.new_trace().display()));
        assert_eq!(scratch.shell(&script("")).plain().text(), scratch.shell(&traced).plain().text(), "{closed}");
    }
}

#[test]
fn a_program_sees_the_same_of_itself() {
    let scratch = Scratch::new();
    for memory in MOST_AND_DEFAULT {
        let target = scratch.target(program("state")).args(["one", "", "two words", "*"]).options(memory);
        target.own_group().same().expect(42);
    }
}

#[test]
fn errno_is_what_the_function_itself_leaves() {
    let scratch = Scratch::new();
    for memory in MEMORY {
        let target = scratch.target(program("errnos")).options(memory);
        target.same();
        target.with_instant_driver().same();
    }
}

/// The lines of `dl_errors`. For a function of the driver that nobody has, glibc's text names the library that asked:
/// that is the shim, which asks in the program's place. All other texts must be the same.
fn without_asker(text: &str) -> Vec<String> {
    let line = |line: &str| match line.split_once(": undefined symbol: cu") {
        Some((asked, symbol)) => format!("{}: {symbol}", asked.split(',').next().unwrap_or_default()),
        None => line.to_owned(),
    };
    text.lines().map(line).collect()
}

#[test]
fn loader_errors_keep_their_text() {
    let scratch = Scratch::new();
    for memory in MOST_AND_DEFAULT {
        let target = scratch.target(program("dl_errors")).options(memory);
        assert_eq!(without_asker(&target.plain().text()), without_asker(&target.traced().text()));
        for driver in [Driver::Plain, Driver::Symbolic] {
            let target = target.clone().arg(crate::util::driver_folder(driver).join("libcuda.so.1"));
            assert_eq!(without_asker(&target.plain().text()), without_asker(&target.traced().text()));
        }
    }
}

#[test]
fn libraries_are_found_through_the_callers_own_run_path() {
    let scratch = Scratch::new();
    let inner = program_with("lookup", "inner", &["-DINNER", "-shared", "-fPIC"]);
    let hidden = scratch.path().join("hidden");
    std::fs::create_dir(&hidden).expect("a folder");
    std::fs::copy(inner, hidden.join("libinner.so")).expect("a copy");
    let needed = program_with("lookup", "needed", &["-DINNER", "-shared", "-fPIC", "-Wl,-soname,libneeded.so"]);
    std::fs::copy(&needed, hidden.join("libneeded.so")).expect("a copy");
    let needed = needed.to_str().expect("a plain path");
    for tags in ["--enable-new-dtags", "--disable-new-dtags"] {
        let run_path = format!("-Wl,{tags},-rpath,{}", hidden.display());
        let flags = ["-DPLUGIN", "-shared", "-fPIC", &run_path, "-Wl,--no-as-needed", needed];
        let plugin = program_with("lookup", &format!("plugin{tags}{}", std::process::id()), &flags);
        for memory in MOST_AND_DEFAULT {
            let run = scratch.target(program("lookup")).arg(&plugin).options(memory).same();
            assert!(run.text().contains("from the plugin: inner, next inner's, default found"), "{}", run.text());
        }
        std::fs::remove_file(plugin).expect("our own file");
    }
}

/// Launches called `after` that the trace holds, beside all other books being in order.
#[track_caller]
fn escaped(way: &str, left: u64) {
    let scratch = Scratch::new();
    for memory in MOST_AND_DEFAULT {
        let run = scratch.target(program("escape")).arg(way).options(memory).with_odd_driver().same();
        assert_eq!(run.text(), "launched 100 after\n");
        let trace = run.read();
        trace.assert_balanced();
        let process = trace.root();
        assert_eq!(count(&process, "launch").recorded, 100, "{process:?}");
        assert_eq!(count(&process, "sync").abandoned, left, "{process:?}");
    }
}

#[test]
fn a_callback_may_leave_a_hooked_call_by_longjmp() {
    escaped("longjmp", 100);
}

#[test]
fn what_a_call_left_in_a_hole_of_other_functions_frames_is_no_call_that_runs() {
    let scratch = Scratch::new();
    let run = scratch.target(program("escape")).arg("holes").with_odd_driver().same();
    assert_eq!(run.text(), "launched 50 meanwhile\nlaunched 100 after\n");
    let trace = run.read();
    trace.assert_balanced();
    let process = trace.root();
    assert_eq!((count(&process, "launch").recorded, count(&process, "sync").abandoned), (150, 1), "{process:?}");
}

#[test]
fn a_signal_handler_may_leave_a_hooked_call_by_siglongjmp() {
    escaped("siglongjmp", 20);
}

#[test]
fn a_signal_handler_may_call_hooked_functions() {
    let scratch = Scratch::new();
    let run = scratch.target(program("escape")).arg("handler").with_odd_driver().same();
    let trace = run.read();
    trace.assert_balanced();
    assert_eq!(trace.calls()["cuLaunchKernel"] + trace.root().nested, 120);
}

/// Four threads that are thrown out of launches at random instants, two of them from alternate stacks. Returns how many
/// rows there are of the 400,000 launches that they make afterwards.
#[track_caller]
fn thrown_out(rest_us: &str, options: &[&str]) -> usize {
    let scratch = Scratch::new();
    // Up to glibc 2.33 the timers stand in librt.
    let target = scratch.target(program_with("jumps", "timers", &["-lrt"])).args(["1000", rest_us]);
    let run = target.with_odd_driver().options(options).same();
    assert_eq!(run.text(), "four threads were thrown out and went on\n");
    let trace = run.read();
    trace.assert_balanced();
    trace.table("launches").rows().filter(|row| row.int("grid_x") == 7).count()
}

#[test]
fn a_signal_handler_may_leave_a_launch_at_any_instruction() {
    // All that comes after is recorded, for which every chunk is needed many times.
    assert_eq!(thrown_out("1000", &["--on-full", "block"]), 400_000);
    assert_eq!(thrown_out("1000", &[&["--on-full", "block"], MEMORY[4]].concat()), 400_000);
}

#[test]
fn a_signal_handler_may_leave_a_launch_that_finds_no_room() {
    assert!(thrown_out("0", &["--segment-memory", "1M"]) > 1000);
}

#[test]
fn a_thread_may_be_cancelled_inside_a_hooked_call() {
    escaped("cancel", 20);
}

#[test]
fn a_thread_may_be_cancelled_at_any_instruction_of_a_hooked_call() {
    escaped("cancel_async", 20);
}

#[test]
fn two_thousand_threads_are_traced_one_by_one() {
    let scratch = Scratch::alone();
    let target = scratch.target(program("threads")).args(["2000", "10"]).with_instant_driver();
    target.clone().options(MEMORY[4]).same().read().assert_balanced();
    let launches = count(&target.same().read().root(), "launch");
    assert_eq!(launches.seen, 40_000);
    // More threads than chunks, all at once: without loss only when they may wait.
    let trace = target.options(["--on-full", "block"]).same().read();
    trace.assert_balanced();
    let launches = count(&trace.root(), "launch");
    assert_eq!((launches.seen, launches.dropped), (40_000, 0));
    let mut tids: Vec<i64> = trace.table("launches").rows().map(|row| row.int("tid")).collect();
    tids.sort_unstable();
    tids.dedup();
    assert!(tids.len() >= 2_000, "{}", tids.len());
}

fn with_library(target: Target<'_>, file: &str) {
    target.env("LD_PRELOAD", file).same();
}

#[test]
fn a_program_that_preloads_a_library_itself_keeps_it() {
    let scratch = Scratch::new();
    let own = program_with("lookup", "preloaded", &["-DINNER", "-shared", "-fPIC"]);
    let script = r#"python3 -c 'import ctypes; print(ctypes.CDLL(None).inner and "preloaded")'"#;
    if needs(&["python3"]) {
        with_library(scratch.shell(script), own.to_str().expect("a plain path"));
    }
    // A child with a preload of its own: not traced, not harmed.
    let child =
        format!("LD_PRELOAD={0} {1} x; LD_PRELOAD={0}:$LD_PRELOAD {1} y", own.display(), program("state").display());
    scratch.shell(&child).same().expect(42);
}

#[test]
fn another_preloaded_allocator_stays_the_programs_allocator() {
    stay_the_programs_allocator(&["libjemalloc.so.2", "libtcmalloc_minimal.so.4"]);
}

// Apart from the others: Debian 11 has none of this version (ci/wheel/transparency).
#[test]
fn mimalloc_preloaded_stays_the_programs_allocator() {
    stay_the_programs_allocator(&["libmimalloc.so.2.0"]);
}

fn stay_the_programs_allocator(names: &[&str]) {
    let scratch = Scratch::new();
    for name in names {
        let Some(path) = system_library(name) else { continue };
        for memory in MEMORY {
            let target = scratch.target(program("mallocs")).args(["known", "50"]).options(memory);
            let run = target.env("LD_PRELOAD", &path).same();
            let process = run.read().root();
            let noted = process.notes.iter().any(|note| note.contains("malloc"));
            assert!(noted, "{name} {memory:?}: {:?}", process.notes);
            if memory[1] == "full" {
                let blocks = run.read().table("host_memory");
                let ours = blocks.rows().filter(|row| row.text("action") == "alloc" && row.int("bytes") == 70_001);
                assert_eq!(ours.count(), 50, "{name}");
            }
        }
        // Usable sizes are the allocator's own.
        let script = "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; \
                      print([c.malloc_usable_size(ctypes.c_void_p(c.malloc(n))) for n in range(1, 3000, 100)])";
        if needs(&["python3"]) {
            scratch.target("python3").args(["-c", script]).env("LD_PRELOAD", &path).same();
        }
    }
}

#[test]
fn a_quota_library_keeps_its_say() {
    let scratch = Scratch::new();
    let target = scratch.target(program("cuda_routes")).arg("dlopen").with_driver(Driver::Symbolic);
    for memory in MOST_AND_DEFAULT {
        target.clone().env("LD_PRELOAD", library("quota")).options(memory).same();
    }
}

#[test]
fn gputrace_off_makes_the_shim_inert() {
    let scratch = Scratch::new();
    let cuda = program("cuda_routes").display().to_string();
    let target = scratch.shell(&format!("GPUTRACE=off {cuda} dlopen; {cuda} dlopen")).with_driver(Driver::Plain);
    let run = target.same();
    assert_eq!(run.read().table("launches").len(), 3, "the second one only");
    // For the launcher it means that nothing is traced at all.
    let run = scratch.target(program("state")).env("GPUTRACE", "off").traced().expect(42);
    assert!(!run.trace.exists());
    assert!(run.stderr.starts_with("gputrace: tracing is switched off by GPUTRACE=off"), "{}", run.stderr);
    // What is meant for it, and is not: it is traced, and told so.
    let run = scratch.target("/bin/true").env("GPUTRACE", "0").traced().expect(0);
    assert!(run.stderr.contains("GPUTRACE=0 switches nothing: only GPUTRACE=off"), "{}", run.stderr);
    assert!(!run.text().contains("LD_PRELOAD"));
}

#[test]
fn pausing_and_resuming_leave_out_what_lies_between() {
    let scratch = Scratch::new();
    if !needs(&["python3"]) {
        return;
    }
    let script = "import ctypes
c = ctypes.CDLL(None)
cu = ctypes.CDLL('libcuda.so.1')
assert cu.cuInit(0) == 0
assert [c.gputrace_recording(), c.gputrace_pause(), c.gputrace_recording()] == [1, 1, 0]
for i in range(5): cu.cuCtxSynchronize()
assert [c.gputrace_resume(), c.gputrace_recording()] == [1, 1]
for i in range(7): cu.cuCtxSynchronize()";
    let run = scratch.target("python3").args(["-c", script]).with_instant_driver().traced().expect(0);
    assert_eq!(run.read().calls()["cuCtxSynchronize"], 7);
}

#[test]
fn ended_threads_leave_no_mappings_and_no_descriptors() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = "import os, threading
def count(): return len(os.listdir('/proc/self/fd')), len(open('/proc/self/maps').readlines())
def work(): bytearray(100000)
for i in range(50): threading.Thread(target=work).start()
before = count()
for i in range(2000):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
after = count()
print(before[0] == after[0], after[1] - before[1] < 20)";
    for memory in MEMORY {
        let run = scratch.target("python3").args(["-c", script]).options(memory).same();
        assert_eq!(run.text(), "True True\n", "{memory:?}");
    }
}
