"""What the GPU's times cost under a budget, and whether they are right: `python budget.py GPUTRACE FOLDER [PARTS [STEPS]]`, in nine minutes.

PARTS are letters, all unless told; each prints its result as it is known.
a: steps of the transformer without gputrace and under `--gpu-time auto --budget 1`, in turn (ABBA), STEPS each time (5,000): p50, p99, longest.
b: kernels of the steps that lie wholly in windows, their number, medians and sum, beside torch.profiler's of the same process afterwards (gputrace
   stands aside then): runs differ in the GPU's clock by more than is asked for.
c: busy share by `events` beside what torch.profiler finds in steps of the same process afterwards, and beside that of a run of `full`.
d: a program that makes its first CUDA graph late: busy share of the whole run by `auto` beside `full`, and what the report says.
e: launches by eight threads as fast as they come under `auto --budget 1`: what was spent, what was left out, and ns a launch.
f: steps that wait for the GPU, without and under `auto --budget 1` and `full`.
"""

import collections
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import gpu_time  # noqa: E402

BUDGET = ["--gpu-time", "auto", "--budget", "1"]


def late_graph():
    """Launches one by one for LATE seconds, then the same by a graph. The first half keeps the GPU busier than the second."""
    import torch

    x = torch.randn(2048, 2048, device="cuda")
    small = torch.randn(64, 64, device="cuda")
    begin, state = time.perf_counter(), {}

    def step():
        if time.perf_counter() - begin < LATE:
            for _ in range(4):
                x @ x
            for _ in range(100):
                small.relu_()
        else:
            if not state:
                torch.cuda.synchronize()
                state["graph"] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(state["graph"]):
                    for _ in range(20):
                        small.relu_()
            state["graph"].replay()
            time.sleep(0.0002)
        torch.cuda.synchronize()

    return step


LATE = 8.0
# Steps under torch.profiler.
PROFILED = 200
PROGRAMS = {**gpu_time.PROGRAMS, "late": late_graph}


def run(name, steps, out, profiled="0"):
    """`steps`: how many, or with an s how many seconds. `profiled`: so many more are made under torch.profiler."""
    import torch

    step = PROGRAMS[name]()
    for _ in range(20 if name != "late" else 0):
        step()
    torch.cuda.synchronize()
    times, end = [], time.perf_counter() + (float(steps[:-1]) if steps.endswith("s") else 1e9)
    most = int(1e9) if steps.endswith("s") else int(steps)
    while len(times) < most and time.perf_counter() < end:
        at, begin = time.time_ns(), time.perf_counter()
        step()
        times.append((at, 1000 * (time.perf_counter() - begin)))
    torch.cuda.synchronize()
    with open(out, "w") as file:
        json.dump(times, file)
    if int(profiled):
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profile:
            begin = time.perf_counter()
            for _ in range(int(profiled)):
                step()
            torch.cuda.synchronize()
            profiled_us = 1e6 * (time.perf_counter() - begin) / int(profiled)
        with open(out + ".profile", "w") as file:
            json.dump(gpu_time.events(profile), file)
        with open(out + ".wall", "w") as file:
            json.dump(profiled_us, file)


def go(name, steps, how, tag, profiled=0):
    """Runs a program; the trace, and (begin, ms) of its steps. `how`: gputrace's options; none: without it."""
    trace = os.path.join(FOLDER, f"{tag}-{name}")
    out, command = trace + ".json", [sys.executable, os.path.abspath(__file__), "run", name, str(steps), trace + ".json", str(profiled)]
    if how is not None:
        command = [GPUTRACE, "-o", trace, *how, "--"] + command
    with open(trace + ".err", "w") as err:
        code = subprocess.run(command, stdout=err, stderr=err).returncode
    if code:
        print(f"   {tag} {name}: exit {code}\n" + open(trace + ".err").read()[-1500:], flush=True)
    return trace, json.load(open(out))


def tail(times):
    times = sorted(times)
    return statistics.median(times), times[int(len(times) * 0.99)], times[-1]


def process(trace):
    """The process with most events of the manifest."""
    found = [p for f in glob.glob(os.path.join(trace, "manifest", "*.json")) for p in json.load(open(f))["processes"]]
    return max(found, key=lambda p: sum(c.get("seen", 0) for c in p.get("accounting", {}).values()))


def spent(trace):
    about = process(trace)
    times = about.get("gpu_time") or {}
    keep = ("windows", "on_ns", "records", "joined", "outside", "without_record", "dropped", "detached", "stays", "given_up", "refused", "early", "earliest_ns", "budget", "events")
    return json.dumps({"budget": about.get("budget"), "gpu_time": {k: times[k] for k in keep if times.get(k) not in (None, 0)}})


def section(trace, name):
    text = subprocess.run([GPUTRACE, "report", trace, "--only", name, "--format", "json"], check=True, capture_output=True, text=True).stdout
    return json.loads(text)["analyses"][name]


def paired(name, steps, hows, order, tag):
    """Each way in this order, and their tails; traces of the last run of each."""
    found, traces = collections.defaultdict(list), {}
    for turn, key in enumerate(order):
        trace, times = go(name, steps, hows[key], f"{tag}{turn}{key}")
        found[key].append([ms for _, ms in times])
        traces[key] = (trace, times)
    base = tail([ms for run in found["plain"] for ms in run])
    for key, runs in found.items():
        p50, p99, longest = tail([ms for run in runs for ms in run])
        print(f"   {name} {key:6} {sum(map(len, runs)):6} steps  p50 {p50:.3f} ({100 * (p50 / base[0] - 1):+.2f} %)  p99 {p99:.3f} ({100 * (p99 / base[1] - 1):+.2f} %)  "
              f"longest {longest:.2f} ({longest - base[2]:+.2f} ms)  medians by turn {[round(statistics.median(run), 3) for run in runs]}", flush=True)
    return traces


def steps_of_auto():
    print("a: the transformer under auto --budget 1", flush=True)
    trace, _ = paired("transformer", STEPS, {"plain": None, "auto": BUDGET}, ["plain", "auto", "auto", "plain"], "a")["auto"]
    print("  ", spent(trace), flush=True)


def windows_and_profiler():
    import pyarrow.parquet as parquet

    print("b: steps in windows beside torch.profiler", flush=True)
    trace, times = go("transformer", "40s", BUDGET, "b", PROFILED)
    rows = lambda table: [parquet.read_table(f) for f in glob.glob(os.path.join(trace, table, "**", "*.parquet"), recursive=True)]  # noqa: E731
    ns = lambda column: column.cast("int64").to_pylist()  # noqa: E731
    windows = [(s, s + n) for t in rows("gpu_windows") for s, n in zip(ns(t["start_ns"]), ns(t["window_ns"]))]
    names = {k: v for t in rows("names") for k, v in zip(t["name_id"].to_pylist(), t["name"].to_pylist())}
    kernels = sorted((s, n, names.get(k, "?")) for t in rows("kernels") for s, n, k in zip(ns(t["start_ns"]), ns(t["gpu_ns"]), t["name_id"].to_pylist()))
    inside = [(at, at + int(ms * 1e6)) for at, ms in times if any(a + 2e6 <= at and at + ms * 1e6 <= b for a, b in windows)]
    counts, ours, place = [], collections.defaultdict(list), 0
    for begin, end in inside:
        while place < len(kernels) and kernels[place][0] < begin:
            place += 1
        count = 0
        while place < len(kernels) and kernels[place][0] < end:
            ours[gpu_time.same(kernels[place][2])].append(kernels[place][1])
            place, count = place + 1, count + 1
        counts.append(count)
    theirs = {k: v for k, v in gpu_time.summed(json.load(open(trace + ".json.profile"))).items() if not k.lower().startswith(("memcpy", "memset"))}
    each = sum(map(len, theirs.values())) / PROFILED
    minute = (times[-1][0] - times[0][0]) / 60e9
    print(f"   {len(windows)} windows in {minute:.2f} min ({len(windows) / minute:.1f} a minute), {len(inside)} whole steps in them; kernels a step {collections.Counter(counts).most_common(3)}, torch.profiler {each:g}", flush=True)
    if inside:
        sum_ours, sum_theirs = sum(map(sum, ours.values())) / len(inside), sum(map(sum, theirs.values())) / PROFILED
        all_ours, all_theirs = ([n for v in found.values() for n in v] for found in (ours, theirs))
        print(f"   sum a step {sum_ours / 1000:.1f} us, torch.profiler {sum_theirs / 1000:.1f} us ({100 * (sum_ours / sum_theirs - 1):+.2f} %); "
              f"median kernel {statistics.median(all_ours):.0f} and {statistics.median(all_theirs):.0f} ns ({100 * (statistics.median(all_ours) / statistics.median(all_theirs) - 1):+.2f} %)", flush=True)


def busy_by_events():
    print("c: busy by events beside torch.profiler in the same process, and beside full", flush=True)
    for name in ("transformer", "gemms"):
        steps, profiled = {"gemms": ("4s", 800)}.get(name, ("10s", PROFILED))
        share, busy = {}, {}
        for how in ("full", "events"):
            trace, times = go(name, steps, ["--malloc", "off", "--gpu-time", how], "c-" + how, profiled if how == "events" else 0)
            found = section(trace, "gpu-utilisation")
            # A host that is slower in one of the two runs has another share of the same work: a step's busy time says whether it is.
            made = len(times) + 20 + (profiled if how == "events" else 0)
            busy[how] = found["facts"]["busy_percent"] / 100 * found["facts"]["range_ns"] / 1e3 / made
            wall = (times[-1][0] - times[0][0]) / 1e3 / (len(times) - 1)
            share[how] = 100 * busy[how] / wall
            if how == "events":
                kernels = [n for k, v in gpu_time.summed(json.load(open(trace + ".json.profile"))).items() for n in v if not k.lower().startswith(("memcpy", "memset"))]
                truth = sum(kernels) / 1e3 / profiled
                print(f"   {name}: a step of {wall:.0f} us, busy {busy[how]:.1f} us by events, {truth:.1f} by torch.profiler in {profiled} steps of {json.load(open(trace + '.json.wall')):.0f} us of the same process "
                      f"({100 * (busy[how] / truth - 1):+.2f} %): {100 * busy[how] / wall:.2f} and {100 * truth / wall:.2f} % of a step ({100 * (busy[how] - truth) / wall:+.2f} points)", flush=True)
        error = found["tables"]["estimated_by_device"]["rows"][0]["error_points"]
        print(f"   {name}: in another run by full {busy['full']:.1f} us a step ({100 * (busy['events'] / busy['full'] - 1):+.2f} %); of steps {share['full']:.2f} % by full, "
              f"{share['events']:.2f} % by events ({share['events'] - share['full']:+.2f} points; give or take {error:.2f} of the run)", flush=True)


def graph_late():
    print("d: a first graph after 8 s", flush=True)
    shares = {}
    for how, options in (("full", ["--gpu-time", "full"]), ("auto", BUDGET)):
        trace, _ = go("late", "16s", options, "d-" + how)
        found = section(trace, "gpu-utilisation")
        shares[how] = found["facts"]["busy_percent"]
        table = found["tables"].get("estimated_by_device", {}).get("rows")
        print(f"   {how}: busy {shares[how]:.2f} % of {found['facts']['range_ns'] / 1e9:.2f} s {json.dumps(table)}\n   notes {json.dumps(found['notes'])}\n   {spent(trace)}", flush=True)
    print(f"   auto {shares['auto'] - shares['full']:+.2f} points", flush=True)


def many_launches():
    print("e: eight threads that only launch", flush=True)
    program = os.path.join(FOLDER, "launch_threads")
    subprocess.run(["cc", "-O2", "-o", program, os.path.join(HERE, "launch_threads.c"), "-lpthread", "-ldl"], check=True)
    took = {}
    for turn, (key, how) in enumerate([("plain", None), ("auto", BUDGET), ("auto", BUDGET), ("plain", None)]):
        trace = os.path.join(FOLDER, f"e{turn}")
        command = ([] if how is None else [GPUTRACE, "-o", trace, *how, "--"]) + [program, "8", "25600", "45"]
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - begin
        launched = 8 * 25600 * 45
        took.setdefault(key, []).append(float(done.stdout.split()[0]))
        print(f"   {key}: {done.stdout.strip()} ns a launch, {seconds:.1f} s, {launched / seconds / 1e6:.2f} M launches/s", flush=True)
        if how is not None:
            print("  ", spent(trace), "\n  ", "\n   ".join(line for line in done.stderr.splitlines() if re.search("budget|cost|busy", line)), flush=True)
    print(f"   ns a launch {100 * (statistics.mean(took['auto']) / statistics.mean(took['plain']) - 1):+.2f} %", flush=True)


def gpu_bound():
    print("f: steps that wait for the GPU", flush=True)
    hows = {"plain": None, "auto": BUDGET, "full": ["--gpu-time", "full"]}
    paired("gemms", "5s", hows, ["plain", "auto", "full", "plain"], "f")


def main():
    parts = sys.argv[3] if len(sys.argv) > 3 else "edcfab"
    began = time.perf_counter()
    for part in parts:
        try:
            {"a": steps_of_auto, "b": windows_and_profiler, "c": busy_by_events, "d": graph_late, "e": many_launches, "f": gpu_bound}[part]()
        except Exception as problem:  # the other parts are worth their time
            print(f"   part {part} failed: {problem!r}", flush=True)
        print(f"   ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:6])
    else:
        GPUTRACE, FOLDER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
        STEPS = sys.argv[4] if len(sys.argv) > 4 else "5000"
        os.makedirs(FOLDER, exist_ok=True)
        main()
