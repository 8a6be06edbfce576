//! Who a process is: its parents, its rank, how it ended, the driver and the devices that it saw; in every way in which
//! programs start others.

use std::collections::BTreeMap;

use gputrace_abi::layout::{Header, SAID_EXIT};

use crate::util::{Driver, Scratch, Trace, needs, program, shim};

/// A child for each launcher, by the variables with which it starts one.
const LAUNCHERS: [(&str, [&str; 3]); 4] = [
    ("torchrun and accelerate", ["RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=8"]),
    ("mpirun", ["OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_SIZE=8"]),
    ("mpiexec", ["PMI_RANK=3", "MPI_LOCALRANKID=1", "PMI_SIZE=8"]),
    ("srun", ["SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS=8"]),
];

#[test]
fn secrets_of_command_lines_are_in_no_trace_unless_that_is_asked_for() {
    let scratch = Scratch::new();
    let commands = |options: &[&str]| {
        let script = "env API_KEY=hunter2 /bin/true --password hunter2 --run-id hunter2 --lr 1; exit 0";
        let run = scratch.shell(script).options(options).traced().expect(0);
        let trace = run.read();
        let table = trace.table("processes");
        let mut all: Vec<String> = table.rows().map(|row| row.text("command").to_owned()).collect();
        all.push(trace.manifest().command.join(" "));
        all.extend(trace.manifest().processes.into_iter().map(|process| process.exe));
        all.push(run.stderr);
        all.join("\n")
    };
    let usual = commands(&[]);
    assert_eq!(
        (usual.matches("--run-id hunter2").count() >= 2, usual.matches("hunter2").count()),
        (true, usual.matches("--run-id hunter2").count())
    );
    assert!(usual.contains("--password '[redacted]'") && usual.contains("--lr 1"), "{usual}");
    assert!(!commands(&["--redact", "run_id"]).contains("hunter2"));
    assert!(commands(&["--redact", "off"]).contains("--password hunter2"));
}

#[test]
fn each_launchers_variables_give_rank_local_rank_and_world_size() {
    let scratch = Scratch::new();
    for (launcher, variables) in LAUNCHERS {
        let devices = "GPU-66616b65-2d63-7564-612d-6770752d3030,GPU-66616b65-2d63-7564-612d-6770752d3031";
        let script = format!("env {} CUDA_VISIBLE_DEVICES={devices} /bin/true; exit 0", variables.join(" "));
        let trace = scratch.shell(&script).traced().expect(0).read();
        let table = trace.table("processes");
        let child = table.rows().find(|row| row.text("exe").ends_with("/true")).expect("the child");
        let numbers = ["rank", "local_rank", "world_size"].map(|column| child.maybe_int(column));
        assert_eq!(numbers, [Some(3), Some(1), Some(8)], "{launcher}");
        assert_eq!(child.maybe_text("visible_devices"), Some(devices));
        let shell = table.rows().find(|row| row.text("command").starts_with("/bin/sh")).expect("the shell");
        assert_eq!((shell.maybe_int("rank"), shell.maybe_text("visible_devices")), (None, None));
        assert_eq!(child.int("parent_pid"), shell.int("pid"));
    }
    // No devices is not the same as no word about them; a batch script has the number of tasks and is none; -1 is what
    // launchers say of a process that is no rank.
    let script = "env CUDA_VISIBLE_DEVICES= SLURM_NTASKS=8 RANK=-1 /bin/true; exit 0";
    let trace = scratch.shell(script).traced().expect(0).read();
    let table = trace.table("processes");
    let child = table.rows().find(|row| row.text("exe").ends_with("/true")).expect("the child");
    assert_eq!((child.maybe_text("visible_devices"), child.maybe_int("world_size")), (Some(""), None));
    assert_eq!(child.maybe_int("rank"), None);
}

#[test]
fn children_say_how_they_ended() {
    let scratch = Scratch::new();
    let script = "sh -c 'exit 3'; sh -c 'kill -TERM $$'; sh -c 'kill -SEGV $$'; sh -c ':'; exit 5";
    let trace = scratch.shell(script).traced().expect(5).read();
    let root = trace.manifest().root.and_then(|root| root.process_id).expect("the command was traced");
    let table = trace.table("processes");
    let ends: Vec<_> = table
        .rows()
        .map(|row| (row.int("process_id") == root, row.maybe_int("exit_code"), row.maybe_int("exit_signal")))
        .collect();
    assert_eq!(ends.iter().filter(|(is_root, ..)| *is_root).collect::<Vec<_>>(), [&(true, Some(5), None)]);
    let mut children: Vec<_> = ends.iter().filter(|(is_root, ..)| !is_root).map(|end| (end.1, end.2)).collect();
    children.sort_unstable();
    let segv = Some(i64::from(libc::SIGSEGV));
    let term = Some(i64::from(libc::SIGTERM));
    let expected = [(None, segv), (None, term), (Some(0), None), (Some(3), None)];
    // Before Linux 6.15 nobody can tell any more where the parent was faster than the collector.
    let known: Vec<_> = children.iter().filter(|end| **end != (None, None)).collect();
    assert_eq!(children.len(), expected.len());
    assert!(known.iter().all(|end| expected.contains(end)), "{children:?}");
    if tells_of_the_dead() {
        assert_eq!(children, expected);
    }
}

/// Nobody tells how such a process ended where the kernel is older and its parent was faster than the collector.
#[test]
fn a_process_leaves_word_of_what_it_gave_to_exit() {
    let shell = |script: &str| vec!["/bin/sh".into(), "-c".into(), script.into()];
    let returns = vec![program("cudart_like").into_os_string()];
    for (command, word) in [
        (shell("exit 7"), Some(7)),
        (shell("exec /bin/false"), Some(1)),
        (shell("kill -KILL $$"), None),
        (returns, Some(0)),
    ] {
        let scratch = Scratch::new();
        let session = scratch.path().join("session");
        std::fs::create_dir(&session).expect("the folder is writable");
        // Without a collector the segment is a file, and stays.
        let target = scratch.target(&command[0]).args(&command[1..]).with_driver(Driver::Plain);
        let target = target.env("LD_PRELOAD", shim()).env("GPUTRACE_SESSION", &session);
        let run = target.env("GPUTRACE_SEGMENT_MEMORY", "1").plain();
        assert_eq!(run.stderr, "", "{command:?}");
        let segments = std::fs::read_dir(&session).expect("the folder is there").flatten();
        // The last image of the process is the one that ended.
        let segment = segments.map(|entry| entry.path()).max_by_key(|path| path.file_name().map(|n| n.to_owned()));
        let bytes = std::fs::read(segment.expect("a segment")).expect("the file is readable");
        let at = std::mem::offset_of!(Header, said_exit);
        let said = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((said & SAID_EXIT != 0).then_some(said & 0xff), word, "{command:?}");
    }
}

/// Whether the kernel says how a process ended that was waited for.
fn tells_of_the_dead() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(15))
}

/// Work on the simulated driver, in children that each of Python's start methods makes.
const MULTIPROCESSING: &str = r#"
import ctypes, multiprocessing, os, sys

def work(number):
    cu = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cu.cuInit(0) == 0
    assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cu.cuCtxSetCurrent(context) == 0
    for _ in range(number + 1):
        assert cu.cuCtxSynchronize() == 0

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers])
"#;

/// Calls of cuCtxSynchronize, by a column.
fn context_waits(trace: &Trace, by: &str) -> BTreeMap<i64, i64> {
    let (names, mut waits) = (trace.names(), BTreeMap::new());
    for row in trace.table("syncs").rows().filter(|row| names[&row.int("api_id")] == "cuCtxSynchronize") {
        *waits.entry(row.int(by)).or_default() += 1;
    }
    waits
}

#[test]
fn each_worker_of_pythons_three_start_methods_has_its_row_and_its_calls() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("workers.py", MULTIPROCESSING);
    for method in ["fork", "spawn", "forkserver"] {
        let run = scratch.target("python3").arg(&file).arg(method).with_instant_driver().same().expect(0);
        assert_eq!(run.text(), "[0, 0, 0]\n");
        let trace = run.read();
        trace.assert_balanced();
        let waits = context_waits(&trace, "process_id");
        let mut counts: Vec<i64> = waits.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 2, 3], "{method}");
        let table = trace.table("processes");
        let rows: BTreeMap<i64, _> = table.rows().map(|row| (row.int("process_id"), row)).collect();
        for process in waits.keys() {
            let row = &rows[process];
            assert_eq!(row.text("origin"), if method == "spawn" { "exec" } else { "fork" }, "{method}");
            assert_eq!(row.maybe_int("driver_version"), Some(13000));
            // Its parent is here too: the program, or the server that forks.
            assert!(rows.values().any(|other| other.int("pid") == row.int("parent_pid")), "{method}");
        }
    }
}

/// Forks; in the child a thread is the first to call the driver, and then both call it in turn.
const FIRST_IN_A_CHILD: &str = r#"
import ctypes, os, threading

driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
child = os.fork()
if child == 0:
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    def calls(own):
        for _ in range(50):
            turns[own].acquire()
            driver.cuCtxSynchronize()
            turns[1 - own].release()
    thread = threading.Thread(target=calls, args=(0,))
    thread.start()
    calls(1)
    thread.join()
    os._exit(0)
print(os.waitpid(child, 0)[1])
"#;

#[test]
fn each_thread_of_a_child_has_its_own_calls_where_another_than_the_one_that_forked_made_the_first() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("first.py", FIRST_IN_A_CHILD);
    // Else the thread that starts the other one is the first: it allocates.
    let target = scratch.target("python3").arg(&file).with_instant_driver().options(["--malloc", "off"]);
    let trace = target.same().expect(0).read();
    trace.assert_balanced();
    assert_eq!(context_waits(&trace, "tid").into_values().collect::<Vec<_>>(), [50, 50]);
}

#[test]
fn a_process_that_starts_itself_anew_with_other_variables_is_another_image() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    // As Ray's workers do: what the process may see is decided after it has started.
    let script = r#"
import os, sys
if "RANK" not in os.environ:
    os.execve(sys.executable, [sys.executable] + sys.orig_argv[1:], dict(os.environ, RANK="2", CUDA_VISIBLE_DEVICES="1"))
print(os.environ["RANK"])
"#;
    let run = scratch.target("python3").args(["-c", script]).same().expect(0);
    let trace = run.read();
    let table = trace.table("processes");
    // What is called python3 may be a script that finds the interpreter.
    let mut images: Vec<_> = table.rows().filter(|row| row.text("command").contains("os.execve")).collect();
    images.retain(|row| row.text("exe").contains("/python"));
    images.sort_by_key(|row| row.int("start_ns"));
    assert_eq!(images.len(), 2);
    assert_eq!(images[0].int("pid"), images[1].int("pid"));
    assert_eq!(images[0].maybe_int("rank"), None);
    assert_eq!((images[1].maybe_int("rank"), images[1].maybe_text("visible_devices")), (Some(2), Some("1")));
    assert!(images[0].maybe_int("end_ns") <= images[1].maybe_int("end_ns"));
}

#[test]
fn the_driver_its_clients_version_and_its_devices_are_known() {
    let scratch = Scratch::new();
    for driver in [Driver::Plain, Driver::Symbolic] {
        let target = scratch.target(program("cudart_like")).with_driver(driver).env("FAKE_CUDA_DEVICES", "2");
        let run = target.env("FAKE_CUDA_VERSION", "12080").same().expect(0);
        let trace = run.read();
        let table = trace.table("processes");
        let row = table.rows().next().expect("the process");
        assert_eq!(row.maybe_int("driver_version"), Some(12080));
        assert!(row.int("runtime_version") >= 11000, "{}", row.int("runtime_version"));
        assert_eq!((row.maybe_text("routes"), row.maybe_text("uncovered")), (Some("dlsym,procaddr"), None));
        let manifest = trace.manifest();
        let uuids: Vec<&str> = manifest.devices.iter().map(|device| device.uuid.as_str()).collect();
        assert_eq!(uuids, ["GPU-66616b65-2d63-7564-612d-6770752d3030", "GPU-66616b65-2d63-7564-612d-6770752d3031"]);
        assert_eq!(manifest.processes[0].devices, uuids);
        let device = &manifest.devices[1];
        assert_eq!((device.name.as_str(), device.compute_capability.as_str()), ("Simulated GPU", "9.0"));
        assert_eq!((device.sm_count, device.memory_bytes), (Some(132), Some(8 << 30)));
        // 2,619 MHz, two words a clock, 5,120 bits.
        assert_eq!(device.memory_peak_bytes_per_s, Some(3_352_320_000_000));
        assert!(device.pci_bus_id.starts_with("0000:02:"), "{}", device.pci_bus_id);
    }
    // Without a driver nothing is known, and nothing is asked.
    let trace = scratch.shell("exit 0").traced().expect(0).read();
    let table = trace.table("processes");
    let row = table.rows().next().expect("the process");
    assert_eq!((row.maybe_int("driver_version"), row.maybe_int("runtime_version")), (None, None));
    assert_eq!(trace.manifest().devices, []);
}
