//! Metrics for other programs: they say while a command runs what its trace says at its end, parsers of others understand them, and
//! the dashboard asks for none that there is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use crate::faults::one_line;
use crate::util::{Driver, Scratch, Trace, driver_folder, lacks, nvml_folder, poll, program, repository, shim};

const LONG: Duration = Duration::from_secs(60);
/// Calls of the driver, which a program that only waits makes no more of.
const CLASSES: [&str; 5] = ["launch", "sync", "transfer", "alloc", "free"];

/// A scrape, without its head.
fn scrape(address: &str, accept: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n").ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    let (head, body) = said.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then(|| body.to_owned())
}

/// Values by name and labels, as they stand there.
fn values(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (what, value) = line.rsplit_once(' ')?;
        Some((what.to_owned(), value.parse().ok()?))
    };
    lines.map(|line| value(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn of_class(values: &BTreeMap<String, f64>, name: &str, class: &str) -> f64 {
    values.get(&format!("{name}{{class=\"{class}\"}}")).copied().unwrap_or(0.0)
}

/// A run that is being scraped.
struct Run<'a> {
    scratch: &'a Scratch,
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: String,
    trace: PathBuf,
    until: PathBuf,
}

impl<'a> Run<'a> {
    /// Work of 60 rounds on the simulated GPU, whose times are known; then a program that only waits, with the device.
    fn start(scratch: &'a Scratch, options: &[&str]) -> Run<'a> {
        let wait = program("cuda_until").display().to_string();
        Run::of(scratch, options, &format!("WORK 60 1 > work.txt && {wait} UNTIL --token hush"))
    }

    /// One process after the other that works, for some seconds each: what its GPU did is told while it runs.
    fn start_to_work(scratch: &'a Scratch, options: &[&str]) -> Run<'a> {
        Run::of(scratch, options, "while [ ! -e UNTIL ]; do WORK 100000 1 > work.txt; done")
    }

    fn of(scratch: &'a Scratch, options: &[&str], script: &str) -> Run<'a> {
        let (trace, until) = (scratch.new_trace(), scratch.path().join("until"));
        let script = script.replace("WORK", &program("cuda_threads").display().to_string());
        let script = script.replace("UNTIL", &until.display().to_string());
        let mut libraries = OsString::from(driver_folder(Driver::Plain));
        libraries.push(":");
        libraries.push(nvml_folder());
        let target = scratch.shell(&script).env("LD_LIBRARY_PATH", libraries).options(options.iter().copied());
        let mut command = target.options(["--gpu-time", "full", "--counters", "10"]).traced_command(&trace);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("gputrace starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("it says where");
        let address =
            line.trim().strip_prefix("gputrace: metrics at http://").and_then(|at| at.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Run { scratch, child, stderr, address, trace, until }
    }

    /// Scrapes until one passes.
    fn scraped(&self, accept: &str, mut enough: impl FnMut(&str) -> bool) -> String {
        let last = || scrape(&self.address, accept).filter(|text| enough(text));
        poll(LONG, last).unwrap_or_else(|| panic!("{}", scrape(&self.address, accept).unwrap_or_default()))
    }

    /// A scrape when all work was done and told of (the GPU's is when no process has earlier work that is unknown yet), and devices
    /// and processes were read.
    fn settled(&self, accept: &str) -> String {
        self.scraped(accept, |text| {
            let values = values(text);
            // The shell and the program that waits run.
            let over = values.get("gputrace_processes_ended_total").is_some_and(|ended| *ended >= 1.0);
            let has = |name: &str| values.keys().any(|key| key.starts_with(name));
            let launches = of_class(&values, "gputrace_calls_total", "launch");
            let kernels = of_class(&values, "gputrace_gpu_operation_duration_seconds_count", "kernel");
            over && kernels == launches && has("gputrace_nvml_power_watts") && has("gputrace_proc_rss_bytes")
        })
    }

    /// Ends it: its trace, and what was said.
    fn end(mut self) -> (Trace, String) {
        fs::write(&self.until, "").expect("the folder is writable");
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("text");
        assert!(self.child.wait().expect("it is our child").success(), "{rest}");
        assert!(TcpStream::connect(&self.address).is_err(), "nobody listens when it is over");
        assert!(self.scratch.sessions().is_empty());
        (Trace::open(&self.trace), rest)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let _ = fs::write(&self.until, "");
        let _ = self.child.wait();
    }
}

#[test]
fn what_is_served_is_what_the_trace_counts_in_the_end() {
    let scratch = Scratch::new();
    let run = Run::start(&scratch, &["--metrics", "127.0.0.1:0"]);
    let mut before = BTreeMap::<String, f64>::new();
    // As it goes nothing runs back, but that a process that ends has no values of its own any more.
    let text = run.scraped("", |text| {
        let now = values(text);
        let sums = |(key, _): &(&String, &f64)| key.contains("_total") && !key.contains("pid=\"");
        for (key, was) in before.iter().filter(sums) {
            assert!(now.get(key).is_some_and(|now| now >= was), "{key} was {was}, is {:?}", now.get(key));
        }
        before = now;
        before.get("gputrace_processes_ended_total").is_some_and(|ended| *ended >= 1.0)
    });
    assert!(!text.contains("hush"), "{text}");
    let served = values(&run.settled(""));
    let (trace, said) = run.end();
    assert!(!said.contains("metrics at"), "it is said once: {said}");
    let counts = |class: &str| {
        let manifest = trace.manifest();
        let counts: Vec<_> =
            manifest.processes.iter().filter_map(|process| process.accounting.get(class).copied()).collect();
        let sum = |of: fn(&gputrace_collectors::manifest::Count) -> u64| counts.iter().map(of).sum::<u64>() as f64;
        (sum(|count| count.seen), sum(|count| count.recorded), sum(|count| count.dropped))
    };
    for class in CLASSES {
        let (seen, recorded, dropped) = counts(class);
        assert!(seen > 0.0, "{class}");
        assert_eq!(of_class(&served, "gputrace_calls_total", class), seen, "{class}");
        assert_eq!(of_class(&served, "gputrace_events_total", class), recorded, "{class}");
        assert_eq!(of_class(&served, "gputrace_events_dropped_total", class), dropped, "{class}");
        assert_eq!(of_class(&served, "gputrace_call_duration_seconds_count", class), recorded, "{class}");
    }
    let launches = trace.table("launches");
    let took: i64 = launches.rows().map(|row| row.int("api_ns")).sum();
    let served_took = of_class(&served, "gputrace_call_duration_seconds_sum", "launch");
    assert!((served_took - took as f64 / 1e9).abs() < 1e-9, "{served_took} {took}");
    let below = launches.rows().filter(|row| row.int("api_ns") < 1 << 13).count() as f64;
    let bucket = "gputrace_call_duration_seconds_bucket{class=\"launch\",le=\"8.192e-06\"}";
    assert_eq!(served.get(bucket), Some(&below), "{served:?}");
    let kernels = of_class(&served, "gputrace_gpu_operation_duration_seconds_count", "kernel");
    assert_eq!(kernels, trace.table("kernels").len() as f64);
    let copied: i64 = trace.table("transfers").rows().map(|row| row.int("bytes")).sum();
    assert_eq!(of_class(&served, "gputrace_call_bytes_total", "transfer"), copied as f64);
    let nvml = served.iter().find(|(key, _)| key.starts_with("gputrace_nvml_power_watts{device=\"GPU-"));
    assert_eq!(nvml.map(|(_, watts)| *watts), Some(612.5));
}

/// Reads standard input by Prometheus' own parser for Python; prints names, as they are asked for.
const PARSER: &str = r#"
import sys
from prometheus_client.parser import text_string_to_metric_families as old
from prometheus_client.openmetrics.parser import text_string_to_metric_families as new
text = sys.stdin.read()
families = list((new if sys.argv[1] == "new" else old)(text))
for family in families:
    assert family.documentation and family.type in ("counter", "gauge", "histogram", "info"), family
    for sample in family.samples:
        print(sample.name)
"#;

#[test]
fn prometheus_own_parser_reads_both_formats_and_finds_all_that_the_dashboard_asks_for() {
    let Some(python) = std::env::var_os("GPUTRACE_READ_PYTHON") else {
        lacks("GPUTRACE_READ_PYTHON: a Python with prometheus-client");
        return;
    };
    let scratch = Scratch::new();
    let run = Run::start_to_work(&scratch, &["--metrics", "0"]);
    let parsed = |which: &str, text: &str| -> BTreeSet<String> {
        let mut parser = Command::new(&python);
        parser.args(["-c", PARSER, which]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut parser = parser.spawn().expect("python starts");
        parser.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
        let done = parser.wait_with_output().expect("it ends");
        assert!(done.status.success(), "{text}\n{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect()
    };
    let text = fs::read_to_string(repository().join("docs/grafana/gputrace.json")).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut asked = BTreeSet::new();
    expressions(&dashboard, &mut |expression| {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
        asked.extend(words.filter(|word| word.starts_with("gputrace_")).map(str::to_owned));
    });
    assert!(asked.len() > 15, "{asked:?}");
    // What is known of a process is told while it lives: sooner or later one scrape has it all.
    let missing = |text: &str| -> Vec<String> {
        let values = values(text);
        let names: BTreeSet<&str> = values.keys().filter_map(|key| key.split('{').next()).collect();
        asked.iter().filter(|name| !names.contains(name.as_str())).cloned().collect()
    };
    let scraped = |accept: &str| {
        let whole = || scrape(&run.address, accept).filter(|text| missing(text).is_empty());
        poll(LONG, whole).unwrap_or_else(|| {
            panic!("no such metric: {:?}", missing(&scrape(&run.address, accept).unwrap_or_default()))
        })
    };
    let old = parsed("old", &scraped("text/plain"));
    let new = parsed("new", &scraped("application/openmetrics-text; version=1.0.0"));
    assert!(old.is_superset(&asked) && new.is_superset(&asked), "{:?}", asked.difference(&old).collect::<Vec<_>>());
    run.end();
}

/// Every expression of a dashboard: of its panels and of its variables.
fn expressions(value: &serde_json::Value, each: &mut impl FnMut(&str)) {
    match value {
        serde_json::Value::Object(members) => {
            for (key, value) in members {
                match value.as_str() {
                    Some(text) if ["expr", "query", "definition"].contains(&key.as_str()) => each(text),
                    _ => expressions(value, each),
                }
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|value| expressions(value, each)),
        _ => {}
    }
}

#[test]
fn an_address_that_cannot_be_had_is_told_before_the_command_starts() {
    let scratch = Scratch::new();
    shim();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|at| (at.to_string(), taken)).expect("a port");
    for (address, says) in [
        (taken.0.as_str(), "name another port, or 0 for any that is free"),
        ("192.0.2.1:9464", "no address of this machine"),
        (":9464", "expected a port such as 9464"),
        ("nowhere:9464", "expected a port such as 9464"),
    ] {
        let run = scratch.gputrace(&["--metrics", address, "-o", "t", "--", "touch", "started"]).expect(125);
        one_line(&run.stderr, says);
        assert!(!scratch.path().join("t").exists() && !scratch.path().join("started").exists(), "{address}");
    }
}

#[test]
fn who_goes_on_for_a_killed_gputrace_is_at_the_same_address() {
    let scratch = Scratch::new();
    let file = scratch.path().join("count");
    let target = scratch.target(program("victim")).arg(&file).args(["1000000", "1000"]).with_instant_driver();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").to_string();
    let mut started = target.options(["--metrics", &port]).start_to_be_killed();
    let launches = || Some(of_class(&values(&scrape(&port, "")?), "gputrace_calls_total", "launch"));
    poll(LONG, || launches().filter(|launches| *launches >= 100.0)).expect("it is served");
    let victim = crate::faults::child_of(started.pid());
    crate::recovering::holds(crate::recovering::heir_of(&started), 1);
    started.kill();
    poll(LONG, || launches().filter(|launches| *launches >= 100.0)).expect("it is served again");
    crate::recovering::kill(victim);
    poll(LONG, || crate::recovering::is_complete(&started.trace).then_some(())).expect("somebody seals the trace");
    poll(LONG, || TcpStream::connect(&port).is_err().then_some(())).expect("nobody listens any more");
}

#[test]
fn without_the_option_nobody_listens() {
    let scratch = Scratch::new();
    let target = scratch.target(program("victim")).arg(scratch.path().join("count"));
    let mut started = target.args(["1000000", "1000"]).with_instant_driver().start_to_be_killed();
    let victim = crate::faults::child_of(started.pid());
    assert_eq!(listening(started.pid()), 0);
    let _own = TcpListener::bind("127.0.0.1:0").expect("a port");
    assert!(listening(std::process::id() as i32) > 0, "it would be found");
    crate::recovering::kill(victim);
    poll(LONG, || crate::recovering::is_complete(&started.trace).then_some(())).expect("it ends");
    started.kill_anyhow();
}

/// TCP sockets of a process at which it listens.
fn listening(pid: i32) -> usize {
    let own = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours").flatten();
    let inodes: BTreeSet<String> = own
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let fields = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    // State 0A is LISTEN.
    fields.filter(|fields| fields[3] == "0A" && inodes.contains(fields[9])).count()
}

#[cfg(not(feature = "otlp"))]
#[test]
fn a_program_that_cannot_push_says_what_it_needs() {
    let scratch = Scratch::new();
    for arguments in [["--otlp", "http://localhost:4318"], ["--otlp-every", "3"]] {
        let run = scratch.gputrace(&[arguments[0], arguments[1], "--", "true"]).expect(125);
        assert!(run.stderr.contains("--features otlp"), "{}", run.stderr);
    }
    let help = scratch.gputrace(&["record", "--help"]).expect(0).text();
    assert!(!help.contains("--otlp"), "{help}");
}
