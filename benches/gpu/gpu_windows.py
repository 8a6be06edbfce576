"""GPU times in windows beside those of the whole run: `python gpu_windows.py GPUTRACE FOLDER [PROGRAM:SECONDS:TURNS:HOW+HOW...,...]`.

Each program runs so long without anything, under gputrace, in windows and in full (or in the ways that are named), in turn.
Of each the median, 99th percentile and longest step; of windows also the medians of the steps inside of them, while CUPTI was
still there after them, and between them, and the longest step while it was put on; of the last turn what a report says of the
GPU, and what the budget was spent on.
"""

import json
import os
import statistics
import subprocess
import sys
import time

from gpu_time import PROGRAMS, WARM

HOW = {"plain": None, "gputrace": [], "windows": ["--gpu-time", "windows"], "auto": ["--gpu-time", "auto"],
       "full": ["--gpu-time", "full"]}
FIRST = ["plain", "gputrace", "windows", "full"]
FACTS = {"summary": ["unit_ns", "gpu_busy_ns", "gpu_idle_ns", "gpu_operations", "cost_percent"], "gpu-utilisation": ["busy_percent"]}


def run(name, seconds, out):
    import torch

    step = PROGRAMS[name]()
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    times, end = [], time.perf_counter() + float(seconds)
    while time.perf_counter() < end:
        begin, at = time.perf_counter(), time.time_ns()
        step()
        times.append((at, time.perf_counter() - begin))
    with open(out, "w") as file:
        json.dump(times, file)


def told(trace):
    """What a report says of the GPU, and the manifest of the budget."""
    command = [GPUTRACE, "report", trace, "--only", ",".join(FACTS), "--format", "json"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["analyses"]
    facts = {fact: report[of]["facts"].get(fact) for of, all_of in FACTS.items() for fact in all_of}
    manifest = json.load(open([os.path.join(trace, "manifest", f) for f in os.listdir(os.path.join(trace, "manifest"))][0]))
    return facts, [p["gpu_time"] for p in manifest["processes"] if p.get("gpu_time")]


def placed(trace, steps):
    """Medians of the steps inside windows, after them and between them, ms, and the longest at a window's begin."""
    import pyarrow.parquet as parquet

    windows = []
    for file in os.listdir(os.path.join(trace, "gpu_windows")):
        rows = parquet.read_table(os.path.join(trace, "gpu_windows", file))
        windows += [(start.as_py(), start.as_py() + length.as_py()) for start, length in zip(rows["start_ns"].cast("int64"), rows["window_ns"].cast("int64"))]
    kinds = {"inside": [], "after": [], "between": [], "put on": []}
    for at, took in steps:
        end, kind = at + int(took * 1e9), "between"
        for first, last in windows:
            if at < first + 5e6 and end > first - 30e6:
                kind = "put on"
            elif at >= first and end <= last:
                kind = "inside"
            elif at < last + 160e6 and end > last:
                kind = "after"
        kinds[kind].append(1000 * took)
    middle = {kind: f"{statistics.median(times):.3f} ({len(times)})" for kind, times in kinds.items() if times and kind != "put on"}
    return {**middle, "longest while put on": round(max(kinds["put on"], default=0), 2), "windows": [round((b - a) / 1e9, 2) for a, b in windows]}


def main():
    os.makedirs(FOLDER, exist_ok=True)
    chosen = sys.argv[3] if len(sys.argv) > 3 else "transformer:20:2,graph:12:1,gemms:12:1"
    for item in chosen.split(","):
        name, seconds, turns, *hows = item.split(":")
        hows = hows[0].split("+") if hows else FIRST
        found = {how: [] for how in hows}
        for turn in range(int(turns)):
            for how in hows if turn % 2 == 0 else reversed(hows):
                options = HOW[how]
                out, trace = os.path.join(FOLDER, "steps.json"), os.path.join(FOLDER, f"{name}-{how}-{turn}")
                command = [sys.executable, os.path.abspath(__file__), "run", name, seconds, out]
                if options is not None:
                    command = [GPUTRACE, "-o", trace, *options, "--"] + command
                with open(trace + ".err", "w") as err:
                    subprocess.run(command, check=True, stderr=err)
                steps = json.load(open(out))
                if how == "windows":
                    print("  ", name, "windows", json.dumps(placed(trace, steps)), flush=True)
                found[how].append(sorted(took for _, took in steps))
        plain = statistics.median(statistics.median(times) for times in found[hows[0]])
        for how, runs in found.items():
            middle = statistics.median(statistics.median(times) for times in runs)
            tails = [f"{1000 * times[int(len(times) * 0.99)]:.2f}/{1000 * times[-1]:.2f}" for times in runs]
            print(f"{name:12} {how:10} p50 {1000 * middle:8.3f} ms {100 * (middle / plain - 1):+6.1f} %  p99/longest {tails}  steps {[len(t) for t in runs]} p50s {[round(1000 * statistics.median(t), 3) for t in runs]}", flush=True)
        for how in [how for how in hows if how not in ("plain", "gputrace")]:
            facts, about = told(os.path.join(FOLDER, f"{name}-{how}-{int(turns) - 1}"))
            print("  ", how, json.dumps(facts))
            print("  ", json.dumps(about))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:5])
    else:
        GPUTRACE, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
        main()
