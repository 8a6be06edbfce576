"""What recording malloc costs whole programs: alone, off, sampled, in full (short lives summed up in the process; without and with stacks),
under heaptrack and memray.

usage: malloc_programs.py [--gputrace PATH] [--memray PATH] [--rounds N] [--times N] [--ways WAY;...] [--own | --at-once] [PROGRAM...]

Programs: churn (Python objects, PYTHONMALLOC=malloc), sqlite (Python's sqlite3), compile (cc1 -O2 of a generated file), rustc (the
same of Rust; it brings a malloc of its own, which is not recorded), redis (redis-server, 200,000 requests by redis-benchmark), and where this Python has
the package pyperformance those of its programs that make most objects (PYTHONMALLOC=malloc). All ways run in turn, N times; prints the median seconds of each, the median of
the ratios to the run alone of the same turn with its quartiles, and their mean with its standard error. What is not installed is left out, and said.
--times does so many times the work, beside which a start and an end cost little; --ways leaves others than these out (alone is always there);
--own tells the processor time that programs of Python themselves took, and not how long it was until whatever records it had ended as well.
--at-once tells it too, of these programs alone, of all ways of a round at once, on the last processor, which goes from one to the next every few ms, with what records them on the
others: what else the machine does meets all alike, at the price of caches that are never quite one's own. "alone again" says what the noise is then.
Not for "full, culled": a block lives as many times longer there as ways share the processor, so that most are older than what is culled.
A program of Python has a few variables more in its environment each time, of other lengths: what Python makes of them is the first that lies in
its heap, and where all that follows lies in pages and lines of cache makes a percent, which every run of a way would share.
"""

import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
# By program of pyperformance, how often it does its work to take some two seconds.
PYPERFORMANCE = {"float": 25, "go": 15, "raytrace": 6, "chaos": 25, "deltablue": 500, "hexiom": 300}


def source(functions):
    """A file of C that takes a compiler a while."""
    body = "\n".join(
        f"int f{n}(int *p, int k) {{ int s = {n}; for (int i = 0; i < k; i++) {{ s += p[i] * (i ^ {n}); if (s & {1 << n % 9}) s ^= p[k - i - 1] / (i + 1); "
        f"switch (s % 7) {{ case 0: s += f{n - 1 if n else 0}(p, k / 2); break; case 3: s *= 3; break; default: p[i] = s; }} }} return s; }}"
        for n in range(functions)
    )
    return body + "\n"


def rust_source(functions):
    """The same of Rust."""
    return "\n".join(
        f"pub fn f{n}(p: &mut Vec<String>, k: usize) -> usize {{ let mut s = {n}; for i in 0..k {{ s += p[i % p.len()].len() ^ {n}; "
        f"if s % 7 == 3 {{ p.push(format!(\"{{s}} {n}\")); }} }} let m: std::collections::BTreeMap<usize, &str> = p.iter().map(|t| (t.len(), t.as_str())).collect(); "
        f"s + m.len() + p.iter().filter(|t| t.contains(\"{n}\")).count() }}"
        for n in range(functions)
    )


def ways(arguments, work):
    """Names of the ways, and what each puts before a command."""
    ours = lambda *options: [arguments.gputrace, "-o", str(work / "traces" / "".join(options)), *options, "--"]
    all_ways = {
        "alone": [],
        **({"alone again": []} if arguments.at_once else {}),
        "off": ours("--malloc", "off"),
        "sample": ours("--malloc", "sample"),
        "full, culled": ours("--malloc", "full", "--malloc-stacks", "off", "--cull", "10"),
        "full, no stacks": ours("--malloc", "full", "--malloc-stacks", "off"),
        "full": ours("--malloc", "full"),
    }
    if shutil.which("heaptrack"):
        all_ways["heaptrack"] = ["heaptrack", "-o", str(work / "heap")]
    else:
        print("heaptrack is not installed", file=sys.stderr)
    wanted = arguments.ways.split(";") if arguments.ways else all_ways
    return {way: prefix for way, prefix in all_ways.items() if way.startswith("alone") or way in wanted}


def environment():
    """Variables for one run of a program of Python."""
    others = {f"OTHER_{n}": "x" * random.randrange(600) for n in range(random.randrange(12))}
    return os.environ | {"PYTHONMALLOC": "malloc"} | others


def timed(command, **more):
    begin = time.monotonic()
    subprocess.run(command, check=True, **QUIET, **more)
    return time.monotonic() - begin


def own(command, **more):
    """Seconds of processor time that a program says it took, in a line of its own; heaptrack says more."""
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **more).stdout
    return float(re.findall(r"^\d+\.\d+$", said, re.MULTILINE)[-1])


def redis(prefix, work, times):
    """Seconds that redis-benchmark takes, the server's start and end left out."""
    place = work / "redis.sock"
    server = subprocess.Popen([*prefix, "redis-server", "--port", "0", "--unixsocket", place, "--save", "", "--dir", work], **QUIET)
    try:
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as asked:
                    asked.connect(str(place))
                break
            except OSError:
                time.sleep(0.02)
        return timed(["redis-benchmark", "-s", place, "-q", "-n", str(50_000 * times), "-d", "100", "-t", "set,get,lpush,lrange_100"])
    finally:
        subprocess.run(["redis-cli", "-s", place, "shutdown", "nosave"], **QUIET)
        server.wait()
        place.unlink(missing_ok=True)


def programs(arguments, work):
    """By name: a function that runs the program behind a prefix, and gives the seconds; and memray's command for it."""
    place = HERE / "programs"
    scripts = {
        "churn": [place / "object_churn.py", 200_000 * arguments.times],
        "sqlite": [place / "sqlite_rows.py", 100_000 * arguments.times],
    }
    suite = importlib.util.find_spec("pyperformance")
    for name, loops in PYPERFORMANCE.items() if suite else ():
        script = pathlib.Path(suite.origin).parent / "data-files/benchmarks" / f"bm_{name}" / "run_benchmark.py"
        scripts[name] = [place / "run_script.py", script, "--worker", "-w", 0, "-n", 1, "-l", loops * arguments.times]
    found = {}
    for name, words in scripts.items():
        words = [str(word) for word in words]
        tells = name != "sqlite"
        if arguments.at_once and not tells:
            continue
        measure = own if (arguments.own or arguments.at_once) and tells else timed
        run = lambda prefix, words=words, measure=measure: measure([*prefix, sys.executable, *words], env=environment())
        memray = [arguments.memray, "run", "-q", "-f", "-o", str(work / "memray.bin")]
        profiled = lambda words=words, memray=memray, measure=measure: measure([*memray, *words], env=environment())
        found[name] = run, profiled if arguments.memray else None
    if arguments.at_once:
        return found
    # The compiler proper: heaptrack does not follow the driver's children.
    compiler = subprocess.run(["cc", "-print-prog-name=cc1"], capture_output=True, text=True, check=True).stdout.strip()
    file = work / "large.c"
    file.write_text(source(400 * arguments.times))
    found["compile"] = lambda prefix: timed([*prefix, compiler, "-quiet", "-O2", "-w", file, "-o", "/dev/null"]), None
    if shutil.which("rustc"):
        rust = work / "large.rs"
        rust.write_text(rust_source(150 * arguments.times))
        words = ["rustc", "-O", "--crate-type", "lib", "--emit", "obj", "-o", work / "large.o", rust]
        found["rustc"] = lambda prefix: timed([*prefix, *words]), None
    if shutil.which("redis-server"):
        found["redis"] = lambda prefix: redis(prefix, work, arguments.times), None
    return found


def in_turn(run, prefixes):
    """Seconds by way."""
    return {way: run(prefix) for way, prefix in prefixes.items()}


def at_once(run, prefixes):
    """The same; the calling process leaves the last processor to the programs."""
    processors = sorted(os.sched_getaffinity(0))
    last = ["taskset", "-c", str(processors[-1])]
    os.sched_setaffinity(0, processors[:-1])
    with concurrent.futures.ThreadPoolExecutor(len(prefixes)) as pool:
        # Who begins first has the processor for itself for a while.
        begun = {way: pool.submit(run, prefix + last) for way, prefix in random.sample(list(prefixes.items()), len(prefixes))}
        seconds = {way: begun[way].result() for way in prefixes}
    os.sched_setaffinity(0, processors)
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gputrace", default=str(HERE.parent / "target/release/gputrace"))
    parser.add_argument("--memray")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--ways", default="")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--own", action="store_true")
    kind.add_argument("--at-once", action="store_true")
    parser.add_argument("programs", nargs="*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        known = programs(arguments, work)
        for name in arguments.programs or known:
            if name not in known:
                parser.error(f"no such program, or not so, or not installed: {name}")
            run, profiled = known[name]
            times = {}
            for _ in range(arguments.rounds):
                measure = at_once if arguments.at_once else in_turn
                for way, seconds in measure(run, ways(arguments, work)).items():
                    times.setdefault(way, []).append(seconds)
                for rest in work.glob("heap*"):
                    rest.unlink()
                shutil.rmtree(work / "traces", ignore_errors=True)
                if profiled:
                    times.setdefault("memray", []).append(profiled())
            for way, seconds in times.items():
                ratios = [one / alone for one, alone in zip(seconds, times["alone"], strict=True)]
                low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
                mean, error = statistics.mean(ratios), statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0
                print(
                    f"{name:8} {way:16} {statistics.median(seconds):7.3f} s  {middle:6.3f} ({low:.3f} .. {high:.3f})  mean {mean:.3f} ({error:.3f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
