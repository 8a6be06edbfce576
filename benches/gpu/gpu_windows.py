"""GPU times in windows beside those of the whole run: `python gpu_windows.py GPUTRACE FOLDER [PROGRAM:SECONDS:TURNS,...]`.

Each program runs so long without anything, under gputrace, in windows and in full, in turn. Of each the median, 99th percentile
and longest step; of the last turn what a report says of the GPU, by windows and by all of it, and what the budget was spent on.
"""

import json
import os
import statistics
import subprocess
import sys
import time

from gpu_time import PROGRAMS, WARM

HOW = {"plain": None, "gputrace": [], "windows": ["--gpu-time", "windows"], "full": ["--gpu-time", "full"]}
FACTS = {"summary": ["unit_ns", "gpu_busy_ns", "gpu_idle_ns", "gpu_operations", "cost_percent"], "gpu-utilisation": ["busy_percent"]}


def run(name, seconds, out):
    import torch

    step = PROGRAMS[name]()
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    times, end = [], time.perf_counter() + float(seconds)
    while time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    with open(out, "w") as file:
        json.dump(times, file)


def told(trace):
    """What a report says of the GPU, and the manifest of the budget."""
    command = [GPUTRACE, "report", trace, "--only", ",".join(FACTS), "--format", "json"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["analyses"]
    facts = {fact: report[of]["facts"].get(fact) for of, all_of in FACTS.items() for fact in all_of}
    manifest = json.load(open([os.path.join(trace, "manifest", f) for f in os.listdir(os.path.join(trace, "manifest"))][0]))
    return facts, [p["gpu_time"] for p in manifest["processes"] if p.get("gpu_time")]


def main():
    os.makedirs(FOLDER, exist_ok=True)
    chosen = sys.argv[3] if len(sys.argv) > 3 else "transformer:20:2,graph:12:1,gemms:12:1"
    for name, seconds, turns in (item.split(":") for item in chosen.split(",")):
        found = {how: [] for how in HOW}
        for turn in range(int(turns)):
            for how, options in HOW.items():
                out, trace = os.path.join(FOLDER, "steps.json"), os.path.join(FOLDER, f"{name}-{how}-{turn}")
                command = [sys.executable, os.path.abspath(__file__), "run", name, seconds, out]
                if options is not None:
                    command = [GPUTRACE, "-o", trace, *options, "--"] + command
                with open(trace + ".err", "w") as err:
                    subprocess.run(command, check=True, stderr=err)
                found[how].append(sorted(json.load(open(out))))
        plain = statistics.median(statistics.median(times) for times in found["plain"])
        for how, runs in found.items():
            middle = statistics.median(statistics.median(times) for times in runs)
            tails = [f"{1000 * times[int(len(times) * 0.99)]:.2f}/{1000 * times[-1]:.2f}" for times in runs]
            print(f"{name:12} {how:10} p50 {1000 * middle:8.3f} ms {100 * (middle / plain - 1):+6.1f} %  p99/longest {tails}  steps {[len(t) for t in runs]}")
        for how in ("windows", "full"):
            facts, about = told(os.path.join(FOLDER, f"{name}-{how}-{int(turns) - 1}"))
            print("  ", how, json.dumps(facts))
            print("  ", json.dumps(about))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:5])
    else:
        GPUTRACE, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
        main()
