//! `gputrace attach`: calls of a program that ran before are counted from then on, its driver is afterwards as it was, byte by byte, and the
//! program notices nothing; where it cannot be attached to one line says why.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use crate::faults::one_line;
use crate::util::{Driver, Scratch, Trace, count, driver_folder, gputrace, poll, program, shim};

const PATIENCE: Duration = Duration::from_secs(120);
/// Attach and detach so often; docs/benchmarks.md has what 1,000 times said.
const CYCLES: &str = "GPUTRACE_ATTACH_CYCLES";
const FEW_CYCLES: usize = 30;

/// A program that runs, and its file of orders.
struct Running {
    child: Child,
    orders: File,
    given: u64,
    threads: u64,
    before: Vec<u8>,
}

impl Running {
    fn start(scratch: &Scratch, name: &str, threads: u64, signals: bool) -> Running {
        Running::of(scratch, name, &program("attached"), threads, signals, false)
    }

    fn of(scratch: &Scratch, name: &str, program: &Path, threads: u64, signals: bool, filter: bool) -> Running {
        shim();
        let file = scratch.file(name, [0u8; 4096]);
        let flag = |on: bool| if on { "1" } else { "0" };
        let mut command = Command::new(program);
        command.arg(&file).arg(threads.to_string()).args([flag(signals), flag(filter)]);
        command.env("LD_LIBRARY_PATH", driver_folder(Driver::Symbolic)).stdout(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        let orders = File::options().read(true).write(true).open(file).expect("its file");
        let mut running = Running { child, orders, given: 0, threads, before: Vec::new() };
        // It has found its functions when it does what it is told.
        running.launch(1, 1);
        running.before = running.code();
        running
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn word(&self, number: u64) -> u64 {
        let mut bytes = [0; 8];
        self.orders.read_exact_at(&mut bytes, 8 * number).expect("its file is large enough");
        u64::from_le_bytes(bytes)
    }

    fn order(&mut self, launches: u64, grid: u64) {
        for (number, value) in [(1, launches), (2, grid), (3, 0), (0, self.given + 1)] {
            self.orders.write_all_at(&u64::to_le_bytes(value), 8 * number).expect("its file can be written");
        }
        self.given += 1;
    }

    /// Has each thread launch so often, and waits for that.
    fn launch(&mut self, launches: u64, grid: u64) {
        self.order(launches, grid);
        poll(PATIENCE, || (self.word(3) == self.threads).then_some(())).expect("its threads do as they are told");
    }

    /// Waits until it has launched so often more.
    fn until_more(&self, launches: u64) {
        let from = self.word(4);
        poll(PATIENCE, || (self.word(4) >= from + launches).then_some(())).expect("the program goes on");
    }

    /// The driver's code as it lies in its memory.
    fn code(&self) -> Vec<u8> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("it runs");
        let memory = File::open(format!("/proc/{}/mem", self.pid())).expect("it is ours");
        let mut code = Vec::new();
        for line in maps.lines().filter(|line| line.contains(" r-xp ") && line.contains("fake_cuda")) {
            let (start, rest) = line.split_once('-').expect("a range");
            let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
            let (start, end) = (number(start), number(rest.split(' ').next().unwrap_or_default()));
            let mut part = vec![0; (end - start) as usize];
            memory.read_exact_at(&mut part, start).expect("it is mapped");
            code.extend(part);
        }
        assert!(code.len() > 4096, "{maps}");
        code
    }

    #[track_caller]
    fn assert_driver_is_as_it_was(&self) {
        assert!(self.code() == self.before, "each byte of the driver's code is what it was");
    }

    /// Has it end, and say that all was well.
    fn end(mut self) {
        self.order(0, 0);
        let status = self.child.wait().expect("it is our child");
        let mut said = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        assert!(status.success() && said == "ok\n", "{status} {said}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// gputrace, attached.
struct Attached {
    child: Child,
    stderr: BufReader<ChildStderr>,
    trace: PathBuf,
}

impl Attached {
    fn to(scratch: &Scratch, pid: &str, trace: &str) -> Attached {
        let trace = scratch.path().join(trace);
        let mut command = Command::new(gputrace());
        command.args(["attach", pid, "--counters", "off", "-o"]).arg(&trace).current_dir(scratch.path());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("gputrace starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut attached = Attached { child, stderr, trace };
        let mut line = String::new();
        while !line.contains("attached to process") {
            assert!(line.is_empty() || line.contains("is whole now"), "{line}");
            line.clear();
            assert!(attached.stderr.read_line(&mut line).expect("text") > 0, "gputrace ended");
        }
        attached
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the child was not waited for, so its pid is its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits until it has ended: what it said.
    fn wait(mut self, code: Option<i32>) -> (String, PathBuf) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("text");
        let status = self.child.wait().expect("it is our child");
        assert_eq!(status.code(), code, "{said}");
        (said, self.trace)
    }

    fn detach(self) -> Trace {
        self.signal(libc::SIGINT);
        Trace::open(&self.wait(Some(0)).1)
    }
}

/// Launches of the one process of a trace: seen and lost.
fn launches(trace: &Trace) -> (u64, u64) {
    let manifest = trace.manifest();
    let [process] = &manifest.processes[..] else { panic!("{:?}", manifest.processes) };
    let launch = count(process, "launch");
    (launch.seen, launch.dropped)
}

#[test]
fn calls_between_attach_and_detach_are_counted_and_the_driver_is_as_it_was() {
    let scratch = Scratch::new();
    let mut running = Running::start(&scratch, "orders", 4, false);
    running.launch(50, 3);
    let attached = Attached::to(&scratch, &running.pid(), "first");
    assert!(running.code() != running.before, "its functions lead to the shim's");
    running.launch(100, 7);
    let first = attached.detach();
    running.assert_driver_is_as_it_was();
    running.launch(30, 9);
    // Once more: the shim is there, and the account begins anew.
    let attached = Attached::to(&scratch, &running.pid(), "second");
    running.launch(60, 11);
    // Whatever is known of it finds its session.
    for name in [running.pid(), attached.child.id().to_string(), attached.trace.to_string_lossy().into_owned()] {
        let shown = || scratch.gputrace(&["top", &name, "--once"]).expect(0).text();
        let live = poll(PATIENCE, || Some(shown()).filter(|text| text.contains("1 process") && text.contains("up ")));
        assert!(live.is_some(), "{name}: {}", shown());
    }
    let second = attached.detach();
    running.assert_driver_is_as_it_was();
    running.launch(10, 13);
    let mapped = fs::read_to_string(format!("/proc/{}/maps", running.pid())).expect("it runs");
    running.end();
    for (trace, launched, grid) in [(&first, 400, 7), (&second, 240, 11)] {
        assert_eq!(launches(trace), (launched, 0));
        let table = trace.table("launches");
        assert!(table.len() as u64 == launched && table.rows().all(|row| row.int("grid_x") == grid), "{grid}");
        trace.assert_balanced();
        let process = trace.manifest().processes.remove(0);
        assert!(process.running && process.notes.iter().any(|note| note.starts_with("attached to while it ran")));
        let inline = process.coverage.inline.expect("its functions were patched");
        assert!(inline.patched > 500, "{inline:?}");
        // Its kernels' names are the driver's answer: they were looked up long before.
        let names = trace.names();
        assert!(names.values().any(|name| name == "spin_us_2"), "{names:?}");
    }
    let segments = mapped.lines().filter(|line| line.contains("/s/seg-")).count();
    assert_eq!((segments, mapped.matches("r-xp").count() > 3), (1, true), "{mapped}");
}

#[test]
fn a_thread_that_makes_the_calls_computes_on_with_its_own_registers() {
    let scratch = Scratch::new();
    shim();
    let file = scratch.file("orders", [0u8; 4096]);
    // It has no other thread, and this one is in no call.
    let mut command = Command::new(program("vectors"));
    command.arg(&file).env("LD_LIBRARY_PATH", driver_folder(Driver::Symbolic)).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let compared = || {
        let bytes = fs::read(&file).expect("its file");
        u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"))
    };
    let until_more = || {
        let from = compared();
        poll(PATIENCE, || (compared() >= from + 5).then_some(())).expect("it computes, and finds what it had");
    };
    until_more();
    for cycle in 0..3 {
        let attached = Attached::to(&scratch, &child.id().to_string(), &format!("trace{cycle}"));
        until_more();
        attached.detach();
        until_more();
    }
    let orders = File::options().write(true).open(&file).expect("its file");
    orders.write_all_at(&1u64.to_le_bytes(), 0).expect("it can be written");
    let mut said = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("it is our child").success() && said.ends_with(" ok\n"), "{said}");
}

#[test]
fn a_killed_gputrace_leaves_the_program_as_it_was_and_the_next_one_makes_its_trace_whole() {
    let scratch = Scratch::new();
    let mut running = Running::start(&scratch, "orders", 4, true);
    running.order(0, 5);
    let attached = Attached::to(&scratch, &running.pid(), "killed");
    running.until_more(2000);
    attached.signal(libc::SIGKILL);
    let (_, killed) = attached.wait(None);
    poll(PATIENCE, || (running.code() == running.before).then_some(())).expect("the patches are taken back");
    running.until_more(2000);
    let attached = Attached::to(&scratch, &running.pid(), "next");
    running.until_more(2000);
    let next = attached.detach();
    running.assert_driver_is_as_it_was();
    running.end();
    let killed = Trace::open(&killed);
    assert!(killed.manifest().recovered.is_some() && launches(&killed).0 > 0);
    assert!(launches(&next).0 >= 2000);
    next.assert_balanced();
}

#[test]
fn a_program_that_ends_ends_the_trace_and_nothing_is_left() {
    let scratch = Scratch::new();
    let mut running = Running::start(&scratch, "orders", 2, false);
    let pid = running.pid();
    let attached = Attached::to(&scratch, &pid, "trace");
    let mapped = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let segment =
        mapped.lines().find_map(|line| Some(line.split_once(" /")?.1).filter(|path| path.contains("/s/seg-")));
    let segment = PathBuf::from(format!("/{}", segment.expect("a segment").trim()));
    running.launch(20, 5);
    running.end();
    let (_, trace) = attached.wait(Some(0));
    assert_eq!(launches(&Trace::open(&trace)), (40, 0));
    let session = segment.parent().and_then(Path::parent).expect("a folder in the session's");
    assert!(!session.exists(), "{}", session.display());
}

#[test]
fn a_busy_program_is_attached_to_and_let_go_of_again_and_again() {
    let cycles = std::env::var(CYCLES).ok().map_or(FEW_CYCLES, |cycles| cycles.parse().expect("a number"));
    let scratch = Scratch::new();
    let mut running = Running::start(&scratch, "orders", 16, true);
    running.order(0, 5);
    let pid = running.pid();
    for cycle in 0..cycles {
        let trace = scratch.path().join("trace");
        let options = ["--duration", "0.02", "--detail", "rollup", "--counters", "off", "-o", "trace"];
        let mut command = Command::new(gputrace());
        let done =
            command.args(["attach", &pid]).args(options).current_dir(scratch.path()).output().expect("it starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "cycle {cycle}: {said}");
        if cycle % 10 == 0 {
            running.assert_driver_is_as_it_was();
            running.until_more(100);
            Trace::open(&trace).assert_balanced();
        }
        fs::remove_dir_all(&trace).expect("a trace");
    }
    running.until_more(1000);
    running.assert_driver_is_as_it_was();
    assert!(running.word(5) > 0, "signals came");
    running.end();
}

/// What gputrace says of a process that it does not attach to.
#[track_caller]
fn refused(scratch: &Scratch, pid: &str, says: &str) {
    let run = scratch.gputrace(&["attach", pid, "-o", "refused"]).expect(125);
    one_line(&run.stderr, says);
    assert!(!scratch.path().join("refused").exists(), "no trace is left");
}

#[test]
fn what_cannot_be_attached_to_is_said_in_one_line_and_left_alone() {
    let scratch = Scratch::new();
    refused(&scratch, "999999999", "there is no process 999999999");
    let mut running = Running::start(&scratch, "orders", 2, false);
    let pid = running.pid();
    let id = running.child.id() as i32;
    let thread = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten().map(|entry| entry.file_name());
    let thread = thread.map(|name| name.to_string_lossy().into_owned()).find(|tid| *tid != pid).expect("a thread");
    refused(&scratch, &thread, &format!("is a thread of process {pid}"));
    let asleep = |state: char| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.starts_with(state).then_some(())
    };
    // SAFETY: the child was not waited for, so its pid is its own.
    unsafe { libc::kill(id, libc::SIGSTOP) };
    poll(PATIENCE, || asleep('T')).expect("it stops");
    refused(&scratch, &pid, "is stopped; let it go on first: kill -CONT");
    // SAFETY: as above.
    unsafe { libc::kill(id, libc::SIGCONT) };
    poll(PATIENCE, || asleep('S')).expect("it goes on");
    // SAFETY: a child of ours; nothing is written anywhere.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SEIZE, id, 0, 0) }, 0);
    refused(&scratch, &pid, "is traced by process");
    // SAFETY: as above; it must be stopped to be let go.
    unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, id, 0, 0);
        libc::waitpid(id, std::ptr::null_mut(), libc::__WALL);
        assert_eq!(libc::ptrace(libc::PTRACE_DETACH, id, 0, 0), 0);
    }
    for wrong in [["--malloc", "full"], ["--gpu-time", "events"], ["--os", "all"], ["--delay", "3"]] {
        let run = scratch.gputrace(&[&["attach", &pid], &wrong[..]].concat()).expect(125);
        one_line(&run.stderr, "not of a process that runs already");
    }
    // One at a time.
    let attached = Attached::to(&scratch, &pid, "trace");
    refused(&scratch, &pid, "is at work there");
    running.launch(5, 5);
    attached.detach();
    running.assert_driver_is_as_it_was();
    running.end();
}

#[test]
fn programs_that_are_none_to_attach_to_are_named_with_the_reason() {
    let scratch = Scratch::new();
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep is there");
    refused(&scratch, &sleeper.id().to_string(), "has not loaded the driver (no libcuda.so.1");
    sleeper.kill().expect("it is our child");
    poll(PATIENCE, || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", sleeper.id())).ok()?;
        stat.contains(") Z ").then_some(())
    });
    refused(&scratch, &sleeper.id().to_string(), "a zombie");
    sleeper.wait().expect("it is our child");
    let filtered = Running::of(&scratch, "filtered", &program("attached"), 2, false, true);
    refused(&scratch, &filtered.pid(), "has a seccomp filter");
    filtered.end();
    // SAFETY: the call only reads this process's credentials.
    let user = unsafe { libc::geteuid() };
    match user {
        0 => {
            let mut other = Command::new("sleep").arg("1000").uid(65534).gid(65534).spawn().expect("sleep is there");
            refused(&scratch, &other.id().to_string(), "is user 65534's; run gputrace as that user");
            other.kill().and_then(|()| other.wait()).expect("it is our child");
        }
        _ => refused(&scratch, "1", "is user 0's; run gputrace as that user"),
    }
    // What gputrace started is traced.
    let file = scratch.file("traced", [0u8; 4096]);
    let traced = scratch.target(program("attached")).arg(&file).arg("2").with_driver(Driver::Symbolic).start();
    let child = poll(PATIENCE, || {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", traced.pid())).ok()?;
        let maps = |pid: &str| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        children
            .split_whitespace()
            .find(|pid| maps(pid).contains("fake_cuda") && maps(pid).contains("memfd:gputrace"))
            .map(str::to_owned)
    });
    refused(&scratch, &child.expect("it starts"), "is traced by gputrace already");
    let orders = File::options().write(true).open(&file).expect("its file");
    orders.write_all_at(&1u64.to_le_bytes(), 0).expect("it can be written");
    traced.wait().expect(0);
}
