//! Waits for the operating system: each one that was long is a row, the others are counted, and no program notices.

use std::collections::BTreeMap;

use crate::util::{
    Driver, Finished, Scratch, Trace, count, driver_folder, library, linked_with, needs, program, program_with,
};

/// Every wait in every process.
const ALL: [&str; 4] = ["--os", "all", "--os-over", "0"];
const MS: i64 = 1_000_000;

/// Rows of a process's main thread, by function.
fn waits_by_function(trace: &Trace, pid: i32) -> BTreeMap<String, Vec<Wait>> {
    let names = trace.names();
    let mut by_function: BTreeMap<String, Vec<Wait>> = BTreeMap::new();
    for row in trace.table("os_waits").rows().filter(|row| row.int("tid") == i64::from(pid)) {
        by_function.entry(names[&row.int("api_id")].clone()).or_default().push(Wait {
            kind: row.text("kind").to_owned(),
            ns: row.int("wait_ns"),
            fd: row.maybe_int("fd"),
            bytes: row.maybe_int("bytes"),
            address: row.maybe_int("address"),
            errno: row.int("errno"),
            stack_id: row.maybe_int("stack_id"),
        });
    }
    by_function
}

struct Wait {
    kind: String,
    ns: i64,
    fd: Option<i64>,
    bytes: Option<i64>,
    address: Option<i64>,
    errno: i64,
    stack_id: Option<i64>,
}

/// The kind of each function's waits.
fn kind_of(function: &str) -> &'static str {
    match function {
        "pthread_mutex_lock" | "pthread_mutex_timedlock" | "flock" | "fcntl" => "lock",
        _ if function.starts_with("pthread_rwlock_") => "lock",
        _ if function.starts_with("pthread_cond_") || function == "pthread_barrier_wait" => "condition",
        _ if function.starts_with("sem_") => "semaphore",
        _ if function.contains("join") => "join",
        "poll" | "ppoll" | "select" | "pselect" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => "poll",
        "syscall" => "futex",
        "nanosleep" | "clock_nanosleep" | "usleep" => "sleep",
        "fsync" | "fdatasync" | "msync" => "sync",
        _ if function.starts_with("wait") => "child",
        _ if function.contains("write") || function.starts_with("send") => "write",
        _ => "read",
    }
}

#[test]
fn each_wait_of_each_function_is_a_row_of_its_kind_and_length() {
    const TIMES: usize = 3;
    let scratch = Scratch::new();
    let run = scratch.target(program("waits")).arg(TIMES.to_string()).options(ALL).traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let waits = waits_by_function(&trace, trace.root().pid);
    let mut functions = 0;
    for line in run.text().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [function, times, spent_ns, held] = words[..] else { panic!("{line}") };
        let spent_ns: i64 = spent_ns.parse().expect("a number");
        let rows = waits.get(function).unwrap_or_else(|| panic!("no row of {function}"));
        assert_eq!(rows.len(), times.parse::<usize>().expect("a number"), "{function}");
        let total: i64 = rows.iter().map(|w| w.ns).sum();
        assert!(total <= spent_ns, "{function}: {total} ns of {spent_ns}");
        for wait in rows {
            assert_eq!(wait.kind, kind_of(function), "{function}");
            assert!(held == "0" || wait.ns >= MS, "{function}: {} ns", wait.ns);
            assert_eq!(wait.errno, 0, "{function}");
        }
        functions += 1;
    }
    assert!(functions >= 50, "{functions} functions");
}

#[test]
fn a_row_says_what_was_waited_for_and_what_came_of_it() {
    let scratch = Scratch::new();
    let run = scratch.target(program("waits")).arg("1").options(ALL).traced().expect(0);
    let trace = run.read();
    let waits = waits_by_function(&trace, trace.root().pid);
    let one = |function: &str| &waits[function][0];
    for (function, bytes) in [("read", 1), ("recvmsg", 1), ("pread64", 1), ("write", 1 << 16), ("writev", 1 << 16)] {
        assert_eq!((one(function).bytes, one(function).address), (Some(bytes), None), "{function}");
        assert!(one(function).fd.is_some_and(|fd| fd > 2), "{function}");
    }
    // A list of one says which, a longer one does not.
    assert_eq!(one("poll").fd, one("read").fd);
    assert_eq!((one("ppoll").fd, one("select").fd), (None, None));
    for function in ["pthread_mutex_lock", "pthread_cond_wait", "sem_wait", "pthread_join", "syscall", "msync"] {
        let wait = one(function);
        assert!(wait.address.is_some() && wait.fd.is_none() && wait.bytes.is_none(), "{function}");
    }
    assert_eq!(one("pthread_mutex_lock").address, one("pthread_mutex_timedlock").address);
}

#[test]
fn waits_below_the_threshold_are_counted_and_free_locks_are_not() {
    let scratch = Scratch::new();
    let target = scratch.target(program("wait_oddities")).args(["short", "5000"]);
    let run = target.options(["--os", "all", "--os-over", "60000000"]).same().expect(0);
    let trace = run.read();
    assert_eq!(trace.table("os_waits").len(), 0);
    let waits = count(&trace.root(), "os_wait");
    // The reads, and the write of stdout at the end is libc's own.
    assert_eq!((waits.seen, waits.sampled_out, waits.is_balanced()), (5000, 5000, true));
}

#[test]
fn off_counts_nothing() {
    let scratch = Scratch::new();
    let run = scratch.target(program("wait_oddities")).args(["short", "100"]).options(["--os", "off"]).same();
    assert_eq!(count(&run.read().root(), "os_wait").seen, 0);
}

/// A program with the driver, which waits before its first look at it, after that, and in a child.
fn with_driver(options: &[&str]) -> Finished {
    let scratch = Scratch::new();
    let script = r#"
import ctypes, os, select
quiet = os.pipe()
def nap(): select.select([quiet[0]], [], [], 0.003)
nap()
ctypes.CDLL("libcuda.so.1").cuInit(0)
[nap() for _ in range(4)]
pid = os.fork()
if pid == 0:
    [nap() for _ in range(2)]
    os._exit(0)
os.waitpid(pid, 0)
print(pid)
"#;
    let target = scratch.target("python3").args(["-c", script]).with_driver(Driver::Plain).options(options);
    let run = target.traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let child: i32 = run.text().trim().parse().expect("a pid");
    let selects = |pid: i32| waits_by_function(&trace, pid).get("select").map_or(0, Vec::len);
    let expected = match options {
        [] => (4, 2),
        [_, "all", ..] => (5, 2),
        _ => (0, 0),
    };
    assert_eq!((selects(trace.root().pid), selects(child)), expected, "{options:?}");
    run
}

#[test]
fn waits_are_looked_at_from_the_first_look_at_the_driver_on_and_in_its_children() {
    if needs(&["python3"]) {
        with_driver(&[]);
        with_driver(&["--os", "all"]);
        with_driver(&["--os", "off"]);
    }
}

#[test]
fn a_shell_without_cuda_has_no_waits_in_its_trace() {
    let scratch = Scratch::new();
    let run = scratch.shell("for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; (sleep 0.01); echo done").same().expect(0);
    let trace = run.read();
    assert_eq!(trace.table("os_waits").len(), 0);
    assert!(trace.manifest().processes.iter().all(|p| count(p, "os_wait").seen == 0));
}

#[test]
fn waits_inside_a_driver_call_are_the_calls_own() {
    let scratch = Scratch::new();
    let folder = driver_folder(Driver::Plain);
    let linked = program_with("cuda_threads", "waits", &linked_with(&folder, &[]));
    let run = scratch.target(linked).args(["50", "4"]).with_driver(Driver::Plain).options(ALL).traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    // No wait of a thread lies within one of its driver calls.
    let mut calls = Vec::new();
    for table in ["launches", "syncs", "transfers", "device_memory", "api"] {
        let table = trace.table(table);
        calls.extend(table.rows().map(|r| (r.int("tid"), r.int("start_ns"), r.int("start_ns") + r.int("api_ns"))));
    }
    let waits = trace.table("os_waits");
    assert!(waits.len() > 0 && calls.len() > 100);
    for wait in waits.rows() {
        let (tid, start) = (wait.int("tid"), wait.int("start_ns"));
        let inside = calls.iter().find(|(thread, from, to)| *thread == tid && *from <= start && start < *to);
        assert!(inside.is_none(), "{} of thread {tid} at {start} lies in {inside:?}", wait.text("kind"));
    }
}

#[test]
fn locks_answer_as_they_do_without_us() {
    let scratch = Scratch::new();
    scratch.target(program("wait_oddities")).arg("locks").options(ALL).same().expect(0);
}

#[test]
fn a_preloaded_wrapper_of_locks_sees_each_of_them() {
    let scratch = Scratch::new();
    let watcher = library("lock_watcher");
    let target = scratch.target(program("wait_oddities")).args(["short", "1000"]).env("LD_PRELOAD", &watcher);
    let run = target.options(ALL).same().expect(0);
    assert_eq!(run.text(), "1000\n1001 locks, 0 tries\n");
}

#[test]
fn calls_that_were_left_are_counted_as_abandoned() {
    const TIMES: u64 = 12;
    let scratch = Scratch::new();
    let target = scratch.target(program("wait_oddities")).args(["leave", &TIMES.to_string()]);
    let run = target.options(["--os", "all"]).same().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let waits = count(&trace.root(), "os_wait");
    // The reads that a signal handler left, and those threads that were in their calls when they were cancelled.
    assert!((TIMES..=TIMES * 5).contains(&waits.abandoned), "{waits:?}");
    assert!(waits.seen > waits.abandoned + TIMES, "{waits:?}");
}

#[test]
fn calls_before_any_constructor_go_through() {
    let scratch = Scratch::new();
    let run = scratch.target(program("wait_oddities")).arg("early").options(ALL).same().expect(0);
    assert_eq!(run.text(), "early 1, error 14\n");
}

#[test]
fn a_child_that_shares_its_parents_memory_may_wait() {
    let scratch = Scratch::new();
    let run = scratch.target(program("wait_oddities")).args(["vfork", "50"]).options(ALL).same().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    assert_eq!(trace.table("processes").len(), 1);
    assert_eq!(waits_by_function(&trace, trace.root().pid)["waitpid"].len(), 50);
}

#[test]
fn a_signal_handler_on_a_small_stack_may_wait() {
    let scratch = Scratch::new();
    let run = scratch.target(program("wait_oddities")).arg("small").options(ALL).same().expect(0);
    assert_eq!(run.text(), "2 waits on a small stack\n");
    let trace = run.read();
    trace.assert_balanced();
    let names = trace.names();
    let waits = trace.table("os_waits");
    let sleeps: Vec<_> = waits.rows().filter(|row| names[&row.int("api_id")] == "nanosleep").collect();
    assert_eq!(sleeps.len(), 2);
    // There is no room for taking one.
    assert!(sleeps.iter().all(|row| row.maybe_int("stack_id").is_none()));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn condition_variables_of_the_old_layout_reach_their_own_functions() {
    let scratch = Scratch::new();
    let target = scratch.target(program("old_conditions")).arg("2000");
    let run = target.options(ALL).same().expect(0);
    assert_eq!(run.text(), "old: 4000, a pointer\nnew: 4000, no pointer\n");
    let trace = run.read();
    let names = trace.names();
    let waits = trace.table("os_waits");
    let conditions = waits.rows().filter(|row| row.text("kind") == "condition");
    let functions: Vec<&str> = conditions.map(|row| names[&row.int("api_id")].as_str()).collect();
    // One match's waits: the other one's are not ours.
    assert!((2000..=6000).contains(&functions.len()), "{}", functions.len());
    assert!(functions.iter().all(|name| *name == "pthread_cond_wait"));
}

#[test]
fn a_sandbox_without_system_calls_may_wait() {
    let scratch = Scratch::new();
    let run = scratch.target(program("sandboxed")).arg("malloc").options(ALL).same();
    assert_eq!(run.code(), 17);
    let trace = run.read();
    let writes = waits_by_function(&trace, trace.root().pid);
    assert_eq!(writes["write"][0].bytes, Some(8));
}

#[test]
fn pythons_waits_are_there_with_their_kinds() {
    if !needs(&["python3", "sleep"]) {
        return;
    }
    let scratch = Scratch::new();
    let data = scratch.file("data", vec![7; 3 << 20]);
    // Each wait is of 0.3 s that something else takes; `later` is a thread that does a thing after that time.
    let script = r#"
import os, queue, subprocess, sys, threading, time
def later(what): threading.Timer(0.3, what).start()
q = queue.Queue()
later(lambda: q.put(1)); q.get()
lock = threading.Lock(); lock.acquire()
later(lock.release); lock.acquire()
read, write = os.pipe()
later(lambda: os.write(write, b"x")); os.read(read, 1)
time.sleep(0.3)
subprocess.run(["sleep", "0.3"])
with open(sys.argv[1], "rb", buffering=0) as file: file.read(3 << 20)
t = threading.Thread(target=time.sleep, args=(0.3,)); t.start(); t.join()
"#;
    let run = scratch.target("python3").args(["-c", script]).arg(&data).options(ALL).same().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let waits = waits_by_function(&trace, trace.root().pid);
    let long = |kind: &str| waits.values().flatten().filter(|w| w.kind == kind && w.ns >= 20 * MS).count();
    // Python's locks are semaphores, or mutexes with conditions where it was built so; queue and join wait for locks.
    assert!(long("semaphore") + long("condition") + long("futex") >= 3, "locks");
    // The sleep of 3.11 and newer is clock_nanosleep, of older ones select.
    assert_eq!(long("sleep") + long("poll"), 1, "sleeps");
    assert_eq!(long("child"), 1, "children");
    // Each names its line: the sleep is in the script's tenth.
    let stacks = trace.stacks(|row| (row.text("function").to_owned(), row.maybe_int("line")));
    let sleep = waits.values().flatten().find(|w| matches!(&*w.kind, "sleep" | "poll") && w.ns >= 20 * MS);
    let frame = stacks.innermost(sleep.and_then(|w| w.stack_id).expect("a stack"));
    assert_eq!(*frame, ("<module>".to_owned(), Some(10)));
    let reads = &waits["read"];
    assert_eq!(reads.iter().filter(|w| w.bytes == Some(1) && w.ns >= 20 * MS).count(), 1, "the pipe");
    assert_eq!(reads.iter().filter(|w| w.bytes == Some(3 << 20)).count(), 1, "the file");
}

#[test]
fn a_loop_that_waits_for_its_data_is_host_bound_and_its_line_is_named() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    // As a DataLoader does it: a thread makes batches, too slowly. It launches nothing.
    let script = r#"
import ctypes, queue, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuModuleLoadData(ctypes.byref(module), b"fakecuda:spin_us_20")
cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"spin_us_20")
batches = queue.Queue(1)
def load():
    while True:
        time.sleep(0.01)
        batches.put(1)
def step():
    batch = batches.get()
    for _ in range(5):
        cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    cuda.cuStreamSynchronize(None)
threading.Thread(target=load, daemon=True).start()
for _ in range(50):
    step()
"#;
    let script = scratch.file("train.py", script);
    let run = scratch.target("python3").arg(script).with_driver(Driver::Plain).traced().expect(0);
    let text = &run.stderr;
    assert!(text.contains("\nHOST BOUND: the host waits for data, locks or threads "), "{text}");
    let title = text.lines().position(|line| line.contains(" the loop waits for data, locks or threads  <= "));
    let evidence = title.and_then(|at| text.lines().nth(at + 1)).unwrap_or_default();
    assert!(evidence.starts_with("   train.py:16 ") && evidence.contains(" a step, "), "{text}");

    let trace = run.trace.to_str().expect("a path");
    let json = scratch.gputrace(&["report", trace, "--only", "os-waits", "--format", "json"]).expect(0);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let row = |table: &str, row: usize| json["analyses"]["os-waits"]["tables"][table]["rows"][row].clone();
    // The thread that launches nothing waits as long, and stands apart.
    let site = |table: &str| row(table, 0)["site"].as_str().unwrap_or_default().to_owned();
    assert!(site("by_site").starts_with("train.py:16 "), "{}", site("by_site"));
    assert!(site("by_site_others").starts_with("train.py:13 "), "{}", site("by_site_others"));
    let threads = [row("by_thread", 0), row("by_thread", 1)];
    assert_eq!(threads.each_ref().map(|row| row["gives_work"].as_str()), [Some("yes"), Some("no")]);
    assert!(threads[0]["name"].as_str().is_some_and(|name| name.starts_with("python")), "{threads:?}");
}
