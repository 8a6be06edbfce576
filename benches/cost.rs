//! What tracing costs, in paired runs: `cargo bench --bench cost [-- NAME...]`.
//!
//! Names: launch, call, stack, range, malloc, wait, start, import, memory. Each compares in turn (A B A B ...) and prints medians; `launch` has its
//! baseline in the same process. GPUTRACE_COMMAND names another gputrace than this build's. lttng-ust and heaptrack take part where they are installed. The machine's noise shows
//! in the quartiles; docs/benchmarks.md keeps the figures with the commands that made them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs};

#[path = "cost/malloc.rs"]
mod malloc;

/// The command: GPUTRACE_COMMAND, or what cargo built.
fn gputrace() -> PathBuf {
    env::var_os("GPUTRACE_COMMAND").map_or_else(|| env!("CARGO_BIN_EXE_gputrace").into(), PathBuf::from)
}

fn main() {
    let wanted: Vec<String> = env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let work = env::temp_dir().join(format!("gputrace-bench-{}", std::process::id()));
    fs::create_dir_all(&work).expect("a work folder");
    let bench = Bench { work: work.clone() };
    let all: [(&str, Measure); 9] = [
        ("launch", Bench::launch),
        ("call", Bench::call),
        ("stack", Bench::stack),
        ("range", Bench::range),
        ("malloc", malloc::measure),
        ("wait", Bench::wait),
        ("start", Bench::start),
        ("import", Bench::import),
        ("memory", Bench::memory),
    ];
    for (name, run) in all {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            run(&bench);
        }
    }
    let _ = fs::remove_dir_all(work);
}

/// One of the measurements.
type Measure = fn(&Bench);

struct Bench {
    work: PathBuf,
}

/// Median and quartiles.
struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values.get(((values.len() - 1) as f64 * share) as usize).copied().unwrap_or(f64::NAN);
        Spread { low: at(0.25), median: at(0.5), high: at(0.75) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} (quartiles {:.2} .. {:.2})", self.median, self.low, self.high)
    }
}

impl Bench {
    fn compile(&self, name: &str, arguments: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/programs");
        let program = self.work.join(name);
        let mut command = Command::new("cc");
        command.current_dir(&source).args(["-O2", "-fno-builtin", "-I."]).args(arguments).arg("-o").arg(&program);
        assert!(command.status().expect("a C compiler").success(), "{name} does not compile");
        program
    }

    /// The command, traced into a folder of its own, with these options.
    fn traced(&self, trace: &str, options: &[&str], program: &Path) -> Command {
        let _ = fs::remove_dir_all(self.work.join(trace));
        let mut command = Command::new(gputrace());
        command.arg("-o").arg(self.work.join(trace)).args(options).arg("--").arg(program);
        command.stderr(Stdio::null());
        command
    }

    fn lost(&self, trace: &str) -> String {
        let summary = fs::read_to_string(self.work.join(trace).join("summary.txt")).unwrap_or_default();
        let line = summary.lines().find(|l| l.contains("lost")).unwrap_or("no line about loss");
        line.trim().to_owned()
    }

    /// A folder with a driver that does nothing.
    fn driver(&self) -> PathBuf {
        let library = self.compile("libcuda.so.1", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "stub_cuda.c"]);
        library.parent().expect("a folder").to_owned()
    }

    /// ns added to a hooked launch, hot and cold, with a live collector; lttng-ust in the same run.
    fn launch(&self) {
        let folder = self.driver();
        let program = self.compile("launch_cost", &["launch_cost.c", "-ldl"]);
        let kinds =
            [("hot", "101", "50000", ""), ("cold", "21", "2000", ""), ("hot", "101", "50000", "--start-paused")];
        for (way, rounds, calls, paused) in kinds {
            let kind = if paused.is_empty() { way } else { "while recording is off" };
            // Where touching the other memory takes 200 us, each launch would be one after a pause, and get a stack.
            let options: Vec<&str> =
                ["--malloc", "off", "--stacks", "off"].into_iter().chain([paused]).filter(|o| !o.is_empty()).collect();
            let mut command = self.traced("launch", &options, &program);
            command.args([way, rounds, calls]).env("LD_LIBRARY_PATH", &folder);
            let added: Vec<f64> =
                lines(&mut command).iter().filter_map(|l| l.split(' ').nth(2)?.parse().ok()).collect();
            println!("launch {kind}: ns added per call {}; {}", Spread::of(added), self.lost("launch"));
        }
        if let Some(lttng) = self.lttng() {
            println!("lttng-ust, four integers, consumer live: ns per tracepoint {lttng}");
        }
    }

    /// ns added to driver calls that are not launches.
    fn call(&self) {
        let program = self.compile("call_cost", &["call_cost.c", "-ldl"]);
        let mut command = self.traced("call", &["--malloc", "off"], &program);
        print_added("call", lines(command.args(["101", "25000"]).env("LD_LIBRARY_PATH", self.driver())));
        println!("call: {}", self.lost("call"));
    }

    /// ns that one stack takes: launches of which each gets one, and none.
    fn stack(&self) {
        let folder = self.driver();
        let native = self.compile("launch_cost", &["launch_cost.c", "-ldl"]);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/programs/stack_cost.py");
        let script = script.display().to_string();
        let kinds: [(&str, &Path, &[&str], usize); 2] = [
            ("native", &native, &["hot", "21", "20000"], 1),
            ("Python, 10 frames", Path::new("python3"), &[&script, "21", "20000"], 0),
        ];
        for (kind, program, arguments, column) in kinds {
            let mut added = Vec::new();
            for _ in 0..7 {
                let of = |options: &[&str]| {
                    let mut command = self.traced("stack", options, program);
                    let lines = lines(command.args(arguments).env("LD_LIBRARY_PATH", &folder));
                    Spread::of(lines.iter().filter_map(|l| l.split(' ').nth(column)?.parse().ok()).collect()).median
                };
                let none = of(&["--malloc", "off", "--stacks", "off"]);
                added.push(of(&["--malloc", "off", "--launch-stacks", "1"]) - none);
            }
            println!("stack, {kind}: ns each {}; {}", Spread::of(added), self.lost("stack"));
        }
    }

    /// ns added to a pair of calls that name a range, with a live collector.
    fn range(&self) {
        let program = self.compile("range_cost", &["range_cost.c", "-ldl"]);
        let mut command = self.traced("range", &["--malloc", "off"], &program);
        print_added("range", lines(command.args(["101", "2500"])));
        println!("range: {}", self.lost("range"));
    }

    fn lttng(&self) -> Option<Spread> {
        let lttng = |arguments: &[&str]| {
            let status = Command::new("lttng").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|s| s.success())
        };
        if Command::new("lttng").arg("--version").output().is_err() {
            return None;
        }
        let program = self.compile("lttng_cost", &["lttng_cost.c", "-llttng-ust", "-ldl"]);
        let output = format!("--output={}", self.work.join("lttng").display());
        let session = format!("gputrace{}", std::process::id());
        let ready = lttng(&["create", &session, &output])
            && lttng(&["enable-channel", "-u", "--subbuf-size=4M", "--num-subbuf=4", "c"])
            && lttng(&["enable-event", "-u", "bench:*", "-c", "c"])
            && lttng(&["start"]);
        let times = ready.then(|| lines(&mut Command::new(program)));
        lttng(&["destroy", &session]);
        times.map(|t| Spread::of(t.iter().filter_map(|l| l.parse().ok()).collect()))
    }

    /// ns added to calls that may wait for the operating system and return at once: without us, with such waits off, in
    /// a process that does not look at the driver (the default), and looked at, counted and timed.
    fn wait(&self) {
        let program = self.compile("wait_cost", &["wait_cost.c", "-lpthread"]);
        let calls = ["read of a byte", "lock + unlock", "poll", "futex call", "other system call"];
        let modes = ["none", "off", "cuda", "all"];
        let mut times = modes.map(|_| calls.map(|_| Vec::new()));
        for _ in 0..5 {
            for (mode, times) in modes.iter().zip(&mut times) {
                let mut command = match *mode {
                    "none" => Command::new(&program),
                    mode => self.traced("wait", &["--malloc", "off", "--os", mode], &program),
                };
                for line in lines(command.args(["31", "20000"])) {
                    let values = line.split(' ').filter_map(|value| value.parse::<f64>().ok());
                    times.iter_mut().zip(values).for_each(|(times, value)| times.push(value));
                }
            }
        }
        let medians = times.map(|times| times.map(Spread::of));
        for (n, call) in calls.iter().enumerate() {
            for (mode, spreads) in modes.iter().zip(&medians) {
                let added = spreads[n].median - medians[0][n].median;
                println!("{call}, waits {mode}: ns {}, added {added:.2}", spreads[n]);
            }
        }
    }

    /// ms added to a program that does nothing, and to each of 1,000 children of a shell.
    fn start(&self) {
        let (mut plain, mut traced) = (Vec::new(), Vec::new());
        for _ in 0..21 {
            plain.push(wall_ms(&mut Command::new("/bin/true")));
            traced.push(wall_ms(&mut self.traced("true", &[], Path::new("/bin/true"))));
        }
        let added = traced.iter().zip(&plain).map(|(t, p)| t - p).collect();
        println!("gputrace -- true: ms added {}", Spread::of(added));
        let script = "i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done";
        let mut added = Vec::new();
        for _ in 0..5 {
            let plain = wall_ms(Command::new("/bin/sh").args(["-c", script]));
            let traced = wall_ms(self.traced("children", &[], Path::new("/bin/sh")).args(["-c", script]));
            added.push((traced - plain) / 1000.0);
        }
        println!("a shell's 1,000 children: ms added per child {}", Spread::of(added));
    }

    /// Per cent added to a Python program that imports much: PyTorch where it is installed.
    fn import(&self) {
        let has_torch = Command::new("python3").args(["-c", "import torch"]).stderr(Stdio::null()).status();
        let code = match has_torch {
            Ok(status) if status.success() => "import torch",
            _ => "import asyncio, email.message, http.client, json, sqlite3, ssl, unittest, xml.dom.minidom",
        };
        let mut added = Vec::new();
        for _ in 0..21 {
            let plain = wall_ms(Command::new("python3").args(["-c", code]));
            let traced = wall_ms(self.traced("import", &[], Path::new("python3")).args(["-c", code]));
            added.push(100.0 * (traced - plain) / plain);
        }
        println!("{code}: % added {}", Spread::of(added));
    }

    /// MiB of memory that the target has more with 64 threads that all record.
    fn memory(&self) {
        let folder = self.driver();
        let program = self.compile("thread_memory", &["thread_memory.c", "-lpthread", "-ldl"]);
        let kib = |command: &mut Command| {
            let lines = lines(command.env("LD_LIBRARY_PATH", &folder));
            lines.first().and_then(|l| l.parse::<f64>().ok()).unwrap_or(f64::NAN)
        };
        let (mut plain, mut traced) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            plain.push(kib(&mut Command::new(&program)));
            traced.push(kib(&mut self.traced("memory", &["--malloc", "sample"], &program)));
        }
        let added = Spread::of(traced).median - Spread::of(plain).median;
        println!("64 threads: MiB of resident memory added {:.2}", added / 1024.0);
    }
}

/// Prints what was added, by kind, of lines with a kind, a time without hooks and one with them.
fn print_added(name: &str, lines: Vec<String>) {
    let mut added: Vec<(String, Vec<f64>)> = Vec::new();
    for line in lines {
        let mut fields = line.split(';');
        let (Some(kind), Some(none), Some(ours)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (Ok(none), Ok(ours)) = (none.parse::<f64>(), ours.parse::<f64>()) else { continue };
        match added.iter_mut().find(|(k, _)| k == kind) {
            Some((_, all)) => all.push(ours - none),
            None => added.push((kind.to_owned(), vec![ours - none])),
        }
    }
    for (kind, added) in added {
        println!("{name}, {kind}: ns added {}", Spread::of(added));
    }
}

fn lines(command: &mut Command) -> Vec<String> {
    let output = command.stderr(Stdio::null()).output().expect("the program starts");
    assert!(output.status.success(), "{command:?} ended with {}", output.status);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn wall_ms(command: &mut Command) -> f64 {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("the program starts");
    let ms = start.elapsed().as_secs_f64() * 1e3;
    assert!(status.success(), "{command:?} ended with {status}");
    ms
}
