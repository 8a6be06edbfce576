//! Programs that people use run as they do without us: the same output, the same end, every process recorded.

use std::fs;
use std::time::Duration;

use crate::util::{Driver, Finished, Scratch, Target, needs, poll};

/// Runs a target both ways in full and in sampled mode, and returns the traced run whose books were checked.
#[track_caller]
fn the_same(target: Target<'_>) -> Finished {
    target.clone().options(["--malloc", "full"]).same();
    recorded(target.same())
}

/// Asserts that every process is in the trace with its end.
#[track_caller]
fn recorded(run: Finished) -> Finished {
    let trace = run.read();
    trace.assert_balanced();
    let processes = trace.table("processes");
    assert!(processes.len() > 0);
    for row in processes.rows() {
        assert!(
            row.int("traced") == 1 && row.maybe_int("end_ns").is_some(),
            "{} {:?}",
            row.text("command"),
            row.maybe_text("reason")
        );
    }
    run
}

/// Python's own tests of these modules, which say how many ran.
fn python_tests(modules: &[&str], at_least: usize) {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let here = |module: &&&str| {
        let import = format!("import test.support, test.{module}");
        scratch.target("python3").args(["-c", &import]).plain().status.success()
    };
    let present: Vec<&str> = modules.iter().filter(here).copied().collect();
    if present.len() < at_least {
        crate::util::lacks(&format!("python3's own tests ({} of {modules:?})", present.len()));
        return;
    }
    let target = scratch.target("python3").args(["-m", "test"]).args(&present);
    let plain = target.plain();
    assert!(plain.status.success(), "fails without us: {}{}", plain.text(), plain.stderr);
    // Its output holds times: its verdict and its counts are what must be the same.
    let verdict = |run: &Finished| {
        let text = run.text();
        let lines = text.lines().filter(|line| line.starts_with("Total test") || line.starts_with("Result"));
        lines.map(|line| line.split(" skipped").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    for options in [&[][..], &["--malloc", "full"], &["--malloc", "off"]] {
        let run = target.clone().options(options).traced();
        assert!(run.status.success(), "{options:?}: {}{}", run.text(), run.stderr);
        assert_eq!(verdict(&run), verdict(&plain));
    }
}

#[test]
fn pythons_tests_of_memory_pass() {
    python_tests(&["test_list", "test_dict", "test_bytes", "test_gc", "test_array"], 4);
}

#[test]
fn pythons_tests_of_threads_and_queues_pass() {
    python_tests(&["test_thread", "test_queue", "test_contextvars", "test_threading_local"], 3);
}

#[test]
fn sqlite_gives_the_same_answers() {
    if !needs(&["sqlite3"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)
INSERT INTO t SELECT i, printf('row %08d', i * 7919 % 50000), i / 7.0 FROM n;
CREATE INDEX b ON t(b);
SELECT count(*), sum(a), min(b), max(b), total(c) FROM t;
SELECT * FROM t WHERE b LIKE '%77%' ORDER BY c DESC LIMIT 20;
SELECT group_concat(a) FROM (SELECT a FROM t ORDER BY b LIMIT 1000);
PRAGMA integrity_check;";
    let file = scratch.file("script.sql", script);
    let run = the_same(scratch.target("sqlite3").arg(":memory:").stdin(&file));
    assert!(run.text().ends_with("ok\n"), "{}", run.text());
}

#[test]
fn git_clones_logs_and_collects_garbage() {
    if !needs(&["git"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = "set -e
rm -rf one two; git init -q -b main one; cd one
git config user.name Tester; git config user.email tester@localhost; git config gc.auto 0
for i in 1 2 3 4 5 6 7 8; do seq $i 2000 > file$i; git add .; git commit -q -m \"commit $i\"; done
cd ..; git clone -q one two; cd two
git log --format='%H %s' --stat; git gc -q --prune=now; git fsck --full 2>/dev/null; git grep -c 77";
    // Fixed dates make fixed hashes.
    let target =
        scratch.shell(script).env("GIT_AUTHOR_DATE", "1700000000 +0000").env("GIT_COMMITTER_DATE", "1700000000 +0000");
    let target = target.env("HOME", scratch.path()).env("GIT_CONFIG_NOSYSTEM", "1");
    let run = recorded(target.same().expect(0));
    assert!(run.text().contains("commit 8"));
    assert!(run.read().table("processes").len() > 30);
}

#[test]
fn gcc_compiles_the_same_file() {
    let scratch = Scratch::new();
    let source = scratch.file("fib.c", "#include <stdio.h>\n#include <stdlib.h>\nint fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }\nint main(void) { printf(\"%d\\n\", fib(20)); return 0; }\n");
    let script = format!("cc -O2 -c {} -o fib.o && cksum fib.o && cc fib.o -o fib && ./fib", source.display());
    let run = the_same(scratch.shell(&script).args([""; 0]));
    assert!(run.text().ends_with("6765\n"), "{}", run.text());
    assert!(run.read().table("processes").len() >= 6);
}

#[test]
fn node_runs_with_its_threads() {
    if !needs(&["node"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = "const { Worker, isMainThread, parentPort } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto');
const data = Buffer.alloc(1 << 20, 'gputrace');
console.log(crypto.createHash('sha256').update(zlib.gunzipSync(zlib.gzipSync(data))).digest('hex'));
let total = 0, left = 3;
for (let i = 0; i < 3; i++) {
  const worker = new Worker('require(\"worker_threads\").parentPort.postMessage([...Array(50000).keys()].map(x => ({ x })).length)', { eval: true });
  worker.on('message', n => { total += n; if (--left == 0) console.log(total); });
}";
    let run = recorded(scratch.target("node").args(["-e", script]).same().expect(0));
    assert!(run.text().ends_with("150000\n"), "{}", run.text());
}

#[test]
fn java_says_its_version() {
    if !needs(&["java"]) {
        return;
    }
    let scratch = Scratch::new();
    let run = recorded(scratch.target("java").arg("-version").same().expect(0));
    assert!(run.own_stderr().contains("version"), "{}", run.stderr);
}

#[test]
fn perl_and_bash_run_their_loops() {
    let scratch = Scratch::new();
    if needs(&["perl"]) {
        let script = "my %h; $h{$_ % 977} .= \"$_,\" for 1..100000; print join('|', map { length $h{$_} } sort keys %h), \"\\n\"; \
                      print scalar(grep { /77/ } map { $_ x 3 } 1..20000), \"\\n\"; exit 3";
        the_same(scratch.target("perl").args(["-e", script])).expect(3);
    }
    if needs(&["bash"]) {
        let script = "declare -A a; for i in {1..3000}; do a[$i]=$((i * i)); done; echo ${#a[@]} ${a[77]}; \
                      for i in {1..30}; do x=$(echo $i | tr 1 2); done; echo $x; (exit 5) || echo failed $?; trap 'echo bye' EXIT";
        let run = the_same(scratch.target("bash").args(["-c", script]));
        assert!(run.text().ends_with("failed 5\nbye\n"), "{}", run.text());
    }
}

#[test]
fn openssl_signs_and_measures() {
    if !needs(&["openssl"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("data", "gputrace ".repeat(100_000));
    the_same(scratch.target("openssl").args(["dgst", "-sha256"]).arg(&file));
    // Its figures differ from run to run; that it ends well does not.
    let speed = scratch.target("openssl").args(["speed", "-seconds", "1", "-bytes", "256", "-multi", "2", "sha256"]);
    let run = recorded(speed.traced().expect(0));
    assert!(run.read().table("processes").len() >= 3);
}

#[test]
fn redis_serves_its_benchmark() {
    if !needs(&["redis-server", "redis-benchmark", "redis-cli"]) {
        return;
    }
    let scratch = Scratch::new();
    let socket = scratch.path().join("redis.sock");
    let path = socket.to_str().expect("a plain path");
    let server =
        scratch.target("redis-server").args(["--port", "0", "--unixsocket", path, "--save", "", "--io-threads", "2"]);
    let started = server.options(["--malloc", "sample=65536"]).start();
    poll(Duration::from_secs(60), || socket.exists().then_some(())).expect("the server listens");
    let benchmark = ["-s", path, "-q", "-n", "20000", "-c", "20", "-t", "set,get,lpush,lrange_100"];
    let benchmark = recorded(scratch.target("redis-benchmark").args(benchmark).traced().expect(0));
    assert!(benchmark.text().matches("requests per second").count() >= 4, "{}", benchmark.text());
    let client = |arguments: &[&str]| scratch.target("redis-cli").args(["-s", path]).args(arguments).plain().text();
    let pushed = client(&["llen", "mylist"]).trim().parse::<u64>().expect("a number");
    assert!(pushed >= 20_000, "{pushed}");
    client(&["shutdown", "nosave"]);
    let run = recorded(started.wait().expect(0));
    let memory = crate::util::count(&run.read().root(), "host_alloc");
    // Debian's redis brings jemalloc, whose functions have names of their own unless it replaces malloc.
    assert!(memory.seen > 0, "{memory:?}");
    assert!(fs::metadata(&socket).is_err(), "the server removed its socket");
}

#[test]
fn pythons_worker_processes_do_their_work() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = scratch.file(
        "pool.py",
        "import multiprocessing, sys
def work(n): return sum(i * i for i in range(n))
if __name__ == '__main__':
    for way in 'fork', 'spawn', 'forkserver':
        with multiprocessing.get_context(way).Pool(3) as pool:
            print(way, pool.map(work, range(0, 20000, 500)))
",
    );
    let run = scratch.target("python3").arg(&script).same().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let table = trace.table("processes");
    let forks = table.rows().filter(|row| row.text("origin") == "fork").count();
    assert!(forks >= 3, "{forks} forked workers");
}

#[test]
fn debuggers_and_checkers_work_inside() {
    let scratch = Scratch::new();
    let cuda = crate::util::program("cuda_routes").display().to_string();
    if needs(&["valgrind"]) {
        // It checks the shim as well, which is loaded into the program that it runs.
        let command = ["--quiet", "--error-exitcode=99", &cuda, "procaddr"];
        let target = scratch.target("valgrind").args(command).options(["--malloc", "full"]);
        let run = target.with_driver(Driver::Plain).traced().expect(0);
        assert!(run.text().contains("launches=3") && !run.stderr.contains("=="), "{}", run.stderr);
        assert_eq!(run.read().table("launches").len(), 3);
    }
    if needs(&["strace"]) {
        let target =
            scratch.target("strace").args(["-f", "-o", "/dev/null", &cuda, "dlopen"]).with_driver(Driver::Plain);
        assert_eq!(target.same().read().table("launches").len(), 3);
    }
    if needs(&["gdb"]) {
        let target = scratch.target("gdb").args(["-q", "-batch", "-ex", "run", "--args", &cuda, "dlopen"]);
        let run = target.with_driver(Driver::Plain).traced().expect(0);
        assert!(run.text().contains("launches=3") && run.text().contains("exited normally"), "{}", run.text());
    }
}
